//! The test bed and the stories that run on it.
//!
//! Here: a real control plane on loopback ([`control_plane`]), real peers ([`git_server`], [`servers`], [`proxy`], [`signer`]),
//! what is between them and the program ([`api_proxy`], [`relay`], [`tls_front`], [`names`]),
//! the program under test ([`operator`]) and the helpers stories are written with ([`harness`]).
//! windlass with everything around it, for measurements and the demo, is [`installation`].
//! Elsewhere: the stories (`tests/`), building programs, Go modules and pod behaviour (`testbed/`),
//! the command line (`cargo xtask cluster`, which calls [`cluster_command`]).

pub mod api_proxy;
pub mod authority;
pub mod cluster_command;
pub mod control_plane;
pub mod git_server;
pub mod gnupg;
pub mod harness;
pub mod installation;
pub mod lifecycle_handler;
pub mod names;
pub mod operator;
pub mod process_usage;
pub mod proxy;
pub mod random;
pub mod reaper;
pub mod relay;
pub mod rusage;
pub mod servers;
pub mod signer;
pub mod tls_front;
