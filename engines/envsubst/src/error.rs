//! Why a text was not substituted. The words of syntax errors and of unset variables are upstream's.

/// Why a text was not substituted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text cannot be read.
    #[error("{fault}")]
    Syntax {
        /// What is wrong.
        fault: SyntaxError,
        /// The line, from 1, on which the outermost expression around the fault begins.
        line: usize,
    },
    /// A variable without value, in an expression without default.
    #[error("variable not set (strict mode): \"{0}\"")]
    NotSet(String),
    /// A part of a value was asked for that ends before it begins.
    // Parity(flux): upstream panics.
    #[error("the part of variable \"{0}\" has a negative length")]
    NegativeLength(String),
    /// More work than allowed.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl Error {
    /// A hint, for errors whose text does not suggest one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Syntax { .. } => Some("write `$${` where the text `${` is meant"),
            Self::NotSet(_) => Some("set the variable, or give a default as in `${name:=default}`"),
            Self::NegativeLength(_) | Self::Limit(_) => None,
        }
    }
}

/// Why an expression cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// An operator or delimiter is missing or unknown.
    #[error("bad substitution")]
    BadSubstitution,
    /// The expression does not end, or its name is followed by something that is not an operator.
    #[error("missing closing brace")]
    MissingClosingBrace,
    /// There is no name after `${`.
    #[error("unable to parse variable name")]
    VariableName,
    /// What an operator works with is missing.
    #[error("unable to parse substitution within function")]
    Argument,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Expressions within expressions.
    #[error("expressions are nested more than {0} deep")]
    Depth(usize),
    /// Bytes written.
    #[error("the substituted text takes more than {0} bytes")]
    Output(usize),
    /// Work done.
    #[error("the substitution takes more than {0} steps")]
    Steps(u64),
}
