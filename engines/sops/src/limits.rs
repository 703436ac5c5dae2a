//! Limits on the parts of an encrypted file that are read, and the deadline of a decryption.

use golang::work_meter::StopSignal;

/// The limits for one file or object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SopsLimits {
    /// The most bytes of a file. Flux has the same limit for files, and none for objects. The text of the tree may be twice as
    /// long, because escapes can grow; text that aliases repeat counts each time.
    pub bytes: usize,
    /// The deepest nesting of lists and maps. A value above [`SopsLimits::MAX_DEPTH`] is reduced to it.
    pub depth: usize,
    /// The most values, keys and comments in a tree. Entries that aliases repeat count each time.
    pub entries: usize,
    /// Master keys in the metadata, of all groups together.
    pub master_keys: usize,
    /// The most files that one kustomization decrypts, including all kustomizations that it refers to.
    pub files: usize,
}

impl SopsLimits {
    /// The highest allowed nesting, which is what `serde_json` can read.
    pub const MAX_DEPTH: usize = 127;
}

impl Default for SopsLimits {
    /// 5 MiB, 127 levels, 500 000 entries, 256 master keys, 10 000 files.
    fn default() -> Self {
        Self {
            bytes: 5 << 20,
            depth: Self::MAX_DEPTH,
            entries: 500_000,
            master_keys: 256,
            files: 10_000,
        }
    }
}

/// A bound that a file exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileLimitExceeded {
    #[error("the file is longer than {0} bytes")]
    Bytes(usize),
    #[error("lists and maps are nested more than {0} deep")]
    Depth(usize),
    #[error("its values, keys and comments have more than {0} bytes, with what aliases repeat")]
    Text(usize),
    #[error("the file has more than {0} values, keys and comments")]
    Entries(usize),
    #[error("the metadata name more than {0} master keys")]
    MasterKeys(usize),
}

/// The remaining limits while a tree is built.
#[derive(Debug)]
pub(crate) struct SopsParseBudget {
    limits: SopsLimits,
    entries: usize,
    text: usize,
}

impl SopsParseBudget {
    pub(crate) fn new(limits: &SopsLimits) -> Self {
        Self { limits: *limits, entries: 0, text: 0 }
    }

    /// Counts an entry at a depth.
    pub(crate) fn take(&mut self, depth: usize) -> Result<(), FileLimitExceeded> {
        let deepest = self.limits.depth.min(SopsLimits::MAX_DEPTH);
        if depth > deepest {
            return Err(FileLimitExceeded::Depth(deepest));
        }
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(FileLimitExceeded::Entries(self.limits.entries));
        }
        Ok(())
    }

    /// Counts text before it is copied into the tree.
    pub(crate) fn take_text(&mut self, bytes: usize) -> Result<(), FileLimitExceeded> {
        let most = self.limits.bytes.saturating_mul(2);
        self.text = self.text.saturating_add(bytes);
        if self.text > most { Err(FileLimitExceeded::Text(most)) } else { Ok(()) }
    }
}

/// The deadline of a decryption. The caller decides when it has passed, because engines have no clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecryptionDeadline<'s>(pub(crate) Option<&'s StopSignal>);

impl DecryptionDeadline<'_> {
    pub(crate) fn is_over(self) -> bool {
        self.0.is_some_and(StopSignal::is_set)
    }
}
