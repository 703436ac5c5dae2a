//! Resources of helmfile-operator work unchanged, and helmfiles at addresses are fetched again.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use testbed::binaries::TestbedBinaries;

const API: &str = "apps.mumoshu.github.io/v1alpha1";

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

/// A helmfile in an old format: a template without `.gotmpl`, environments and releases in one part, and a key of Helm 2.
const HELMFILE: &str = "environments:\n  default:\n    values: [{tier: low}]\n\
    helmDefaults: {tillerless: true}\n\
    releases:\n- name: myapp\n  chart: ./app\n  \
    values: [{value: '{{ .Values.foo }}-{{ requiredEnv \"bar\" }}-{{ .Values.tier }}'}]\n";

/// Waits until the ConfigMap of the release has a value.
async fn await_value(story: &Story, value: &str) -> Result<()> {
    story.await_value("myapp-config", value).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_tells_the_two_kinds_of_helmfiles_apart() -> Result<()> {
    let story = Story::with_windlass("helmfile-kinds").await?;
    let suspended = json!({"suspend": true, "source": "git::https://git.test/app@helmfile.yaml"});
    let ours = "helmfile.windlass.dev/v1alpha1";
    for (api, name, interval) in [(API, "theirs", None), (ours, "ours", Some(NEVER))] {
        let mut spec = suspended.clone();
        if let Some(interval) = interval {
            spec["interval"] = json!(interval);
        }
        let metadata = json!({"name": name});
        let object =
            json!({"apiVersion": api, "kind": "Helmfile", "metadata": metadata, "spec": spec});
        story.apply_value(object).await?;
    }
    let kubectl = TestbedBinaries::ensure()?.path("kubectl")?.to_owned();
    for (word, expected) in [
        ("hf", "helmfile.helmfile.windlass.dev/ours"),
        ("helmfiles.helmfile.windlass.dev", "helmfile.helmfile.windlass.dev/ours"),
        ("helmfile", "helmfile.apps.mumoshu.github.io/theirs"),
    ] {
        let output = Command::new(&kubectl)
            .arg(format!("--kubeconfig={}", story.kubeconfig().display()))
            .args(["--namespace", &story.namespace, "get", word, "-o", "name"])
            .output()?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(listed.trim() == expected, "{word}: {output:?}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_helmfile_operator_is_kept_as_it_stands() -> Result<()> {
    let story = Story::with_windlass("helmfile-operator").await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("helmfile-operator")?;
    let folder = "pkg/examplecontroller/assets";
    let path = |name: &str| format!("{folder}/{name}");
    repository.branch("master")?;
    repository.commit(
        &[
            (&path("helmfile.yaml"), HELMFILE),
            (&path("app/Chart.yaml"), CHART),
            (&path("app/templates/config.yaml"), CONFIG),
        ],
        "an example",
    )?;
    let url = server.url(&repository);
    let source = format!("git::{url}//pkg/examplecontroller@assets?ref=master");
    let spec = json!({"source": source, "values": {"foo": "FOO"}, "envvars": {"bar": "BAR"}});
    let target = StoryObject::new(API, "Helmfile", "myapp");
    let apply = async |spec: &Value| {
        let object = json!({"apiVersion": API, "kind": "Helmfile", "metadata": {"name": "myapp"}, "spec": spec});
        story.apply_value(object).await
    };
    apply(&spec).await?;
    let object = story.await_ready(&target).await?;
    await_value(&story, "FOO-BAR-low").await?;
    let live = story.expect(&StoryObject::config_map("myapp-config")).await?;
    let labels = live.metadata.labels.clone().unwrap_or_default();
    let name = labels.get("apps.mumoshu.github.io/helmfile-name");
    ensure!(name.is_some_and(|it| it == "myapp"), "{labels:?}");
    let revision = object.data["status"]["lastAppliedRevision"].as_str().unwrap_or_default();
    ensure!(revision.starts_with("master@sha1:"), "{revision}");
    // windlass corrects drift, unlike helmfile-operator.
    story
        .merge(&StoryObject::config_map("myapp-config"), json!({"data": {"value": "edited"}}))
        .await?;
    await_value(&story, "FOO-BAR-low").await?;
    // Without a change there is no new revision. A new commit on the branch is used.
    story.request(&target).await?;
    story.await_ready(&target).await?;
    ensure!(story.history("myapp")?.len() == 1);
    repository.commit(&[(&path("helmfile.yaml"), &HELMFILE.replace("low", "high"))], "high")?;
    story.request(&target).await?;
    await_value(&story, "FOO-BAR-high").await?;

    // windlass names fields without effect. A changed spec has an effect, unlike in helmfile-operator.
    let mut more = spec.clone();
    more["image"] = json!({"repository": "quay.io/examplecom/example", "tag": "v1.2.3"});
    more["command"] = json!("helmfile-applier");
    more["values"]["foo"] = json!("BAZ");
    apply(&more).await?;
    await_value(&story, "BAZ-BAR-high").await?;
    let is_named = |object: &DynamicObject| {
        let ignored = condition(object, "LegacyFieldsIgnored");
        let text = ignored["message"].as_str().unwrap_or_default();
        ignored["status"] == "True"
            && ["spec.image", "spec.command"].iter().all(|it| text.contains(it))
    };
    story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_named).await?;

    // A ServiceAccount without rights changes nothing.
    more["serviceAccountName"] = json!("without-rights");
    more["values"]["foo"] = json!("QUX");
    apply(&more).await?;
    let user = format!("system:serviceaccount:{}:without-rights", story.namespace);
    let is_refused = |object: &DynamicObject| {
        condition(object, "Ready")["message"].as_str().unwrap_or_default().contains(&user)
    };
    story.await_object(&target, DEFAULT_WAIT_TIMEOUT, is_refused).await?;
    await_value(&story, "BAZ-BAR-high").await?;
    apply(&spec).await?;
    await_value(&story, "FOO-BAR-high").await?;
    story.await_ready(&target).await?;

    goes_over_to_windlass(&story, &target, &source).await?;
    story.end().await
}

/// The releases stay when this object is deleted, and a Helmfile of windlass takes them over without a new revision.
async fn goes_over_to_windlass(story: &Story, target: &StoryObject, source: &str) -> Result<()> {
    let revisions = story.history("myapp")?.len();
    story.delete(target).await?;
    story.await_gone(target, DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&StoryObject::config_map("myapp-config")).await?;
    let own = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": "own"}, "spec": {"source": source, "dialect": "v0", "interval": NEVER,
            "values": {"foo": "FOO"}, "env": [{"name": "bar", "value": "BAR"}], "prune": true}});
    story.apply_value(own.clone()).await?;
    let own_target = StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "own");
    story.await_ready(&own_target).await?;
    ensure!(story.history("myapp")?.len() == revisions, "the release was upgraded");

    // The status names a reference that does not exist, and the installed releases stay.
    let gone = own.to_string().replace("ref=master", "ref=gone");
    story.apply_value(serde_json::from_str(&gone)?).await?;
    let text = story.await_failure(&own_target, "ArtifactFailed").await?;
    ensure!(text.contains("`gone` not found"), "{text}");
    story.await_value("myapp-config", "FOO-BAR-high").await?;
    story.apply_value(own).await?;
    story.await_ready(&own_target).await?;
    story.delete(&own_target).await?;
    story.await_gone(&own_target, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&StoryObject::config_map("myapp-config"), Duration::ZERO).await.map(drop)
}
