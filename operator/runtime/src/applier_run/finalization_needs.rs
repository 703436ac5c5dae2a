//! Finds the objects in windlass's own cluster that must stay until an applier is gone. These are its dependencies, and
//! objects that its finalizer or a last run uses.

use std::collections::BTreeSet;

use crds::{Applier, DependencyReference};
use kube_core::ResourceExt as _;
use reconcile::ObjectKey;
use reconcile::object_dependency::ObjectDependency;

use super::{ApplierKind, TargetSpec};
use crate::cross_kind_dependencies::{is_other, node_of_entry};
use crate::depends_on_annotation::depends_on;
use crate::run_context::RunContext;
use windlass_cluster::windlass_kind::WindlassKind;

/// The dependency graph nodes of an object's dependencies. `needed` are those of its annotation. Without it, the dependencies
/// on objects of other kinds cannot be used.
pub(super) fn dependency_nodes<O: WindlassKind + Applier>(
    context: &RunContext,
    object: &O,
    needed: Option<&[ObjectDependency]>,
) -> BTreeSet<ObjectKey> {
    let own = object.namespace().unwrap_or_default();
    let is_usable =
        |entry: &&DependencyReference| needed.is_some() || is_other::<O>(entry) == Ok(false);
    let entries = depends_on(object).iter().filter(is_usable);
    let mut nodes: BTreeSet<ObjectKey> =
        entries.filter_map(|entry| node_of_entry::<O>(entry, &own)).collect();
    let needed = needed.unwrap_or_default();
    nodes.extend(needed.iter().flat_map(|it| context.dependencies.nodes(it)));
    nodes
}

/// The objects that must stay until this one is gone: its dependencies, source, kubeconfig or ServiceAccount, and inputs. The
/// Secret with a kubeconfig is in windlass's own cluster, but the objects of the remote cluster are not. See
/// [`crate::controller_kind::ControllerKind::needs`].
pub(super) fn needs<K: ApplierKind>(
    object: &K::Object,
    context: &RunContext,
) -> BTreeSet<ObjectKey> {
    let own = object.namespace().unwrap_or_default();
    let is_blocked = context.settings.no_cross_namespace_refs;
    let needed = context.dependencies.named_by(object, is_blocked);
    let mut nodes = dependency_nodes(context, object, needed.as_deref().ok());
    nodes.extend(K::named_source(object));
    let kube_config = object.kube_config();
    let account = object.service_account_name();
    let target = TargetSpec::new(&context.settings, &own, kube_config, account);
    let account = target.service_account.filter(|_| kube_config.is_none());
    let mut named: Vec<(&str, String)> = K::inputs(object);
    named.extend(account.map(|name| ("ServiceAccount", name.to_owned())));
    if let Some(kube_config) = kube_config {
        let secret = kube_config.secret_ref.as_ref().map(|it| ("Secret", it.name.clone()));
        let config_map =
            kube_config.config_map_ref.as_ref().map(|it| ("ConfigMap", it.name.clone()));
        named.extend(secret.into_iter().chain(config_map));
    }
    nodes.extend(named.iter().map(|(kind, name)| ObjectKey::new("", kind, &own, name)));
    nodes
}
