//! Applies the manifests of a release's hooks, as `kubectl apply` would for the user that applies the release, and audits the
//! changes.
//!
//! The journal does not have these applies, since repeating them changes nothing. Windlass remembers a write that the API
//! server did not answer as long as the process lives, so that its change is audited once. No release owns these objects:
//! drift is not corrected, and they are not pruned.
//! Elsewhere: what hooks apply, and which are refused (engine `helmfile`); when (`release_reconciler.rs`,
//! `release_status_writer.rs`).

use std::collections::BTreeMap;
use std::time::Duration;

use apply::drift_comparison::{digest, stored_digest};
use apply::object_changes::{ObjectChange as Changed, ObjectChangeKind, fields};
use crds::windlass_release::{
    AuditCause, AuditCauseKind, AuditOperation, AuditOutcome, AuditRevision, ReleaseAuditSpec,
};
use helmfile::{ManifestHook, ManifestHookTime};
use lifecycle::LifecycleEventAnswer;
use objects::{Object, ObjectId};
use quarantine::rollback_protected_objects::record_refusal;
use reconcile::{NextRunTrigger, RunOutcome, Time, format_duration};
use release::ReleaseDesiredState;
use release::status::RECONCILE_ERROR;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::release_status_writer::HelmfileReleaseOwner;
use helm_controller::release_runner::audit::subject;
use helm_controller::release_runner::crd_definitions::{CrdNotEstablishedError, established};
use helm_controller::release_runner::{ReleaseStatusOwner as _, manifest_objects};
use windlass_cluster::ClusterError;
use windlass_cluster::run_permits::RunPermit;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_runtime::audit::{self, cut, text, took, when};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::controller_kind::node_of;
use windlass_runtime::crd_guard::error::CrdGuardError;
use windlass_runtime::crd_guard::{CrdGuardian, CrdWritePermission, is_definition};
use windlass_runtime::run_context::RunContext;

/// The field manager of objects that hooks apply. It differs from the manager of releases, so that applying hooks does not
/// remove fields of releases.
const MANAGER: &str = "helmfile-hooks";

/// Most objects that the hooks of a release apply for an event.
const MOST_OBJECTS: usize = 500;

/// The delay before hooks are tried again after an API server did not answer.
const API_SERVER_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The manifests that the hooks of a release apply.
#[derive(Debug, Default)]
pub(super) struct ReleaseHooks {
    pub(super) all: Vec<ManifestHook>,
    /// The digest of all manifests. Empty if there are none.
    pub(super) digest: String,
}

impl ReleaseHooks {
    pub(super) fn new(all: Vec<ManifestHook>) -> Self {
        if all.is_empty() {
            return Self::default();
        }
        let mut hash = Sha256::new();
        for hook in &all {
            for part in [
                hook.name.as_bytes(),
                &[u8::from(hook.when == ManifestHookTime::After)],
                hook.manifests.as_bytes(),
            ] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        let digest = format!("sha256:{}", hex::encode(hash.finalize()));
        Self { all, digest }
    }
}

/// A write of a hook that the API server did not answer. The API server may have carried it out.
#[derive(Debug)]
struct UnansweredHookWrite {
    /// The digest of the manifest.
    digest: String,
    /// The digest of the object before the write, without its status and version. `None` if there was no object.
    before: Option<String>,
    /// The time when the write was sent.
    sent: Time,
}

/// Writes of a release's hooks that the API server did not answer. There is at most one for each object and each hook moment.
///
/// Hooks also apply objects that match their manifests already. So such a write changed something only if fields of its object
/// differ since then. The resource version does not show that, because controllers write statuses.
#[derive(Debug, Default)]
pub(super) struct UnansweredHookWrites {
    before: BTreeMap<ObjectId, UnansweredHookWrite>,
    after: BTreeMap<ObjectId, UnansweredHookWrite>,
}

impl UnansweredHookWrites {
    /// The writes of hooks with this moment.
    fn at(&mut self, moment: ManifestHookTime) -> &mut BTreeMap<ObjectId, UnansweredHookWrite> {
        match moment {
            ManifestHookTime::Before => &mut self.before,
            ManifestHookTime::After => &mut self.after,
        }
    }

