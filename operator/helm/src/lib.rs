//! The kind that keeps Helm releases, and what another kind needs for releases of its own.
//!
//! Here: releases, made and kept for the object that owns them ([`release_runner`]), and a folder for the kind: a chart with
//! values ([`helm_release`]).
//! Elsewhere: the releases of a helmfile (crate `helmfile-controller`), what all appliers do (crate `windlass-runtime`), Helm
//! itself (engine `helm`), the plan of a release (engine `release`), the list of kinds (crate `windlass-kinds`).

pub mod helm_release;
pub mod release_runner;
