//! The egress policy: which servers specs may name. It follows from flags, and from the addresses of this process and its
//! cluster.
//!
//! Elsewhere: the meaning of the rules ([`http_client::EgressRules`]), and the ranges of Services
//! (`windlass_cluster::service_ranges`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http_client::{EgressDenyList, EgressRules};
use nix::ifaddrs::getifaddrs;
use url::{Host, Url};

use windlass_cluster::ClusterConnection;
use windlass_cluster::service_ranges::ServiceRanges;
use windlass_serve::settings::OperatorSettings;

/// How often the addresses of this process and its cluster are read again, because a Service may get another address.
const ADDRESS_REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// How soon they are read again if the API server did not answer and nothing is known yet.
const ADDRESS_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The time limit for resolving a name.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(5);

/// The network rules of this process, and the source of its addresses.
pub struct EgressPolicy {
    /// The rules that decide which addresses may be reached. The learned addresses are added here.
    pub rules: Arc<EgressDenyList>,
    cluster: ClusterConnection,
    /// The address at which other processes download artifacts of this one.
    advertised: String,
    refuses_services: bool,
}

impl EgressPolicy {
    /// The policy before any address was learned.
    pub fn new(
        settings: &OperatorSettings,
        cluster: ClusterConnection,
        advertised: String,
    ) -> Self {
        let rules = EgressDenyList::new(settings.allow_source_cidrs.clone());
        let rules = if settings.allow_loopback_sources { rules.with_loopback() } else { rules };
        let refuses_services = settings.no_cross_namespace_refs;
        Self { rules: Arc::new(rules), cluster, advertised, refuses_services }
    }

    /// Learns the addresses that must be known before the first request to a source. Waits for the API server without a limit.
    pub async fn learn(&self) {
        self.rules.learn_own(own(&self.advertised).await);
        if !self.refuses_services {
            return;
        }
        loop {
            match self.cluster.service_ranges().await {
                Ok(ServiceRanges { nets, is_guess }) => {
                    let shown: Vec<_> = nets.iter().map(ToString::to_string).collect();
                    let ranges = shown.join(", ");
                    tracing::info!(
                        ranges,
                        is_guess,
                        "requests to Services are blocked for URLs in specs"
                    );
                    return self.rules.refuse_services(nets);
                }
                Err(error) => {
                    tracing::warn!(error = %error, "failed to detect the Service CIDRs, retrying");
                    tokio::time::sleep(ADDRESS_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Refreshes the addresses periodically, without end.
    pub async fn follow(&self) {
        loop {
            tokio::time::sleep(ADDRESS_REFRESH_INTERVAL).await;
            self.rules.learn_own(own(&self.advertised).await);
            if self.refuses_services {
                match self.cluster.service_ranges().await {
                    Ok(ServiceRanges { nets, .. }) => self.rules.refuse_services(nets),
                    // The addresses that were learned before stay in force.
                    Err(error) => {
                        tracing::debug!(error = %error, "failed to refresh the Service CIDRs");
                    }
                }
            }
        }
    }
}

/// The rules of web pages, which fetch sources for users. They know the addresses of this process, and no Services. So with
/// `--no-cross-namespace-refs`, only public addresses are permitted.
pub async fn rules_of_pages(settings: &OperatorSettings) -> EgressRules {
    let rules = EgressDenyList::new(settings.allow_source_cidrs.clone());
    let rules = if settings.allow_loopback_sources { rules.with_loopback() } else { rules };
    rules.learn_own(own("").await);
    let rules = Arc::new(rules);
    match settings.no_cross_namespace_refs {
        true => EgressRules::Public(rules),
        false => EgressRules::Named(rules),
    }
}

/// The addresses of this process. These are those of its network interfaces, and those of the host at which its artifacts are
/// advertised.
async fn own(advertised: &str) -> Vec<IpAddr> {
    let interfaces = getifaddrs().into_iter().flatten().filter_map(|it| it.address);
    let addresses = interfaces.filter_map(|address| {
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    let mut own: BTreeSet<IpAddr> = addresses.collect();
    match host(advertised) {
        Some(Host::Ipv4(address)) => drop(own.insert(IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => drop(own.insert(IpAddr::V6(address))),
        Some(Host::Domain(name)) => {
            let found = tokio::time::timeout(LOOK_UP_LIMIT, tokio::net::lookup_host((name, 0)));
            if let Ok(Ok(found)) = found.await {
                own.extend(found.map(|found| found.ip()));
            }
        }
        None => {}
    }
    own.into_iter().collect()
}

/// The host in a value of `--storage-adv-addr`, which is a host with a port or a URL. `None` if the value contains no host.
fn host(advertised: &str) -> Option<Host<String>> {
    let has_scheme = ["http://", "https://"].iter().any(|scheme| advertised.starts_with(scheme));
    let url = if has_scheme { advertised.to_owned() } else { format!("http://{advertised}") };
    Url::parse(&url).ok()?.host().map(|host| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_fetch_nothing_from_their_own_machine_and_with_tenants_only_public() {
        let rules = async |flags: &[&str]| {
            rules_of_pages(&OperatorSettings::from_flags(flags).unwrap()).await
        };
        let is_admitted =
            |rules: &EgressRules, url: &str| rules.admits(&Url::parse(url).unwrap()).is_ok();
        let usual = rules(&[]).await;
        assert!(is_admitted(&usual, "http://10.1.2.3/a"));
        assert!(!is_admitted(&usual, "http://127.0.0.1/a"));
        assert!(!is_admitted(&usual, "http://169.254.169.254/a"));
        let tenants = rules(&["--no-cross-namespace-refs"]).await;
        assert!(!is_admitted(&tenants, "http://10.1.2.3/a"));
        assert!(is_admitted(&tenants, "http://1.1.1.1/a"));
    }

    #[tokio::test]
    async fn what_is_our_own_is_known_by_addresses_and_by_names() {
        let of = async |advertised: &str| own(advertised).await;
        assert!(of("").await.contains(&"127.0.0.1".parse().unwrap()));
        for advertised in ["192.0.2.7:9090", "http://192.0.2.7:9090", "https://192.0.2.7"] {
            assert!(of(advertised).await.contains(&"192.0.2.7".parse().unwrap()), "{advertised}");
        }
        assert!(of("[2001:db8::7]:80").await.contains(&"2001:db8::7".parse().unwrap()));
        assert!(matches!(host("store.flux-system.svc:80"), Some(Host::Domain(_))));
    }
}
