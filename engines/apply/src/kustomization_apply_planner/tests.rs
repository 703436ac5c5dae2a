//! The plan against simulated clusters: the law of the inventory, waits, refusals, pruning.

use super::*;
use crate::health::third_party_kind_rules::DEGRADED_REASON;
use crate::health::{HealthCondition, HealthStatus};
use crate::stages;
use expect_test::{Expect, expect};
use objects::Object;
use proptest::prelude::*;
use reconcile::ObjectKey;
use serde_json::json;

fn time(second: i64) -> Time {
    Time::from_second(1_800_000_000 + second).unwrap()
}

fn object(api: &str, kind: &str, namespace: &str, name: &str) -> Object {
    let mut object =
        Object::new(json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}})).unwrap();
    if !namespace.is_empty() {
        object.set_namespace(namespace);
    }
    object
}

fn config(name: &str) -> Object {
    object("v1", "ConfigMap", "shop", name)
}

fn desired(objects: Vec<Object>) -> ApplyDesiredState {
    ApplyDesiredState {
        own: ObjectId::new("flux", "apps", "kustomize.toolkit.fluxcd.io", "Kustomization"),
        stages: stages(objects, &[]).unwrap(),
        empty_is_intended: false,
        prune: true,
        prunes_after_health: false,
        health: HealthWaitScope::None,
        fail_fast: true,
        revision: "main@sha1:0f".into(),
        timeout: Duration::from_secs(300),
        stage_timeout: Duration::from_secs(60),
        retry: Duration::from_secs(120),
    }
}

fn report(status: HealthStatus, message: &str) -> ObjectHealth {
    ObjectHealth { status, message: message.into(), conditions: Vec::new() }
}

/// A cluster and a status, with objects by id and the digest of what was applied.
#[derive(Debug, Clone, Default)]
struct ClusterSimulation {
    recorded: ObjectInventory,
    live: BTreeMap<ObjectId, String>,
    health: BTreeMap<ObjectId, ObjectHealth>,
    refused: BTreeMap<ObjectId, String>,
    undeletable: BTreeSet<ObjectId>,
    held: BTreeSet<ObjectId>,
    now: i64,
    waiting_since: Option<Time>,
    stage_waiting_since: Option<Time>,
    failed_wait: Option<FailedHealthWait>,
    is_correction: bool,
    contested: BTreeMap<ObjectId, (String, Time)>,
}

impl ClusterSimulation {
    fn see(&self, id: &ObjectId, digest: Option<&str>) -> ObservedObject {
        let state = match (digest, self.refused.get(id), self.live.get(id)) {
            (None, ..) => LiveObjectDriftState::Unmanaged,
            (_, Some(text), _) => LiveObjectDriftState::Refused(text.clone()),
            (_, None, None) => LiveObjectDriftState::Missing,
            (Some(digest), None, Some(live)) if live == digest => LiveObjectDriftState::InSync,
            (Some(_), None, Some(_)) => LiveObjectDriftState::Differs,
        };
        let healthy = report(HealthStatus::Current, "");
        ObservedObject { state, health: Some(self.health.get(id).cloned().unwrap_or(healthy)) }
    }

    fn observe(&self, desired: &ApplyDesiredState) -> ApplyObservedState {
        let stale = self.recorded.ids().filter(|id| !self.live.contains_key(*id));
        let mut observed = ApplyObservedState {
            now: time(self.now),
            recorded: self.recorded.clone(),
            objects: BTreeMap::new(),
            gone: stale.cloned().collect(),
            leaving: BTreeSet::new(),
            predecessors: BTreeMap::new(),
            held: self.held.clone(),
            waiting_since: self.waiting_since,
            stage_waiting_since: self.stage_waiting_since,
            failed_wait: self.failed_wait.clone(),
            is_correction: self.is_correction,
            contested: self.contested.clone(),
        };
        if let HealthWaitScope::These(ids) = &desired.health {
            observed.objects.extend(ids.iter().map(|id| (id.clone(), self.see(id, None))));
        }
        for (at, stage) in desired.stages.iter().enumerate() {
            let seen =
                stage.objects.iter().map(|m| (m.id.clone(), self.see(&m.id, Some(&m.digest))));
            observed.objects.extend(seen);
            if !is_passed(desired, &observed, at) {
                break;
            }
        }
        observed
    }

