//! The clients for servers that specs name, and the facts that they learned about these servers, shared by all kinds.
//!
//! Elsewhere: which addresses are allowed (`egress_policy.rs`), and the protocols (`sources`).

use std::sync::Arc;

use http_client::{EgressDenyList, EgressRules, HostBudgets, HttpClientCache};
use sources::charts::repository::ChartRepositoryClients;
use sources::{bucket, oci};

/// The clients of the servers that specs name, and what they learned about these servers, shared by all kinds.
pub struct RemoteClients {
    /// The limits of requests to each host.
    pub budgets: Arc<HostBudgets>,
    /// The connections to web servers.
    pub http: Arc<HttpClientCache>,
    /// The clients of object stores.
    pub buckets: Arc<bucket::BucketClientCache>,
    /// Facts about Git servers.
    pub git: Arc<git::GitServerCache>,
    /// Facts about Git servers, for users who may reach only public addresses.
    pub public_git: Arc<git::GitServerCache>,
    /// Facts about OCI registries.
    pub oci: Arc<oci::RegistrySessionCache>,
    /// The clients of chart repositories, for users who may reach only public addresses.
    pub public_charts: ChartRepositoryClients,
    /// Facts about OCI registries, for users who may reach only public addresses.
    pub public_oci: Arc<oci::RegistrySessionCache>,
    /// The rules about the addresses of other processes' artifacts.
    pub(crate) artifacts: EgressRules,
}

impl RemoteClients {
    /// Clients that reach only the addresses that `rules` allow.
    pub fn within(rules: &Arc<EgressDenyList>) -> Self {
        let egress = EgressRules::Named(rules.clone());
        let budgets = Arc::new(HostBudgets::within(egress.clone()));
        let git = git::GitServerCache::within(egress.clone()).sharing(budgets.clone());
        let public = EgressRules::Public(rules.clone());
        let public_git = git::GitServerCache::within(public.clone()).sharing(budgets.clone());
        let public_budgets = Arc::new(budgets.for_servers(public.clone()));
        let public_charts = ChartRepositoryClients {
            budgets: public_budgets.clone(),
            clients: Arc::new(HttpClientCache::within(public)),
            buckets: Arc::new(bucket::BucketClientCache::default().sharing(public_budgets.clone())),
        };
        Self {
            http: Arc::new(HttpClientCache::within(egress)),
            buckets: Arc::new(bucket::BucketClientCache::default().sharing(budgets.clone())),
            git: Arc::new(git),
            public_git: Arc::new(public_git),
            oci: Arc::new(oci::RegistrySessionCache::default().sharing(budgets.clone())),
            public_charts,
            public_oci: Arc::new(oci::RegistrySessionCache::default().sharing(public_budgets)),
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
