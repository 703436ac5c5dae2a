//! Dependencies on the way back. A dependency that went back itself is not ready, and must not keep its dependents at the
//! quarantined revision. Before that revision, both had what they go back to. The same holds for a dependency that waits only
//! for such dependencies, because the quarantined revision changed nothing of it.
//!
//! Everything else waits for such a dependency. Elsewhere: going back (`quarantined_results`), and what dependencies have to
//! be (`windlass_runtime::dependency_gate`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crds::kustomize::Kustomization;
use crds::windlass_release::Quarantine;
use crds::{Applier as _, Artifact, ReconciledObject as _};
use kube_core::ResourceExt as _;
use reconcile::object_dependency::ANNOTATION;
use reconcile::{ObjectKey, READY, RunOutcome, condition_reason};

use super::quarantined_results::rolled_back_to;
use super::stale_dependency::{is_of_same_source, stale};
use super::{KustomizationSession, report};
use windlass_runtime::dependency_gate::{has_expression, node_of_entry};
use windlass_runtime::hold_conditions;

/// The most dependencies that are followed for one way back.
const MAX_FOLLOWED_DEPENDENCIES: usize = 64;

/// What a run has to know about a build of the source's artifact before it may apply the build.
pub(super) struct SourceBuildRules<'q> {
    /// The Quarantines of the Kustomization.
    pub(super) own: &'q [Arc<Quarantine>],
    /// The outcome of the run if the build is not quarantined, because dependencies are not ready.
    pub(super) held: Option<RunOutcome>,
}

/// Whether a Kustomization will go back in place of an artifact, as far as the status says which build the artifact had. Other
/// variables make another build, so only the build itself proves it.
pub(super) fn goes_back(
    object: &Kustomization,
    artifact: &Artifact,
    own: &[Arc<Quarantine>],
) -> bool {
    let history = || object.status.iter().flat_map(|status| &status.history);
    own.iter().any(|it| {
        let result = &it.spec.result;
        windlass_quarantine::is_in_force(it)
            && rolled_back_to(it).is_some()
            && result.revision == artifact.revision
            && result.artifact_digest == artifact.digest
            && history().any(|entry| entry.digest == result.digest)
    })
}

/// What the dependencies that hold a run mean for its way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DependenciesOnWayBack {
    /// All of them went back, or wait only for dependencies that did.
    WentBack,
    /// As [`Self::WentBack`], but one that goes back is being reconciled now.
    Reconciling,
    /// The run waits for one of them.
    Awaited,
}

/// A Kustomization with its Quarantines.
struct QuarantinedDependency {
    object: Arc<Kustomization>,
    own: Vec<Arc<Quarantine>>,
}

/// The state of one dependency that is not ready, for the way back of its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnreadyDependencyState {
    /// It has the last good result in place of a quarantined one.
    WentBack,
    /// It goes back, and is being reconciled.
    Reconciling,
    /// It waits for its own dependencies, and has no attempt in progress.
    Waits,
    /// It is not ready for another reason.
    Other,
}

impl QuarantinedDependency {
    fn state(&self) -> UnreadyDependencyState {
        let Self { object, own } = self;
        let is_current = |of: Option<i64>| of == object.metadata.generation;
        let Some(ready) = object.condition(READY).filter(|it| is_current(it.observed_generation))
        else {
            return UnreadyDependencyState::Other;
        };
        let awaits_health = || object.condition("Healthy").is_some_and(|it| it.status == "Unknown");
        match ready.status.as_str() {
            "Unknown" if windlass_quarantine::rollback_results(own).next().is_some() => {
                UnreadyDependencyState::Reconciling
            }
            "False" if report::is_quarantined(object) => {
                match windlass_quarantine::has_gone_back(object, own) {
                    true => UnreadyDependencyState::WentBack,
                    false => UnreadyDependencyState::Other,
                }
            }
            "False"
                if ready.reason == condition_reason::DEPENDENCY_NOT_READY.as_str()
                    && !awaits_health() =>
            {
                UnreadyDependencyState::Waits
            }
            _ => UnreadyDependencyState::Other,
        }
    }
}

