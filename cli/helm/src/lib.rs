//! The commands for charts and helmfiles on the disk: `windlass template`, `helmfile` and `bundle`.
//!
//! Elsewhere: the meaning of charts and helmfiles (engines `helm` and `helmfile`), releases in a cluster and the command line
//! (`windlass-cli`).

pub mod helmfile;
pub mod helmfile_bundle;
pub mod template;
