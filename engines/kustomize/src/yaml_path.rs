//! Paths through a document: `spec`, `[name=web]`, `2`, `*`.
//!
//! Here: the one node at the end of a path ([`lookup`]), and all nodes that a path with patterns leads to ([`matches`]).
//! Strings are split into the parts of a path in `yaml_path/split.rs`. The paths of field specs, which enter lists
//! automatically, are in `fieldspec.rs`.

mod lookup;
mod matches;
mod split;

use goyaml::v3::{YamlNode, YamlNodeKind};

use crate::field::WrongNodeKind;

pub use lookup::lookup;
pub(crate) use lookup::{lookup_create, lookup_mut};
pub use matches::{PathMatch, matches};
pub use split::split;
pub(crate) use split::split_brackets;

/// Most parts of a path. Differs(kustomize): it has no limit.
pub const MAX_PARTS: usize = 200;

/// Why a path cannot be followed. The text is kustomize's, where kustomize has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A part needs another kind of node.
    #[error(transparent)]
    WrongKind(#[from] WrongNodeKind),
    /// A negative number.
    #[error("array index {0} cannot be negative")]
    Negative(i64),
    /// A `*` where a single node is needed.
    #[error("wildcard is not supported in PathGetter")]
    Wildcard,
    /// A `[…]` without `=`.
    #[error("list path element must contain fieldName=fieldValue for element to match")]
    NoPair,
    /// The last item of an empty list.
    #[error("the list that `-` takes the last item of is empty")]
    NoLast,
    /// A number beyond the list.
    #[error("index {index} specified but only {found} elements found")]
    Index {
        /// The number.
        index: usize,
        /// The length of the list.
        found: usize,
    },
    /// The value in `[key=value]` is not a regular expression.
    #[error(transparent)]
    Pattern(#[from] golang::regexp::Error),
    /// A path runs through a text that is not YAML.
    #[error(transparent)]
    Text(#[from] goyaml::Error),
    /// A path leads through a field whose text is empty.
    #[error("wrong node kind: expected {expected} but got : node contents:\nnull\n")]
    EmptyText {
        /// The kind of node that the path needs here.
        expected: &'static str,
    },
    /// An item was created for a `[key=value]`, but the item does not match it.
    #[error("the element created for `{0}` does not match it")]
    Unmatched(String),
    /// Following the path needs too much time or memory.
    #[error(transparent)]
    Exhausted(#[from] golang::work_meter::WorkLimitExceeded),
    /// More parts than [`MAX_PARTS`].
    #[error("path has more than {MAX_PARTS} parts")]
    TooLong,
}

/// The position of a node: the index of the child on each level, from the root on.
pub type ChildIndexPath = Vec<usize>;

/// The node at a position; `None` if the tree has changed and the position no longer exists.
pub fn at<'n>(root: &'n YamlNode, place: &[usize]) -> Option<&'n YamlNode> {
    place.iter().try_fold(root, |node, child| node.content.get(*child))
}

/// Like [`at`], but the returned node can be changed. `None` if the place does not exist.
pub(crate) fn at_mut<'n>(root: &'n mut YamlNode, place: &[usize]) -> Option<&'n mut YamlNode> {
    place.iter().try_fold(root, |node, child| node.content.get_mut(*child))
}

/// The number that Go reads from a part, positive or negative. `None` if the part is not a number. Most parts are
/// names, for which no error needs to be created.
fn number(part: &str) -> Option<i64> {
    let is_name = part.bytes().next().is_none_or(|byte| byte.is_ascii_alphabetic());
    if is_name { None } else { golang::strconv::atoi(part).ok() }
}

/// The number of an item that a part of a path means. `None` if the part is not a number or is negative.
fn index(part: &str) -> Option<usize> {
    number(part).and_then(|index| usize::try_from(index).ok())
}

/// Whether a part selects items by their content.
fn is_pair(part: &str) -> bool {
    part.starts_with('[') && part.ends_with(']')
}

/// The field and the value of `[field=value]`. Without a field, the items themselves are compared with the value.
fn pair(part: &str) -> Result<(&str, &str), Error> {
    let inner = part.strip_suffix(']').unwrap_or(part);
    inner.strip_prefix('[').unwrap_or(inner).split_once('=').ok_or(Error::NoPair)
}

/// The kind of node that is created for a part, which follows from the next part.
fn kind_before(next: Option<&str>, last: YamlNodeKind) -> YamlNodeKind {
    match next {
        Some(next) if is_pair(next) || index(next).is_some() => YamlNodeKind::Sequence,
        None | Some("") => last,
        Some(_) => YamlNodeKind::Mapping,
    }
}

/// A node without a tag.
fn created(kind: YamlNodeKind, value: &str) -> YamlNode {
    YamlNode { kind, value: value.to_owned(), ..YamlNode::default() }
}

/// The item that `[field=value]` creates.
fn created_item(field: &str, value: &str) -> YamlNode {
    let value = created(YamlNodeKind::Scalar, value);
    if field.is_empty() {
        return value;
    }
    let content = vec![created(YamlNodeKind::Scalar, field), value].into();
    YamlNode { content, ..created(YamlNodeKind::Mapping, "") }
}

/// The root of a document, or the node itself; and its position.
fn root(node: &YamlNode) -> (&YamlNode, ChildIndexPath) {
    match (node.kind, node.content.first()) {
        (YamlNodeKind::Document, Some(root)) => (root, vec![0]),
        _ => (node, ChildIndexPath::new()),
    }
}

#[cfg(test)]
mod tests;
