//! Collects the data that commands and web pages show about objects, and sends the requests of users to the cluster. The
//! command line prints the data, and web pages render it.
//!
//! Only the module `actions` changes objects. This crate prints nothing, and no result contains a value of a Secret.
//! Elsewhere: flags, tables and exit codes (`windlass-cli`), web pages (`windlass-web`), the connection to a cluster
//! (`windlass-cli-runtime`).

pub mod actions;
mod applied_object_health;
mod applier_quarantines;
pub mod audit;
pub mod audited_revisions;
pub mod branch_plan;
pub mod cause_facts;
pub mod change_sets;
pub mod command_scope;
pub mod container_logs;
pub mod diff;
pub mod events;
pub mod failed_change_hints;
pub mod frozen_objects;
pub mod helm_release_values;
pub mod helmfile_release;
pub mod history;
pub mod incident_suspects;
pub mod incidents;
pub mod kind_argument;
pub mod logged_containers;
pub mod object_row;
pub mod owned_pods;
pub mod render;
pub mod rolled_back_commit_warning;
pub mod rollout_waves;
mod source_correction;
pub mod statusless_object_readiness;
pub mod trace;
pub mod tree;
mod typed_objects;
pub mod user_rights;
pub mod why;
