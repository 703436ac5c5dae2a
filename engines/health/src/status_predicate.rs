//! One test of a rule, which holds or does not hold for an object.
//!
//! | written | holds if |
//! |---|---|
//! | `PATH` | a value is there, and is neither empty nor null |
//! | `missing PATH` | one of the values is not there |
//! | `PATH=A\|B` | a value is one of these texts; case does not count, `*` at an end stands for anything |
//! | `PATH!=A\|B` | a value is none of them, or is not there |
//! | `PATH=.PATH`, `PATH!=.PATH` | a value is, or is not, the value at the other path |
//! | `PATH<N`, `PATH<.PATH` | a number is below another; also `<=`, `>`, `>=`. What is not there is 0; times are compared as texts |
//! | `not …` | the test after it does not hold |
//!
//! With several values on both sides (`[*]`), the first value is compared with the first one of the other side, and so
//! on.

use std::borrow::Cow;
use std::cmp::Ordering;

use objects::Object;
use serde_json::Value;

use crate::field_path::{FieldPath, TooManyValues, number};

/// How many bytes of a text are searched for a pattern that may be anywhere in it. States that are sentences are
/// shorter.
const MAX_SEARCHED_BYTES: usize = 4_096;

/// One test of a rule.
#[derive(Debug, Clone)]
pub(crate) struct StatusPredicate {
    /// The test as the rule writes it.
    text: String,
    is_negated: bool,
    path: FieldPath,
    check: ValueCheck,
}

#[derive(Debug, Clone)]
enum ValueCheck {
    Present,
    Missing,
    Text { is_equal: bool, patterns: Vec<TextPattern> },
    Number { relation: Relation, bound: i64 },
    Field { relation: Relation, other: FieldPath },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The signs of relations in rules. Longer ones come first.
const RELATION_SIGNS: [(&str, Relation); 6] = [
    ("!=", Relation::Unequal),
    ("<=", Relation::LessOrEqual),
    (">=", Relation::GreaterOrEqual),
    ("=", Relation::Equal),
    ("<", Relation::Less),
    (">", Relation::Greater),
];

/// A text to compare with, and whether any text may precede or follow it.
#[derive(Debug, Clone)]
struct TextPattern {
    text: String,
    has_beginning: bool,
    has_end: bool,
}

impl StatusPredicate {
    /// Reads a test. `None` if the text is not a test.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (is_negated, rest) = match text.strip_prefix("not ") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (path, check) = match rest.strip_prefix("missing ") {
            Some(path) => (path, ValueCheck::Missing),
            None => match rest.find(['=', '!', '<', '>']) {
                None => (rest, ValueCheck::Present),
                Some(at) => {
                    let (path, rest) = rest.split_at(at);
                    (path, ValueCheck::parse(rest)?)
                }
            },
        };
        Some(Self { text: text.to_owned(), is_negated, path: FieldPath::parse(path)?, check })
    }

    /// The test as the rule writes it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The path that the test is about, if it needs a value there. `None` for `not` and `missing`.
    pub(crate) fn subject(&self) -> Option<&FieldPath> {
        let is_about_value = !self.is_negated && !matches!(self.check, ValueCheck::Missing);
        is_about_value.then_some(&self.path)
    }

    /// Whether the test holds for an object.
    ///
    /// # Errors
    /// The object has too many values at the path.
    pub(crate) fn holds(&self, object: &Object) -> Result<bool, TooManyValues> {
        let values = self.path.values(object)?;
        let mut values = values.into_iter();
        let holds = match &self.check {
            ValueCheck::Present => values.any(is_present),
            ValueCheck::Missing => values.any(|it| !is_present(it)),
            ValueCheck::Text { is_equal, patterns } => {
                values.any(|it| is_one_of(it, patterns) == *is_equal)
            }
            ValueCheck::Number { relation, bound } => {
                values.any(|it| number_or_0(it).is_some_and(|it| relation.admits(it.cmp(bound))))
            }
            ValueCheck::Field { relation, other } => {
                let others = other.values(object)?;
                match others.as_slice() {
                    [only] => values.any(|it| relation.holds(it, *only)),
                    others => values.zip(others).any(|(it, other)| relation.holds(it, *other)),
                }
            }
        };
        Ok(holds != self.is_negated)
    }
}

