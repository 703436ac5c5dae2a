//! Which failures are one incident, and when it has ended.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::incident::{
    Incident, IncidentIdentity, IncidentRecord, ObjectFailureVerdict, ReportedObjectState,
    RootFailureSearchScope, incidents, is_over, join_cycles, keep_affected, verdict,
};

impl FakeClusterObjects {
    /// The verdicts on all objects that windlass reconciles, and on some that may not exist.
    fn verdicts(&self) -> BTreeMap<ObjectId, ObjectFailureVerdict> {
        self.verdicts_within(RootFailureSearchScope::All)
    }

    fn verdicts_within(
        &self,
        reach: RootFailureSearchScope,
    ) -> BTreeMap<ObjectId, ObjectFailureVerdict> {
        let mut known = FactAnswers::default();
        let ids = self.objects.iter().map(Object::id).filter(object_references::is_reconciled);
        let mut verdicts =
            ids.map(|id| (id.clone(), self.verdict(&id, &mut known, reach))).collect();
        join_cycles(&mut verdicts, reach);
        verdicts
    }

    fn verdict(
        &self,
        id: &ObjectId,
        known: &mut FactAnswers,
        reach: RootFailureSearchScope,
    ) -> ObjectFailureVerdict {
        for _ in 0..200 {
            match verdict(id, known, now(), reach) {
                Ok(verdict) => return verdict,
                Err(queries) => {
                    for query in queries {
                        let answer = self.answer(&query);
                        known.insert(query, answer);
                    }
                }
            }
        }
        panic!("the walk asks for ever");
    }
}

/// Whether an incident has ended, where users know of each other one.
fn ended(
    subject: &str,
    problem: &str,
    affected: &[&str],
    verdicts: &BTreeMap<ObjectId, ObjectFailureVerdict>,
) -> bool {
    let affected = affected.iter().map(|name| id(name).subject()).collect();
    let subject = id(subject);
    let cause = subject.subject();
    let record = IncidentRecord {
        subject: &subject,
        problem,
        cause: &cause,
        affected: &affected,
        kept: None,
        are_all_judged: true,
    };
    is_over(&record, verdicts, |_| true)
}

/// The identity, the reason and the affected objects of each incident.
fn listed(found: &BTreeMap<IncidentIdentity, Incident>) -> Vec<String> {
    let line = |((subject, problem), incident): (&IncidentIdentity, &Incident)| {
        let affected: Vec<String> = incident.affected.iter().map(|it| it.name.clone()).collect();
        let reason = &incident.failure.reason;
        format!("{}/{} {problem} {reason} [{}]", subject.kind, subject.name, affected.join(" "))
    };
    found.iter().map(line).collect()
}

fn of(objects: &[Value]) -> Vec<String> {
    listed(&incidents(&FakeClusterObjects::of(objects).verdicts()))
}

fn failed_source() -> Value {
    let mut source = source();
    put(&mut source, &status("False", "AuthenticationFailed", "authentication failed: 4711"));
    source
}

fn depends(on: &str) -> Value {
    json!({"spec": {"dependsOn": [{"name": on}]}})
}

fn waits() -> Value {
    status("False", "DependencyNotReady", "dependency is not ready")
}

#[test]
fn a_source_that_fails_is_one_incident_of_all_that_read_from_it() {
    let mut all: Vec<Value> =
        (0..200).map(|at| kustomization(&format!("k{at:03}"), &[&ready()])).collect();
    all.push(failed_source());
    let found = incidents(&FakeClusterObjects::of(&all).verdicts());
    assert_eq!(found.len(), 1);
    let (identity, incident) = found.first_key_value().unwrap();
    assert_eq!(*identity, (id("GitRepository/app"), CauseKind::Credentials));
    assert_eq!(incident.affected.len(), 200);
    // Without an artifact they fail, and it is the same.
    let mut source = failed_source();
    source["status"].as_object_mut().unwrap().remove("artifact");
    let blocked = status("False", "ArtifactFailed", "source is not ready");
    let one = kustomization("one", &[&blocked]);
    let line = "GitRepository/app Credentials AuthenticationFailed [one]";
    assert_eq!(of(&[one, source]), [line]);
}

