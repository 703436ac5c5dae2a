//! The first line of `windlass why` names the true cause and its object for many failures. More are in `why_failures.rs`.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{StoryChartRepository, by_value, hook};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::manifests::{PodBehavior, config_map, deployment, job};
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

use crate::cli::windlass;
use crate::cli::windlass_ui::causes_are_first_headings;

/// Waits until the first line of `windlass why` contains all given parts. Each call has two seconds, and `{ns}` stands for the
/// namespace.
pub(crate) async fn await_cause(
    story: &Story,
    object: &str,
    problem: &str,
    parts: &[&str],
) -> Result<()> {
    let parts: Vec<String> = parts.iter().map(|it| it.replace("{ns}", &story.namespace)).collect();
    let mut last = String::new();
    let what = format!("`why {object}` to name {parts:?}");
    let found = story.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
        let said = windlass(story, &["why", object, "--timeout", "2s"])?;
        let line = said.out.lines().next().unwrap_or_default().to_owned();
        let is_it = parts.iter().all(|part| line.contains(part.as_str()));
        last = format!("{} {}{}", said.code.unwrap_or_default(), said.out, said.err);
        if !is_it {
            return Ok(None);
        }
        // Another attempt may have begun meanwhile.
        let why = windlass(story, &["why", object, "-o", "json"])?.json(1)?;
        last = format!("{why:#}");
        Ok((why["cause"]["problem"] == problem).then_some(why))
    });
    let found = found.await;
    let why = found.with_context(|| last)?;
    ensure!(!why["advice"]["text"].as_str().unwrap_or_default().is_empty(), "{why:#}");
    Ok(())
}

/// A kustomization that fails to build.
const BAD_PATCH: &str = "resources: [a.yaml]\npatches: [{target: {kind: ConfigMap}, patch: '[{op: remove, path: /none}]'}]\n";

