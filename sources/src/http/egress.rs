//! Which servers may be asked, where whoever names one is not whoever runs this program.
//!
//! Names are checked by the addresses that they lead to, each time they are looked up, so that neither a redirect nor a
//! name that leads elsewhere the second time gets around it.

use std::env;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Which servers may be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Egress {
    /// All.
    #[default]
    Anywhere,
    /// All but those on link-local addresses, where clouds tell this machine its secrets.
    ///
    /// A proxy decides itself what is reached through it, but addresses that are given as such are checked, and so is
    /// where a proxy is that a spec names.
    BeyondLink,
    /// Those with public addresses: not this machine, the cluster, or what answers on link-local addresses.
    ///
    /// A proxy of the environment may be anywhere, and itself decides what is reached through it.
    Public,
}

/// Why a server is not asked. It does not say where the name leads, since that may be nobody's business.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` {}", words(*.egress))]
pub struct Refused {
    host: String,
    egress: Egress,
}

fn words(egress: Egress) -> &'static str {
    match egress {
        Egress::BeyondLink => "has a link-local address, and those are not asked",
        Egress::Public | Egress::Anywhere => Refused::WORDS,
    }
}

impl Refused {
    /// What stands behind the host.
    pub(crate) const WORDS: &str = "has no public address, and others are not asked";
}

impl Egress {
    /// Checks an address that is given as such; names are checked when they are looked up.
    ///
    /// # Errors
    /// The server may not be asked.
    pub fn admits(self, url: &Url) -> Result<(), Refused> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        if self.allows(address) {
            return Ok(());
        }
        Err(Refused { host: url.host_str().unwrap_or_default().to_owned(), egress: self })
    }

    fn allows(self, address: IpAddr) -> bool {
        match self {
            Self::Anywhere => true,
            Self::BeyondLink => !is_of_link(address),
            Self::Public => is_public(address),
        }
    }
}

/// Looks names up, and leaves out addresses that may not be asked.
pub(super) struct Within {
    egress: Egress,
    /// The hosts of proxies.
    exempt: Vec<String>,
}

impl Within {
    /// With the proxies that clients take from the environment.
    pub(super) fn new(egress: Egress) -> Self {
        let names = ["http_proxy", "https_proxy", "all_proxy"];
        let names = names.iter().flat_map(|name| [(*name).to_owned(), name.to_uppercase()]);
        let values = names.filter_map(|name| env::var(name).ok());
        Self { egress, exempt: values.filter_map(|value| host_of_proxy(&value)).collect() }
    }
}

/// The host of a proxy as variables name it, with a scheme or without.
fn host_of_proxy(value: &str) -> Option<String> {
    let with_scheme =
        if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
    Url::parse(&with_scheme).ok()?.host_str().map(str::to_owned)
}

impl Resolve for Within {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let (egress, is_exempt) = (self.egress, self.exempt.contains(&host));
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let found: Vec<SocketAddr> =
                found.filter(|found| is_exempt || egress.allows(found.ip())).collect();
            if found.is_empty() {
                return Err(io::Error::other(Refused { host, egress }).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Whether an address is of this machine's own wire: link-local, or where a cloud answers instead.
fn is_of_link(address: IpAddr) -> bool {
    /// Of AWS, whose metadata has an address of its own.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA,
    }
}

/// Whether an address is one of the Internet's, by IANA's registries of special addresses.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || matches!((a, b, c), (0, ..) | (192, 0, 0) | (224.., ..))
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b));
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [.., g, h] = segments;
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // An IPv4 address in another form: mapped, translated by NAT64, or 6to4.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => v4(g, h),
        [0x2002, high, low, ..] => v4(high, low),
        // Teredo, documentation, and what is for special uses.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, second, ..] => second >= 0x1000,
        // All that is handed out for public use.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_its_networks_are_not_public() {
        for address in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "1.1.1.1",
            "140.82.121.4",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn an_address_is_checked_however_it_is_written() {
        let admits = |url: &str| Egress::Public.admits(&Url::parse(url).unwrap()).is_ok();
        for url in ["http://127.1/", "http://2130706433/", "http://0x7f.1/", "https://[::1]:1/"] {
            assert!(!admits(url), "{url}");
        }
        assert!(admits("https://1.1.1.1/a") && admits("https://example.com/"));
        assert_eq!(Egress::Anywhere.admits(&Url::parse("http://127.0.0.1/").unwrap()), Ok(()));
    }

    #[test]
    fn link_local_addresses_are_refused_however_they_are_written() {
        let admits = |url: &str| Egress::BeyondLink.admits(&Url::parse(url).unwrap());
        for url in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://[::ffff:169.254.169.254]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
        ] {
            let error = admits(url).unwrap_err().to_string();
            assert!(
                error.ends_with("has a link-local address, and those are not asked"),
                "{error}"
            );
        }
        for url in ["http://127.0.0.1/", "http://10.0.0.1/", "http://[fd00::1]/", "http://a.svc/"] {
            assert_eq!(admits(url), Ok(()), "{url}");
        }
    }

    #[test]
    fn a_name_that_leads_to_this_machine_is_refused_and_a_proxy_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = |exempt: Vec<String>| {
            let resolver = Within { egress: Egress::Public, exempt };
            runtime.block_on(resolver.resolve("localhost".parse().unwrap())).map(Iterator::count)
        };
        let error = found(Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "`localhost` has no public address, and others are not asked");
        let proxy = host_of_proxy("localhost:3128").unwrap();
        assert!(found(vec![proxy]).unwrap() > 0);
    }
}
