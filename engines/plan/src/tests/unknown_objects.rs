//! Appliers whose objects are not known on one side, because something cannot be rendered or is not fetched.

use super::*;
use crate::{FindingLevel, PlanFailureRule, check_status};

/// An applier whose files or chart were not fetched.
fn not_fetched(applier: RenderedApplier) -> RenderedApplier {
    RenderedApplier {
        failure: Some("chart web was not fetched".to_owned()),
        is_not_fetched: true,
        objects: Vec::new(),
        ..applier
    }
}

/// A release that `root` declares.
fn release(objects: Vec<Object>) -> RenderedApplier {
    let helm_release = Some(HelmReleaseTarget::default());
    RenderedApplier {
        helm_release,
        source_revision: "web@1.0.0".to_owned(),
        ..child(objects, "root")
    }
}

fn release_id() -> ObjectId {
    ObjectId::new("flux-system", "web", "helm.toolkit.fluxcd.io", "HelmRelease")
}

/// The object that declares the release.
fn release_declaration() -> Object {
    let metadata = json!({"name": "web", "namespace": "flux-system"});
    object("helm.toolkit.fluxcd.io/v2", "HelmRelease", "web", &json!({"metadata": metadata}))
}

/// A repository with the Kustomization `root`, and with the release if there is one.
fn with_release(release: Option<RenderedApplier>) -> RepositoryRendering {
    let declared = release.iter().map(|_| release_declaration());
    let objects: Vec<Object> = [map("kept", "1")].into_iter().chain(declared).collect();
    let mut side = rendering("aaa", vec![("root", applier(objects))]);
    side.appliers.extend(release.map(|it| (release_id(), it)));
    side
}

fn compared(base: &RepositoryRendering, head: &RepositoryRendering) -> ChangePlan {
    compare(base, head, &RenderingComparisonOptions::default())
}

#[test]
fn a_removed_release_whose_chart_was_not_fetched_is_removed_with_objects_that_are_not_known() {
    let base = with_release(Some(not_fetched(release(Vec::new()))));
    let plan = compared(&base, &with_release(None));
    assert_eq!(lines(&plan), ["root: - web", "web: Removed"]);
    let web = &plan.appliers[1];
    let removal = web.unknown_removal.as_ref().unwrap();
    assert_eq!(removal.reason, "chart web was not fetched");
    assert_eq!(removal.left_in_cluster, None);
    assert!(!web.fails_in_base && web.not_compared.is_empty());
    assert_eq!((plan.summary.unknown_removals, plan.summary.not_compared), (1, 0));
    let subject = "HelmRelease/flux-system/web";
    assert_eq!(
        messages(&plan),
        [format!(
            "deletes 1 of 2 objects: {subject}, whose deletion deletes more than itself; \
             {subject} is uninstalled, and its objects are not known"
        )]
    );
    let text = table_text(&plan);
    assert!(
        text.contains("HelmRelease/flux-system/web: removed: its objects are not known\n"),
        "{text}"
    );
    assert!(text.contains("\n    source: web@1.0.0\n"), "{text}");
    let line = "  - uninstalled with its objects; which they are is not known: chart web was not fetched\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("1 applier removed with objects that are not known"), "{text}");
    for rule in [PlanFailureRule::UnknownValues, PlanFailureRule::Destruction] {
        assert!(!check_status(&plan, &[rule]).is_success);
    }
    let json = serde_json::to_vec(&plan).unwrap();
    assert_eq!(ChangePlan::from_untrusted_json(&json).unwrap(), plan);
}

#[test]
fn a_removed_kustomization_that_could_not_be_built_is_removed_and_its_objects_stay_as_it_says() {
    let broken = |deletes_with_itself: bool| RenderedApplier {
        deletes_with_itself,
        parent: Some(kustomization("root")),
        ..failed("boom")
    };
    let removed = |deletes_with_itself: bool| {
        let root = applier(vec![declaration("middle"), map("kept", "1")]);
        let base = vec![("root", root), ("middle", broken(deletes_with_itself))];
        plan(base, vec![("root", applier(maps(&["kept"])))])
    };
    let deleted = removed(true);
    assert_eq!(lines(&deleted), ["middle: Removed", "root: - middle"]);
    let text = "Kustomization/flux-system/middle is deleted, and its objects are not known";
    assert!(messages(&deleted)[0].ends_with(text), "{deleted:#?}");
    let orphaned = removed(false);
    let left = orphaned.appliers[0].unknown_removal.as_ref().unwrap().left_in_cluster.as_deref();
    assert_eq!(left, Some("the applier leaves its objects when it is deleted"));
    assert!(!messages(&orphaned)[0].contains("not known"), "{orphaned:#?}");
    assert!(table_text(&orphaned).contains("- removed, and its objects are left in the cluster: "));
}

