//! Tests that plan changes of small repositories from commit to commit.
//!
//! Below: facts of the cluster (`cluster_facts`), releases of Helmfiles (`helmfiles`), charts and files that are not fetched
//! (`unfetched`), bare repositories and entry points (`repositories`).

mod cluster_facts;
mod helmfiles;
mod refused_fetches;
mod repositories;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use clap::FromArgMatches as _;
use plan::{ApplierChange, PlanObjectReference};
use tempfile::TempDir;

use super::*;

/// A repository whose cluster folder is `cluster`.
struct FleetRepository(TempDir);

impl FleetRepository {
    /// Makes a repository with these files in its first commit.
    fn new(files: &[(&str, &str)]) -> Self {
        let repository = Self(tempfile::tempdir().unwrap());
        repository.git(&["init", "-q", "-b", "main"]);
        repository.commit(files);
        repository
    }

    fn git(&self, arguments: &[&str]) {
        let output = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.0.path().join(path)).unwrap();
    }

    fn commit(&self, files: &[(&str, &str)]) {
        for (path, text) in files {
            self.write(path, text);
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "change"]);
    }

    fn try_plan(&self, path: &str, more: &[&str]) -> anyhow::Result<ChangePlan> {
        let path = self.0.path().join(path).display().to_string();
        let command = clap::Command::new("plan").no_binary_name(true);
        let line = [&["--path", path.as_str()], more].concat();
        let matches = PlanArgs::augment_args(command).get_matches_from(line);
        let args = PlanArgs::from_arg_matches(&matches).unwrap();
        change_plan(&args, OperatorSettings::from_flags::<&str>(&[]).unwrap())
    }

    /// The plan of the last commit.
    fn plan(&self) -> ChangePlan {
        self.try_plan("cluster", &["--base", "HEAD~1", "--head", "HEAD"]).unwrap()
    }
}

fn kustomization(name: &str, path: &str, more: &str) -> String {
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n\
         metadata: {{name: {name}, namespace: flux-system}}\n\
         spec:\n  interval: 10m\n  prune: true\n  path: {path}\n  {more}\n  \
         sourceRef: {{kind: GitRepository, name: flux-system}}\n"
    )
}

fn config_map(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\n\
         data: {{key: \"{value}\"}}\n"
    )
}

fn change<'p>(plan: &'p ChangePlan, name: &str) -> &'p ApplierChange {
    let found = plan.appliers.iter().find(|it| it.applier.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {plan:#?}"))
}

fn names<'o>(objects: impl IntoIterator<Item = &'o PlanObjectReference>) -> Vec<&'o str> {
    objects.into_iter().map(|it| it.name.as_str()).collect()
}

#[test]
fn objects_are_added_changed_removed_and_moved_between_kustomizations() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("cluster/b.yaml", &kustomization("b", "./b", "")),
        ("a/moving.yaml", &config_map("moving", "1")),
        ("a/changing.yaml", &config_map("changing", "1")),
        ("b/leaving.yaml", &config_map("leaving", "1")),
        ("b/staying.yaml", &config_map("staying", "1")),
    ]);
    repository.remove("a/moving.yaml");
    repository.remove("b/leaving.yaml");
    repository.commit(&[
        ("b/moving.yaml", &config_map("moving", "1")),
        ("a/changing.yaml", &config_map("changing", "2")),
        ("a/new.yaml", &config_map("new", "1")),
    ]);
    let plan = repository.plan();
    let of_a = change(&plan, "a");
    assert_eq!(names(&of_a.added), ["new"]);
    assert_eq!(names(of_a.changed.iter().map(|it| &it.object)), ["changing"]);
    assert_eq!(of_a.file.as_deref(), Some("cluster/a.yaml"));
    let of_b = change(&plan, "b");
    assert_eq!(names(of_b.moved.iter().map(|it| &it.object)), ["moving"]);
    assert_eq!(names(of_b.removed.iter().map(|it| &it.object)), ["leaving"]);
    assert_eq!(exit_code(&plan, false), ExitCode::Success);
    assert_eq!(exit_code(&plan, true), ExitCode::ProblemsFound);
    let same = repository.try_plan("cluster", &["--base", "HEAD", "--head", "HEAD"]).unwrap();
    assert_eq!(exit_code(&same, true), ExitCode::Success, "{same:#?}");
}

