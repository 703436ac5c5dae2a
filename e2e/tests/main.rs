//! All stories. A story is a test of windlass on a real API server with real servers.
//!
//! `cargo xtask test` runs each module in its own process with its own control plane. By hand, run one module at a time: `cargo
//! test -p e2e --features stories releases::`. All stories are in one binary, because each links everything.

mod api_server_faults;
mod bootstrap;
mod bootstrap_at_gitea;
mod browser;
mod bucket;
mod charts;
mod cli;
mod cloud_credentials;
mod crd_exports;
mod data_loss_incidents;
mod images;
mod installation;
mod leader;
mod migration;
mod migration_of_flux;
mod nonsense_in_all_fields;
mod notification_services;
mod notifications;
mod object_references;
mod oci;
mod releases;
mod releases_with_own_windlass;
mod restarts;
mod reverse_deletion_beside_flux;
mod shards;
mod sources;
mod stories;
mod tenancy;
mod tenant_dependents_delay_platform_deletions;
mod test_bed;
mod windlass_crds_removed;
