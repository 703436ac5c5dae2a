//! Kubernetes objects as data: their ids, reading them from manifests, masking Secrets, and displaying text from objects.
//!
//! Here: [`Object`], [`ObjectId`], [`Gvk`], reading manifests and streams, [`LabelSelector`], [`RedactedValue`],
//! [`SecretMasking`], [`clean_line`], images of containers ([`container_images`]).
//! Elsewhere: YAML itself (`goyaml`), applying objects (`apply`), reading objects from a cluster (the program's `cluster`
//! room).

pub mod build_output;
pub mod container_images;
pub mod control_character_escaping;
pub mod id;
pub mod manifest;
pub mod masking;
pub mod object;
pub mod redacted;
pub mod selector;

pub use control_character_escaping::clean_line;
pub use id::{Gvk, IdError, ObjectId};
pub use manifest::{LocatedObject, ManifestError};
pub use masking::SecretMasking;
pub use object::{Object, ObjectError};
pub use redacted::RedactedValue;
pub use selector::LabelSelector;