#[test]
fn the_blind_digest_of_an_applier_is_that_of_its_head_and_not_of_the_commits() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/one.yaml", &config_map("one", "1")),
    ]);
    let digest_with = |value: &str| {
        repository.commit(&[("a/one.yaml", &config_map("one", value))]);
        change(&repository.plan(), "a").blind_digest.clone().unwrap()
    };
    let second = digest_with("2");
    let third = digest_with("3");
    assert_ne!(second, third);
    assert_eq!(digest_with("2"), second, "from another base to the same result");
    let comment = ::plan::markdown_comment(&repository.plan());
    assert!(comment.contains(&format!("Blind digest: <code>{second}</code>")), "{comment}");
    repository.commit(&[("a/one.yaml", "a: [")]);
    assert_eq!(change(&repository.plan(), "a").blind_digest, None, "it cannot be built");
}

#[test]
fn objects_of_a_renamed_kustomization_are_moved_and_not_deleted() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("old", "./a", "")),
        ("a/one.yaml", &config_map("one", "1")),
    ]);
    repository.commit(&[("cluster/a.yaml", &kustomization("new", "./a", ""))]);
    let plan = repository.plan();
    assert_eq!(names(change(&plan, "new").moved.iter().map(|it| &it.object)), ["one"]);
    assert!(change(&plan, "old").removed.is_empty());
}

#[test]
fn an_applier_that_fails_in_the_head_removes_nothing() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/one.yaml", &config_map("one", "1")),
    ]);
    repository.remove("a/one.yaml");
    repository.commit(&[]);
    let emptied = repository.plan();
    let of_a = change(&emptied, "a");
    assert_eq!(of_a.comparison, ApplierComparisonStatus::HeadFailed);
    assert!(of_a.message.as_ref().unwrap().contains("path not found"), "{of_a:#?}");
    assert_eq!(emptied.summary.removed, 0);
    assert_eq!(exit_code(&emptied, false), ExitCode::Failed);
    repository.commit(&[("a/one.yaml", "kind: [")]);
    let back = repository.plan();
    assert_eq!(change(&back, "a").comparison, ApplierComparisonStatus::HeadFailed);
    assert_eq!(exit_code(&back, false), ExitCode::Success, "it failed before");
    repository.commit(&[("a/one.yaml", &config_map("one", "1"))]);
    let alone = repository.plan();
    assert_eq!(change(&alone, "a").comparison, ApplierComparisonStatus::BaseFailed);
    assert_eq!(names(&change(&alone, "a").not_compared), ["one"]);
}

#[test]
fn an_entry_point_that_fails_hides_no_removal() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/one.yaml", &config_map("one", "1")),
    ]);
    repository.commit(&[("cluster/a.yaml", "kind: [")]);
    let plan = repository.plan();
    assert!(plan.head_incomplete.is_some());
    assert_eq!(change(&plan, "a").comparison, ApplierComparisonStatus::HeadUnknown);
    assert_eq!(plan.summary.removed, 0);
    assert_eq!(exit_code(&plan, false), ExitCode::Failed);
}

#[test]
fn variables_come_from_what_the_repository_declares_and_others_are_named() {
    let from =
        |map: &str| format!("postBuild: {{substituteFrom: [{{kind: ConfigMap, name: {map}}}]}}");
    let vars = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: vars, namespace: flux-system}\n\
                data: {zone: eu}\n";
    let repository = FleetRepository::new(&[
        // The applier that declares the variables comes last.
        ("cluster/a.yaml", &kustomization("a", "./a", &from("vars"))),
        ("cluster/b.yaml", &kustomization("b", "./b", &from("cluster-vars"))),
        ("cluster/z.yaml", &kustomization("z", "./z", "")),
        ("z/vars.yaml", vars),
        ("a/one.yaml", &config_map("one", "${zone}")),
        ("b/two.yaml", &config_map("two", "${host} 1")),
    ]);
    repository.commit(&[
        ("z/vars.yaml", &vars.replace("eu", "us")),
        ("b/two.yaml", &config_map("two", "${host} 2")),
    ]);
    let plan = repository.plan();
    let fields = |name: &str| serde_json::to_string(&change(&plan, name).changed).unwrap();
    assert!(fields("a").contains("\"eu\"") && fields("a").contains("\"us\""), "{}", fields("a"));
    assert!(fields("b").contains("${host} 2"), "{}", fields("b"));
    let unknown: Vec<&str> =
        change(&plan, "b").unknown_values.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(unknown, ["ConfigMap/flux-system/cluster-vars", "variable ${host}"]);
}

