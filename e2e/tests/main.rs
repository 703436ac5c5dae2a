//! All stories: tests of windlass on a real API server, with real peers.
//!
//! Each module is run in a process of its own, with a control plane of its own, by `cargo xtask test`; by hand, one module
//! at a time: `cargo test -p e2e --features stories releases::`. One binary, since each of them links everything.

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
