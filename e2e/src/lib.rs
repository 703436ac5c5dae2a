//! The test bed and the stories that run on it.
//!
//! Here: a real control plane on loopback ([`control_plane`]), real peers ([`git_server`], [`servers`],
//! [`forward_proxy`], [`signing_key`]), what is between them and the program ([`api_proxy`], [`fault_proxy`],
//! [`tcp_relay`], [`tls_proxy`], [`server_names`]), what these answer wrongly ([`response_fault`]), the program under test ([`operator_process`]) and the helpers stories are written
//! with ([`harness`]). windlass with everything around it, for measurements and the demo, is [`installation`].
//! Elsewhere: the stories (`tests/`), building programs, Go modules and pod behaviour (`testbed/`),
//! the command line (`cargo xtask cluster`, which calls [`cluster_command`]).

pub mod api_proxy;
pub mod certificate_authority;
pub mod cluster_command;
pub mod control_plane;
pub mod fault_proxy;
pub mod forward_proxy;
pub mod git_server;
pub mod gnupg;
pub mod harness;
pub mod installation;
pub mod lifecycle_handler;
pub mod operator_process;
pub mod process_reaper;
pub mod process_usage;
pub mod random_sequence;
pub mod response_fault;
pub mod rusage;
pub mod server_names;
pub mod servers;
pub mod signing_key;
pub mod tcp_relay;
pub mod tls_proxy;