#[test]
fn nothing_happens_to_a_suspended_kustomization_and_what_it_declares_is_followed() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "suspend: true")),
        ("a/b.yaml", &kustomization("b", "./b", "")),
        ("a/one.yaml", &config_map("one", "1")),
        ("b/two.yaml", &config_map("two", "1")),
    ]);
    repository.remove("a/one.yaml");
    repository.commit(&[("b/two.yaml", &config_map("two", "2"))]);
    let plan = repository.plan();
    let of_a = change(&plan, "a");
    assert!(of_a.is_suspended);
    assert!(of_a.removed.iter().all(|it| it.left_in_cluster.is_some()), "{of_a:#?}");
    assert_eq!(names(change(&plan, "b").changed.iter().map(|it| &it.object)), ["two"]);
}

#[test]
fn kustomizations_that_declare_each_other_are_built_once() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/b.yaml", &kustomization("b", "./b", "")),
        ("b/a.yaml", &kustomization("a", "./a", "")),
    ]);
    repository.commit(&[("b/one.yaml", &config_map("one", "1"))]);
    assert_eq!(names(&change(&repository.plan(), "b").added), ["one"]);
}

#[test]
fn nothing_outside_of_the_repository_is_read() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret.yaml"), config_map("secret", "1")).unwrap();
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "../../etc", "")),
        ("cluster/b.yaml", &kustomization("b", "./b", "")),
        ("b/kustomization.yaml", "resources: [one.yaml]\n"),
        ("b/one.yaml", &config_map("one", "1")),
    ]);
    symlink(outside.path(), repository.0.path().join("b/link")).unwrap();
    repository.commit(&[("b/kustomization.yaml", "resources: [one.yaml, link/secret.yaml]\n")]);
    for head in [&["--head", "HEAD"][..], &[]] {
        let plan = repository.try_plan("cluster", &[&["--base", "HEAD~1"], head].concat()).unwrap();
        let message = change(&plan, "a").message.clone().unwrap_or_default();
        assert!(message.contains("spec.path"), "{message}");
        assert_eq!(change(&plan, "b").comparison, ApplierComparisonStatus::HeadFailed);
    }
    for path in ["..", "../outside", outside.path().to_str().unwrap()] {
        assert!(repository.try_plan(path, &[]).is_err(), "{path}");
    }
}

#[test]
fn remote_bases_are_refused_however_many_there_are() {
    let bases: String =
        (0..10_000).map(|at| format!("- https://example.com/org/base{at}?ref=v1\n")).collect();
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/kustomization.yaml", "resources: []\n"),
    ]);
    repository.commit(&[("a/kustomization.yaml", &format!("resources:\n{bases}"))]);
    let plan = repository.plan();
    let message = change(&plan, "a").message.clone().unwrap_or_default();
    assert!(message.contains("--allow-hosts=example.com"), "{message}");
}

#[test]
fn of_the_work_tree_counts_what_is_not_committed_and_git_does_not_ignore() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/one.yaml", &config_map("one", "1")),
        (".gitignore", "*.local.yaml\n/build/\n"),
    ]);
    repository.write("a/two.yaml", &config_map("two", "1"));
    repository.write("a/three.local.yaml", &config_map("three", "1"));
    repository.write("build/four.yaml", &config_map("four", "1"));
    let plan = repository.try_plan("cluster", &[]).unwrap();
    assert_eq!(plan.head_revision, "work tree");
    assert_eq!(names(&change(&plan, "a").added), ["two"]);
}

#[test]
fn a_revision_that_is_not_there_is_an_error_of_the_command() {
    let repository = FleetRepository::new(&[("cluster/a.yaml", &config_map("one", "1"))]);
    let error = repository.try_plan("cluster", &["--base", "gone"]).unwrap_err();
    assert!(format!("{error:#}").starts_with("--base: revision `gone`"), "{error:#}");
    let folder = tempfile::tempdir().unwrap();
    assert!(LocalGitRepository::around(folder.path()).is_err());
}

