//! The two forms of tags, and the tag of a node.

use std::borrow::Cow;

use super::node::{YamlNode, YamlNodeKind, YamlNodeStyle};
use crate::YamlDialect;
use crate::scalar_resolve::{ResolvedScalar, resolve, tag};

pub(super) const STR: &str = "!!str";
pub(super) const NULL: &str = "!!null";
pub(super) const SEQ: &str = "!!seq";
pub(super) const MAP: &str = "!!map";
pub(super) const MERGE: &str = "!!merge";

/// The short form of a tag, which users write: `!!int`.
pub(super) fn short(tag: &str) -> Cow<'_, str> {
    match tag.strip_prefix(tag::PREFIX) {
        Some(name) => Cow::Owned(format!("!!{name}")),
        None => Cow::Borrowed(tag),
    }
}

/// The long form of a tag, which the grammar uses: `tag:yaml.org,2002:int`.
pub(super) fn long(tag: &str) -> Cow<'_, str> {
    match tag.strip_prefix("!!") {
        Some(name) => Cow::Owned(format!("{}{name}", tag::PREFIX)),
        None => Cow::Borrowed(tag),
    }
}

/// The tag that a text without a tag implies.
pub(super) fn of_text(text: &str) -> &'static str {
    match resolve(YamlDialect::V3, "", text) {
        Ok(ResolvedScalar::Null) => NULL,
        Ok(ResolvedScalar::Bool(_)) => "!!bool",
        Ok(ResolvedScalar::Int(_) | ResolvedScalar::Uint(_)) => "!!int",
        Ok(ResolvedScalar::Float(_)) => "!!float",
        Ok(ResolvedScalar::Timestamp) => "!!timestamp",
        Ok(ResolvedScalar::Binary | ResolvedScalar::Str | ResolvedScalar::Other) | Err(_) => STR,
    }
}

impl YamlNode {
    /// The tag in its short form. If [`YamlNode::tag`] is empty, it is the tag that the value implies. An alias has no
    /// tag.
    pub fn short_tag(&self) -> Cow<'_, str> {
        if self.is_indicated_string() {
            return Cow::Borrowed(STR);
        }
        if !matches!(self.tag.as_ref(), "" | "!") {
            return short(&self.tag);
        }
        Cow::Borrowed(match self.kind {
            YamlNodeKind::Mapping => MAP,
            YamlNodeKind::Sequence => SEQ,
            YamlNodeKind::Scalar => of_text(&self.value),
            YamlNodeKind::Document | YamlNodeKind::Alias => "",
        })
    }

    /// Whether the node is a scalar that means null.
    pub fn is_null(&self) -> bool {
        self.kind == YamlNodeKind::Scalar && self.short_tag() == NULL
    }

    /// Whether the node's tag or its quotes make it a text.
    pub(super) fn is_indicated_string(&self) -> bool {
        let untagged = matches!(self.tag.as_ref(), "" | "!");
        self.kind == YamlNodeKind::Scalar
            && (matches!(self.tag.as_ref(), STR | tag::STR) || untagged && self.style.is_quoted())
    }

    /// The tag to write, and whether the value needs quotes to stay a text.
    pub(super) fn written_tag(&self) -> (&str, bool) {
        if self.tag.is_empty() || self.style.contains(YamlNodeStyle::TAGGED) {
            return (&self.tag, false);
        }
        let stag = short(&self.tag);
        match self.kind {
            YamlNodeKind::Scalar if stag == STR && self.style.is_quoted() => ("", false),
            YamlNodeKind::Scalar if stag == of_text(&self.value) => ("", false),
            YamlNodeKind::Scalar if stag == STR => ("", true),
            YamlNodeKind::Mapping if stag == MAP => ("", false),
            YamlNodeKind::Sequence if stag == SEQ => ("", false),
            _ => (&self.tag, false),
        }
    }
}
