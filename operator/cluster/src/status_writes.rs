//! Writing statuses and finalizers of our own kinds, and ending holds.

use http::Request;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::ResourceExt as _;
use serde_json::{Value, json};

use super::discovery::is_plain;
use super::resource_version::number_of;
use super::windlass_kind::WindlassKind;
use super::{ClusterConnection, ClusterError, throttled_requests};

impl ClusterConnection {
    fn api<K: WindlassKind>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.unary.clone(), namespace)
    }

    /// Has an object of a kind of ours patched. The answer is read as watches read it: one that is being deleted may be
    /// nested as deeply as it likes.
    async fn patch<K: WindlassKind>(
        &self,
        namespace: &str,
        name: &str,
        subresource: Option<&str>,
        manager: &str,
        patch: Value,
    ) -> Result<Option<K>, ClusterError> {
        let params =
            PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let requests = kube::core::Request::new(K::url_path(&(), Some(namespace)));
        let patch = Patch::Merge(patch);
        let request = match subresource {
            Some(part) => requests.patch_subresource(part, name, &params, &patch),
            None => requests.patch(name, &params, &patch),
        };
        let request: Request<Vec<u8>> =
            request.map_err(|error| ClusterError::NoAnswer(error.to_string()))?;
        let answer = match self.unary.request_text(request).await {
            Ok(answer) => answer,
            Err(error) => return gone(error),
        };
        let read = super::object_decode::object::<K>(answer.as_bytes());
        let unreadable =
            |error| ClusterError::Unreadable(super::object_decode::why(answer.as_bytes(), &error));
        let mut object = read.map_err(unreadable)?;
        super::managed_fields::keep_needed(&mut object);
        Ok(Some(object))
    }

    /// Replaces fields in the status of an object that cannot be read, as `manager`.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; an object that is gone is not an error.
    pub async fn write_status_of_unreadable<K: WindlassKind>(
        &self,
        meta: &super::object_decode::ObjectMetadata,
        manager: &str,
        status: &Value,
    ) -> Result<(), ClusterError> {
        let patch = json!({"metadata": {"uid": meta.uid}, "status": status});
        let namespace = &meta.namespace;
        let name = &meta.name;
        match self.patch::<K>(namespace, name, Some("status"), manager, patch).await {
            // It is written, and cannot be read now as before.
            Ok(_) | Err(ClusterError::Unreadable(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// An object that a spec may name. No object has a name that a path cannot have as it is, and such a name would ask for
    /// something else.
    async fn named<K: WindlassKind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, ClusterError> {
        if name.is_empty() || ![namespace, name].into_iter().all(is_plain) {
            return Ok(None);
        }
        found(self.api::<K>(namespace).get(name).await)
    }

    /// An object of a kind of ours as it is now; `None` when there is none of that name.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found".
    pub async fn read<K: WindlassKind>(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<K>, ClusterError> {
        self.named(namespace, name).await
    }

    /// Makes an object that must not be there yet.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; the code is 409 if the object exists already.
    pub async fn create<K: WindlassKind>(
        &self,
        object: &K,
        manager: &str,
    ) -> Result<K, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let params =
            PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        let created = self.api::<K>(&namespace).create(&params, object).await;
        created.map_err(throttled_requests::noted)
    }

    /// Replaces the fields of a status that `status` names, as `manager`; others stay. With a `version` only as long as the
    /// object has it.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; an object that is gone is not an error and gives `None`.
    pub async fn write_status<K: WindlassKind>(
        &self,
        object: &K,
        manager: &str,
        status: &Value,
        version: Option<&str>,
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        // The uid makes sure that a status never lands on a namesake that was created since.
        let mut patch = json!({"metadata": {"uid": object.uid()}, "status": status});
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        self.patch(&namespace, &object.name_any(), Some("status"), manager, patch).await
    }

    /// Adds or removes our finalizer, provided that the object has not changed since it was read.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; an object that is gone is not an error and gives `None`.
    pub async fn write_finalizers<K: WindlassKind>(
        &self,
        object: &K,
        manager: &str,
        finalizers: &[String],
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let patch = json!({"metadata": {"uid": object.uid(), "finalizers": finalizers,
            "resourceVersion": object.resource_version()}});
        self.patch(&namespace, &object.name_any(), None, manager, patch).await
    }

    /// Takes annotations away, and sets `spec.suspend` to false if it is to `resume`, provided that the object has not
    /// changed since it was read.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; an object that is gone is not an error and gives `None`.
    pub async fn end_hold<K: WindlassKind>(
        &self,
        object: &K,
        resume: bool,
        annotations: &[&str],
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        let gone_ones: Value =
            annotations.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        let mut patch = json!({"metadata": {"uid": object.uid(), "annotations": gone_ones,
            "resourceVersion": object.resource_version()}});
        if resume {
            patch["spec"] = json!({"suspend": false});
        }
        // A name of our own: this is neither what a controller of Flux does nor what a user did.
        self.patch(&namespace, &object.name_any(), None, "windlass", patch).await
    }

    /// The data of a Secret and its version; `None` when there is none of that name.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found".
    pub async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(std::collections::BTreeMap<String, Vec<u8>>, u64)>, ClusterError> {
        let secret = self.named::<k8s_openapi::api::core::v1::Secret>(namespace, name).await?;
        Ok(secret.map(|secret| {
            let version = version_of(&secret);
            let data = secret.data.unwrap_or_default();
            (data.into_iter().map(|(key, value)| (key, value.0)).collect(), version)
        }))
    }

    /// The strings of a ConfigMap and its version; `None` when there is none of that name.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found".
    pub async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(std::collections::BTreeMap<String, String>, u64)>, ClusterError> {
        let found = self.named::<k8s_openapi::api::core::v1::ConfigMap>(namespace, name).await?;
        Ok(found.map(|config_map| {
            let version = version_of(&config_map);
            (config_map.data.unwrap_or_default(), version)
        }))
    }

    /// The names of a ServiceAccount's image pull secrets and its version; `None` when there is no ServiceAccount of
    /// that name.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found".
    pub async fn pull_secrets(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(Vec<String>, u64)>, ClusterError> {
        let found =
            self.named::<k8s_openapi::api::core::v1::ServiceAccount>(namespace, name).await?;
        Ok(found.map(|account| {
            let version = version_of(&account);
            let secrets = account.image_pull_secrets.unwrap_or_default();
            (secrets.into_iter().map(|secret| secret.name).collect(), version)
        }))
    }
}

/// What stands for the version of an object.
fn version_of<K: kube::Resource>(object: &K) -> u64 {
    number_of(&object.resource_version().unwrap_or_default())
}

fn gone<K>(error: kube::Error) -> Result<Option<K>, ClusterError> {
    let error = throttled_requests::noted(error);
    if error.is_not_found() { Ok(None) } else { Err(error) }
}

/// What was read; `None` where the server says of the object itself that it is not there.
fn found<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, ClusterError> {
    answer.map(Some).or_else(gone)
}