#[test]
fn a_deletion_that_held_another_one_for_too_long_is_an_incident_until_it_ends() {
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-24T11:00:00Z"}});
    let marked = json!({"metadata": {"annotations": {"windlass.dev/deletion-overdue": "Kustomization/flux-system/base"}}});
    assert_eq!(of(&[kustomization("app", &[&ready(), &deleted]), source()]), Vec::<String>::new());
    assert_eq!(of(&[kustomization("app", &[&ready(), &marked]), source()]), Vec::<String>::new());
    let app = kustomization("app", &[&ready(), &deleted, &marked]);
    assert_eq!(of(&[app.clone(), source()]), ["Kustomization/app Deletion DependentNotDeleted []"]);
    let verdicts = FakeClusterObjects::of(&[app, source()]).verdicts();
    assert!(!ended("Kustomization/app", "Deletion", &[], &verdicts));
    let verdicts = FakeClusterObjects::of(&[source()]).verdicts();
    assert!(ended("Kustomization/app", "Deletion", &[], &verdicts));
}

#[test]
fn what_waits_for_a_dependency_is_affected_by_the_deepest_that_fails() {
    let broken = kustomization("a", &[&status("False", "BuildFailed", "missing file")]);
    let next = kustomization("b", &[&depends("a"), &waits()]);
    let last = kustomization("c", &[&depends("b"), &waits()]);
    let line = "Kustomization/a Build BuildFailed [b c]";
    assert_eq!(of(&[broken, next, last, source()]), [line]);
}

#[test]
fn who_names_a_source_that_does_not_exist_is_affected_by_its_absence() {
    let blocked = status("False", "SourceNotReady", "GitRepository app not found");
    let all = ["a", "b"].map(|name| kustomization(name, &[&blocked]));
    assert_eq!(of(&all), ["GitRepository/app Missing Missing [a b]"]);
    // In another namespace no incident is opened on its behalf.
    let elsewhere = json!({"spec": {"sourceRef": {"namespace": "elsewhere"}}});
    let all = ["a", "b"].map(|name| kustomization(name, &[&blocked, &elsewhere]));
    let lines =
        ["Kustomization/a Missing SourceNotReady []", "Kustomization/b Missing SourceNotReady []"];
    assert_eq!(of(&all), lines);
}

#[test]
fn what_does_not_exist_is_named() {
    let blocked = status("False", "SourceNotReady", "GitRepository app not found");
    let found = incidents(&FakeClusterObjects::of(&[kustomization("a", &[&blocked])]).verdicts());
    let failure = &found.first_key_value().unwrap().1.failure;
    assert_eq!(failure.text, "GitRepository/apps/app does not exist");
    assert_eq!(failure.since, Some("2026-11-24T11:55:00Z".parse().unwrap()));
}

#[test]
fn a_failure_is_as_old_as_the_condition_of_its_subject() {
    let mut broken = kustomization("b", &[&status("False", "BuildFailed", "missing file")]);
    broken["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-11-24T09:00:00Z");
    let next = kustomization("a", &[&depends("b"), &waits()]);
    let found = incidents(&FakeClusterObjects::of(&[broken, next, source()]).verdicts());
    let since = found.first_key_value().unwrap().1.failure.since;
    assert_eq!(since, Some("2026-11-24T09:00:00Z".parse().unwrap()));
}

/// A Kustomization that has read the artifact of its source, which does not have its path.
fn without_path(name: &str) -> Value {
    let failed = status("False", "ArtifactFailed", "kustomization path not found: ./deploy");
    let read = json!({"status": {"lastAttemptedRevision": "main@sha1:abc"}});
    kustomization(name, &[&failed, &read])
}

#[test]
fn a_wrong_repository_is_one_incident_of_all_that_do_not_find_their_path_in_it() {
    let mut all: Vec<Value> = (0..118).map(|at| without_path(&format!("k{at:03}"))).collect();
    all.push(source());
    let cluster = FakeClusterObjects::of(&all);
    let found = incidents(&cluster.verdicts());
    assert_eq!(found.len(), 1);
    let (identity, incident) = found.first_key_value().unwrap();
    assert_eq!(*identity, (id("GitRepository/app"), CauseKind::Artifact));
    assert_eq!(incident.affected.len(), 118);
    let failure = &incident.failure;
    assert!(!failure.is_waiting, "it is reported as soon as any other failure");
    assert_eq!(failure.reason, "ArtifactFailed");
    let text = "Kustomization/apps/k000: kustomization path not found: ./deploy";
    assert_eq!(failure.text, text);
    // What was known as a failure of one of them has ended.
    assert!(ended("Kustomization/k000", "Build", &[], &cluster.verdicts()));
    // It goes on while one of them is being reconciled.
    let progressing = status("Unknown", "Progressing", "in progress");
    let verdicts =
        FakeClusterObjects::of(&[kustomization("k000", &[&progressing]), source()]).verdicts();
    assert!(!ended("GitRepository/app", "Artifact", &["Kustomization/k000"], &verdicts));
    let verdicts =
        FakeClusterObjects::of(&[kustomization("k000", &[&ready()]), source()]).verdicts();
    assert!(ended("GitRepository/app", "Artifact", &["Kustomization/k000"], &verdicts));
}

