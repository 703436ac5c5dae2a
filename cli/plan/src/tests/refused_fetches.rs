//! Tests of charts and files that are not fetched, because the host is not allowed or the source is another one.

use super::*;

const CHARTS: &str = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\n\
                      metadata: {name: charts, namespace: flux-system}\n\
                      spec: {url: https://charts.example.com, interval: 1h}\n";

/// A release of a chart whose host is not allowed.
fn unfetched_release(version: &str) -> String {
    let source = "sourceRef: {kind: HelmRepository, name: charts}";
    helm_release(&format!("{{chart: web, version: {version}, {source}}}"), "{}")
}

/// A repository with these files for its cluster, and with further files that stay.
fn repository(files: &[(&str, &str)]) -> FleetRepository {
    let kept = config_map("kept", "1");
    let mut all = vec![("cluster/charts.yaml", CHARTS), ("cluster/kept.yaml", kept.as_str())];
    all.extend(files);
    FleetRepository::new(&all)
}

/// The exit codes without and with `--detailed-exitcode`.
fn exit_codes(plan: &ChangePlan) -> [ExitCode; 2] {
    [false, true].map(|is_detailed| exit_code(plan, is_detailed))
}

const NOT_KNOWN: [ExitCode; 2] = [ExitCode::Success, ExitCode::ProblemsFound];

#[test]
fn a_release_of_a_host_that_is_not_allowed_ends_alike_whether_it_is_added_changed_or_removed() {
    let repository = repository(&[]);
    repository.commit(&[("cluster/web.yaml", &unfetched_release("1.0.0"))]);
    let added = repository.plan();
    repository.commit(&[("cluster/web.yaml", &unfetched_release("2.0.0"))]);
    let changed = repository.plan();
    repository.remove("cluster/web.yaml");
    repository.commit(&[]);
    let removed = repository.plan();
    for plan in [&added, &changed, &removed] {
        assert!(!passes(plan), "{plan:#?}");
    }
    for plan in [&added, &changed] {
        let web = change(plan, "web");
        assert_eq!(web.comparison, ApplierComparisonStatus::HeadNotFetched);
        assert!(web.message.as_ref().unwrap().contains("--allow-hosts=charts.example.com"));
        assert_eq!(exit_codes(plan), NOT_KNOWN, "{plan:#?}");
    }
    assert_eq!(exit_codes(&removed), NOT_KNOWN, "{removed:#?}");
    let web = change(&removed, "web");
    assert_eq!(web.comparison, ApplierComparisonStatus::Removed, "{removed:#?}");
    assert_eq!(web.file.as_deref(), Some("cluster/web.yaml"));
    assert_eq!(web.base_source_revision.as_deref(), Some("web@2.0.0"));
    let removal = web.unknown_removal.as_ref().unwrap();
    assert!(removal.reason.contains("--allow-hosts=charts.example.com"), "{removal:?}");
    assert_eq!(removal.left_in_cluster, None);
    let message = &removed.findings[0].message;
    let text = "HelmRelease/flux-system/web is uninstalled, and its objects are not known";
    assert!(message.starts_with("deletes 1 of ") && message.ends_with(text), "{message}");
}

#[test]
fn a_release_that_cannot_be_rendered_is_a_failure_although_its_former_chart_was_not_fetched() {
    let release = unfetched_release("1.0.0");
    let repository = repository(&[&CHART[..], &[("cluster/web.yaml", release.as_str())]].concat());
    repository.commit(&[
        ("cluster/web.yaml", &helm_release(LOCAL_CHART, "{}")),
        ("charts/web/templates/broken.yaml", "{{ fail \"broken\" }}"),
    ]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "web").comparison, ApplierComparisonStatus::HeadFailed);
    assert_eq!(exit_codes(&plan), [ExitCode::Failed; 2]);
}

#[test]
fn a_suspended_release_that_is_removed_leaves_its_objects() {
    let release = format!("{}  suspend: true\n", unfetched_release("1.0.0"));
    let repository = repository(&[("cluster/web.yaml", &release)]);
    repository.remove("cluster/web.yaml");
    repository.commit(&[]);
    let plan = repository.plan();
    let removal = change(&plan, "web").unknown_removal.as_ref().unwrap();
    assert_eq!(removal.left_in_cluster.as_deref(), Some("the applier is suspended"));
    assert!(!plan.findings.iter().any(|it| it.message.contains("uninstalled")), "{plan:#?}");
}

#[test]
fn a_release_below_a_kustomization_that_fails_in_the_head_is_not_taken_for_removed() {
    let release = unfetched_release("1.0.0");
    let repository = repository(&[
        ("cluster/apps.yaml", &kustomization("apps", "./apps", "")),
        ("apps/web.yaml", &release),
    ]);
    repository.commit(&[("apps/web.yaml", "kind: [")]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "web").comparison, ApplierComparisonStatus::HeadUnknown, "{plan:#?}");
    assert_eq!(change(&plan, "web").unknown_removal, None);
    assert_eq!(exit_codes(&plan), [ExitCode::Failed; 2]);
}

