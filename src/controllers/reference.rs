//! Secrets, ConfigMaps and ServiceAccounts that a spec names: read for a run, and watched so that a change wakes the object.
//!
//! They are read with windlass's own identity (Parity(flux)), and nothing of them is kept beyond the run.

use std::collections::BTreeMap;

use objects::{Gvk, ObjectId};
use reconcile::Node;

use super::context::Context;
use super::object_watcher::{Moment, Referred};
use crate::cluster::ClusterError;

/// What a run read; [`References::watch`] ends it.
#[derive(Default)]
#[must_use = "what was read is to be watched"]
pub(crate) struct References(Vec<Referred>);

impl References {
    /// The data of a Secret; `None` when there is none of that name.
    pub(crate) async fn secret(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, ClusterError> {
        let since = context.watcher.before_reading();
        let (data, version) = context.cluster.secret(namespace, name).await?.unzip();
        self.note(context, "Secret", (namespace, name), (version, since)).await?;
        Ok(data)
    }

    /// The strings of a ConfigMap; `None` when there is none of that name.
    pub(crate) async fn config_map(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, ClusterError> {
        let since = context.watcher.before_reading();
        let (data, version) = context.cluster.config_map(namespace, name).await?.unzip();
        self.note(context, "ConfigMap", (namespace, name), (version, since)).await?;
        Ok(data)
    }

    /// The names of a ServiceAccount's image pull secrets; `None` when there is no ServiceAccount of that name.
    pub(crate) async fn pull_secrets(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let since = context.watcher.before_reading();
        let (names, version) = context.cluster.pull_secrets(namespace, name).await?.unzip();
        self.note(context, "ServiceAccount", (namespace, name), (version, since)).await?;
        Ok(names)
    }

    async fn note(
        &mut self,
        context: &Context,
        kind: &str,
        (namespace, name): (&str, &str),
        (version, since): (Option<u64>, Moment),
    ) -> Result<(), ClusterError> {
        let resource = context.cluster.resource(&Gvk::new("v1", kind)).await?;
        let id = ObjectId::new(namespace, name, "", kind);
        self.0.push(Referred { resource, id, version, since });
        Ok(())
    }

    /// Has the object woken by changes of all that was read, and of nothing that an earlier run had read.
    pub(crate) fn watch(self, context: &Context, node: &Node) {
        context.watcher.refer_to(node, &self.0);
    }
}
