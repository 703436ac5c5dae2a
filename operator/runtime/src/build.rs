//! What builds of Kustomizations and plans of Helmfiles take besides files.
//!
//! Here: servers that are asked for bases, and what a build holds meanwhile ([`remote_base_access`]), keys of encrypted files
//! ([`decryption`]), services that have such keys ([`key_services`]).
//! Elsewhere: builds and plans themselves (their kinds).

pub mod decryption;
pub mod key_services;
pub mod remote_base_access;
