//! The CustomResourceDefinitions of a release, from the chart's folder `crds/` and from the rendered objects. The guard
//! decides which of them windlass may write.
//!
//! Here, too: waiting until a kind is served. Elsewhere: the guard itself (`crd_guard`), writing (`prepare_revision`,
//! `object_writes`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use objects::{Gvk, Object, ObjectId};
use reconcile::{NextRunTrigger, RemovalPermit, RunOutcome, condition_reason};
use release::{OperationKind, ReleaseRecord};
use serde_json::Value;
use tokio::time::Instant;

use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, ManifestObject};
use super::{MANAGER, ReleaseStatusOwner};
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::crd_owners::OwnerLabelOrAnnotation;
use windlass_runtime::crd_guard::{self, CrdGuardian, CrdPruneOutcome, CrdWritePermission};

/// The time between two checks whether a kind is served.
const DISCOVERY_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The reason why a kind is not served.
#[derive(Debug)]
pub enum CrdNotEstablishedError {
    /// The definition in this text was not served in time.
    TimedOut(String),
    /// The API server's refusal, or no answer.
    Cluster(ClusterError),
}

impl From<ClusterError> for CrdNotEstablishedError {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}

/// Waits until the kind of a definition is served, in each of its versions.
///
/// The condition Established is not enough: the API server sets it before it serves the discovery documents of the
/// versions, and it lists a version before it serves the document of it.
///
/// # Errors
/// The kind is not served in time, or the API server could not be asked.
pub async fn established(
    cluster: &ClusterConnection,
    definition: &Object,
    until: Instant,
) -> Result<(), CrdNotEstablishedError> {
    let name = definition.name();
    let began = Instant::now();
    let kinds = served_kinds(definition);
    loop {
        let is_late = Instant::now() >= until;
        let after = || format!("after {} s", began.elapsed().as_secs());
        if is_established(cluster, definition).await? {
            let group = name.split_once('.').map_or("", |(_, group)| group);
            cluster.forget_group(group);
            match first_unserved(cluster, &kinds).await? {
                None => return Ok(()),
                Some(gvk) if is_late => {
                    return Err(CrdNotEstablishedError::TimedOut(format!(
                        "CustomResourceDefinition {name} is established, and {} of {} is not served {}",
                        gvk.kind,
                        gvk.api_version(),
                        after()
                    )));
                }
                Some(_) => {}
            }
        } else if is_late {
            let text = format!("CustomResourceDefinition {name} is not established {}", after());
            return Err(CrdNotEstablishedError::TimedOut(text));
        }
        tokio::time::sleep(DISCOVERY_POLL_INTERVAL).await;
    }
}

async fn is_established(
    cluster: &ClusterConnection,
    definition: &Object,
) -> Result<bool, ClusterError> {
    let resource = cluster.resource(&definition.gvk()).await?;
    let live = cluster.get(&resource, "", definition.name()).await?;
    let conditions = live.as_ref().and_then(|it| it.get("status")?.get("conditions"));
    Ok(conditions.and_then(Value::as_array).is_some_and(|all| {
        all.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
    }))
}

