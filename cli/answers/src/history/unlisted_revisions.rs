//! Reads the Helm revisions that are missing in the status of an object. Helm stores a revision when an operation begins, but
//! the status lists it only after the end. The status also drops old revisions, although a rollback to them is possible.
//!
//! This module reads the labels of all release records. For the newest records, it also reads the content, because the labels
//! do not name the chart.
//! Elsewhere: the history in the status, and the table ([`super`]).

use std::collections::BTreeMap;

use jiff::Timestamp;
use objects::{Gvk, Object};
use release::release_target::ReleaseTarget;
use serde_json::{Value, json};

use crate::command_scope::CommandScope;

/// The maximum number of records whose content is read. Each contains a whole chart.
const MOST_READ: usize = 10;

/// The prefix of a record's status while its operation is running, or if the operation never finished.
const PENDING: &str = "pending-";

/// The place in which Helm stores the records of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReleaseRecordLocation {
    namespace: String,
    name: String,
}

impl ReleaseRecordLocation {
    /// The place of the records of a HelmRelease, or of the Helmfile's release in `row`. `None` if the release is in another
    /// cluster or has no records.
    pub(super) fn of(object: &Object, row: Option<&Value>) -> Option<Self> {
        if cause::object_references::is_elsewhere(object) {
            return None;
        }
        let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
        if let Some(row) = row {
            let storage = text(&row["status"], "storageNamespace");
            let namespace = if storage.is_empty() { text(row, "namespace") } else { storage };
            let is_here = text(row, "kubeContext").is_empty();
            return is_here.then(|| Self { namespace, name: text(row, "name") });
        }
        let spec = object.get("spec").filter(|_| object.kind() == "HelmRelease")?;
        let target = ReleaseTarget::of(
            object.name(),
            object.namespace(),
            &text(spec, "releaseName"),
            &text(spec, "targetNamespace"),
            &text(spec, "storageNamespace"),
        );
        Some(Self { namespace: target.storage_namespace, name: target.name })
    }

    /// The revisions that a history does not contain, as history entries.
    ///
    /// # Errors
    /// The user may not read the records, so it is unknown whether such revisions exist.
    pub(super) async fn unlisted(
        &self,
        site: &CommandScope,
        history: &[Value],
    ) -> anyhow::Result<Vec<Value>> {
        let secrets = site.cluster.resource(&Gvk::new("v1", "Secret")).await?;
        let selector = release::storage::selector(&self.name);
        let (records, is_more) =
            site.cluster.labelled(&secrets, &self.namespace, &selector).await?;
        anyhow::ensure!(!is_more, "release {}/{} has too many records", self.namespace, self.name);
        let mut found: Vec<Value> = records.iter().filter_map(entry).collect();
        found.retain(|it| !history.iter().any(|known| known["version"] == it["version"]));
        found.sort_by_key(|it| std::cmp::Reverse(it["version"].as_i64()));
        for entry in found.iter_mut().take(MOST_READ) {
            self.complete(site, entry).await;
        }
        Ok(found)
    }

    /// Adds the chart and the time of a record to its entry. Changes nothing if the record cannot be read.
    async fn complete(&self, site: &CommandScope, entry: &mut Value) {
        let version = entry["version"].as_i64().unwrap_or_default();
        let Some(record) = self.record(site, version).await else { return };
        if let Some(begun) = record.info.last_deployed.and_then(|it| it.whole_second()) {
            entry["lastDeployed"] = begun.to_string().into();
        }
        if let Some(chart) = record.chart.and_then(|chart| chart.metadata) {
            entry["chartName"] = chart.name.into();
            entry["chartVersion"] = chart.version.into();
            entry["appVersion"] = chart.app_version.into();
        }
    }

    /// Reads the record of a Helm revision from its Secret. `None` if the Secret is missing, or if it cannot be read or
    /// decoded.
    async fn record(
        &self,
        site: &CommandScope,
        version: i64,
    ) -> Option<release::record::ReleaseRecord> {
        let secret = release::storage::secret_name(&self.name, version);
        let (data, _) = site.cluster.secret(&self.namespace, &secret).await.ok()??;
        let none = BTreeMap::new();
        release::storage::unpack(&[data.get("release")?], &none, &none).ok()
    }
}

