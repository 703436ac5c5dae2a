//! Observes, creates and deletes the objects of hooks.
//!
//! Elsewhere: at which point of an operation (engine `release`, `operation`).

use std::collections::BTreeSet;
use std::sync::Arc;

use apply::HealthStatus as State;
use objects::{Object, SecretMasking};
use quarantine::rollback_protected_objects::record_refusal;
use reconcile::{ObjectKey, RunOutcome};
use release::ReleaseRecord;
use release::journal::HOOK_ANNOTATION;
use release::operation::{ObservedHealth, ObservedHookObject};
use serde_json::Value;

use super::executor::ReleaseExecutor;
use super::hook_watch::{DueHook, HookWatch};
use super::manifest_objects::{self, ManifestObject};
use super::step_error::StepError;
use super::{MANAGER, ReleaseStatusOwner, failure_cause};
use windlass_cluster::ClusterError;

/// The kind whose objects are CRDs.
const CRD: &str = "CustomResourceDefinition";

impl<O: ReleaseStatusOwner> ReleaseExecutor<O> {
    /// The object of a hook in the form in which it is applied.
    async fn hook_member(
        &self,
        record: &ReleaseRecord,
        place: usize,
    ) -> Result<ManifestObject, StepError> {
        let Some(hook) = record.hooks.get(place) else {
            let text = format!("release {} has no hook {place}", record.full_name());
            return Err(StepError::Failed(text));
        };
        let failed = |error: String| {
            let path = &hook.path;
            StepError::Failed(format!("unable to build kubernetes object for hook {path}: {error}"))
        };
        let object = match manifest_objects::read(&hook.manifest) {
            Ok(mut objects) if objects.len() == 1 => objects.remove(0),
            Ok(objects) => return Err(failed(format!("it has {} objects", objects.len()))),
            Err(error) => return Err(failed(error)),
        };
        match manifest_objects::placed(&self.target.cluster, object, &record.namespace).await {
            Ok((resource, object)) => Ok(ManifestObject { id: object.id(), object, resource }),
            Err(error @ ClusterError::NoSuchKind { .. }) => Err(failed(error.to_string())),
            Err(error) => Err(self.no_answer(&error).into()),
        }
    }

    /// The object of a hook that can be built.
    async fn built_hook(
        &self,
        record: &ReleaseRecord,
        place: usize,
    ) -> Result<Option<ManifestObject>, RunOutcome> {
        match self.hook_member(record, place).await {
            Ok(member) => Ok(Some(member)),
            Err(error) => error.text().map(|_| None),
        }
    }

    /// The state of the object of a hook.
    pub(super) async fn hook(
        &self,
        record: &ReleaseRecord,
        place: usize,
        operation: &str,
        on: &mut BTreeSet<ObjectKey>,
    ) -> Result<ObservedHookObject, RunOutcome> {
        // An object that cannot be built does not exist. Creating it reports the reason.
        let Some(member) = self.built_hook(record, place).await? else {
            return Ok(ObservedHookObject::Missing);
        };
        let id = &member.id;
        let cluster = &self.target.cluster;
        let since = self.target.watcher().now();
        let live = cluster.get(&member.resource, &id.namespace, &id.name).await;
        let live = live.map_err(|error| self.no_answer(&error))?;
        self.saw(&member, live.as_ref(), since);
        let Some(live) = live else { return Ok(ObservedHookObject::Missing) };
        on.insert(member.node());
        if is_leaving(&live) {
            return Ok(ObservedHookObject::Leaving);
        }
        if live.annotation(HOOK_ANNOTATION) != Some(operation) {
            return Ok(of_others(&member));
        }
        let health = self.hook_health(record, &member, &live).await;
        Ok(ObservedHookObject::Ours { uid: live.uid().to_owned(), health })
    }