const CHART: [(&str, &str); 3] = [
    ("charts/web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
    ("charts/web/values.yaml", "size: 1\n"),
    (
        "charts/web/templates/map.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\ndata:\n  size: \"{{ .Values.size }}\"\n  \
         drawn: {{ randAlphaNum 8 }}\n  found: {{ lookup \"v1\" \"Secret\" \"shop\" \"db\" | toJson | quote }}\n",
    ),
];

fn helm_release(chart: &str, values: &str) -> String {
    format!(
        "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n\
         metadata: {{name: web, namespace: flux-system}}\n\
         spec:\n  interval: 10m\n  targetNamespace: shop\n  values: {values}\n  chart: {{spec: {chart}}}\n"
    )
}

const LOCAL_CHART: &str =
    "{chart: ./charts/web, sourceRef: {kind: GitRepository, name: flux-system}}";

#[test]
fn a_release_with_a_chart_of_the_repository_is_rendered_on_both_sides() {
    let release = helm_release(LOCAL_CHART, "{}");
    let files = [&CHART[..], &[("cluster/web.yaml", release.as_str())]].concat();
    let repository = FleetRepository::new(&files);
    repository.commit(&[("cluster/web.yaml", &helm_release(LOCAL_CHART, "{size: 2}"))]);
    let plan = repository.plan();
    let of_release = change(&plan, "web");
    let changed = serde_json::to_string(&of_release.changed).unwrap();
    assert_eq!(of_release.changed.len(), 1, "{of_release:#?}");
    assert_eq!(of_release.changed[0].object.namespace, "shop");
    assert!(changed.contains("/data/size") && !changed.contains("/data/drawn"), "{changed}");
    assert_eq!(unknown(of_release), ["ConfigMap/shop/web, /data/drawn", "Secret/shop/db"]);
    assert_eq!(of_release.head_source_revision.as_deref(), Some("web@1.0.0"));
}

#[test]
fn a_further_random_value_changes_no_other_one() {
    let release = helm_release(LOCAL_CHART, "{}");
    let files = [&CHART[..], &[("cluster/web.yaml", release.as_str())]].concat();
    let repository = FleetRepository::new(&files);
    let [_, _, (path, template)] = CHART;
    let more = template.replace("  drawn:", "  before: {{ randAlphaNum 8 }}\n  drawn:");
    repository.commit(&[(path, &more)]);
    let plan = repository.plan();
    let of_release = change(&plan, "web");
    let changed = serde_json::to_string(&of_release.changed).unwrap();
    assert!(changed.contains("/data/before") && !changed.contains("/data/drawn"), "{changed}");
    assert!(unknown(of_release).contains(&"ConfigMap/shop/web, /data/before"), "{of_release:#?}");
}

#[test]
fn a_release_whose_inputs_stay_is_not_rendered() {
    let broken = ("charts/web/templates/broken.yaml", "{{ fail \"rendered\" }}");
    let release = helm_release(LOCAL_CHART, "{}");
    let files = [&CHART[..], &[broken, ("cluster/web.yaml", release.as_str())]].concat();
    let repository = FleetRepository::new(&files);
    repository.commit(&[("docs/readme.md", "text")]);
    let plan = repository.plan();
    assert!(plan.is_unchanged(), "{plan:#?}");
    repository.commit(&[("charts/web/values.yaml", "size: 3\n")]);
    let failed = repository.plan();
    assert!(change(&failed, "web").message.as_ref().unwrap().contains("rendered"));
}

#[test]
fn a_chart_of_another_host_is_fetched_only_where_that_is_allowed() {
    let charts = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\n\
                  metadata: {name: charts, namespace: flux-system}\n\
                  spec: {url: https://charts.example.com, interval: 1h}\n";
    let chart = |version: &str| {
        format!(
            "{{chart: web, version: {version}, sourceRef: {{kind: HelmRepository, name: charts}}}}"
        )
    };
    let repository = FleetRepository::new(&[
        ("cluster/charts.yaml", charts),
        ("cluster/web.yaml", &helm_release(&chart("1.x"), "{}")),
    ]);
    repository.commit(&[("docs/readme.md", "text")]);
    assert!(repository.plan().is_unchanged());
    repository.commit(&[("cluster/web.yaml", &helm_release(&chart("2.x"), "{}"))]);
    let plan = repository.plan();
    let message = change(&plan, "web").message.clone().unwrap_or_default();
    assert!(message.contains("--allow-hosts=charts.example.com"), "{message}");
    assert_eq!(plan.summary.removed, 0);
}

#[test]
fn what_is_not_rendered_is_named_and_is_not_known_where_it_changes() {
    let helmfile = |path: &str| {
        format!(
            "apiVersion: helmfile.windlass.dev/v1alpha1\nkind: Helmfile\n\
             metadata: {{name: shop, namespace: flux-system}}\n\
             spec: {{interval: 10m, path: {path}, sourceRef: {{kind: OCIRepository, name: shop}}}}\n"
        )
    };
    let repository = FleetRepository::new(&[("cluster/shop.yaml", &helmfile("a"))]);
    repository.commit(&[("cluster/one.yaml", &config_map("one", "1"))]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "shop").unknown_values[0].what, "all objects");
    repository.commit(&[("cluster/shop.yaml", &helmfile("b"))]);
    assert_eq!(
        change(&repository.plan(), "shop").comparison,
        ApplierComparisonStatus::HeadNotFetched
    );
}

#[test]
fn the_kustomization_that_applies_itself_is_built_as_it_says() {
    let sync = |label: &str| {
        let more = format!("commonMetadata: {{labels: {{cluster: {label}}}}}");
        kustomization("flux-system", "./cluster", &more)
    };
    let source = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\n\
                  metadata: {name: flux-system, namespace: flux-system}\n\
                  spec: {url: \"https://example.com/org/fleet\", interval: 1m}\n";
    let repository = FleetRepository::new(&[
        ("cluster/flux-system/gotk-sync.yaml", &sync("one")),
        ("cluster/flux-system/source.yaml", source),
        ("cluster/map.yaml", &config_map("map", "1")),
    ]);
    repository.commit(&[("cluster/flux-system/gotk-sync.yaml", &sync("two"))]);
    let plan = repository.plan();
    let changed = change(&plan, "flux-system").changed.iter().map(|it| &it.object);
    assert!(names(changed).contains(&"map"), "{plan:#?}");
}

#[test]
fn no_value_of_a_secret_is_printed_in_any_format() {
    let secret = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: db, namespace: flux-system}}\n\
             stringData: {{password: {value}}}\n"
        )
    };
    let from = "postBuild: {substituteFrom: [{kind: Secret, name: db}]}";
    let repository = FleetRepository::new(&[
        ("cluster/secret.yaml", &secret("hunter2-before")),
        ("cluster/a.yaml", &kustomization("a", "./a", from)),
        ("a/one.yaml", &config_map("one", "url ${password}")),
    ]);
    repository.commit(&[("cluster/secret.yaml", &secret("hunter2-after"))]);
    let plan = repository.plan();
    assert_eq!(change(&plan, "a").changed.len(), 1);
    for format in PlanFormat::value_variants() {
        let printed = text(&plan, *format).unwrap();
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}

