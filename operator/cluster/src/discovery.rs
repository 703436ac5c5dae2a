//! Discovery: the URL path of a kind's objects, and whether the kind is namespaced.
//!
//! windlass asks once for each group and version. It forgets the answer when a CustomResourceDefinition of the group changes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use kube::core::Status;
use objects::Gvk;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::capabilities::{AGGREGATED, ServerCapabilities};
use super::{ClusterConnection, ClusterError, throttled_requests};

/// The URL path of a kind, and whether the kind is namespaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiResourceLocation {
    /// The group, version and kind.
    pub gvk: Gvk,
    /// The plural name, as URL paths have it.
    pub plural: String,
    /// Whether the kind is namespaced.
    pub namespaced: bool,
    /// Whether the API server supports a watch of the kind.
    pub watchable: bool,
}

impl ApiResourceLocation {
    /// The URL path of all objects of this kind, or of one object if `name` is given.
    ///
    /// # Errors
    /// The namespace or the name is not valid for any object. Such a name could make the path lead to another object or
    /// another request. The message has the words of the API server.
    pub fn path(&self, namespace: &str, name: Option<&str>) -> Result<String, ClusterError> {
        let Gvk { group, version, .. } = &self.gvk;
        let mut path = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{group}/{version}")
        };
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(&segment("metadata.namespace", namespace)?);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(&segment("metadata.name", name)?);
        }
        Ok(path)
    }
}

/// The characters that a path keeps unencoded. Names such as `system:node` need the colon.
const KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'@');

/// Encodes a name as one segment of a path. The names `.` and `..` are refused, because the API server decodes a path before
/// it splits it.
fn segment(field: &str, name: &str) -> Result<String, ClusterError> {
    let why = match name {
        "" => "may not be empty",
        "." | ".." => "may not be '.' or '..'",
        name if name.contains('/') => "may not contain '/'",
        name if name.contains('%') => "may not contain '%'",
        _ => return Ok(utf8_percent_encode(name, KEPT).to_string()),
    };
    let message = format!("{field}: Invalid value: {name:?}: {why}");
    Err(ClusterError::Refused(Status::failure(&message, "Invalid").with_code(422).boxed()))
}

/// Whether a text has only characters that groups, versions and most names may have.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        && !matches!(text, "." | "..")
}

/// The kinds that an API server serves.
#[derive(Debug, Default)]
pub struct ServedKinds {
    /// The location of each kind.
    pub kinds: Vec<ApiResourceLocation>,
    /// The group versions, such as `metrics.k8s.io/v1beta1`, whose aggregated API server did not respond. Their kinds may be
    /// outdated or missing here.
    pub stale_versions: Vec<String>,
}

type ResourcesByKind = Arc<BTreeMap<String, ApiResourceLocation>>;

/// The discovery answers of one API server so far.
#[derive(Default)]
pub struct ApiDiscovery {
    /// The kinds of each `apiVersion`.
    kinds: Mutex<BTreeMap<String, ResourcesByKind>>,
    served: super::capabilities::CapabilitiesCache,
    absent: super::object_existence::AbsenceCache,
}

impl ApiDiscovery {
    fn known(&self, api_version: &str) -> Option<ResourcesByKind> {
        self.kinds.lock().get(api_version).cloned()
    }

    fn learn(&self, api_version: &str, kinds: ResourcesByKind) {
        let mut known = self.kinds.lock();
        known.insert(api_version.to_owned(), kinds);
    }

    /// The capabilities of the API server, and when they were requested.
    pub(super) fn served(&self) -> Option<(Instant, Arc<ServerCapabilities>)> {
        self.served.lock().clone()
    }

    pub(super) fn learn_served(&self, at: Instant, served: Arc<ServerCapabilities>) {
        *self.served.lock() = Some((at, served));
    }

    /// The kinds that were found to be absent.
    pub(super) fn absent(&self) -> &super::object_existence::AbsenceCache {
        &self.absent
    }

