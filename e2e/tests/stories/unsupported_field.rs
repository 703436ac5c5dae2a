//! windlass refuses an object with an unsupported field and names the field. Other objects are not affected.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

async fn await_refusal(story: &Story, target: &StoryObject, field: &str) -> Result<()> {
    let object = story.await_condition(target, "Stalled", "True", DEFAULT_WAIT_TIMEOUT).await?;
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
    let remote = json!({"configMapRef": {"name": "cluster"}});
    let cases: [(&str, &str, Value); 2] = [
        (
            "decryption",
            "spec.decryption.serviceAccountName",
            json!({"provider": "sops", "serviceAccountName": "keys"}),
        ),
        ("kubeConfig", "spec.kubeConfig.configMapRef", remote),
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
        await_refusal(&story, &StoryObject::kustomization(&name), path).await?;
        ensure!(story.read(&StoryObject::config_map(&name)).await?.is_none(), "{name} was applied");
    }
    story.await_ready(&StoryObject::kustomization("plain")).await?;

    // Without the field, the object continues.
    story.kustomization("decryption", "app", json!({"path": "decryption"})).await?;
    let object = story.await_ready(&StoryObject::kustomization("decryption")).await?;
    ensure!(condition(&object, "Stalled")["status"] != "True", "{:?}", object.data["status"]);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_a_built_in_kind_does_not_have_is_named_where_people_look() -> Result<()> {
    let story = Story::with_windlass("unknown-field").await?;
    let misspelt = config_map("app", "1").replace("\"}}", "\"}, dat: {color: red}}");
    let _upstream = story.follow("app", &[("a.yaml", misspelt)]).await?;
    story.kustomization("app", "app", json!({"path": "."})).await?;
    let object = story.await_ready(&StoryObject::kustomization("app")).await?;
    let ready = condition(&object, "Ready");
    let message = ready["message"].as_str().unwrap_or_default();
    ensure!(message.contains("warning: ConfigMap/"), "{message}");
    ensure!(message.contains("/app: its kind has no field dat, so it is not applied"), "{message}");
    ensure!(condition(&object, "windlass.dev/Warnings")["status"] == "True", "{:?}", object.data);
    let why = story.windlass_says(&["why", "ks/app", "-n", &story.namespace], true)?;
    ensure!(why.starts_with('⚠') && why.contains("its kind has no field dat"), "{why}");
    let live = story.read(&StoryObject::config_map("app")).await?;
    ensure!(live.is_some_and(|it| it.data["data"]["value"] == "1"), "it was not applied");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_git_repository_with_an_unsupported_field_says_which() -> Result<()> {
    let story = Story::with_windlass("unsupported-git").await?;
    let upstream = story.follow("plain", &[("a.yaml", config_map("a", "1"))]).await?;
    let url = upstream.server.url(&upstream.repository);
    let cases: [(&str, &str, Value); 2] = [
        ("provider", "spec.provider", json!({"provider": "github"})),
        (
            "account",
            "spec.serviceAccountName",
            json!({"provider": "azure", "serviceAccountName": "a"}),
        ),
    ];
    for (name, field, more) in cases {
        story.git_repository(name, &url, more).await?;
        await_refusal(&story, &StoryObject::git_repository(name), field).await?;
    }
    story.await_ready(&StoryObject::git_repository("plain")).await?;
    story.end().await
}
