//! Finds the IP ranges of the cluster's Services, which tenants must not reach by URL. It also sends requests to a Service
//! through the API server.

use futures::AsyncReadExt as _;
use http::Request;
use ipnet::IpNet;
use objects::{Gvk, Object};
use serde_json::Value;

use super::discovery::ApiResourceLocation;
use super::untyped_objects::url_encode;
use super::{ClusterConnection, ClusterError};

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePort {
    /// The namespace of the Service.
    pub namespace: String,
    /// The name of the Service.
    pub name: String,
    /// The port of the Service.
    pub port: u16,
}

/// The IP ranges of Services, and whether they are a guess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRanges {
    /// The ranges.
    pub nets: Vec<IpNet>,
    /// Whether the ranges were guessed from the address of the Service `kubernetes`.
    pub is_guess: bool,
}

impl ClusterConnection {
    /// The IP ranges of Services, from the ServiceCIDRs. Before Kubernetes 1.33, or without the right to read them, the range
    /// is guessed around the Service `kubernetes`.
    ///
    /// # Errors
    /// The API server does not respond, or refuses to show the Service `kubernetes`.
    pub async fn service_ranges(&self) -> Result<ServiceRanges, ClusterError> {
        let cidrs = ApiResourceLocation {
            gvk: Gvk::new("networking.k8s.io/v1", "ServiceCIDR"),
            plural: "servicecidrs".to_owned(),
            namespaced: false,
            watchable: true,
        };
        match self.list(&cidrs, "", "").await {
            Ok(found) => {
                let nets = parsed(found.iter(), "cidrs");
                if !nets.is_empty() {
                    return Ok(ServiceRanges { nets, is_guess: false });
                }
            }
            Err(ClusterError::NoSuchKind { .. }) => {}
            Err(error) if error.code() == Some(403) => {}
            Err(error) => return Err(error),
        }
        let services = ApiResourceLocation {
            gvk: Gvk::new("v1", "Service"),
            plural: "services".to_owned(),
            namespaced: true,
            watchable: true,
        };
        let own = self.get(&services, "default", "kubernetes").await?;
        let nets = parsed(own.iter(), "clusterIPs").into_iter().filter_map(around).collect();
        Ok(ServiceRanges { nets, is_guess: true })
    }

    /// Sends a GET request to a Service through the API server, and returns an answer of up to `most` bytes.
    ///
    /// # Errors
    /// The API server refuses the request, for example because this user has no right to it, or does not respond.
    /// [`ClusterError::Unreadable`] if the answer is longer.
    pub async fn ask_service(
        &self,
        at: &ServicePort,
        path: &str,
        most: u64,
    ) -> Result<Vec<u8>, ClusterError> {
        let namespace = url_encode(&at.namespace);
        let name = url_encode(&at.name);
        let path = format!(
            "/api/v1/namespaces/{namespace}/services/http:{name}:{}/proxy/{}",
            at.port,
            path.trim_start_matches('/')
        );
        let request = Request::get(&path).body(Vec::new());
        let request = request
            .map_err(|error| ClusterError::NoAnswer(format!("{path} is not a path: {error}")))?;
        // The answer may be as long as an artifact. So it gets other limits of time and length than usual answers.
        let place = self.watches.place()?;
        let body = place.client().request_stream(request).await?;
        let mut bytes = Vec::new();
        let read = std::pin::pin!(body).take(most.saturating_add(1)).read_to_end(&mut bytes).await;
        read.map_err(|error| ClusterError::NoAnswer(error.to_string()))?;
        match bytes.len() as u64 > most {
            true => Err(ClusterError::Unreadable(format!("{path} is longer than {most} bytes"))),
            false => Ok(bytes),
        }
    }
}

/// The networks in a list of a spec. A single address counts as a network of one address.
fn parsed<'o>(objects: impl Iterator<Item = &'o Object>, field: &str) -> Vec<IpNet> {
    let listed = objects.filter_map(|object| object.fields().get("spec")?.get(field)?.as_array());
    let strings = listed.flatten().filter_map(Value::as_str);
    let net = |text: &str| {
        text.parse().ok().or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)))
    };
    strings.filter_map(net).collect()
}

/// The usual range of Services around an address: 65 536 addresses for IPv4, and for IPv6 the largest range that an API server
/// accepts.
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

    #[tokio::test]
    async fn a_service_is_asked_through_the_api_server_for_so_many_bytes() {
        use axum::body::Body;
        let expected =
            "GET /api/v1/namespaces/flux-system/services/http:windlass:80/proxy/a/b.tar.gz";
        let cluster = crate::fake_cluster::answering(move |(request, _)| {
            let code = if request == expected { 200 } else { 404 };
            (code, Body::from(vec![0xff; 5]))
        });
        let cluster = cluster.await;
        let namespace = "flux-system".to_owned();
        let at = ServicePort { namespace, name: "windlass".to_owned(), port: 80 };
        assert_eq!(cluster.ask_service(&at, "/a/b.tar.gz", 5).await.unwrap(), [0xff; 5]);
        let error = cluster.ask_service(&at, "/a/b.tar.gz", 4).await.unwrap_err();
        assert!(error.to_string().contains("longer than 4 bytes"), "{error}");
        assert!(cluster.ask_service(&at, "/other", 5).await.is_err());
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
