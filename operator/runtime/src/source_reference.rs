//! The source that an applier of files names, and its artifact.
//!
//! Elsewhere: the files of an artifact (`artifact_files`), and the kinds of sources (`source_catalog`).

use crds::Artifact;
use crds::kustomize::CrossNamespaceSourceReference;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};

use crate::run_context::RunContext;
use crate::source_catalog::{SOURCES, SourceSnapshot};

/// The dependency graph node of the source that an object names.
pub fn source_node(own: &str, source: &CrossNamespaceSourceReference) -> ObjectKey {
    let namespace = source.namespace.as_deref().unwrap_or(own);
    ObjectKey::new(SOURCES, source.kind.as_str(), namespace, &source.name)
}

/// The artifact to build from, as the watch last saw it.
///
/// # Errors
/// The spec may not name the source, the source does not exist, or it has no artifact yet.
pub fn artifact(
    context: &RunContext,
    own: &str,
    source: &CrossNamespaceSourceReference,
    retry_at: Time,
) -> Result<Artifact, RunOutcome> {
    let node = source_node(own, source);
    if context.settings.no_cross_namespace_refs && node.namespace != own {
        let text = format!(
            "can't access '{node}': cross-namespace references have been blocked by --no-cross-namespace-refs; use a \
             source in namespace {own}"
        );
        return Err(RunOutcome::Stalled(condition_reason::ACCESS_DENIED, text));
    }
    let blocked = |text: String| {
        RunOutcome::Blocked(
            condition_reason::ARTIFACT_FAILED,
            text,
            NextRunTrigger::on([node.clone()]).and_at(retry_at),
        )
    };
    let Some(source) = context.sources.find(&node, &context.settings) else {
        return Err(blocked(format!(
            "source '{node}' not found; create it or correct spec.sourceRef"
        )));
    };
    source.admit(&context.kept, &context.artifacts, own, &node)?;
    let SourceSnapshot { artifact, denied, .. } = source;
    let none = || format!("source '{node}' has no artifact yet");
    artifact.ok_or_else(|| blocked(denied.unwrap_or_else(none)))
}

/// Whether the source belongs to another shard, so that its artifact is in another process's store.
pub fn is_elsewhere(
    context: &RunContext,
    own: &str,
    source: &CrossNamespaceSourceReference,
) -> bool {
    let node = source_node(own, source);
    context.sources.find(&node, &context.settings).is_some_and(|source| source.is_elsewhere)
}
