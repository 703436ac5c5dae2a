//! Parts of field paths, as `managedFields` write them: `f:name`, `k:{…}`, `v:…`, `i:…`.
//!
//! Here: what a part means for a value, and the same as a JSON pointer (RFC 6901). Elsewhere: sets of paths (`takeover.rs`,
//! `taken.rs`, `rival.rs`).

use serde_json::Value;

use crate::compare::push_key;

/// What a part of a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldPathPart<'p> {
    /// `f:name`
    Field(&'p str),
    /// `k:{…}`, `v:…` and `i:…`: an item of a list.
    Item(usize),
}

impl<'p> FieldPathPart<'p> {
    /// What a part means for the value that it begins at; `None` for an item that is not there.
    pub(crate) fn of(value: &Value, key: &'p str) -> Option<Self> {
        let (sort, text) = key.split_once(':')?;
        if sort == "f" {
            return Some(Self::Field(text));
        }
        let items = value.as_array()?;
        let wanted: Value = serde_json::from_str(text).ok()?;
        let at = match sort {
            "k" => items.iter().position(|item| {
                let keys = wanted.as_object();
                keys.is_some_and(|keys| keys.iter().all(|(key, it)| item.get(key) == Some(it)))
            })?,
            "v" => items.iter().position(|item| *item == wanted)?,
            "i" => usize::try_from(wanted.as_u64()?).ok()?,
            _ => return None,
        };
        Some(Self::Item(at))
    }

    /// What is there in a value.
    pub(crate) fn child(self, value: &Value) -> Option<&Value> {
        match self {
            Self::Field(name) => value.get(name),
            Self::Item(at) => value.get(at),
        }
    }

    /// Whether a part of a JSON pointer, without its escapes, means the same.
    pub(crate) fn is(self, segment: &str) -> bool {
        match self {
            Self::Field(name) => name == segment,
            Self::Item(at) => segment.parse::<usize>() == Ok(at),
        }
    }

    /// The JSON pointer from a pointer on.
    pub(crate) fn pointer(self, path: &str) -> String {
        match self {
            Self::Field(name) => push_key(path, name),
            Self::Item(at) => format!("{path}/{at}"),
        }
    }
}