impl ValueCheck {
    /// Reads a relation such as `==` and its right side. `None` if they are not valid.
    fn parse(text: &str) -> Option<Self> {
        let (relation, right) = RELATION_SIGNS
            .iter()
            .find_map(|(sign, relation)| Some((*relation, text.strip_prefix(*sign)?)))?;
        if right.starts_with('.') {
            return Some(Self::Field { relation, other: FieldPath::parse(right)? });
        }
        match relation {
            Relation::Equal | Relation::Unequal => {
                let patterns: Option<Vec<_>> = right.split('|').map(TextPattern::parse).collect();
                Some(Self::Text { is_equal: relation == Relation::Equal, patterns: patterns? })
            }
            Relation::Less
            | Relation::LessOrEqual
            | Relation::Greater
            | Relation::GreaterOrEqual => {
                Some(Self::Number { relation, bound: right.parse().ok()? })
            }
        }
    }
}

impl Relation {
    fn holds(self, left: Option<&Value>, right: Option<&Value>) -> bool {
        match self {
            Self::Equal => is_same(left, right),
            Self::Unequal => !is_same(left, right),
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {
                ordering(left, right).is_some_and(|it| self.admits(it))
            }
        }
    }

    fn admits(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Unequal => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

impl TextPattern {
    fn parse(text: &str) -> Option<Self> {
        let (has_beginning, rest) = match text.strip_prefix('*') {
            Some(rest) => (false, rest),
            None => (true, text),
        };
        let (has_end, text) = match rest.strip_suffix('*') {
            Some(rest) => (false, rest),
            None => (true, rest),
        };
        (!text.is_empty()).then(|| Self { text: text.to_owned(), has_beginning, has_end })
    }

    fn matches(&self, text: &str) -> bool {
        let wanted = self.text.as_bytes();
        let text = text.as_bytes();
        match (self.has_beginning, self.has_end) {
            (true, true) => text.eq_ignore_ascii_case(wanted),
            (true, false) => {
                text.get(..wanted.len()).is_some_and(|it| it.eq_ignore_ascii_case(wanted))
            }
            (false, true) => text
                .len()
                .checked_sub(wanted.len())
                .and_then(|at| text.get(at..))
                .is_some_and(|it| it.eq_ignore_ascii_case(wanted)),
            (false, false) => text
                .get(..MAX_SEARCHED_BYTES)
                .unwrap_or(text)
                .windows(wanted.len())
                .any(|it| it.eq_ignore_ascii_case(wanted)),
        }
    }
}

fn is_present(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(Value::Bool(_) | Value::Number(_)) => true,
    }
}

/// The text of a value that is a single text, number or boolean. `None` for any other value.
pub(crate) fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Bool(true) => Some(Cow::Borrowed("true")),
        Value::Bool(false) => Some(Cow::Borrowed("false")),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_one_of(value: Option<&Value>, patterns: &[TextPattern]) -> bool {
    let Some(text) = value.and_then(scalar_text) else { return false };
    patterns.iter().any(|pattern| pattern.matches(&text))
}

/// Whether two values are the same. A generation may be a number in one place and a text in another.
fn is_same(left: Option<&Value>, right: Option<&Value>) -> bool {
    let both = left.and_then(scalar_text).zip(right.and_then(scalar_text));
    both.is_some_and(|(left, right)| left == right)
}

fn number_or_0(value: Option<&Value>) -> Option<i64> {
    value.map_or(Some(0), number)
}

fn ordering(left: Option<&Value>, right: Option<&Value>) -> Option<Ordering> {
    match (number_or_0(left), number_or_0(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (None, None) => {
            let left = left.and_then(Value::as_str)?;
            Some(left.cmp(right.and_then(Value::as_str)?))
        }
        _ => None,
    }
}
