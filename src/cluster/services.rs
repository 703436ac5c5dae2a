//! Where the cluster's Services are: their ranges, for whoever has to keep away from them.

use ipnet::IpNet;
use objects::{Gvk, Object};
use serde_json::Value;

use super::discovery::Resource;
use super::{Cluster, ClusterError};

/// The ranges of Services, and how they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranges {
    pub(crate) nets: Vec<IpNet>,
    /// They were guessed around the address of the API server's own Service.
    pub(crate) is_guess: bool,
}

impl Cluster {
    /// The ranges that Services have addresses from: those of the ServiceCIDRs, and before Kubernetes 1.33, or where they
    /// may not be read, the network around the Service `kubernetes`, of which nobody says how large it is.
    ///
    /// # Errors
    /// No answer, or a refusal to show that Service.
    pub(crate) async fn service_ranges(&self) -> Result<Ranges, ClusterError> {
        let cidrs = Resource {
            gvk: Gvk::new("networking.k8s.io/v1", "ServiceCIDR"),
            plural: "servicecidrs".to_owned(),
            namespaced: false,
            watchable: true,
        };
        match self.list(&cidrs, "", "").await {
            Ok(found) => {
                let nets = parsed(found.iter(), "cidrs");
                if !nets.is_empty() {
                    return Ok(Ranges { nets, is_guess: false });
                }
            }
            Err(error) if matches!(error.code(), Some(403 | 404)) => {}
            Err(error) => return Err(error),
        }
        let services = Resource {
            gvk: Gvk::new("v1", "Service"),
            plural: "services".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let own = self.get(&services, "default", "kubernetes").await?;
        let nets = parsed(own.iter(), "clusterIPs").into_iter().filter_map(around).collect();
        Ok(Ranges { nets, is_guess: true })
    }
}

/// The networks in a list of a spec; an address is the network of itself.
fn parsed<'o>(objects: impl Iterator<Item = &'o Object>, field: &str) -> Vec<IpNet> {
    let listed = objects.filter_map(|object| object.fields().get("spec")?.get(field)?.as_array());
    let strings = listed.flatten().filter_map(Value::as_str);
    let net = |text: &str| {
        text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)))
    };
    strings.filter_map(net).collect()
}

/// What ranges of Services usually are: 65 536 addresses, and of IPv6 as many as an API server takes.
fn around(own: IpNet) -> Option<IpNet> {
    let bits = match own {
        IpNet::V4(_) => 16,
        IpNet::V6(_) => 108,
    };
    Some(IpNet::new(own.addr(), bits).ok()?.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(spec: Value) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec}),
        )
        .unwrap()
    }

    #[test]
    fn ranges_are_read_or_guessed_around_an_address() {
        let strings = |nets: Vec<IpNet>| nets.iter().map(ToString::to_string).collect::<Vec<_>>();
        let listed = object(json!({"cidrs": ["10.96.0.0/12", "fd00:10:96::/112", "nonsense", 1]}));
        assert_eq!(
            strings(parsed([&listed].into_iter(), "cidrs")),
            ["10.96.0.0/12", "fd00:10:96::/112"]
        );
        let own =
            object(json!({"clusterIP": "10.43.0.1", "clusterIPs": ["10.43.0.1", "fd00:10:96::1"]}));
        let own = parsed([&own].into_iter(), "clusterIPs").into_iter().filter_map(around);
        assert_eq!(strings(own.collect()), ["10.43.0.0/16", "fd00:10:96::/108"]);
        assert!(
            parsed([&object(json!({"clusterIPs": "None"}))].into_iter(), "clusterIPs").is_empty()
        );
    }
}
