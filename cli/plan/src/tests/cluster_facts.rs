//! Tests how the facts of the cluster affect a plan, and which facts count.

use super::*;

const FACTS: &str = "cluster/.windlass/facts.yaml";

fn facts(references: &str) -> String {
    format!(
        "apiVersion: plan.windlass.dev/v1alpha1\nkind: ClusterFacts\n\
         metadata: {{name: cluster, annotations: {{config.kubernetes.io/local-config: \"true\"}}}}\n\
         kubernetesVersion: v1.30.5\napiVersions: [acme.io/v1, acme.io/v1/Issuer]\n\
         scopes: {{Issuer.acme.io: Cluster}}\nreferences: {references}\n"
    )
}

fn from(reference: &str) -> String {
    format!("postBuild: {{substituteFrom: [{reference}]}}")
}

#[test]
fn values_of_the_facts_are_substituted_and_the_file_is_not_applied() {
    let known =
        facts("{ConfigMap/flux-system/vars: {exists: true, keys: [zone], data: {zone: eu}}}");
    let substituted = from("{kind: ConfigMap, name: vars}");
    let repository = FleetRepository::new(&[
        (FACTS, &known),
        ("cluster/a.yaml", &kustomization("a", "./a", &substituted)),
        ("a/one.yaml", &config_map("one", "${zone} 1")),
    ]);
    repository.commit(&[("a/one.yaml", &config_map("one", "${zone} 2"))]);
    let plan = repository.plan();
    let changed = serde_json::to_string(&change(&plan, "a").changed).unwrap();
    assert!(changed.contains("eu 1") && changed.contains("eu 2"), "{changed}");
    assert!(unknown(change(&plan, "a")).is_empty(), "{plan:#?}");
    assert!(plan.appliers.iter().all(|it| it.applier.name == "a"), "{plan:#?}");
}

#[test]
fn the_facts_of_the_head_do_not_count_before_they_are_merged() {
    let known = |zone: &str| {
        facts(&format!(
            "{{ConfigMap/flux-system/vars: {{exists: true, keys: [zone], data: {{zone: {zone}}}}}}}"
        ))
    };
    let substituted = from("{kind: ConfigMap, name: vars}");
    let repository = FleetRepository::new(&[
        (FACTS, &known("eu")),
        ("cluster/a.yaml", &kustomization("a", "./a", &substituted)),
        ("a/one.yaml", &config_map("one", "${zone} 1")),
    ]);
    repository
        .commit(&[(FACTS, &known("forged")), ("a/one.yaml", &config_map("one", "${zone} 2"))]);
    let plan = repository.plan();
    let changed = serde_json::to_string(&change(&plan, "a").changed).unwrap();
    assert!(changed.contains("eu 2") && !changed.contains("forged"), "{changed}");
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("facts.yaml");
    fs::write(&file, known("us")).unwrap();
    let file = file.display().to_string();
    let line = ["--base", "HEAD~1", "--head", "HEAD", "--facts", file.as_str()];
    let named = repository.try_plan("cluster", &line).unwrap();
    assert!(serde_json::to_string(&change(&named, "a").changed).unwrap().contains("us 2"));
}

#[test]
fn what_the_repository_declares_counts_more_than_the_facts() {
    let known =
        facts("{ConfigMap/flux-system/vars: {exists: true, keys: [zone], data: {zone: stale}}}");
    let vars = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: vars, namespace: flux-system}\n\
                data: {zone: eu}\n";
    let substituted = from("{kind: ConfigMap, name: vars}");
    let repository = FleetRepository::new(&[
        (FACTS, &known),
        // The applier that declares the variables comes last.
        ("cluster/a.yaml", &kustomization("a", "./a", &substituted)),
        ("cluster/z.yaml", &kustomization("z", "./z", "")),
        ("a/one.yaml", &config_map("one", "${zone}")),
        ("z/vars.yaml", vars),
    ]);
    repository.commit(&[("z/vars.yaml", &vars.replace("eu", "us"))]);
    let changed = serde_json::to_string(&change(&repository.plan(), "a").changed).unwrap();
    assert!(changed.contains("\"eu\"") && changed.contains("\"us\""), "{changed}");
    assert!(!changed.contains("stale"), "{changed}");
}

