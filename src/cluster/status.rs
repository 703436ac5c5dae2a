//! Writing statuses and finalizers of our own kinds, and ending holds.

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Cluster, ClusterError};

/// A kind of ours: typed, namespaced, with a static API.
pub(crate) trait OurKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + DeserializeOwned
    + serde::Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> OurKind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize
        + Send
        + Sync
        + 'static
{
}

impl Cluster {
    fn api<K: OurKind>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.unary.clone(), namespace)
    }

    /// An object of a kind of ours as it is now; `None` when there is none of that name.
    ///
    /// # Errors
    /// Every refusal but "not found", and no answer.
    pub(crate) async fn read<K: OurKind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, ClusterError> {
        Ok(self.api::<K>(namespace).get_opt(name).await?)
    }

    /// Makes an object that must not be there yet.
    ///
    /// # Errors
    /// The server's refusal; that of an object that is there has the code 409.
    pub(crate) async fn create<K: OurKind>(
        &self,
        object: &K,
        manager: &str,
    ) -> Result<K, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let params =
            PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        Ok(self.api::<K>(&namespace).create(&params, object).await?)
    }

    /// Replaces the fields of a status that `status` names, as `manager`; others stay.
    ///
    /// # Errors
    /// The server's refusal; an object that is gone is no error and gives `None`.
    pub(crate) async fn write_status<K: OurKind>(
        &self,
        object: &K,
        manager: &str,
        status: &Value,
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let params =
            PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        // The uid makes sure that a status never lands on a namesake that was created since.
        let patch = json!({"metadata": {"uid": object.uid()}, "status": status});
        let api = self.api::<K>(&namespace);
        match api.patch_status(&object.name_any(), &params, &Patch::Merge(patch)).await {
            Ok(written) => Ok(Some(written)),
            Err(error) => gone(error),
        }
    }

    /// Adds or removes our finalizer, provided that nobody changed the object since it was read.
    ///
    /// # Errors
    /// The server's refusal; an object that is gone is no error and gives `None`.
    pub(crate) async fn write_finalizers<K: OurKind>(
        &self,
        object: &K,
        manager: &str,
        finalizers: &[String],
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let params =
            PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let patch = json!({"metadata": {"uid": object.uid(), "finalizers": finalizers,
            "resourceVersion": object.resource_version()}});
        match self
            .api::<K>(&namespace)
            .patch(&object.name_any(), &params, &Patch::Merge(patch))
            .await
        {
            Ok(written) => Ok(Some(written)),
            Err(error) => gone(error),
        }
    }

    /// Takes annotations away, and sets `spec.suspend` to false if it is to `resume`, provided that nobody changed
    /// the object since it was read.
    ///
    /// # Errors
    /// The server's refusal; an object that is gone is no error and gives `None`.
    pub(crate) async fn end_hold<K: OurKind>(
        &self,
        object: &K,
        resume: bool,
        annotations: &[&str],
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        // A name of our own: this is neither what a controller of Flux does nor what a user did.
        let params =
            PatchParams { field_manager: Some("windlass".to_owned()), ..PatchParams::default() };
        let gone_ones: Value =
            annotations.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        let mut patch = json!({"metadata": {"uid": object.uid(), "annotations": gone_ones,
            "resourceVersion": object.resource_version()}});
        if resume {
            patch["spec"] = json!({"suspend": false});
        }
        let api = self.api::<K>(&namespace);
        match api.patch(&object.name_any(), &params, &Patch::Merge(patch)).await {
            Ok(written) => Ok(Some(written)),
            Err(error) => gone(error),
        }
    }

    /// The data of a Secret; `None` when there is none of that name.
    ///
    /// # Errors
    /// Every refusal but "not found", and no answer.
    pub(crate) async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<std::collections::BTreeMap<String, Vec<u8>>>, ClusterError> {
        let secret =
            self.api::<k8s_openapi::api::core::v1::Secret>(namespace).get_opt(name).await?;
        Ok(secret.map(|s| s.data.unwrap_or_default().into_iter().map(|(k, v)| (k, v.0)).collect()))
    }

    /// The texts of a ConfigMap; `None` when there is none of that name.
    ///
    /// # Errors
    /// Every refusal but "not found", and no answer.
    pub(crate) async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<std::collections::BTreeMap<String, String>>, ClusterError> {
        let found =
            self.api::<k8s_openapi::api::core::v1::ConfigMap>(namespace).get_opt(name).await?;
        Ok(found.map(|config_map| config_map.data.unwrap_or_default()))
    }

    /// The names of a ServiceAccount's image pull secrets; `None` when there is no ServiceAccount of that name.
    ///
    /// # Errors
    /// Every refusal but "not found", and no answer.
    pub(crate) async fn pull_secrets(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let found =
            self.api::<k8s_openapi::api::core::v1::ServiceAccount>(namespace).get_opt(name).await?;
        Ok(found.map(|account| {
            let secrets = account.image_pull_secrets.unwrap_or_default();
            secrets.into_iter().map(|secret| secret.name).collect()
        }))
    }
}

fn gone<K>(error: kube::Error) -> Result<Option<K>, ClusterError> {
    let error = ClusterError::from(error);
    if error.is_not_found() { Ok(None) } else { Err(error) }
}