    fn plan(&self, desired: &ApplyDesiredState) -> PlannerDecision<ApplyStep> {
        KustomizationApplyPlanner::plan(desired, &self.observe(desired))
    }

    /// The single writes that a step consists of.
    fn writes(desired: &ApplyDesiredState, step: &ApplyStep) -> Vec<SimulatedWrite> {
        match step {
            ApplyStep::Record { add } => vec![SimulatedWrite::Status(None, add.clone())],
            ApplyStep::Shrink { to } => vec![SimulatedWrite::Status(Some(to.clone()), Vec::new())],
            ApplyStep::Prune { ids } => {
                ids.iter().map(|(id, _)| SimulatedWrite::Delete(id.clone())).collect()
            }
            ApplyStep::Apply { stage, ids, .. } => {
                let digest = |id: &ObjectId| {
                    desired.stages[*stage]
                        .objects
                        .iter()
                        .find(|m| m.id == *id)
                        .unwrap()
                        .digest
                        .clone()
                };
                ids.iter().map(|id| SimulatedWrite::Put(id.clone(), digest(id))).collect()
            }
        }
    }

    /// False if the write was refused.
    fn write(&mut self, write: SimulatedWrite) -> bool {
        match write {
            SimulatedWrite::Status(to, add) => {
                let base = to.unwrap_or_else(|| self.recorded.clone());
                self.recorded = base.union(&add.into_iter().collect());
            }
            SimulatedWrite::Put(id, digest) => drop(self.live.insert(id, digest)),
            SimulatedWrite::Delete(id) if self.undeletable.contains(&id) => return false,
            SimulatedWrite::Delete(id) => drop(self.live.remove(&id)),
        }
        let untracked = self.live.keys().find(|id| !self.recorded.contains(id));
        assert_eq!(untracked, None, "live and not in the inventory {:?}", self.recorded.entries());
        true
    }

    /// Runs until the plan has an outcome, a deletion is refused (`None`), or the process dies after `writes` writes
    /// (`None`).
    fn run(&mut self, desired: &ApplyDesiredState, mut writes: usize) -> Option<RunOutcome> {
        let mut done: Vec<ApplyStep> = Vec::new();
        loop {
            let steps = match self.plan(desired) {
                PlannerDecision::Outcome(outcome) => return Some(outcome),
                PlannerDecision::Act(steps) => steps,
            };
            assert!(!steps.is_empty());
            for step in steps {
                assert!(!done.contains(&step), "planned twice: {step:?}");
                let mut complete = true;
                for write in Self::writes(desired, &step) {
                    if writes == 0 {
                        return None;
                    }
                    writes -= 1;
                    complete &= self.write(write);
                }
                if !complete {
                    return None;
                }
                done.push(step);
            }
        }
    }

    fn settle(objects: Vec<Object>) -> Self {
        let mut sim = Self::default();
        assert!(sim.run(&desired(objects), usize::MAX).unwrap().is_settled());
        sim
    }
}

enum SimulatedWrite {
    Status(Option<ObjectInventory>, Vec<(ObjectId, String)>),
    Put(ObjectId, String),
    Delete(ObjectId),
}

fn shown(decision: &PlannerDecision<ApplyStep>) -> String {
    let subjects = |ids: &mut dyn Iterator<Item = &ObjectId>| {
        ids.map(ObjectId::subject).collect::<Vec<_>>().join(" ")
    };
    match decision {
        PlannerDecision::Outcome(outcome) => {
            let wake = outcome.wake().map_or(String::new(), |wake| {
                let on: Vec<_> = wake.on.iter().map(ObjectKey::to_string).collect();
                let at = wake.at.map(|at| at.as_second() - time(0).as_second());
                format!("\nwake at {at:?} on {on:?}")
            });
            format!("{}: {}{wake}", outcome.reason(), outcome.text())
        }
        PlannerDecision::Act(steps) => {
            let lines: Vec<_> = steps
                .iter()
                .map(|step| match step {
                    ApplyStep::Record { add } => {
                        format!("Record {}", subjects(&mut add.iter().map(|e| &e.0)))
                    }
                    ApplyStep::Apply { stage, ids, .. } => {
                        format!("Apply {stage} {}", subjects(&mut ids.iter()))
                    }
                    ApplyStep::Prune { ids } => {
                        format!("Prune {}", subjects(&mut ids.iter().map(|e| &e.0)))
                    }
                    ApplyStep::Shrink { to } => format!("Shrink {}", subjects(&mut to.ids())),
                })
                .collect();
            lines.join("\n")
        }
    }
}

