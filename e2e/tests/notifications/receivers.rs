//! Receivers of every type: a genuine request triggers a reconciliation. Forged, replayed and oversized requests do not, and
//! neither do tokens for another audience.
//!
//! The requests follow the documentation of each service. Elsewhere: the verdicts of Flux (`cargo xtask conformance`), tokens
//! (`oidc_token_issuers.rs`), pushes and their effect (`notifications.rs`).

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::hmac::{self, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256, HMAC_SHA512};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use crds::notification::Receiver;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::public_host_names::PublicHostNames;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::notifications::oidc_token_issuers::{
    AUDIENCE, EMAIL, GOOGLE, IssuerKeys, SUBJECT, TokenIssuerServer, claims, now, unsigned_token,
};

const API: &str = "notification.toolkit.fluxcd.io/v1";
const TOKEN: &str = "token-of-the-hook";
/// The longest body that windlass reads, in bytes.
const LONGEST: usize = 3 << 20;
/// A time that is longer than the pause between two lists of paths.
const LISTED_AGAIN: Duration = Duration::from_millis(300);

/// A request of a webhook.
#[derive(Clone, Default)]
struct WebhookRequest {
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl WebhookRequest {
    fn new(body: &Value) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { headers, body: body.to_string() }
    }

    /// The same request with another value of a header.
    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    /// The same request with another body but the same signature.
    fn saying(mut self, body: &Value) -> Self {
        self.body = body.to_string();
        self
    }

