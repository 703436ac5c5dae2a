//! Why commits are not at a remote, by what can be done about it.

use signatures::commit_signing::SigningError;

use crate::Error;
use crate::error::shown;

/// Why a commit was not made or pushed. The variant tells what is to be done.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// Nothing was sent, or the server refused it as a whole: it does not know us, is not reached, is busy.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The server has other commits than ours builds on, or does not want it. See [`RejectionCause`].
    #[error("{0}")]
    Rejected(Box<PushRejection>),
    /// The push was sent and no answer came: it may have been accepted. The references must be fetched before anything else
    /// is pushed; if they are at [`PushWorkspace::head`](super::PushWorkspace::head), it was.
    #[error("the answer to the push was lost, it may have been accepted")]
    Unanswered(#[source] Error),
    /// A change that cannot be made.
    #[error("`{path}` cannot be written: {reason}")]
    Unwritable {
        /// As it was given.
        path: String,
        /// Why not.
        reason: String,
    },
    /// A refspec that means no reference of ours.
    #[error("invalid refspec `{refspec}`: {reason}")]
    InvalidRefspec {
        /// As it was given.
        refspec: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The commit cannot be signed.
    #[error("failed to sign the commit")]
    Unsigned(#[from] SigningError),
}

/// References that were not updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRejection {
    /// The remote without credentials.
    pub remote: String,
    /// What can be done.
    pub cause: RejectionCause,
    /// Those that were not updated; never empty.
    pub references: Vec<RejectedReference>,
    /// Those that were updated all the same: the server cannot do all or nothing.
    pub updated: Vec<String>,
    /// What the server, or a hook of it, said beside that; empty if it said nothing.
    pub message: String,
}

/// What can be done about references that were not updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectionCause {
    /// A reference is not where it was when it was fetched: fetch again, change again, push again.
    Outdated,
    /// The server, or a hook of it, does not want it: a protected branch, an unsigned commit. The same push will be declined
    /// again.
    Declined,
}

/// A reference that was not updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedReference {
    /// Its full name.
    pub name: String,
    /// The server's reason, or ours.
    pub reason: String,
}

impl std::fmt::Display for PushRejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = |it: &RejectedReference| match self.cause {
            // Parity(flux): the text of go-git.
            RejectionCause::Outdated => format!("non-fast-forward update: {}", shown(&it.name)),
            RejectionCause::Declined => {
                format!("command error on {}: {}", shown(&it.name), it.reason)
            }
        };
        let references: Vec<String> = self.references.iter().map(named).collect();
        f.write_str(&references.join(", "))?;
        if !self.updated.is_empty() {
            let updated: Vec<String> = self.updated.iter().map(|name| shown(name)).collect();
            write!(f, " (updated: {})", updated.join(", "))?;
        }
        if !self.message.is_empty() {
            write!(f, "; {} says: {}", self.remote, self.message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_names_references_without_what_cannot_be_seen() {
        let reason = "no".to_owned();
        let rejection = PushRejection {
            remote: "https://h/app".to_owned(),
            cause: RejectionCause::Declined,
            references: vec![RejectedReference { name: "refs/heads/\u{202e}x".to_owned(), reason }],
            updated: vec!["refs/heads/\u{2066}y".to_owned()],
            message: String::new(),
        };
        let text = "command error on refs/heads/x: no (updated: refs/heads/y)";
        assert_eq!(rejection.to_string(), text);
    }
}
