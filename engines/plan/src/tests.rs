//! Comparisons of small repositories.
//!
//! Below: each format of one plan (`formats`), laws over random repositories and text that attacks (`laws`), plans that are
//! read again and posted (`checks`), appliers whose objects are not known (`unknown_objects`).

use apply::deletion_budget::DeletionBudget;
use objects::{Object, ObjectId};
use serde_json::{Value, json};

use crate::{
    ApplierComparisonStatus, ApplierDeletionBudgets, ChangePlan, HelmReleaseTarget,
    MissingReference, PlanFindingKind, PlanObjectReference, RenderedApplier,
    RenderingComparisonOptions, RepositoryRendering, UnknownValue, compare, table_text,
};

mod formats;
mod plan_json;
mod random_repositories;
mod unknown_objects;

fn object(api: &str, kind: &str, name: &str, fields: &Value) -> Object {
    let mut value = json!({"apiVersion": api, "kind": kind,
        "metadata": {"name": name, "namespace": "shop"}});
    for (key, field) in fields.as_object().unwrap() {
        value[key] = field.clone();
    }
    Object::new(value).unwrap()
}

fn map(name: &str, value: &str) -> Object {
    object("v1", "ConfigMap", name, &json!({"data": {"a": value}}))
}

fn maps(names: &[&str]) -> Vec<Object> {
    names.iter().map(|name| map(name, "1")).collect()
}