    /// Signs the request with a hexadecimal signature after a prefix.
    fn signed(
        self,
        (name, begin): (&'static str, &str),
        algorithm: hmac::Algorithm,
        key: &str,
    ) -> Self {
        let tag = hmac::sign(&hmac::Key::new(algorithm, key.as_bytes()), self.body.as_bytes());
        let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        self.with(name, format!("{begin}{digits}"))
    }

    async fn send(&self, url: &str) -> Result<u16> {
        let mut request = reqwest::Client::new().post(url).body(self.body.clone());
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        Ok(request.send().await?.status().as_u16())
    }
}

/// A type of Receivers, with genuine and forged requests.
struct ReceiverTypeCase {
    name: &'static str,
    spec: Value,
    genuine: Vec<(&'static str, WebhookRequest)>,
    forged: Vec<(&'static str, WebhookRequest)>,
}

impl ReceiverTypeCase {
    fn new(name: &'static str, genuine: WebhookRequest) -> Self {
        let spec = json!({"secretRef": {"name": "token"}});
        Self { name, spec, genuine: vec![("genuine", genuine)], forged: Vec::new() }
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.spec[field] = value;
        self
    }

    fn accepts(mut self, what: &'static str, hook: WebhookRequest) -> Self {
        self.genuine.push((what, hook));
        self
    }

    fn refuses(mut self, what: &'static str, hook: WebhookRequest) -> Self {
        self.forged.push((what, hook));
        self
    }
}

/// Types whose requests are signed with the token of the Receiver.
fn signed() -> Vec<ReceiverTypeCase> {
    let body = json!({"ref": "refs/heads/main"});
    let other = json!({"ref": "refs/heads/other"});
    let plain = || WebhookRequest::new(&body);
    let generic = |key: &str| plain().signed(("x-signature", "sha256="), HMAC_SHA256, key);
    let longer = plain().signed(("x-signature", "sha512="), HMAC_SHA512, TOKEN);
    let github = |key: &str| {
        let hook = plain().with("x-github-event", "push");
        hook.signed(("x-hub-signature-256", "sha256="), HMAC_SHA256, key)
    };
    let bitbucket = |key: &str| {
        let hook = plain().with("x-event-key", "repo:refs_changed");
        hook.signed(("x-hub-signature", "sha256="), HMAC_SHA256, key)
    };
    let component = json!({"action": "CREATED", "repositoryName": "releases", "timestamp": "t"});
    let nexus = |key: &str| {
        let sha1 = HMAC_SHA1_FOR_LEGACY_USE_ONLY;
        WebhookRequest::new(&component).signed(("x-nexus-webhook-signature", ""), sha1, key)
    };
    vec![
        ReceiverTypeCase::new("generic-hmac", generic(TOKEN))
            .accepts("with SHA-512", longer)
            .refuses("by another key", generic("another"))
            .refuses("of another body", generic(TOKEN).saying(&other))
            .refuses("of an unknown algorithm", plain().with("x-signature", "md5=00"))
            .refuses("without a signature", plain()),
        ReceiverTypeCase::new("github", github(TOKEN))
            .with("events", json!(["push"]))
            .refuses("by another key", github("another"))
            .refuses("of another body", github(TOKEN).saying(&other))
            .refuses("without a signature", github(TOKEN).without("x-hub-signature-256"))
            .refuses("of another event", github(TOKEN).with("x-github-event", "star"))
            .refuses("of a form", github(TOKEN).with("content-type", "multipart/form-data")),
        ReceiverTypeCase::new("bitbucket", bitbucket(TOKEN))
            .with("events", json!(["repo:refs_changed"]))
            .refuses("by another key", bitbucket("another"))
            .refuses("of another body", bitbucket(TOKEN).saying(&other))
            .refuses("without a signature", bitbucket(TOKEN).without("x-hub-signature"))
            .refuses("of another event", bitbucket(TOKEN).with("x-event-key", "pr:opened")),
        ReceiverTypeCase::new("nexus", nexus(TOKEN))
            .refuses("by another key", nexus("another"))
            .refuses("of another body", nexus(TOKEN).saying(&other))
            .refuses("without a signature", nexus(TOKEN).without("x-nexus-webhook-signature")),
    ]
}

/// Types whose requests contain the token of the Receiver, or are recognized only by their path and form.
fn unsigned() -> Vec<ReceiverTypeCase> {
    let plain = || WebhookRequest::new(&json!({}));
    let gitlab =
        |token: &str| plain().with("x-gitlab-event", "Push Hook").with("x-gitlab-token", token);
    let quay = json!({"docker_url": "quay.io/shop/app", "updated_tags": ["v1"]});
    let docker =
        json!({"push_data": {"tag": "v1"}, "repository": {"repo_url": "https://hub/r/app"}});
    let acr = json!({"action": "push", "target": {"repository": "app", "tag": "v1"}});
    let merged = json!({
        "context": {"version": "0.4.1", "id": "1", "source": "/ci", "timestamp": "2026-01-02T03:04:05Z",
            "type": "dev.cdevents.change.merged.0.2.0"},
        "subject": {"id": "42", "type": "change", "content": {}},
    });
    let mut unknown = merged.clone();
    unknown["context"]["type"] = json!("dev.cdevents.change.forgotten.0.2.0");
    let event = |body: &Value| {
        WebhookRequest::new(body).with("ce-type", "dev.cdevents.change.merged.0.2.0")
    };
    vec![
        ReceiverTypeCase::new("generic", plain()),
        ReceiverTypeCase::new("gitlab", gitlab(TOKEN))
            .with("events", json!(["Push Hook"]))
            .refuses("with another token", gitlab("another"))
            .refuses("with part of the token", gitlab(&TOKEN[..8]))
            .refuses("without a token", gitlab(TOKEN).without("x-gitlab-token"))
            .refuses("of another event", gitlab(TOKEN).with("x-gitlab-event", "Note Hook")),
        ReceiverTypeCase::new("harbor", plain().with("authorization", TOKEN))
            .refuses("with another token", plain().with("authorization", "another"))
            .refuses("without a token", plain()),
        ReceiverTypeCase::new("quay", WebhookRequest::new(&quay))
            .refuses("of another form", plain().saying(&json!({"updated_tags": "v1"})))
            .refuses("that is no JSON", WebhookRequest { body: "v1".to_owned(), ..plain() }),
        ReceiverTypeCase::new("dockerhub", WebhookRequest::new(&docker))
            .refuses("of another form", plain().saying(&json!({"push_data": {"tag": 1}})))
            .refuses("that is no JSON", WebhookRequest { body: "v1".to_owned(), ..plain() }),
        ReceiverTypeCase::new("acr", WebhookRequest::new(&acr))
            .refuses("of another form", plain().saying(&json!({"target": "app"})))
            .refuses("that is no JSON", WebhookRequest { body: "v1".to_owned(), ..plain() }),
        ReceiverTypeCase::new("cdevents", event(&merged))
            .with("events", json!(["dev.cdevents.change.merged.0.2.0"]))
            .refuses("of an unknown type", event(&unknown))
            .refuses("of another event", event(&merged).with("ce-type", "other"))
            .refuses("of another form", event(&json!({"context": 1}))),
    ]
}

/// Types whose requests contain a token of an issuer.
fn by_issuers(issuer: &TokenIssuerServer) -> Result<Vec<ReceiverTypeCase>> {
    let stranger = IssuerKeys::generate()?;
    let plain = || WebhookRequest::new(&json!({}));
    let with = |token: String| plain().with("authorization", format!("Bearer {token}"));
    let own = |change: Value| issuer.keys.token(&claims(&issuer.url, change));
    let message = json!({"action": "INSERT", "digest": "europe-docker.pkg.dev/shop/app@sha256:0",
        "tag": "europe-docker.pkg.dev/shop/app:v1"});
    let push = |token: String| {
        let data = BASE64_STANDARD.encode(message.to_string());
        with(token).saying(&json!({"message": {"data": data, "messageId": "1",
            "publishTime": "2026-01-02T03:04:05Z"}, "subscription": "projects/shop/subscriptions/app"}))
    };
    let google = |change: Value| issuer.keys.google_token(&claims(GOOGLE, change));
    let validations =
        json!([{"expression": format!("claims.sub == '{SUBJECT}'"), "message": "subject"}]);
    let providers =
        json!([{"issuerURL": issuer.url, "audience": AUDIENCE, "validations": validations}]);
    let mut oidc = ReceiverTypeCase::new("generic-oidc", with(own(json!({}))?));
    oidc.spec = json!({"oidcProviders": providers});
    let late = now() - 3_600;
    let oidc = oidc
        .refuses("for another audience", with(own(json!({"aud": "another"}))?))
        .refuses("of another subject", with(own(json!({"sub": "repo:other/app"}))?))
        .refuses("replayed after its time", with(own(json!({"exp": late}))?))
        .refuses("before its time", with(own(json!({"nbf": now() + 3_600}))?))
        .refuses("of another issuer", with(own(json!({"iss": "https://other.example"}))?))
        .refuses("by another key", with(stranger.token(&claims(&issuer.url, json!({})))?))
        .refuses("without a signature", with(unsigned_token(&claims(&issuer.url, json!({})))))
        .refuses("without a token", plain());
    let gcr = ReceiverTypeCase::new("gcr", push(google(json!({}))?))
        .with("secretRef", json!({"name": "google"}))
        .refuses("for another audience", push(google(json!({"aud": "another"}))?))
        .refuses("of another account", push(google(json!({"email": "other@shop.example"}))?))
        .refuses(
            "of an address that is not verified",
            push(google(json!({"email_verified": false}))?),
        )
        .refuses("replayed after its time", push(google(json!({"exp": late}))?))
        .refuses("of another issuer", push(google(json!({"iss": issuer.url.as_str()}))?))
        .refuses("by another key", push(stranger.google_token(&claims(GOOGLE, json!({})))?))
        .refuses("of another form", with(google(json!({}))?).saying(&json!({"message": 1})))
        .refuses("without a token", push(String::new()).without("authorization"));
    Ok(vec![oidc, gcr])
}

/// The types in the CRD.
fn types() -> Result<BTreeSet<String>> {
    let definition = serde_json::to_value(Receiver::crd())?;
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/type/enum";
    let types = definition.pointer(path).and_then(Value::as_array).context("no enum")?;
    Ok(types.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

/// The annotation by which a Receiver requests a reconciliation of an object.
async fn requested(story: &Story, name: &str) -> Result<Option<String>> {
    let object = story.expect(&StoryObject::kustomization(name)).await?;
    let annotations = object.metadata.annotations.unwrap_or_default();
    Ok(annotations.get("reconcile.fluxcd.io/requestedAt").cloned())
}

async fn judge(story: &Story, windlass: &WindlassProcess, kind: &ReceiverTypeCase) -> Result<()> {
    let name = kind.name;
    // The source does not exist. The story only checks the annotation that requests a reconciliation.
    story.kustomization(name, "none", json!({})).await?;
    let mut spec = kind.spec.clone();
    spec["type"] = json!(name);
    spec["resources"] = json!([{"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization", "name": name}]);
    let object =
        json!({"apiVersion": API, "kind": "Receiver", "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await?;
    let ready = story.await_ready(&StoryObject::new(API, "Receiver", name)).await?;
    let path = ready.data["status"]["webhookPath"].as_str().context("no path")?.to_owned();
    let url = format!("{}{path}", windlass.webhooks());
    // The earlier request to another path made windlass list the paths. It does not list them again at once.
    tokio::time::sleep(LISTED_AGAIN).await;

    for (what, hook) in &kind.forged {
        let status = hook.send(&url).await?;
        ensure!(status == 400, "{name}, {what}: {status}");
    }
    let (_, genuine) = kind.genuine.first().context("no genuine request")?;
    ensure!(genuine.send(&format!("{url}0")).await? == 404, "{name} at another path");
    let large = WebhookRequest { body: " ".repeat(LONGEST + 1), ..genuine.clone() };
    // The server may answer and close the connection before it has received everything.
    ensure!(large.send(&url).await.map_or(true, |status| status == 413), "{name}, oversized");
    ensure!(requested(story, name).await?.is_none(), "{name} was reconciled for a forged request");
    for (what, hook) in &kind.genuine {
        let status = hook.send(&url).await?;
        ensure!(status == 200, "{name}, {what}: {status}");
    }
    ensure!(requested(story, name).await?.is_some(), "{name} was not reconciled");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_of_each_type_accept_genuine_requests_and_reject_others() -> Result<()> {
    let issuer = TokenIssuerServer::start().await?;
    let names = PublicHostNames::give(issuer.address, &["www.googleapis.com"]).await?;
    let story = Story::begin("receivers").await?;
    let windlass = WindlassProcess::start_for_with(&story, &[], &names.environment()).await?;
    for (name, data) in [
        ("token", json!({"token": TOKEN})),
        ("google", json!({"token": TOKEN, "email": EMAIL, "audience": AUDIENCE})),
    ] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": data});
        story.apply_value(secret).await?;
    }
    let kinds: Vec<_> =
        signed().into_iter().chain(unsigned()).chain(by_issuers(&issuer)?).collect();
    let known: BTreeSet<_> = kinds.iter().map(|kind| kind.name.to_owned()).collect();
    ensure!(known == types()?, "{known:?}");
    for kind in &kinds {
        judge(&story, &windlass, kind).await?;
    }
    let forged: usize = kinds.iter().map(|kind| kind.forged.len()).sum();
    ensure!(windlass.operator.log()?.matches("webhook rejected").count() == forged);
    story.end().await
}