/// Makes a history entry from the labels of a record's Secret. These contain the action only while it is pending, and no time
/// after the status has changed. `None` if the labels lack the status or the version.
fn entry(record: &Value) -> Option<Value> {
    let labels = record.pointer("/metadata/labels")?;
    let status = labels["status"].as_str()?;
    let action = status.strip_prefix(PENDING);
    let version: i64 = labels["version"].as_str()?.parse().ok()?;
    let begun = labels["createdAt"].as_str().and_then(|it| it.parse().ok());
    let begun = begun.and_then(|it| Timestamp::from_second(it).ok()).map(|it| it.to_string());
    Some(json!({"version": version, "status": status, "action": action, "lastDeployed": begun}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::with_objects;

    fn record(version: &str, status: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("sh.helm.release.v1.web.v{version}"), "namespace": "apps",
                "labels": {"owner": "helm", "name": "web", "status": status, "version": version,
                    "createdAt": "1795521600"}}})
    }

    fn release(spec: &Value) -> Object {
        Object::new(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "apps"}, "spec": spec}))
        .unwrap()
    }

    #[tokio::test]
    async fn revisions_of_the_storage_are_listed_from_the_beginning_of_their_operations_on() {
        let records = vec![
            record("1", "superseded"),
            record("2", "deployed"),
            record("3", "pending-upgrade"),
        ];
        let (cluster, _) = with_objects(records).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let place = ReleaseRecordLocation::of(&release(&json!({})), None).unwrap();
        let history = [json!({"version": 2, "status": "deployed"})];
        let old = json!({"version": 1, "status": "superseded", "action": null,
            "lastDeployed": "2026-11-24T12:00:00Z"});
        let pending = json!({"version": 3, "status": "pending-upgrade", "action": "upgrade",
            "lastDeployed": "2026-11-24T12:00:00Z"});
        assert_eq!(place.unlisted(&site, &history).await.unwrap(), [pending, old]);
        // By now, the status contains these revisions.
        let versions = |version: i64| json!({"version": version, "status": "deployed"});
        let all = [1, 2, 3].map(versions);
        assert_eq!(place.unlisted(&site, &all).await.unwrap(), [Value::Null; 0]);
    }

    /// The content of a record of shop@1.4.0. It is JSON in Helm's Base64, inside the Base64 of the Secret.
    const RECORD_OF_SHOP: &str = concat!(
        "ZXlKdVlXMWxJam9pZDJWaUlpd2lhVzVtYnlJNmV5Sm1hWEp6ZEY5a1pYQnNiM2xsWkNJNklqSXdNall0TVRFdE1qUlVN",
        "VEU2TURBNk1EQmFJaXdpYkdGemRGOWtaWEJzYjNsbFpDSTZJakl3TWpZdE1URXRNalJVTVRFNk1EQTZNREJhSWl3aWMz",
        "UmhkSFZ6SWpvaWMzVndaWEp6WldSbFpDSjlMQ0pqYUdGeWRDSTZleUp0WlhSaFpHRjBZU0k2ZXlKdVlXMWxJam9pYzJo",
        "dmNDSXNJblpsY25OcGIyNGlPaUl4TGpRdU1DSXNJbUZ3Y0ZabGNuTnBiMjRpT2lJeU1ESTJMakV3SW4xOUxDSjJaWEp6",
        "YVc5dUlqb3hMQ0p1WVcxbGMzQmhZMlVpT2lKaGNIQnpJbjA9",
    );

    #[tokio::test]
    async fn a_revision_that_only_helm_knows_has_the_chart_of_its_record() {
        let mut old = record("1", "superseded");
        // Helm removes the label when it changes the status.
        old["metadata"]["labels"].as_object_mut().unwrap().remove("createdAt");
        old["data"] = json!({"release": RECORD_OF_SHOP});
        let (cluster, _) = with_objects(vec![old]).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let place = ReleaseRecordLocation::of(&release(&json!({})), None).unwrap();
        let expected = json!({"version": 1, "status": "superseded", "action": null,
            "lastDeployed": "2026-11-24T11:00:00Z",
            "chartName": "shop", "chartVersion": "1.4.0", "appVersion": "2026.10"});
        assert_eq!(place.unlisted(&site, &[]).await.unwrap(), [expected]);
    }

    #[test]
    fn records_are_where_the_spec_or_the_row_has_them() {
        let of = |spec: &Value, row: Option<&Value>| {
            let place = ReleaseRecordLocation::of(&release(spec), row);
            place.map(|it| format!("{}/{}", it.namespace, it.name))
        };
        assert_eq!(of(&json!({}), None).as_deref(), Some("apps/web"));
        let spec = json!({"storageNamespace": "helm", "releaseName": "shop"});
        assert_eq!(of(&spec, None).as_deref(), Some("helm/shop"));
        assert_eq!(of(&json!({"kubeConfig": {"secretRef": {"name": "a"}}}), None), None);
        let row =
            json!({"name": "db", "namespace": "data", "status": {"storageNamespace": "helm"}});
        assert_eq!(of(&json!({}), Some(&row)).as_deref(), Some("helm/db"));
        let row = json!({"name": "db", "namespace": "data", "kubeContext": "east"});
        assert_eq!(of(&json!({}), Some(&row)), None);
    }
}