#[test]
fn a_removed_kustomization_whose_objects_are_not_known_is_removed_as_its_spec_says() {
    let of_source = |more: &str| {
        let other = "kind: OCIRepository, name: other";
        kustomization("a", "./a", more).replace("kind: GitRepository, name: flux-system", other)
    };
    let left = Some("the applier leaves its objects when it is deleted");
    for (spec, files, left) in [
        (of_source(""), [("a/one.yaml", "")], None),
        (of_source("deletionPolicy: Orphan"), [("a/one.yaml", "")], left),
        (kustomization("a", "./a", ""), [("a/one.yaml", "kind: [")], None),
        (kustomization("a", "./a", "deletionPolicy: Orphan"), [("a/one.yaml", "kind: [")], left),
        // Removing an applier whose spec cannot be read keeps its objects.
        (kustomization("a", "./a", "wait: maybe"), [("a/one.yaml", "")], None),
    ] {
        let repository = repository(&[&files[..], &[("cluster/a.yaml", spec.as_str())]].concat());
        repository.remove("cluster/a.yaml");
        repository.commit(&[]);
        let plan = repository.plan();
        let of_a = change(&plan, "a");
        assert_eq!(of_a.comparison, ApplierComparisonStatus::Removed, "{plan:#?}");
        let removal = of_a.unknown_removal.as_ref().unwrap();
        assert_eq!(removal.left_in_cluster.as_deref(), left, "{spec}");
        let text = "Kustomization/flux-system/a is deleted, and its objects are not known";
        let is_named = plan.findings.iter().any(|it| it.message.ends_with(text));
        assert_eq!(is_named, left.is_none(), "{plan:#?}");
        assert_eq!(exit_codes(&plan), NOT_KNOWN);
    }
}

#[test]
fn a_kustomization_of_another_source_is_not_known_when_it_is_added() {
    let other = kustomization("a", "./a", "");
    let other = other.replace("kind: GitRepository, name: flux-system", "kind: Bucket, name: b");
    let repository = repository(&[]);
    repository.commit(&[("cluster/a.yaml", &other)]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "a").comparison, ApplierComparisonStatus::HeadNotFetched, "{plan:#?}");
    assert_eq!(exit_codes(&plan), NOT_KNOWN);
    assert!(!passes(&plan));
}

#[test]
fn a_chart_that_moves_to_a_host_that_is_not_allowed_or_away_from_it_does_not_pass() {
    let far = unfetched_release("1.0.0");
    let near = helm_release(LOCAL_CHART, "{}");
    let repository = repository(&[&CHART[..], &[("cluster/web.yaml", near.as_str())]].concat());
    for (release, comparison) in [
        (&far, ApplierComparisonStatus::HeadNotFetched),
        (&near, ApplierComparisonStatus::BaseNotFetched),
    ] {
        repository.commit(&[("cluster/web.yaml", release)]);
        let plan = repository.plan();
        assert_eq!(change(&plan, "web").comparison, comparison, "{plan:#?}");
        assert!(!passes(&plan), "{plan:#?}");
        assert_eq!(exit_codes(&plan), NOT_KNOWN);
    }
}

#[test]
fn a_base_that_was_not_fetched_before_passes_as_long_as_nothing_of_its_kustomization_changes() {
    let overlay = "resources: [\"https://git.example.com/org/base//app\", ../common]\n";
    let repository = repository(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/kustomization.yaml", overlay),
        ("common/kustomization.yaml", "resources: [one.yaml, two.yaml]\n"),
        ("common/one.yaml", &config_map("one", "1")),
        ("common/two.yaml", &config_map("two", "1")),
    ]);
    repository.commit(&[("cluster/kept.yaml", &config_map("kept", "2"))]);
    let unchanged = repository.plan();
    assert_eq!(change(&unchanged, "a").comparison, ApplierComparisonStatus::HeadNotFetched);
    assert!(change(&unchanged, "a").fails_in_base && passes(&unchanged), "{unchanged:#?}");
    // The build would read this file after the base.
    repository.remove("common/two.yaml");
    repository.commit(&[("common/kustomization.yaml", "resources: [one.yaml]\n")]);
    let changed = repository.plan();
    assert_eq!(change(&changed, "a").comparison, ApplierComparisonStatus::HeadNotFetched);
    assert!(!change(&changed, "a").fails_in_base && !passes(&changed), "{changed:#?}");
}

#[test]
fn a_kustomization_of_another_source_changes_with_the_variables_that_it_substitutes() {
    let more = "postBuild: {substituteFrom: [{kind: ConfigMap, name: vars}]}";
    let other = kustomization("a", "./a", more);
    let other = other.replace("kind: GitRepository, name: flux-system", "kind: Bucket, name: b");
    let vars = |value: &str| {
        config_map("vars", value).replace("namespace: shop", "namespace: flux-system")
    };
    let repository =
        repository(&[("cluster/a.yaml", other.as_str()), ("cluster/vars.yaml", &vars("1"))]);
    repository.commit(&[("cluster/vars.yaml", &vars("2"))]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "a").comparison, ApplierComparisonStatus::HeadNotFetched, "{plan:#?}");
    assert!(!passes(&plan));
}

#[test]
fn a_server_that_delivers_on_neither_side_does_not_hide_what_changes() {
    // No server listens at this address.
    let charts = CHARTS.replace("https://charts.example.com", "http://127.0.0.1:1");
    let release = unfetched_release("1.0.0");
    let repository =
        repository(&[("cluster/charts.yaml", charts.as_str()), ("cluster/web.yaml", &release)]);
    repository.commit(&[("cluster/web.yaml", &unfetched_release("2.0.0"))]);
    let flags = ["--base", "HEAD~1", "--head", "HEAD", "--allow-hosts=127.0.0.1"];
    let plan = repository.try_plan("cluster", &flags).unwrap();
    let web = change(&plan, "web");
    assert_eq!((web.comparison, web.fails_in_base), (ApplierComparisonStatus::HeadFailed, false));
    assert!(!passes(&plan));
    assert_eq!(exit_codes(&plan), [ExitCode::Failed; 2]);
}
