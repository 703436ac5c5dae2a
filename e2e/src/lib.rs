//! The test bed and the stories told on it.
//!
//! Here: a real control plane on loopback ([`control_plane`]), real peers ([`git_server`], [`servers`], [`proxy`], [`signer`]),
//! what is between them and the program ([`api_proxy`], [`relay`], [`tls_front`], [`names`]),
//! the program under test ([`operator`]) and the helpers stories are written with ([`harness`]).
//! Programs whose answers are right by definition are built the same way ([`oracle`]).
//! Elsewhere: the stories (`tests/`), the Go modules and pod behaviour (`testbed/`),
//! the command line (`cargo xtask cluster`, which calls [`cluster_command`]).

pub mod api_proxy;
pub mod authority;
pub mod binaries;
pub mod cluster_command;
pub mod control_plane;
pub mod git_server;
pub mod gnupg;
pub mod harness;
pub mod keeper;
pub mod lifecycle_handler;
pub mod names;
pub mod operator;
pub mod oracle;
pub mod proxy;
pub mod random;
pub mod relay;
pub mod servers;
pub mod signer;
pub mod tls_front;