#[test]
fn a_removed_part_of_an_applier_is_beyond_the_budget_although_no_object_of_it_is_known() {
    let part = RenderedApplier { is_part_of_parent: true, ..not_fetched(child(Vec::new(), "all")) };
    let removed = |prunes: bool| {
        let all = RenderedApplier { prunes, ..applier(Vec::new()) };
        plan(vec![("all", all.clone()), ("all#x", part.clone())], vec![("all", all)])
    };
    let pruned = removed(true);
    assert_eq!(
        messages(&pruned),
        ["Kustomization/flux-system/all#x is deleted, and its objects are not known"]
    );
    assert_eq!(pruned.findings[0].applier.as_ref().unwrap().name, "all");
    assert!(messages(&removed(false)).is_empty(), "it stays");
}

#[test]
fn an_applier_without_limits_may_delete_what_is_not_known() {
    let base = with_release(Some(not_fetched(release(Vec::new()))));
    let of_appliers = [(kustomization("root"), None)].into();
    let budgets = ApplierDeletionBudgets { of_appliers, ..ApplierDeletionBudgets::default() };
    let options = RenderingComparisonOptions { budgets, ..RenderingComparisonOptions::default() };
    let plan = compare(&base, &with_release(None), &options);
    assert!(plan.findings.is_empty() && plan.summary.unknown_removals == 1, "{plan:#?}");
}

#[test]
fn a_release_that_was_not_fetched_is_not_taken_for_removed_if_what_declares_it_fails() {
    let base = with_release(Some(not_fetched(release(Vec::new()))));
    let broken = compared(&base, &rendering("bbb", vec![("root", failed("boom"))]));
    assert_eq!(lines(&broken), ["root: HeadFailed", "web: HeadUnknown"]);
    assert!(broken.appliers.iter().all(|it| it.unknown_removal.is_none()));
    let unread = rendering("bbb", vec![("root", not_fetched(applier(Vec::new())))]);
    let unread = compared(&base, &unread);
    assert_eq!(lines(&unread), ["root: HeadNotFetched", "web: HeadNotFetched"]);
    assert!(unread.findings.iter().all(|it| it.level == FindingLevel::Error), "{unread:#?}");
}

#[test]
fn what_is_not_fetched_is_not_known_whether_it_is_added_or_changed() {
    let unread = || with_release(Some(not_fetched(release(Vec::new()))));
    let rendered = with_release(Some(release(maps(&["x"]))));
    let broken = with_release(Some(RenderedApplier {
        failure: Some("boom".to_owned()),
        ..release(Vec::new())
    }));
    let found = |base: &RepositoryRendering, head: &RepositoryRendering| {
        let plan = compared(base, head);
        let web = plan.appliers.iter().find(|it| it.applier.name == "web").unwrap();
        (web.comparison, web.fails_in_base, plan.findings[0].level)
    };
    let unknown = (ApplierComparisonStatus::HeadNotFetched, false, FindingLevel::Error);
    assert_eq!(found(&with_release(None), &unread()), unknown);
    assert_eq!(found(&unread(), &unread()), unknown, "the declarations may differ");
    assert_eq!(found(&rendered, &unread()), unknown);
    assert_eq!(found(&broken, &unread()), unknown);
    let alone = (ApplierComparisonStatus::BaseNotFetched, false, FindingLevel::Error);
    assert_eq!(found(&unread(), &rendered), alone);
    // Nothing says that it failed before.
    let failing = (ApplierComparisonStatus::HeadFailed, false, FindingLevel::Error);
    assert_eq!(found(&unread(), &broken), failing);
}

