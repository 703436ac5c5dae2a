//! The properties of a request to the API server, derived from its method, path and query.
//!
//! Elsewhere: the decision about a request (`super::api_request_gate`).

use axum::http::{Method, Uri};

/// The properties of a request that decide how the proxy handles it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiRequestProperties {
    /// Whether the proxy counts the request. It does not count requests about Events, Leases, tokens and reviews.
    pub(super) is_counted: bool,
    /// Whether the request changes an object. Dry-runs do not count, and neither do requests about Events, Leases, tokens and
    /// reviews.
    pub(super) is_write: bool,
    /// The resourceVersion from which a watch continues.
    pub(super) watch_from: Option<u64>,
}

/// The path segments of uncounted resources. The time and the number of requests about them differ from run to run.
const UNCOUNTED: [&str; 6] =
    ["events", "leases", "token", "tokenreviews", "subjectaccessreviews", "selfsubjectreviews"];

impl ApiRequestProperties {
    /// Derives the properties of a request.
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let parameter = |name: &str| {
            let pairs = uri.query().unwrap_or_default().split('&');
            let mut values = pairs.filter_map(|pair| pair.split_once('='));
            values.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method);
        let is_counted = !uri
            .path()
            .split('/')
            .any(|part| UNCOUNTED.contains(&part) || part.ends_with("accessreviews"));
        let is_watch = matches!(parameter("watch"), Some("true" | "1"));
        Self {
            is_counted,
            is_write: changes && is_counted && parameter("dryRun").is_none(),
            // Without a resourceVersion, or from 0, a watch may begin at any version that the API server chooses.
            watch_from: is_watch.then(|| {
                let version = parameter("resourceVersion").and_then(|it| it.parse().ok());
                version.filter(|version| *version > 0).unwrap_or(u64::MAX)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(method: Method, uri: &str) -> ApiRequestProperties {
        ApiRequestProperties::of(&method, &uri.parse().expect("a URI"))
    }

    #[test]
    fn what_changes_the_work_is_a_write() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/namespaces/a/configmaps/b", false),
            (Method::PATCH, "/api/v1/namespaces/a/configmaps/b?fieldManager=c&force=true", true),
            (Method::PATCH, "/api/v1/namespaces/a/configmaps/b?force=true&dryRun=All", false),
            (Method::DELETE, "/apis/apps/v1/namespaces/a/deployments/b", true),
            (Method::POST, "/api/v1/namespaces/a/events", false),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/a/events", false),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", false),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false),
            (Method::POST, "/api/v1/namespaces/a/serviceaccounts/b/token", false),
        ] {
            assert_eq!(sort(method.clone(), uri).is_write, expected, "{method} {uri}");
        }
    }

    #[test]
    fn a_watch_is_known_with_the_version_it_goes_on_from() {
        let of = |uri: &str| sort(Method::GET, uri).watch_from;
        assert_eq!(of("/api/v1/pods?watch=true&resourceVersion=41&x=y"), Some(41));
        assert_eq!(of("/api/v1/pods?resourceVersion=0&watch=1"), Some(u64::MAX));
        assert_eq!(of("/api/v1/pods?watch=true"), Some(u64::MAX));
        assert_eq!(of("/api/v1/pods?resourceVersion=41"), None);
    }
}
