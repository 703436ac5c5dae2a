//! The kind Kustomization: windlass keeps the manifests of an artifact applied.
//!
//! Here: the kind ([`kustomization`]), whose folder has the files of any kind (`resolve`, `validated_spec`, `executor`,
//! `report`).
//! Elsewhere: what all appliers do (crate `windlass-runtime`), kustomize itself (engine `kustomize`), the plan (engine
//! `apply`), the list of kinds (crate `windlass-kinds`).

pub mod kustomization;
pub mod last_good_artifacts;