#[test]
fn what_sops_encrypted_is_compared_as_it_is_and_no_release_takes_it_for_values() {
    let secret = |field: &str, cipher: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: db, namespace: flux-system}}\n\
             {field}: {{values.yaml: \"ENC[AES256_GCM,data:{cipher},type:str]\"}}\n\
             sops: {{mac: \"ENC[x]\", version: 3.9.0}}\n"
        )
    };
    let from = "{}\n  valuesFrom: [{kind: Secret, name: db}]";
    let release = helm_release(LOCAL_CHART, from);
    for field in ["data", "stringData"] {
        let before = secret(field, "YmVmb3Jl");
        let files = [("cluster/db.yaml", before.as_str()), ("cluster/web.yaml", release.as_str())];
        let repository = FleetRepository::new(&[&CHART[..], &files].concat());
        repository.commit(&[
            ("cluster/db.yaml", &secret(field, "YWZ0ZXI=")),
            ("charts/web/values.yaml", "size: 2\n"),
        ]);
        let plan = repository.plan();
        let entry = change(&plan, "flux-system");
        assert_eq!(names(entry.changed.iter().map(|it| &it.object)), ["db"], "{field}");
        let of_release = change(&plan, "web");
        assert_eq!(of_release.comparison, ApplierComparisonStatus::Compared, "{of_release:#?}");
        assert!(unknown(of_release).contains(&"Secret/flux-system/db"), "{of_release:#?}");
    }
}

#[test]
fn a_release_whose_chart_gets_another_name_is_installed_anew() {
    let renamed = ("charts/web/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n");
    let in_place = "{}\n  upgrade: {chartNameChangeStrategy: InPlaceUpdate}";
    for (values, count) in [("{}", 1), (in_place, 0)] {
        let release = helm_release(LOCAL_CHART, values);
        let files = [&CHART[..], &[("cluster/web.yaml", release.as_str())]].concat();
        let repository = FleetRepository::new(&files);
        repository.commit(&[renamed]);
        let plan = repository.plan();
        let of_release = change(&plan, "web");
        assert_eq!(of_release.removed.len(), count, "{plan:#?}");
        assert_eq!(of_release.added.len(), count, "{plan:#?}");
    }
}

#[test]
fn a_release_is_named_that_takes_another_value_of_what_is_not_known() {
    let release = |key: &str| {
        let from = format!("{{}}\n  valuesFrom: [{{kind: Secret, name: db, valuesKey: {key}}}]");
        helm_release(LOCAL_CHART, &from)
    };
    let first = release("a");
    let files = [&CHART[..], &[("cluster/web.yaml", first.as_str())]].concat();
    let repository = FleetRepository::new(&files);
    repository.commit(&[("cluster/web.yaml", &release("b"))]);
    let plan = repository.plan();
    assert!(unknown(change(&plan, "web")).contains(&"Secret/flux-system/db"), "{plan:#?}");
}

