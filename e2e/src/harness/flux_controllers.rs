//! Runs Flux's own controllers on the bed of a story, so that a story can compare windlass with them.
//!
//! Elsewhere: building the controllers (`testbed::oracle`), Flux's objects (`flux`).

use anyhow::{Context as _, Result};
use testbed::oracle::OracleProgram;

use super::Story;
use crate::operator_process::OperatorProcess;

impl Story {
    /// Starts a controller of Flux with additional flags, as if it were installed in the namespace of the story. With
    /// `--watch-all-namespaces=false`, it reconciles only objects of that namespace. It ends when it is dropped.
    ///
    /// # Errors
    /// The controller cannot be built or started.
    pub async fn flux_controller(
        &self,
        program: OracleProgram,
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
