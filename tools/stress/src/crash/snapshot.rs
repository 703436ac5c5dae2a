//! The state of the cluster after an act, in a form that is equal for runs with the same result. The names and
//! revisions of a run are replaced by fixed ones.
//!
//! `crate::inventory_ownership` has the law about owners.

use std::collections::BTreeMap;

use e2e::harness::flux_objects::{condition, inventory};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::inventory_ownership::{helm_releases, kind, kustomizations};

/// The objects of a run and the statuses of windlass's own ones, by their ids.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClusterSnapshot(BTreeMap<String, Value>);

/// The names that are replaced. They are the run's namespace, its revisions in order, and further names of the
/// scenario.
pub(super) struct ReplacedNames<'a> {
    pub(super) namespace: &'a str,
    pub(super) revisions: &'a [String],
    pub(super) others: &'a [String],
}

impl ReplacedNames<'_> {
    fn replace(&self, text: &str) -> String {
        let mut text = text.replace(self.namespace, "NAMESPACE");
        for (at, revision) in self.revisions.iter().enumerate() {
            text = text.replace(revision, &format!("REVISION-{}", at + 1));
        }
        for (at, name) in self.others.iter().enumerate() {
            text = text.replace(name, &format!("NAME-{}", at + 1));
        }
        text
    }

    fn value(&self, value: &Value) -> Value {
        let text = self.replace(&value.to_string());
        // None of these names has a character that JSON escapes, so the text is still JSON after the replacement.
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}

/// Fields whose values the API server chooses anew each time.
const CHOSEN: [&str; 2] = ["clusterIP", "clusterIPs"];

impl ClusterSnapshot {
    /// Reads everything that belongs to a run. The caller has just read `live`.
    pub(super) async fn take(
        client: &Client,
        live: &BTreeMap<String, DynamicObject>,
        names: &ReplacedNames<'_>,
    ) -> anyhow::Result<Self> {
        let mut all: BTreeMap<String, Value> = live
            .iter()
            .map(|(id, object)| (names.replace(id), names.value(&core(object))))
            .collect();
        for kind in [kind("source.toolkit.fluxcd.io/v1", "GitRepository"), kustomizations()] {
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), names.namespace, &kind);
            for object in api.list(&ListParams::default()).await?.items {
                let id =
                    format!("{} {}", kind.kind, object.metadata.name.clone().unwrap_or_default());
                all.insert(id, names.value(&state(&object)));
            }
        }
        for name in ["ImageRepository", "ImagePolicy", "ImageUpdateAutomation"] {
            let kind = kind("image.toolkit.fluxcd.io/v1", name);
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), names.namespace, &kind);
            for object in api.list(&ListParams::default()).await?.items {
                let id = format!("{name} {}", object.metadata.name.clone().unwrap_or_default());
                all.insert(id, names.value(&image(&object)));
            }
        }
        let releases = Api::<DynamicObject>::namespaced_with(
            client.clone(),
            names.namespace,
            &helm_releases(),
        );
        for object in releases.list(&ListParams::default()).await?.items {
            let name = object.metadata.name.clone().unwrap_or_default();
            all.insert(format!("HelmRelease {name}"), names.value(&release(&object)));
        }
        let secrets = Api::<DynamicObject>::namespaced_with(
            client.clone(),
            names.namespace,
            &kind("v1", "Secret"),
        );
        for secret in secrets.list(&ListParams::default().labels("owner=helm")).await?.items {
            let name = secret.metadata.name.clone().unwrap_or_default();
            let labels = secret.metadata.labels.unwrap_or_default();
            all.insert(format!("Record {name}"), json!(labels.get("status")));
        }
        all.extend(audits(client, names).await?);
        Ok(Self(all))
    }

    /// The differences from the expected state, one a line. Only the first few are returned.
    pub(super) fn differences(&self, expected: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for id in expected.0.keys().filter(|id| !self.0.contains_key(*id)) {
            lines.push(format!("{id} is missing"));
        }
        for (id, value) in &self.0 {
            match expected.0.get(id) {
                Some(wanted) if wanted == value => {}
                Some(wanted) => lines.push(format!("{id}: {}", first_difference(value, wanted))),
                None => lines.push(format!("{id} should not be there")),
            }
        }
        lines.truncate(5);
        lines
    }
}

/// The number of audits of each operation on a release, which has to be one. Operations of Kustomizations are not
/// counted, because an attempt that a cut makes fail also has an audit.
async fn audits(
    client: &Client,
    names: &ReplacedNames<'_>,
) -> anyhow::Result<BTreeMap<String, Value>> {
    let kind = kind("release.windlass.dev/v1alpha1", "ReleaseAudit");
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), names.namespace, &kind);
    let mut counts = BTreeMap::<String, u64>::new();
    for audit in api.list(&ListParams::default()).await?.items {
        let spec = &audit.data["spec"];
        let subject = &spec["subject"];
        let operation = &spec["operation"];
        if subject["release"].is_null() || *operation == "CorrectDrift" {
            continue;
        }
        let revision = |of: &str| spec[of]["revision"].as_str().unwrap_or("-").to_owned();
        let id = format!(
            "Audit {} {operation} {} to {}: {}",
            subject["release"]["name"],
            revision("from"),
            revision("to"),
            spec["outcome"]
        );
        *counts.entry(names.replace(&id)).or_default() += 1;
    }
    Ok(counts.into_iter().map(|(id, count)| (id, count.into())).collect())
}

/// The path and values of the first field that differs, or both whole values.
fn first_difference(value: &Value, wanted: &Value) -> String {
    let fields = value.as_object().into_iter().flatten();
    let different = fields.map(|(name, is)| (name, is, &wanted[name])).find(|(_, a, b)| a != b);
    match different {
        Some((name, is, should)) => format!("{name} is {is} and should be {should}"),
        None => format!("it is {value} and should be {wanted}"),
    }
}

