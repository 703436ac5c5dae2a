//! Runs Flux's own controllers on the bed of a story, so that a story can compare windlass with them.
//!
//! Elsewhere: building the controllers (`testbed::upstream_programs`), Flux's objects (`flux`).

use std::net::TcpListener;

use anyhow::{Context as _, Result};
use testbed::upstream_programs::UpstreamProgram;

use super::{Story, create_crds};
use crate::operator_process::OperatorProcess;

impl Story {
    /// Starts source-controller, kustomize-controller and helm-controller for the namespace of the story. The flags are those of
    /// the latter two. Creates the CustomResourceDefinitions first.
    ///
    /// # Errors
    /// A controller cannot be built or started, or the API server refuses the CustomResourceDefinitions.
    pub async fn flux_controllers(&self, flags: &[&str]) -> Result<Vec<OperatorProcess>> {
        create_crds(&self.client).await?;
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let listen = format!("--storage-addr={free}");
        let announce = format!("--storage-adv-addr={free}");
        let of_namespace = "--watch-all-namespaces=false";
        let of_sources = [of_namespace, "--storage-path={folder}", &listen, &announce];
        let of_appliers = [&[of_namespace], flags].concat();
        Ok(vec![
            self.flux_controller(UpstreamProgram::SourceController, &of_sources).await?,
            self.flux_controller(UpstreamProgram::KustomizeController, &of_appliers).await?,
            self.flux_controller(UpstreamProgram::HelmController, &of_appliers).await?,
        ])
    }

    /// Starts a controller of Flux with additional flags, as if it were installed in the namespace of the story. With
    /// `--watch-all-namespaces=false`, it reconciles only objects of that namespace. It ends when it is dropped.
    ///
    /// # Errors
    /// The controller cannot be built or started.
    pub async fn flux_controller(
        &self,
        program: UpstreamProgram,
        more: &[&str],
    ) -> Result<OperatorProcess> {
        let binary = tokio::task::spawn_blocking(move || program.ensure()).await??;
        // A Lease would need the ServiceAccount of a Pod. The story itself decides which controllers run.
        let own = ["--enable-leader-election=false", "--events-addr="];
        let servers = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0"];
        let flags = own.iter().chain(&servers).chain(more).map(|&flag| flag.to_owned()).collect();
        let kubeconfig = self.bed.operator_kubeconfig().to_str().context("a path is text")?;
        let environment =
            [("KUBECONFIG", kubeconfig), ("RUNTIME_NAMESPACE", self.namespace.as_str())];
        OperatorProcess::start_with(binary, flags, &environment)
    }
}