#[test]
fn a_kustomization_of_the_root_of_another_repository_is_not_the_entry_point() {
    let other = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\n\
                 metadata: {name: podinfo, namespace: flux-system}\n\
                 spec: {url: \"https://example.com/org/podinfo\", interval: 1m}\n";
    let podinfo = kustomization("podinfo", "./", "")
        .replace("kind: GitRepository, name: flux-system", "kind: GitRepository, name: podinfo");
    let repository = FleetRepository::new(&[
        ("source.yaml", other),
        ("podinfo.yaml", &podinfo),
        ("map.yaml", &config_map("map", "1")),
    ]);
    repository.commit(&[("map.yaml", &config_map("map", "2"))]);
    let plan = repository.try_plan(".", &["--base", "HEAD~1", "--head", "HEAD"]).unwrap();
    let changed = &change(&plan, "flux-system").changed;
    assert_eq!(names(changed.iter().map(|it| &it.object)), ["map"], "{plan:#?}");
    assert_eq!(change(&plan, "podinfo").unknown_values[0].what, "all objects");
    assert!(exit_code(&plan, false) == ExitCode::Success);
}

fn git_repository(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\n\
         metadata: {{name: {name}, namespace: flux-system}}\nspec: {{interval: 1m, {spec}}}\n"
    )
}

fn moved(change: &ApplierChange) -> Vec<&str> {
    change.moved_sources.iter().map(|it| it.what.as_str()).collect()
}

/// Whether `windlass plan check` succeeds by default.
fn passes(plan: &ChangePlan) -> bool {
    plan::check_status(plan, &[plan::PlanFailureRule::Errors]).is_success
}

fn unknown(change: &ApplierChange) -> Vec<&str> {
    change.unknown_values.iter().map(|it| it.what.as_str()).collect()
}

#[test]
fn a_source_that_gets_another_branch_makes_the_files_of_its_kustomizations_unknown() {
    let fleet = |branch: &str| {
        let url = "url: \"https://example.com/org/fleet\"";
        git_repository("flux-system", &format!("{url}, ref: {{branch: {branch}}}"))
    };
    let repository = FleetRepository::new(&[
        ("cluster/flux-system.yaml", &kustomization("flux-system", "./cluster", "")),
        ("cluster/source.yaml", &fleet("main")),
        ("cluster/a.yaml", &kustomization("a", "./a", "")),
        ("a/one.yaml", &config_map("one", "1")),
    ]);
    repository.commit(&[("cluster/source.yaml", &fleet("production"))]);
    let plan = repository.plan();
    assert_eq!(moved(change(&plan, "a")), ["files of GitRepository/flux-system/flux-system"]);
    assert!(!passes(&plan));
    // The same place with another notation.
    let ssh = fleet("production").replace("https://example.com/", "git@example.com:");
    repository.commit(&[("cluster/source.yaml", &ssh)]);
    let plan = repository.plan();
    assert!(
        passes(&plan) && plan.appliers.iter().all(|it| it.moved_sources.is_empty()),
        "{plan:#?}"
    );
}

#[test]
fn a_kustomization_that_gets_another_source_of_the_repository_does_not_hide_its_branch() {
    let url = "url: \"https://example.com/org/fleet\"";
    let source = |name: &str, branch: &str| {
        git_repository(name, &format!("{url}, ref: {{branch: {branch}}}"))
    };
    let kustomization = |source: &str| {
        kustomization("a", "./a", "")
            .replace("name: flux-system}\n", &format!("name: {source}}}\n"))
    };
    let repository = FleetRepository::new(&[
        ("cluster/source.yaml", &source("fleet", "main")),
        ("cluster/a.yaml", &kustomization("fleet")),
        ("a/one.yaml", &config_map("one", "1")),
    ]);
    repository.git(&["remote", "add", "origin", "https://example.com/org/fleet"]);
    repository.commit(&[
        ("cluster/same.yaml", &source("same", "main")),
        ("cluster/a.yaml", &kustomization("same")),
    ]);
    let same = repository.plan();
    assert!(
        passes(&same) && same.appliers.iter().all(|it| it.moved_sources.is_empty()),
        "{same:#?}"
    );
    repository.commit(&[
        ("cluster/other.yaml", &source("other", "feature")),
        ("cluster/a.yaml", &kustomization("other")),
    ]);
    let other = repository.plan();
    assert_eq!(moved(change(&other, "a")), ["files of GitRepository/flux-system/other"]);
    assert!(!passes(&other));
}

