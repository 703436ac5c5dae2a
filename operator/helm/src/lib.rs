//! The kind HelmRelease, and the release runner that other kinds use for Helm releases of their own.
//!
//! Here: Helm releases, reconciled for the object that owns them ([`release_runner`]), and the kind itself ([`helm_release`]).
//! Elsewhere: the releases of a helmfile (crate `helmfile-controller`), what all appliers do (crate `windlass-runtime`), Helm
//! itself (engine `helm`), the plan of a release (engine `release`), the list of kinds (crate `windlass-kinds`).

pub mod helm_release;
pub mod release_runner;
