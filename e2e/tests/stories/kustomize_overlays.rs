//! Kustomize features of Kustomizations: overlays, components, patches and images. The work is proportional to the change.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn an_overlay_with_components_and_a_secret_is_applied_as_it_is_built() -> Result<()> {
    let story = Story::with_windlass("overlay").await?;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {user: ada}\n";
    story.apply(secret).await?;
    let base = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 0\n  selector: \
                {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      \
                - {name: web, image: \"web:v1\", env: [{name: USER, value: \"${user}\"}]}\n";
    let files = [
        ("base/kustomization.yaml", "resources: [web.yaml]\n".to_owned()),
        ("base/web.yaml", base.to_owned()),
        (
            "parts/kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nconfigMapGenerator:\n- {name: part, literals: \
             [from=component]}\n"
                .to_owned(),
        ),
        ("live/kustomization.yaml", "resources: [../base]\nnameSuffix: -live\n".to_owned()),
    ];
    let upstream = story.follow("app", &files).await?;
    let spec = json!({
        "path": "live",
        "targetNamespace": story.namespace,
        "namePrefix": "our-",
        "components": ["../parts", "../gone"],
        "ignoreMissingComponents": true,
        "images": [{"name": "web", "newTag": "v2"}],
        "patches": [{
            "patch": "- {op: add, path: /metadata/annotations, value: {patched: \"yes\"}}",
            "target": {"kind": "Deployment"},
        }],
        "postBuild": {"substituteFrom": [{"kind": "Secret", "name": "login"}]},
    });
    story.kustomization("app", "app", spec).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let web = story.expect(&StoryObject::new("apps/v1", "Deployment", "our-web-live")).await?;
    let container = &web.data["spec"]["template"]["spec"]["containers"][0];
    ensure!(container["image"] == "web:v2", "{container}");
    ensure!(container["env"][0]["value"] == "ada", "{container}");
    ensure!(web.metadata.annotations.iter().flatten().any(|(key, _)| key == "patched"), "{web:?}");

    // A generated name changes with its content, and the old object is deleted.
    let parts = |object: &DynamicObject| {
        let entries = object.data["status"]["inventory"]["entries"].as_array().cloned();
        let ids: Vec<String> = entries
            .into_iter()
            .flatten()
            .filter_map(|entry| entry["id"].as_str().map(str::to_owned))
            .filter(|id| id.contains("_our-part-live-") || id.contains("_our-part-"))
            .collect();
        ids
    };
    let before = parts(&story.expect(&StoryObject::kustomization("app")).await?);
    ensure!(before.len() == 1, "{before:?}");
    let changed = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nconfigMapGenerator:\n- {name: part, \
                   literals: [from=elsewhere]}\n";
    let second = upstream.push(&[("parts/kustomization.yaml", changed.to_owned())]).await?;
    story.await_applied("app", &second).await?;
    let after = parts(&story.expect(&StoryObject::kustomization("app")).await?);
    ensure!(after.len() == 1 && after != before, "{before:?} {after:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_says_where_in_kustomize_s_words_and_deletes_nothing() -> Result<()> {
    let story = Story::with_windlass("overlay-bad").await?;
    let files = [
        ("kustomization.yaml", "resources: [a.yaml]\n".to_owned()),
        ("a.yaml", config_map("a", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    for (file, expected) in [
        ("resources: [a.yaml, gone.yaml]\n", "gone.yaml"),
        ("resources: [a.yaml, a.yaml]\n", "may not add resource with an already registered id"),
        ("resources: [a.yaml]\npatches: [{patch: \"- {op: remove, path: /data/x}\"}]\n", "patch"),
    ] {
        upstream.push(&[("kustomization.yaml", file.to_owned())]).await?;
        let names = |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            let message = ready["message"].as_str().unwrap_or_default();
            ready["reason"] == "BuildFailed"
                && message.starts_with("kustomize build failed: ")
                && message.contains(expected)
        };
        story.await_object(&StoryObject::kustomization("app"), DEFAULT_WAIT_TIMEOUT, names).await?;
        ensure!(story.read(&StoryObject::config_map("a")).await?.is_some(), "it was deleted");
    }
    story.end().await
}

/// The number of applications that share one repository.
const APPLICATIONS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_touches_one_of_200_applications_costs_one_build_and_one_apply() -> Result<()> {
    let story = Story::with_windlass("proportional").await?;
    let names: Vec<String> = (0..APPLICATIONS).map(|at| format!("app-{at:03}")).collect();
    let paths: Vec<String> = names.iter().map(|name| format!("{name}/map.yaml")).collect();
    let files: Vec<(&str, String)> =
        names.iter().zip(&paths).map(|(name, path)| (&**path, config_map(name, "1"))).collect();
    let upstream = story.follow("fleet", &files).await?;
    for name in &names {
        story.kustomization(name, "fleet", json!({"path": name})).await?;
    }
    let first = revision(&upstream.repository.hash("main")?);
    for name in &names {
        story.await_applied(name, &first).await?;
    }
    story.await_log().await?;
    let builds = builds(&story).await?;
    let writes = story.writes()?.len();
    ensure!(builds >= APPLICATIONS, "{builds} builds are not even one for each");

    let touched = &names[71];
    let second = upstream.push(&[(&*paths[71], config_map(touched, "2"))]).await?;
    for name in &names {
        story.await_applied(name, &second).await?;
    }
    story.await_value(touched, "2").await?;
    let built = self::builds(&story).await? - builds;
    ensure!(built == 1, "{built} builds");
    let after = story.writes()?;
    let count = |of: &dyn Fn(&str) -> bool| after[writes..].iter().filter(|w| of(&w.what)).count();
    let statuses = count(&|what| what.contains("kustomizations/") && what.ends_with("/status"));
    // The application that is applied may take long enough to report its progress.
    ensure!(statuses <= APPLICATIONS + 2, "{statuses} status writes");
    // A dry-run shows that the object differs, and then it is applied.
    let applied = count(&|what| what.contains("configmaps/"));
    ensure!(applied <= 2, "{applied} requests about ConfigMaps");
    story.end().await
}

/// How many builds windlass made in the story's namespace.
async fn builds(story: &Story) -> Result<usize> {
    let text = story.windlass().await?.metrics().await?;
    let ours = format!("namespace=\"{}\"", story.namespace);
    let counts =
        text.lines().filter(|line| line.starts_with("windlass_builds") && line.contains(&ours));
    counts.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<usize>()?)).sum()
}
