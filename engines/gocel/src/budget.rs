//! What one evaluation may cost, and how it ends early.
//!
//! Here: counting. Elsewhere: what counts how much ([`crate::eval`], `functions`).

/// Steps of one evaluation: nodes looked at, elements and entries compared or copied.
pub(crate) const MAX_STEPS: u64 = 1_000_000;
/// Bytes of all texts and lists that one evaluation makes or reads through.
pub(crate) const MAX_BYTES: u64 = 64 << 20;

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A variable that there is not; others of the same spelling may still be tried.
    NoSuchAttribute(String),
    /// Whatever else went wrong, in the words of the language.
    Failed(String),
    /// It costs more than an evaluation may; no operator absorbs this one.
    TooExpensive(&'static str),
}

impl Fault {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    pub(crate) fn no_such_overload() -> Self {
        Self::failed("no such overload")
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSuchAttribute(names) => write!(f, "no such attribute(s): {names}"),
            Self::Failed(text) => f.write_str(text),
            Self::TooExpensive(what) => {
                write!(
                    f,
                    "operation cancelled: the expression needs too {what}; make it look at fewer elements"
                )
            }
        }
    }
}

/// What is left to spend.
#[derive(Debug)]
pub(crate) struct Budget {
    steps: u64,
    bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps: MAX_STEPS, bytes: MAX_BYTES }
    }
}

impl Budget {
    pub(crate) fn spend(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps =
            self.steps.checked_sub(steps as u64).ok_or(Fault::TooExpensive("many steps"))?;
        Ok(())
    }

    /// To be called before so many bytes are made or read.
    pub(crate) fn spend_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes =
            self.bytes.checked_sub(bytes as u64).ok_or(Fault::TooExpensive("much memory"))?;
        Ok(())
    }
}
