//! The test bed, and the helpers of the stories that run on it.
//!
//! Here: a real control plane on loopback ([`control_plane`]); real servers ([`git_server`], [`servers`], [`forward_proxy`],
//! [`signing_key`]); proxies between them and windlass ([`api_server_fault_proxy`], [`tcp_relay`], [`tls_proxy`]).
//! Also here: the program under test ([`operator_process`]) and its pages ([`windlass_ui_and_chromium`],
//! [`multi_user_web_pages`]), the helpers of stories ([`harness`]), and windlass with all its servers for measurements and the
//! demo ([`cluster_with_operator`]).
//! Elsewhere: the stories (`tests/`), building programs, Go modules and the behaviour of Pods (`testbed/`), the command line
//! (`cargo xtask cluster`, which calls [`control_plane_command`]).

pub mod api_server_fault_proxy;
pub mod certificate_authority;
pub mod cluster_with_operator;
pub mod control_plane;
pub mod control_plane_command;
pub mod forward_proxy;
pub mod git_server;
pub mod gnupg;
pub mod harness;
pub mod http_fault_proxy;
pub mod lifecycle_handler;
pub mod multi_user_web_pages;
pub mod operator_process;
pub mod process_reaper;
pub mod process_usage;
pub mod public_host_names;
pub mod random_sequence;
pub mod response_fault;
pub mod rusage;
pub mod servers;
pub mod signing_key;
pub mod tcp_relay;
pub mod tls_proxy;
pub mod windlass_ui_and_chromium;
