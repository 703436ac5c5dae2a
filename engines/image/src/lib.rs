//! Images that update themselves through Git: which tags count, which of them is the latest, and what that changes in the
//! files of a repository.
//!
//! Here: decisions and strings, without network, clock, disk or cluster. Elsewhere: what a registry lists, repositories and
//! commits (the sources), objects and their statuses (the controllers).
//!
//! * [`ImageName`] is `spec.image` of an ImageRepository. [`ScanState`] decides when its tags are listed, and
//!   [`TagList`] is what is kept of them.
//! * [`Policy`] chooses one of the tags, of those that [`FilterTags`] lets through.
//! * [`Setters`] are the values that the policies of an automation give. [`Checkout`] finds the files that may have markers,
//!   and [`Rewriter`] sets the values there: byte by byte, or as Flux writes files ([`RewriteMode`]).
//! * [`UpdateResult`] is what was changed, and [`commit_message()`] makes the commit message from it.
//!
//! Source of the semantics: image-reflector-controller and image-automation-controller 1.2.4, with kyaml 0.21.1,
//! go-containerregistry 0.21.6, Masterminds/semver 3.5.0 and sprig 3.3.0.

mod checkout;
mod commit;
mod policy;
mod reference;
mod result;
mod rewrite;
mod scan;
mod setter;
mod tags;

pub use checkout::{Checkout, CheckoutEntry, CheckoutError, MarkedFile, SelectedFiles};
pub use commit::{
    CommitData, CommitEnvironment, CommitMessageError, REQUIRED_STACK_BYTES, commit_message,
};
pub use policy::{FilterTags, Policy, PolicyChoice, PolicyError};
pub use reference::{ImageName, ImageNameError, ImageRef};
pub use result::{Change, ObjectChanges, ObjectIdentifier, UpdateResult};
pub use rewrite::{
    FileProblem, Rewrite, RewriteError, RewriteLimits, RewriteMode, Rewriter, StrategyError,
    UnreadMarker, check_strategy, has_marker,
};
pub use scan::{ScanDecision, ScanError, ScanReason, ScanState};
pub use setter::{InvalidImageRef, PolicyResult, Setters};
pub use tags::{ExclusionError, StoredTagsError, TagList, exclusion_list, read_tags};