#[test]
fn what_has_not_read_the_artifact_yet_waits_for_itself() {
    let failed = status("False", "ArtifactFailed", "source has no artifact yet");
    let with_artifact_of = |at: &str| {
        let mut source = source();
        source["status"]["artifact"]["lastUpdateTime"] = json!(at);
        incidents(&FakeClusterObjects::of(&[kustomization("a", &[&failed]), source]).verdicts())
    };
    let newer = with_artifact_of("2026-11-24T11:58:00Z");
    let line = "Kustomization/a Build ArtifactFailed []";
    assert_eq!(listed(&newer), [line]);
    assert!(newer.values().all(|it| it.failure.is_waiting));
    let older = with_artifact_of("2026-11-24T11:50:00Z");
    assert_eq!(listed(&older), ["GitRepository/app Artifact ArtifactFailed [a]"]);
    // A source of another namespace gets no incident on its behalf.
    let elsewhere = json!({"spec": {"sourceRef": {"namespace": "platform"}}});
    let mut far = source();
    put(&mut far, &json!({"metadata": {"namespace": "platform"}}));
    let mut user = without_path("a");
    put(&mut user, &elsewhere);
    let found = incidents(&FakeClusterObjects::of(&[user, far]).verdicts());
    assert_eq!(listed(&found), [line]);
    assert!(found.values().all(|it| !it.failure.is_waiting));
}

fn in_cycle(name: &str, on: &str) -> Value {
    let text = format!("Kustomization/apps/{name} depends on itself through {on}");
    kustomization(name, &[&depends(on), &status("False", "DependencyCycle", &text)])
}

#[test]
fn a_cycle_of_dependencies_is_one_incident_with_what_waits_for_it() {
    let all = [
        in_cycle("b", "c"),
        in_cycle("c", "d"),
        in_cycle("d", "b"),
        in_cycle("x", "y"),
        in_cycle("y", "x"),
        kustomization("z", &[&depends("d"), &waits()]),
        source(),
    ];
    let lines = [
        "Kustomization/b Cycle DependencyCycle [c d z]",
        "Kustomization/x Cycle DependencyCycle [y]",
    ];
    assert_eq!(of(&all), lines);
    // Another object comes first: the incident of the former one has ended.
    let mut more = all.to_vec();
    more[2] = in_cycle("d", "a");
    more.push(in_cycle("a", "b"));
    let verdicts = FakeClusterObjects::of(&more).verdicts();
    assert_eq!(listed(&incidents(&verdicts))[0], "Kustomization/a Cycle DependencyCycle [b c d z]");
    assert!(ended("Kustomization/b", "Cycle", &[], &verdicts));
    assert!(!ended("Kustomization/a", "Cycle", &[], &verdicts));
}

