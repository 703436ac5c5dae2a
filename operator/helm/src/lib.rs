//! The kinds that keep Helm releases: HelmReleases and Helmfiles.
//!
//! Here: releases, made and kept for the object that owns them ([`release_runner`]), and a folder for each kind: a
//! chart with values ([`helm_release`]), the releases of a helmfile ([`helmfile`]).
//! Elsewhere: what all appliers do (crate `windlass-runtime`), Helm and helmfiles themselves (engines `helm` and
//! `helmfile`), the plan of a release (engine `release`), the list of kinds (crate `windlass-kinds`).

pub mod helm_release;
pub mod helmfile;
pub mod release_runner;
