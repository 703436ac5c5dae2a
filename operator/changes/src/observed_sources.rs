//! The sources of this process that have an artifact, and the appliers that use each of them.
//!
//! Elsewhere: the states of appliers (`observed_members`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::helmfile::Helmfile;
use crds::kustomize::{CrossNamespaceSourceReference, Kustomization};
use crds::source::{Bucket, ExternalArtifact, GitRepository, OCIRepository};
use crds::{Artifact, ArtifactSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;

use windlass_cluster::events::EventObject;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCES;
use windlass_runtime::source_reference::source_node;

/// A source whose artifact may be a new change.
#[derive(Debug, Clone)]
pub(crate) struct ObservedSource {
    /// The kind, namespace and name of the source.
    pub(crate) node: ObjectKey,
    pub(crate) uid: String,
    pub(crate) artifact: Artifact,
    /// The owner reference that lets the API server delete the ChangeSet together with the source.
    pub(crate) owner: Option<OwnerReference>,
    /// The reference to the source in events.
    pub(crate) about: EventObject,
    /// The controller that reports events about the source.
    pub(crate) controller: &'static str,
}

/// The sources of this process.
#[derive(Debug, Default)]
pub(crate) struct ObservedSources {
    /// The sources that may have work for this pass.
    pub(crate) open: Vec<ObservedSource>,
    /// The uids of all sources.
    pub(crate) uids: BTreeSet<String>,
}

impl ObservedSources {
    /// The sources whose labels assign them to this process. For a source without work, only the uid is read.
    pub(crate) fn read(context: &RunContext, is_settled: impl Fn(&str, &Artifact) -> bool) -> Self {
        let mut found = Self::default();
        found.add::<Bucket>(context, &is_settled);
        found.add::<ExternalArtifact>(context, &is_settled);
        found.add::<GitRepository>(context, &is_settled);
        found.add::<OCIRepository>(context, &is_settled);
        found
    }

    fn add<K: WindlassKind + ArtifactSource>(
        &mut self,
        context: &RunContext,
        is_settled: &impl Fn(&str, &Artifact) -> bool,
    ) {
        for object in context.store::<K>().state() {
            let Some(uid) = object.uid().filter(|_| context.settings.selects(object.labels()))
            else {
                continue;
            };
            self.uids.insert(uid.clone());
            let is_new = |artifact: &&Artifact| !is_settled(&uid, artifact);
            if object.artifact().filter(is_new).is_none() {
                continue;
            }
            let namespace = object.namespace().unwrap_or_default();
            let node = ObjectKey::new(SOURCES, &K::kind(&()), &namespace, &object.name_any());
            // The artifact in the status counts only if it belongs to this object.
            let found = context.sources.find(&node, &context.settings);
            let Some(artifact) = found.and_then(|it| it.artifact) else { continue };
            self.open.push(ObservedSource {
                node,
                uid,
                artifact,
                owner: object.owner_ref(&()),
                about: EventObject::of(&*object),
                controller: K::CONTROLLER,
            });
        }
    }
}

/// An applier that uses a source.
#[derive(Debug, Clone)]
pub(crate) enum SourceConsumer {
    Kustomization(Arc<Kustomization>),
    Helmfile(Arc<Helmfile>),
}

/// The appliers that use each source, by the key of the source.
pub(crate) type ConsumersBySource = BTreeMap<ObjectKey, Vec<SourceConsumer>>;

/// The dependency graph node of the source that an applier names. `None` if the applier may not name it.
pub(crate) fn source_of(
    context: &RunContext,
    namespace: &str,
    source: &CrossNamespaceSourceReference,
) -> Option<ObjectKey> {
    let node = source_node(namespace, source);
    let is_denied = context.settings.no_cross_namespace_refs && node.namespace != namespace;
    (!is_denied).then_some(node)
}

/// The appliers that use these sources.
pub(crate) fn consumers(context: &RunContext, of: &[ObservedSource]) -> ConsumersBySource {
    let mut found: ConsumersBySource =
        of.iter().map(|source| (source.node.clone(), Vec::new())).collect();
    if found.is_empty() {
        return found;
    }
    let mut add = |namespace: Option<String>, source: &CrossNamespaceSourceReference, consumer| {
        let node = source_of(context, &namespace.unwrap_or_default(), source);
        if let Some(consumers) = node.and_then(|node| found.get_mut(&node)) {
            consumers.push(consumer);
        }
    };
    for object in context.store::<Kustomization>().state() {
        let consumer = SourceConsumer::Kustomization(object.clone());
        add(object.namespace(), &object.spec.source_ref, consumer);
    }
    for object in context.store::<Helmfile>().state() {
        if let Some(source) = &object.spec.source_ref {
            add(object.namespace(), source, SourceConsumer::Helmfile(object.clone()));
        }
    }
    found
}