    /// Remembers a write that may have been carried out. An earlier write of the same manifest stays, since this write may
    /// have found its change.
    fn put(&mut self, moment: ManifestHookTime, id: &ObjectId, write: UnansweredHookWrite) {
        let writes = self.at(moment);
        let earlier = writes.remove(id).filter(|earlier| earlier.digest == write.digest);
        if writes.len() < MOST_OBJECTS {
            writes.insert(id.clone(), earlier.unwrap_or(write));
        }
    }

    /// Handles an answered write of a manifest that changed nothing. Returns the earlier unanswered write that changed the
    /// object, or `None` if there is no such write. Other earlier writes of the object are forgotten.
    fn take(
        &mut self,
        moment: ManifestHookTime,
        written: &Object,
        digest: &str,
    ) -> Option<UnansweredHookWrite> {
        let write = self.at(moment).remove(&written.id())?;
        let is_done = write.digest == digest && write.before != Some(stored_digest(written));
        is_done.then_some(write)
    }

    /// Forgets the writes of a moment whose hooks were all applied. They are about objects that the hooks do not name any
    /// more.
    fn forget(&mut self, moment: ManifestHookTime) {
        self.at(moment).clear();
    }
}

/// The `resourceVersion` of an object, which changes with each write. `None` if the object has none.
fn version(object: &Object) -> Option<String> {
    object.meta("resourceVersion")?.as_str().map(str::to_owned)
}

/// The changes by hooks, from answered writes, and from earlier unanswered writes that turned out to be done.
#[derive(Debug, Default)]
struct HelmfileHookChanges {
    all: Vec<Changed>,
    /// The time of the first write without an answer among them.
    unanswered_since: Option<Time>,
}

impl HelmfileHookChanges {
    /// Adds the change of an answered write. `unanswered` is the earlier write that changed the object.
    fn answered(
        &mut self,
        written: &Object,
        change: Option<Changed>,
        unanswered: Option<UnansweredHookWrite>,
    ) {
        if let Some(change) = change {
            self.all.push(change);
        } else if let Some(write) = unanswered {
            let since = self.unanswered_since.map_or(write.sent, |since| since.min(write.sent));
            self.unanswered_since = Some(since);
            let is_new = write.before.is_none();
            let what = if is_new { ObjectChangeKind::Added } else { ObjectChangeKind::Changed };
            self.all.push(Changed { id: written.id(), what, fields: Vec::new() });
        }
    }
}

/// An application of hooks that ended.
struct EndedHookApply<'a> {
    started: Time,
    ended: &'a Result<HookApplyOutcome, RunOutcome>,
    changes: Vec<Changed>,
}

/// The result of applying manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HookApplyOutcome {
    /// All manifests are applied.
    Applied,
    /// One of the manifests cannot be applied, for this reason.
    Refused(String),
    /// The owner was changed, suspended or deleted meanwhile.
    Overtaken,
}

