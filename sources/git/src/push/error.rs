//! The errors of commits and pushes. Each variant tells what the caller can do.

use signatures::commit_signing::SigningError;

use crate::Error;
use crate::error::shown;

/// The reason why a commit was not made or pushed. The variant tells what the caller should do.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// Nothing was sent, or the server refused the whole request: it does not accept the credentials, cannot be reached, or is
    /// busy.
    #[error(transparent)]
    Failed(#[from] Error),
    /// The server has other commits than ours builds on, or does not want it. See [`PushRejectionCause`].
    #[error("{0}")]
    Rejected(Box<PushRejection>),
    /// The push was sent, but no answer came, so the server may have accepted it. The caller must fetch the references before
    /// the next push. If they are at [`PushWorkspace::head`](super::PushWorkspace::head), the server accepted the push.
    #[error("the answer to the push was lost, it may have been accepted")]
    Unanswered(#[source] Error),
    /// A change that cannot be made.
    #[error("`{path}` cannot be written: {reason}")]
    Unwritable {
        /// The path as it was given.
        path: String,
        /// The reason why it cannot be written.
        reason: String,
    },
    /// A refspec that means no reference of ours.
    #[error("invalid refspec `{refspec}`: {reason}")]
    InvalidRefspec {
        /// The refspec as it was given.
        refspec: String,
        /// The reason why it is invalid.
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
    /// The class of the rejection, which tells what the caller can do.
    pub cause: PushRejectionCause,
    /// The references that were not updated. Never empty.
    pub references: Vec<RejectedReference>,
    /// The references that were updated all the same, because the server does not support atomic pushes.
    pub updated: Vec<String>,
    /// The other messages of the server or its hooks. Empty if there are none.
    pub message: String,
}

/// The class of a rejection, which tells what the caller can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushRejectionCause {
    /// A reference has moved since it was fetched. The caller has to fetch, change and push again.
    Outdated,
    /// The server or one of its hooks rejects the push, for example because of a protected branch or an unsigned commit. The
    /// same push will be rejected again.
    Declined,
}

/// A reference that was not updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedReference {
    /// The full name of the reference.
    pub name: String,
    /// The server's reason, or ours.
    pub reason: String,
}

impl std::fmt::Display for PushRejection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = |it: &RejectedReference| match self.cause {
            // Parity(flux): the text of go-git.
            PushRejectionCause::Outdated => format!("non-fast-forward update: {}", shown(&it.name)),
            PushRejectionCause::Declined => {
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
            cause: PushRejectionCause::Declined,
            references: vec![RejectedReference { name: "refs/heads/\u{202e}x".to_owned(), reason }],
            updated: vec!["refs/heads/\u{2066}y".to_owned()],
            message: String::new(),
        };
        let text = "command error on refs/heads/x: no (updated: refs/heads/y)";
        assert_eq!(rejection.to_string(), text);
    }
}