#[test]
fn a_release_whose_chart_is_not_read_changes_with_the_spec_of_its_source() {
    let source = |reference: &str| {
        format!(
            "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\n\
             metadata: {{name: web, namespace: flux-system}}\n\
             spec: {{interval: 1m, url: oci://example.com/web, ref: {{{reference}}}}}\n"
        )
    };
    let release = "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n\
                   metadata: {name: web, namespace: flux-system}\n\
                   spec: {interval: 10m, chartRef: {kind: OCIRepository, name: web}}\n";
    for [before, after] in [
        ["digest: \"sha256:aaa\"", "digest: \"sha256:bbb\""],
        ["semver: 1.x, semverFilter: a", "semver: 1.x, semverFilter: b"],
    ] {
        let repository = FleetRepository::new(&[
            ("cluster/source.yaml", &source(before)),
            ("cluster/web.yaml", release),
        ]);
        repository.commit(&[("cluster/source.yaml", &source(after))]);
        let plan = repository.plan();
        let of_release = plan.appliers.iter().find(|it| it.applier.kind == "HelmRelease").unwrap();
        assert_eq!(of_release.comparison, ApplierComparisonStatus::HeadNotFetched);
        assert!(!passes(&plan));
    }
}

#[test]
fn files_of_a_chart_that_keeps_its_version_may_not_be_applied() {
    let release = helm_release(LOCAL_CHART, "{}");
    let files = [&CHART[..], &[("cluster/web.yaml", release.as_str())]].concat();
    let repository = FleetRepository::new(&files);
    repository.commit(&[("charts/web/values.yaml", "size: 2\n")]);
    let kept = "whether the changed files of chart version 1.0.0 are applied";
    assert!(unknown(change(&repository.plan(), "web")).contains(&kept));
    let next = "apiVersion: v2\nname: web\nversion: 1.1.0\n";
    repository.commit(&[("charts/web/values.yaml", "size: 3\n"), ("charts/web/Chart.yaml", next)]);
    assert!(!unknown(change(&repository.plan(), "web")).contains(&kept));
}

#[test]
fn values_that_name_the_groups_of_flux_fetch_no_chart_of_another_host() {
    let charts = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\n\
                  metadata: {name: charts, namespace: flux-system}\n\
                  spec: {url: https://charts.example.com, interval: 1h}\n";
    let chart = "{chart: web, sourceRef: {kind: HelmRepository, name: charts}}";
    let repository = FleetRepository::new(&[
        ("cluster/charts.yaml", charts),
        ("cluster/web.yaml", &helm_release(chart, "{group: kustomize.toolkit.fluxcd.io}")),
    ]);
    repository.commit(&[("docs/readme.md", "text")]);
    assert!(repository.plan().is_unchanged());
}

#[test]
fn an_artifact_of_a_generator_has_the_files_that_it_copies() {
    let generator = "apiVersion: source.extensions.fluxcd.io/v1beta1\nkind: ArtifactGenerator\n\
                     metadata: {name: fleet, namespace: flux-system}\n\
                     spec:\n  sources: [{alias: fleet, kind: GitRepository, name: flux-system}]\n  \
                     artifacts: [{name: apps, copy: [{from: \"@fleet/apps/base/**\", to: \"@artifact/base/\"}]}]\n";
    let from = |artifact: &str| {
        kustomization("a", "./base", "").replace(
            "kind: GitRepository, name: flux-system",
            &format!("kind: ExternalArtifact, name: {artifact}"),
        )
    };
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &from("apps")),
        ("cluster/generator.yaml", generator),
        ("apps/base/one.yaml", &config_map("one", "1")),
    ]);
    repository.commit(&[("apps/base/one.yaml", &config_map("one", "2"))]);
    let plan = repository.plan();
    assert_eq!(names(change(&plan, "a").changed.iter().map(|it| &it.object)), ["one"]);
    repository.commit(&[("cluster/a.yaml", &from("none"))]);
    let none = repository.plan();
    assert!(change(&none, "a").message.as_ref().unwrap().contains("does not declare"), "{none:#?}");
}

