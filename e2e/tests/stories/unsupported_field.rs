//! A field that windlass cannot honour is refused by its name, and harms nobody else.

use anyhow::{Result, ensure};
use e2e::harness::flux::{SOON, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, Target};
use serde_json::{Value, json};

async fn await_refusal(story: &Story, target: &Target, field: &str) -> Result<()> {
    let object = story.await_condition(target, "Stalled", "True", SOON).await?;
    for kind in ["Stalled", "Ready"] {
        let it = condition(&object, kind);
        ensure!(it["reason"] == "UnsupportedField", "{target}: {it}");
        ensure!(it["message"].as_str().is_some_and(|text| text.contains(field)), "{target}: {it}");
    }
    ensure!(condition(&object, "Ready")["status"] == "False", "{target} claims to be ready");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_with_an_unsupported_field_says_which_and_does_nothing() -> Result<()> {
    let story = Story::with_windlass("unsupported").await?;
    let cases: [(&str, &str, Value); 6] = [
        ("decryption", "spec.decryption", json!({"provider": "sops"})),
        ("namePrefix", "spec.namePrefix", json!("x-")),
        ("nameSuffix", "spec.nameSuffix", json!("-x")),
        ("patches", "spec.patches", json!([{"patch": "[]", "target": {"kind": "ConfigMap"}}])),
        ("images", "spec.images", json!([{"name": "a", "newTag": "b"}])),
        ("components", "spec.components", json!(["./c"])),
    ];
    let paths = cases.each_ref().map(|(field, ..)| format!("{}/a.yaml", field.to_lowercase()));
    let mut files: Vec<_> = cases
        .iter()
        .zip(&paths)
        .map(|((field, ..), path)| (&**path, config_map(&field.to_lowercase(), "1")))
        .collect();
    files.push(("plain/a.yaml", config_map("plain", "1")));
    let _upstream = story.follow("app", &files).await?;
    for (field, _, value) in &cases {
        let name = field.to_lowercase();
        story.kustomization(&name, "app", json!({"path": name, *field: value})).await?;
    }
    story.kustomization("plain", "app", json!({"path": "plain"})).await?;
    for (field, path, _) in &cases {
        let name = field.to_lowercase();
        await_refusal(&story, &Target::kustomization(&name), path).await?;
        ensure!(story.read(&Target::config_map(&name)).await?.is_none(), "{name} was applied");
    }
    story.await_ready(&Target::kustomization("plain")).await?;

    // Without the field it goes on.
    story.kustomization("patches", "app", json!({"path": "patches"})).await?;
    let object = story.await_ready(&Target::kustomization("patches")).await?;
    ensure!(condition(&object, "Stalled")["status"] != "True", "{:?}", object.data["status"]);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_repository_with_an_unsupported_field_says_which() -> Result<()> {
    let story = Story::with_windlass("unsupported-git").await?;
    let upstream = story.follow("plain", &[("a.yaml", config_map("a", "1"))]).await?;
    let url = upstream.server.url(&upstream.repository);
    let cases: [(&str, &str, Value); 3] = [
        ("provider", "spec.provider", json!({"provider": "github"})),
        (
            "account",
            "spec.serviceAccountName",
            json!({"provider": "azure", "serviceAccountName": "a"}),
        ),
        ("verify", "spec.verify", json!({"verify": {"mode": "HEAD", "secretRef": {"name": "k"}}})),
    ];
    for (name, field, more) in cases {
        story.git_repository(name, &url, more).await?;
        await_refusal(&story, &Target::git_repository(name), field).await?;
    }
    story.await_ready(&Target::git_repository("plain")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_file_may_list_resources_and_nothing_else() -> Result<()> {
    let story = Story::with_windlass("unsupported-file").await?;
    let file = |more: &str| {
        (
            "kustomization.yaml",
            format!("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{more}"),
        )
    };
    let files = [
        file("namePrefix: x-\nresources: [a.yaml]\n"),
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
    ];
    let upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    await_refusal(&story, &Target::kustomization("app"), "namePrefix").await?;
    ensure!(story.read(&Target::config_map("a")).await?.is_none(), "applied without its prefix");

    // A new commit is enough to go on.
    let last = upstream.push(&[file("resources: [a.yaml]\n")]).await?;
    story.await_applied("app", &last).await?;
    story.expect(&Target::config_map("a")).await?;
    ensure!(story.read(&Target::config_map("b")).await?.is_none(), "not listed");
    story.end().await
}
