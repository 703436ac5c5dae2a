//! The commands about windlass itself: `windlass install`, `check`, `bootstrap`, `migrate` and `uninstall`. The crate also
//! finds out which operators are active in a cluster.
//!
//! Elsewhere: commands about objects, and the command line (`windlass-cli`); the manifests (`deploy/`).

pub mod bootstrap;
pub mod check;
pub mod cluster_operators;
pub mod install;
pub mod migrate;
pub mod uninstall;