#[test]
fn a_cycle_of_releases_is_one_incident_whatever_else_its_objects_lack() {
    let release = |name: &str, on: &str| {
        let text = format!("HelmRelease/apps/{name} depends on itself through {on}");
        let chart = json!({"spec": {"interval": "1m", "chart": {"spec": {"chart": name,
            "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}}});
        let failed = status("False", "DependencyCycle", &text);
        with(&format!("HelmRelease/{name}"), &[&chart, &depends(on), &failed])
    };
    // No HelmChart was made for them.
    let mut all = vec![release("a", "b"), release("b", "a")];
    assert_eq!(of(&all), ["HelmRelease/a Cycle DependencyCycle [b]"]);
    all[1] = release("b", "c");
    // The chart of the last one was made before, and cannot be fetched.
    all.push(release("c", "a"));
    let failed = status("False", "ChartPullFailed", "no such chart");
    all.push(with("HelmChart/apps-c", &[&failed]));
    let found = of(&all);
    assert!(found.contains(&"HelmRelease/a Cycle DependencyCycle [b c]".to_owned()), "{found:?}");
    assert_eq!(found.iter().filter(|it| it.contains("Cycle")).count(), 1, "{found:?}");
    // Nor do Kustomizations have their source.
    let all = [in_cycle("x", "y"), in_cycle("y", "x")];
    assert_eq!(of(&all), ["Kustomization/x Cycle DependencyCycle [y]"]);
}

#[test]
fn repositories_without_artifacts_that_include_each_other_are_one_incident() {
    let repository = |name: &str, included: &str| {
        let spec = json!({"spec": {"include": [{"repository": {"name": included}}]}});
        let text = format!("{name} includes itself");
        with(&format!("GitRepository/{name}"), &[&spec, &status("False", "IncludeCycle", &text)])
    };
    let all = [repository("a", "b"), repository("b", "a")];
    assert_eq!(of(&all), ["GitRepository/a Cycle IncludeCycle [b]"]);
}

#[test]
fn within_a_namespace_the_parts_of_a_cycle_are_incidents_of_their_own() {
    let far = json!({"spec": {"dependsOn": [{"name": "b", "namespace": "platform"}]}});
    let near = json!({"spec": {"dependsOn": [{"name": "a", "namespace": "apps"}]}});
    let mut other = in_cycle("b", "a");
    put(&mut other, &near);
    put(&mut other, &json!({"metadata": {"namespace": "platform"}}));
    let mut sources = [source(), source()];
    put(&mut sources[1], &json!({"metadata": {"namespace": "platform"}}));
    let mut own = in_cycle("a", "b");
    put(&mut own, &far);
    let [first, second] = sources;
    let cluster = FakeClusterObjects::of(&[own, other, first, second]);
    assert_eq!(incidents(&cluster.verdicts_within(RootFailureSearchScope::All)).len(), 1);
    assert_eq!(incidents(&cluster.verdicts_within(RootFailureSearchScope::OwnNamespace)).len(), 2);
}

#[test]
fn a_long_cycle_is_joined_without_recursion() {
    let name = |at: usize| format!("k{at:05}");
    let mut all: Vec<Value> =
        (0..400).map(|at| in_cycle(&name(at), &name((at + 1) % 400))).collect();
    all.push(source());
    let found = incidents(&FakeClusterObjects::of(&all).verdicts());
    let affected: Vec<usize> = found.values().map(|it| it.affected.len()).collect();
    assert_eq!(affected, [399]);
}

#[test]
fn repositories_that_include_each_other_in_layers_are_judged_in_few_steps() {
    // Two of a layer include both of the next one: 2^30 ways lead to the last layer.
    let layers = |ready: &dyn Fn(usize) -> Value| -> Vec<Value> {
        let each = (0..30).flat_map(|layer| ["a", "b"].map(|side| (layer, side)));
        let object = |(layer, side): (usize, &str)| {
            let next = ["a", "b"].map(|side| format!("{side}{}", layer + 1));
            let include = next.map(|name| json!({"repository": {"name": name}}));
            let include = if layer < 29 { json!(include) } else { json!([]) };
            let mut object = with(&format!("GitRepository/{side}{layer}"), &[&ready(layer)]);
            put(&mut object, &json!({"spec": {"include": include}, "status": {"artifact": {}}}));
            object
        };
        each.map(object).collect()
    };
    let well = FakeClusterObjects::of(&layers(&|_| ready())).verdicts();
    assert!(well.values().all(|it| it.own == ReportedObjectState::Well && it.failure.is_none()));
    let failed = status("False", "GitOperationFailed", "no route to host");
    let found = incidents(&FakeClusterObjects::of(&layers(&|_| failed.clone())).verdicts());
    assert!(!found.is_empty());
    let deepest = |layer| if layer == 29 { failed.clone() } else { ready() };
    let found = incidents(&FakeClusterObjects::of(&layers(&deepest)).verdicts());
    let subjects: Vec<&str> = found.keys().map(|(subject, _)| subject.name.as_str()).collect();
    assert_eq!(subjects, ["a29", "b29"]);
}

#[test]
fn within_a_namespace_the_last_object_of_it_is_the_subject() {
    let mut broken = kustomization("a", &[&status("False", "BuildFailed", "secret")]);
    put(&mut broken, &json!({"metadata": {"namespace": "platform"}}));
    let far = json!({"spec": {"dependsOn": [{"name": "a", "namespace": "platform"}]}});
    let next = kustomization("b", &[&far, &waits()]);
    let last = kustomization("c", &[&depends("b"), &waits()]);
    let mut sources = [source(), source()];
    put(&mut sources[1], &json!({"metadata": {"namespace": "platform"}}));
    let [own, other] = sources;
    let cluster = FakeClusterObjects::of(&[broken, next, last, own, other]);
    let lines = |reach| listed(&incidents(&cluster.verdicts_within(reach)));
    assert_eq!(lines(RootFailureSearchScope::All), ["Kustomization/a Build BuildFailed [b c]"]);
    let confined = [
        "Kustomization/b Dependency DependencyNotReady [c]",
        "Kustomization/a Build BuildFailed []",
    ];
    assert_eq!(lines(RootFailureSearchScope::OwnNamespace), confined);
    let found = incidents(&cluster.verdicts_within(RootFailureSearchScope::OwnNamespace));
    let of_tenant = found.values().find(|it| it.failure.subject.name == "b").unwrap();
    assert!(!of_tenant.failure.text.contains("secret") && !of_tenant.failure.is_waiting);
}

#[test]
fn what_is_suspended_deleted_or_in_progress_opens_nothing() {
    let failed = status("False", "BuildFailed", "missing file");
    let suspended = json!({"spec": {"suspend": true}});
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-24T11:00:00Z"}});
    let newer = json!({"metadata": {"generation": 2}});
    let progressing = status("Unknown", "Progressing", "reconciliation in progress");
    let all = [
        kustomization("a", &[&failed, &suspended]),
        kustomization("b", &[&failed, &deleted]),
        kustomization("c", &[&failed, &newer]),
        kustomization("d", &[&progressing]),
        kustomization("e", &[&depends("a"), &waits()]),
        kustomization("f", &[&depends("d"), &waits()]),
        source(),
    ];
    assert!(of(&all).is_empty(), "{:?}", of(&all));
    let verdicts = FakeClusterObjects::of(&all).verdicts();
    let own = |name: &str| verdicts[&id(&format!("Kustomization/{name}"))].own;
    assert_eq!(
        ["a", "b", "c"].map(own),
        [ReportedObjectState::Paused, ReportedObjectState::Paused, ReportedObjectState::Unclear]
    );
    assert_eq!(["d", "e"].map(own), [ReportedObjectState::Unclear, ReportedObjectState::Failing]);
}

#[test]
fn what_a_freeze_holds_opens_nothing_and_what_fails_meanwhile_does() {
    let message = "revision main@sha1:def waits: Freeze winter until 2026-12-27T00:00:00Z: sales";
    let held = kustomization("a", &[&status("False", "Frozen", message)]);
    let dependent = kustomization("b", &[&depends("a"), &waits()]);
    let all = [held, dependent, source()];
    assert!(of(&all).is_empty(), "{:?}", of(&all));
    let [held, dependent, source] = all;
    let failed = kustomization("c", &[&status("False", "BuildFailed", "missing file")]);
    let found = of(&[held, dependent, source, failed]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("Kustomization/c "), "{found:?}");
}

#[test]
fn an_object_that_waits_for_what_is_ready_is_about_to_be_reconciled() {
    let dependency = kustomization("a", &[&ready()]);
    let next = kustomization("b", &[&depends("a"), &waits()]);
    let found = incidents(&FakeClusterObjects::of(&[dependency, next, source()]).verdicts());
    assert!(found.values().all(|it| it.failure.is_waiting) && found.len() == 1, "{found:?}");
}

#[test]
fn a_message_makes_no_other_incident_and_a_problem_does() {
    let with = |reason: &str, message: &str| {
        let object = kustomization("a", &[&status("False", reason, message)]);
        let found = incidents(&FakeClusterObjects::of(&[object, source()]).verdicts());
        found.into_keys().next().unwrap()
    };
    assert_eq!(with("BuildFailed", "at 1"), with("BuildFailed", "at 2"));
    assert_ne!(with("BuildFailed", "at 1"), with("HealthCheckFailed", "at 1"));
}

#[test]
fn an_incident_ends_when_its_subject_is_well_gone_or_fails_otherwise() {
    let judge = |more: &[&Value]| {
        let all = [kustomization("a", more), source()];
        let verdicts = FakeClusterObjects::of(&all).verdicts();
        ended("Kustomization/a", "Build", &[], &verdicts)
    };
    let suspended = json!({"spec": {"suspend": true}});
    assert!(judge(&[&ready()]));
    assert!(judge(&[&status("False", "HealthCheckFailed", "timeout")]));
    assert!(!judge(&[&status("False", "BuildFailed", "missing file")]));
    assert!(!judge(&[&status("Unknown", "Progressing", "in progress")]));
    assert!(!judge(&[&status("False", "BuildFailed", ""), &suspended]));
    assert!(ended("Kustomization/a", "Build", &[], &BTreeMap::new()));
}

/// A Kustomization that does not find its path, and whose source has a newer artifact that it has not read yet.
fn before_new_commit(name: &str) -> [Value; 2] {
    let mut source = source();
    put(&mut source, &json!({"status": {"artifact": {"revision": "main@sha1:def"}}}));
    source["status"]["artifact"]["lastUpdateTime"] = json!("2026-11-24T11:59:59Z");
    [without_path(name), source]
}

#[test]
fn a_new_commit_does_not_end_a_failure_that_it_may_not_have_mended() {
    let verdicts = FakeClusterObjects::of(&before_new_commit("a")).verdicts();
    assert!(verdicts[&id("Kustomization/a")].failure.as_ref().is_some_and(|it| it.is_waiting));
    assert!(!ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts));
    // The same of a failure that was its own, such as an earlier build.
    assert!(!ended("Kustomization/a", "Build", &[], &verdicts));
    let [_, source] = before_new_commit("a");
    let mended = FakeClusterObjects::of(&[kustomization("a", &[&ready()]), source]).verdicts();
    assert!(ended("GitRepository/app", "Artifact", &["Kustomization/a"], &mended));
}

#[test]
fn an_object_that_waits_for_a_dependency_may_fail_as_before() {
    let progressing = status("Unknown", "Progressing", "in progress");
    let broken = status("False", "BuildFailed", "missing file");
    let waiting = kustomization("b", &[&depends("a"), &waits()]);
    for dependency in [progressing, broken, ready()] {
        let all = [kustomization("a", &[&dependency]), waiting.clone(), source()];
        let verdicts = FakeClusterObjects::of(&all).verdicts();
        assert!(!ended("Kustomization/b", "Health", &[], &verdicts), "{dependency}");
    }
    // Nor does a dependency that does not find its path in the source of both.
    let verdicts = FakeClusterObjects::of(&[without_path("a"), waiting, source()]).verdicts();
    assert!(!ended("Kustomization/b", "Health", &[], &verdicts));
}

#[test]
fn a_source_that_is_down_ends_nothing_that_its_consumers_report() {
    let verdicts = FakeClusterObjects::of(&[without_path("a"), failed_source()]).verdicts();
    assert_eq!(verdicts[&id("GitRepository/app")].own, ReportedObjectState::Failing);
    assert!(!ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts));
    assert!(!ended("Kustomization/a", "Build", &[], &verdicts));
    // Its own failure ends with it.
    let verdicts = FakeClusterObjects::of(&[without_path("a"), source()]).verdicts();
    assert!(ended("GitRepository/app", "Credentials", &[], &verdicts));
}

#[test]
fn a_failure_that_changes_its_cause_ends_once_users_know_of_the_new_one() {
    let object = kustomization("a", &[&status("False", "HealthCheckFailed", "timeout")]);
    let verdicts = FakeClusterObjects::of(&[object, source()]).verdicts();
    let subject = id("Kustomization/a");
    let new = (subject.clone(), CauseKind::Health);
    let affected = BTreeSet::new();
    let record = IncidentRecord {
        subject: &subject,
        problem: "Build",
        cause: "Kustomization/apps/a",
        affected: &affected,
        kept: None,
        are_all_judged: true,
    };
    let over =
        |known: Option<&IncidentIdentity>| is_over(&record, &verdicts, |it| Some(it) == known);
    assert!(!over(None));
    assert!(over(Some(&new)));
}

#[test]
fn what_is_gone_or_suspended_keeps_no_incident_of_its_source_open() {
    let suspended = json!({"spec": {"suspend": true}});
    let mut held = without_path("a");
    put(&mut held, &suspended);
    let verdicts = FakeClusterObjects::of(&[held, source()]).verdicts();
    assert!(ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts));
    let verdicts = FakeClusterObjects::of(&[source()]).verdicts();
    assert!(ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts));
    let verdicts = FakeClusterObjects::of(&[without_path("a")]).verdicts();
    assert!(ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts));
}

