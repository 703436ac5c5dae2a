//! Checks whether objects were written that a change of controllers must not write.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use objects::{Gvk, Object};
use serde_json::Value;

use super::super::install::name;
use super::flux_installation::FluxInstallationSurvey;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The field managers with which Flux and windlass apply objects.
const APPLIERS: [&str; 2] = ["kustomize-controller", "helm-controller"];
/// The labels that name the Kustomization of an object.
const OWNER: [&str; 2] =
    ["kustomize.toolkit.fluxcd.io/namespace", "kustomize.toolkit.fluxcd.io/name"];

/// A snapshot of what every applier had applied.
#[derive(Debug)]
pub(super) struct AppliedStateSnapshot {
    since: Timestamp,
    /// The last applied revision, by kind, namespace and name.
    applied: BTreeMap<[String; 3], String>,
    /// The kinds of applied objects.
    kinds: BTreeSet<Gvk>,
}

impl AppliedStateSnapshot {
    /// Makes a snapshot of the current state.
    pub(super) fn of(survey: &FluxInstallationSurvey) -> Self {
        let kinds = survey.applied_kinds.clone();
        Self { since: Timestamp::now(), applied: applied(survey), kinds }
    }

    /// Finds objects that were written since the snapshot although their revision is the same, and releases with a new
    /// revision.
    ///
    /// # Errors
    /// The API server refuses to list a kind.
    pub(super) async fn written(
        &self,
        cluster: &ClusterConnection,
        now: &FluxInstallationSurvey,
    ) -> Result<Vec<String>, ClusterError> {
        let later = applied(now);
        let is_same = |key: &[String; 3]| self.applied.get(key) == later.get(key);
        let mut written = Vec::new();
        for gvk in &self.kinds {
            let resource = match cluster.resource(gvk).await {
                Err(ClusterError::NoSuchKind { .. }) => continue,
                found => found?,
            };
            let query = ObjectQuery { label_selector: OWNER[1], ..ObjectQuery::all(&resource) };
            let mut pages = cluster.object_pages(query);
            while let Some(page) = pages.next().await? {
                for object in &page.objects {
                    let [namespace, owner] =
                        OWNER.map(|it| object.label(it).unwrap_or_default().to_owned());
                    let key = ["Kustomization".to_owned(), namespace, owner];
                    if is_same(&key) && is_written(object, self.since) {
                        written.push(name(object));
                    }
                }
            }
        }
        for (key, before) in self.applied.iter().filter(|(key, _)| key[0] == "HelmRelease") {
            if later.get(key).is_some_and(|after| after != before) {
                written.push(format!("HelmRelease/{}/{} (a new revision)", key[1], key[2]));
            }
        }
        Ok(written)
    }
}

/// What every applier has applied: the revision of a Kustomization, or the number of a HelmRelease's newest release.
fn applied(survey: &FluxInstallationSurvey) -> BTreeMap<[String; 3], String> {
    let entry = |object: &Object, field: &Value| {
        let key = [object.kind(), object.namespace(), object.name()].map(str::to_owned);
        (key, field.to_string())
    };
    let of = |object: &Object, path: &str| {
        let status = object.get("status").cloned().unwrap_or_default();
        entry(object, status.pointer(path).unwrap_or(&Value::Null))
    };
    let kustomizations = survey.of_kind("Kustomization").map(|it| of(it, "/lastAppliedRevision"));
    let releases = survey.of_kind("HelmRelease").map(|it| of(it, "/history/0/version"));
    kustomizations.chain(releases).collect()
}

/// Whether an applier has changed an object since a time. The API server records times in seconds.
fn is_written(object: &Object, since: Timestamp) -> bool {
    let managers = object.meta("managedFields").and_then(Value::as_array).into_iter().flatten();
    managers
        .filter(|it| it["manager"].as_str().is_some_and(|name| APPLIERS.contains(&name)))
        .filter_map(|it| it["time"].as_str()?.parse::<Timestamp>().ok())
        .any(|time| time.as_second() > since.as_second())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;

    use super::*;
    use fake_cluster::answering;

    #[tokio::test]
    async fn what_was_written_is_found_in_lists_of_any_size() {
        const PAGES: usize = 9;
        let kinds = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "configmaps", "kind": "ConfigMap", "singularName": "", "namespaced": true,
                "verbs": ["list"]}]});
        let data = "x".repeat(8 << 20);
        let cluster = answering(move |(request, _)| {
            let Some((_, query)) = request.split_once('?') else {
                return (200, Body::from(kinds.to_string()));
            };
            let page: usize = query.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
            let is_last = page + 1 == PAGES;
            let next = if is_last { String::new() } else { (page + 1).to_string() };
            let time = if is_last { "2026-01-01T11:00:00Z" } else { "2026-01-01T09:00:00Z" };
            let manager = json!({"manager": "kustomize-controller", "time": time});
            let object = json!({"metadata": {"name": format!("c-{page}"), "namespace": "team",
                "managedFields": [manager]}, "data": {"a": data}});
            (
                200,
                Body::from(json!({"metadata": {"continue": next}, "items": [object]}).to_string()),
            )
        })
        .await;
        let live = AppliedStateSnapshot {
            since: "2026-01-01T10:00:00Z".parse().unwrap(),
            applied: BTreeMap::new(),
            kinds: BTreeSet::from([Gvk::new("v1", "ConfigMap")]),
        };
        let written = live.written(&cluster, &FluxInstallationSurvey::default()).await.unwrap();
        assert_eq!(written, ["ConfigMap/team/c-8"]);
    }

    #[test]
    fn only_writes_of_appliers_after_the_moment_count() {
        let object = |manager: &str, time: &str| {
            Object::new(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "a", "namespace": "b",
                    "managedFields": [{"manager": manager, "operation": "Apply", "time": time}],
                },
            }))
            .unwrap()
        };
        let since: Timestamp = "2026-01-01T10:00:00.5Z".parse().unwrap();
        assert!(is_written(&object("kustomize-controller", "2026-01-01T10:00:01Z"), since));
        assert!(!is_written(&object("kustomize-controller", "2026-01-01T10:00:00Z"), since));
        assert!(!is_written(&object("kubectl", "2026-01-01T11:00:00Z"), since));
    }
}
