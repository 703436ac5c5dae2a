//! Whether something was written that a change of controllers must not write.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::super::install::name;
use super::survey::Survey;
use windlass_cluster::{Cluster, ClusterError};

/// The field managers by which Flux and windlass apply.
const APPLIERS: [&str; 2] = ["kustomize-controller", "helm-controller"];
/// The labels that name the Kustomization of an object.
const OWNER: [&str; 2] =
    ["kustomize.toolkit.fluxcd.io/namespace", "kustomize.toolkit.fluxcd.io/name"];

/// What every applier had applied at a moment.
#[derive(Debug)]
pub(super) struct Live {
    since: Timestamp,
    /// What was applied last, by kind, namespace and name.
    applied: BTreeMap<[String; 3], String>,
    /// The kinds of applied objects.
    kinds: BTreeSet<Gvk>,
}

impl Live {
    /// From now on.
    pub(super) fn of(survey: &Survey) -> Self {
        let mut kinds = BTreeSet::new();
        for object in survey.of_kind("Kustomization") {
            let entries = object.get("status").map(|status| &status["inventory"]["entries"]);
            for entry in entries.and_then(Value::as_array).into_iter().flatten() {
                let id = entry["id"].as_str().and_then(|id| id.parse::<ObjectId>().ok());
                let (Some(id), Some(version)) = (id, entry["v"].as_str()) else { continue };
                let api_version = match id.group.as_str() {
                    "" => version.to_owned(),
                    group => format!("{group}/{version}"),
                };
                kinds.insert(Gvk::new(&api_version, &id.kind));
            }
        }
        Self { since: Timestamp::now(), applied: applied(survey), kinds }
    }

    /// Objects that were written since, though what they come from is the same, and releases with a new revision.
    ///
    /// # Errors
    /// The API server refuses to list a kind.
    pub(super) async fn written(
        &self,
        cluster: &Cluster,
        now: &Survey,
    ) -> Result<Vec<String>, ClusterError> {
        let later = applied(now);
        let is_same = |key: &[String; 3]| self.applied.get(key) == later.get(key);
        let mut written = Vec::new();
        for gvk in &self.kinds {
            for object in cluster.list_of_kind(gvk, "", OWNER[1]).await? {
                let [namespace, owner] =
                    OWNER.map(|it| object.label(it).unwrap_or_default().to_owned());
                let key = ["Kustomization".to_owned(), namespace, owner];
                if is_same(&key) && is_written(&object, self.since) {
                    written.push(name(&object));
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

/// What every applier has applied: the revision of a Kustomization, the number of the newest revision of a HelmRelease.
fn applied(survey: &Survey) -> BTreeMap<[String; 3], String> {
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

/// Whether an applier has changed an object since a moment. The API server records seconds.
fn is_written(object: &Object, since: Timestamp) -> bool {
    let managers = object.meta("managedFields").and_then(Value::as_array).into_iter().flatten();
    managers
        .filter(|it| it["manager"].as_str().is_some_and(|name| APPLIERS.contains(&name)))
        .filter_map(|it| it["time"].as_str()?.parse::<Timestamp>().ok())
        .any(|time| time.as_second() > since.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
