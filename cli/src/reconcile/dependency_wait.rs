//! Decides whether an object that waits for its dependencies is finished. It is not finished while a dependency is being
//! reconciled.
//!
//! Elsewhere: following a reconciliation ([`super`]), the dependencies of an object (`cause::object_references`), when a
//! dependency counts as ready (`::reconcile::run_gate`).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ::reconcile::condition_reason::{DEPENDENCY_NOT_READY, PROGRESSING_WITH_RETRY};
use ::reconcile::{READY, RECONCILING, STALLED, Time, WINDOW};
use cause::object_references::{self, RequiredDependency};
use cause::{ConditionView, condition, suspension};
use objects::{Object, ObjectId};

use crate::cause_facts::read;
use crate::command_scope::CommandScope;

/// The maximum number of direct and indirect dependencies that are read.
const MOST_DEPENDENCIES: usize = 32;

/// How long an object may wait although its dependencies are ready or about to be reconciled. windlass reconciles it after a
/// dependency has changed. At the latest, it does so after `--requeue-dependency`, which is 30 s by default.
const READY_DEPENDENCY_LIMIT: Duration = Duration::from_secs(40);

/// The progress of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DependencyReadiness {
    /// The dependency is ready, or a reconciliation that may make it ready is about to begin.
    Ready,
    /// The dependency is being reconciled.
    InProgress,
    /// The dependency waits for its own dependencies.
    Blocked,
    /// The dependency is not ready, and no reconciliation is about to begin that could change that.
    NotReady,
}

/// The progress of a followed object's dependencies.
#[derive(Debug, Default)]
pub(super) struct DependencyWait {
    /// Since when all dependencies are ready or about to be reconciled.
    ready_since: Option<Instant>,
}

impl DependencyWait {
    /// Whether windlass will reconcile an object again without a change by a user. This is the case if its dependencies are in
    /// progress or have just become ready.
    pub(super) async fn goes_on(&mut self, site: &CommandScope, object: &Object) -> bool {
        let is_blocked = condition(object, READY).is_some_and(|said| {
            said.status == "False" && said.reason == DEPENDENCY_NOT_READY.as_str()
        });
        let stage = match is_blocked {
            true => of_dependencies(site, object).await,
            false => DependencyReadiness::NotReady,
        };
        if stage != DependencyReadiness::Ready {
            self.ready_since = None;
            return stage == DependencyReadiness::InProgress;
        }
        self.ready_since.get_or_insert_with(Instant::now).elapsed() <= READY_DEPENDENCY_LIMIT
    }
}

/// The progress of an object's dependencies. The slowest dependency counts.
async fn of_dependencies(site: &CommandScope, object: &Object) -> DependencyReadiness {
    let mut pending = object_references::dependencies(object);
    let mut known: BTreeSet<ObjectId> = BTreeSet::new();
    let mut sum = DependencyReadiness::Ready;
    while let Some(required) = pending.pop() {
        if !known.insert(required.object.clone()) {
            continue;
        }
        let found = match known.len() <= MOST_DEPENDENCIES {
            true => dependency(site, &required).await,
            false => None,
        };
        // If the dependency cannot be read, the command does not assume that it is in progress.
        let Some(found) = found else { return DependencyReadiness::NotReady };
        match stage(&found, artifact(site, &found).await.as_deref()) {
            DependencyReadiness::Ready => {}
            DependencyReadiness::InProgress => sum = DependencyReadiness::InProgress,
            DependencyReadiness::Blocked => pending.extend(object_references::dependencies(&found)),
            DependencyReadiness::NotReady => return DependencyReadiness::NotReady,
        }
    }
    sum
}

/// Reads a dependency. Returns `None` if it does not exist or cannot be read.
async fn dependency(site: &CommandScope, required: &RequiredDependency) -> Option<Object> {
    if let Some(found) = read(&site.cluster, &required.object).await.ok()? {
        return Some(found);
    }
    read(&site.cluster, required.otherwise.as_ref()?).await.ok()?
}

/// The revision that a Kustomization gets from its source. `None` for other kinds, whose statuses contain chart versions.
async fn artifact(site: &CommandScope, object: &Object) -> Option<String> {
    let source = object_references::sources(object).into_iter().next();
    let source = source.filter(|_| object.kind() == "Kustomization")?;
    let source = read(&site.cluster, &source).await.ok()??;
    Some(source.get("status")?["artifact"]["revision"].as_str()?.to_owned())
}

