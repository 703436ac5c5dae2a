//! Writes the statuses and finalizers of windlass's own kinds, and ends holds.

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

    /// Patches an object of one of windlass's kinds. The answer is decoded like a watch event, so an object that is being
    /// deleted may be nested at any depth.
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
        super::unused_managed_fields::keep_needed(&mut object);
        Ok(Some(object))
    }

    /// Replaces fields in the status of an object that cannot be read, with `manager` as field manager.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It is no error if the object is gone.
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
            // The status was written. The object is as unreadable as before.
            Ok(_) | Err(ClusterError::Unreadable(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads an object that a spec may name. A name that is not valid in a path belongs to no object, and could make the path
    /// lead to something else.
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

    /// Reads an object of one of windlass's kinds. `None` if it does not exist.
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

    /// Creates an object that must not exist yet.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. The code is 409 if the object exists already.
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

    /// Replaces the status fields that `status` names, with `manager` as field manager. Other fields stay. With a `version`,
    /// the write succeeds only if the object still has that version.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. If the object is gone, the result is `None` and no error.
    pub async fn write_status<K: WindlassKind>(
        &self,
        object: &K,
        manager: &str,
        status: &Value,
        version: Option<&str>,
    ) -> Result<Option<K>, ClusterError> {
        let namespace = object.namespace().unwrap_or_default();
        // The uid makes sure that the status never reaches another object of the same name that was created since.
        let mut patch = json!({"metadata": {"uid": object.uid()}, "status": status});
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version.into();
        }
        self.patch(&namespace, &object.name_any(), Some("status"), manager, patch).await
    }

    /// Adds or removes windlass's finalizer, if the object has not changed since it was read.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. If the object is gone, the result is `None` and no error.
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

    /// Removes annotations, and with `resume` also sets `spec.suspend` to false. Both need that the object has not changed
    /// since it was read.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. If the object is gone, the result is `None` and no error.
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
        // The field manager is windlass's own name, because neither a Flux controller nor a user makes this change.
        self.patch(&namespace, &object.name_any(), None, "windlass", patch).await
    }

    /// The data of a Secret and its version. `None` if it does not exist.
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

    /// The strings of a ConfigMap and its version. `None` if it does not exist.
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

    /// The names of a ServiceAccount's image pull secrets, and its version. `None` if the ServiceAccount does not exist.
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

/// The version of an object, as a number.
fn version_of<K: kube::Resource>(object: &K) -> u64 {
    number_of(&object.resource_version().unwrap_or_default())
}

fn gone<K>(error: kube::Error) -> Result<Option<K>, ClusterError> {
    let error = throttled_requests::noted(error);
    if error.is_not_found() { Ok(None) } else { Err(error) }
}

/// The object that was read. `None` if the API server says that this object does not exist.
fn found<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, ClusterError> {
    answer.map(Some).or_else(gone)
}