/// Whether a Kustomization itself judges one of its dependencies. What its expression asks for may not hold for a dependency
/// that went back.
fn judges_by_expression(object: &Kustomization) -> bool {
    object.depends_on().iter().any(has_expression)
}

/// The dependencies for which a Kustomization waits that may apply a revision. `None` if the
/// Kustomizations of this cluster do not say it of all.
fn awaited_by(
    object: &Kustomization,
    revision: &str,
    find: &impl Fn(&ObjectKey) -> Option<QuarantinedDependency>,
) -> Option<Vec<ObjectKey>> {
    if judges_by_expression(object) || object.annotations().contains_key(ANNOTATION) {
        return None;
    }
    let namespace = object.namespace().unwrap_or_default();
    let mut awaited = Vec::new();
    for entry in object.depends_on() {
        let node = node_of_entry::<Kustomization>(entry, &namespace)?;
        let dependency = find(&node)?.object;
        let is_ready = dependency.condition(READY).is_some_and(|it| it.status == "True")
            && dependency.observed_generation() == dependency.metadata.generation
            && stale(&dependency, object, revision).is_none();
        if !is_ready && entry.ready != Some(false) {
            awaited.push(node);
        }
    }
    Some(awaited)
}

/// What the dependencies `awaited` of a Kustomization mean for its way back. `find` reads a Kustomization with its Quarantines.
/// It returns `None` for an object of another kind.
fn follow_dependencies(
    object: &Kustomization,
    awaited: impl IntoIterator<Item = ObjectKey>,
    revision: &str,
    find: &impl Fn(&ObjectKey) -> Option<QuarantinedDependency>,
) -> DependenciesOnWayBack {
    let mut pending: Vec<ObjectKey> = awaited.into_iter().collect();
    if pending.is_empty() || judges_by_expression(object) {
        return DependenciesOnWayBack::Awaited;
    }
    let mut followed = BTreeSet::new();
    let mut found = DependenciesOnWayBack::WentBack;
    while let Some(node) = pending.pop() {
        if followed.contains(&node) {
            continue;
        }
        let dependency = find(&node).filter(|it| is_of_same_source(&it.object, object));
        let Some(dependency) = dependency.filter(|_| followed.len() < MAX_FOLLOWED_DEPENDENCIES)
        else {
            return DependenciesOnWayBack::Awaited;
        };
        followed.insert(node);
        match dependency.state() {
            UnreadyDependencyState::WentBack => {}
            UnreadyDependencyState::Reconciling => found = DependenciesOnWayBack::Reconciling,
            UnreadyDependencyState::Waits => {
                let further = awaited_by(&dependency.object, revision, find);
                let Some(further) = further.filter(|it| !it.is_empty()) else {
                    return DependenciesOnWayBack::Awaited;
                };
                pending.extend(further);
            }
            UnreadyDependencyState::Other => return DependenciesOnWayBack::Awaited,
        }
    }
    found
}

/// Whether the status may go on to report a Quarantine while a dependency is being reconciled. Otherwise each reconciliation of
/// the dependency would make an event about the Quarantine.
pub(super) fn keeps_status(object: &Kustomization) -> bool {
    let ready = object.condition(READY);
    report::is_quarantined(object)
        && ready.is_some_and(|it| it.observed_generation == object.metadata.generation)
        && !hold_conditions::is_asked(object)
}

