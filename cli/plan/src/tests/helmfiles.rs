//! Tests of Helmfile releases and remote bases.

use super::*;

const CHART: [(&str, &str); 2] = [
    ("charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    (
        "charts/web/templates/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  \
         size: \"{{ .Values.size }}\"\n  drawn: {{ randAlphaNum 8 }}\n",
    ),
];

const RELEASES: &str = "releases:\n\
    - name: web\n  namespace: shop\n  labels: {tier: front}\n  chart: ../charts/web\n  values: [web.yaml]\n\
    - name: db\n  namespace: shop\n  chart: ../charts/web\n  values: [{size: 7}]\n";

/// A Helmfile for the folder `shop`, with additional fields in its spec.
fn helmfile(more: &str) -> String {
    format!(
        "apiVersion: helmfile.windlass.dev/v1alpha1\nkind: Helmfile\n\
         metadata: {{name: shop, namespace: flux-system}}\n\
         spec:\n  interval: 10m\n  path: shop/helmfile.yaml\n  {more}\n  \
         sourceRef: {{kind: GitRepository, name: flux-system}}\n"
    )
}

/// A repository that contains a chart, and two releases of it.
fn shop(more: &str) -> FleetRepository {
    let files = [
        ("cluster/shop.yaml", helmfile(more)),
        ("shop/helmfile.yaml", RELEASES.to_owned()),
        ("shop/web.yaml", "size: 1\n".to_owned()),
    ];
    let files: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    FleetRepository::new(&[&CHART[..], &files].concat())
}

/// The helmfile without its second release.
fn without_db() -> &'static str {
    RELEASES.split_once("- name: db").unwrap().0
}

fn is_listed(plan: &ChangePlan, name: &str) -> bool {
    plan.appliers.iter().any(|it| it.applier.name == name)
}

#[test]
fn the_releases_of_a_helmfile_are_compared_each_by_itself() {
    let repository = shop("");
    repository.commit(&[("shop/web.yaml", "size: 2\n")]);
    let plan = repository.plan();
    let web = change(&plan, "shop#shop/web");
    let changed = serde_json::to_string(&web.changed).unwrap();
    assert_eq!(names(web.changed.iter().map(|it| &it.object)), ["web"], "{plan:#?}");
    assert!(changed.contains("/data/size") && !changed.contains("/data/drawn"), "{changed}");
    assert_eq!(web.changed[0].object.namespace, "shop");
    assert_eq!(web.file.as_deref(), Some("cluster/shop.yaml"));
    assert_eq!(web.head_source_revision.as_deref(), Some("web@1.0.0"));
    assert_eq!(web.applier.subject(), "Helmfile/flux-system/shop#shop/web");
    assert!(!is_listed(&plan, "shop#shop/db"), "{plan:#?}");
    assert_eq!(exit_code(&plan, false), ExitCode::Success);
}

#[test]
fn a_release_of_a_helmfile_whose_inputs_stay_is_not_rendered() {
    let broken = ("charts/web/templates/broken.yaml", "{{ fail \"rendered\" }}");
    let repository = shop("");
    repository.commit(&[broken]);
    repository.commit(&[("docs/readme.md", "text")]);
    let plan = repository.plan();
    assert!(plan.is_unchanged(), "{plan:#?}");
    repository.commit(&[("shop/web.yaml", "size: 2\n")]);
    let message = change(&repository.plan(), "shop#shop/web").message.clone().unwrap();
    assert!(message.contains("rendered"), "{message}");
}

#[test]
fn a_release_that_leaves_its_helmfile_is_deleted_only_if_that_prunes() {
    for (prune, left) in [("prune: true", None), ("", Some("the applier does not prune"))] {
        let repository = shop(prune);
        repository.commit(&[("shop/helmfile.yaml", without_db())]);
        let plan = repository.plan();
        let db = change(&plan, "shop#shop/db");
        assert_eq!(db.comparison, ApplierComparisonStatus::Removed, "{plan:#?}");
        assert_eq!(names(db.removed.iter().map(|it| &it.object)), ["db"]);
        assert_eq!(db.removed[0].left_in_cluster.as_deref(), left);
        assert_eq!(plan.summary.deleted, usize::from(left.is_none()));
    }
}