#[test]
fn a_failure_that_says_nothing_of_the_applier_counts_as_before_only_with_the_same_declaration() {
    let side = |digest: &str, is_interrupted: bool| {
        with_release(Some(RenderedApplier {
            is_interrupted,
            is_not_fetched: !is_interrupted,
            declaration_digest: digest.to_owned(),
            ..not_fetched(release(Vec::new()))
        }))
    };
    let found = |base: &RepositoryRendering, head: &RepositoryRendering| {
        let plan = compared(base, head);
        let web = plan.appliers.iter().find(|it| it.applier.name == "web").unwrap();
        let passes = check_status(&plan, &[PlanFailureRule::Errors]).is_success;
        assert_eq!((web.fails_in_base, web.fails_alike), (passes, passes), "{plan:#?}");
        (web.comparison, passes)
    };
    for (is_interrupted, comparison) in [
        (false, ApplierComparisonStatus::HeadNotFetched),
        (true, ApplierComparisonStatus::HeadFailed),
    ] {
        let side = |digest: &str| side(digest, is_interrupted);
        assert_eq!(found(&side("a"), &side("a")), (comparison, true));
        assert_eq!(found(&side("a"), &side("b")), (comparison, false));
        assert_eq!(found(&side(""), &side("")), (comparison, false));
    }
}

#[test]
fn an_applier_that_is_broken_on_both_sides_is_a_warning_only_if_it_does_not_change() {
    let broken = |digest: &str| {
        let declaration_digest = digest.to_owned();
        rendering("aaa", vec![("a", RenderedApplier { declaration_digest, ..failed("boom") })])
    };
    let same = compared(&broken("a"), &broken("a"));
    assert_eq!(messages(&same), ["cannot be rendered, as before: boom"]);
    assert_eq!(same.findings[0].level, FindingLevel::Warning);
    let changed = compared(&broken("a"), &broken("b"));
    assert_eq!(
        messages(&changed),
        ["cannot be rendered, so what its change deletes is not known: boom"]
    );
    assert_eq!(changed.findings[0].level, FindingLevel::Error);
    assert!(changed.appliers[0].fails_in_base, "the exit status is that of a base that fails");
}

#[test]
fn an_applier_that_is_declared_where_nothing_is_followed_does_not_pass() {
    let followed = || {
        let root = applier(vec![declaration("middle")]);
        rendering("aaa", vec![("root", root), ("middle", child(maps(&["x"]), "root"))])
    };
    // Such as by a release of a Helmfile.
    let hidden = || rendering("bbb", vec![("root", applier(vec![declaration("middle")]))]);
    for (base, head, comparison) in [
        (followed(), hidden(), ApplierComparisonStatus::HeadUnknown),
        (hidden(), followed(), ApplierComparisonStatus::BaseNotFetched),
    ] {
        let plan = compared(&base, &head);
        let middle = plan.appliers.iter().find(|it| it.applier.name == "middle").unwrap();
        assert_eq!(middle.comparison, comparison);
        assert!(!check_status(&plan, &[PlanFailureRule::Errors]).is_success, "{plan:#?}");
    }
}

#[test]
fn files_of_a_source_that_is_at_another_place_do_not_pass() {
    let moved = UnknownValue { what: "files of a".to_owned(), reason: "it moved".to_owned() };
    let side = |moved_sources: Vec<UnknownValue>| {
        rendering("aaa", vec![("a", RenderedApplier { moved_sources, ..applier(maps(&["x"])) })])
    };
    let plan = compared(&side(Vec::new()), &side(vec![moved]));
    assert_eq!(messages(&plan), ["files of a are not known: it moved"]);
    assert!(!check_status(&plan, &[PlanFailureRule::Errors]).is_success);
    assert!(table_text(&plan).contains("  ! not known: files of a: it moved\n"));
}

#[test]
fn an_applier_that_cannot_be_read_in_a_cluster_is_not_taken_for_removed() {
    let mut cluster = rendering("cluster", vec![("a", failed("forbidden"))]);
    cluster.is_cluster = true;
    let plan = compared(&cluster, &rendering("bbb", Vec::new()));
    assert_eq!(lines(&plan), ["a: BaseFailed"]);
    assert_eq!(messages(&plan), ["is not known in the base: forbidden"]);
}
