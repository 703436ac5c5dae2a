//! The test bed, and the helpers of the stories that run on it.
//!
//! Here: a real control plane on loopback ([`control_plane`]); real servers ([`git_server`], [`servers`], [`forward_proxy`],
//! [`signing_key`]); proxies between them and windlass ([`api_proxy`], [`fault_proxy`], [`tcp_relay`], [`tls_proxy`],
//! [`server_names`]).
//! Also here: wrong answers of servers ([`response_fault`]), the program under test ([`operator_process`]), the helpers of
//! stories ([`harness`]), and windlass with all its servers for measurements and the demo ([`installation`]).
//! Elsewhere: the stories (`tests/`), building programs, Go modules and the behaviour of Pods (`testbed/`), the command line
//! (`cargo xtask cluster`, which calls [`cluster_command`]).

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