    /// The state of the hook that is due, even if its object was deleted. It also tells whether a watch has seen every change
    /// of the object since the journal recorded the hook's beginning.
    pub(super) async fn running_hook(
        &self,
        record: &ReleaseRecord,
        place: usize,
        operation: &str,
        on: &mut BTreeSet<ObjectKey>,
    ) -> Result<(ObservedHookObject, bool), RunOutcome> {
        let Some(member) = self.built_hook(record, place).await? else {
            return Ok((ObservedHookObject::Missing, false));
        };
        let is_noted = self.journal(record.version).is_some_and(|it| it.hook_begun);
        let watch = self.hook_watch(&member, place, operation, is_noted).await;
        let is_watched = watch.is_whole();
        let id = &member.id;
        let cluster = &self.target.cluster;
        let since = self.target.watcher().now();
        let live = cluster.get(&member.resource, &id.namespace, &id.name).await;
        let live = live.map_err(|error| self.no_answer(&error))?;
        let is_ours = |it: &Object| it.annotation(HOOK_ANNOTATION) == Some(operation);
        if !watch.wakes() || live.as_ref().is_some_and(|it| !is_ours(it)) {
            self.saw(&member, live.as_ref(), since);
            on.insert(member.node());
        }
        let found = match live {
            Some(live) if is_ours(&live) => {
                let health = self.hook_health(record, &member, &live).await;
                ObservedHookObject::Ours { uid: live.uid().to_owned(), health }
            }
            Some(live) if is_leaving(&live) => ObservedHookObject::Leaving,
            Some(_) => of_others(&member),
            None => self.vanished(record, &member, &watch).await,
        };
        Ok((found, is_watched))
    }

    /// The watch of the hook that is due. A new watch has listed the existing objects.
    async fn hook_watch(
        &self,
        member: &ManifestObject,
        place: usize,
        operation: &str,
        is_noted: bool,
    ) -> Arc<HookWatch> {
        let known = self.known().hook_watch.clone();
        if let Some(watch) = known.filter(|it| it.is_of(operation, place)) {
            return watch;
        }
        let follows = matches!(
            (member.object.api_version(), member.object.kind()),
            ("batch/v1", "Job") | ("v1", "Pod")
        ) || self.desired_release.expressions.judges(&member.object);
        let cluster = &self.target.cluster;
        let work_queue = self.context.work_queue.clone();
        let hook = DueHook { operation: operation.to_owned(), place, is_noted, follows };
        let watch = HookWatch::begin(cluster, work_queue, &self.node, member, hook);
        watch.began().await;
        let watch = Arc::new(watch);
        self.known().hook_watch = Some(watch.clone());
        watch
    }

    /// The end of a hook whose object does not exist.
    async fn vanished(
        &self,
        record: &ReleaseRecord,
        member: &ManifestObject,
        watch: &HookWatch,
    ) -> ObservedHookObject {
        let seen = watch.seen();
        let Some(object) = seen.object else { return ObservedHookObject::Missing };
        let uid = object.uid().to_owned();
        let health = match self.hook_health(record, member, &object).await {
            ObservedHealth::Pending(_) if seen.is_gone || !watch.wakes() => {
                ObservedHealth::Failed(format!(
                    "{} was deleted before its result was observed; hooks are not run twice",
                    member.id.subject()
                ))
            }
            health => health,
        };
        ObservedHookObject::Ours { uid, health }
    }

    /// Parity(helm 4): a hook that is neither a Job nor a Pod is over once it is there.
    async fn hook_health(
        &self,
        record: &ReleaseRecord,
        member: &ManifestObject,
        live: &Object,
    ) -> ObservedHealth {
        let report = match (live.api_version(), live.kind()) {
            ("batch/v1", "Job") => self.judged(live, true).await,
            ("v1", "Pod") => {
                let phase =
                    live.get("status").and_then(|it| it.get("phase")).and_then(Value::as_str);
                match phase {
                    Some("Succeeded") => return ObservedHealth::Done,
                    Some("Failed") => apply::ObjectHealth {
                        status: State::Failed,
                        ..self.judged(live, true).await
                    },
                    _ => return ObservedHealth::Pending(vec![pending(member)]),
                }
            }
            _ => match self.desired_release.expressions.report(live).await {
                Some(report) => report,
                None => return ObservedHealth::Done,
            },
        };
        match report.status {
            State::Current => ObservedHealth::Done,
            State::Failed => {
                let cause = failure_cause::of(&self.target.cluster, member, &report).await;
                let cause = cause.map(|it| format!(": {it}")).unwrap_or_default();
                let secrets = contents_of_secrets(record);
                let masked = |text: &str| secrets.mask(&self.desired_release.masked(text));
                let line = failure_cause::last_line(&self.target.cluster, member, masked).await;
                let line = line.map(|it| format!("; last log line: {it}")).unwrap_or_default();
                ObservedHealth::Failed(format!(
                    "failed early due to stalled resources: [{} status: 'Failed'{cause}{line}]",
                    member.id.subject()
                ))
            }
            _ => ObservedHealth::Pending(vec![pending(member)]),
        }
    }

