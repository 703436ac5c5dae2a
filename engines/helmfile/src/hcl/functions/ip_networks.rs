//! Functions of HCL on IP networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::super::evaluate::text;
use super::{exactly, whole};
use crate::error::Result;

/// Calls the function of this name; `None` if there is none.
pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Result<Value>> {
    Some(match name {
        "cidrhost" => exactly(arguments).and_then(|[network, host]| {
            let network = IpNetwork::parse(&text(network)?)?;
            Ok(network.host(whole(host)?)?.to_string().into())
        }),
        "cidrnetmask" => exactly(arguments).and_then(|[network]| {
            let network = IpNetwork::parse(&text(network)?)?;
            Ok(network.address(network.mask()).to_string().into())
        }),
        "cidrsubnet" => exactly(arguments).and_then(|[network, bits, index]| {
            let network = IpNetwork::parse(&text(network)?)?;
            let index =
                u128::try_from(whole(index)?).map_err(|_| "the number must not be negative")?;
            Ok(network.subnet(whole(bits)?, index)?.to_string().into())
        }),
        "cidrsubnets" => match arguments.split_first() {
            Some((network, bits)) => text(network).and_then(|network| subnets(&network, bits)),
            None => Err("a network is required".into()),
        },
        _ => return None,
    })
}

/// An IP network: the bits of its address, and the length of its prefix.
#[derive(Debug, Clone, Copy)]
struct IpNetwork {
    bits: u128,
    length: u32,
    is_v4: bool,
}

impl IpNetwork {
    fn parse(text: &str) -> Result<Self> {
        let invalid = || crate::Error::from(format!("invalid CIDR address: {text}"));
        let (address, length) = text.split_once('/').ok_or_else(invalid)?;
        let length: u32 = length.parse().map_err(|_| invalid())?;
        let (bits, is_v4) = match address.parse().map_err(|_| invalid())? {
            IpAddr::V4(address) => (u128::from(u32::from(address)), true),
            IpAddr::V6(address) => (u128::from(address), false),
        };
        let network = Self { bits, length, is_v4 };
        if length > network.width() {
            return Err(invalid());
        }
        Ok(Self { bits: bits & network.mask(), ..network })
    }

    fn width(self) -> u32 {
        if self.is_v4 { 32 } else { 128 }
    }

    /// The number of addresses minus one.
    fn last(self) -> u128 {
        let free = self.width() - self.length;
        1_u128.checked_shl(free).map_or(u128::MAX, |size| size - 1)
    }

    fn mask(self) -> u128 {
        let all = if self.is_v4 { u128::from(u32::MAX) } else { u128::MAX };
        all & !self.last()
    }

    fn address(self, bits: u128) -> IpAddr {
        match u32::try_from(bits) {
            Ok(bits) if self.is_v4 => Ipv4Addr::from(bits).into(),
            _ => Ipv6Addr::from(bits).into(),
        }
    }

    /// The address with this number in the network. A negative number counts from the end.
    fn host(self, number: i64) -> Result<IpAddr> {
        let distance = u128::from(number.unsigned_abs());
        let offset =
            if number < 0 { self.last().checked_sub(distance - 1) } else { Some(distance) };
        let offset = offset.filter(|offset| *offset <= self.last());
        let offset = offset.ok_or_else(|| format!("the network has no host {number}"))?;
        Ok(self.address(self.bits | offset))
    }

    /// The subnet with this index, whose prefix is longer by `more` bits.
    fn subnet(self, more: i64, index: u128) -> Result<Self> {
        let more = u32::try_from(more).map_err(|_| "the bits must not be negative")?;
        let length = self.length.checked_add(more).filter(|length| *length <= self.width());
        let length = length.ok_or_else(|| format!("not enough bits for {more} more"))?;
        let within = Self { length, ..self };
        let shifted =
            index.checked_shl(self.width() - length).filter(|shifted| *shifted <= self.last());
        if index >> more.min(127) != 0 && more < 128 {
            return Err(format!("{more} bits do not hold the number {index}").into());
        }
        let shifted =
            shifted.ok_or_else(|| format!("{more} bits do not hold the number {index}"))?;
        Ok(Self { bits: self.bits | shifted, ..within })
    }
}

impl std::fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address(self.bits), self.length)
    }
}

/// Consecutive subnets of a network. The prefix of each is longer by the given number of bits.
fn subnets(network: &str, bits: &[Value]) -> Result<Value> {
    let whole_network = IpNetwork::parse(network)?;
    let mut next: u128 = 0;
    let mut found = Vec::new();
    for more in bits {
        let more = whole(more)?;
        let first = whole_network.subnet(more, 0)?;
        let full = "not enough remaining address space for the networks";
        let size = first.last().checked_add(1).ok_or(full)?;
        // Each begins at a multiple of its size.
        let start = next.div_ceil(size).checked_mul(size).ok_or(full)?;
        let last =
            start.checked_add(size - 1).filter(|last| *last <= whole_network.last()).ok_or(full)?;
        found
            .push(Value::from(IpNetwork { bits: whole_network.bits | start, ..first }.to_string()));
        next = last.checked_add(1).ok_or(full)?;
    }
    Ok(Value::Array(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_networks_are_counted_from_both_ends() {
        let network = IpNetwork::parse("10.0.0.0/8").unwrap();
        assert_eq!(network.host(2).unwrap().to_string(), "10.0.0.2");
        assert_eq!(network.host(-2).unwrap().to_string(), "10.255.255.254");
        assert_eq!(network.subnet(8, 2).unwrap().to_string(), "10.2.0.0/16");
        assert!(network.subnet(8, 256).is_err());
        assert!(network.subnet(25, 0).is_err());
        let all = subnets("10.0.0.0/8", &[4.into(), 4.into(), 8.into()]).unwrap();
        assert_eq!(all, serde_json::json!(["10.0.0.0/12", "10.16.0.0/12", "10.32.0.0/16"]));
    }
}