impl<K: HelmfileCustomResource> HelmfileReleaseOwner<K> {
    /// Applies the manifests of the hooks of some moments, in order. Lifecycles have permitted this with the given answers.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn apply_hooks(
        &self,
        moments: &[ManifestHookTime],
        target: &ClusterTarget,
        permit: &RunPermit,
        desired: &ReleaseDesiredState,
        answers: &[LifecycleEventAnswer],
    ) -> Result<HookApplyOutcome, RunOutcome> {
        let is_due = |hook: &ManifestHook| moments.contains(&hook.when);
        if !self.hooks.all.iter().any(is_due) {
            return Ok(HookApplyOutcome::Applied);
        }
        let mut round = HookManifestApply {
            owner: self,
            target,
            permit,
            desired,
            changes: HelmfileHookChanges::default(),
            left: MOST_OBJECTS,
        };
        let began = jiff::Timestamp::now();
        let mut ended = Ok(HookApplyOutcome::Applied);
        for at in (0..self.hooks.all.len()).filter(|at| is_due(&self.hooks.all[*at])) {
            ended = round.hook(at).await;
            if ended != Ok(HookApplyOutcome::Applied) {
                break;
            }
        }
        let HelmfileHookChanges { all: changes, unanswered_since } = round.changes;
        if ended == Ok(HookApplyOutcome::Applied) {
            let mut unanswered = self.unanswered.lock();
            moments.iter().for_each(|moment| unanswered.forget(*moment));
        }
        let started = unanswered_since.map_or(began, |since| since.min(began));
        // A process may have applied all hooks, and ended before it wrote the audit. The process that began an operation also
        // audits the hooks before it.
        if self.follows(moments) || moments == [ManifestHookTime::Before] || !changes.is_empty() {
            let application = EndedHookApply { started, ended: &ended, changes };
            self.audit_hooks(moments, application, answers, desired).await;
        }
        ended
    }

    /// Audits that a lifecycle did not let hooks be applied on which no operation begins.
    pub(super) async fn audit_refused(
        &self,
        why: &str,
        answers: Vec<LifecycleEventAnswer>,
        desired: &ReleaseDesiredState,
    ) {
        let ended = Ok(HookApplyOutcome::Refused(why.to_owned()));
        let started = jiff::Timestamp::now();
        let application = EndedHookApply { started, ended: &ended, changes: Vec::new() };
        let moments = [ManifestHookTime::Before, ManifestHookTime::After];
        self.audit_hooks(&moments, application, &answers, desired).await;
    }

    /// Whether hooks that follow an operation are due.
    fn follows(&self, moments: &[ManifestHookTime]) -> bool {
        moments.contains(&ManifestHookTime::After)
            && self.hooks.all.iter().any(|it| it.when == ManifestHookTime::After)
    }

    /// Writes the audit record of the hooks' changes.
    async fn audit_hooks(
        &self,
        moments: &[ManifestHookTime],
        application: EndedHookApply<'_>,
        answers: &[LifecycleEventAnswer],
        desired: &ReleaseDesiredState,
    ) {
        let EndedHookApply { started, ended, changes } = application;
        let object = self.book.object();
        let now = jiff::Timestamp::now();
        let (outcome, message) = match ended {
            Ok(HookApplyOutcome::Applied) => (AuditOutcome::Succeeded, None),
            Ok(HookApplyOutcome::Overtaken) => (AuditOutcome::Stopped, None),
            Ok(HookApplyOutcome::Refused(text)) => (AuditOutcome::Failed, Some(text.clone())),
            Err(run_outcome) => (AuditOutcome::Failed, Some(run_outcome.text().to_owned())),
        };
        let revision =
            release::release_snapshot::latest(&self.status().history).map_or(0, |it| it.version);
        // There is one audit record before and one after an operation, however often and by which process hooks are applied.
        // Failed hooks are applied again, and change other objects.
        let of = if self.follows(moments) { "after" } else { "before" };
        let attempt = match outcome {
            AuditOutcome::Failed if !changes.is_empty() => started.to_string(),
            _ => String::new(),
        };
        let key = format!(
            "hooks {of} {} {} {} {revision} {outcome:?}{attempt}",
            self.key, self.hooks.digest, desired.generation
        );
        // If another process began the operation, all hooks are applied, and the changes by that process are not known.
        let is_partial = outcome != AuditOutcome::Succeeded || moments.len() > 1;
        let origin = &desired.origin;
        let source = AuditCause {
            type_: AuditCauseKind::Source,
            object: text(&*origin.source),
            version: text(&*origin.revision),
            ..AuditCause::default()
        };
        let spec = ReleaseAuditSpec {
            subject: subject(&node_of(&*object), desired, &self.key.name, &self.key.namespace),
            operation: AuditOperation::Apply,
            id: Some(format!("hooks.{}", &hex::encode(Sha256::digest(&key))[..16])),
            causes: vec![source],
            to: Some(AuditRevision {
                revision: text(cut(&origin.revision, 500)),
                ..AuditRevision::default()
            }),
            changes: audit::listed(changes, is_partial, &self.secrets),
            lifecycles: answers.iter().cloned().map(audit::answer).collect(),
            outcome,
            message,
            started: when(started),
            ended: when(now),
            duration: took(started, now),
            ..ReleaseAuditSpec::default()
        };
        let namespace = &node_of(&*object).namespace;
        if let Some(event) = audit::write(&self.book.context, namespace, &key, spec).await {
            self.announce(event);
        }
    }
}

