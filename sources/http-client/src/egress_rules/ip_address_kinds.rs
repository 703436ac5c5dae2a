//! Kinds of IP addresses: a table of special addresses, and the IPv6 forms in which an IPv4 address can be embedded.
//!
//! Elsewhere: which addresses may be asked ([`super::EgressRules`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of an address, which decides whether a spec may name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AddressKind {
    /// An address of the Internet.
    Public,
    /// An address of a private network, by IANA's registries of special addresses.
    Private,
    /// An address of this machine, which includes `0.0.0.0`.
    Loopback,
    /// A link-local address, or an address of a cloud's metadata service, which holds the machine's secrets.
    Metadata,
}

/// The metadata services and agents of clouds that are not at link-local addresses.
const METADATA_V4: [Ipv4Addr; 3] = [
    // Alibaba.
    Ipv4Addr::new(100, 100, 100, 200),
    // Azure's wire server, an address that looks public.
    Ipv4Addr::new(168, 63, 129, 16),
    // Oracle, on its older machines.
    Ipv4Addr::new(192, 0, 0, 192),
];

/// The metadata addresses of IPv6, by their first segments.
const METADATA_V6: [&[u16]; 3] = [
    // AWS has metadata, the credentials agent for Pods, clock and DNS below this prefix.
    &[0xfd00, 0xec2],
    // Google.
    &[0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
    // Scaleway.
    &[0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42],
];

/// The kind of an address. One that stands for another has the more restricted kind of the two.
pub(super) fn sort(address: IpAddr) -> AddressKind {
    let own = match address {
        IpAddr::V4(address) => return sort_v4(address),
        IpAddr::V6(address) => address,
    };
    let embedded = embedded(own);
    match embedded.iter().map(|address| sort_v4(*address)).max() {
        // A translated address has the kind of the address that it is translated to.
        Some(sort) => sort,
        None => sort_v6(own),
    }
}

/// The addresses of the same destination: the address itself, and the IPv4 addresses embedded in it.
pub(super) fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let embedded = match address {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(address) => embedded(address),
    };
    std::iter::once(address).chain(embedded.into_iter().map(IpAddr::V4))
}

/// The IPv4 addresses that an IPv6 address may stand for.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Vec::new(),
        // Compatible (RFC 4291), mapped, translated (RFC 2765), and by NAT64's own prefix (RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => vec![v4(high, low)],
        // An address of a local NAT64 (RFC 8215). Its prefix has 96 bits, or 48 bits with a gap in the middle.
        [0x64, 0xff9b, 1, first, middle, last, high, low] => {
            let ([_, third], [fourth, _]) = (middle.to_be_bytes(), last.to_be_bytes());
            vec![v4(high, low), v4(first, u16::from_be_bytes([third, fourth]))]
        }
        // 6to4.
        [0x2002, high, low, ..] => vec![v4(high, low)],
        _ => Vec::new(),
    }
}

fn sort_v4(address: Ipv4Addr) -> AddressKind {
    let [a, b, c, _] = address.octets();
    if address.is_link_local() || METADATA_V4.contains(&address) {
        return AddressKind::Metadata;
    }
    if address.is_loopback() || a == 0 {
        return AddressKind::Loopback;
    }
    let is_special = address.is_private()
        || address.is_documentation()
        || matches!((a, b, c), (192, 0, 0) | (224.., ..))
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b));
    if is_special { AddressKind::Private } else { AddressKind::Public }
}

fn sort_v6(address: Ipv6Addr) -> AddressKind {
    let segments = address.segments();
    if address.is_unicast_link_local() || METADATA_V6.iter().any(|it| segments.starts_with(it)) {
        return AddressKind::Metadata;
    }
    if address.is_loopback() || address.is_unspecified() {
        return AddressKind::Loopback;
    }
    let is_public = match segments {
        // Teredo, documentation, and other special uses.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, second, ..] => second >= 0x1000,
        // All addresses for public use.
        [first, ..] => (0x2000..0x4000).contains(&first),
    };
    if is_public { AddressKind::Public } else { AddressKind::Private }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorts(expected: AddressKind, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(sort(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn metadata_of_clouds_are_known_in_every_form_of_their_addresses() {
        sorts(
            AddressKind::Metadata,
            &[
                "169.254.169.254",
                "169.254.170.23",
                "100.100.100.200",
                "168.63.129.16",
                "192.0.0.192",
                "fe80::1",
                "fd00:ec2::254",
                "fd00:ec2::23",
                "fd20:ce::254",
                "fd00:42::42",
                "::ffff:169.254.169.254",
                "::169.254.169.254",
                "::ffff:0:169.254.169.254",
                "64:ff9b::a9fe:a9fe",
                "64:ff9b::168.63.129.16",
                "64:ff9b:1::169.254.169.254",
                "64:ff9b:1:a9fe:a9:fe00::",
                "2002:a9fe:a9fe::1",
                "2002:6464:64c8::",
            ],
        );
    }

    #[test]
    fn this_machine_is_known_in_every_form_of_its_addresses() {
        sorts(
            AddressKind::Loopback,
            &[
                "127.0.0.1",
                "127.8.9.10",
                "0.0.0.0",
                "0.1.2.3",
                "::",
                "::1",
                "::127.0.0.1",
                "::ffff:127.0.0.1",
                "::ffff:0.0.0.0",
                "64:ff9b::7f00:1",
                "2002:7f00:1::",
            ],
        );
    }

    #[test]
    fn networks_that_are_not_the_internet_are_distinguished_from_it() {
        sorts(
            AddressKind::Private,
            &[
                "10.1.2.3",
                "172.16.0.1",
                "192.168.1.1",
                "100.64.0.1",
                "100.100.100.201",
                "198.18.0.1",
                "224.0.0.1",
                "255.255.255.255",
                "ff02::1",
                "fd00::1",
                "::ffff:10.0.0.1",
                "64:ff9b::10.0.0.1",
                "2001:db8::1",
                "2001::1",
            ],
        );
        sorts(
            AddressKind::Public,
            &[
                "1.1.1.1",
                "140.82.121.4",
                "168.63.129.17",
                "172.32.0.1",
                "100.128.0.1",
                "2606:4700::1111",
                "2001:4860:4860::8888",
                "::ffff:1.1.1.1",
                "64:ff9b::101:101",
                "2002:101:101::",
            ],
        );
    }

    #[test]
    fn an_address_arrives_where_what_it_stands_for_arrives() {
        let forms: Vec<_> = forms("64:ff9b::10.96.0.1".parse().unwrap()).collect();
        assert_eq!(forms, ["64:ff9b::a60:1", "10.96.0.1"].map(|it| it.parse::<IpAddr>().unwrap()));
    }
}