fn deployment(app: &str, replicas: u8, image: &str) -> Object {
    let template = json!({"metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "web", "image": image}]}});
    let spec = json!({"replicas": replicas, "template": template,
        "selector": {"matchLabels": {"app": app}}});
    object("apps/v1", "Deployment", "web", &json!({"spec": spec}))
}

fn kustomization(name: &str) -> ObjectId {
    ObjectId::new("flux-system", name, "kustomize.toolkit.fluxcd.io", "Kustomization")
}

/// The object that declares a Kustomization.
fn declaration(name: &str) -> Object {
    let metadata = json!({"name": name, "namespace": "flux-system"});
    object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name, &json!({"metadata": metadata}))
}

fn applier(objects: Vec<Object>) -> RenderedApplier {
    RenderedApplier {
        objects,
        prunes: true,
        deletes_with_itself: true,
        ..RenderedApplier::default()
    }
}

fn child(objects: Vec<Object>, parent: &str) -> RenderedApplier {
    RenderedApplier { parent: Some(kustomization(parent)), ..applier(objects) }
}

fn failed(failure: &str) -> RenderedApplier {
    let failure = Some(failure.to_owned());
    let declaration_digest = "the same declaration".to_owned();
    RenderedApplier { failure, declaration_digest, ..applier(Vec::new()) }
}

fn rendering(revision: &str, appliers: Vec<(&str, RenderedApplier)>) -> RepositoryRendering {
    let appliers = appliers.into_iter().map(|(name, it)| (kustomization(name), it)).collect();
    let revision = revision.to_owned();
    RepositoryRendering { revision, appliers, ..RepositoryRendering::default() }
}

fn plan(base: Vec<(&str, RenderedApplier)>, head: Vec<(&str, RenderedApplier)>) -> ChangePlan {
    compare(
        &rendering("aaa", base),
        &rendering("bbb", head),
        &RenderingComparisonOptions::default(),
    )
}

/// What changes, a line each: `applier: sign object`.
fn lines(plan: &ChangePlan) -> Vec<String> {
    let mut lines = Vec::new();
    for change in &plan.appliers {
        let mut add = |line: String| lines.push(format!("{}: {line}", change.applier.name));
        if change.comparison != ApplierComparisonStatus::Compared {
            add(format!("{:?}", change.comparison));
        }
        change.added.iter().for_each(|it| add(format!("+ {}", it.name)));
        change.changed.iter().for_each(|it| add(format!("~ {}", it.object.name)));
        for moved in &change.moved {
            let shared = if moved.is_shared { " shared" } else { "" };
            add(format!("> {} from {}{shared}", moved.object.name, moved.from.name));
        }
        for removed in &change.removed {
            let left = removed.left_in_cluster.as_ref();
            let left = left.map(|it| format!(" left: {it}")).unwrap_or_default();
            add(format!("- {}{left}", removed.object.name));
        }
    }
    lines
}

fn messages(plan: &ChangePlan) -> Vec<&str> {
    plan.findings.iter().map(|it| it.message.as_str()).collect()
}

#[test]
fn a_part_of_an_applier_is_deleted_by_it_as_far_as_it_prunes() {
    let all = |prunes: bool| RenderedApplier { prunes, ..applier(Vec::new()) };
    let part = || RenderedApplier { is_part_of_parent: true, ..child(maps(&["x"]), "all") };
    let removed = |prunes: bool| {
        plan(vec![("all", all(prunes)), ("all#x", part())], vec![("all", all(prunes))])
    };
    let pruned = removed(true);
    assert_eq!(lines(&pruned), ["all#x: Removed", "all#x: - x"]);
    let by = pruned.appliers.iter().find(|it| it.deletion.is_some()).unwrap();
    assert_eq!((by.applier.name.as_str(), pruned.summary.deleted), ("all", 1));
    assert_eq!(
        lines(&removed(false)),
        ["all#x: Removed", "all#x: - x left: the applier does not prune"]
    );
    let unread =
        plan(vec![("all", all(true)), ("all#x", part())], vec![("all", failed("no such file"))]);
    assert_eq!(lines(&unread), ["all: HeadFailed", "all#x: HeadUnknown"]);
}

#[test]
fn objects_are_added_changed_and_deleted() {
    let base = vec![map("same", "1"), map("other", "1"), map("gone", "1")];
    let head = vec![map("new", "1"), map("other", "2"), map("same", "1")];
    let plan = plan(vec![("apps", applier(base))], vec![("apps", applier(head))]);
    assert_eq!(lines(&plan), ["apps: + new", "apps: ~ other", "apps: - gone"]);
    assert_eq!((plan.summary.unchanged, plan.summary.deleted), (1, 1));
    let verdict = plan.appliers[0].deletion.clone().unwrap();
    assert_eq!((verdict.deleted, verdict.of, verdict.is_within()), (1, 3, true));
    assert!(plan.findings.is_empty() && !plan.is_unchanged());
}

#[test]
fn what_is_applied_alike_is_unchanged() {
    let limits = |cpu: Value| {
        let container = json!({"name": "web", "image": "a", "resources": {"limits": {"cpu": cpu}}});
        let fields = json!({"spec": {"containers": [container]}, "status": {"phase": "x"}});
        vec![("apps", applier(vec![object("v1", "Pod", "web", &fields)]))]
    };
    assert!(plan(limits(json!(0.5)), limits(json!("500m"))).is_unchanged());
    assert!(!plan(limits(json!(0.5)), limits(json!("600m"))).is_unchanged());
}

#[test]
fn an_object_that_another_applier_takes_over_is_moved_and_not_deleted() {
    let base = vec![("a", applier(maps(&["x", "y"]))), ("b", applier(vec![]))];
    let head = vec![("a", applier(maps(&["y"]))), ("b", applier(vec![map("x", "2")]))];
    let moved = plan(base, head);
    assert_eq!(lines(&moved), ["b: > x from a"]);
    assert_eq!(moved.appliers[0].moved_away, 1);
    let to = &moved.appliers[0].moved_to[0];
    assert_eq!((to.object.name.as_str(), to.to.name.as_str()), ("x", "b"));
    assert_eq!(moved.appliers[1].moved[0].fields.fields[0].path, "/data/a");
    assert!(moved.appliers.iter().all(|it| it.deletion.is_none()));
    let base = || vec![("a", applier(maps(&["x"])))];
    let both = plan(base(), vec![("a", applier(maps(&["x"]))), ("b", applier(maps(&["x"])))]);
    assert_eq!(lines(&both), ["b: New", "b: > x from a shared"]);
    let elsewhere = RenderedApplier { target_cluster: "west".to_owned(), ..applier(maps(&["x"])) };
    let other_cluster = plan(base(), vec![("a", applier(vec![])), ("b", elsewhere)]);
    assert_eq!(lines(&other_cluster), ["a: - x", "b: New", "b: + x"]);
}

#[test]
fn what_leaves_a_release_of_helm_is_deleted_unless_a_release_of_another_name_takes_it_over() {
    let target = |name: &str| HelmReleaseTarget {
        name: format!("shop/{name}"),
        chart: "chart".to_owned(),
        ..HelmReleaseTarget::default()
    };
    let of_target =
        |target| RenderedApplier { helm_release: Some(target), ..child(maps(&["x"]), "root") };
    let release = |name: &str| of_target(target(name));
    let root = |declared: &str| applier(vec![declaration(declared)]);
    let moved = |from: RenderedApplier, to: RenderedApplier| {
        let base = vec![("root", root("a")), ("a", from)];
        lines(&plan(base, vec![("root", root("b")), ("b", to)]))
    };
    let again = ["a: Removed", "a: - x", "b: New", "b: + x", "root: + b", "root: - a"];
    assert_eq!(moved(release("web"), release("web")), again);
    assert_eq!(moved(release("web"), child(maps(&["x"]), "root")), again);
    let kept = ["a: Removed", "b: New", "b: > x from a", "root: + b", "root: - a"];
    assert_eq!(moved(release("web"), release("other")), kept);
    assert_eq!(moved(child(maps(&["x"]), "root"), release("web")), kept);
    // A suspended one leaves its objects when it is deleted.
    let suspended = RenderedApplier { is_suspended: true, ..release("web") };
    assert_eq!(moved(suspended, release("web")), kept);
    let becomes = |head| lines(&plan(vec![("a", release("web"))], vec![("a", head)]));
    let anew = ["a: + x", "a: - x"];
    assert_eq!(becomes(release("other")), anew);
    assert!(becomes(RenderedApplier { is_suspended: true, ..release("other") }).is_empty());
    let storage_namespace = "records".to_owned();
    assert_eq!(becomes(of_target(HelmReleaseTarget { storage_namespace, ..target("web") })), anew);
    let other_chart = HelmReleaseTarget { chart: "other".to_owned(), ..target("web") };
    assert_eq!(becomes(of_target(other_chart.clone())), anew);
    let in_place = HelmReleaseTarget { keeps_with_other_chart: true, ..other_chart };
    assert!(becomes(of_target(in_place)).is_empty());
}

#[test]
fn an_applier_that_fails_removes_nothing() {
    let base = || vec![("a", applier(maps(&["x", "y"]))), ("b", applier(maps(&["z"])))];
    let broken = plan(base(), vec![("a", failed("boom")), ("b", applier(maps(&["z"])))]);
    assert_eq!(lines(&broken), ["a: HeadFailed"]);
    assert_eq!(messages(&broken), ["cannot be rendered: boom"]);
    assert_eq!((broken.summary.removed, broken.summary.not_compared), (0, 1));
    let alone = plan(vec![("a", failed("boom"))], vec![("a", applier(maps(&["x"])))]);
    assert_eq!(lines(&alone), ["a: BaseFailed"]);
    assert_eq!(alone.appliers[0].not_compared.len(), 1);
    let always = plan(vec![("a", failed("boom"))], vec![("a", failed("boom"))]);
    assert_eq!(messages(&always), ["cannot be rendered, as before: boom"]);
}

#[test]
fn an_applier_below_one_that_fails_is_not_taken_for_removed() {
    let tree = |root: RenderedApplier| {
        vec![
            ("root", root),
            ("middle", child(vec![declaration("leaf")], "root")),
            ("leaf", child(maps(&["x"]), "middle")),
        ]
    };
    let base = tree(applier(vec![declaration("middle")]));
    let broken = plan(base.clone(), vec![("root", failed("boom"))]);
    assert_eq!(lines(&broken), ["leaf: HeadUnknown", "middle: HeadUnknown", "root: HeadFailed"]);
    let fixed = plan(vec![("root", failed("boom"))], base.clone());
    assert_eq!(lines(&fixed), ["leaf: BaseUnknown", "middle: BaseUnknown", "root: BaseFailed"]);
    // Declared, and not rendered.
    let head = vec![("root", applier(vec![declaration("middle")]))];
    let unknown = ["leaf: HeadUnknown", "middle: HeadUnknown"];
    assert_eq!(lines(&plan(base.clone(), head)), unknown);
    let mut head = rendering("bbb", vec![("root", applier(vec![declaration("middle")]))]);
    head.incomplete = Some("too many appliers".to_owned());
    let partial = compare(&rendering("aaa", base), &head, &RenderingComparisonOptions::default());
    assert_eq!(lines(&partial), unknown);
    assert_eq!(messages(&partial)[0], "the head was not read to its end: too many appliers");
}

#[test]
fn an_applier_that_is_removed_takes_along_what_is_below_it_each_object_once() {
    let base = || {
        vec![
            ("root", applier(vec![declaration("middle"), map("kept", "1")])),
            ("middle", child(vec![declaration("leaf"), map("m", "1")], "root")),
            ("leaf", child(maps(&["m", "x"]), "middle")),
        ]
    };
    let head = || vec![("root", applier(maps(&["kept"])))];
    let removed = plan(base(), head());
    assert_eq!(
        lines(&removed),
        [
            "leaf: Removed",
            "leaf: - m",
            "leaf: - x",
            "middle: Removed",
            "middle: - leaf",
            "middle: - m",
            "root: - middle"
        ]
    );
    let verdict = removed.appliers[2].deletion.clone().unwrap();
    assert_eq!((verdict.deleted, verdict.of), (4, 6));
    let expected = "deletes 4 of 6 objects: Kustomization/flux-system/leaf and 1 more, whose deletion deletes more than themselves";
    assert_eq!(messages(&removed), [expected]);
    let mut orphaned = base();
    orphaned[1].1.deletes_with_itself = false;
    let orphaned = plan(orphaned, head());
    let left = "the applier leaves its objects when it is deleted";
    assert_eq!(lines(&orphaned)[1], format!("leaf: - m left: {left}"));
    assert_eq!(orphaned.appliers[2].deletion.as_ref().unwrap().deleted, 1);
}

#[test]
fn an_applier_that_does_not_prune_or_is_suspended_leaves_objects_in_the_cluster() {
    let base = || vec![("a", applier(maps(&["x"])))];
    let head = |change: fn(&mut RenderedApplier)| {
        let mut applier = applier(vec![]);
        change(&mut applier);
        lines(&plan(base(), vec![("a", applier)]))
    };
    assert_eq!(head(|_| {}), ["a: - x"]);
    assert_eq!(head(|it| it.prunes = false), ["a: - x left: the applier does not prune"]);
    assert_eq!(head(|it| it.is_suspended = true), ["a: - x left: the applier is suspended"]);
    let gone = plan(base(), vec![]);
    let expected = ["a: Removed", "a: - x left: no applier is known that deletes the applier"];
    assert_eq!(lines(&gone), expected);
    let mut kept = map("x", "1");
    kept.set_annotation("kustomize.toolkit.fluxcd.io/prune", "disabled");
    let excluded = plan(vec![("a", applier(vec![kept]))], vec![("a", applier(vec![]))]);
    let expected = ["a: - x left: its annotations or labels exclude it from deletion"];
    assert_eq!(lines(&excluded), expected);
    assert_eq!(excluded.appliers[0].deletion, None);
}

#[test]
fn a_suspended_applier_takes_nothing_over_and_one_that_is_resumed_is_named() {
    let suspended = |names: &[&str]| RenderedApplier { is_suspended: true, ..applier(maps(names)) };
    let base = || vec![("a", applier(maps(&["x"]))), ("b", suspended(&[]))];
    let head = vec![("a", applier(vec![])), ("b", suspended(&["x"]))];
    let taken = plan(base(), head);
    assert_eq!(lines(&taken), ["a: - x", "b: + x"]);
    assert_eq!(taken.summary.deleted, 1);
    let kept = plan(vec![("b", suspended(&["x"]))], vec![("b", applier(maps(&["x"])))]);
    assert!(kept.appliers[0].is_resumed && !kept.is_unchanged());
    assert!(crate::table_text(&kept).contains("! it is resumed"));
}

#[test]
fn former_versions_of_generated_objects_are_removed_and_not_judged() {
    let generated = |hash: &str| {
        let names = ('a'..='l').map(|letter| format!("{letter}-{hash}"));
        names.map(|name| map(&name, "1")).collect::<Vec<Object>>()
    };
    let base = vec![("apps", applier(generated("bcdfgh4567")))];
    let changed = plan(base.clone(), vec![("apps", applier(generated("2c5f7g9hkm")))]);
    assert_eq!(changed.summary.deleted, 12);
    assert_eq!(changed.appliers[0].deletion, None);
    assert!(changed.findings.is_empty(), "{:?}", changed.findings);
    let gone = plan(base, vec![("apps", applier(maps(&["kept"])))]);
    assert_eq!(gone.appliers[0].deletion.as_ref().unwrap().deleted, 12);
}

#[test]
fn many_deletions_are_over_the_budget() {
    let names: Vec<String> = (0..12).map(|at| format!("m{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let over = plan(vec![("a", applier(maps(&names)))], vec![("a", applier(maps(&names[..1])))]);
    let expected = "deletes 11 of 12 objects: more than 10 objects; more than 30 % of the objects";
    assert_eq!(messages(&over), [expected]);
    assert_eq!(over.appliers[0].deletion.as_ref().unwrap().first.len(), 10);
}

#[test]
fn a_kustomization_without_any_object_is_over_the_budget_however_few_it_had() {
    let base = || vec![("a", applier(maps(&["x"])))];
    let emptied = plan(base(), vec![("a", applier(vec![]))]);
    assert_eq!(messages(&emptied), ["deletes 1 of 1 objects: the build has no objects at all"]);
    let all = |count: usize| {
        let exempt = apply::deletion_budget::DeletionExemption {
            group: String::new(),
            kind: "ConfigMap".to_owned(),
            match_labels: std::collections::BTreeMap::new(),
        };
        let default = DeletionBudget { exempt: [exempt].into(), ..DeletionBudget::default() };
        let budgets = ApplierDeletionBudgets { default, ..ApplierDeletionBudgets::default() };
        let options =
            RenderingComparisonOptions { budgets, ..RenderingComparisonOptions::default() };
        let names: Vec<String> = (0..12).map(|at| format!("m{at:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let [before, after] = [&names[..], &names[..count]]
            .map(|names| rendering("aaa", vec![("a", applier(maps(names)))]));
        messages(&compare(&before, &after, &options)).len()
    };
    assert_eq!(all(1), 0, "they are exempt");
    assert_eq!(all(0), 1, "a build without objects exempts none");
    let moved = plan(base(), vec![("a", applier(vec![])), ("b", applier(maps(&["x"])))]);
    assert!(messages(&moved).is_empty(), "what moves is not deleted: {moved:#?}");
    let before = vec![("a", applier(maps(&["x", "y"])))];
    assert!(messages(&plan(before, base())).is_empty());
}

#[test]
fn images_and_immutable_fields_are_found_in_changed_and_moved_objects() {
    let base = || vec![("a", applier(vec![deployment("x", 1, "nginx:1")]))];
    let changed = plan(base(), vec![("a", applier(vec![deployment("y", 1, "nginx:2")]))]);
    assert_eq!(changed.appliers[0].images.len(), 1);
    let rejected = "`spec.selector` of a Deployment is immutable; the API server rejects it, unless the applier has `force`";
    assert_eq!(messages(&changed), [rejected]);
    let forcing = RenderedApplier { forces: true, ..applier(vec![deployment("y", 1, "nginx:2")]) };
    let moved = plan(base(), vec![("b", forcing)]);
    assert_eq!(lines(&moved), ["a: Removed", "b: New", "b: > web from a"]);
    let recreated =
        "`spec.selector` of a Deployment is immutable; the object is deleted and created again";
    assert_eq!(messages(&moved), [recreated]);
    let added = plan(vec![], vec![("a", applier(vec![deployment("x", 1, "nginx:1")]))]);
    assert_eq!(added.appliers[0].images[0].new.as_deref(), Some("nginx:1"));
}

#[test]
fn an_applier_with_too_many_objects_is_not_compared() {
    let many: Vec<Object> = (0..10_001).map(|at| map(&format!("m{at}"), "1")).collect();
    let large = plan(vec![("a", applier(many))], vec![("a", applier(vec![]))]);
    assert_eq!(lines(&large), ["a: TooLarge"]);
    assert_eq!(large.summary.removed, 0);
}

#[test]
fn what_is_not_known_is_listed_once_and_is_no_change() {
    let unknown = |what: &str| UnknownValue { what: what.to_owned(), reason: "why".to_owned() };
    let values = vec![unknown("b"), unknown("a"), unknown("b")];
    let side = || {
        let applier = applier(maps(&["x"]));
        vec![("a", RenderedApplier { unknown_values: values.clone(), ..applier })]
    };
    let plan = plan(side(), side());
    assert_eq!(plan.appliers[0].unknown_values, [unknown("a"), unknown("b")]);
    assert!(plan.is_unchanged());
}

#[test]
fn a_reference_that_the_cluster_lacks_is_an_error_unless_it_was_missing_before() {
    let missing = |names: &[&str]| {
        let reference = |name: &&str| MissingReference {
            object: (&ObjectId::new("shop", name, "", "ConfigMap")).into(),
            field: "spec.postBuild.substituteFrom".to_owned(),
        };
        let missing_references = names.iter().map(reference).collect();
        vec![("a", RenderedApplier { missing_references, ..applier(maps(&["x"])) })]
    };
    let new = plan(missing(&["old"]), missing(&["old", "new"]));
    let found: Vec<_> = new.findings.iter().map(|it| (it.rule, it.object.clone())).collect();
    let object = PlanObjectReference::from(&ObjectId::new("shop", "new", "", "ConfigMap"));
    assert_eq!(found, [(PlanFindingKind::MissingReference, Some(object))]);
    assert!(
        table_text(&new)
            .contains("! missing ConfigMap/shop/new: spec.postBuild.substituteFrom needs it")
    );
    assert!(plan(missing(&["old"]), missing(&["old"])).is_unchanged());
}

#[test]
fn the_version_of_a_chart_is_named_also_where_it_stays() {
    let side = |value: &str| {
        let release = RenderedApplier {
            source_revision: "web@1.2.3".to_owned(),
            ..applier(vec![map("x", value)])
        };
        let id = ObjectId::new("shop", "web", "helm.toolkit.fluxcd.io", "HelmRelease");
        RepositoryRendering { appliers: [(id, release)].into(), ..RepositoryRendering::default() }
    };
    let text = table_text(&compare(&side("1"), &side("2"), &RenderingComparisonOptions::default()));
    assert!(text.contains("\n    source: web@1.2.3\n"), "{text}");
}

#[test]
fn a_cluster_names_what_cannot_be_read_and_judges_a_part_of_what_was_recorded() {
    let unread =
        UnknownValue { what: "ConfigMap/shop/x".to_owned(), reason: "forbidden".to_owned() };
    let names = ["a", "b", "c", "d"];
    let base = |recorded_objects| RenderedApplier {
        recorded_objects,
        unread_objects: vec![unread.clone()],
        ..applier(maps(&names))
    };
    let compared = |recorded| {
        plan(vec![("apps", base(recorded))], vec![("apps", applier(maps(&["a", "b", "c"])))])
    };
    let plan = compared(Some(20));
    let apps = &plan.appliers[0];
    assert_eq!(apps.unknown_values, std::slice::from_ref(&unread));
    assert_eq!(apps.deletion.as_ref().map(|it| (it.deleted, it.of)), Some((1, 20)));
    assert_eq!(compared(None).appliers[0].deletion.as_ref().map(|it| it.of), Some(4));
}

#[test]
fn an_applier_is_judged_by_its_own_budget_and_one_without_limits_by_none() {
    let many: Vec<String> = (0..20).map(|at| format!("m{at:02}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let base = rendering("aaa", vec![("apps", applier(maps(&many)))]);
    let head = rendering("bbb", vec![("apps", applier(maps(&many[..18])))]);
    let found = |budget: Option<Option<DeletionBudget>>| {
        let of_appliers = budget.map(|budget| (kustomization("apps"), budget)).into_iter();
        let budgets = ApplierDeletionBudgets {
            of_appliers: of_appliers.collect(),
            ..ApplierDeletionBudgets::default()
        };
        let options =
            RenderingComparisonOptions { budgets, ..RenderingComparisonOptions::default() };
        compare(&base, &head, &options)
    };
    let strict = DeletionBudget { max_objects: 1, ..DeletionBudget::default() };
    assert!(found(None).findings.is_empty());
    assert_eq!(
        messages(&found(Some(Some(strict)))),
        ["deletes 2 of 20 objects: more than 1 objects"]
    );
    let head = rendering("bbb", vec![("apps", applier(maps(&["m00"])))]);
    let of_appliers = [(kustomization("apps"), None)].into();
    let budgets = ApplierDeletionBudgets { of_appliers, ..ApplierDeletionBudgets::default() };
    let options = RenderingComparisonOptions { budgets, ..RenderingComparisonOptions::default() };
    assert!(compare(&base, &head, &options).findings.is_empty(), "nothing is limited");
}

#[test]
fn only_the_appliers_of_a_namespace_are_listed_and_counted() {
    let base = rendering("aaa", vec![("apps", applier(maps(&["a"])))]);
    let head = rendering("bbb", vec![("apps", applier(maps(&["a", "b"])))]);
    let listed = |namespace: &str| {
        let namespace = Some(namespace.to_owned());
        compare(
            &base,
            &head,
            &RenderingComparisonOptions { namespace, ..RenderingComparisonOptions::default() },
        )
    };
    assert_eq!(listed("flux-system").summary.added, 1);
    let other = listed("shop");
    assert!(other.appliers.is_empty() && other.summary.added == 0, "{other:#?}");
}
