//! What builds of Kustomizations and plans of Helmfiles take besides files.
//!
//! Here: servers that are asked for bases, and what a build holds meanwhile ([`bases`]), keys of encrypted files
//! ([`decryption`]), services that have such keys ([`key_services`]).
//! Elsewhere: builds and plans themselves (their kinds).

pub mod bases;
pub mod decryption;
pub mod key_services;