impl KustomizationSession<'_> {
    /// What the dependencies that hold a run mean for its way back from a revision.
    pub(super) fn dependencies_on_way_back(
        &self,
        object: &Kustomization,
        revision: &str,
        outcome: &RunOutcome,
    ) -> DependenciesOnWayBack {
        let RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, _, wake) = outcome else {
            return DependenciesOnWayBack::Awaited;
        };
        let find = |node: &ObjectKey| {
            let is_kustomization = (&node.group, &node.kind) == (&self.node.group, &self.node.kind);
            let seen = self.context.seen::<Kustomization>(&node.namespace, &node.name);
            let object = seen.filter(|_| is_kustomization)?;
            let own = self.seen_quarantines(node, &object);
            Some(QuarantinedDependency { object, own })
        };
        follow_dependencies(object, wake.on.iter().cloned(), revision, &find)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use reconcile::Time;
    use serde_json::{Value, json};
    use windlass_runtime::controller_kind::node_named;

    use super::*;

    fn kustomization(status: &Value) -> Kustomization {
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"interval": "1h", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "shop"}},
            "status": status}))
        .unwrap()
    }

    #[test]
    fn a_quarantine_of_the_artifact_says_that_the_kustomization_will_go_back() {
        let spec = json!({"subject": {"kind": "Kustomization", "name": "web"}, "action": "RollBack",
            "result": {"digest": "b2", "revision": "2", "artifactDigest": "sha256:2"},
            "lastGood": {"digest": "b1", "revision": "1"}});
        let rolls_back: Quarantine =
            serde_json::from_value(json!({"metadata": {"name": "q"}, "spec": spec})).unwrap();
        let mut holds = rolls_back.clone();
        holds.spec.last_good = None;
        let [rolls_back, holds] = [[Arc::new(rolls_back)], [Arc::new(holds)]];
        let artifact = |revision: &str| Artifact {
            digest: format!("sha256:{revision}"),
            last_update_time: crds::Time(Time::UNIX_EPOCH),
            metadata: BTreeMap::new(),
            path: String::new(),
            revision: revision.to_owned(),
            size: None,
            url: String::new(),
        };
        let built = |digest: &str| {
            let entry = json!({"digest": digest, "firstReconciled": "2026-11-30T09:00:00Z",
                "lastReconciled": "2026-11-30T09:00:00Z", "lastReconciledDuration": "1s",
                "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1});
            kustomization(&json!({"history": [entry]}))
        };
        assert!(goes_back(&built("b2"), &artifact("2"), &rolls_back));
        assert!(!goes_back(&built("b2"), &artifact("3"), &rolls_back));
        assert!(!goes_back(&built("b2"), &artifact("2"), &holds), "nothing is applied");
        assert!(!goes_back(&built("c2"), &artifact("2"), &rolls_back), "another build");
    }

    fn rolls_back() -> Vec<Arc<Quarantine>> {
        let spec = json!({"subject": {"kind": "Kustomization", "name": "base"}, "action": "RollBack",
            "result": {"digest": "b2", "revision": "2"}, "lastGood": {"digest": "b1", "revision": "1"}});
        let quarantine = json!({"metadata": {"name": "q"}, "spec": spec});
        vec![Arc::new(serde_json::from_value(quarantine).unwrap())]
    }

    /// A Kustomization whose last good build is `digest` of revision 1, with these dependencies.
    fn dependency(ready: [&str; 2], digest: &str, depends_on: &Value) -> Kustomization {
        let ready = json!({"type": "Ready", "status": ready[0], "reason": ready[1], "message": "",
            "lastTransitionTime": "2026-11-30T09:00:00Z"});
        let entry = json!({"digest": digest, "firstReconciled": "2026-11-30T09:00:00Z",
            "lastReconciled": "2026-11-30T09:00:00Z", "lastReconciledDuration": "1s",
            "lastReconciledStatus": "ReconciliationSucceeded", "totalReconciliations": 1});
        let mut object = kustomization(
            &json!({"conditions": [ready], "history": [entry], "lastAppliedRevision": "1"}),
        );
        object.spec.depends_on = serde_json::from_value(depends_on.clone()).unwrap();
        object
    }

    fn node(name: &str) -> ObjectKey {
        node_named::<Kustomization>("shop", name)
    }

    /// What `mid` means for the way back of web, if `mid` and `base` are in these states.
    fn of_web(mid: &Kustomization, base: &Kustomization) -> DependenciesOnWayBack {
        let find = |node: &ObjectKey| {
            let object = match node.name.as_str() {
                "mid" => mid,
                "base" => base,
                _ => return None,
            };
            let own = if node.name == "base" { rolls_back() } else { Vec::new() };
            Some(QuarantinedDependency { object: Arc::new(object.clone()), own })
        };
        follow_dependencies(&kustomization(&json!({})), [node("mid")], "2", &find)
    }

    #[test]
    fn a_dependency_that_waits_for_one_that_went_back_does_not_hold_the_way_back() {
        let none = json!([]);
        let back = dependency(["False", "Quarantined"], "b1", &none);
        let waits = |on: Value| dependency(["False", "DependencyNotReady"], "m1", &on);
        let mid = waits(json!([{"name": "base"}]));
        assert_eq!(of_web(&mid, &back), DependenciesOnWayBack::WentBack);
        let cycle = waits(json!([{"name": "base"}, {"name": "mid"}]));
        assert_eq!(of_web(&cycle, &back), DependenciesOnWayBack::WentBack);
        let failed = dependency(["False", "HealthCheckFailed"], "b1", &none);
        assert_eq!(of_web(&mid, &failed), DependenciesOnWayBack::Awaited);
        for on in [
            json!([]),
            json!([{"name": "base"}, {"name": "missing"}]),
            json!([{"name": "base", "readyExpr": "true"}]),
            json!([{"name": "base"}, {"apiVersion": "v1", "kind": "Secret", "name": "a"}]),
        ] {
            assert_eq!(of_web(&waits(on.clone()), &back), DependenciesOnWayBack::Awaited, "{on}");
        }
        let mut starts = mid.clone();
        let conditions = &mut starts.status.as_mut().unwrap().conditions;
        let mut healthy = conditions[0].clone();
        healthy.type_ = "Healthy".to_owned();
        healthy.status = "Unknown".to_owned();
        conditions.push(healthy);
        assert_eq!(of_web(&starts, &back), DependenciesOnWayBack::Awaited, "it was interrupted");
    }

    #[test]
    fn a_dependency_went_back_if_it_has_the_earlier_result_of_the_same_source() {
        let find = |object: &Kustomization| {
            let object = object.clone();
            move |_: &ObjectKey| {
                let object = Arc::new(object.clone());
                Some(QuarantinedDependency { object, own: rolls_back() })
            }
        };
        let web = kustomization(&json!({}));
        let of = |base: &Kustomization, web: &Kustomization| {
            follow_dependencies(web, [node("base")], "2", &find(base))
        };
        let quarantined = ["False", "Quarantined"];
        let back = dependency(quarantined, "b1", &json!([]));
        assert_eq!(of(&back, &web), DependenciesOnWayBack::WentBack);
        let stays = dependency(quarantined, "b2", &json!([]));
        assert_eq!(of(&stays, &web), DependenciesOnWayBack::Awaited, "nothing is changed");
        let running = dependency(["Unknown", "Progressing"], "b1", &json!([]));
        assert_eq!(of(&running, &web), DependenciesOnWayBack::Reconciling);
        let mut edited = back.clone();
        edited.metadata.generation = Some(2);
        assert_eq!(of(&edited, &web), DependenciesOnWayBack::Awaited);
        let mut other = back.clone();
        other.spec.source_ref.name = "other".to_owned();
        assert_eq!(of(&other, &web), DependenciesOnWayBack::Awaited);
        let mut judges = web.clone();
        let entry = json!([{"name": "base", "readyExpr": "dep.status.lastAppliedRevision == '1'"}]);
        judges.spec.depends_on = serde_json::from_value(entry).unwrap();
        assert_eq!(of(&back, &judges), DependenciesOnWayBack::Awaited);
    }

    #[test]
    fn a_status_about_a_quarantine_is_kept_unless_a_user_asks_or_the_spec_is_another() {
        let quarantined = dependency(["False", "Quarantined"], "w1", &json!([]));
        assert!(keeps_status(&quarantined));
        let mut edited = quarantined.clone();
        edited.metadata.generation = Some(2);
        assert!(!keeps_status(&edited));
        let mut asked = quarantined;
        asked
            .metadata
            .annotations
            .get_or_insert_default()
            .insert("reconcile.fluxcd.io/requestedAt".to_owned(), "a".to_owned());
        assert!(!keeps_status(&asked));
        assert!(!keeps_status(&dependency(["False", "DependencyNotReady"], "w1", &json!([]))));
    }
}
