//! Commands of windlass, and windlass as it was installed.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Story, StoryTarget, Windlass};
use crate::operator;

/// The Deployment of an installation.
pub fn deployment(namespace: &str) -> StoryTarget {
    StoryTarget::new("apps/v1", "Deployment", "windlass-controller").in_namespace(namespace)
}

impl Story {
    /// What a command of windlass prints, on both streams.
    ///
    /// # Errors
    /// It succeeded or failed, and should not have.
    pub fn windlass_says(&self, arguments: &[&str], is_success: bool) -> Result<String> {
        let output = Command::new(operator::binary()?)
            .args(arguments)
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .output()
            .context("windlass cannot be started")?;
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        ensure!(output.status.success() == is_success, "windlass {arguments:?}: {told}");
        Ok(told)
    }

    /// A process with the token of an installation's ServiceAccount, and its arguments.
    ///
    /// # Errors
    /// Nothing is installed there, or the process does not become ready.
    pub async fn installed(&self, namespace: &str) -> Result<Windlass> {
        let kubeconfig = self.bed.account_kubeconfig(namespace, "windlass-controller").await?;
        let installed = self.expect(&deployment(namespace)).await?;
        let container = &installed.data["spec"]["template"]["spec"]["containers"][0];
        let given = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // Those that name what a Pod has: its volume and its address.
        let is_of_pod = |flag: &&str| flag.starts_with("--storage");
        let mut flags: Vec<String> =
            given.skip(1).filter(|flag| !is_of_pod(flag)).map(str::to_owned).collect();
        flags.push(format!("--kubeconfig={}", kubeconfig.display()));
        flags.push(format!("--runtime-namespace={namespace}"));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        Windlass::start(self.bed, &flags).await
    }
}
