//! Decides to which servers windlass may send requests for a spec, whose author may not be its administrator.
//!
//! A name is checked by its addresses each time it is resolved for a connection. So neither a redirect nor a name with
//! changing addresses can bypass the rules.
//! Here: the rules, and resolving names by them. Elsewhere: the kinds of addresses (`addresses`).

mod ip_address_kinds;

use std::collections::BTreeSet;
use std::env;
use std::error::Error as StdError;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use parking_lot::RwLock;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use ip_address_kinds::{AddressKind, forms, sort};

/// The servers to which requests are permitted.
#[derive(Debug, Clone, Default)]
pub enum EgressRules {
    /// All servers. It is for servers that the operator of this program names.
    #[default]
    Anywhere,
    /// The servers that a spec may name.
    ///
    /// A proxy resolves names itself, so only IP addresses in URLs are checked behind it. The address of a proxy that a
    /// spec names is checked, too.
    Named(Arc<EgressDenyList>),
    /// The servers from which windlass fetches artifacts of other programs in the cluster. These are the servers that a spec
    /// may name, and Services.
    Provided(Arc<EgressDenyList>),
    /// The servers that a spec may name and that have public addresses. The cluster and other private networks are excluded.
    ///
    /// A proxy of the environment may be at any address. The proxy itself decides which servers can be reached through it.
    Public(Arc<EgressDenyList>),
    /// The servers of a list, by their names in URLs, unless they have addresses that no spec may name.
    Listed(Arc<EgressHostList>),
}

/// The hosts to which requests may be sent. The list also applies to redirects.
#[derive(Debug, Default)]
pub struct EgressHostList {
    hosts: BTreeSet<String>,
    denied: EgressDenyList,
}

impl EgressHostList {
    /// The hosts with these names or addresses, without ports.
    pub fn new(hosts: impl IntoIterator<Item = String>) -> Self {
        let hosts = hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { hosts, denied: EgressDenyList::default().with_loopback() }
    }

    /// Whether a host is in the list.
    pub fn has(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        self.hosts.contains(&bare.to_ascii_lowercase())
    }
}

/// The addresses that no spec may name.
///
/// # Guarantees
/// Link-local addresses and the metadata of clouds are always refused; no other rule allows them.
#[derive(Debug, Default)]
pub struct EgressDenyList {
    /// Whether a spec may name this machine and this program.
    with_loopback: bool,
    /// Exceptions from `services`.
    allowed: Vec<IpNet>,
    learned: RwLock<ClusterAddresses>,
}

#[derive(Debug, Default)]
struct ClusterAddresses {
    /// The addresses of this program.
    own: Vec<IpAddr>,
    /// The refused ranges of the cluster's Services.
    services: Vec<IpNet>,
}

impl EgressDenyList {
    /// Rules that refuse this machine and this program. They also refuse Services after [`Self::refuse_services`],
    /// except those in `allowed`.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self { allowed, ..Self::default() }
    }

    /// These rules, except that specs may name this machine and this program. Tests need it.
    #[must_use]
    pub fn with_loopback(self) -> Self {
        Self { with_loopback: true, ..self }
    }

    /// Replaces the addresses of this program.
    pub fn learn_own(&self, own: Vec<IpAddr>) {
        self.learned.write().own = own;
    }

    /// Refuses Services, which have these ranges.
    pub fn refuse_services(&self, services: Vec<IpNet>) {
        self.learned.write().services = services;
    }

    /// The reason why a spec may not name an address. `None` if it may.
    fn refusal(&self, address: IpAddr) -> Option<EgressDenialReason> {
        let sort = sort(address);
        if sort == AddressKind::Metadata {
            return Some(EgressDenialReason::Metadata);
        }
        let learned = self.learned.read();
        let is_own = || forms(address).any(|it| learned.own.contains(&it));
        if !self.with_loopback && (sort == AddressKind::Loopback || is_own()) {
            return Some(EgressDenialReason::Own);
        }
        let is_in =
            |nets: &[IpNet]| forms(address).any(|it| nets.iter().any(|net| net.contains(&it)));
        (is_in(&learned.services) && !is_in(&self.allowed)).then_some(EgressDenialReason::Service)
    }
}

/// The reason why a request to a server is not permitted. The text does not contain the address of the name, because the
/// address may be confidential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` {}", .why.words())]
pub struct EgressDeniedError {
    host: String,
    why: EgressDenialReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EgressDenialReason {
    Metadata,
    Own,
    Service,
    NotPublic,
    NotListed,
}

impl EgressDenialReason {
    fn words(self) -> &'static str {
        match self {
            Self::Metadata => {
                "resolves to a link-local or cloud metadata address, which is not allowed"
            }
            Self::Own => "resolves to windlass itself or to its node, which is not allowed",
            Self::Service => {
                "resolves to a Service of the cluster, which --no-cross-namespace-refs does not allow; see \
                 --allow-source-cidrs"
            }
            Self::NotPublic => "does not resolve to a public address; others are not allowed",
            Self::NotListed => "is not among the hosts that are allowed",
        }
    }
}

