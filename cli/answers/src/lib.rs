//! What commands about objects find out: the command line prints it, and web pages render it.
//!
//! Nothing here prints, and no answer has a value of a Secret. Elsewhere: flags, tables and exit codes (`windlass-cli`), pages
//! (`windlass-web`), the connection to a cluster (`windlass-cli-runtime`).

mod applied_object_health;
pub mod audit;
pub mod changes;
pub mod cluster_facts;
pub mod command_scope;
pub mod diff;
pub mod events;
pub mod explained_readiness;
pub mod helm_release_values;
pub mod helmfile_release;
pub mod history;
pub mod incidents;
pub mod kind_argument;
pub mod object_row;
pub mod owned_pods;
pub mod render;
pub mod trace;
pub mod tree;
pub mod why;