#[test]
fn an_object_is_affected_until_it_is_known_not_to_be() {
    let mut kept = BTreeMap::new();
    let mut keep = |all: &[Value]| {
        let verdicts = FakeClusterObjects::of(all).verdicts();
        keep_affected(&mut kept, &incidents(&verdicts), &verdicts);
        let names = |affected: &BTreeSet<ObjectId>| -> Vec<String> {
            affected.iter().map(|it| it.name.clone()).collect()
        };
        kept.values().map(names).collect::<Vec<_>>()
    };
    assert_eq!(keep(&[without_path("a"), without_path("b"), source()]), [["a", "b"]]);
    let [waiting, source] = before_new_commit("a");
    let other = status("False", "BuildFailed", "missing file");
    let b = kustomization("b", &[&other]);
    assert_eq!(keep(&[waiting, b, source.clone()]), [["a"]]);
    assert!(keep(&[kustomization("a", &[&ready()]), source]).is_empty());
    // Each name that a reference had before would be kept for ever otherwise.
    let blocked = status("False", "SourceNotReady", "GitRepository not found");
    assert_eq!(keep(&[kustomization("a", &[&blocked])]), [["a"]]);
    assert_eq!(keep(&[of_other_source("a", &blocked)]), [["a"]]);
}

#[test]
fn the_reason_of_a_release_that_was_remedied_is_that_of_its_failure() {
    let mut release =
        with("HelmRelease/a", &[&status("False", "RollbackSucceeded", "rolled back")]);
    let failed = json!({"type": "Released", "status": "False", "reason": "UpgradeFailed",
        "message": "timeout", "observedGeneration": 1});
    if let Some(all) = release["status"]["conditions"].as_array_mut() {
        all.push(failed);
    }
    let found = incidents(&FakeClusterObjects::of(&[release]).verdicts());
    let failures: Vec<&str> = found.values().map(|it| it.failure.reason.as_str()).collect();
    assert_eq!(failures, ["UpgradeFailed"]);
}

