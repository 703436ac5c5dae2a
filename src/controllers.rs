//! Kinds and their runs: what a spec references, what should be, what happened.
//!
//! Here: the list of kinds ([`kinds`]), and a folder for each kind with the same files: `resolve` (what the spec
//! references), `validated_spec` (what should be), `executor` (observe and act), `report` (say so). ARCHITECTURE.md
//! lists the other modules in the order in which they use each other.
//! Elsewhere: how any kind is run, and what it needs (crate `windlass-runtime`), notifications (crate
//! `notification-controller`), sources (crate `source-controller`), Kustomizations (crate `kustomize-controller`),
//! decisions (engines `reconcile`, `apply` and `release`), the client (`cluster`).

pub(crate) mod helm_release;
pub(crate) mod helmfile;
pub(crate) mod kinds;
pub(crate) mod release_runner;
