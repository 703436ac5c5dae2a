//! Artifacts: the archives that are made of sources, and the store in which they are kept.
//!
//! Here: the canonical archive ([`archive`]), ignored files ([`ignore`]), the store of artifacts ([`store`]), and artifacts of
//! other stores ([`remote_artifact`]).
//! Elsewhere: fetching sources (`sources`, `git`), which object has which artifact (the operator), trees of files (`tree`).
//!
//! All access to the disk blocks, so the callers use tokio's blocking pool.

pub mod archive;
pub mod ignore;
pub mod remote_artifact;
pub mod store;
