//! Addresses: credentials in them, redirects to other servers, and a full storage.

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::web::FileWebServer;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::{create, refusal};
use crate::cli::why_advice::advice;
use crate::cli::why_causes::await_cause;

const CANARY: &str = "hunter2-in-the-address";

/// The spec of each kind with a server at an address, and with credentials if the kind accepts them.
fn specs(address: &str, secret: Option<&str>) -> Vec<(&'static str, Value)> {
    let place = address.split_once("://").map_or(address, |(_, place)| place);
    let mut all = vec![
        ("HTTPArchive", json!({"url": format!("{address}/app.yaml")})),
        ("HelmRepository", json!({"url": address})),
        ("GitRepository", json!({"url": format!("{address}/app.git"), "ref": {"branch": "main"}})),
        ("OCIRepository", json!({"url": format!("oci://{place}/app"), "insecure": true})),
        ("Bucket", json!({"endpoint": place, "bucketName": "app", "insecure": true})),
    ];
    for (kind, spec) in &mut all {
        // A Bucket signs its requests, and a registry is first asked for its authentication.
        if let Some(secret) = secret.filter(|_| !["Bucket", "OCIRepository"].contains(kind)) {
            spec["secretRef"] = json!({"name": secret});
        }
        spec["timeout"] = json!("5s");
    }
    all
}