/// One application of the manifests of a release's hooks, and the changes that it made.
struct HookManifestApply<'r, K: HelmfileCustomResource> {
    owner: &'r HelmfileReleaseOwner<K>,
    target: &'r ClusterTarget,
    permit: &'r RunPermit,
    desired: &'r ReleaseDesiredState,
    /// The changes so far.
    changes: HelmfileHookChanges,
    /// How many further objects are permitted.
    left: usize,
}

impl<K: HelmfileCustomResource> HookManifestApply<'_, K> {
    async fn hook(&mut self, at: usize) -> Result<HookApplyOutcome, RunOutcome> {
        let hooks = self.owner.hooks.clone();
        let failed =
            |hooks: &ReleaseHooks, text: &str| format!("hook `{}`: {text}", hooks.all[at].name);
        // Parsing many manifests here would block the other tasks of this thread.
        let read = {
            let hooks = hooks.clone();
            tokio::task::spawn_blocking(move || manifest_objects::read(&hooks.all[at].manifests))
        };
        let objects = match read.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(objects) => objects,
            Err(text) => return Ok(HookApplyOutcome::Refused(failed(&hooks, &text))),
        };
        let Some(left) = self.left.checked_sub(objects.len()) else {
            let text = format!(
                "hooks of a release may apply {MOST_OBJECTS} objects: put the others into a chart"
            );
            return Ok(HookApplyOutcome::Refused(failed(&hooks, &text)));
        };
        self.left = left;
        let secrets = self.owner.secrets.clone().with_manifests(&objects);
        match self.objects(objects, hooks.all[at].when).await {
            Ok(HookApplyOutcome::Refused(text)) => {
                Ok(HookApplyOutcome::Refused(failed(&hooks, &secrets.mask(&text))))
            }
            Ok(ended) => Ok(ended),
            Err(error) if error.is_of_server() => {
                let soon = jiff::Timestamp::now()
                    .saturating_add(API_SERVER_RETRY_DELAY)
                    .unwrap_or(Time::MAX);
                let text = failed(&hooks, &secrets.mask(&error.to_string()));
                Err(RunOutcome::Failed(RECONCILE_ERROR, text, NextRunTrigger::at(soon)))
            }
            Err(error) => {
                Ok(HookApplyOutcome::Refused(failed(&hooks, &secrets.mask(&error.to_string()))))
            }
        }
    }

    /// Applies objects one after the other.
    async fn objects(
        &mut self,
        objects: Vec<Object>,
        moment: ManifestHookTime,
    ) -> Result<HookApplyOutcome, ClusterError> {
        match self.applied(objects, moment).await {
            // A migration is interrupted for that.
            Err(_) if self.owner.is_overtaken(self.desired) => Ok(HookApplyOutcome::Overtaken),
            Err(CrdGuardError::Refused(text)) => Ok(HookApplyOutcome::Refused(text)),
            Err(CrdGuardError::Cluster(error)) => Err(error),
            Ok(outcome) => Ok(outcome),
        }
    }

    /// Between two objects others have their turn, and a newer spec is seen.
    async fn applied(
        &mut self,
        objects: Vec<Object>,
        moment: ManifestHookTime,
    ) -> Result<HookApplyOutcome, CrdGuardError> {
        let until = Instant::now() + self.owner.timeout;
        let mut definitions = Vec::new();
        for object in objects {
            self.permit.aside(std::future::ready(())).await;
            if self.owner.is_overtaken(self.desired) {
                return Ok(HookApplyOutcome::Overtaken);
            }
            if Instant::now() >= until {
                let text = format!("timed out after {}", format_duration(self.owner.timeout));
                return Ok(HookApplyOutcome::Refused(text));
            }
            let is_of_kind = is_definition(&object);
            if !is_of_kind {
                self.serve(&mut definitions, until).await?;
            }
            let written = self.one(object, moment).await?;
            definitions.extend(written.filter(|_| is_of_kind));
        }
        self.serve(&mut definitions, until).await?;
        Ok(HookApplyOutcome::Applied)
    }

    /// Waits until the kinds of written CustomResourceDefinitions are served, since the next objects may be of these kinds.
    async fn serve(
        &self,
        definitions: &mut Vec<Object>,
        until: Instant,
    ) -> Result<(), CrdGuardError> {
        for definition in std::mem::take(definitions) {
            let wait = established(&self.target.cluster, &definition, until);
            self.permit.aside(wait).await.map_err(|error| match error {
                CrdNotEstablishedError::TimedOut(text) => CrdGuardError::Refused(text),
                CrdNotEstablishedError::Cluster(error) => CrdGuardError::Cluster(error),
            })?;
        }
        Ok(())
    }

    /// Applies an object. `None` if its `windlass.dev/crd-policy` excludes it.
    async fn one(
        &mut self,
        object: Object,
        moment: ManifestHookTime,
    ) -> Result<Option<Object>, CrdGuardError> {
        let context: &RunContext = &self.owner.book.context;
        let cluster = &self.target.cluster;
        let (resource, object) =
            manifest_objects::placed(cluster, object, &self.owner.key.namespace).await?;
        if let Some(text) = record_refusal(&object.id()) {
            return Err(CrdGuardError::Refused(text));
        }
        let guard = CrdGuardian::new(context, self.target, self.permit.namespace());
        match self.permit.aside(guard.change(&object, MANAGER)).await? {
            CrdWritePermission::Allowed => {}
            CrdWritePermission::Skipped => return Ok(None),
            CrdWritePermission::Refused(text) => return Err(CrdGuardError::Refused(text)),
            CrdWritePermission::Migrates => {
                let is_overtaken = || self.owner.is_overtaken(self.desired);
                let migration = guard.migrate(&object, MANAGER, &is_overtaken);
                self.permit.aside(migration).await?;
            }
        }
        let before = match context.settings.release_audits {
            true => cluster.get(&resource, object.namespace(), object.name()).await,
            false => Ok(None),
        };
        // Without an answer, the change by a write would not be known.
        let before = match before {
            Err(error) if error.is_of_server() => return Err(error.into()),
            before => before,
        };
        let digest = digest(&object);
        let sent = jiff::Timestamp::now();
        match cluster.apply(&resource, &object, MANAGER, DryRunMode::Write).await {
            Ok(written) => {
                let unanswered = self.owner.unanswered.lock().take(moment, &written, &digest);
                self.changes.answered(&written, changed(before, &written), unanswered);
                Ok(Some(written))
            }
            Err(error) => {
                if let Some(before) = before.ok().filter(|_| error.may_be_done()) {
                    let before = before.as_ref().map(stored_digest);
                    let write = UnansweredHookWrite { digest, before, sent };
                    self.owner.unanswered.lock().put(moment, &object.id(), write);
                }
                Err(error.into())
            }
        }
    }
}