    /// Forgets the discovery of a group, because one of its CRDs changed.
    pub fn forget_group(&self, group: &str) {
        *self.served.lock() = None;
        self.absent.forget_group(group);
        let mut known = self.kinds.lock();
        known.retain(|api_version, _| api_version.split_once('/').is_none_or(|(g, _)| g != group));
    }
}

impl ClusterConnection {
    /// The location of a kind.
    ///
    /// # Errors
    /// [`ClusterError::NoSuchKind`] if the API server's discovery does not list the kind now. Any other error if the API
    /// server refuses the request or does not respond.
    pub async fn resource(&self, gvk: &Gvk) -> Result<ApiResourceLocation, ClusterError> {
        let api_version = gvk.api_version();
        let missing = || ClusterError::NoSuchKind {
            api_version: api_version.clone(),
            kind: gvk.kind.clone(),
        };
        if let Some(found) =
            self.discovery.known(&api_version).and_then(|k| k.get(&gvk.kind).cloned())
        {
            return Ok(found);
        }
        if !is_plain(&gvk.group) || !is_plain(&gvk.version) {
            return Err(missing());
        }
        // A kind that was missing may have been installed since, so a missing kind is always asked for again.
        let listed = if gvk.group.is_empty() {
            self.unary.list_core_api_resources(&gvk.version).await
        } else {
            self.unary.list_api_group_resources(&api_version).await
        };
        let listed = match listed.map_err(throttled_requests::noted) {
            Err(error) if error.code() == Some(404) => {
                let is_listed = self.is_version_listed(gvk).await?;
                return Err(if is_listed { unanswered(&api_version, &error) } else { missing() });
            }
            other => other?,
        };
        let kinds: BTreeMap<String, ApiResourceLocation> = listed
            .resources
            .into_iter()
            .filter(|r| !r.name.contains('/'))
            .map(|r| {
                let gvk = Gvk { kind: r.kind.clone(), ..gvk.clone() };
                let watchable = r.verbs.iter().any(|v| v == "watch");
                (
                    r.kind,
                    ApiResourceLocation {
                        gvk,
                        plural: r.name,
                        namespaced: r.namespaced,
                        watchable,
                    },
                )
            })
            .collect();
        let found = kinds.get(&gvk.kind).cloned();
        self.discovery.learn(&api_version, Arc::new(kinds));
        found.ok_or_else(missing)
    }

    /// Whether the discovery document lists the version of a kind. A 404 on the path of that version would not prove that the
    /// version is absent, because any proxy may answer 404.
    async fn is_version_listed(&self, gvk: &Gvk) -> Result<bool, ClusterError> {
        let path = if gvk.group.is_empty() { "/api" } else { "/apis" };
        let answer = match self.ask(path, "application/json").await {
            // Every API server serves this path.
            Err(error) if error.code() == Some(404) => {
                return Err(unanswered(&gvk.api_version(), &error));
            }
            answer => answer?,
        };
        listed_versions(&answer).map(|all| all.contains(&gvk.api_version())).ok_or_else(|| {
            unanswered(&gvk.api_version(), &format!("{path} is no discovery document"))
        })
    }

    /// The kinds that a user may mean by a name. The name may be a kind, a plural, a singular or a short name, with or without
    /// `.group`. Each kind is returned in the version that its group prefers.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn kinds_called(&self, name: &str) -> Result<Vec<ApiResourceLocation>, ClusterError> {
        let name = name.to_lowercase();
        let mut found = Vec::new();
        for path in ["/api", "/apis"] {
            let answer = self.ask(path, AGGREGATED).await?;
            let groups = answer["items"].as_array().into_iter().flatten();
            found.extend(groups.flat_map(|group| called(group, &name)));
        }
        Ok(found)
    }

    /// All kinds that the API server serves, in all versions.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn served_kinds(&self) -> Result<ServedKinds, ClusterError> {
        let mut served = ServedKinds::default();
        for path in ["/api", "/apis"] {
            add_served(&self.ask(path, AGGREGATED).await?, &mut served)?;
        }
        Ok(served)
    }

    /// Forgets the discovery of a group; see [`ApiDiscovery::forget_group`].
    pub fn forget_group(&self, group: &str) {
        self.discovery.forget_group(group);
    }
}

