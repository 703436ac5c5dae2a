//! Kinds: the list of them ([`kinds`]).
//!
//! Elsewhere: how any kind is run, and what it needs (crate `windlass-runtime`); the kinds (crates `source-controller`,
//! `kustomize-controller`, `helm-controller` and `notification-controller`).

pub(crate) mod kinds;
