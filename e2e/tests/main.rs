//! All stories. A story is a test of windlass on a real API server with real servers.
//!
//! `cargo xtask test` runs each module in its own process with its own control plane. By hand, run one module at a time: `cargo
//! test -p e2e --features stories releases::`. All stories are in one binary, because each links everything.

mod bootstrap;
mod bootstrap_at_gitea;
mod bucket;
mod charts;
mod cli;
mod clouds;
mod crd_exports;
mod dependents_of_tenants;
mod disasters;
mod faults;
mod images;
mod installation;
mod kinds;
mod leader;
mod migration;
mod migration_of_flux;
mod notifications;
mod oci;
mod poison;
mod references;
mod releases;
mod releases_alone;
mod restarts;
mod services;
mod shards;
mod sources;
mod stories;
mod tenancy;
mod test_bed;