/// The first [`EgressDeniedError`] in a chain of errors. `None` if there is none.
pub fn refusal<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e EgressDeniedError> {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        current = super::cause(error);
    }
    None
}

impl EgressRules {
    /// The servers that a spec may name, and this machine. Unit tests and the command line use it.
    pub fn with_loopback() -> Self {
        Self::Named(Arc::new(EgressDenyList::default().with_loopback()))
    }

    /// Checks the host of a URL. An IP address is checked here, and a name only if the rules are about names. Otherwise a name
    /// is checked when it is resolved.
    ///
    /// # Errors
    /// The rules do not allow requests to the server.
    pub fn admits(&self, url: &Url) -> Result<(), EgressDeniedError> {
        self.lists(url.host_str().unwrap_or_default())?;
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            // Only in web addresses a host of numbers is always an address.
            Some(Host::Domain(name)) if !matches!(url.scheme(), "http" | "https") => {
                match Url::parse(&format!("http://{name}")) {
                    Ok(web) => return self.admits(&web),
                    Err(_) => return Ok(()),
                }
            }
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        let host = || url.host_str().unwrap_or_default().to_owned();
        self.refusal(address).map_or(Ok(()), |why| Err(EgressDeniedError { host: host(), why }))
    }

    /// The permitted addresses of a host, which is a name or an address.
    ///
    /// # Errors
    /// None of the addresses is allowed ([`EgressDeniedError`] inside), or the name is not known.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        self.lists(host).map_err(io::Error::other)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let found: Vec<SocketAddr> = tokio::net::lookup_host((bare, port)).await?.collect();
        let mut why = None;
        let admitted = found.into_iter().filter(|found| {
            let refusal = self.refusal(found.ip());
            why = why.or(refusal);
            refusal.is_none()
        });
        let admitted: Vec<SocketAddr> = admitted.collect();
        match why {
            Some(why) if admitted.is_empty() => {
                Err(io::Error::other(EgressDeniedError { host: host.to_owned(), why }))
            }
            _ => Ok(admitted),
        }
    }

    /// Checks the name of a host, if the rules are about names.
    fn lists(&self, host: &str) -> Result<(), EgressDeniedError> {
        match self {
            Self::Listed(list) if !list.has(host) => {
                Err(EgressDeniedError { host: host.to_owned(), why: EgressDenialReason::NotListed })
            }
            _ => Ok(()),
        }
    }

    fn refusal(&self, address: IpAddr) -> Option<EgressDenialReason> {
        match self {
            Self::Anywhere => None,
            Self::Listed(list) => list.denied.refusal(address),
            Self::Named(rules) => rules.refusal(address),
            Self::Provided(rules) => {
                rules.refusal(address).filter(|why| *why != EgressDenialReason::Service)
            }
            Self::Public(_) if sort(address) != AddressKind::Public => {
                Some(EgressDenialReason::NotPublic)
            }
            Self::Public(rules) => rules.refusal(address),
        }
    }

    /// Whether any server is refused.
    pub(super) fn is_limited(&self) -> bool {
        !matches!(self, Self::Anywhere)
    }
}

/// Resolves names, and returns only addresses to which requests are permitted.
pub(super) struct EgressResolver {
    egress: EgressRules,
    /// The hosts of proxies.
    exempt: Vec<String>,
}

impl EgressResolver {
    /// A resolver that exempts the proxies in the environment.
    pub(super) fn new(egress: EgressRules) -> Self {
        let names = ["http_proxy", "https_proxy", "all_proxy"];
        let names = names.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
        let values = names.filter_map(|name| env::var(name).ok());
        Self { egress, exempt: values.filter_map(|value| host_of_proxy(&value)).collect() }
    }
}

/// The host of a proxy as variables name it, with a scheme or without. `None` if the value has no host.
fn host_of_proxy(value: &str) -> Option<String> {
    let with_scheme =
        if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    Url::parse(&with_scheme).ok()?.host_str().map(str::to_owned)
}

impl Resolve for EgressResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let is_exempt = self.exempt.contains(&host);
        let egress = if is_exempt { EgressRules::Anywhere } else { self.egress.clone() };
        Box::pin(async move { Ok(Box::new(egress.look_up(&host, 0).await?.into_iter()) as Addrs) })
    }
}

#[cfg(test)]
mod tests;
