//! Servers that specs may name: clients, and what was learned about them, for whatever kind asks.
//!
//! Elsewhere: which addresses may be asked (`egress.rs`), the protocols (`sources`).

use std::sync::Arc;

use sources::http::{Budgets, Clients, Egress, Rules};
use sources::{bucket, git, oci};

/// See the module.
pub(crate) struct Remotes {
    /// How much is asked of each host.
    pub(crate) budgets: Arc<Budgets>,
    /// Connections to web servers.
    pub(crate) http: Arc<Clients>,
    /// Clients of object stores.
    pub(crate) buckets: Arc<bucket::Known>,
    /// What was learned about Git servers.
    pub(crate) git: Arc<git::Known>,
    /// The same, for those who may ask servers with public addresses only.
    pub(crate) public_git: Arc<git::Known>,
    /// What was learned about OCI registries.
    pub(crate) oci: Arc<oci::Known>,
    /// Where artifacts of other processes may be.
    pub(crate) artifacts: Egress,
}

impl Remotes {
    /// Nothing was asked yet.
    pub(crate) fn within(rules: &Arc<Rules>) -> Self {
        let egress = Egress::Named(rules.clone());
        let budgets = Arc::new(Budgets::within(egress.clone()));
        let git = git::Known::within(egress.clone()).sharing(budgets.clone());
        let public_git = git::Known::within(Egress::Public(rules.clone())).sharing(budgets.clone());
        Self {
            http: Arc::new(Clients::within(egress)),
            buckets: Arc::new(bucket::Known::default().sharing(budgets.clone())),
            git: Arc::new(git),
            public_git: Arc::new(public_git),
            oci: Arc::new(oci::Known::default().sharing(budgets.clone())),
            artifacts: Egress::Provided(rules.clone()),
            budgets,
        }
    }
}
