//! Artifacts: the archives that are made of sources, and the place where they are kept.
//!
//! Here: the canonical archive ([`archive`]), what is left out of it ([`ignore`]), the place where artifacts are kept
//! ([`store`]), and those of other stores ([`remote_artifact`]).
//! Elsewhere: what they are made of (`sources`, `git`), which object has which artifact (the operator), what a tree of
//! files is (`tree`).
//!
//! All access to the disk blocks, and is called from tokio's blocking pool.

pub mod archive;
pub mod ignore;
pub mod remote_artifact;
pub mod store;
