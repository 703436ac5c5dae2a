//! Versions that windlass chooses by the content of their images: their owner has signed them, and they support all platforms.
//! windlass commits exactly the verified image.
//!
//! Elsewhere: valid signatures (`engines/signatures`), tags that are too low or too young (`guards`).

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{
    GROUP_VERSION, await_latest, policy, policy_target, push, repository, repository_target,
};
use crate::stories::image_signatures::ImageSigner;

const REPOSITORY: &str = "team/app";

const FILE: &str = "web.yaml";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

async fn annotate(story: &Story, annotations: Value) -> Result<()> {
    let patch = json!({"metadata": {"annotations": annotations}});
    story.merge(&policy_target("app"), patch).await.map(drop)
}

/// Waits until the message of the policy contains a text, and returns the policy.
async fn await_message(story: &Story, text: &str) -> Result<DynamicObject> {
    let has = |object: &DynamicObject| {
        condition(object, "Ready")["message"].as_str().is_some_and(|it| it.contains(text))
    };
    let object = story.await_object(&policy_target("app"), DEFAULT_WAIT_TIMEOUT, has).await;
    object.with_context(|| format!("no message with `{text}`"))
}

fn marked(story: &Story, part: &str, value: &str) -> String {
    let policy = json!({"$imagepolicy": format!("{}:app{part}", story.namespace)});
    format!("{value} # {policy}\n")
}

