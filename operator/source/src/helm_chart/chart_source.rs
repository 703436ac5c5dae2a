//! Resolves the source of a HelmChart: its artifact, and the access to the repository if the source is a HelmRepository.

use std::collections::BTreeSet;

use crds::Artifact;
use crds::source::{ChartSourceKind, HelmChart, HelmRepository};
use kube_core::ResourceExt as _;
use reconcile::{DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome};
use sources::charts::ChartRepository;
use sources::oci::RemoteOciRepository;
use sources::source_condition_reasons::{
    CHART_VERIFICATION_ERROR, NO_SOURCE_ARTIFACT, SOURCE_UNAVAILABLE, VERIFICATION_ERROR,
};

use super::provenance::ProvenanceKeyring;
use crate::image_trust::{ImageVerificationPolicy, SignaturePolicy};
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::chart_repository_access::{
    HelmRepositorySecrets, access, is_registry, registry, repository,
};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;

/// The artifact or repository of a HelmChart's source.
pub(super) struct SourceArtifact {
    pub(super) artifact: Artifact,
    /// Whether the artifact is in the store of another process.
    pub(super) is_elsewhere: bool,
}

/// A registry, and the signatures that its charts need.
pub(super) struct ChartRegistry {
    pub(super) remote: RemoteOciRepository,
    pub(super) signed: Option<ImageVerificationPolicy>,
}

/// The origin of the chart.
pub(super) enum ChartOrigin {
    /// The files of a source.
    Tree(SourceArtifact),
    /// A repository, and its index.
    Index(SourceArtifact, Box<ChartRepository>),
    /// A registry, which has no index.
    Registry(Box<ChartRegistry>),
}

impl ChartOrigin {
    /// The artifact of the chart's source. `None` for a registry, which has no artifact.
    pub(super) fn artifact(&self) -> Option<&Artifact> {
        match self {
            Self::Tree(held) | Self::Index(held, _) => Some(&held.artifact),
            Self::Registry(_) => None,
        }
    }
}

fn source_node(object: &HelmChart) -> ObjectKey {
    let source = &object.spec.source_ref;
    let namespace = object.namespace().unwrap_or_default();
    ObjectKey::new(SOURCES, source.kind.as_str(), &namespace, &source.name)
}

/// Tells the work queue which source the HelmChart has, so that a new artifact of the source wakes the HelmChart.
pub(super) fn edges(context: &RunContext, node: &ObjectKey, object: &HelmChart) {
    context.work_queue.set_edges(
        node,
        DependencyEdge::Source,
        BTreeSet::from([source_node(object)]),
    );
}

/// Finds the source, as the watch last saw it, and reads the Secrets that it and the chart name.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &HelmChart,
) -> Result<(ChartOrigin, Option<ProvenanceKeyring>), RunOutcome> {
    let source = source_node(object);
    let kind = &source.kind;
    let name = &source.name;
    let blocked =
        |why, text: String| RunOutcome::Blocked(why, text, NextRunTrigger::on([source.clone()]));
    let missing = || {
        let text = format!(
            "failed to get source: {kind} '{}/{name}' not found; create it or correct spec.sourceRef",
            source.namespace
        );
        blocked(SOURCE_UNAVAILABLE, text)
    };
    let mut references = RunReferenceReads::new(&context.watcher);
    let mut reached = None;
    let keyring = ProvenanceKeyring::read(object, &mut references).await;
    let is_repository = object.spec.source_ref.kind == ChartSourceKind::HelmRepository;
    let found = context.seen::<HelmRepository>(&source.namespace, name).filter(|_| is_repository);
    let url = found.as_ref().map(|found| found.spec.url.as_str()).unwrap_or_default();
    let signed = match signed(object, url, &mut references).await {
        Ok(signed) => signed,
        Err(outcome) => {
            references.watch(node);
            return Err(outcome);
        }
    };
    if is_repository {
        let found = found.ok_or_else(missing)?;
        let read = HelmRepositorySecrets::read(&found, &mut references).await;
        references.watch(node);
        if is_registry(&found) {
            let remote = registry(context, &found, &read?, &object.spec.chart).await?;
            return Ok((
                ChartOrigin::Registry(Box::new(ChartRegistry { remote, signed })),
                keyring?,
            ));
        }
        reached = Some(repository(&access(context), &found, &read?)?);
    } else {
        references.watch(node);
    }
    if object.spec.verify.is_some() {
        // Parity(flux): it fails there too. Charts of an index have provenance files in place of such signatures.
        let text = "chart verification error: spec.verify is for charts of OCI registries; remove it, or reference a \
                    HelmRepository of type `oci`";
        return Err(RunOutcome::Stalled(CHART_VERIFICATION_ERROR, text.to_owned()));
    }
    let found = context.sources.find(&source, &context.settings).ok_or_else(missing)?;
    let denied = found.denied;
    let none = || {
        let text = format!("no artifact available for {kind} source '{name}'");
        blocked(NO_SOURCE_ARTIFACT, denied.clone().unwrap_or(text))
    };
    let artifact = found.artifact.ok_or_else(&none)?;
    if !found.is_elsewhere {
        // One that was lost is made again, which wakes us.
        let (store, Artifact { path, digest, .. }) = (context.artifacts.clone(), artifact.clone());
        let verified = tokio::task::spawn_blocking(move || store.verify(&path, &digest)).await;
        if !matches!(verified, Ok(Ok(true))) {
            return Err(none());
        }
    }
    let held = SourceArtifact { artifact, is_elsewhere: found.is_elsewhere };
    let origin = match reached {
        Some(repository) => ChartOrigin::Index(held, Box::new(repository)),
        None => ChartOrigin::Tree(held),
    };
    Ok((origin, keyring?))
}

/// The signatures that `spec.verify` requires of a chart in a repository, if any.
async fn signed(
    object: &HelmChart,
    url: &str,
    references: &mut RunReferenceReads,
) -> Result<Option<ImageVerificationPolicy>, RunOutcome> {
    let Some(verify) = &object.spec.verify else { return Ok(None) };
    let namespace = object.namespace().unwrap_or_default();
    let repository = format!("{}/{}", url.trim_end_matches('/'), object.spec.chart);
    let read = SignaturePolicy::of_chart(verify).read(&repository, &namespace, references).await;
    let unread = |text| RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default());
    read.map(Some).map_err(unread)
}