#[test]
fn a_release_that_must_not_be_installed_is_deleted_without_pruning() {
    let repository = shop("");
    let unwanted = format!("{RELEASES}  installed: false\n");
    repository.commit(&[("shop/helmfile.yaml", &unwanted)]);
    let plan = repository.plan();
    let removed = &change(&plan, "shop#shop/db").removed;
    assert_eq!(names(removed.iter().map(|it| &it.object)), ["db"], "{plan:#?}");
    assert_eq!(removed[0].left_in_cluster, None);
}

#[test]
fn releases_that_selectors_or_suspensions_leave_out_stay() {
    for more in ["selectors: [tier=front]", "suspendedReleases: [{name: db}]"] {
        let repository = shop("prune: true");
        let spec = format!("prune: true\n  {more}");
        repository.commit(&[
            ("cluster/shop.yaml", &helmfile(&spec)),
            ("shop/helmfile.yaml", if more.starts_with("sel") { RELEASES } else { without_db() }),
        ]);
        let plan = repository.plan();
        let db = change(&plan, "shop#shop/db");
        assert_eq!(db.comparison, ApplierComparisonStatus::Compared, "{plan:#?}");
        assert!(db.removed.is_empty(), "{db:#?}");
        assert_eq!(unknown(db), ["objects of the release in the cluster"]);
    }
    let repository = shop("suspendedReleases: [{name: web}]");
    repository.commit(&[("shop/web.yaml", "size: 2\n")]);
    assert!(change(&repository.plan(), "shop#shop/web").is_suspended);
}

#[test]
fn a_helmfile_that_gets_another_cluster_installs_its_releases_there_and_leaves_the_former_ones() {
    let repository = shop("prune: true");
    let spec = "prune: true\n  kubeConfig: {secretRef: {name: west}}";
    repository.commit(&[("cluster/shop.yaml", &helmfile(spec))]);
    let plan = repository.plan();
    let web = change(&plan, "shop#shop/web");
    assert_eq!(web.target_cluster, "that of Secret/flux-system/west");
    assert_eq!(names(&web.added), ["web"], "{plan:#?}");
    let left = web.removed[0].left_in_cluster.as_deref();
    assert_eq!(left, Some("the applier applies to another cluster now"));
}

#[test]
fn a_helmfile_that_cannot_be_planned_removes_nothing() {
    let template =
        "releases:\n- name: {{ exec \"touch\" (list \"made\") }}\n  chart: ../charts/web\n";
    let of_template = helmfile("prune: true").replace("helmfile.yaml", "helmfile.yaml.gotmpl");
    let hook = "  hooks: [{events: [presync], command: touch, args: [made]}]\n";
    let hooked = format!("{RELEASES}{hook}");
    for (files, reason) in [
        (vec![("shop/helmfile.yaml", "releases: [")], ""),
        (
            vec![
                ("cluster/shop.yaml", of_template.as_str()),
                ("shop/helmfile.yaml.gotmpl", template),
            ],
            "exec",
        ),
        (vec![("shop/helmfile.yaml", hooked.as_str())], "hook"),
    ] {
        let repository = shop("prune: true");
        repository.commit(&files);
        let plan = repository.plan();
        let own = change(&plan, "shop");
        assert_eq!(own.comparison, ApplierComparisonStatus::HeadFailed, "{plan:#?}");
        assert!(own.message.as_ref().unwrap().contains(reason), "{own:#?}");
        for release in ["shop#shop/web", "shop#shop/db"] {
            assert_eq!(change(&plan, release).comparison, ApplierComparisonStatus::HeadUnknown);
        }
        assert_eq!(plan.summary.removed, 0);
        assert_eq!(exit_code(&plan, false), ExitCode::Failed);
        assert!(!repository.0.path().join("shop/made").exists());
    }
}

#[test]
fn a_chart_of_another_host_is_named_by_its_own_release() {
    let with_remote = |version: &str| {
        format!(
            "repositories: [{{name: charts, url: \"https://charts.example.com\"}}]\n{RELEASES}\
             - name: far\n  namespace: shop\n  chart: charts/far\n  version: {version}\n"
        )
    };
    let repository = shop("");
    repository.commit(&[("shop/helmfile.yaml", &with_remote("1.x"))]);
    repository.commit(&[("shop/web.yaml", "size: 2\n")]);
    let plan = repository.plan();
    assert!(!is_listed(&plan, "shop#shop/far"), "{plan:#?}");
    assert_eq!(change(&plan, "shop#shop/web").changed.len(), 1);
    repository.commit(&[("shop/helmfile.yaml", &with_remote("2.x"))]);
    let plan = repository.plan();
    let message = change(&plan, "shop#shop/far").message.clone().unwrap_or_default();
    assert!(message.contains("--allow-hosts=charts.example.com"), "{plan:#?}");
    assert_eq!(plan.summary.removed, 0);
}