fn check(decision: &PlannerDecision<ApplyStep>, want: &Expect) {
    want.assert_eq(&shown(decision));
}

#[test]
fn the_inventory_grows_before_an_apply_and_stages_go_one_by_one() {
    let mut sim = ClusterSimulation::default();
    let desired = desired(vec![config("a"), object("v1", "Namespace", "", "shop")]);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Record Namespace/shop
        Apply 0 Namespace/shop"#]],
    );
    let namespace = desired.stages[0].objects[0].clone();
    sim.recorded.insert(&namespace.object);
    sim.live.insert(namespace.id, namespace.digest);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Record ConfigMap/shop/a
        Apply 1 ConfigMap/shop/a"#]],
    );
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
    check(&sim.plan(&desired), &expect!["ReconciliationSucceeded: Applied revision: main@sha1:0f"]);
}

#[test]
fn what_left_the_manifests_is_deleted_in_reverse_order_and_then_forgotten() {
    let before = vec![
        config("a"),
        config("b"),
        object("v1", "Namespace", "", "shop"),
        object("apps/v1", "Deployment", "shop", "web"),
    ];
    let mut sim = ClusterSimulation::settle(before);
    let desired = desired(vec![config("a")]);
    check(
        &sim.plan(&desired),
        &expect!["Prune Deployment/shop/web ConfigMap/shop/b Namespace/shop"],
    );
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
    assert_eq!((sim.recorded.len(), sim.live.len()), (1, 1));
}

#[test]
fn without_prune_what_left_is_forgotten_and_stays() {
    let mut sim = ClusterSimulation::settle(vec![config("a"), config("b")]);
    let desired = ApplyDesiredState { prune: false, ..desired(vec![config("a")]) };
    check(&sim.plan(&desired), &expect!["Shrink ConfigMap/shop/a"]);
    sim.live.remove(&config("b").id());
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
}

#[test]
fn what_is_held_stays_in_the_cluster_and_in_the_inventory_and_the_rest_is_applied() {
    let mut sim = ClusterSimulation::settle(vec![config("a"), config("b"), config("c")]);
    sim.held = BTreeSet::from([config("b").id(), config("c").id()]);
    let next = desired(vec![config("a"), config("d")]);
    assert!(sim.run(&next, usize::MAX).unwrap().is_settled());
    assert_eq!((sim.recorded.len(), sim.live.len()), (4, 4));
    sim.held.clear();
    check(&sim.plan(&next), &expect!["Prune ConfigMap/shop/c ConfigMap/shop/b"]);
    assert!(sim.run(&next, usize::MAX).unwrap().is_settled());
    assert_eq!((sim.recorded.len(), sim.live.len()), (2, 2));
}

#[test]
fn what_left_the_manifests_stays_until_health_is_proven_if_a_failure_is_rolled_back() {
    let web = object("apps/v1", "Deployment", "shop", "web");
    let old = config("old");
    let mut sim = ClusterSimulation::settle(vec![web.clone(), old.clone()]);
    let next = ApplyDesiredState {
        health: HealthWaitScope::All,
        prunes_after_health: true,
        ..desired(vec![web.clone()])
    };
    sim.health.insert(web.id(), report(HealthStatus::InProgress, ""));
    let waits = |decision| matches!(decision, PlannerDecision::Outcome(RunOutcome::Running(..)));
    assert!(waits(sim.plan(&next)), "nothing is pruned while health is awaited");
    sim.health.insert(web.id(), report(HealthStatus::Failed, ""));
    let failed = sim.plan(&next);
    assert!(
        matches!(&failed, PlannerDecision::Outcome(RunOutcome::Failed(why, ..)) if *why == condition_reason::HEALTH_CHECK_FAILED),
        "{failed:?}"
    );
    assert!(sim.recorded.contains(&old.id()) && sim.live.contains_key(&old.id()));
    sim.health.remove(&web.id());
    check(&sim.plan(&next), &expect!["Prune ConfigMap/shop/old"]);
    let before = ApplyDesiredState { prunes_after_health: false, ..next };
    sim.health.insert(web.id(), report(HealthStatus::InProgress, ""));
    check(&sim.plan(&before), &expect!["Prune ConfigMap/shop/old"]);
}

