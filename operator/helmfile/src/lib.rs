//! The kinds that keep the releases of a helmfile: the Helmfile of windlass and that of helmfile-operator.
//!
//! Here: a run of both kinds ([`helmfile`]).
//! Elsewhere: a release, made and kept for the object that owns it (crate `helm-controller`), what all appliers do (crate
//! `windlass-runtime`), helmfiles themselves (engine `helmfile`), the list of kinds (crate `windlass-kinds`).

pub mod helmfile;
