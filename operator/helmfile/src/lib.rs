//! The kinds that keep the releases of a helmfile installed: the Helmfile of windlass and the Helmfile of helmfile-operator.
//!
//! Here: a run of both kinds ([`helmfile`]).
//! Elsewhere: one release, reconciled for the object that owns it (crate `helm-controller`), what all appliers share (crate
//! `windlass-runtime`), helmfiles themselves (engine `helmfile`), the list of kinds (crate `windlass-kinds`).

pub mod helmfile;