async fn automation(story: &Story) -> Result<StoryObject> {
    let author = json!({"name": "Bot", "email": "bot@example.com"});
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "ImageUpdateAutomation",
        "metadata": {"name": "app"},
        "spec": {"interval": "1h", "sourceRef": {"kind": "GitRepository", "name": "app"},
            "update": {"strategy": "Setters"}, "git": {"commit": {"author": author}}}});
    story.apply_value(object).await?;
    Ok(StoryObject::new(GROUP_VERSION, "ImageUpdateAutomation", "app"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_counts_once_its_image_is_signed_and_the_digest_that_was_verified_is_committed()
-> Result<()> {
    let story = Story::with_windlass("images-signed").await?;
    let registry = RegistryServer::start().await?;
    let owner = ImageSigner::new()?;
    let other = ImageSigner::new()?;
    owner.publish(&story, "owner").await?;
    let image = format!("{}/{REPOSITORY}", registry.host());
    let first = push(&registry, "1.0.0").await?;
    owner.sign(&registry, REPOSITORY, &first, &first).await?;
    repository(&story, &image, json!({})).await?;
    policy(&story, "app", json!({})).await?;
    await_latest(&story, "app", &json!({"name": image, "tag": "1.0.0"})).await?;

    annotate(&story, json!({"windlass.dev/verify-images": "owner"})).await?;
    let text = story.await_failure(&policy_target("app"), "InvalidPolicy").await?;
    ensure!(text.contains("set spec.digestReflectionPolicy to IfNotPresent or Always"), "{text}");
    policy(&story, "app", json!({"digestReflectionPolicy": "IfNotPresent"})).await?;
    let latest = json!({"name": image, "tag": "1.0.0", "digest": first});
    let object = await_latest(&story, "app", &latest).await?;
    ensure!(condition(&object, "ImageVerified")["status"] == "True", "{:?}", object.data);

    let second = push(&registry, "1.1.0").await?;
    story.request(&repository_target()).await?;
    let unsigned = format!(
        "; passed over: 1.1.0, because it is not signed with a key of secret '{}/owner': no matching \
         signatures were found",
        story.namespace
    );
    let object = await_message(&story, &unsigned).await?;
    ensure!(object.data["status"]["latestRef"] == latest, "{:?}", object.data);
    ensure!(condition(&object, "Ready")["status"] == "True", "the one before stays");
    other.sign(&registry, REPOSITORY, &second, &second).await?;
    let object = story.rerun(&policy_target("app")).await?;
    ensure!(object.data["status"]["latestRef"] == latest, "the key is that of another");
    owner.sign(&registry, REPOSITORY, &second, &second).await?;
    story.request(&policy_target("app")).await?;
    let latest = json!({"name": image, "tag": "1.1.0", "digest": second});
    await_latest(&story, "app", &latest).await?;

    // The tag is moved to an image that no owner signed.
    registry.push_files(REPOSITORY, "1.1.0", &[("a.yaml", "moved")], json!({})).await?;
    let object = story.rerun(&policy_target("app")).await?;
    ensure!(object.data["status"]["latestRef"] == latest, "{:?}", object.data);

    let alone = marked(&story, ":tag", "tag: 0.9.0");
    let upstream = story.follow("app", &[(FILE, alone)]).await?;
    let target = automation(&story).await?;
    let text = story.await_failure(&target, "MarkerWithoutDigest").await?;
    let named = format!("{FILE} has a marker `{}:app:tag`", story.namespace);
    ensure!(text.contains(&named), "{text}");
    let whole = marked(&story, "", &format!("image: {image}:0.9.0"));
    upstream.push(&[(FILE, whole)]).await?;
    story.await_ready(&target).await?;
    let found = upstream.repository.git(&["show", &format!("main:{FILE}")])?;
    let expected = marked(&story, "", &format!("image: {image}:1.1.0@{second}"));
    ensure!(found == expected.trim(), "{found}");

    // The key is revoked. Images that were verified with it are no longer written, whatever the status says.
    story.delete(&StoryObject::new("v1", "Secret", "owner")).await?;
    story.await_failure(&policy_target("app"), "VerificationError").await?;
    let object = story.expect(&policy_target("app")).await?;
    ensure!(condition(&object, "ImageVerified")["status"] == "False", "{:?}", object.data);
    let older = marked(&story, "", &format!("image: {image}:0.9.0"));
    upstream.push(&[(FILE, older.clone())]).await?;
    let finding = format!("the latest version of `{}:app` is not verified: ", story.namespace);
    story.await_event("ImageUpdateAutomation", "app", &finding).await?;
    let found = upstream.repository.git(&["show", &format!("main:{FILE}")])?;
    ensure!(found == older.trim(), "{found}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_counts_once_its_image_has_all_platforms() -> Result<()> {
    let story = Story::with_windlass("images-platforms").await?;
    let registry = RegistryServer::start().await?;
    let image = format!("{}/{REPOSITORY}", registry.host());
    let single = async |architecture: &str| {
        let config = json!({"os": "linux", "architecture": architecture}).to_string();
        let size = config.len();
        let config = registry.push_blob(REPOSITORY, config.into_bytes()).await?;
        let kind = "application/vnd.oci.image.config.v1+json";
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": kind, "digest": config, "size": size}, "layers": []});
        Ok::<Value, anyhow::Error>(manifest)
    };
    let amd64 = single("amd64").await?;
    let arm64 = single("arm64").await?;
    let mut entries = Vec::new();
    for (architecture, manifest) in [("amd64", &amd64), ("arm64", &arm64)] {
        let digest = registry.push_manifest(REPOSITORY, "", manifest).await?;
        let size = manifest.to_string().len();
        entries.push(json!({"mediaType": MANIFEST, "digest": digest, "size": size,
            "platform": {"os": "linux", "architecture": architecture}}));
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
    registry.push_manifest(REPOSITORY, "1.0.0", &index).await?;
    registry.push_manifest(REPOSITORY, "1.1.0", &amd64).await?;
    repository(&story, &image, json!({})).await?;
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "ImagePolicy",
        "metadata": {"name": "app",
            "annotations": {"windlass.dev/required-platforms": "linux/amd64,linux/arm64"}},
        "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}});
    story.apply_value(object).await?;
    await_latest(&story, "app", &json!({"name": image, "tag": "1.0.0"})).await?;
    await_message(&story, "; passed over: 1.1.0, because it lacks linux/arm64").await?;

    annotate(&story, json!({"windlass.dev/required-platforms": "linux/amd64"})).await?;
    await_latest(&story, "app", &json!({"name": image, "tag": "1.1.0"})).await?;
    annotate(&story, json!({"windlass.dev/required-platforms": "linux"})).await?;
    let text = story.await_failure(&policy_target("app"), "InvalidPolicy").await?;
    ensure!(text.contains("`linux` is not a platform such as linux/arm64"), "{text}");
    story.end().await
}
