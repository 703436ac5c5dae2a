//! Runs commands of windlass, and processes that stand in for the Pods of an installation.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use serde_json::Value;

use super::flux_objects::DEFAULT_WAIT_TIMEOUT;
use super::{Story, StoryObject, WindlassProcess};
use crate::operator_process;

/// The Deployment of an installation in a namespace.
pub fn deployment(namespace: &str) -> StoryObject {
    StoryObject::new("apps/v1", "Deployment", "windlass-controller").in_namespace(namespace)
}

impl Story {
    /// Runs a command of windlass. Returns its output from both streams.
    ///
    /// # Errors
    /// The command succeeds although `is_success` is false, or it fails although `is_success` is true.
    pub fn windlass_says(&self, arguments: &[&str], is_success: bool) -> Result<String> {
        let output = Command::new(operator_process::binary()?)
            .args(arguments)
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .output()
            .context("windlass cannot be started")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(output.status.success() == is_success, "windlass {arguments:?}: {text}");
        Ok(text)
    }

    /// Runs a command that installs windlass and waits until a Pod is active. Pods of the bed run no processes, so this starts
    /// a process in place of the Pod. Returns the process and the output of the command.
    ///
    /// # Errors
    /// The command fails, or the process does not become ready.
    pub async fn windlass_installs(
        &self,
        arguments: &[&str],
        workload: &StoryObject,
    ) -> Result<(String, WindlassProcess)> {
        let mut command = tokio::process::Command::new(operator_process::binary()?);
        command.args(arguments).arg(format!("--kubeconfig={}", self.kubeconfig().display()));
        let ended = async {
            let output = command.output().await.context("windlass cannot be started")?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            ensure!(output.status.success(), "windlass {arguments:?}: {text}");
            anyhow::Ok(text)
        };
        tokio::try_join!(ended, self.in_place_of(workload))
    }

    /// Starts a process in place of the Pods of an installation.
    ///
    /// # Errors
    /// Nothing is installed there, or the process does not become ready.
    pub async fn installed(&self, namespace: &str) -> Result<WindlassProcess> {
        self.in_place_of(&deployment(namespace)).await
    }

    /// Starts a process with the token of an installation's ServiceAccount, the arguments of its workload, and the identity of
    /// one of its Pods.
    async fn in_place_of(&self, workload: &StoryObject) -> Result<WindlassProcess> {
        let installed = self.await_object(workload, DEFAULT_WAIT_TIMEOUT, |_| true).await?;
        let namespace = installed.metadata.namespace.clone().unwrap_or_default();
        let kubeconfig = self.bed.account_kubeconfig(&namespace, "windlass-controller").await?;
        let container = &installed.data["spec"]["template"]["spec"]["containers"][0];
        let given = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // These flags name properties of a Pod: its volume and its address.
        let is_of_pod = |flag: &&str| flag.starts_with("--storage");
        let mut flags: Vec<String> =
            given.skip(1).filter(|flag| !is_of_pod(flag)).map(str::to_owned).collect();
        let pod = self.pod(&namespace, installed.metadata.creation_timestamp.as_ref()).await?;
        flags.push(format!("--leader-election-identity={pod}"));
        flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        flags.push(format!("--runtime-namespace={namespace}"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        WindlassProcess::start(self.bed, &flags).await
    }

    /// Waits for a Pod of windlass in a namespace that is not older than its workload. Returns the name of the Pod.
    async fn pod(&self, namespace: &str, since: Option<&Time>) -> Result<String> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let params = ListParams::default().labels("app=windlass-controller");
        self.await_until("a Pod of windlass", DEFAULT_WAIT_TIMEOUT, async || {
            let pods = api.list(&params).await?.items.into_iter().map(|it| it.metadata);
            let mut staying = pods.filter(|it| it.deletion_timestamp.is_none());
            let pod = staying.find(|it| it.creation_timestamp.as_ref() >= since);
            Ok(pod.and_then(|it| it.name))
        })
        .await
    }
}