fn unanswered(api_version: &str, why: &dyn fmt::Display) -> ClusterError {
    ClusterError::NoAnswer(format!("cannot tell which kinds {api_version} has: {why}"))
}

/// The group versions that a discovery document lists. `None` if the text is no such document. The document may be aggregated
/// or not, and may be about all groups or the core group.
fn listed_versions(document: &Value) -> Option<Vec<String>> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_group = |group: &Value| {
        let name = text(&group["metadata"]["name"]);
        let versions = list(group, "versions").unwrap_or_default();
        let versions = versions.iter().map(|it| match name.as_str() {
            "" => text(&it["groupVersion"]),
            name => format!("{name}/{}", text(&it["version"])),
        });
        versions.collect::<Vec<_>>()
    };
    match document["kind"].as_str()? {
        "APIVersions" => Some(list(document, "versions")?.iter().map(text).collect()),
        "APIGroupList" => Some(list(document, "groups")?.iter().flat_map(of_group).collect()),
        "APIGroupDiscoveryList" => {
            Some(list(document, "items")?.iter().flat_map(of_group).collect())
        }
        _ => None,
    }
}

/// The kinds of a group that a name may mean. Each kind is returned in the first version that has it, which is the preferred
/// one.
fn called(group: &Value, name: &str) -> Vec<ApiResourceLocation> {
    let group_name = group["metadata"]["name"].as_str().unwrap_or_default();
    let versions = group["versions"].as_array().into_iter().flatten();
    let mut found: Vec<ApiResourceLocation> = Vec::new();
    for version in versions {
        let of_version = version["version"].as_str().unwrap_or_default();
        for resource in version["resources"].as_array().into_iter().flatten() {
            let text = |key: &str| resource[key].as_str().unwrap_or_default();
            let kind = resource["responseKind"]["kind"].as_str().unwrap_or_default();
            let short = resource["shortNames"].as_array().into_iter().flatten();
            let own = [text("resource"), text("singularResource")].map(str::to_owned);
            let names = own
                .into_iter()
                .chain([kind.to_lowercase()])
                .chain(short.filter_map(|it| it.as_str().map(str::to_owned)));
            let is_called = |it: &String| {
                !it.is_empty() && (it == name || name == format!("{it}.{group_name}"))
            };
            if !names.into_iter().any(|it| is_called(&it))
                || found.iter().any(|it| it.gvk.kind == kind)
            {
                continue;
            }
            found.push(location(group_name, of_version, resource));
        }
    }
    found
}

/// The location of a resource from an aggregated discovery document.
fn location(group: &str, version: &str, resource: &Value) -> ApiResourceLocation {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verbs = resource["verbs"].as_array().into_iter().flatten();
    ApiResourceLocation {
        gvk: Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: text(&resource["responseKind"]["kind"]),
        },
        plural: text(&resource["resource"]),
        namespaced: resource["scope"] == "Namespaced",
        watchable: verbs.into_iter().any(|verb| verb == "watch"),
    }
}

