//! Commands about windlass itself in a cluster: `windlass install`, `check`, `bootstrap`, `migrate` and `uninstall`; and which
//! operators act there.
//!
//! Elsewhere: commands about objects, and the command line (`windlass-cli`); the manifests (`deploy/`).

pub mod bootstrap;
pub mod check;
pub mod cluster_operators;
pub mod install;
pub mod migrate;
pub mod uninstall;