#[test]
fn a_missing_source_is_over_once_nothing_that_named_it_is_in_progress() {
    let progressing = status("Unknown", "Progressing", "in progress");
    let verdicts = FakeClusterObjects::of(&[kustomization("a", &[&progressing])]).verdicts();
    assert!(!ended("GitRepository/app", "Missing", &["Kustomization/a"], &verdicts));
    assert!(ended("GitRepository/app", "Missing", &["Kustomization/b"], &verdicts));
}

/// A Kustomization of the GitRepository `other`, which does not exist.
fn of_other_source(name: &str, more: &Value) -> Value {
    let other = json!({"spec": {"sourceRef": {"name": "other"}}});
    kustomization(name, &[&other, more])
}

#[test]
fn what_refers_to_another_object_keeps_no_incident_of_the_former_one_open() {
    let blocked = status("False", "SourceNotReady", "GitRepository other not found");
    let progressing = status("Unknown", "Progressing", "in progress");
    for (state, source) in
        [(&blocked, source()), (&blocked, failed_source()), (&progressing, source())]
    {
        let verdicts = FakeClusterObjects::of(&[of_other_source("a", state), source]).verdicts();
        assert!(ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts));
    }
    let verdicts = FakeClusterObjects::of(&[of_other_source("a", &blocked)]).verdicts();
    assert!(ended("GitRepository/app", "Missing", &["Kustomization/a"], &verdicts));
    assert!(!ended("GitRepository/other", "Missing", &["Kustomization/a"], &verdicts));
    let broken = kustomization("b", &[&status("False", "BuildFailed", "missing file")]);
    let waiting = kustomization("c", &[&depends("b"), &waits()]);
    let verdicts = FakeClusterObjects::of(&[broken, waiting, source()]).verdicts();
    assert!(ended("Kustomization/a", "Missing", &["Kustomization/c"], &verdicts));
}