/// Checks that no status, event or log line of these objects contains a text.
async fn ensure_not_leaked(
    story: &Story,
    windlass: &WindlassProcess,
    kinds: &[(&str, String)],
    secret: &str,
) -> Result<()> {
    for (kind, name) in kinds {
        let api = if *kind == "HTTPArchive" { super::OURS } else { super::API };
        let target = StoryObject::new(api, kind, name);
        let status = story.expect(&target).await?.data["status"].to_string();
        let events = story.events(kind, name).await?.join("\n");
        ensure!(!status.contains(secret) && !events.contains(secret), "{target} tells it");
    }
    let log = windlass.operator.log()?;
    let line = log.lines().find(|line| line.contains(secret));
    ensure!(line.is_none(), "the log tells it: {line:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_in_an_address_are_shown_nowhere() -> Result<()> {
    let story = Story::begin("hostile-credentials").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let address = format!("http://walker:{CANARY}@{closed_port}");
    let mut made = Vec::new();
    for (kind, spec) in specs(&address, None) {
        let name = kind.to_lowercase();
        // The schemas already refuse some of them.
        if let Ok(target) = create(&story, kind, &name, spec).await {
            refusal(&story, &target).await?;
            made.push((kind, name));
        }
    }
    ensure!(made.len() >= 4, "{made:?}");
    ensure_not_leaked(&story, &windlass, &made, CANARY).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirected_request_has_no_credentials_and_reaches_no_metadata_service() -> Result<()> {
    let story = Story::begin("hostile-redirects").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let other = FileWebServer::start().await?;
    other.protect(&format!("Basic {}", BASE64_STANDARD.encode(format!("walker:{CANARY}"))));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
        "stringData": {"username": "walker", "password": CANARY}});
    story.apply_value(secret).await?;
    let targets = [
        ("other", format!("http://{}", other.address())),
        ("file", "file:///etc/passwd".to_owned()),
        ("link-local", "http://169.254.169.254".to_owned()),
        ("gopher", "gopher://127.0.0.1:1".to_owned()),
        ("nowhere", "//".to_owned()),
    ];
    let mut made = Vec::new();
    let mut servers = Vec::new();
    for (name, to) in &targets {
        let server = FileWebServer::start().await?;
        // The first path that each kind requests. The redirect keeps the rest of the path, so the file would be found there.
        for path in [
            "app.yaml",
            "index.yaml",
            "app.git/info/refs",
            "v2/app/manifests/latest",
            "app",
            "app/",
        ] {
            server.redirect(path, &format!("{to}/{path}"));
        }
        for (kind, spec) in specs(&format!("http://{}", server.address()), Some("login")) {
            let name = format!("{}-{name}", kind.to_lowercase());
            let target = create(&story, kind, &name, spec).await?;
            made.push((kind, name, target));
        }
        servers.push(server);
    }
    // A spec that names such an address itself does not reach it either.
    for (kind, spec) in specs("http://169.254.169.254", Some("login")) {
        let name = format!("{}-named-link-local", kind.to_lowercase());
        let target = create(&story, kind, &name, spec).await?;
        made.push((kind, name, target));
    }
    // A spec that names such an address as its proxy does not reach it either.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "proxy"},
        "stringData": {"address": "http://169.254.169.254", "username": "walker", "password": CANARY}});
    story.apply_value(secret).await?;
    for (kind, mut spec) in specs(&format!("http://{}", other.address()), None) {
        // This kind names no proxy.
        if kind != "HelmRepository" {
            spec["proxySecretRef"] = json!({"name": "proxy"});
            let name = format!("{}-by-link-local", kind.to_lowercase());
            let target = create(&story, kind, &name, spec).await?;
            made.push((kind, name, target));
        }
    }
    let mut wrong = Vec::new();
    for (kind, name, target) in &made {
        let text = refusal(&story, target).await?;
        let says = match (*kind, &**name) {
            ("Bucket", "bucket-named-link-local") => "invalid",
            (_, name) if name.ends_with("-by-link-local") => "`address` is a link-local",
            // The S3 library follows no redirects.
            ("Bucket", _) => "responded to a listing with 302",
            (_, name) if name.ends_with("-other") => "401",
            (_, name) if name.ends_with("-link-local") => "link-local",
            (_, name) if name.ends_with("-nowhere") => "redirect",
            ("OCIRepository", _) => "not allowed",
            ("HTTPArchive", _) => "only http:// and https:// are supported",
            _ => "it is neither http nor https",
        };
        // One library accepts an empty URL when it joins URLs, and fails later.
        let is_right =
            text.contains(says) || (name.ends_with("-nowhere") && text.contains("is not a URL"));
        if !is_right {
            wrong.push(format!("{name} does not say `{says}`: {text}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(other.with_credentials() == 0, "another server was sent credentials");
    ensure!(!other.answers().is_empty(), "no request was redirected to the other server");
    let objects: Vec<_> = made.iter().map(|(kind, name, _)| (*kind, name.clone())).collect();
    ensure_not_leaked(&story, &windlass, &objects, CANARY).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_redirect_leads_to_windlass_itself_or_to_its_machine() -> Result<()> {
    let story = Story::begin("hostile-near").await?;
    let windlass = WindlassProcess::start_for(&story, &["--allow-loopback-sources=false"]).await?;
    let port = windlass.artifacts().trim_end_matches('/').rsplit(':').next().context("no port")?;
    let hosts = ["127.0.0.1", "127.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]"];
    let mut made = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        for (kind, spec) in specs(&format!("http://{host}:{port}"), None) {
            let name = format!("{}-{at}", kind.to_lowercase());
            // The schemas already refuse some of them.
            if let Ok(target) = create(&story, kind, &name, spec).await {
                made.push(target);
            }
        }
        let proxy = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("proxy-{at}")},
            "stringData": {"address": format!("http://{host}:{port}")}});
        story.apply_value(proxy).await?;
        let spec = json!({"url": "http://app.example/app.yaml", "timeout": "5s",
            "proxySecretRef": {"name": format!("proxy-{at}")}});
        made.push(create(&story, "HTTPArchive", &format!("proxied-{at}"), spec).await?);
    }
    ensure!(made.len() >= 5 * hosts.len(), "{made:?}");
    let mut wrong = Vec::new();
    for target in &made {
        let text = refusal(&story, target).await?;
        if !text.contains("resolves to windlass itself") {
            wrong.push(format!("{target}: {text}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_address_of_the_own_node_is_fetched_with_the_flag_that_the_advice_names()
-> Result<()> {
    let story = Story::begin("hostile-advice").await?;
    let mut windlass =
        WindlassProcess::start_for(&story, &["--allow-loopback-sources=false"]).await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let parts = ["GitRepository/{ns}/app", "resolves to windlass itself or to its node"];
    await_cause(&story, "ks/app", "Fetch", &parts).await?;
    let advice = advice(&story, "ks/app")?;
    let text = advice["text"].as_str().unwrap_or_default();
    let flag = text.split_whitespace().find(|word| word.starts_with("--")).context("no flag")?;
    windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    let _windlass = WindlassProcess::start_for(&story, &[flag]).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    story.await_value("a", "1").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_does_not_fit_into_the_store_is_reported_and_others_continue() -> Result<()>
{
    let story = Story::begin("full").await?;
    let windlass = WindlassProcess::start_for(&story, &["--storage-size-limit=100Ki"]).await?;
    let server = FileWebServer::start().await?;
    let mut random = e2e::random_sequence::RandomSequence::new(1);
    let mut noise = String::from("value: ");
    while noise.len() < 400_000 {
        noise.push_str(&format!("{:016x}", random.number()));
    }
    let big = server.put("big.yaml", noise);
    let small = server.put("small.yaml", config_map("small", "1"));
    let small = create(&story, "HTTPArchive", "small", json!({"url": small})).await?;
    story.await_ready(&small).await?;
    let big = create(&story, "HTTPArchive", "big", json!({"url": big})).await?;
    let text = refusal(&story, &big).await?;
    ensure!(text.contains("--storage-size-limit"), "{text}");
    let object = story.expect(&big).await?;
    let storage_condition = condition(&object, "StorageOperationFailed");
    ensure!(storage_condition["status"] == "True", "{:?}", object.data["status"]);

    server.put("small.yaml", config_map("small", "2"));
    let before = story.expect(&small).await?.data["status"]["artifact"]["revision"].clone();
    story.request(&small).await?;
    let is_new = |it: &DynamicObject| it.data["status"]["artifact"]["revision"] != before;
    let object = story.await_object(&small, DEFAULT_WAIT_TIMEOUT, is_new).await?;
    object.data["status"]["artifact"]["url"].as_str().context("no artifact")?;
    let kept = windlass.storage().join("httparchive").join(&story.namespace).join("big");
    let left = std::fs::read_dir(&kept).map_or(0, Iterator::count);
    ensure!(left == 0, "{left} files are left of what did not fit");

    // As soon as the file is small enough, it fits.
    server.put("big.yaml", config_map("big", "1"));
    story.request(&big).await?;
    story.await_ready(&big).await?;
    story.end().await
}
