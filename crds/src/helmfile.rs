//! The group `helmfile.windlass.dev/v1alpha1`: the releases of helmfiles, kept installed.
//!
//! Here: its one kind, spread over the spec and the status. Elsewhere: what helmfiles mean (`engines/helmfile`), running
//! (`src/controllers`).

mod spec;
mod status;

pub use spec::{EnvironmentSource, EnvironmentVariable, Helmfile, HelmfileSpec, SuspendedRelease};
pub use status::{HelmfileStatus, ReleaseRow, ReleaseState};
