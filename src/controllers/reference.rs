//! Secrets, ConfigMaps and ServiceAccounts that a spec names: read for a run, and watched so that a change wakes the object.
//!
//! They are read with windlass's own identity (Parity(flux)), and nothing of them is kept beyond the run.

use std::collections::BTreeMap;

use objects::{Gvk, ObjectId};
use reconcile::Node;

use super::context::Context;
use crate::cluster::ClusterError;
use crate::cluster::discovery::Resource;

/// What a run read; [`References::watch`] ends it.
#[derive(Default)]
#[must_use = "what was read is to be watched"]
pub(crate) struct References(Vec<(Resource, ObjectId, bool)>);

impl References {
    /// The data of a Secret; `None` when there is none of that name.
    pub(crate) async fn secret(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, ClusterError> {
        let data = context.cluster.secret(namespace, name).await?;
        self.note(context, "Secret", namespace, name, data.is_some()).await?;
        Ok(data)
    }

    /// The texts of a ConfigMap; `None` when there is none of that name.
    pub(crate) async fn config_map(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Option<BTreeMap<String, String>>, ClusterError> {
        let data = context.cluster.config_map(namespace, name).await?;
        self.note(context, "ConfigMap", namespace, name, data.is_some()).await?;
        Ok(data)
    }

    /// The names of a ServiceAccount's image pull secrets; `None` when there is no ServiceAccount of that name.
    pub(crate) async fn pull_secrets(
        &mut self,
        context: &Context,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let names = context.cluster.pull_secrets(namespace, name).await?;
        self.note(context, "ServiceAccount", namespace, name, names.is_some()).await?;
        Ok(names)
    }

    async fn note(
        &mut self,
        context: &Context,
        kind: &str,
        namespace: &str,
        name: &str,
        is_there: bool,
    ) -> Result<(), ClusterError> {
        let resource = context.cluster.resource(&Gvk::new("v1", kind)).await?;
        self.0.push((resource, ObjectId::new(namespace, name, "", kind), is_there));
        Ok(())
    }

    /// Has the object woken by changes of all that was read, and of nothing that an earlier run had read.
    pub(crate) fn watch(self, context: &Context, node: &Node) {
        context.observer.refer_to(node, &self.0);
    }
}