#[test]
fn a_missing_object_is_over_once_it_exists_and_was_judged() {
    let affected = ["Kustomization/a"];
    let blocked = status("False", "SourceNotReady", "repository lib is not ready");
    let user = kustomization("a", &[&blocked]);
    let is_over_with = |more: &Value| {
        let mut created = source();
        put(&mut created, more);
        let lib = with("GitRepository/lib", &[&status("False", "GitOperationFailed", "no route")]);
        let verdicts = FakeClusterObjects::of(&[user.clone(), created, lib]).verdicts();
        ended("GitRepository/app", "Missing", &affected, &verdicts)
    };
    let mut waiting = blocked.clone();
    put(&mut waiting, &json!({"spec": {"include": [{"repository": {"name": "lib"}}]}}));
    assert!(is_over_with(&waiting));
    assert!(is_over_with(&json!({"spec": {"suspend": true}})));
    assert!(!is_over_with(&status("Unknown", "Progressing", "cloning")));
    // What an object of another namespace lacks is an incident of the former, which exists all the time.
    let verdicts =
        FakeClusterObjects::of(&[kustomization("a", &[&json!({"spec": {"suspend": true}})])]);
    let subject = id("Kustomization/a");
    let affected = BTreeSet::new();
    let record = IncidentRecord {
        subject: &subject,
        problem: "Missing",
        cause: "GitRepository/elsewhere/app",
        affected: &affected,
        kept: None,
        are_all_judged: true,
    };
    assert!(!is_over(&record, &verdicts.verdicts(), |_| true));
}

#[test]
fn what_others_have_with_an_object_is_not_over_before_all_kinds_were_judged() {
    // After a restart sources are listed before their consumers, which fail as before.
    for (problem, objects) in [("Artifact", vec![source()]), ("Missing", Vec::new())] {
        let verdicts = FakeClusterObjects::of(&objects).verdicts();
        let subject = id("GitRepository/app");
        let cause = subject.subject();
        let affected = BTreeSet::from([id("Kustomization/a").subject()]);
        let is_over_if = |are_all_judged| {
            let record = IncidentRecord {
                subject: &subject,
                problem,
                cause: &cause,
                affected: &affected,
                kept: None,
                are_all_judged,
            };
            is_over(&record, &verdicts, |_| true)
        };
        assert!(!is_over_if(false) && is_over_if(true), "{problem}");
    }
}