#[test]
fn a_patch_counts_for_a_release_whose_chart_is_not_fetched() {
    let releases = "repositories: [{name: charts, url: \"https://charts.example.com\"}]\nreleases:\n\
        - name: far\n  namespace: shop\n  chart: charts/far\n  strategicMergePatches: [patch.yaml]\n";
    let patch = |size: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: far}}\ndata: {{size: \"{size}\"}}\n"
        )
    };
    let repository = shop("");
    repository.commit(&[("shop/helmfile.yaml", releases), ("shop/patch.yaml", &patch("1"))]);
    repository.commit(&[("docs/readme.md", "text")]);
    assert!(repository.plan().is_unchanged());
    repository.commit(&[("shop/patch.yaml", &patch("2"))]);
    let plan = repository.plan();
    let message = change(&plan, "shop#shop/far").message.clone().unwrap_or_default();
    assert!(message.contains("--allow-hosts=charts.example.com"), "{plan:#?}");
}

#[test]
fn a_release_that_becomes_one_of_a_helmfile_is_deleted_and_installed_anew() {
    let release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n\
        metadata: {name: web, namespace: flux-system}\n\
        spec:\n  interval: 10m\n  releaseName: web\n  targetNamespace: shop\n  values: {size: 1}\n  \
        chart: {spec: {chart: ./charts/web, sourceRef: {kind: GitRepository, name: flux-system}}}\n";
    let repository = shop("");
    repository.commit(&[("cluster/shop.yaml", release)]);
    repository.commit(&[("cluster/shop.yaml", &helmfile(""))]);
    let plan = repository.plan();
    let former = change(&plan, "web");
    assert_eq!(names(former.removed.iter().map(|it| &it.object)), ["web"], "{plan:#?}");
    assert_eq!(former.removed[0].left_in_cluster, None);
    assert_eq!(names(&change(&plan, "shop#shop/web").added), ["web"]);
}

#[test]
fn what_the_cluster_has_is_named_and_what_the_repository_declares_counts() {
    let from = "valuesFrom: [{kind: Secret, name: vars}, {kind: ConfigMap, name: sizes}]";
    let sizes = |size: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: sizes, namespace: flux-system}}\n\
             data: {{values.yaml: \"size: {size}\"}}\n"
        )
    };
    let template = "releases:\n- name: web\n  namespace: shop\n  chart: ../charts/web\n  \
                    values: [{size: {{ .Values.size }}}]\n";
    let object = helmfile(from).replace("helmfile.yaml", "helmfile.yaml.gotmpl");
    let first = sizes("1");
    let files = [
        ("cluster/shop.yaml", object.as_str()),
        ("cluster/sizes.yaml", first.as_str()),
        ("shop/helmfile.yaml.gotmpl", template),
    ];
    let repository = FleetRepository::new(&[&CHART[..], &files].concat());
    repository.commit(&[("cluster/sizes.yaml", &sizes("2"))]);
    let plan = repository.plan();
    assert_eq!(unknown(change(&plan, "shop")), ["Secret/flux-system/vars"]);
    assert_eq!(change(&plan, "shop#shop/web").changed.len(), 1, "{plan:#?}");
}