/// The first kind that has no discovery document yet.
async fn first_unserved<'k>(
    cluster: &ClusterConnection,
    kinds: &'k [Gvk],
) -> Result<Option<&'k Gvk>, ClusterError> {
    for gvk in kinds {
        match cluster.resource(gvk).await {
            Ok(_) => {}
            Err(ClusterError::NoSuchKind { .. } | ClusterError::NoAnswer(_)) => {
                return Ok(Some(gvk));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The kind of a definition in each version that it serves.
fn served_kinds(definition: &Object) -> Vec<Gvk> {
    let Some(spec) = definition.get("spec") else { return Vec::new() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = spec["versions"].as_array().into_iter().flatten();
    let served = versions.filter(|it| it["served"] == true);
    served
        .map(|it| Gvk {
            group: text(&spec["group"]),
            version: text(&it["name"]),
            kind: text(&spec["names"]["kind"]),
        })
        .collect()
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    pub(super) fn guard(&self) -> CrdGuardian<'_> {
        CrdGuardian::new(&self.context, &self.target, &self.node.namespace)
    }

    /// Decides for each CustomResourceDefinition among the objects whether windlass may write it. The order of the objects
    /// stays.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn guarded<'m>(
        &self,
        objects: impl Iterator<Item = &'m Object>,
    ) -> Result<Vec<(ObjectId, CrdWritePermission)>, RunOutcome> {
        let mut all = Vec::new();
        for object in objects.filter(|it| crd_guard::is_definition(it)) {
            let guard = self.guard();
            let change = self.permit.aside(guard.change(object, MANAGER)).await;
            all.push((object.id(), change.map_err(|error| self.no_answer(&error))?));
        }
        Ok(all)
    }

    /// The reason why a hook that is a CustomResourceDefinition is not created. `None` if it may be created.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn refused_hook(&self, hook: &Object) -> Result<Option<String>, RunOutcome> {
        let change = self.guarded([hook].into_iter()).await?.pop();
        Ok(change.and_then(|(id, change)| match change {
            CrdWritePermission::Allowed | CrdWritePermission::Migrates => None,
            CrdWritePermission::Skipped => {
                let subject = id.subject();
                Some(format!(
                    "{subject} is a hook, which `windlass.dev/crd-policy: Skip` does not exclude"
                ))
            }
            CrdWritePermission::Refused(text) => Some(text),
        }))
    }

    /// The CustomResourceDefinitions among `objects` that the policy `Skip` leaves unchanged.
    ///
    /// # Errors
    /// A definition may not be written. The caller then writes no object of the release.
    pub(super) async fn admitted<'m>(
        &self,
        objects: impl Iterator<Item = &'m Object>,
    ) -> Result<BTreeSet<ObjectId>, RunOutcome> {
        let mut skipped = BTreeSet::new();
        let mut refused = Vec::new();
        for (id, change) in self.guarded(objects).await? {
            match change {
                CrdWritePermission::Allowed | CrdWritePermission::Migrates => {}
                CrdWritePermission::Skipped => {
                    skipped.insert(id);
                }
                CrdWritePermission::Refused(text) => {
                    refused.push(self.desired_release.masked(&text));
                }
            }
        }
        if refused.is_empty() {
            return Ok(skipped);
        }
        let wake = NextRunTrigger::at(self.soon_again());
        Err(RunOutcome::Failed(condition_reason::CRD_INCOMPATIBLE, refused.join("\n"), wake))
    }

    /// The definitions of a revision that must not be changed. The text says why an installation or an upgrade fails.
    ///
    /// A rollback does not fail because of them: it applies the other objects of the old revision, and an event reports
    /// each definition that stays.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn left_alone(
        &self,
        members: &[ManifestObject],
        action: OperationKind,
    ) -> Result<(BTreeSet<ObjectId>, Option<String>), RunOutcome> {
        let mut all = BTreeSet::new();
        for (id, change) in self.guarded(members.iter().map(|it| &it.object)).await? {
            let refused = match change {
                // A forced definition may drop a version, too.
                CrdWritePermission::Allowed | CrdWritePermission::Migrates => {
                    self.moved(members, &id).await?
                }
                CrdWritePermission::Skipped => {
                    all.insert(id);
                    continue;
                }
                CrdWritePermission::Refused(text) => Some(text),
            };
            let Some(text) = refused else { continue };
            if matches!(action, OperationKind::Install | OperationKind::Upgrade) {
                return Ok((all, Some(self.desired_release.masked(&text))));
            }
            self.tell_of(condition_reason::CRD_INCOMPATIBLE, EventSeverity::Error, &text);
            all.insert(id);
        }
        Ok((all, None))
    }

    /// Whether the guard refuses the manifest of a definition, because existing objects would not fit it. A rollback
    /// has left such a definition unchanged, so its difference from the manifest is not drift.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn is_left_alone(&self, manifest: &Object) -> Result<bool, ClusterError> {
        let guard = self.guard();
        let change = self.permit.aside(guard.change(manifest, MANAGER)).await?;
        Ok(matches!(change, CrdWritePermission::Refused(_)))
    }

    /// Migrates the stored objects of a definition from versions that its manifest drops. If that is not possible, the text
    /// gives the reason.
    async fn moved(
        &self,
        members: &[ManifestObject],
        id: &ObjectId,
    ) -> Result<Option<String>, RunOutcome> {
        let Some(member) = members.iter().find(|it| it.id == *id) else { return Ok(None) };
        self.migrated(&member.object).await
    }

    /// As [`Self::moved`], for a manifest. The move ends early when the owner is suspended, deleted or changed.
    pub(super) async fn migrated(&self, manifest: &Object) -> Result<Option<String>, RunOutcome> {
        let guard = self.guard();
        let is_overtaken = || self.owner.is_overtaken(self.desired());
        match self.permit.aside(guard.migrate(manifest, MANAGER, &is_overtaken)).await {
            Ok(()) => Ok(None),
            Err(_) if is_overtaken() => Err(self.overtaken()),
            Err(error) => error.refusal().map(Some).map_err(|error| self.no_answer(&error)),
        }
    }

    /// Deletes a definition that left the release, or releases it if it is still used.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub(super) async fn remove_definition(
        &self,
        permit: RemovalPermit,
        live: &Object,
        record: &ReleaseRecord,
        propagation: &str,
    ) -> Result<(), ClusterError> {
        let whole = self.node.whole();
        let mine = [
            OwnerLabelOrAnnotation::label(O::OWNERSHIP.name, &whole.name),
            OwnerLabelOrAnnotation::label(O::OWNERSHIP.namespace, &self.node.namespace),
            OwnerLabelOrAnnotation::label(
                manifest_objects::MANAGED_BY.0,
                manifest_objects::MANAGED_BY.1,
            ),
            OwnerLabelOrAnnotation::annotation(manifest_objects::RELEASE_NAME, &record.name),
            OwnerLabelOrAnnotation::annotation(
                manifest_objects::RELEASE_NAMESPACE,
                &record.namespace,
            ),
        ];
        let guard = self.guard();
        if self.comes_with_the_chart(live.name()) {
            // The owner keeps it as a CRD of its chart, so it only stops being an object of the release.
            return guard.unmark(live, MANAGER, &mine[2..]).await;
        }
        let removal = guard.remove(permit, live, MANAGER, &mine, propagation);
        let (why, text) = match self.permit.aside(removal).await? {
            CrdPruneOutcome::Deleted => return Ok(()),
            CrdPruneOutcome::Exported(text) => (condition_reason::CRD_EXPORTED, text),
            CrdPruneOutcome::Released(text) => (condition_reason::CRD_RELEASED, text),
        };
        self.tell_of(why, EventSeverity::Info, &text);
        Ok(())
    }

    /// Whether the chart has a definition in `crds/` now. A chart that moved a definition there still contains it.
    pub(super) fn comes_with_the_chart(&self, name: &str) -> bool {
        let chart = self.desired_release.chart.as_ref().map(|loaded| &loaded.chart);
        chart.map(helm::chart::crds).unwrap_or_default().iter().any(|file| {
            let text = String::from_utf8_lossy(&file.file.data);
            let all = manifest_objects::read(&text).unwrap_or_default();
            all.iter().any(|it| crd_guard::is_definition(it) && it.name() == name)
        })
    }

    fn tell_of(&self, why: reconcile::ConditionReason, severity: EventSeverity, text: &str) {
        self.owner.announce(ObjectEvent {
            severity,
            reason: why.as_str().to_owned(),
            message: self.desired_release.masked(text),
            metadata: BTreeMap::new(),
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use serde_json::json;

    use super::*;
    use fake_cluster::answering;

    /// An API server that has established the definition of Widgets, lists their version, and has its document when it was
    /// asked for it so many times.
    async fn documents_after(requests: usize) -> (ClusterConnection, Object, Arc<AtomicUsize>) {
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.acme.io"},
            "spec": {"group": "acme.io", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        let asked = Arc::new(AtomicUsize::new(0));
        let live = definition.clone();
        let requests_so_far = asked.clone();
        let cluster = answering(move |(request, _)| {
            let kinds = |version: &str, name: &str, kind: &str| {
                json!({"kind": "APIResourceList", "groupVersion": version, "resources": [
                    {"name": name, "singularName": "", "kind": kind, "namespaced": false, "verbs": []}]})
            };
            let answer = match request.as_str() {
                "GET /apis/apiextensions.k8s.io/v1" => kinds(
                    "apiextensions.k8s.io/v1",
                    "customresourcedefinitions",
                    "CustomResourceDefinition",
                ),
                "GET /apis" => json!({"kind": "APIGroupDiscoveryList", "items": [
                    {"metadata": {"name": "acme.io"}, "versions": [{"version": "v1"}]}]}),
                "GET /apis/acme.io/v1" if requests_so_far.fetch_add(1, Ordering::Relaxed) >= requests => {
                    kinds("acme.io/v1", "widgets", "Widget")
                }
                path if path.contains("/customresourcedefinitions/") => live.clone(),
                _ => return (404, Body::from("404 page not found")),
            };
            (200, Body::from(answer.to_string()))
        })
        .await;
        (cluster, Object::new(definition).unwrap(), asked)
    }

    #[tokio::test]
    async fn a_definition_that_is_established_is_waited_for_until_its_document_is_there() {
        let (cluster, definition, asked) = documents_after(2).await;
        let until = Instant::now() + Duration::from_secs(60);
        established(&cluster, &definition, until).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3);

        let (cluster, definition, _) = documents_after(usize::MAX).await;
        let error = established(&cluster, &definition, Instant::now()).await.unwrap_err();
        let CrdNotEstablishedError::TimedOut(text) = error else { panic!("{error:?}") };
        let expected = "CustomResourceDefinition widgets.acme.io is established, and Widget of acme.io/v1 is not served";
        assert!(text.starts_with(expected), "{text}");
    }
}
