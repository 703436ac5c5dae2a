//! A tenant can decrypt only with its own key, whatever file it copies and whatever Secret it names. A plain value is only in
//! the cluster, whatever fails after the decryption.

use anyhow::{Result, ensure};
use e2e::harness::{Story, StoryObject};
use e2e::servers::kms::{OTHER_TOKEN, VAULT_TOKEN};
use serde_json::{Value, json};

use super::decryption::FakeCloudKmsServices;
use super::encrypted_secrets::{
    CANARY, await_message, ensure_plain, ensure_silent, of_aws, of_vault, put_keys, spec,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_does_not_decrypt_with_the_key_of_another() -> Result<()> {
    let story = Story::begin("decryption-tenant").await?;
    let other = Story::begin("decryption-other").await?;
    let clouds = FakeCloudKmsServices::start().await?;
    let flags = ["--no-cross-namespace-refs=true"];
    let environment = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
    let windlass = clouds.windlass(&story, &flags, &environment).await?;
    // The file belongs to the other tenant, who has the right token. This tenant has copied the file.
    let theirs = of_vault(&clouds.server.url(), "shop", "vault");
    clouds.know(&theirs);
    let files = [
        ("app/s.yaml", theirs.secret("theirs")?),
        ("cloud/s.yaml", of_aws("", "shop").secret("theirs")?),
    ];
    let _upstream = story.follow("app", &files).await?;
    put_keys(&other, "keys", &json!({"sops.vault-token": VAULT_TOKEN})).await?;
    put_keys(&story, "own", &json!({"sops.vault-token": OTHER_TOKEN})).await?;
    put_keys(&story, "empty", &json!({})).await?;
    let not_found = |name: &str| {
        format!("cannot get sops decryption Secret '{}/{name}': not found", story.namespace)
    };
    let cases: [(&str, Value, String); 6] = [
        ("no-secret", spec("app", None), "add `sops.vault-token`".to_owned()),
        ("empty", spec("app", Some("empty")), "add `sops.vault-token`".to_owned()),
        (
            "own-token",
            spec("app", Some("own")),
            "403: 1 error occurred:* permission denied".to_owned(),
        ),
        ("same-name", spec("app", Some("keys")), not_found("keys")),
        ("path", spec("app", Some(&format!("../{}/keys", other.namespace))), "../".to_owned()),
        (
            "identity",
            spec("cloud", Some("own")),
            "is not used with --no-cross-namespace-refs".to_owned(),
        ),
    ];
    for (name, spec, wanted) in cases {
        story.kustomization(name, "app", spec).await?;
        await_message(&story, name, &wanted).await?;
        let read = story.read(&StoryObject::new("v1", "Secret", "theirs")).await?;
        ensure!(read.is_none(), "{name}: the Secret of another tenant was decrypted");
        story.delete(&StoryObject::kustomization(name)).await?;
    }
    // A spec cannot name another namespace.
    let mut across = spec("app", None);
    across["decryption"]["secretRef"] = json!({"name": "keys", "namespace": other.namespace});
    let rejected = story.kustomization("across", "app", across).await.unwrap_err();
    ensure!(format!("{rejected:#}").contains("namespace"), "{rejected:#}");
    // The Secret in the spec is that of the own namespace, and windlass notices its changes.
    story.kustomization("app", "app", spec("app", Some("keys"))).await?;
    await_message(&story, "app", &not_found("keys")).await?;
    put_keys(&story, "keys", &json!({"sops.vault-token": VAULT_TOKEN})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    ensure_plain(&story, "theirs").await?;
    ensure_silent(&story, &windlass, &[CANARY, VAULT_TOKEN, OTHER_TOKEN]).await?;
    other.end().await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_text_is_in_no_output_whatever_fails_after_decryption() -> Result<()> {
    let story = Story::begin("decryption-canary").await?;
    let clouds = FakeCloudKmsServices::start().await?;
    let windlass = clouds.windlass(&story, &[], &[]).await?;
    let vault = of_vault(&clouds.server.url(), "shop", "vault");
    clouds.know(&vault);
    let object = |kind: &str, version: &str, name: &str, more: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object
    };
    let secret = || object("Secret", "v1", "canary", json!({}));
    let mut undefined = secret();
    undefined["stringData"] = json!({"more": "${undefined}"});
    // The API server quotes the values that it rejects.
    let deployment = object(
        "Deployment",
        "apps/v1",
        "canary",
        json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": {
            "metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        }}}),
    );
    let folders = [
        ("fine", vault.secret("canary")?),
        ("quoted", vault.object(deployment, ["spec", "replicas"], CANARY)?),
        (
            "type",
            vault.object(
                object("Secret", "v1", "canary", json!({"data": {}})),
                ["data", "password"],
                CANARY,
            )?,
        ),
        ("variable", vault.object(undefined, ["stringData", "password"], CANARY)?),
        ("second", vault.secret("canary")?),
    ];
    let broken = of_vault(&clouds.server.url(), "shop", "unknown").secret("broken")?;
    let mut files: Vec<(String, String)> =
        folders.into_iter().map(|(folder, text)| (format!("{folder}/a.yaml"), text)).collect();
    files.push(("second/b.yaml".to_owned(), broken));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("app", &files).await?;
    put_keys(&story, "keys", &json!({"sops.vault-token": VAULT_TOKEN})).await?;

    story.kustomization("fine", "app", spec("fine", Some("keys"))).await?;
    story.await_ready(&StoryObject::kustomization("fine")).await?;
    ensure_plain(&story, "canary").await?;
    ensure_silent(&story, &windlass, &[CANARY, VAULT_TOKEN]).await?;
    for (name, wanted) in [
        ("quoted", "replicas"),
        ("type", "canary"),
        ("variable", "undefined"),
        ("second", "message authentication failed"),
    ] {
        let mut spec = spec(name, Some("keys"));
        spec["postBuild"] = json!({"substitute": {"a": "b"}});
        story.kustomization(name, "app", spec).await?;
        await_message(&story, name, wanted).await?;
        ensure_silent(&story, &windlass, &[CANARY, VAULT_TOKEN]).await?;
    }
    story.end().await
}
