//! Makes commits on top of a fetched commit, and pushes them.
//!
//! ```text
//! fetch ──▶ GitSnapshot ──▶ Workspace: commit (objects, signer) … ──▶ push (receive_pack, conversation) ──▶ PushOutcome
//! ```
//!
//! Here: changing files in trees, never on a disk, making and signing commits in memory, and sending all of them in one push.
//! Elsewhere: the connections ([`crate`]'s own: the same TLS, proxies, limits, deadlines and permitted servers as a
//! fetch), which files are changed and when (the program), the signatures themselves (the engine `signatures`).
//!
//! # Races
//! A push neither waits for another writer nor merges. A reference is updated only if it has not moved since the fetch
//! ([`ReferenceUpdateRule`]). The server compares the reference once more when it stores it.
//!
//! | what happens | what comes of it | what to do |
//! |---|---|---|
//! | the branch moved since it was fetched | [`PushError::Rejected`] with [`PushRejectionCause::Outdated`] | fetch, change, push again |
//! | a hook or a rule of the server says no | [`PushError::Rejected`] with [`PushRejectionCause::Declined`] | tell; the same push is declined again |
//! | the connection, the deadline or the process ends before the push is sent | [`PushError::Failed`] | try again later |
//! | … after it was sent | [`PushError::Unanswered`] | fetch, then change again: if the push was accepted, nothing differs, and nothing is pushed |
//!
//! A killed process loses no work. Commits exist only in memory until the server has them, and the next fetch shows whether the
//! server has them.

mod error;
mod objects;
mod receive_pack;
mod refspec;
mod signer;
mod workspace;

pub use error::{PushError, PushRejection, PushRejectionCause, RejectedReference};
pub use objects::{GitFileChange, GitFileMode};
pub use refspec::refspec_destination;
pub use signer::{CommitSigner, SigningKeyError};
pub use workspace::{
    CommitIdentity, NewCommitMetadata, PushOutcome, PushRequest, PushWorkspace, ReferenceUpdate,
    ReferenceUpdateRule, is_ancestor,
};