#[tokio::test(flavor = "multi_thread")]
async fn why_names_what_is_wrong_with_sources() -> Result<()> {
    let story = Story::with_windlass("why-sources").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let url = upstream.server.url(&upstream.repository);
    story.git_repository("reference", &url, json!({"ref": {"branch": "nowhere"}})).await?;
    story.git_repository("unreachable", "http://127.0.0.1:1/app.git", json!({})).await?;
    story.git_repository("secret", &url, json!({"secretRef": {"name": "git-auth"}})).await?;
    for name in ["reference", "unreachable", "secret", "missing"] {
        story.kustomization(name, name, json!({})).await?;
    }
    let ks = "kustomization/";
    for (name, problem, parts) in [
        ("reference", "Fetch", ["GitRepository/{ns}/reference", "nowhere"]),
        ("unreachable", "Fetch", ["GitRepository/{ns}/unreachable", "127.0.0.1:1"]),
        ("secret", "Missing", ["Secret/{ns}/git-auth does not exist", "GitRepository/{ns}/secret"]),
        ("missing", "Missing", ["GitRepository/{ns}/missing", "does not exist"]),
    ] {
        await_cause(&story, &format!("{ks}{name}"), problem, &parts).await?;
    }

    // If a source fails later, its applied objects stay ready but become outdated.
    story.kustomization("stale", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("stale")).await?;
    story.git_repository("app", "http://127.0.0.1:1/app.git", json!({})).await?;
    let parts = ["is ready, but newer revisions do not reach it", "GitRepository/{ns}/app"];
    await_cause(&story, "ks/stale", "Fetch", &parts).await?;
    let objects = ["ks/reference", "ks/unreachable", "ks/secret", "ks/missing", "ks/stale"];
    causes_are_first_headings(&story, &objects).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_what_a_run_cannot_do() -> Result<()> {
    let story = Story::with_windlass("why-runs").await?;
    let schema = deployment("refused", PodBehavior::Ready).replace("replicas: 1", "replicas: many");
    let files = [
        ("fine/a.yaml", config_map("a", "1")),
        ("patch/kustomization.yaml", BAD_PATCH.to_owned()),
        ("patch/a.yaml", config_map("patched", "1")),
        ("yaml/a.yaml", "a: [1\n".to_owned()),
        ("schema/a.yaml", schema),
        ("forbidden/a.yaml", config_map("forbidden", "1")),
    ];
    let _upstream = story.follow("app", &files).await?;
    let on = |name: &str| json!([{"name": name}]);
    let specs: [(&str, Value); 9] = [
        ("patch", json!({"path": "./patch"})),
        ("yaml", json!({"path": "./yaml"})),
        ("path", json!({"path": "./nowhere"})),
        ("schema", json!({"path": "./schema"})),
        ("forbidden", json!({"path": "./forbidden", "serviceAccountName": "tenant"})),
        ("one", json!({"path": "./fine", "dependsOn": on("two")})),
        ("two", json!({"path": "./fine", "dependsOn": on("one")})),
        ("waits", json!({"path": "./fine", "dependsOn": on("patch")})),
        (
            "variables",
            json!({"path": "./fine",
            "postBuild": {"substituteFrom": [{"kind": "ConfigMap", "name": "variables"}]}}),
        ),
    ];
    story.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant}}").await?;
    for (name, spec) in specs {
        story.kustomization(name, "app", spec).await?;
    }
    for (name, problem, parts) in [
        ("patch", "Build", ["Kustomization/{ns}/patch", "/none"]),
        ("yaml", "Build", ["Kustomization/{ns}/yaml", "a.yaml"]),
        ("path", "Build", ["Kustomization/{ns}/path", "nowhere"]),
        ("schema", "Apply", ["Deployment/{ns}/refused", "replicas"]),
        ("forbidden", "Apply", ["configmaps \"forbidden\" is forbidden", "tenant"]),
        ("one", "Cycle", ["Kustomization/{ns}/one", "two"]),
        ("waits", "Build", ["Kustomization/{ns}/waits", "Kustomization/{ns}/patch"]),
        (
            "variables",
            "Missing",
            ["Kustomization/{ns}/variables", "ConfigMap/{ns}/variables does not exist"],
        ),
    ] {
        await_cause(&story, &format!("ks/{name}"), problem, &parts).await?;
    }
    let names = ["patch", "yaml", "path", "schema", "forbidden", "one", "waits", "variables"];
    let objects = names.map(|name| format!("ks/{name}"));
    causes_are_first_headings(&story, &objects.each_ref().map(String::as_str)).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_holds_and_windows() -> Result<()> {
    let story = Story::with_windlass("why-holds").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    for name in ["held", "closed", "invalid"] {
        story.kustomization(name, "app", json!({"suspend": true})).await?;
    }
    let annotate = async |name: &str, suspend: bool, annotations: Value| {
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": suspend}});
        story.merge(&StoryObject::kustomization(name), patch).await.map(drop)
    };
    let hold =
        json!({"windlass.dev/suspended-by": "alice", "windlass.dev/suspended-reason": "migration"});
    annotate("held", true, hold).await?;
    let past = json!({"windlass.dev/suspended-by": "bob", "windlass.dev/suspended-until": "2020-01-01T00:00:00Z"});
    // A manifest contains the whole release.
    let spec = json!({"interval": NEVER, "prune": true, "targetNamespace": story.namespace, "suspend": true,
        "sourceRef": {"kind": "GitRepository", "name": "app"}});
    let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "expired", "annotations": past}, "spec": spec});
    story.apply_value(object).await?;
    annotate("closed", false, json!({"windlass.dev/window": "0 0 29 2 * 1s"})).await?;
    annotate("invalid", false, json!({"windlass.dev/window": "sometimes"})).await?;
    for (name, problem, parts) in [
        ("held", "Suspension", ["is suspended by alice", "migration"]),
        ("closed", "ClosedWindow", ["outside the window", "0 0 29 2 * 1s"]),
        ("invalid", "InvalidWindow", ["Kustomization/{ns}/invalid", "windlass.dev/window"]),
        (
            "expired",
            "ExpiredHold",
            ["Kustomization/{ns}/expired", "expired at 2020-01-01T00:00:00Z"],
        ),
    ] {
        await_cause(&story, &format!("ks/{name}"), problem, &parts).await?;
    }
    let objects = ["ks/held", "ks/closed", "ks/invalid", "ks/expired"];
    causes_are_first_headings(&story, &objects).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_the_container_the_quota_and_the_volume() -> Result<()> {
    let story = Story::with_windlass("why-workloads").await?;
    let claim = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {accessModes: \
                 [ReadWriteOnce], storageClassName: none, resources: {requests: {storage: 1Gi}}}}";
    let files = [
        ("crash/a.yaml", deployment("crashing", PodBehavior::CrashLoop)),
        ("fail/a.yaml", job("failing", PodBehavior::Fail)),
        ("volume/a.yaml", claim.to_owned()),
        ("unready/a.yaml", deployment("unready", PodBehavior::Unready)),
        (
            "node/a.yaml",
            deployment("nowhere", PodBehavior::Ready)
                .replace("restartPolicy", "nodeSelector: {none: none}\n      restartPolicy"),
        ),
    ];
    let _upstream = story.follow("app", &files).await?;
    for name in ["crash", "fail", "volume", "unready", "node"] {
        let spec = json!({"path": format!("./{name}"), "wait": true, "timeout": "5m"});
        story.kustomization(name, "app", spec).await?;
    }
    for (name, problem, parts) in [
        ("crash", "Container", ["Pod/{ns}/crashing-", "CrashLoopBackOff"]),
        ("fail", "Container", ["Pod/{ns}/failing-", "exit code 1"]),
        ("volume", "Volume", ["PersistentVolumeClaim/{ns}/data", "none"]),
        ("node", "Scheduling", ["Pod/{ns}/nowhere-", "is not scheduled"]),
        ("unready", "Health", ["Deployment/{ns}/unready", "is being reconciled"]),
    ] {
        await_cause(&story, &format!("ks/{name}"), problem, &parts).await?;
    }
    // `windlass why` also finds the cause of an applied object.
    await_cause(&story, "deployment/crashing", "Container", &["Pod/{ns}/crashing-"]).await?;

    let quota = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: small}, spec: {hard: {pods: \"0\"}}}";
    story.apply(quota).await?;
    story.apply(&deployment("too-many", PodBehavior::Ready)).await?;
    await_cause(
        &story,
        "deployment/too-many",
        "Admission",
        &["Deployment/{ns}/too-many", "exceeded quota"],
    )
    .await?;
    let objects =
        ["ks/crash", "ks/fail", "ks/volume", "ks/node", "ks/unready", "deployment/too-many"];
    causes_are_first_headings(&story, &objects).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn why_names_what_is_wrong_with_releases() -> Result<()> {
    let story = Story::with_windlass("why-releases").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let values = by_value();
    let hook = hook("migrate", "pre-install", 0, "", PodBehavior::Fail);
    let broken = "{{ if .Values.broken }}{{ fail \"values are broken\" }}{{ end }}\n";
    let gated = format!("{{{{ if .Values.hook }}}}\n{hook}\n{{{{ end }}}}\n");
    let files = [
        ("templates/a.yaml", values.as_str()),
        ("templates/broken.yaml", broken),
        ("templates/hook.yaml", gated.as_str()),
    ];
    charts.publish("1.0.0", &files).await?;
    charts.seen().await?;
    let chart = |name: &str| json!({"spec": {"chart": name, "version": "*", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
    let secret = json!([{"kind": "Secret", "name": "values"}]);
    charts.release("broken", json!({"values": {"value": "1", "broken": true}})).await?;
    charts.release("hooked", json!({"values": {"value": "1", "hook": true}})).await?;
    charts.release("secret", json!({"valuesFrom": secret})).await?;
    charts.release("nowhere", json!({"chart": chart("nowhere")})).await?;
    for (name, problem, parts) in [
        ("broken", "Apply", ["HelmRelease/{ns}/broken", "values are broken"]),
        ("hooked", "Apply", ["HelmRelease/{ns}/hooked", "migrate"]),
        ("secret", "Missing", ["HelmRelease/{ns}/secret", "Secret/{ns}/values does not exist"]),
        ("nowhere", "Spec", ["HelmChart/{ns}/", "nowhere"]),
    ] {
        await_cause(&story, &format!("hr/{name}"), problem, &parts).await?;
    }
    let objects = ["hr/broken", "hr/hooked", "hr/secret", "hr/nowhere"];
    causes_are_first_headings(&story, &objects).await?;
    story.end().await
}
