//! Commits on top of a fetched commit, and pushing them.
//!
//! ```text
//! fetch ──▶ GitSnapshot ──▶ Workspace: commit (objects, signer) … ──▶ push (receive_pack, conversation) ──▶ PushOutcome
//! ```
//!
//! Here: files are changed in trees, never on a disk; commits are made and signed in memory; all of them are sent in one push.
//! Elsewhere: the connections ([`crate`]'s own: the same TLS, proxies, limits, deadlines and permitted servers as a
//! fetch), what is changed and when (the program), the signatures themselves (the engine `signatures`).
//!
//! # Races
//! Nothing here waits for another writer or merges. Each reference is updated only if it is where it was when it was fetched
//! ([`ReferenceUpdateRule`]); the server compares once more when it stores it.
//!
//! | what happens | what comes of it | what to do |
//! |---|---|---|
//! | the branch moved since it was fetched | [`PushError::Rejected`] with [`RejectionCause::Outdated`] | fetch, change, push again |
//! | a hook or a rule of the server says no | [`PushError::Rejected`] with [`RejectionCause::Declined`] | tell; the same push is declined again |
//! | the connection, the deadline or the process ends before the push is sent | [`PushError::Failed`] | try again later |
//! | … after it was sent | [`PushError::Unanswered`] | fetch, then change again: if the push was accepted, nothing differs, and nothing is pushed |
//!
//! A process that is killed has lost nothing: commits exist in memory until the server has them, and the next fetch shows
//! whether it does.

mod error;
mod objects;
mod receive_pack;
mod refspec;
mod signer;
mod workspace;

pub use error::{PushError, PushRejection, RejectedReference, RejectionCause};
pub use objects::{GitFileChange, GitFileMode};
pub use refspec::refspec_destination;
pub use signer::{CommitSigner, SigningKeyError};
pub use workspace::{
    CommitDetails, CommitIdentity, PushOutcome, PushRequest, PushWorkspace, ReferenceUpdate,
    ReferenceUpdateRule, is_ancestor,
};
