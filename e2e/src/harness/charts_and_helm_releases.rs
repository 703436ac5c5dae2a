//! The functions with which stories publish charts, create HelmReleases and wait for them.
//!
//! Here: charts in a repository, HelmReleases and their results, the release records in the cluster, the standard `helm`
//! command.
//! Elsewhere: the server of the repository ([`crate::servers::charts`]).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, REQUESTED_AT, condition};
use super::manifests::{PodBehavior, deployment, job};
use super::{Story, StoryObject};
use crate::servers::charts::ChartServer;
use testbed::upstream_programs::UpstreamProgram;

const SOURCES: &str = "source.toolkit.fluxcd.io/v1";

/// A repository of charts for the HelmReleases of a story.
pub struct StoryChartRepository<'s> {
    story: &'s Story,
    /// The server of the charts.
    pub server: ChartServer,
}

/// The files of a chart, each with its path in the chart and its text.
pub type ChartFileTexts<'f> = [(&'f str, &'f str)];

/// The template of a ConfigMap that contains a value.
pub const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-config}\n\
    data:\n  value: {{ .Values.value | default \"none\" | quote }}\n  chart: {{ .Chart.Version }}\n";

/// The template of a ConfigMap that contains all values as JSON.
pub const VALUES: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-values}\n\
    data:\n  all: {{ .Values | toJson | quote }}\n";

/// The template of a Deployment `web`. The value `pods` decides how its Pods behave.
pub fn by_value() -> String {
    let says = "windlass.dev/testbed: {{ .Values.pods | default \"ready\" }}";
    deployment("web", PodBehavior::Ready).replace("windlass.dev/testbed: ready", says)
}

impl StoryObject {
    /// A HelmRelease of Flux with this name.
    pub fn helm_release(name: &str) -> Self {
        Self::new("helm.toolkit.fluxcd.io/v2", "HelmRelease", name)
    }

    /// A HelmChart of Flux with this name.
    pub fn helm_chart(name: &str) -> Self {
        Self::new(SOURCES, "HelmChart", name)
    }
}

impl<'s> StoryChartRepository<'s> {
    /// Starts a repository without charts, and creates the HelmRepository `charts` for it.
    ///
    /// # Errors
    /// The server cannot be started, or the API server refuses.
    pub async fn of(story: &'s Story) -> Result<StoryChartRepository<'s>> {
        let server = ChartServer::start(None)?;
        let url = server.url();
        server.publish(&[("Chart.yaml", "apiVersion: v2\nname: none\nversion: 0.0.1\n")])?;
        let object = json!({"apiVersion": SOURCES, "kind": "HelmRepository",
            "metadata": {"name": "charts"}, "spec": {"interval": NEVER, "url": url}});
        story.apply_value(object).await?;
        Ok(Self { story, server })
    }

    /// Publishes a version of the chart `app`, and requests a reconciliation of the repository.
    ///
    /// # Errors
    /// `helm` fails. The error contains its output.
    pub async fn publish(&self, version: &str, files: &ChartFileTexts<'_>) -> Result<()> {
        let yaml =
            format!("apiVersion: v2\nname: app\nversion: {version}\nappVersion: a{version}\n");
        self.publish_files(&[&[("Chart.yaml", yaml.as_str())], files].concat()).await
    }

    /// Publishes a chart from files that include its `Chart.yaml`.
    ///
    /// # Errors
    /// `helm` fails. The error contains its output.
    pub async fn publish_files(&self, files: &ChartFileTexts<'_>) -> Result<()> {
        self.server.publish(files)?;
        self.story.request(&StoryObject::new(SOURCES, "HelmRepository", "charts")).await.map(drop)
    }

    /// Waits until the HelmRepository knows all published charts. Stories need this if a release must not begin with an older
    /// version.
    ///
    /// # Errors
    /// The repository is not reconciled.
    pub async fn seen(&self) -> Result<()> {
        let repository = StoryObject::new(SOURCES, "HelmRepository", "charts");
        let is_seen = |object: &DynamicObject| {
            let asked = object.metadata.annotations.as_ref().and_then(|it| it.get(REQUESTED_AT));
            let handled = object.data["status"]["lastHandledReconcileAt"].as_str();
            asked.map(String::as_str) == handled && condition(object, "Ready")["status"] == "True"
        };
        self.story.await_object(&repository, DEFAULT_WAIT_TIMEOUT, is_seen).await.map(drop)
    }

    /// Creates a HelmRelease of the newest version of the chart `app`.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn release(&self, name: &str, more: Value) -> Result<StoryObject> {
        let chart = json!({"spec": {"chart": "app", "version": "*",
            "sourceRef": {"kind": "HelmRepository", "name": "charts"}}});
        let mut spec = json!({"interval": NEVER, "chart": chart});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": name}, "spec": spec});
        self.story.apply_value(object).await?;
        Ok(StoryObject::helm_release(name))
    }
}

/// The newest entry in the history of a HelmRelease.
pub fn newest(object: &DynamicObject) -> &Value {
    &object.data["status"]["history"][0]
}

impl Story {
    /// Waits until a HelmRelease is ready with this revision of its Helm release.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_revision(
        &self,
        target: &StoryObject,
        version: i64,
    ) -> Result<DynamicObject> {
        let is_there = |object: &DynamicObject| {
            condition(object, "Ready")["status"] == "True"
                && newest(object)["version"] == version
                && object.data["status"]["observedGeneration"].as_i64()
                    == object.metadata.generation
        };
        let outcome = self.await_object(target, DEFAULT_WAIT_TIMEOUT, is_there).await;
        outcome.with_context(|| format!("{target} did not become ready with revision {version}"))
    }

    /// Waits until an object is not Ready and its message contains a text. Returns the reason and the message.
    ///
    /// # Errors
    /// The expected state is not reached in time.
    pub async fn await_message(&self, target: &StoryObject, part: &str) -> Result<String> {
        let ready_message = |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            let word = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
            (ready["status"] == "False").then(|| format!("{}: {}", word("reason"), word("message")))
        };
        let has =
            |object: &DynamicObject| ready_message(object).is_some_and(|text| text.contains(part));
        let outcome = self.await_object(target, DEFAULT_WAIT_TIMEOUT, has).await;
        let object = outcome.with_context(|| format!("{target} did not say `{part}`"))?;
        Ok(ready_message(&object).unwrap_or_default())
    }

    /// Runs the standard `helm` 4.2 in the namespace of the story.
    ///
    /// # Errors
    /// The command cannot be started. If it fails by itself, its messages are in the returned output.
    pub fn helm(&self, arguments: &[&str]) -> Result<Output> {
        self.run_helm(&UpstreamProgram::Helm.ensure()?, arguments)
    }

    /// Runs the standard `helm` 3.22 in the namespace of the story.
    ///
    /// # Errors
    /// `helm` cannot be run or fails. The error contains its output.
    pub fn helm3(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run_helm(&UpstreamProgram::Helm3.ensure()?, arguments)?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm 3 {arguments:?}: {text}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs the standard `helm` and returns its output.
    ///
    /// # Errors
    /// The command fails. The error contains its output.
    pub fn helm_says(&self, arguments: &[&str]) -> Result<String> {
        let output = self.helm(arguments)?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "helm {arguments:?}: {text}");
        Ok(String::from_utf8(output.stdout)?)
    }

    fn run_helm(&self, helm: &PathBuf, arguments: &[&str]) -> Result<Output> {
        let home = tempfile::tempdir()?;
        self.helm_command(helm, home.path(), arguments).output().context("cannot run helm")
    }

    fn helm_command(&self, helm: &PathBuf, home: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(helm);
        command
            .env_clear()
            .env("HOME", home)
            .env("KUBECONFIG", self.kubeconfig())
            .args(arguments)
            .args(["--namespace", &self.namespace]);
        command
    }

    /// Runs the standard `helm` 4.2 until `is_reached` is true, and then kills it. So `helm` leaves its work unfinished.
    ///
    /// # Errors
    /// `helm` cannot be run, ends by itself, or does not reach the state in time.
    pub async fn helm_killed(
        &self,
        arguments: &[&str],
        mut is_reached: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        let helm = UpstreamProgram::Helm.ensure()?;
        let home = tempfile::tempdir()?;
        let mut child = self.helm_command(&helm, home.path(), arguments).spawn()?;
        let reached = self
            .await_until("helm to come so far", DEFAULT_WAIT_TIMEOUT, async || {
                if let Some(status) = child.try_wait()? {
                    return Ok(Some(Some(status)));
                }
                Ok(is_reached().await?.then_some(None))
            })
            .await;
        child.kill().ok();
        child.wait()?;
        ensure!(reached?.is_none(), "helm {arguments:?} ended by itself");
        Ok(())
    }

    /// Lets the Pods of a Job complete that were made to run for ever. Waits until the Job has Pods.
    ///
    /// # Errors
    /// There are none, or the API server refuses.
    pub async fn let_complete(&self, job: &str) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        let what = format!("pods of Job {job}");
        let there = self.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            let items = pods.list(&of_job).await?.items;
            Ok((!items.is_empty()).then_some(items))
        });
        let patch = json!({"metadata": {"annotations": {"windlass.dev/testbed": null}}});
        for pod in there.await? {
            let name = pod.metadata.name.unwrap_or_default();
            let patched = pods.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            // A Pod that is deleted meanwhile is no error.
            if !matches!(&patched, Err(kube::Error::Api(status)) if status.code == 404) {
                patched?;
            }
        }
        Ok(())
    }

    /// The status and the events of a HelmRelease, as one text. A user can read them.
    ///
    /// # Errors
    /// The HelmRelease does not exist, or the API server refuses the request.
    pub async fn all_messages(&self, target: &StoryObject, name: &str) -> Result<String> {
        let object = self.expect(target).await?;
        let events = self.events("HelmRelease", name).await?;
        Ok(format!("{}\n{}", object.data["status"], events.join("\n")))
    }

    /// The history of a release as the standard `helm` prints it: revision, status, chart, description.
    ///
    /// # Errors
    /// `helm` fails. The error contains its output.
    pub fn history(&self, release: &str) -> Result<Vec<String>> {
        let text = self.helm_says(&["history", release, "-o", "json"])?;
        let entries: Vec<Value> = serde_json::from_str(&text)?;
        let word = |entry: &Value, key: &str| match &entry[key] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let line = |entry: &Value| {
            let all = ["revision", "status", "chart", "description"].map(|key| word(entry, key));
            all.join(" | ")
        };
        Ok(entries.iter().map(line).collect())
    }
}

/// A Job that is a Helm hook of these events. `policies` may be empty.
pub fn hook(name: &str, events: &str, weight: i32, policies: &str, pods: PodBehavior) -> String {
    let mut annotations =
        format!("\"helm.sh/hook\": \"{events}\", \"helm.sh/hook-weight\": \"{weight}\"");
    if !policies.is_empty() {
        annotations.push_str(&format!(", \"helm.sh/hook-delete-policy\": \"{policies}\""));
    }
    let metadata = format!("metadata: {{name: {name}, annotations: {{{annotations}}}}}");
    job(name, pods).replacen(&format!("metadata: {{name: {name}}}"), &metadata, 1)
}

/// A Pod that is a Helm test.
pub fn test_pod(name: &str, pods: PodBehavior) -> String {
    let behaviour = match pods {
        PodBehavior::Fail => "fail",
        _ => "ready",
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations: {{\"helm.sh/hook\": test, \
         windlass.dev/testbed: {behaviour}}}\nspec:\n  restartPolicy: Never\n  containers: [{{name: main, image: \
         example.com/app:1}}]\n"
    )
}
