//! Builds the desired state from an artifact, or finds that there is nothing to build.
//!
//! Elsewhere: the source with the artifact (`windlass_runtime::source_reference`), its objects (`build_manifests.rs`,
//! `validated_spec.rs`).

use std::sync::Arc;
use std::time::Instant;

use crds::kustomize::Kustomization;
use crds::{Artifact, ReconciledObject as _};
use kube_core::Resource as _;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use tokio_util::sync::CancellationToken;

use super::build_inputs::KustomizationInputs;
use super::executor::DriftCheckScope;
use super::validated_spec::{
    self, BuildRequest, DesiredKustomization, KustomizationTimeouts, RemoteServerAccess,
};
use super::{KustomizationRunReport, KustomizationSession, early};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_runtime::shared_build_parts::remote_base_access::{
    BuildPermits, RemoteBaseAccess, SharedBuildPermits,
};
use windlass_runtime::{artifact_files, source_reference};

/// The result of a build.
pub(super) enum BuildOutcome {
    DesiredKustomization(Arc<DesiredKustomization>),
    /// Nothing was built, because nothing changed.
    Unchanged(Box<KustomizationRunReport>),
}

/// The inputs of a build.
pub(super) struct BuildInputFiles<'a> {
    pub(super) files: &'a tree::MemoryTree,
    /// The digest of all build inputs that are not in files.
    pub(super) inputs: &'a str,
}

/// The stack of a build. Nested kustomizations need more stack than threads of the runtime have.
const BUILD_STACK_BYTES: usize = 64 << 20;

/// Runs `work` on a thread with a stack for deeply nested kustomizations. `None` if it panicked.
pub(super) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(BUILD_STACK_BYTES).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}

