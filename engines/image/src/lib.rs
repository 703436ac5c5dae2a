//! Images that update themselves through Git: which tags count, and which of them is the latest.
//!
//! Here: decisions and strings, without network, clock, disk or cluster.
//!
//! Source of the semantics: image-reflector-controller and image-automation-controller 1.2.4, with kyaml 0.21.1,
//! go-containerregistry 0.21.6, Masterminds/semver 3.5.0 and sprig 3.3.0.

mod policy;
mod reference;
mod scan;
mod tags;

pub use policy::{FilterTags, Policy, PolicyChoice, PolicyError};
pub use reference::{ImageName, ImageNameError, ImageRef};
pub use scan::{ScanDecision, ScanError, ScanReason, ScanState};
pub use tags::{ExclusionError, StoredTagsError, TagList, exclusion_list, read_tags};