    /// Creates the object of a hook, marked with the operation.
    ///
    /// Differs(helm 4): an object of that name that is there already is an error also where the server applies; Helm
    /// would take its end for that of the hook.
    pub(super) async fn create_hook(
        &self,
        record: &ReleaseRecord,
        place: usize,
        operation: &str,
    ) -> Result<Option<String>, RunOutcome> {
        let mut member = match self.hook_member(record, place).await {
            Ok(member) => member,
            Err(error) => return error.text().map(Some),
        };
        if let Some(refused) = record_refusal(&member.id) {
            return Ok(Some(refused));
        }
        member.object.set_annotation(HOOK_ANNOTATION, operation);
        if let Some(refused) = self.refused_hook(&member.object).await? {
            return Ok(Some(refused));
        }
        let cluster = &self.target.cluster;
        let created = match member.id.kind == CRD {
            true => {
                let mode = windlass_cluster::untyped_objects::DryRunMode::Write;
                cluster.apply(&member.resource, &member.object, MANAGER, mode).await
            }
            false => cluster.create_object(&member.resource, &member.object, MANAGER, false).await,
        };
        let error = match created {
            Ok(created) => {
                let watch = self.known().hook_watch.clone();
                if let Some(watch) = watch.filter(|it| it.is_of(operation, place)) {
                    watch.created(created);
                }
                return Ok(None);
            }
            Err(error) if error.is_of_server() => return Err(self.no_answer(&error)),
            Err(error) => error,
        };
        if error.code() == Some(409) {
            // The reply to our own request may have been lost.
            let id = &member.id;
            let live = cluster.get(&member.resource, &id.namespace, &id.name).await;
            let live = live.map_err(|error| self.no_answer(&error))?;
            if live.is_some_and(|it| it.annotation(HOOK_ANNOTATION) == Some(operation)) {
                return Ok(None);
            }
        }
        if error.is_conflict() {
            return Err(self.no_answer(&error));
        }
        Ok(Some(error.to_string()))
    }

    /// Deletes the object of a hook.
    ///
    /// Parity(helm 4): CRDs are never deleted, or all objects of theirs would go, too.
    ///
    /// Nor is what only windlass writes: a record of Helm may have such a hook, whose object is deleted before it is created. That
    /// is an error, because the end of the object would be awaited otherwise.
    pub(super) async fn delete_hook(
        &self,
        record: &ReleaseRecord,
        place: usize,
    ) -> Result<Option<String>, RunOutcome> {
        let Some(member) = self.built_hook(record, place).await? else { return Ok(None) };
        if member.id.kind == CRD {
            return Ok(None);
        }
        if let Some(refused) = record_refusal(&member.id) {
            return Ok(Some(refused));
        }
        let id = &member.id;
        let cluster = &self.target.cluster;
        let live = cluster.get(&member.resource, &id.namespace, &id.name).await;
        let Some(live) = live.map_err(|error| self.no_answer(&error))? else { return Ok(None) };
        match cluster.delete_unmanaged(&member.resource, &id.namespace, &id.name, live.uid()).await
        {
            Ok(()) => Ok(None),
            Err(error) if error.is_of_server() => Err(self.no_answer(&error)),
            Err(error) => Ok(Some(error.to_string())),
        }
    }
}

fn is_leaving(live: &Object) -> bool {
    live.meta("deletionTimestamp").is_some_and(|it| !it.is_null())
}

/// An object that another operation or another client created.
fn of_others(member: &ManifestObject) -> ObservedHookObject {
    // A CRD is never deleted, so it is changed instead of created.
    if member.id.kind == CRD { ObservedHookObject::Missing } else { ObservedHookObject::Theirs }
}

fn pending(member: &ManifestObject) -> String {
    format!("{} status: 'InProgress'", member.id.subject())
}

/// The values of the release's Secrets, which its hooks may print.
fn contents_of_secrets(record: &ReleaseRecord) -> SecretMasking {
    let hooks = record.hooks.iter().map(|hook| hook.manifest.as_str());
    let all = hooks.chain([record.manifest.as_str()]);
    let objects: Vec<Object> =
        all.flat_map(|text| manifest_objects::read(text).unwrap_or_default()).collect();
    SecretMasking::default().with_manifests(&objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_secrets_of_a_release_hold_is_known() {
        let json = r#"{"name":"web","manifest":"---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData:\n  a: plain-secret\n",
            "hooks":[{"manifest":"apiVersion: v1\nkind: Secret\nmetadata: {name: t}\ndata: {b: aGlkZGVuLXNlY3JldA==, c: '%'}\n"},
                {"manifest":"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {d: told-to-all}\n"}, {"manifest":"{"}]}"#;
        let record = ReleaseRecord::from_json(json.as_bytes()).unwrap();
        let masked = contents_of_secrets(&record).mask("hidden-secret, plain-secret, told-to-all");
        assert_eq!(masked, "****, ****, told-to-all");
    }
}