#[test]
fn a_value_of_a_secret_that_is_declared_twice_is_masked() {
    let secret = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: db, namespace: flux-system}}\n\
             stringData: {{password: {value}}}\n"
        )
    };
    let from = "postBuild: {substituteFrom: [{kind: Secret, name: db}]}";
    let repository = FleetRepository::new(&[
        ("cluster/secret.yaml", &secret("hunter2-first")),
        ("cluster/a.yaml", &kustomization("a", "./a", from)),
        ("cluster/b.yaml", &kustomization("b", "./b", "")),
        ("b/secret.yaml", &secret("another-second")),
        ("a/one.yaml", &config_map("one", "1 ${password}")),
    ]);
    repository.commit(&[("a/one.yaml", &config_map("one", "2 ${password}"))]);
    let printed = text(&repository.plan(), PlanFormat::Json).unwrap();
    assert!(!printed.contains("hunter2"), "{printed}");
}

#[test]
fn a_change_does_not_choose_what_is_compared() {
    let repository = FleetRepository::new(&[
        ("cluster/a.yaml", &kustomization("flux-system", "./cluster", "")),
        ("cluster/map.yaml", &config_map("map", "1")),
        ("decoy/map.yaml", &config_map("map", "1")),
    ]);
    repository.remove("cluster/a.yaml");
    repository.commit(&[("decoy/a.yaml", &kustomization("flux-system", "./decoy", ""))]);
    let manifests = |revision: &str| {
        let work_tree = LocalGitRepository::around(repository.0.path()).unwrap();
        let files = work_tree.revision(revision).unwrap();
        ApplierManifests::of(&files.artifact(None).unwrap().files)
    };
    let error = common_entry(&manifests("HEAD~1"), &manifests("HEAD")).unwrap_err().to_string();
    assert!(error.contains("choose one with --path"), "{error}");
    // The user names a link to another folder. No artifact contains links.
    fs::remove_dir_all(repository.0.path().join("cluster")).unwrap();
    symlink("decoy", repository.0.path().join("cluster")).unwrap();
    let work_tree = LocalGitRepository::around(repository.0.path()).unwrap();
    let path = work_tree.path_of(&repository.0.path().join("cluster")).unwrap();
    assert_eq!(path.as_str(), "cluster");
}

#[test]
fn a_submodule_does_not_stand_for_the_work_tree_that_has_it_and_a_clone_does() {
    let repository = FleetRepository::new(&[("cluster/map.yaml", &config_map("map", "1"))]);
    let folder = repository.0.path().join("cluster");
    let outer = LocalGitRepository::around(repository.0.path()).unwrap();
    repository.git(&["init", "-q", "cluster"]);
    assert!(LocalGitRepository::around(&folder).unwrap().is_clone_in(&outer));
    let modules = repository.0.path().join(".git/modules");
    fs::create_dir_all(&modules).unwrap();
    fs::rename(folder.join(".git"), modules.join("cluster")).unwrap();
    fs::write(folder.join(".git"), "gitdir: ../.git/modules/cluster\n").unwrap();
    assert!(!LocalGitRepository::around(&folder).unwrap().is_clone_in(&outer));
}

#[test]
fn flags_of_a_cluster_and_of_two_revisions_exclude_each_other() {
    let refusal = |line: &[&str]| {
        let command = clap::Command::new("plan").no_binary_name(true);
        let matches = PlanArgs::augment_args(command).get_matches_from(line);
        let args = PlanArgs::from_arg_matches(&matches).unwrap();
        live_plan::check_flags(&args).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(
        refusal(&["--live", "--base", "main"]),
        "--live compares with the cluster, and --base with a revision: leave out one of them"
    );
    assert!(refusal(&["--live", "--facts", "facts.yaml"]).contains("leave out --facts"));
    assert!(refusal(&["--context", "prod"]).contains("add --live"));
    assert!(refusal(&["-n", "shop"]).contains("add --live"));
    let source = "--source=GitRepository/apps/web";
    assert!(refusal(&["--branch", "new", source]).contains("add --live"));
    assert!(refusal(&["--live", "--branch", "new"]).contains("--source=GitRepository/NAMESPACE"));
    let other = "--source=Bucket/apps/web";
    assert!(refusal(&["--live", "--branch", "new", other]).contains("--source=GitRepository"));
    let head = ["--live", "--branch", "new", source, "--head", "main"];
    assert!(refusal(&head).contains("leave out --head and --path"));
    assert_eq!(refusal(&["--live", "--branch", "a..b", source]), "--branch");
    assert_eq!(refusal(&["--live", "--branch", "new", source, "-n", "shop"]), "");
    for line in [&["--live", "--context", "prod", "-n", "shop"][..], &["--base", "main"], &[]] {
        assert_eq!(refusal(line), "", "{line:?}");
    }
}