#[test]
fn a_source_that_is_suspended_keeps_nothing_open_that_its_consumers_do_not_report() {
    let mut held = source();
    put(&mut held, &json!({"spec": {"suspend": true}}));
    let judge = |user: Value| {
        let verdicts = FakeClusterObjects::of(&[user, held.clone()]).verdicts();
        ended("GitRepository/app", "Artifact", &["Kustomization/a"], &verdicts)
    };
    assert!(judge(of_other_source("a", &ready())));
    assert!(!judge(kustomization("a", &[&status("Unknown", "Progressing", "in progress")])));
}

#[test]
fn a_cycle_or_a_dependency_is_over_when_the_subject_waits_for_another_failure() {
    let broken = kustomization("x", &[&status("False", "BuildFailed", "missing file")]);
    let waiting = kustomization("a", &[&depends("x"), &waits()]);
    let verdicts = FakeClusterObjects::of(&[broken, waiting, source()]).verdicts();
    assert!(ended("Kustomization/a", "Cycle", &[], &verdicts));
    assert!(ended("Kustomization/a", "Dependency", &[], &verdicts));
    assert!(!ended("Kustomization/a", "Health", &[], &verdicts), "it may be unhealthy still");
}

#[test]
fn events_that_the_condition_repeats_are_distinguished_from_others() {
    use crate::condition_reason::is_of_condition;
    for reason in
        ["BuildFailed", "HealthCheckFailed", "DriftCorrectionFailed", "GitOperationFailed"]
    {
        assert!(is_of_condition(reason, true) && !is_of_condition(reason, false), "{reason}");
    }
    assert!(is_of_condition("DependencyNotReady", false));
    for reason in ["AuditFailed", "CRDIncompatible", "Unreadable", "InternalFault", "PruneFailed"] {
        assert!(!is_of_condition(reason, true), "{reason}");
    }
}

/// A state of a Kustomization: a number chooses which, another what it depends on.
fn state(at: usize, kind: usize, on: usize, message: &str) -> Value {
    let suspended = json!({"spec": {"suspend": true}});
    let failed = status("False", "BuildFailed", message);
    let on = depends(&format!("k{on}"));
    let name = format!("k{at}");
    match kind {
        0 => kustomization(&name, &[&on, &ready()]),
        1 => kustomization(&name, &[&on, &failed]),
        2 => kustomization(&name, &[&on, &failed, &suspended]),
        3 => kustomization(&name, &[&on, &waits()]),
        _ => kustomization(&name, &[&on, &status("Unknown", "Progressing", message)]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn incidents_are_about_what_fails_and_end_with_it(
        states in proptest::collection::vec((0usize..5, 0usize..12), 1..12),
        source_fails in any::<bool>(),
    ) {
        let all = |message: &str| {
            let each = states.iter().enumerate();
            let mut all: Vec<Value> =
                each.map(|(at, (kind, on))| state(at, *kind, *on, message)).collect();
            all.push(if source_fails { failed_source() } else { source() });
            FakeClusterObjects::of(&all).verdicts()
        };
        let verdicts = all("first");
        let found = incidents(&verdicts);
        prop_assert!(found.keys().eq(incidents(&all("second")).keys()), "a message counts");
        let mut counted = 0;
        for (subject, problem) in found.keys() {
            let own = verdicts.get(subject).map_or(ReportedObjectState::Absent, |it| it.own);
            prop_assert!(matches!(own, ReportedObjectState::Failing | ReportedObjectState::Absent), "{subject} {own:?}");
            let affected = &found[&(subject.clone(), *problem)].affected;
            prop_assert!(!affected.contains(subject));
            counted += affected.len();
        }
        let with_failure = verdicts.values().filter(|it| it.failure.is_some()).count();
        let subjects = found.keys().filter(|it| verdicts.contains_key(&it.0)).count();
        prop_assert_eq!(counted + subjects, with_failure, "each is in one incident");
        let mut well: Vec<Value> =
            (0..states.len()).map(|at| kustomization(&format!("k{at}"), &[&ready()])).collect();
        well.push(source());
        let well = FakeClusterObjects::of(&well).verdicts();
        prop_assert!(incidents(&well).is_empty());
        for (subject, problem) in found.keys() {
            let affected = BTreeSet::new();
            let record = IncidentRecord {
                subject,
                problem: &problem.to_string(),
                cause: &found[&(subject.clone(), *problem)].failure.cause.subject(),
                affected: &affected,
                kept: None,
                are_all_judged: true,
            };
            prop_assert!(is_over(&record, &well, |_| true));
        }
    }
}
