//! The version of an API server and every kind that it serves. Charts read both as `.Capabilities`.
//!
//! windlass asks for them by aggregated discovery, which Kubernetes has since 1.26. That takes two requests, and a third one
//! for the version. The answer is kept for at most ten minutes, or until a CRD changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use serde_json::Value;

use super::{ClusterConnection, ClusterError, throttled_requests};
use helm::capabilities::{Capabilities, KubeVersion};

/// The version of an API server and the APIs that it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCapabilities {
    /// The full version (`gitVersion`), such as `v1.35.0`.
    pub version: String,
    /// The major version, as the API server writes it.
    pub major: String,
    /// The minor version, as the API server writes it.
    pub minor: String,
    /// The API versions and kinds, such as `apps/v1` and `apps/v1/Deployment`.
    pub api_versions: Vec<String>,
}

impl ServerCapabilities {
    /// The capabilities of this API server in the form that charts see under `.Capabilities`.
    pub fn to_helm(&self) -> Capabilities {
        let Self { version, major, minor, api_versions } = self;
        Capabilities {
            kube_version: KubeVersion {
                version: version.clone(),
                normalized: String::new(),
                major: major.clone(),
                minor: minor.clone(),
            },
            api_versions: api_versions.clone(),
            ..Capabilities::default()
        }
    }
}

/// How long an answer is used before the API server is asked again.
const DISCOVERY_CACHE_TTL: Duration = Duration::from_secs(600);

/// The last answer, and when it was requested.
pub(super) type CapabilitiesCache = parking_lot::Mutex<Option<(Instant, Arc<ServerCapabilities>)>>;

/// The `Accept` header that requests aggregated discovery.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

impl ClusterConnection {
    /// The version and the APIs of this API server. The answer may be up to ten minutes old.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn served(&self) -> Result<Arc<ServerCapabilities>, ClusterError> {
        if let Some(known) =
            self.discovery.served().filter(|(at, _)| at.elapsed() < DISCOVERY_CACHE_TTL)
        {
            return Ok(known.1);
        }
        let at = Instant::now();
        let version = self.ask("/version", "application/json").await?;
        let mut api_versions = BTreeSet::new();
        for path in ["/api", "/apis"] {
            gather(&self.ask(path, AGGREGATED).await?, &mut api_versions)?;
        }
        let text =
            |key: &str| version.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let served = Arc::new(ServerCapabilities {
            version: text("gitVersion"),
            major: text("major"),
            minor: text("minor"),
            api_versions: api_versions.into_iter().collect(),
        });
        self.discovery.learn_served(at, served.clone());
        Ok(served)
    }

    /// Sends a GET request for a path that is not an object, such as a discovery document, and returns the JSON.
    pub(super) async fn ask(&self, path: &str, accept: &str) -> Result<Value, ClusterError> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Vec::new())
            .map_err(|error| ClusterError::NoAnswer(format!("{path} is not a path: {error}")))?;
        self.unary.request::<Value>(request).await.map_err(throttled_requests::noted)
    }
}

/// Adds the groups, versions and kinds of a discovery document to a set.
fn gather(answer: &Value, into: &mut BTreeSet<String>) -> Result<(), ClusterError> {
    if answer.get("kind").and_then(Value::as_str) != Some("APIGroupDiscoveryList") {
        let text =
            "aggregated discovery is not supported; windlass requires Kubernetes 1.26 or later";
        return Err(ClusterError::NoAnswer(text.to_owned()));
    }
    let list = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let text = |value: &Value, path: &[&str]| -> String {
        let found = path.iter().try_fold(value, |at, key| at.get(key));
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    for group in list(answer, "items") {
        let name = text(&group, &["metadata", "name"]);
        for version in list(&group, "versions") {
            let word = text(&version, &["version"]);
            let api_version = if name.is_empty() { word } else { format!("{name}/{word}") };
            for resource in list(&version, "resources") {
                let below = list(&resource, "subresources");
                for kind in [resource].iter().chain(&below) {
                    let kind = text(kind, &["responseKind", "kind"]);
                    if !kind.is_empty() {
                        into.insert(format!("{api_version}/{kind}"));
                    }
                }
            }
            into.insert(api_version);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn groups_versions_and_kinds_are_gathered() {
        let answer = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {}, "versions": [{"version": "v1", "resources": [
                {"resource": "pods", "responseKind": {"kind": "Pod"}}]}]},
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
                {"resource": "deployments", "responseKind": {"kind": "Deployment"},
                 "subresources": [{"subresource": "scale", "responseKind": {"kind": "Scale"}}]}]}]},
        ]});
        let mut all = BTreeSet::new();
        gather(&answer, &mut all).unwrap();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(all, ["apps/v1", "apps/v1/Deployment", "apps/v1/Scale", "v1", "v1/Pod"]);
        let error = gather(&json!({"kind": "APIGroupList"}), &mut BTreeSet::new()).unwrap_err();
        assert!(error.to_string().contains("1.26"), "{error}");
    }
}