/// The progress of an object whose source has an artifact of this revision.
///
/// The generation of the condition counts, because a failure does not raise `status.observedGeneration`.
fn stage(object: &Object, artifact: Option<&str>) -> DependencyReadiness {
    let status = object.get("status");
    let attempted = status.and_then(|it| it["lastAttemptedRevision"].as_str());
    let observed = status.and_then(|it| it["observedGeneration"].as_i64());
    let is_true = |kind: &str| {
        condition(object, kind).filter(|said| said.status == "True" && is_current(object, said))
    };
    let ready = condition(object, READY);
    let seen = ready.and_then(|said| said.generation).or(observed);
    let is_outdated = seen.is_none_or(|seen| seen < object.generation());
    let is_behind = is_outdated || artifact.is_some_and(|revision| attempted != Some(revision));
    let is_closed = condition(object, WINDOW).is_some_and(|said| said.status == "False");
    let is_held = is_closed || suspension(object, Time::now()).is_some();
    let is_running =
        is_true(RECONCILING).is_some_and(|said| said.reason != PROGRESSING_WITH_RETRY.as_str());
    let is_ready = ready.is_some_and(|said| said.status == "True");
    let is_blocked = ready
        .is_some_and(|said| said.status == "False" && said.reason == DEPENDENCY_NOT_READY.as_str());
    match () {
        () if is_held && is_ready && !is_behind => DependencyReadiness::Ready,
        () if is_held || is_true(STALLED).is_some() => DependencyReadiness::NotReady,
        () if is_running => DependencyReadiness::InProgress,
        () if is_blocked && !is_outdated => DependencyReadiness::Blocked,
        // A reconciliation is about to begin. If none begins, something prevents it.
        () if is_behind || is_ready => DependencyReadiness::Ready,
        () => match ready.map(|said| said.status) {
            Some("False") => DependencyReadiness::NotReady,
            _ => DependencyReadiness::InProgress,
        },
    }
}

/// Whether a condition is about the current generation of the object.
fn is_current(object: &Object, said: &ConditionView<'_>) -> bool {
    said.generation.is_none_or(|seen| seen >= object.generation())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kustomization(name: &str, spec: Value, status: Value) -> Value {
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": name, "namespace": "apps", "generation": 1}, "spec": spec, "status": status})
    }

    /// A status for the first generation, with the last attempted revision.
    fn status(ready: &str, reason: &str, attempted: &str) -> Value {
        json!({"observedGeneration": 1, "lastAttemptedRevision": attempted,
            "conditions": [{"type": "Ready", "status": ready, "reason": reason, "message": ""}]})
    }

    fn source() -> Value {
        json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "app", "namespace": "apps"}, "status": {"artifact": {"revision": "new"}}})
    }

    /// Whether an object goes on if its dependency `base` is in this state.
    async fn goes_on(base: Value) -> bool {
        let spec = json!({"dependsOn": [{"name": "base"}]});
        let web = kustomization("web", spec, status("False", "DependencyNotReady", "old"));
        let (cluster, _) = fake_cluster::with_objects(vec![web.clone(), base, source()]).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let web = Object::new(web).unwrap();
        DependencyWait::default().goes_on(&site, &web).await
    }

    fn base(spec: Value, status: Value) -> Value {
        let mut spec = spec;
        spec["sourceRef"] = json!({"kind": "GitRepository", "name": "app"});
        kustomization("base", spec, status)
    }

    #[tokio::test]
    async fn a_dependency_that_is_being_reconciled_is_waited_for() {
        let of = async |spec: Value, status: Value| goes_on(base(spec, status)).await;
        // The dependency is ready, but has not applied the newest artifact of its source.
        assert!(of(json!({}), status("True", "ReconciliationSucceeded", "old")).await);
        assert!(of(json!({}), status("Unknown", "Progressing", "new")).await);
        // The dependency failed with an older revision.
        assert!(of(json!({}), status("False", "BuildFailed", "old")).await);
        // The dependency has become ready, and the object is about to be reconciled.
        assert!(of(json!({}), status("True", "ReconciliationSucceeded", "new")).await);
    }

    #[tokio::test]
    async fn a_dependency_that_no_run_changes_is_the_end() {
        let of = async |spec: Value, status: Value| goes_on(base(spec, status)).await;
        assert!(!of(json!({}), status("False", "BuildFailed", "new")).await);
        let suspended = json!({"suspend": true});
        assert!(!of(suspended, status("True", "ReconciliationSucceeded", "old")).await);
        let on_absent = json!({"dependsOn": [{"name": "absent"}]});
        assert!(!of(on_absent, status("False", "DependencyNotReady", "new")).await);
    }

    #[tokio::test]
    async fn a_dependency_whose_first_run_has_failed_is_the_end() {
        // Each condition contains its generation. windlass raises `observedGeneration` only after a successful reconciliation.
        let failed = |reason: &str| {
            json!({"observedGeneration": -1, "lastAttemptedRevision": "new", "conditions": [
                {"type": "Ready", "status": "False", "reason": reason, "message": "", "observedGeneration": 1},
            ]})
        };
        assert!(!goes_on(base(json!({}), failed("BuildFailed"))).await);
        let on_absent = json!({"dependsOn": [{"name": "absent"}]});
        assert!(!goes_on(base(on_absent, failed("DependencyNotReady"))).await);
        let mut stalled = failed("InvalidPath");
        stalled["lastAttemptedRevision"] = json!("old");
        let all = stalled["conditions"].as_array_mut().unwrap();
        all.push(
            json!({"type": "Stalled", "status": "True", "reason": "InvalidPath", "message": ""}),
        );
        assert!(!goes_on(base(json!({}), stalled)).await);
    }

    #[tokio::test]
    async fn what_fails_by_itself_is_at_its_end() {
        let web = kustomization("web", json!({}), status("False", "BuildFailed", "new"));
        let (cluster, _) = fake_cluster::with_objects(vec![web.clone()]).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let web = Object::new(web).unwrap();
        assert!(!DependencyWait::default().goes_on(&site, &web).await);
    }
}