impl KustomizationSession<'_> {
    pub(super) async fn build(
        &self,
        object: &Arc<Kustomization>,
        timeouts: KustomizationTimeouts,
        artifact: &Artifact,
        target: &ClusterTarget,
        beside: KustomizationInputs,
    ) -> Result<BuildOutcome, RunOutcome> {
        let is_verified_only = self.is_verified_only();
        // A build made under another policy is discarded.
        let policy = if is_verified_only { " verified" } else { "" };
        let inputs = format!("{}{policy}", beside.digest());
        if let Some(desired_kustomization) = self.waited_for(object, artifact, &inputs) {
            return Ok(BuildOutcome::DesiredKustomization(desired_kustomization));
        }
        // Another shard's artifact comes over the network, and a permit is for work.
        let source = &object.spec.source_ref;
        let elsewhere = source_reference::is_elsewhere(&self.context, &self.node.namespace, source);
        let fetch = || {
            let files = self.files(object, artifact);
            self.telling(object, "Fetching manifests", &artifact.revision, timeouts, files)
        };
        let fetched = if elsewhere { Some(fetch().await?) } else { None };
        let permit = self.context.building.acquire(&self.node.namespace).await;
        let files = match fetched {
            Some(files) => files,
            None => fetch().await?,
        };
        let revision = artifact.revision.clone();
        let seen = BuildInputFiles { files: &files, inputs: &inputs };
        if let Some(ended) = self.unchanged(object, &seen, &revision, target, timeouts) {
            return Ok(BuildOutcome::Unchanged(Box::new(ended)));
        }
        self.context.metrics.built(&self.node);
        let cancel = CancellationToken::new();
        // If the run is aborted, it sends no more requests to servers.
        let _asked_for = cancel.clone().drop_guard();
        let namespace = &self.node.namespace;
        let permits = BuildPermits::new(&self.context, namespace, permit, cancel.clone());
        let permits = SharedBuildPermits::new(permits.of_run(&self.preparing));
        let timeout = timeouts.timeout;
        let servers = RemoteServerAccess {
            bases: RemoteBaseAccess::of(
                &self.context,
                target,
                timeout,
                &permits,
                is_verified_only,
                &cancel,
            ),
            keys: KeyServiceAccess::of(&self.context, timeout, permits, cancel.clone()),
        };
        let built = {
            let context = self.context.clone();
            let object = object.clone();
            // Parsing is CPU work of unknown length, so it does not sit on a thread that serves others.
            tokio::task::spawn_blocking(move || {
                on_large_stack(|| {
                    let request = BuildRequest {
                        object: &object,
                        timeouts,
                        files: &*files,
                        revision: &revision,
                        inputs: &beside,
                    };
                    validated_spec::desired(&request, servers, &context.settings)
                })
            })
        };
        match self.telling(object, "Building manifests", &artifact.revision, timeouts, built).await
        {
            Ok(Some(desired_kustomization)) => desired_kustomization.map(|desired_kustomization| {
                BuildOutcome::DesiredKustomization(Arc::new(desired_kustomization))
            }),
            Ok(None) | Err(_) => {
                let text =
                    "the build panicked; this is a bug in windlass, please report it".to_owned();
                Err(RunOutcome::Failed(
                    condition_reason::BUILD_FAILED,
                    text,
                    NextRunTrigger::default(),
                ))
            }
        }
    }

    /// The desired state that earlier runs wait for. `None` if the object or its source changed meanwhile, or a
    /// reconciliation was requested.
    pub(super) fn waited_for(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
        inputs: &str,
    ) -> Option<Arc<DesiredKustomization>> {
        if self.verify(object) == DriftCheckScope::Everything {
            return None;
        }
        let memory = self.memory();
        let waiting = memory.waiting.as_ref()?;
        let same = Some(waiting.generation) == object.meta().generation
            && waiting.artifact == artifact.digest
            && waiting.desired_kustomization.inputs == inputs
            && waiting.desired_kustomization.desired.revision == artifact.revision;
        same.then(|| waiting.desired_kustomization.clone())
    }

    pub(super) async fn files(
        &self,
        object: &Kustomization,
        artifact: &Artifact,
    ) -> Result<Arc<tree::MemoryTree>, RunOutcome> {
        let own = &self.node.namespace;
        let source = &object.spec.source_ref;
        let is_elsewhere = source_reference::is_elsewhere(&self.context, own, source);
        let fetching = artifact_files::files(&self.context, artifact, is_elsewhere);
        let fetched = match is_elsewhere {
            // Another process may not respond.
            true => self.preparing.aside(fetching).await,
            false => fetching.await,
        };
        fetched.map_err(|error| {
            let what = format!("artifact of revision {}", artifact.revision);
            let again = self.in_future(self.context.settings.requeue_dependency);
            error.ends(&source_reference::source_node(own, source), &what, again)
        })
    }

    /// The report of a run that needs no build, because the files of the last build and the applied objects are unchanged.
    /// `None` if the run has to build.
    pub(super) fn unchanged(
        &self,
        object: &Arc<Kustomization>,
        seen: &BuildInputFiles<'_>,
        revision: &str,
        target: &ClusterTarget,
        timeouts: KustomizationTimeouts,
    ) -> Option<KustomizationRunReport> {
        let ready = object.condition("Ready").is_some_and(|c| c.status == "True")
            || super::report::is_quarantined(object);
        let verify = self.verify(object);
        let as_applied = match verify {
            DriftCheckScope::Drifted => target.watcher().is_calm(&self.node),
            DriftCheckScope::Moved => target.watcher().is_unmoved(&self.node),
            DriftCheckScope::Everything => false,
        };
        // Each run judges held deletions, since a user may have approved them.
        if !ready || !as_applied || self.holds_deletions(object) {
            return None;
        }
        let mut memory = self.memory();
        let settled = memory.settled.as_ref()?;
        // No watch reports the health of objects that other controllers made, so they are read at the interval.
        if settled.asks_others && verify != DriftCheckScope::Drifted {
            return None;
        }
        // Servers are asked again for each revision and at the interval, not whenever an object stirs.
        let applied = object.status.as_ref().and_then(|s| s.last_applied_revision.as_deref());
        if settled.is_remote && (verify != DriftCheckScope::Drifted || applied != Some(revision)) {
            return None;
        }
        if settled.generation != object.meta().generation.unwrap_or_default()
            || settled.inputs != seen.inputs
            || !settled.trace.is_same_in(seen.files)
        {
            return None;
        }
        let digest = Some(settled.digest.clone());
        let warnings = settled.warnings.clone();
        if verify == DriftCheckScope::Moved {
            memory.verify_at = Some(Instant::now() + self.interval(object, &timeouts));
            memory.verified = Some(self.began);
        }
        let outcome = RunOutcome::Settled(
            condition_reason::RECONCILIATION_SUCCEEDED,
            validated_spec::with_warnings(format!("Applied revision: {revision}"), &warnings),
        );
        let mut ended = early(object, revision, outcome);
        ended.came.digest = digest;
        ended.came.warnings = warnings;
        Some(ended)
    }
}
