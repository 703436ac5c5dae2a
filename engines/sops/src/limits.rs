//! How much of an encrypted file is read before reading it is refused.

/// Bounds on one file or object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file; Flux has the same bound for files, and none for objects.
    pub bytes: usize,
    /// Lists and maps within each other; more than [`Limits::MAX_DEPTH`] counts as that.
    pub depth: usize,
    /// Values, keys and comments of the tree, counted again where aliases repeat them.
    pub entries: usize,
    /// Master keys in the metadata, of all groups together.
    pub master_keys: usize,
    /// Files that one kustomization decrypts, with all that it refers to.
    pub files: usize,
}

impl Limits {
    /// The deepest nesting: what `serde_json` reads at most.
    pub const MAX_DEPTH: usize = 127;
}

impl Default for Limits {
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
pub(crate) enum Exceeded {
    #[error("the file is longer than {0} bytes")]
    Bytes(usize),
    #[error("lists and maps are nested more than {0} deep")]
    Depth(usize),
    #[error("the file has more than {0} values, keys and comments")]
    Entries(usize),
    #[error("the metadata name more than {0} master keys")]
    MasterKeys(usize),
}

/// What is left of the bounds while a tree is made.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    entries: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: *limits, entries: 0 }
    }

    /// Counts an entry at a depth.
    pub(crate) fn take(&mut self, depth: usize) -> Result<(), Exceeded> {
        let deepest = self.limits.depth.min(Limits::MAX_DEPTH);
        if depth > deepest {
            return Err(Exceeded::Depth(deepest));
        }
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(Exceeded::Entries(self.limits.entries));
        }
        Ok(())
    }
}