#[test]
fn survivors_of_a_failed_deletion_stay_recorded_and_the_others_do_not() {
    let mut sim = ClusterSimulation::settle(vec![config("a"), config("b"), config("c")]);
    sim.undeletable.insert(config("b").id());
    let desired = desired(vec![config("a")]);
    assert_eq!(sim.run(&desired, usize::MAX), None);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Shrink ConfigMap/shop/a ConfigMap/shop/b
        Prune ConfigMap/shop/b"#]],
    );
    assert_eq!(sim.run(&desired, usize::MAX), None);
    assert!(sim.recorded.contains(&config("b").id()) && sim.recorded.len() == 2);
    sim.undeletable.clear();
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
}

#[test]
fn an_empty_build_deletes_nothing_unless_it_is_meant() {
    let mut sim = ClusterSimulation::settle(vec![config("a")]);
    let mut desired = desired(Vec::new());
    check(
        &sim.plan(&desired),
        &expect![[r#"
        BuildFailed: the build has no objects, and the 1 in the inventory would be deleted; restore the manifests or correct spec.path; to delete them all, delete the Kustomization
        wake at Some(120) on []"#]],
    );
    desired.empty_is_intended = true;
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
    assert!(sim.live.is_empty() && sim.recorded.is_empty());
}

#[test]
fn a_stage_with_a_refused_object_writes_nothing_and_names_every_refusal() {
    let mut sim = ClusterSimulation::settle(vec![config("old")]);
    for name in ["b", "d"] {
        let id = config(name).id();
        sim.refused
            .insert(id.clone(), crate::dry_run_refusal::describe(&id, "Invalid", "bad data"));
    }
    let desired = desired(vec![config("a"), config("b"), config("c"), config("d")]);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        ReconciliationFailed: ConfigMap/shop/b dry-run failed (Invalid): bad data
        ConfigMap/shop/d dry-run failed (Invalid): bad data
        wake at Some(120) on []"#]],
    );
}

#[test]
fn a_stage_that_was_not_observed_is_not_in_sync() {
    let sim = ClusterSimulation::settle(vec![config("a"), config("stale")]);
    let desired = desired(vec![config("a"), config("b")]);
    let mut observed = sim.observe(&desired);
    observed.objects.remove(&config("b").id());
    check(
        &KustomizationApplyPlanner::plan(&desired, &observed),
        &expect![[r#"
        ReconciliationFailed: not observed: ConfigMap/shop/b
        wake at Some(120) on []"#]],
    );
}

#[test]
fn crds_are_waited_for_before_other_objects_are_observed() {
    let crd = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets");
    let mut sim = ClusterSimulation::settle(vec![crd.clone()]);
    sim.health.insert(crd.id(), report(HealthStatus::InProgress, "Install in progress"));
    let desired = desired(vec![crd.clone(), config("a")]);
    check(
        &sim.plan(&desired),
        &expect![[r#"
            AwaitingCRDs: Waiting for the CustomResourceDefinitions of revision main@sha1:0f with a timeout of 1m0s
            wake at Some(60) on ["CustomResourceDefinition/widgets"]"#]],
    );
    assert!(!sim.observe(&desired).objects.contains_key(&config("a").id()));
    sim.stage_waiting_since = Some(time(0));
    sim.now = 60;
    check(
        &sim.plan(&desired),
        &expect![[r#"
        HealthCheckFailed: health check failed after 1m0s: timeout waiting for: [CustomResourceDefinition/widgets status: 'InProgress']
        wake at Some(180) on ["CustomResourceDefinition/widgets"]"#]],
    );
    sim.health.clear();
    assert!(matches!(sim.plan(&desired), PlannerDecision::Act(_)));
}

fn rollout() -> (ClusterSimulation, ApplyDesiredState, ObjectId) {
    let web = object("apps/v1", "Deployment", "shop", "web");
    let sim = ClusterSimulation::settle(vec![web.clone(), config("a")]);
    let desired = ApplyDesiredState {
        health: HealthWaitScope::All,
        ..desired(vec![web.clone(), config("a")])
    };
    (sim, desired, web.id())
}

#[test]
fn a_wait_for_health_wakes_on_what_is_not_healthy_and_ends_in_time() {
    let (mut sim, desired, web) = rollout();
    sim.health.insert(web.clone(), report(HealthStatus::InProgress, "Updated: 0/1"));
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Progressing: Running health checks for revision main@sha1:0f with a timeout of 5m0s
        wake at Some(300) on ["Deployment/shop/web"]"#]],
    );
    (sim.waiting_since, sim.now) = (Some(time(0)), 299);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Progressing: Running health checks for revision main@sha1:0f with a timeout of 5m0s
        wake at Some(300) on ["Deployment/shop/web"]"#]],
    );
    sim.now = 300;
    check(
        &sim.plan(&desired),
        &expect![[r#"
        HealthCheckFailed: health check failed after 5m0s: timeout waiting for: [Deployment/shop/web status: 'InProgress']
        wake at Some(420) on ["Deployment/shop/web"]"#]],
    );
    sim.health.clear();
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Settled(..))));
}

#[test]
fn what_is_degraded_is_waited_for_and_says_why_at_the_timeout() {
    let bucket = object("s3.services.k8s.aws/v1alpha1", "Bucket", "shop", "photos");
    let mut sim = ClusterSimulation::settle(vec![bucket.clone()]);
    let says = HealthCondition {
        kind: "Reconciling",
        reason: DEGRADED_REASON.to_owned(),
        message: "no permission".to_owned(),
    };
    let degraded = ObjectHealth {
        conditions: vec![says],
        ..report(HealthStatus::InProgress, "no permission")
    };
    sim.health.insert(bucket.id(), degraded);
    let desired =
        ApplyDesiredState { health: HealthWaitScope::All, ..desired(vec![bucket.clone()]) };
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Progressing: Running health checks for revision main@sha1:0f with a timeout of 5m0s
        wake at Some(300) on ["Bucket/shop/photos"]"#]],
    );
    (sim.waiting_since, sim.now) = (Some(time(0)), 300);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        HealthCheckFailed: health check failed after 5m0s: timeout waiting for: [Bucket/shop/photos status: 'InProgress': no permission]
        wake at Some(420) on ["Bucket/shop/photos"]"#]],
    );
}

#[test]
fn a_failed_object_fails_the_run_at_once_unless_that_is_switched_off() {
    let (mut sim, mut desired, web) = rollout();
    sim.health.insert(web, report(HealthStatus::Failed, "Progress deadline exceeded"));
    sim.health.insert(config("a").id(), report(HealthStatus::Unknown("odd".into()), ""));
    (sim.waiting_since, sim.now) = (Some(time(0)), 12);
    check(
        &sim.plan(&desired),
        &expect![[r#"
        HealthCheckFailed: health check failed after 12s: failed early due to stalled resources: [Deployment/shop/web status: 'Failed': Progress deadline exceeded]
        wake at Some(132) on ["ConfigMap/shop/a", "Deployment/shop/web"]"#]],
    );
    desired.fail_fast = false;
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Running(..))));
    sim.now = 300;
    check(
        &sim.plan(&desired),
        &expect![[r#"
        HealthCheckFailed: health check failed after 5m0s: timeout waiting for: [ConfigMap/shop/a status: 'Unknown': odd, Deployment/shop/web status: 'Failed': Progress deadline exceeded]
        wake at Some(420) on ["ConfigMap/shop/a", "Deployment/shop/web"]"#]],
    );
}

#[test]
fn a_wait_that_failed_stays_failed_until_its_objects_are_well_or_it_is_repeated() {
    let (mut sim, desired, web) = rollout();
    sim.health.insert(web.clone(), report(HealthStatus::Failed, "crashed"));
    let PlannerDecision::Outcome(RunOutcome::Failed(_, text, wake)) = sim.plan(&desired) else {
        panic!("it failed")
    };
    let first =
        RunOutcome::Failed(condition_reason::HEALTH_CHECK_FAILED, text.clone(), wake.clone());
    sim.failed_wait = Some(FailedHealthWait { text, on: wake.on, until: wake.at.unwrap() });
    // Its Pods come and go, and its observed health changes each time.
    for status in [
        HealthStatus::InProgress,
        HealthStatus::Failed,
        HealthStatus::NotFound,
        HealthStatus::Unknown("x".into()),
    ] {
        sim.now += 20;
        sim.health.insert(web.clone(), report(status, "another Pod"));
        assert_eq!(sim.plan(&desired), PlannerDecision::Outcome(first.clone()), "at {}", sim.now);
    }
    // Then it is waited for anew.
    sim.now = 120;
    sim.health.insert(web.clone(), report(HealthStatus::InProgress, ""));
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Running(..))));
    // Others than those that failed are waited for, too.
    sim.now = 20;
    sim.health.remove(&web);
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Settled(..))));
    sim.health.insert(config("a").id(), report(HealthStatus::InProgress, ""));
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Running(..))));
}