#[test]
fn a_helmfile_at_an_address_of_this_repository_is_planned() {
    let object = |reference: &str| {
        format!(
            "apiVersion: apps.mumoshu.github.io/v1alpha1\nkind: Helmfile\n\
             metadata: {{name: shop, namespace: flux-system}}\n\
             spec: {{source: \"git::https://example.com/org/fleet.git@shop/helmfile.yaml?ref={reference}\"}}\n"
        )
    };
    let repository = shop("");
    repository.git(&["remote", "add", "origin", "git@example.com:org/fleet.git"]);
    repository.commit(&[("cluster/shop.yaml", &object("main"))]);
    repository.commit(&[("shop/web.yaml", "size: 2\n")]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "shop#shop/web").changed.len(), 1, "{plan:#?}");
    assert!(passes(&plan));
    repository.commit(&[("cluster/shop.yaml", &object("feature"))]);
    let elsewhere = repository.plan();
    assert_eq!(moved(change(&elsewhere, "shop")), ["files of Helmfile/flux-system/shop"]);
    assert!(!passes(&elsewhere));
    repository.commit(&[("cluster/shop.yaml", &object("v1.4"))]);
    let pinned = repository.plan();
    assert_eq!(change(&pinned, "shop").comparison, ApplierComparisonStatus::HeadNotFetched);
    assert_eq!(
        change(&pinned, "shop#shop/web").comparison,
        ApplierComparisonStatus::HeadNotFetched
    );
    assert_eq!(exit_code(&pinned, false), ExitCode::Success);
    assert_eq!(pinned.summary.removed, 0);
}

#[test]
fn what_sops_encrypted_for_a_release_is_compared_as_it_is() {
    let secrets = |cipher: &str| {
        format!(
            "size: ENC[AES256_GCM,data:{cipher},iv:x,tag:y,type:str]\nsops:\n    \
             mac: ENC[AES256_GCM,data:x,iv:y,tag:z,type:str]\n    version: 3.9.0\n"
        )
    };
    let releases = "releases:\n- name: web\n  namespace: shop\n  chart: ../charts/web\n  secrets: [web.enc.yaml]\n";
    let repository = shop("");
    repository
        .commit(&[("shop/helmfile.yaml", releases), ("shop/web.enc.yaml", &secrets("YmVmb3Jl"))]);
    repository.commit(&[("shop/web.enc.yaml", &secrets("YWZ0ZXI="))]);
    let plan = repository.plan();
    assert_eq!(unknown(change(&plan, "shop")), ["values that SOPS encrypted"], "{plan:#?}");
    assert_eq!(change(&plan, "shop#shop/web").changed.len(), 1);
}

#[test]
fn a_remote_base_is_fetched_only_where_that_is_allowed_and_the_message_names_the_host() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/kustomization.yaml", "resources: []\n"),
    ]);
    for base in ["https://example.com/org/base?ref=v1", "https://example.com/deploy.yaml"] {
        repository.commit(&[("a/kustomization.yaml", "resources: []\n")]);
        repository.commit(&[("a/kustomization.yaml", &format!("resources: [\"{base}\"]\n"))]);
        let plan = repository.plan();
        let message = change(&plan, "a").message.clone().unwrap_or_default();
        assert!(message.contains("--allow-hosts=example.com"), "{message}");
        assert_eq!(change(&plan, "a").comparison, ApplierComparisonStatus::HeadNotFetched);
        assert_eq!(exit_code(&plan, false), ExitCode::Success);
    }
}

#[test]
fn a_release_whose_chart_is_not_fetched_is_not_known_when_it_comes_and_uninstalled_when_it_goes() {
    let far = "repositories: [{name: charts, url: \"https://charts.example.com\"}]\n";
    let far = format!(
        "{far}{RELEASES}- name: far\n  namespace: shop\n  chart: charts/far\n  version: 1.x\n"
    );
    let repository = shop("prune: true");
    repository.commit(&[("shop/helmfile.yaml", &far)]);
    let added = repository.plan();
    assert_eq!(change(&added, "shop#shop/far").comparison, ApplierComparisonStatus::HeadNotFetched);
    repository.commit(&[("shop/helmfile.yaml", RELEASES)]);
    let removed = repository.plan();
    let of_far = change(&removed, "shop#shop/far");
    assert_eq!(of_far.comparison, ApplierComparisonStatus::Removed, "{removed:#?}");
    assert_eq!(of_far.unknown_removal.as_ref().unwrap().left_in_cluster, None);
    let found = &removed.findings[0];
    assert_eq!(found.applier.as_ref().unwrap().name, "shop");
    let text = "Helmfile/flux-system/shop#shop/far is uninstalled, and its objects are not known";
    assert_eq!(found.message, text);
    for plan in [&added, &removed] {
        assert_eq!(exit_code(plan, false), ExitCode::Success);
        assert_eq!(exit_code(plan, true), ExitCode::ProblemsFound);
    }
}
