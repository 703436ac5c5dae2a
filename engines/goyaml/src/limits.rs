//! Limits for reading a text, and the rest of these limits.

use crate::error::Error;
use crate::reader::YamlMark;

/// Limits for one call.
///
/// Go only has a limit of 10 000 levels in the text, and a limit on aliases. Both always apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YamlLimits {
    /// How many bytes the input may have. The text that aliases repeat has the same limit.
    pub bytes: usize,
    /// How deep lists and maps may be nested. A greater depth than [`YamlLimits::MAX_DEPTH`] is lowered to it.
    pub depth: usize,
    /// How many documents with content a stream may have.
    pub documents: usize,
    /// How many nodes a stream may have. Nodes that aliases and merge keys repeat count again.
    pub nodes: usize,
}

impl YamlLimits {
    /// The deepest nesting that a value may have.
    ///
    /// Differs(go-yaml v2): Go decodes 10 000 levels; here it is 1 000, because a
    /// `serde_json::Value` is dropped, cloned and written by recursion, which a thread's stack must
    /// bear.
    pub const MAX_DEPTH: usize = 1_000;
}

impl Default for YamlLimits {
    /// 64 MiB, 1 000 levels, 10 000 documents, 4 000 000 nodes.
    fn default() -> Self {
        Self { bytes: 64 << 20, depth: Self::MAX_DEPTH, documents: 10_000, nodes: 4_000_000 }
    }
}

/// The rest of the limits while one input is read.
#[derive(Debug)]
pub(crate) struct YamlBudget {
    limits: YamlLimits,
    nodes: usize,
    repeated: usize,
    documents: usize,
}

impl YamlBudget {
    /// The budget for reading `input`.
    pub(crate) fn new(input: &[u8], limits: &YamlLimits) -> Result<Self, Error> {
        if input.len() > limits.bytes {
            let text = format!("input of {} bytes is longer than {}", input.len(), limits.bytes);
            return Err(Error::node(text, YamlMark::default()));
        }
        Ok(Self { limits: *limits, nodes: 0, repeated: 0, documents: 0 })
    }

    /// Charges for one node, which is in the text or repeated by an alias.
    pub(crate) fn take_node(&mut self, at: YamlMark) -> Result<(), Error> {
        self.nodes += 1;
        check(self.nodes, self.limits.nodes, "nodes", at)
    }

    /// Charges for text that an alias repeats.
    pub(crate) fn take_repeated(&mut self, length: usize, at: YamlMark) -> Result<(), Error> {
        self.repeated += length;
        // Differs(go-yaml v2): Go shares this text; here it is copied, so its length is bounded.
        if self.repeated > self.limits.bytes {
            return Err(Error::node("document contains excessive aliasing", at));
        }
        Ok(())
    }

    /// Charges for one document with content.
    pub(crate) fn take_document(&mut self, at: YamlMark) -> Result<(), Error> {
        self.documents += 1;
        check(self.documents, self.limits.documents, "documents", at)
    }

    /// Checks the nesting of a value.
    pub(crate) fn check_depth(&self, depth: usize, at: YamlMark) -> Result<(), Error> {
        let most = self.limits.depth.min(YamlLimits::MAX_DEPTH);
        if depth > most {
            return Err(Error::node(format!("exceeded max depth of {most}"), at));
        }
        Ok(())
    }
}

fn check(count: usize, most: usize, what: &str, at: YamlMark) -> Result<(), Error> {
    if count > most {
        return Err(Error::node(format!("stream has more than {most} {what}"), at));
    }
    Ok(())
}