#[test]
fn an_applier_waits_for_what_another_one_declares_that_needs_the_cluster() {
    // This is a common layout: `apps` uses variables that `infra` declares, and both use a Secret that only the cluster has.
    let known = facts(
        "{ConfigMap/flux-system/vars: {exists: true, appliedBy: Kustomization/flux-system/infra, keys: [zone], \
         data: {zone: stale}}, Secret/flux-system/db: {exists: true, keys: [password]}}",
    );
    let vars = |zone: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: vars, namespace: flux-system}}\n\
             data: {{zone: {zone}}}\n"
        )
    };
    let both = from("{kind: ConfigMap, name: vars}, {kind: Secret, name: db}");
    let secret = from("{kind: Secret, name: db}");
    let repository = FleetRepository::new(&[
        (FACTS, &known),
        ("cluster/a.yaml", &kustomization("apps", "./apps", &both)),
        ("cluster/z.yaml", &kustomization("infra", "./infra", &secret)),
        ("apps/one.yaml", &config_map("one", "${zone}")),
        ("infra/vars.yaml", &vars("eu")),
    ]);
    repository.commit(&[("infra/vars.yaml", &vars("us"))]);
    let plan = repository.plan();
    let changed = serde_json::to_string(&change(&plan, "apps").changed).unwrap();
    assert!(changed.contains("\"eu\"") && changed.contains("\"us\""), "{changed}");
    assert!(!changed.contains("stale"), "{changed}");
    assert_eq!(unknown(change(&plan, "apps")), ["Secret/flux-system/db"]);
}

#[test]
fn a_reference_that_the_cluster_does_not_have_is_an_error_unless_it_is_optional() {
    let known = facts(
        "{ConfigMap/flux-system/gone: {exists: false}, Secret/flux-system/db: {exists: true, keys: [password]}}",
    );
    let repository = FleetRepository::new(&[
        (FACTS, &known),
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("cluster/b.yaml", &kustomization("b", "./b", "")),
        ("a/one.yaml", &config_map("one", "1")),
        ("b/two.yaml", &config_map("two", "1")),
    ]);
    let required = from("{kind: ConfigMap, name: gone}, {kind: Secret, name: db}");
    let optional = from("{kind: ConfigMap, name: gone, optional: true}");
    repository.commit(&[
        ("cluster/a.yaml", &kustomization("a", "./a", &required)),
        ("cluster/b.yaml", &kustomization("b", "./b", &optional)),
        ("b/two.yaml", &config_map("two", "2")),
    ]);
    let plan = repository.plan();
    let missing = plan.findings.iter().map(|it| (it.rule, it.object.as_ref().unwrap().subject()));
    let missing: Vec<_> = missing.collect();
    assert_eq!(
        missing,
        [(plan::PlanFindingKind::MissingReference, "ConfigMap/flux-system/gone".to_owned())]
    );
    let reason = &change(&plan, "a").unknown_values[0];
    assert_eq!(reason.what, "Secret/flux-system/db");
    assert!(reason.reason.ends_with("the cluster has it, with values for password"), "{reason:?}");
    assert!(unknown(change(&plan, "b")).is_empty(), "{plan:#?}");
}

#[test]
fn charts_see_the_version_and_the_kinds_of_the_facts() {
    let template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  \
                    size: \"{{ .Values.size }}\"\n  \
                    version: {{ .Capabilities.KubeVersion.Version }}\n---\n\
                    {{ if .Capabilities.APIVersions.Has \"acme.io/v1/Issuer\" }}\n\
                    apiVersion: acme.io/v1\nkind: Issuer\nmetadata: {name: web}\n\
                    spec: {size: {{ .Values.size }}}\n{{ end }}\n";
    let known = facts("{}");
    let release = helm_release(LOCAL_CHART, "{}");
    let files = [
        &CHART[..],
        &[
            ("charts/web/templates/map.yaml", template),
            ("cluster/web.yaml", release.as_str()),
            (FACTS, known.as_str()),
        ],
    ];
    let repository = FleetRepository::new(&files.concat());
    repository.commit(&[("cluster/web.yaml", &helm_release(LOCAL_CHART, "{size: 2}"))]);
    let plan = repository.plan();
    let changed = &change(&plan, "web").changed;
    let issuer = changed.iter().find(|it| it.object.kind == "Issuer");
    assert_eq!(issuer.map(|it| it.object.namespace.as_str()), Some(""), "{plan:#?}");
    // A flag overrides the file.
    let line = ["--base", "HEAD~1", "--head", "HEAD", "--kube-version", "1.31"];
    assert!(repository.try_plan("cluster", &line).is_ok());
}

#[test]
fn facts_that_cannot_be_read_are_an_error_only_where_they_are_named() {
    let broken = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}";
    let repository = FleetRepository::new(&[(FACTS, broken)]);
    assert!(repository.try_plan("cluster", &[]).unwrap().is_unchanged());
    let file = repository.0.path().join(FACTS).display().to_string();
    let error = repository.try_plan("cluster", &["--facts", file.as_str()]).unwrap_err();
    assert!(format!("{error:#}").contains("export them with `windlass plan facts`"), "{error:#}");
}