#[test]
fn one_object_that_is_refused_does_not_keep_the_drift_of_others() {
    let desired = desired(vec![config("a"), config("b"), object("v1", "Namespace", "", "shop")]);
    let mut sim = ClusterSimulation::default();
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
    let namespace = object("v1", "Namespace", "", "shop").id();
    sim.refused.insert(namespace, "the webhook does not answer".into());
    sim.live.insert(config("a").id(), "edited".into());
    sim.live.remove(&config("b").id());
    assert!(
        matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Failed(..))),
        "a new build is all or nothing"
    );
    sim.is_correction = true;
    check(&sim.plan(&desired), &expect!["Apply 1 ConfigMap/shop/a ConfigMap/shop/b"]);
    let outcome = sim.run(&desired, usize::MAX).unwrap();
    assert_eq!(sim.live.len(), 3);
    check(
        &PlannerDecision::Outcome(outcome),
        &expect![[r#"
        ReconciliationFailed: the webhook does not answer
        wake at Some(120) on []"#]],
    );
}

#[test]
fn contested_objects_are_reported_and_delay_no_others() {
    let mut sim = ClusterSimulation::settle(vec![config("a"), config("old")]);
    let desired = desired(vec![config("a"), config("new")]);
    let contest = ("a is contested".to_owned(), time(30));
    sim.contested =
        BTreeMap::from([(config("a").id(), contest.clone()), (config("gone").id(), contest)]);
    let outcome = sim.run(&desired, usize::MAX).unwrap();
    check(
        &PlannerDecision::Outcome(outcome),
        &expect![[r#"
        Contested: a is contested
        wake at Some(30) on []"#]],
    );
    let live: Vec<String> = sim.live.keys().map(ObjectId::subject).collect();
    assert_eq!(live, ["ConfigMap/shop/a", "ConfigMap/shop/new"]);
}

#[test]
fn a_new_revision_supersedes_a_wait() {
    let (mut sim, mut desired, web) = rollout();
    sim.health.insert(web, report(HealthStatus::InProgress, ""));
    sim.waiting_since = Some(time(0));
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Running(..))));
    let mut changed = config("a");
    changed.set_label("v", "2");
    let objects = desired.stages[0].objects.iter().map(|m| m.object.clone());
    let objects = objects.filter(|o| o.kind() == "Deployment").chain([changed]).collect();
    desired.stages = stages(objects, &[]).unwrap();
    check(&sim.plan(&desired), &expect!["Apply 0 ConfigMap/shop/a"]);
}

