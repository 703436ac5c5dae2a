//! The small languages that Go programs brought into specs: users wrote them for Go's libraries, so they
//! mean here what they mean there.
//!
//! Here: versions and version ranges ([`semver`]).
//! Elsewhere: YAML as Go reads and writes it (`goyaml`), durations (`reconcile`), what Go answers to single
//! texts (`cargo xtask conformance`).

pub mod semver;
