//! What HelmReleases do for their users, told on a real control plane with the stock `helm`: one module a user story.
//!
//! Elsewhere: stories about all other kinds (`tests/stories`), the words they are told in (`e2e::harness`).

mod drift;
mod faults;
mod hooks;
mod install_and_upgrade;
mod interop;
mod remediation;
mod tests;