/// The object without the fields that the API server adds.
fn core(object: &DynamicObject) -> Value {
    let mut data = object.data.clone();
    if let Some(fields) = data.as_object_mut() {
        fields.remove("status");
        if let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|name, _| !CHOSEN.contains(&name.as_str()));
        }
    }
    json!({
        "labels": object.metadata.labels,
        "annotations": object.metadata.annotations,
        "data": data,
    })
}

/// The parts of a HelmRelease's status that are compared. Messages are left out, because they have the random names
/// of Pods.
fn release(object: &DynamicObject) -> Value {
    let status = &object.data["status"];
    let condition_of = |name: &str| {
        let condition = condition(object, name);
        json!([condition["status"], condition["reason"]])
    };
    let history = status["history"].as_array().into_iter().flatten();
    let history: Vec<Value> = history
        .map(|it| {
            let tests = it["testHooks"].as_object().into_iter().flatten();
            let tests: Vec<Value> = tests.map(|(name, it)| json!([name, it["phase"]])).collect();
            json!([it["version"], it["status"], it["chartVersion"], it["action"], tests])
        })
        .collect();
    let conditions = ["Ready", "Stalled", "Reconciling", "Released", "TestSuccess", "Remediated"];
    json!({
        "conditions": conditions.map(condition_of),
        "history": history,
        "failures": [status["failures"], status["installFailures"], status["upgradeFailures"]],
        "attempted": status["lastAttemptedRevision"],
        "observed": status["observedGeneration"],
        "inventory": inventory(object),
        "finalizers": object.metadata.finalizers,
    })
}

/// The parts of a status that are compared: Ready, revisions and the inventory.
fn state(object: &DynamicObject) -> Value {
    let status = &object.data["status"];
    let condition_of = |name: &str| {
        let condition = condition(object, name);
        let message = match condition["reason"].as_str() {
            // The message of `Healthy` says how long the Pods took, so it is not compared.
            _ if name == "Healthy" => Value::Null,
            Some("Quarantined") => condition["message"].as_str().map_or(Value::Null, revisions_of),
            _ => condition["message"].clone(),
        };
        json!([condition["status"], condition["reason"], message])
    };
    json!({
        "ready": condition_of("Ready"),
        "stalled": condition_of("Stalled"),
        "reconciling": condition_of("Reconciling"),
        "healthy": condition_of("Healthy"),
        "applied": status["lastAppliedRevision"],
        "attempted": status["lastAttemptedRevision"],
        "artifact": status["artifact"]["revision"],
        "inventory": inventory(object),
        "finalizers": object.metadata.finalizers,
    })
}

/// The revisions that the message of a quarantined result names. The rest of the message differs in each run: the
/// name of the Quarantine, the Pod that failed, and the time that it took.
fn revisions_of(message: &str) -> Value {
    let revisions = || {
        let (quarantined, rest) = message.split_once(" (Quarantine ")?;
        let (_, rest) = rest.split_once(')')?;
        let (applied, _) = rest.split_once("; a new revision is applied as usual")?;
        Some(json!(format!("{quarantined}{applied}")))
    };
    revisions().unwrap_or_else(|| json!(message))
}

/// The parts of the status of an image kind that are compared. The last pushed commit is left out. If windlass is
/// killed between a push and its status, the next run only finds that the files are up to date.
fn image(object: &DynamicObject) -> Value {
    let status = &object.data["status"];
    let scanned = &status["lastScanResult"];
    json!({
        "state": state(object),
        "observed": status["observedGeneration"],
        "tags": [scanned["revision"], scanned["tagCount"], scanned["latestTags"]],
        "latest": [status["latestRef"], status["observedPreviousRef"]],
        "policies": status["observedPolicies"],
        "source": status["observedSourceRevision"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(namespace: &str, revision: &str, text: &str) -> ClusterSnapshot {
        let names = ReplacedNames { namespace, revisions: &[revision.to_owned()], others: &[] };
        let value = json!({"text": text, "of": namespace, "at": format!("main@sha1:{revision}")});
        ClusterSnapshot(BTreeMap::from([(
            names.replace(&format!("{namespace}_a__X")),
            names.value(&value),
        )]))
    }

    #[test]
    fn a_quarantined_result_is_compared_by_its_revisions() {
        let message = |name: &str, applied: &str| {
            format!(
                "revision b is quarantined (Quarantine {name}), and revision {applied} is applied in its place; a new revision is applied as usual; to apply the quarantined one again, run `x`; reason: Pod {name}"
            )
        };
        assert_eq!(revisions_of(&message("app-1", "a")), revisions_of(&message("app-2", "a")));
        assert_ne!(revisions_of(&message("app-1", "a")), revisions_of(&message("app-1", "b")));
        assert_eq!(revisions_of("it failed"), json!("it failed"));
    }

    #[test]
    fn runs_of_different_names_compare_equal_and_differences_are_reported() {
        let one = snapshot("crash-1", "aaaa", "same");
        assert_eq!(one, snapshot("crash-22", "bbbb", "same"));
        let other = snapshot("crash-1", "aaaa", "other");
        assert_eq!(one.differences(&other).len(), 1);
        assert_eq!(
            one.differences(&ClusterSnapshot(BTreeMap::new())),
            ["NAMESPACE_a__X should not be there"]
        );
        assert_eq!(
            ClusterSnapshot(BTreeMap::new()).differences(&one),
            ["NAMESPACE_a__X is missing"]
        );
    }
}
