//! Real servers that sources are fetched from, beside Git's: programs on loopback, one module each.
//!
//! Elsewhere: Git (`git_server`), the control plane (`control_plane`), building programs (`binaries`).

pub mod aws_identity;
pub mod charts;
pub mod registry;
pub mod s3;
pub mod web;
