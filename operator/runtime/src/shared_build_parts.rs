//! The parts that builds of Kustomizations and plans of Helmfiles share.
//!
//! Here: remote bases and the permits for them ([`remote_base_access`]), keys of encrypted files ([`decryption`]), and key
//! services ([`key_services`]). Elsewhere: the builds and plans themselves (their kinds).

pub mod decryption;
pub mod key_services;
pub mod remote_base_access;
