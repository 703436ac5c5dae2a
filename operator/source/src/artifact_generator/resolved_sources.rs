//! The sources that an ArtifactGenerator names, with their artifacts as the watches last saw them. A change of one of these
//! sources wakes the ArtifactGenerator.

use std::collections::{BTreeMap, BTreeSet};

use artifactgen::{GeneratorSpec, ObservedSource, SourceReference};
use crds::Artifact;
use crds::source::ExternalArtifact;
use crds::source_extensions::ArtifactGenerator;
use kube_core::Resource as _;
use reconcile::{
    ConditionReason, DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason,
};

use super::validated_spec;
use crate::git_repository::include::cycle;
use windlass_runtime::artifact_files::origin_revision;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::{SOURCES, SourceSnapshot};

/// A source has no artifact, or not one that can be fetched.
pub(super) const SOURCE_FETCH_FAILED: ConditionReason = ConditionReason::new("SourceFetchFailed");

/// A source, and where its artifact is.
pub(super) struct ResolvedSource {
    pub(super) node: ObjectKey,
    pub(super) artifact: Artifact,
    /// Whether the artifact is in the store of another process.
    pub(super) is_elsewhere: bool,
}

/// All sources by their aliases.
pub(super) type ResolvedSources = BTreeMap<String, ResolvedSource>;

fn source_node(own: &str, source: &SourceReference) -> ObjectKey {
    let namespace = if source.namespace.is_empty() { own } else { &source.namespace };
    ObjectKey::new(SOURCES, &source.kind, namespace, &source.name)
}

/// Tells the work queue which objects wake a generator: its sources, and the ExternalArtifacts with these names.
pub(super) fn edges<'n>(
    context: &RunContext,
    node: &ObjectKey,
    spec: &GeneratorSpec,
    made: impl Iterator<Item = &'n str>,
) {
    let namespace = &node.namespace;
    let made = made.map(|name| node_named::<ExternalArtifact>(namespace, name));
    let sources = spec.sources.iter().map(|source| source_node(namespace, source));
    let nodes: BTreeSet<ObjectKey> = sources.chain(made).collect();
    context.work_queue.set_edges(node, DependencyEdge::Source, nodes);
}

/// Finds the artifacts of all sources.
pub(super) fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    spec: &GeneratorSpec,
    retry_at: Time,
) -> Result<ResolvedSources, RunOutcome> {
    if let Some(way) = way_back(context, node, spec) {
        let others = way.iter().filter_map(|name| name.split_once('/'));
        let others =
            others.map(|(namespace, name)| node_named::<ArtifactGenerator>(namespace, name));
        let text = format!(
            "spec.sources leads back to this ArtifactGenerator: {}; remove one of these sources",
            way.join(" → ")
        );
        let wake = NextRunTrigger::on(others).and_at(retry_at);
        return Err(RunOutcome::Blocked(condition_reason::DEPENDENCY_CYCLE, text, wake));
    }
    let mut found = BTreeMap::new();
    for source in &spec.sources {
        let node = source_node(&node.namespace, source);
        let failed = |text: String| {
            let wake = NextRunTrigger::on([node.clone()]).and_at(retry_at);
            RunOutcome::Failed(SOURCE_FETCH_FAILED, format!("get sources failed: {text}"), wake)
        };
        let snapshot = context.sources.find(&node, &context.settings);
        let snapshot = snapshot.ok_or_else(|| failed(missing(&node)))?;
        let SourceSnapshot { artifact, denied, is_elsewhere, .. } = snapshot;
        let not_ready =
            || failed(denied.unwrap_or_else(|| format!("source '{node}' is not ready")));
        let artifact = artifact.ok_or_else(not_ready)?;
        found.insert(source.alias.clone(), ResolvedSource { node, artifact, is_elsewhere });
    }
    Ok(found)
}

/// Parity(flux): it is the answer of the API server there.
fn missing(node: &ObjectKey) -> String {
    let names = crds::names().find(|it| it.group == node.group && it.kind == node.kind);
    let plural = names.map_or(node.kind.as_str(), |it| it.plural);
    format!("{plural}.{} \"{}\" not found", node.group, node.name)
}

/// The way by which what a generator makes leads back to it, from itself to itself: it would grow with each run. `None` if
/// there is no such way.
///
/// Differs(flux): there it does.
fn way_back(context: &RunContext, node: &ObjectKey, spec: &GeneratorSpec) -> Option<Vec<String>> {
    let maker = |external: &ObjectKey| {
        let found = context.seen::<ExternalArtifact>(&external.namespace, &external.name)?;
        let source = found.spec.source_ref.as_ref();
        let source = source.filter(|it| it.kind == ArtifactGenerator::kind(&()))?;
        Some(format!("{}/{}", external.namespace, source.name))
    };
    let makers = |own: &str, sources: &[SourceReference]| -> Vec<String> {
        let nodes = sources.iter().map(|source| source_node(own, source));
        let external = nodes.filter(|it| it.kind == ExternalArtifact::kind(&()));
        external.filter_map(|it| maker(&it)).collect()
    };
    let next = |name: &str| {
        let (namespace, name) = name.split_once('/').unwrap_or_default();
        let found = context.seen::<ArtifactGenerator>(namespace, name);
        found
            .map_or_else(Vec::new, |found| makers(namespace, &validated_spec::spec(&found).sources))
    };
    cycle(&node.namespaced_name(), makers(&node.namespace, &spec.sources), next)
}

/// The facts about sources that the engine needs.
pub(super) fn observed(sources: &ResolvedSources) -> BTreeMap<String, ObservedSource> {
    let state = |artifact: &Artifact| ObservedSource {
        digest: artifact.digest.clone(),
        revision: artifact.revision.clone(),
        url: artifact.url.clone(),
        origin_revision: origin_revision(artifact).to_owned(),
    };
    sources.iter().map(|(alias, source)| (alias.clone(), state(&source.artifact))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_without_a_namespace_is_in_that_of_the_generator() {
        let mut source = SourceReference {
            kind: "Bucket".to_owned(),
            name: "b".to_owned(),
            ..SourceReference::default()
        };
        assert_eq!(source_node("apps", &source).to_string(), "Bucket/apps/b");
        source.namespace = "other".to_owned();
        let node = source_node("apps", &source);
        assert_eq!(node.to_string(), "Bucket/other/b");
        assert_eq!(missing(&node), "buckets.source.toolkit.fluxcd.io \"b\" not found");
    }

    #[test]
    fn the_origin_of_a_source_is_observed_beside_its_revision() {
        let artifact: Artifact = serde_json::from_value(json!({
            "digest": "sha256:1", "lastUpdateTime": "2026-01-01T00:00:00Z", "path": "p",
            "revision": "v1@sha256:2", "url": "http://a/p",
            "metadata": {"org.opencontainers.image.revision": "main@sha1:3"},
        }))
        .unwrap();
        let node = ObjectKey::new(SOURCES, "OCIRepository", "apps", "o");
        let source = ResolvedSource { node, artifact, is_elsewhere: false };
        let observed = observed(&BTreeMap::from([("src".to_owned(), source)]));
        let wanted = ObservedSource {
            digest: "sha256:1".to_owned(),
            revision: "v1@sha256:2".to_owned(),
            url: "http://a/p".to_owned(),
            origin_revision: "main@sha1:3".to_owned(),
        };
        assert_eq!(observed["src"], wanted);
    }
}
