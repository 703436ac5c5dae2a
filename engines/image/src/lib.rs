//! Updates images through Git: selects the latest tag of an image by a policy, and changes the files of a repository
//! accordingly.
//!
//! Here: decisions and strings, without network, clock, disk or cluster. Elsewhere: requests to registries, repositories and
//! commits (the sources), objects and their statuses (the controllers).
//!
//! * [`ImageName`] is `spec.image` of an ImageRepository. [`ScanState`] decides when its tags are listed, and [`TagList`]
//!   stores them.
//! * [`TagPolicy`] chooses one of the tags that [`FilterTags`] accepts, and reports why each other tag is not chosen
//!   ([`TagVerdict`]). [`TagHistory`] records when digests were first seen, for policies with a minimum age.
//! * [`ImageSetterValues`] are the values of an automation's policies. [`CheckoutFiles`] finds the files that may have markers,
//!   and [`MarkerRewriter`] sets the values there: byte by byte, or as Flux writes files ([`RewriteMode`]).
//!   [`FileUpdateRequest`] does both for a whole repository.
//! * [`UpdateResult`] lists the changes, and [`commit_message()`] makes the commit message from it.
//!
//! Source of the semantics: image-reflector-controller and image-automation-controller 1.2.4, with kyaml 0.21.1,
//! go-containerregistry 0.21.6, Masterminds/semver 3.5.0 and sprig 3.3.0.

mod commit_message_template;
mod file_update;
mod git_checkout_files;
mod image_reference;
mod image_setter;
mod marker_value_rewrite;
mod policy;
mod scan_schedule;
mod tag_history;
mod tag_list;
mod update_result;

pub use commit_message_template::{
    CommitMessageData, CommitMessageEnvironment, CommitMessageError, REQUIRED_STACK_BYTES,
    commit_message,
};
pub use file_update::{FileUpdate, FileUpdateRequest};
pub use git_checkout_files::{
    CheckoutEntryType, CheckoutFiles, MarkedFile, SelectedFiles, UpdatePathError,
};
pub use image_reference::{ImageName, ImageNameError, ImageRef};
pub use image_setter::{ImageSetterValues, InvalidImageRef, PolicyResult};
pub use marker_value_rewrite::{
    MarkerRewriteResult, MarkerRewriter, MarkerWithoutEffect, RewriteError, RewriteLimits,
    RewriteMode, SkippedFileProblem, TagWithoutDigest, UpdateStrategyError, check_strategy,
    has_marker,
};
pub use policy::{FilterTags, PolicyChoice, PolicyError, TagEligibility, TagPolicy, TagVerdict};
pub use scan_schedule::{ScanDecision, ScanDecisionError, ScanReason, ScanState};
pub use tag_history::{TagHistory, counts_from};
pub use tag_list::{StoredTagsError, TagExclusionError, TagList, exclusion_list, read_tags};
pub use update_result::{ImageValueChange, ObjectChanges, ObjectIdentifier, UpdateResult};