/// Adds the kinds of an aggregated discovery document.
///
/// # Errors
/// The document is not one of aggregated discovery.
fn add_served(document: &Value, served: &mut ServedKinds) -> Result<(), ClusterError> {
    if document["kind"] != "APIGroupDiscoveryList" {
        let text = "the list of kinds is no document of aggregated discovery";
        return Err(ClusterError::Unreadable(text.to_owned()));
    }
    for group in document["items"].as_array().into_iter().flatten() {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in group["versions"].as_array().into_iter().flatten() {
            let of_version = version["version"].as_str().unwrap_or_default();
            if version["freshness"] == "Stale" {
                let gvk = Gvk {
                    group: name.to_owned(),
                    version: of_version.to_owned(),
                    kind: String::new(),
                };
                served.stale_versions.push(gvk.api_version());
            }
            let resources = version["resources"].as_array().into_iter().flatten();
            served.kinds.extend(resources.map(|it| location(name, of_version, it)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;

    use super::*;
    use crate::fake_cluster::answering;

    #[tokio::test]
    async fn only_a_discovery_document_says_that_a_kind_does_not_exist() {
        let groups = |version: &str| {
            let versions = json!([{"groupVersion": version, "version": "v1"}]);
            json!({"kind": "APIGroupList", "apiVersion": "v1",
                "groups": [{"name": "acme.io", "versions": versions}]})
            .to_string()
        };
        let status = json!({"kind": "Status", "code": 404, "reason": "NotFound"}).to_string();
        let versions = json!([{"version": "v1", "freshness": "Stale"}]);
        let stale = json!({"kind": "APIGroupDiscoveryList",
            "items": [{"metadata": {"name": "acme.io"}, "versions": versions}]})
        .to_string();
        for (code, document, is_absent) in [
            (200, groups("acme.io/v2"), true),
            (200, groups("acme.io/v1"), false),
            (200, json!({"kind": "APIGroupDiscoveryList", "items": []}).to_string(), true),
            (200, stale, false),
            (200, "{}".to_owned(), false),
            (200, "<html>welcome</html>".to_owned(), false),
            (404, "404 page not found".to_owned(), false),
            (404, status, false),
            (403, "{}".to_owned(), false),
            (503, String::new(), false),
        ] {
            let body = document.clone();
            let cluster = answering(move |(request, _)| match request.as_str() {
                "GET /apis" => (code, Body::from(body.clone())),
                _ => (404, Body::from("404 page not found")),
            })
            .await;
            let gvk = Gvk::new("acme.io/v1", "Widget");
            let error = cluster.resource(&gvk).await.unwrap_err();
            let is_missing = matches!(error, ClusterError::NoSuchKind { .. });
            assert_eq!(is_missing, is_absent, "{code} {document}: {error}");
            let listed = cluster.list_of_kind(&gvk, "", "").await;
            assert_eq!(listed.ok(), is_absent.then(Vec::new), "{code} {document}");
        }
    }

    #[tokio::test]
    async fn a_page_of_a_proxy_is_no_empty_list_and_no_absence_of_a_kind_that_is_served() {
        let kinds = json!({"kind": "APIResourceList", "groupVersion": "acme.io/v1", "resources": [
            {"name": "widgets", "singularName": "", "kind": "Widget", "namespaced": true, "verbs": []}]});
        let cluster = answering(move |(request, _)| match request.as_str() {
            "GET /apis/acme.io/v1" => (200, Body::from(kinds.to_string())),
            _ => (404, Body::from("<html>no such host</html>")),
        })
        .await;
        let gvk = Gvk::new("acme.io/v1", "Widget");
        let resource = cluster.resource(&gvk).await.unwrap();
        for error in [
            cluster.list_of_kind(&gvk, "", "").await.unwrap_err(),
            cluster.get(&resource, "a", "b").await.unwrap_err(),
        ] {
            assert_eq!(error.code(), Some(404), "{error}");
        }
    }

    #[tokio::test]
    async fn the_list_of_a_kind_that_is_gone_since_is_empty() {
        let kinds = json!({"kind": "APIResourceList", "groupVersion": "acme.io/v1", "resources": [
            {"name": "widgets", "singularName": "", "kind": "Widget", "namespaced": true, "verbs": []}]});
        let groups = json!({"kind": "APIGroupList", "groups": []});
        let is_first = Arc::new(Mutex::new(true));
        let cluster = answering(move |(request, _)| match request.as_str() {
            "GET /apis/acme.io/v1" if std::mem::take(&mut *is_first.lock()) => {
                (200, Body::from(kinds.to_string()))
            }
            "GET /apis" => (200, Body::from(groups.to_string())),
            _ => (404, Body::from("404 page not found")),
        })
        .await;
        let gvk = Gvk::new("acme.io/v1", "Widget");
        cluster.resource(&gvk).await.unwrap();
        for _ in 0..2 {
            assert_eq!(cluster.list_of_kind(&gvk, "", "").await.unwrap(), Vec::new());
        }
    }

    #[test]
    fn a_kind_is_found_by_each_of_its_names() {
        let group = serde_json::json!({"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [{"resource": "deployments", "singularResource": "deployment",
                "shortNames": ["deploy"], "scope": "Namespaced", "verbs": ["get", "watch"],
                "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"}}]},
            {"version": "v1beta1", "resources": [{"resource": "deployments", "shortNames": ["deploy"],
                "responseKind": {"kind": "Deployment"}}]},
        ]});
        for name in ["deployments", "deployment", "deploy", "deploy.apps", "deployments.apps"] {
            let found = called(&group, name);
            assert_eq!(found.len(), 1, "{name}");
            assert_eq!(found[0].gvk, Gvk::new("apps/v1", "Deployment"));
            assert!(found[0].namespaced && found[0].watchable);
        }
        assert!(called(&group, "deploy.batch").is_empty() && called(&group, "").is_empty());
    }

    #[test]
    fn paths_follow_group_and_scope() {
        let mut resource = ApiResourceLocation {
            gvk: Gvk::new("apps/v1", "Deployment"),
            plural: "deployments".into(),
            namespaced: true,
            watchable: true,
        };
        let path = |resource: &ApiResourceLocation, namespace: &str, name| {
            resource.path(namespace, name).unwrap()
        };
        assert_eq!(path(&resource, "a", Some("b")), "/apis/apps/v1/namespaces/a/deployments/b");
        assert_eq!(path(&resource, "", None), "/apis/apps/v1/deployments");
        resource.gvk = Gvk::new("v1", "Namespace");
        resource.plural = "namespaces".into();
        resource.namespaced = false;
        assert_eq!(path(&resource, "ignored", Some("b")), "/api/v1/namespaces/b");
        resource.plural = "clusterroles".into();
        assert_eq!(
            path(&resource, "", Some("system:a@b.c_d~e")),
            "/api/v1/clusterroles/system:a@b.c_d~e"
        );
    }

    #[test]
    fn a_name_leads_to_no_other_object_and_to_no_other_request() {
        let resource = ApiResourceLocation {
            gvk: Gvk::new("v1", "Secret"),
            plural: "secrets".into(),
            namespaced: true,
            watchable: true,
        };
        let path = |namespace: &str, name: &str| resource.path(namespace, Some(name));
        let plain = path("a", "b?dryRun=All#x y\r\n").unwrap();
        assert_eq!(plain, "/api/v1/namespaces/a/secrets/b%3FdryRun%3DAll%23x%20y%0D%0A");
        for name in ["", ".", "..", "../../other/secrets/b", "b/status", "b%2F..", "%2e%2e"] {
            for error in [
                path("a", name).unwrap_err(),
                path(name, "b").err().unwrap_or_else(|| {
                    assert_eq!(name, "", "only what has no namespace is without one");
                    path("a", name).unwrap_err()
                }),
            ] {
                assert_eq!(error.code(), Some(422), "{name}");
                assert!(error.to_string().contains(": Invalid value: "), "{error}");
            }
        }
        for text in ["apps", "", "v1", "a.b-c.d"] {
            assert!(is_plain(text), "{text}");
        }
        for text in ["..", "a/b", "a?b", "a b", "a%2fb", "a#b"] {
            assert!(!is_plain(text), "{text}");
        }
    }
}