#[test]
fn health_is_waited_for_by_name_too_and_never_for_the_kustomization_itself() {
    let (mut sim, mut desired, web) = rollout();
    let foreign = ObjectId::new("db", "main", "apps", "StatefulSet");
    desired.health = HealthWaitScope::These(vec![foreign.clone(), desired.own.clone()]);
    sim.health.insert(desired.own.clone(), report(HealthStatus::InProgress, ""));
    sim.health.insert(web, report(HealthStatus::InProgress, ""));
    assert!(matches!(sim.plan(&desired), PlannerDecision::Outcome(RunOutcome::Settled(..))));
    sim.health.insert(foreign, ObjectHealth::not_found());
    // A StatefulSet's health is read from its Pods, so it is observed every five seconds.
    check(
        &sim.plan(&desired),
        &expect![[r#"
        Progressing: Running health checks for revision main@sha1:0f with a timeout of 5m0s
        wake at Some(5) on ["StatefulSet/db/main"]"#]],
    );
}

#[test]
fn what_is_skipped_or_finished_by_itself_is_tracked_and_not_waited_for() {
    let (sim, desired, web) = rollout();
    for state in [LiveObjectDriftState::Skipped, LiveObjectDriftState::Finished] {
        let mut observed = sim.observe(&desired);
        observed
            .objects
            .insert(web.clone(), ObservedObject { state, health: Some(ObjectHealth::not_found()) });
        assert!(matches!(
            KustomizationApplyPlanner::plan(&desired, &observed),
            PlannerDecision::Outcome(RunOutcome::Settled(..))
        ));
        observed.recorded = ObjectInventory::default();
        check(
            &KustomizationApplyPlanner::plan(&desired, &observed),
            &expect!["Record ConfigMap/shop/a Deployment/shop/web"],
        );
    }
}

#[test]
fn an_object_to_recreate_is_named_in_the_step() {
    let (sim, desired, web) = rollout();
    let mut observed = sim.observe(&desired);
    observed.objects.insert(
        web.clone(),
        ObservedObject { state: LiveObjectDriftState::MustBeRecreated, health: None },
    );
    let PlannerDecision::Act(steps) = KustomizationApplyPlanner::plan(&desired, &observed) else {
        panic!("nothing to do")
    };
    assert!(
        matches!(&steps[..], [ApplyStep::Apply { ids, recreate, .. }] if *ids == [web.clone()] && recreate == ids)
    );
}

#[test]
fn deleted_objects_that_take_their_time_are_waited_for_until_the_timeout() {
    let sim = ClusterSimulation::settle(vec![config("a")]);
    let desired = ApplyDesiredState { empty_is_intended: true, ..desired(Vec::new()) };
    let mut observed = sim.observe(&desired);
    observed.leaving.insert(config("a").id());
    check(
        &KustomizationApplyPlanner::plan(&desired, &observed),
        &expect![[r#"
            AwaitingTermination: Waiting for the termination of deleted objects
            wake at Some(300) on ["ConfigMap/shop/a"]"#]],
    );
    (observed.waiting_since, observed.now) = (Some(time(0)), time(300));
    check(&KustomizationApplyPlanner::plan(&desired, &observed), &expect!["Shrink "]);
}

#[test]
fn what_custom_resources_and_dependents_need_is_deleted_after_them() {
    let wheel = object("acme.io/v1", "Widget", "shop", "wheel");
    let sim = ClusterSimulation::settle(vec![config("a"), config("b"), wheel.clone()]);
    let desired = ApplyDesiredState { empty_is_intended: true, ..desired(Vec::new()) };
    let mut observed = sim.observe(&desired);
    check(
        &KustomizationApplyPlanner::plan(&desired, &observed),
        &expect!["Prune Widget/shop/wheel"],
    );
    observed.leaving.insert(wheel.id());
    check(
        &KustomizationApplyPlanner::plan(&desired, &observed),
        &expect![[r#"
            AwaitingTermination: Waiting for the termination of deleted objects
            wake at Some(300) on ["Widget/shop/wheel"]"#]],
    );
    observed.leaving.clear();
    observed.recorded =
        [config("a"), config("b")].iter().map(|it| (it.id(), "v1".into())).collect();
    let app = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "app");
    let before = DeletionPredecessors { gone: BTreeSet::from([app]), ..Default::default() };
    observed.predecessors = BTreeMap::from([(config("a").id(), before)]);
    check(
        &KustomizationApplyPlanner::plan(&desired, &observed),
        &expect!["Prune ConfigMap/shop/b"],
    );
    observed.recorded = [config("a")].iter().map(|it| (it.id(), "v1".into())).collect();
    check(
        &KustomizationApplyPlanner::plan(&desired, &observed),
        &expect![[r#"
            AwaitingDependents: Waiting for the deletion of Kustomization/shop/app, which need objects that are deleted after them
            wake at Some(10) on []"#]],
    );
}

#[test]
fn an_object_in_a_new_version_is_recorded_in_it() {
    let mut sim = ClusterSimulation::settle(vec![object("batch/v1beta1", "CronJob", "shop", "x")]);
    let desired = desired(vec![object("batch/v1", "CronJob", "shop", "x")]);
    assert!(sim.run(&desired, usize::MAX).unwrap().is_settled());
    assert_eq!(sim.recorded.entries(), [("shop_x_batch_CronJob".to_owned(), "v1".to_owned())]);
}

fn universe(picked: &[bool], label: &str) -> Vec<Object> {
    let all = [
        object("v1", "Namespace", "", "shop"),
        object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets"),
        object("storage.k8s.io/v1", "StorageClass", "", "fast"),
        config("a"),
        config("b"),
        object("apps/v1", "Deployment", "shop", "web"),
        object("acme.io/v1", "Widget", "shop", "w"),
        object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "v"),
    ];
    let chosen =
        all.into_iter().zip(picked).filter(|(_, picked)| **picked).map(|(mut object, _)| {
            object.set_label("v", label);
            object
        });
    chosen.collect()
}

proptest! {
    #[test]
    fn a_crash_after_any_write_leaves_nothing_unowned(
        before in prop::collection::vec(any::<bool>(), 8),
        after in prop::collection::vec(any::<bool>(), 8),
        stuck in prop::collection::vec(prop::bool::weighted(0.1), 8),
        changed in any::<bool>(),
        prune in prop::bool::weighted(0.9),
        crashes in prop::collection::vec(0_usize..12, 0..4),
    ) {
        let allowed = |objects| ApplyDesiredState { empty_is_intended: true, prune, ..desired(objects) };
        let mut sim = ClusterSimulation::default();
        sim.run(&allowed(universe(&before, "1")), usize::MAX);
        sim.undeletable = universe(&stuck, "1").iter().map(Object::id).collect();
        let desired = allowed(universe(&after, if changed { "2" } else { "1" }));
        if !prune {
            // Orphaned objects do not belong to the inventory any more.
            sim.live.retain(|id, _| desired.stages.iter().flat_map(|s| &s.objects).any(|m| m.id == *id));
        }
        // Every write checks the law; so does every run after a crash.
        for writes in crashes {
            sim.run(&desired, writes);
        }
        sim.run(&desired, usize::MAX);
        sim.undeletable.clear();
        let outcome = sim.run(&desired, usize::MAX);
        prop_assert!(outcome.is_some_and(|outcome| outcome.is_settled()));
        let wanted: BTreeMap<_, _> = desired.stages.iter().flat_map(|s| &s.objects).map(|m| (m.id.clone(), m.digest.clone())).collect();
        prop_assert_eq!(&sim.live, &wanted);
        prop_assert!(sim.recorded.ids().eq(wanted.keys()));
    }

    #[test]
    fn a_plan_is_deterministic_and_a_settled_cluster_needs_no_step(
        before in prop::collection::vec(any::<bool>(), 8),
        after in prop::collection::vec(any::<bool>(), 8),
    ) {
        let desired = |picked: &[bool]| ApplyDesiredState { empty_is_intended: true, ..desired(universe(picked, "1")) };
        let mut sim = ClusterSimulation::default();
        sim.run(&desired(&before), usize::MAX);
        let decision = sim.plan(&desired(&after));
        prop_assert_eq!(&decision, &sim.plan(&desired(&after)));
        let settled = sim.plan(&desired(&before));
        prop_assert!(matches!(settled, PlannerDecision::Outcome(RunOutcome::Settled(..))), "{settled:?}");
    }
}

#[test]
fn stages_say_what_they_wait_for() {
    let crd = || object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets");
    let namespace = || object("v1", "Namespace", "", "shop");
    let class = object("storage.k8s.io/v1", "StorageClass", "", "fast");
    for (objects, what) in [
        (vec![class], "classes"),
        (vec![crd()], "CustomResourceDefinitions"),
        (vec![namespace()], "Namespaces"),
        (vec![namespace(), crd()], "CustomResourceDefinitions and Namespaces"),
    ] {
        let sorted = stages(objects, &[]).unwrap();
        assert_eq!(
            stage_text(&sorted[0], "r", Duration::from_secs(60)),
            format!("Waiting for the {what} of revision r with a timeout of 1m0s")
        );
    }
}
