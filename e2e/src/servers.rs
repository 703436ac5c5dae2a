//! Real servers that sources are fetched from, beside Git's, and one that the API server asks: programs on loopback, one
//! module each.
//!
//! Elsewhere: Git (`git_server`), the control plane (`control_plane`), building programs (`binaries`).

pub mod aws_identity;
pub mod azurite;
pub mod charts;
pub mod gcs;
pub mod kms;
mod log;
pub mod registry;
pub mod s3;
pub mod socks;
pub mod web;
pub mod webhook;
