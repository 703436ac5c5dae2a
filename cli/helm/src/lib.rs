//! Commands about charts and helmfiles on the disk: `windlass template`, `helmfile` and `bundle`.
//!
//! Elsewhere: what charts and helmfiles mean (engines `helm` and `helmfile`), releases of a cluster and the command line
//! (`windlass-cli`).

pub mod bundle;
pub mod helmfile;
pub mod template;
