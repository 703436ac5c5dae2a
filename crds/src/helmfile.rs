//! The group `helmfile.windlass.dev/v1alpha1`: the releases of helmfiles, kept installed; and the kind of
//! helmfile-operator, `apps.mumoshu.github.io/v1alpha1`, whose objects become the same.
//!
//! Here: the two kinds (`helmfile_operator` is the older one), and the status that both have. Elsewhere: what helmfiles mean
//! (`engines/helmfile`), running (`operator/helmfile`).

pub mod mumoshu_helmfile;

mod spec;
mod status;

pub use spec::{
    Dialect, EnvironmentSource, EnvironmentVariable, Helmfile, HelmfileSpec, SuspendedRelease,
};
pub use status::{HelmfileReleaseStatus, HelmfileStatus, ReleaseState};