/// The change by a write. `None` if it changed nothing.
fn changed(before: Result<Option<Object>, ClusterError>, written: &Object) -> Option<Changed> {
    let (what, fields) = match before {
        Ok(None) => (ObjectChangeKind::Added, Vec::new()),
        Ok(Some(before)) if version(&before) == version(written) => return None,
        // A controller wrote its status meanwhile.
        Ok(Some(before)) if stored_digest(&before) == stored_digest(written) => return None,
        Ok(Some(before)) => (ObjectChangeKind::Changed, fields(&before, written)),
        // A user who may write an object need not be allowed to read it.
        Err(_) => (ObjectChangeKind::Changed, Vec::new()),
    };
    Some(Changed { id: written.id(), what, fields })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(version: &str, value: &str) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value},
            "metadata": {"name": "m", "namespace": "n", "resourceVersion": version}}))
        .unwrap()
    }

    #[test]
    fn what_a_hook_leaves_as_it_is_is_no_change() {
        let what = |before| changed(before, &map("2", "x")).map(|it| (it.what, it.fields));
        assert_eq!(what(Ok(Some(map("2", "x")))), None);
        assert_eq!(what(Ok(None)), Some((ObjectChangeKind::Added, Vec::new())));
        assert_eq!(what(Ok(Some(map("1", "x")))), None, "another client wrote a status");
        let fields = vec!["/data/a".to_owned()];
        assert_eq!(what(Ok(Some(map("1", "y")))), Some((ObjectChangeKind::Changed, fields)));
        let refused = Err(ClusterError::NoAnswer(String::new()));
        assert_eq!(what(refused), Some((ObjectChangeKind::Changed, Vec::new())));
    }

    /// A write of an object that had this value before, in version 1.
    fn unanswered(before: Option<&str>, second: i64) -> UnansweredHookWrite {
        let sent = Time::from_second(second).unwrap();
        let before = before.map(|value| stored_digest(&map("1", value)));
        UnansweredHookWrite { digest: "one".to_owned(), before, sent }
    }

    /// What a round of hooks has changed that finds an object in a version, as the manifest with this digest says.
    fn found(
        writes: &mut UnansweredHookWrites,
        moment: ManifestHookTime,
        version: &str,
        digest: &str,
    ) -> Vec<(ObjectChangeKind, Option<i64>)> {
        let written = map(version, "x");
        let mut changes = HelmfileHookChanges::default();
        let unanswered = writes.take(moment, &written, digest);
        let change = changed(Ok(Some(map(version, "x"))), &written);
        changes.answered(&written, change, unanswered);
        let since = changes.unanswered_since.map(Time::as_second);
        changes.all.into_iter().map(|it| (it.what, since)).collect()
    }

    #[test]
    fn a_write_of_a_hook_without_an_answer_is_counted_once_by_the_round_that_finds_it_done() {
        let id = map("2", "x").id();
        let before = ManifestHookTime::Before;
        let after = ManifestHookTime::After;
        let mut writes = UnansweredHookWrites::default();
        writes.put(before, &id, unanswered(None, 1));
        // It found what the first one created, and had no answer either.
        writes.put(before, &id, unanswered(Some("x"), 2));
        assert!(found(&mut writes, after, "2", "one").is_empty(), "a hook of another moment");
        let counted = found(&mut writes, before, "2", "one");
        assert_eq!(counted, [(ObjectChangeKind::Added, Some(1))]);
        assert!(found(&mut writes, before, "2", "one").is_empty(), "it was counted");
        writes.put(after, &id, unanswered(Some("y"), 3));
        let counted = found(&mut writes, after, "2", "one");
        assert_eq!(counted, [(ObjectChangeKind::Changed, Some(3))]);
        // The object was as the manifest says, or the write was not carried out.
        writes.put(after, &id, unanswered(Some("x"), 4));
        assert!(found(&mut writes, after, "2", "one").is_empty(), "only its version is another");
        writes.put(after, &id, unanswered(Some("y"), 5));
        assert!(found(&mut writes, after, "2", "two").is_empty(), "another manifest is applied");
        writes.put(after, &id, unanswered(Some("y"), 6));
        writes.forget(after);
        assert!(found(&mut writes, after, "2", "one").is_empty(), "all hooks were applied");
    }

    #[test]
    fn what_a_later_write_changed_is_counted_alone() {
        let mut changes = HelmfileHookChanges::default();
        let written = map("2", "x");
        let change = changed(Ok(Some(map("1", "y"))), &written);
        changes.answered(&written, change, Some(unanswered(None, 1)));
        let what: Vec<_> = changes.all.iter().map(|it| it.what).collect();
        assert_eq!(what, [ObjectChangeKind::Changed]);
        assert_eq!(changes.unanswered_since, None);
    }

    #[test]
    fn no_more_writes_of_hooks_are_remembered_than_hooks_may_make() {
        let mut writes = UnansweredHookWrites::default();
        for at in 0..=MOST_OBJECTS {
            let id = ObjectId::new("n", &format!("m-{at}"), "", "ConfigMap");
            writes.put(ManifestHookTime::Before, &id, unanswered(None, 1));
        }
        assert_eq!(writes.at(ManifestHookTime::Before).len(), MOST_OBJECTS);
        assert!(writes.at(ManifestHookTime::After).is_empty());
    }

    #[test]
    fn hooks_are_known_by_their_names_moments_and_manifests() {
        let hook = |name: &str, when, manifests: &str| {
            let name = name.to_owned();
            let manifests = manifests.to_owned();
            ReleaseHooks::new(vec![ManifestHook { name, when, manifests }]).digest
        };
        let known = hook("a", ManifestHookTime::Before, "m");
        assert_eq!(known, hook("a", ManifestHookTime::Before, "m"));
        for other in [
            hook("b", ManifestHookTime::Before, "m"),
            hook("a", ManifestHookTime::After, "m"),
            hook("a", ManifestHookTime::Before, "n"),
        ] {
            assert_ne!(known, other);
        }
        assert_eq!(ReleaseHooks::new(Vec::new()).digest, "");
    }
}
