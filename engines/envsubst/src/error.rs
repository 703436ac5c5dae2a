//! Why a text was not substituted. Syntax errors and errors about unset variables have the words of the original
//! library.

/// Why a text was not substituted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text has a syntax error.
    #[error("{fault}")]
    Syntax {
        /// The syntax error.
        fault: SyntaxError,
        /// The line, counted from 1, where the outermost expression with the error begins.
        line: usize,
    },
    /// A variable is not set, and its expression has no default.
    #[error("variable not set (strict mode): \"{0}\"")]
    NotSet(String),
    /// The requested part of a value ends before it begins. Parity(flux): upstream panics.
    #[error("the part of variable \"{0}\" has a negative length")]
    NegativeLength(String),
    /// The substitution would need more work than allowed.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl Error {
    /// A hint for the user about what to do. `None` if no general remedy is known.
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
    /// The argument of an operator is missing.
    #[error("unable to parse substitution within function")]
    Argument,
}

/// The limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The depth of nested expressions.
    #[error("expressions are nested more than {0} deep")]
    Depth(usize),
    /// The number of written bytes.
    #[error("the substituted text takes more than {0} bytes")]
    Output(usize),
    /// The number of steps of work.
    #[error("the substitution takes more than {0} steps")]
    Steps(u64),
}
