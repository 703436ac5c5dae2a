//! Servers that specs may name: clients, and what was learned about the servers, for all kinds.
//!
//! Elsewhere: which addresses may be asked (`egress_policy.rs`), the protocols (`sources`).

use std::sync::Arc;

use http_client::{EgressDenyList, EgressRules, HostBudgets, HttpClients};
use sources::charts::repository::ChartRepositoryClients;
use sources::{bucket, oci};

/// The clients of the servers that specs name, and what they learned about these servers, shared by all kinds.
pub struct RemoteClients {
    /// How much is asked of each host.
    pub budgets: Arc<HostBudgets>,
    /// Connections to web servers.
    pub http: Arc<HttpClients>,
    /// Clients of object stores.
    pub buckets: Arc<bucket::BucketClientCache>,
    /// What was learned about Git servers.
    pub git: Arc<git::GitServerCache>,
    /// The same, for those who may ask servers with public addresses only.
    pub public_git: Arc<git::GitServerCache>,
    /// What was learned about OCI registries.
    pub oci: Arc<oci::RegistryCache>,
    /// Chart repositories and registries for those who may ask servers with public addresses only.
    pub public_charts: ChartRepositoryClients,
    /// Registries for them.
    pub public_oci: Arc<oci::RegistryCache>,
    /// Where artifacts of other processes may be.
    pub(crate) artifacts: EgressRules,
}

impl RemoteClients {
    /// Clients that reach only what `rules` permit, and that have learned nothing of any server yet.
    pub fn within(rules: &Arc<EgressDenyList>) -> Self {
        let egress = EgressRules::Named(rules.clone());
        let budgets = Arc::new(HostBudgets::within(egress.clone()));
        let git = git::GitServerCache::within(egress.clone()).sharing(budgets.clone());
        let public = EgressRules::Public(rules.clone());
        let public_git = git::GitServerCache::within(public.clone()).sharing(budgets.clone());
        let public_budgets = Arc::new(budgets.for_servers(public.clone()));
        let public_charts = ChartRepositoryClients {
            budgets: public_budgets.clone(),
            clients: Arc::new(HttpClients::within(public)),
            buckets: Arc::new(bucket::BucketClientCache::default().sharing(public_budgets.clone())),
        };
        Self {
            http: Arc::new(HttpClients::within(egress)),
            buckets: Arc::new(bucket::BucketClientCache::default().sharing(budgets.clone())),
            git: Arc::new(git),
            public_git: Arc::new(public_git),
            oci: Arc::new(oci::RegistryCache::default().sharing(budgets.clone())),
            public_charts,
            public_oci: Arc::new(oci::RegistryCache::default().sharing(public_budgets)),
            artifacts: EgressRules::Provided(rules.clone()),
            budgets,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sources::charts::{ChartRepository, ChartRepositoryCredentials};
    use sources::oci::{RegistryAuth, RegistryLimits, RemoteOciRepository, chart};

    use super::*;

    #[tokio::test]
    async fn charts_of_public_servers_come_from_no_others() {
        let remotes = RemoteClients::within(&Arc::new(EgressDenyList::default().with_loopback()));
        let limit = Duration::from_secs(5);
        for url in ["http://10.0.0.1/charts", "https://127.0.0.1:1", "http://[fd00::1]/x"] {
            let opened = ChartRepository::new(
                url,
                ChartRepositoryCredentials::default(),
                false,
                limit,
                &remotes.public_charts,
            );
            let error = opened.unwrap().index(None).await.err().unwrap();
            assert!(error.to_string().contains("does not resolve to a public address"), "{error}");
        }
        let remote = RemoteOciRepository {
            repository: sources::oci::OciRepositoryName::parse("oci://127.0.0.1:1/charts/app")
                .unwrap(),
            auth: RegistryAuth::Anonymous,
            tls: http_client::TlsConfig::default(),
            proxy: None,
            insecure: true,
            timeout: limit,
            limits: RegistryLimits::default(),
        };
        let error = chart::choose(&remote, &remotes.public_oci, "*").await.unwrap_err();
        assert!(error.to_string().contains("does not resolve to a public address"), "{error}");
    }
}
