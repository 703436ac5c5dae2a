//! Observes the objects of a release: hooks, readiness, objects that remain after a removal, and drift.
//!
//! Elsewhere: decisions from these observations (engine `release`), writing (`object_writes`, `hooks`).

use std::collections::BTreeSet;

use apply::{HealthStatus as State, ObjectHealth, health, helm3_readiness};
use futures::stream::{self, StreamExt as _};
use objects::{Object, ObjectId};
use reconcile::RunOutcome;
use release::operation::{ObservationScope, ObservedHealth, ObservedLiveObjects};
use release::{ReleaseRecord, removal_order};

use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, ManifestObject};
use super::step_error::StepError;
use super::{ReleaseStatusOwner, failure_cause};
use windlass_cluster::object_watcher::{AwaitedObject, OwnerLabelPresence, WatchMoment};
use windlass_cluster::{ClusterError, resource_version};
use windlass_runtime::crd_guard;

/// The interval at which an object without a watch is observed.
const UNWATCHED_OBJECT_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

/// An object on which a release waits, as Flux's waits name it.
fn shown(id: &ObjectId, state: &str) -> String {
    format!("{} status: '{state}'", id.subject())
}

/// The version in which an object is stored.
fn version_of(object: &Object) -> u64 {
    object.get("metadata").map(resource_version::of_metadata).unwrap_or_default()
}

/// Whether an object is of a kind without a state to wait for. Such an object is ready once it exists.
fn is_inert(object: &Object) -> bool {
    match (object.api_version(), object.kind()) {
        ("v1", "ConfigMap" | "Secret" | "ServiceAccount") => true,
        ("v1", "Service") => {
            object.get("spec").and_then(|it| it.get("type")).is_none_or(|it| it != "LoadBalancer")
        }
        (
            "rbac.authorization.k8s.io/v1",
            "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding",
        ) => true,
        _ => false,
    }
}

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// Observes the objects that the next step of an open operation needs.
    pub(super) async fn live(
        &self,
        record: &ReleaseRecord,
        journal: &str,
        scope: ObservationScope,
    ) -> Result<ObservedLiveObjects, RunOutcome> {
        let mut live = ObservedLiveObjects::default();
        if !matches!(scope, ObservationScope::Run(_)) {
            self.known().hook_watch = None;
        }
        match scope {
            ObservationScope::Nothing => return Ok(live),
            ObservationScope::Hook(place) => {
                live.hook = Some(self.hook(record, place, journal, &mut live.on).await?);
            }
            ObservationScope::Run(place) => {
                let (hook, is_watched) =
                    self.running_hook(record, place, journal, &mut live.on).await?;
                (live.hook, live.hook_watched) = (Some(hook), is_watched);
            }
            ObservationScope::Ready { jobs } => {
                live.objects = Some(self.readiness(record, jobs, &mut live.on).await?);
            }
            ObservationScope::Gone => {
                live.objects = Some(self.leftovers(record, &mut live.on).await?);
            }
        }
        live.again = jiff::Timestamp::now().checked_add(UNWATCHED_OBJECT_POLL_INTERVAL).ok();
        Ok(live)
    }

    async fn readiness(
        &self,
        record: &ReleaseRecord,
        jobs: bool,
        on: &mut BTreeSet<reconcile::ObjectKey>,
    ) -> Result<ObservedHealth, RunOutcome> {
        let members = match self.members(record).await {
            Ok(members) => members,
            Err(error) => return Ok(ObservedHealth::Failed(error.text()?)),
        };
        let earlier = self.known().healthy.clone();
        let waited = members.iter().filter(|it| self.is_waited(&it.object));
        let (ready, pending): (Vec<&ManifestObject>, Vec<&ManifestObject>) =
            waited.partition(|it| earlier.contains_key(&it.id));
        let mut found = self.examine(pending, jobs).await?;
        if found.iter().all(|(_, report)| report.is_current()) {
            // An object that was ready while windlass waited for others may not be ready any more. A watch may show that it
            // has not changed.
            let watcher = self.target.watcher();
            let at = |it: &ManifestObject| earlier.get(&it.id).copied().unwrap_or_default();
            let moved = |it: &&ManifestObject| !watcher.confirms(&self.node, &it.id, at(it));
            found.extend(self.examine(ready.into_iter().filter(moved).collect(), jobs).await?);
        }
        let mut unready = Vec::new();
        let mut failed = Vec::new();
        for (member, report) in found {
            match report.status {
                State::Current => {}
                State::Failed => failed.push((member, report)),
                state => {
                    on.insert(member.node());
                    unready.push((member, state.to_string()));
                }
            }
        }
        if !failed.is_empty() {
            let mut strings = Vec::new();
            for (member, report) in failed {
                let cause = failure_cause::of(&self.target.cluster, member, &report).await;
                strings.push(with_cause(shown(&member.id, "Failed"), cause));
            }
            return Ok(ObservedHealth::Failed(format!(
                "failed early due to stalled resources: [{}]",
                strings.join(", ")
            )));
        }
        if unready.is_empty() {
            return Ok(ObservedHealth::Done);
        }
        let is_late = self.is_late(record);
        let mut strings = Vec::new();
        for (member, state) in unready {
            // Finding the cause costs requests, so it is looked for only when the wait is over and the message is
            // reported.
            let cause = match is_late {
                true => {
                    failure_cause::of(&self.target.cluster, member, &ObjectHealth::not_found())
                        .await
                }
                false => None,
            };
            strings.push(with_cause(shown(&member.id, &state), cause));
        }
        Ok(ObservedHealth::Pending(strings))
    }

    /// Whether an object has a state to wait for, by its kind or by an expression of the spec.
    fn is_waited(&self, object: &Object) -> bool {
        !is_inert(object) || self.desired_release.expressions.judges(object)
    }

    /// The health of objects, and which of them are ready from now on.
    async fn examine<'m>(
        &self,
        members: Vec<&'m ManifestObject>,
        jobs: bool,
    ) -> Result<Vec<(&'m ManifestObject, ObjectHealth)>, RunOutcome> {
        let observations: Vec<_> = members.iter().map(|it| self.health_of(it, jobs)).collect();
        let width = usize::from(self.context.settings.concurrent_ssa);
        let found: Vec<Result<(ObjectHealth, u64), ClusterError>> =
            stream::iter(observations).buffered(width).collect().await;
        let mut reports = Vec::new();
        for (member, found) in members.into_iter().zip(found) {
            let (report, version) = found.map_err(|error| self.no_answer(&error))?;
            let mut known = self.known();
            match report.is_current() {
                true => known.healthy.insert(member.id.clone(), version),
                false => known.healthy.remove(&member.id),
            };
            drop(known);
            reports.push((member, report));
        }
        Ok(reports)
    }

    /// Whether the deadline of the open operation has passed. Then its message names the missing objects.
    fn is_late(&self, record: &ReleaseRecord) -> bool {
        let journal = self.journal(record.version);
        journal.is_some_and(|it| it.is_open() && jiff::Timestamp::now() >= it.deadline())
    }

    /// Keeps the object in the API server's answer to a write, so that observing its health needs no request.
    ///
    /// `since` is the moment before the write.
    pub(super) fn wrote(&self, id: &ObjectId, answer: Object, since: WatchMoment) {
        if self.is_waited(&answer) {
            self.known().written.insert(id.clone(), (answer, since));
        }
    }

    /// The health of an object, and its resourceVersion.
    async fn health_of(
        &self,
        member: &ManifestObject,
        jobs: bool,
    ) -> Result<(ObjectHealth, u64), ClusterError> {
        let ManifestObject { id, resource, .. } = member;
        let written = self.known().written.remove(id);
        let (live, since) = match written {
            // The API server's answer to the write is recent enough; a watch reports later changes.
            Some((written, since)) => (Some(written), since),
            None => {
                let since = self.target.watcher().now();
                (self.target.cluster.get(resource, &id.namespace, &id.name).await?, since)
            }
        };
        self.saw(member, live.as_ref(), since);
        let Some(live) = live else { return Ok((ObjectHealth::not_found(), 0)) };
        Ok((self.judged(&live, jobs).await, version_of(&live)))
    }

    /// The health of an object, by the expressions of the spec or the usual rules.
    pub(super) async fn judged(&self, live: &Object, jobs: bool) -> ObjectHealth {
        if self.options().legacy_wait {
            // Parity(flux): expressions are for the other way of waiting.
            return helm3_readiness::report(live, jobs);
        }
        if (live.api_version(), live.kind()) == ("batch/v1", "Job") {
            // Parity(helm 4): a Job counts as ready once it is there, unless its end is waited for.
            return if jobs { health::job(live) } else { current() };
        }
        if let Some(report) = self.desired_release.expressions.report(live).await {
            return report;
        }
        health::read(live, &[], jiff::Timestamp::now())
    }

    /// Records in which version an object was read, for the wait that may follow.
    ///
    /// `since` is the moment before it was read.
    pub(super) fn saw(&self, member: &ManifestObject, live: Option<&Object>, since: WatchMoment) {
        let own = live.and_then(|it| it.label(O::OWNERSHIP.name));
        let labelled = match own == Some(self.node.whole().name.as_str()) {
            true => OwnerLabelPresence::Yes,
            false => OwnerLabelPresence::No,
        };
        let awaited = AwaitedObject {
            resource: member.resource.clone(),
            id: member.id.clone(),
            labelled,
            version: live.map_or(0, version_of),
            since,
        };
        self.known().awaited.insert(member.node(), awaited);
    }

    /// The objects that a removal should have deleted and that still exist.
    async fn leftovers(
        &self,
        record: &ReleaseRecord,
        on: &mut BTreeSet<reconcile::ObjectKey>,
    ) -> Result<ObservedHealth, RunOutcome> {
        let leaving = match self.leaving(record).await {
            Ok(leaving) => leaving,
            Err(error) => return Ok(ObservedHealth::Failed(error.text()?)),
        };
        let width = usize::from(self.context.settings.concurrent_ssa);
        let since = self.target.watcher().now();
        let found = manifest_objects::live(&self.target.cluster, &leaving, width).await;
        let mut left = Vec::new();
        for (member, live) in leaving.iter().zip(found.map_err(|error| self.no_answer(&error))?) {
            self.saw(member, live.as_ref(), since);
            let is_left = live.is_some_and(|live| {
                let is_ours = live.annotation(manifest_objects::RELEASE_NAME) == Some(&record.name);
                // A CustomResourceDefinition without the marks of a release was left to its other users.
                let is_released = crd_guard::is_definition(&live) && !is_ours;
                !is_released
                    && !manifest_objects::is_kept(&live)
                    && !manifest_objects::is_of_another(&live, &record.name, &record.namespace)
            });
            if is_left {
                on.insert(member.node());
                left.push(member.id.subject());
            }
        }
        Ok(if left.is_empty() { ObservedHealth::Done } else { ObservedHealth::Pending(left) })
    }

    /// The objects that are deleted with a revision, in the order of their deletion. Objects of kinds that do not exist any
    /// more count as deleted.
    ///
    /// # Errors
    /// The manifest cannot be read, or the run has an outcome.
    pub(super) async fn leaving(
        &self,
        record: &ReleaseRecord,
    ) -> Result<Vec<ManifestObject>, StepError> {
        let removed = removal_order::removed(record).map_err(StepError::Failed)?;
        let mut leaving = Vec::new();
        for manifest in removed.deleted {
            let objects = manifest_objects::read(&manifest.content).map_err(StepError::Failed)?;
            for object in objects {
                match manifest_objects::reached(&self.target.cluster, object, &record.namespace)
                    .await
                {
                    Ok(reached) => leaving.extend(reached),
                    Err(error) => return Err(self.no_answer(&error).into()),
                }
            }
        }
        Ok(leaving)
    }
}

fn with_cause(text: String, cause: Option<String>) -> String {
    match cause {
        Some(cause) => format!("{text}: {cause}"),
        None => text,
    }
}

fn current() -> ObjectHealth {
    ObjectHealth { status: State::Current, message: String::new(), conditions: Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn of_services_only_load_balancers_are_waited_for() {
        let service = |spec: Value| {
            Object::new(json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web"}, "spec": spec}))
            .unwrap()
        };
        assert!(is_inert(&service(json!({}))));
        assert!(is_inert(&service(json!({"type": "ClusterIP"}))));
        assert!(!is_inert(&service(json!({"type": "LoadBalancer"}))));
    }
}
