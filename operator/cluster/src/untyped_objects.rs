//! Reads and writes objects of any kind as untyped JSON.

use http::{Method, Request};
use objects::{Gvk, Object};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reconcile::RemovalPermit;
use serde_json::{Value, json};

use super::discovery::ApiResourceLocation;
use super::object_decode::{DepthPrunedObject, OBJECTS_PER_PAGE, ObjectListPage};
use super::object_pages::ObjectQuery;
use super::request_retry::{self, RetryAfterHint};
use super::{ClusterConnection, ClusterError, throttled_requests};

/// How often a request is sent at most if the API server is busy.
const MAX_REQUEST_ATTEMPTS: u32 = 4;

/// The most bytes of a list that is read as a whole.
const LARGEST_LIST: usize = 64 << 20;

/// Whether a write is a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunMode {
    /// The API server validates the write and answers, but stores nothing.
    DryRun,
    /// The API server stores the write.
    Write,
}

/// A page of a list of objects.
pub struct ObjectPage {
    /// The objects of the page.
    pub objects: Vec<Object>,
    /// The token of the next page. `None` after the last page.
    pub next: Option<String>,
    /// The length of the answer in bytes.
    pub bytes: usize,
}

/// A user name and groups, as the API server knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthenticatedUser {
    /// The user name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// The answer to an access review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessReviewAnswer {
    /// Whether the access is allowed.
    pub is_allowed: bool,
    /// The reason that the API server gives, such as the RBAC rule. It may be empty.
    pub reason: String,
}

impl AccessReviewAnswer {
    /// Reads the status of an access review.
    ///
    /// # Errors
    /// The status does not answer the question, or an authorizer has failed that might have allowed the access.
    fn of(status: &Value) -> Result<Self, ClusterError> {
        let text = |key: &str| status[key].as_str().unwrap_or_default();
        let Some(is_allowed) = status["allowed"].as_bool() else {
            let error = "the access review has no status.allowed";
            return Err(ClusterError::Unreadable(error.to_owned()));
        };
        let failure = text("evaluationError");
        if !is_allowed && status["denied"] != true && !failure.is_empty() {
            return Err(ClusterError::AccessNotEvaluated(failure.to_owned()));
        }
        Ok(Self { is_allowed, reason: text("reason").to_owned() })
    }
}

/// An access of one verb to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessToObject<'a> {
    /// The verb, such as `get`.
    pub verb: &'a str,
    /// The API group of the object.
    pub group: &'a str,
    /// The resource of the object, such as `planpolicies`.
    pub resource: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

impl ClusterConnection {
    /// Sends a request and reads the answer as JSON. If the API server is busy, the request is repeated a few times.
    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Value, ClusterError> {
        let answer = self.send_for_text(method, path, content_type, body).await?;
        serde_json::from_str(&answer).map_err(|error| kube::Error::SerdeError(error).into())
    }

    /// As [`ClusterConnection::send`], but returns the answer as text.
    async fn send_for_text(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<String, ClusterError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|e| ClusterError::NoAnswer(format!("{path} is not a path: {e}")))?;
        // The answer to a write may be lost after it took effect. Every write here may safely be repeated.
        self.send_while_busy(&request, 1).await
    }

    /// Sends a request. While the API server is busy, the request is repeated a few times. If no answer comes, it is repeated
    /// up to `repeats` times.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(super) async fn send_while_busy(
        &self,
        request: &Request<Vec<u8>>,
        repeats: u32,
    ) -> Result<String, ClusterError> {
        let path = request.uri().to_string();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let hint = RetryAfterHint::default();
            let mut sent = request.clone();
            sent.extensions_mut().insert(hint.clone());
            let error = match self.unary.request_text(sent).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let is_closed = throttled_requests::is_closed(&error);
            let error = hint.into(ClusterError::from(error));
            let busy = matches!(error.code(), Some(429 | 503 | 504));
            let lost = matches!(error, ClusterError::NoAnswer(_)) && attempt <= repeats;
            // A creation has no resourceVersion. So a conflict means that another write came in between, such as that of a
            // quota.
            let conflicted = request.method() == Method::POST && error.is_conflict();
            let is_repeated = attempt < MAX_REQUEST_ATTEMPTS && (busy || lost || conflicted);
            let delay = request_retry::delay(&error, attempt, &path).filter(|_| is_repeated);
            let Some(delay) = delay else {
                throttled_requests::note(&error, is_closed);
                return Err(error);
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// Reads an object. `None` if it does not exist.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found".
    /// [`ClusterError::NoSuchKind`] if discovery says that the kind is no longer served.
    pub async fn get(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, ClusterError> {
        // No object can have a name that is not valid in a path.
        let Ok(path) = resource.path(namespace, Some(name)) else { return Ok(None) };
        match self.send(Method::GET, &path, "application/json", Vec::new()).await {
            Ok(value) => to_object(value).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(self.unserved(resource, error).await),
        }
    }

    /// Finds out whether a 404 means that the kind is no longer served. It clears the discovery of the group and asks again.
    /// Without that check, a proxy or an admission webhook that answers 404 would be misread.
    async fn unserved(&self, resource: &ApiResourceLocation, error: ClusterError) -> ClusterError {
        if !error.is_unserved() {
            return error;
        }
        self.forget_group(&resource.gvk.group);
        self.resource(&resource.gvk).await.err().unwrap_or(error)
    }

    /// The objects of a kind that match a label selector. Empty if discovery says that the kind is not served. An empty
    /// `namespace` means all namespaces.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. Then nothing is known about the objects.
    pub async fn list_of_kind(
        &self,
        gvk: &Gvk,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Object>, ClusterError> {
        let resource = match self.resource(gvk).await {
            Ok(resource) => resource,
            Err(ClusterError::NoSuchKind { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let namespace = if resource.namespaced { namespace } else { "" };
        match self.list(&resource, namespace, selector).await {
            Err(ClusterError::NoSuchKind { .. }) => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// All objects of a kind in a namespace that match a label selector, for callers that need whole objects in memory. They
    /// are read page by page, and each is decoded separately. Values that are nested too deeply become null.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. [`ClusterError::Unreadable`] if the list is larger than 64 MiB.
    pub async fn list(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        selector: &str,
    ) -> Result<Vec<Object>, ClusterError> {
        let query =
            ObjectQuery { resource, namespace, label_selector: selector, field_selector: "" };
        let mut objects = Vec::new();
        let mut bytes = 0;
        let mut pages = self.object_pages(query);
        while let Some(page) = pages.next().await? {
            bytes += page.bytes;
            if bytes > LARGEST_LIST {
                let plural = &query.resource.plural;
                let text = format!("the list of {plural} is longer than {LARGEST_LIST} bytes");
                return Err(ClusterError::Unreadable(text));
            }
            objects.extend(page.objects);
        }
        Ok(objects)
    }

    /// One page of the objects that a query selects. `from` is the token of a later page. The objects are decoded as
    /// [`ClusterConnection::list`] does it.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn list_part(
        &self,
        query: ObjectQuery<'_>,
        from: Option<&str>,
    ) -> Result<ObjectPage, ClusterError> {
        self.list_at_most(query, from, OBJECTS_PER_PAGE).await
    }

    /// As [`ClusterConnection::list_part`], with a page of at most `limit` objects.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn list_at_most(
        &self,
        query: ObjectQuery<'_>,
        from: Option<&str>,
        limit: usize,
    ) -> Result<ObjectPage, ClusterError> {
        let path = page_path(query, from, limit)?;
        match self.part_at(query.resource, &path).await {
            Err(error) => Err(self.unserved(query.resource, error).await),
            page => page,
        }
    }

    async fn part_at(
        &self,
        resource: &ApiResourceLocation,
        path: &str,
    ) -> Result<ObjectPage, ClusterError> {
        let answer = self.send_for_text(Method::GET, path, "application/json", Vec::new()).await?;
        let page =
            ObjectListPage::<DepthPrunedObject>::read(answer.as_bytes()).map_err(|error| {
                ClusterError::Unreadable(format!("the list of {}: {error}", resource.plural))
            })?;
        let named = |DepthPrunedObject(mut item): DepthPrunedObject| {
            item["apiVersion"] = resource.gvk.api_version().into();
            item["kind"] = resource.gvk.kind.clone().into();
            to_object(item)
        };
        let objects = page.items.into_iter().map(named).collect::<Result<_, _>>()?;
        Ok(ObjectPage { objects, next: page.next, bytes: answer.len() })
    }

    /// Applies an object by server-side apply, and takes the ownership of every field that it sends.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn apply(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        manager: &str,
        mode: DryRunMode,
    ) -> Result<Object, ClusterError> {
        self.apply_checked(resource, object, manager, mode, false).await
    }

    /// As [`ClusterConnection::apply`]. With `strict`, the API server refuses unknown fields.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn apply_checked(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        manager: &str,
        mode: DryRunMode,
        strict: bool,
    ) -> Result<Object, ClusterError> {
        let dry = if mode == DryRunMode::DryRun { "&dryRun=All" } else { "" };
        let strict = if strict { STRICT } else { "" };
        let path = resource.path(object.namespace(), Some(object.name()))?;
        let path = format!("{path}?fieldManager={manager}&force=true{dry}{strict}");
        let body = body_of(object)?;
        let answer = self.send(Method::PATCH, &path, "application/apply-patch+yaml", body).await;
        match answer {
            Ok(answer) => to_object(answer),
            Err(error) => Err(self.unserved(resource, error).await),
        }
    }

    /// Changes an object by a JSON patch (RFC 6902).
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn json_patch(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        operations: &Value,
    ) -> Result<Object, ClusterError> {
        let path = resource.path(namespace, Some(name))?;
        let body = operations.to_string().into_bytes();
        to_object(self.send(Method::PATCH, &path, "application/json-patch+json", body).await?)
    }

    /// Creates an object. With `strict`, the API server refuses unknown fields.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. The code is 409 if the object exists already. If an answer is
    /// lost, the request is repeated, and then the existing object may be the one that this call created.
    pub async fn create_object(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        manager: &str,
        strict: bool,
    ) -> Result<Object, ClusterError> {
        let strict = if strict { STRICT } else { "" };
        let path = resource.path(object.namespace(), None)?;
        let path = format!("{path}?fieldManager={manager}{strict}");
        to_object(self.send(Method::POST, &path, "application/json", body_of(object)?).await?)
    }

    /// Checks by a dry run whether an object could be created. Creates nothing.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. The code is 409 if the object is valid but already exists.
    pub async fn try_create(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        manager: &str,
    ) -> Result<(), ClusterError> {
        let tried = format!("{manager}&dryRun=All");
        self.create_object(resource, object, &tried, false).await.map(drop)
    }

    /// Whether this user may use a verb on all objects of a resource.
    ///
    /// # Errors
    /// The API server refuses the request, or does not decide.
    pub async fn may(&self, verb: &str, group: &str, resource: &str) -> Result<bool, ClusterError> {
        self.may_in("", verb, group, resource).await.map(|answer| answer.is_allowed)
    }

    /// Whether this user may use a verb on all objects of a resource in a namespace, with the reason. An empty `namespace`
    /// means all namespaces. `resource` may have a subresource, such as `pods/log`.
    ///
    /// # Errors
    /// The API server refuses the request, or does not decide.
    pub async fn may_in(
        &self,
        namespace: &str,
        verb: &str,
        group: &str,
        resource: &str,
    ) -> Result<AccessReviewAnswer, ClusterError> {
        let access = AccessToObject { verb, group, resource, name: "" };
        self.may_access(namespace, access).await
    }

    /// As [`ClusterConnection::may_in`], for the one object that `access` names, because a rule may allow only that object.
    /// Without a name, it is about all objects.
    ///
    /// # Errors
    /// The API server refuses the request, or does not decide.
    pub async fn may_access(
        &self,
        namespace: &str,
        access: AccessToObject<'_>,
    ) -> Result<AccessReviewAnswer, ClusterError> {
        let AccessToObject { verb, group, resource, name } = access;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let mut attributes = json!({"verb": verb, "group": group, "resource": resource});
        let more = [("namespace", namespace), ("subresource", subresource), ("name", name)];
        for (key, value) in more {
            if !value.is_empty() {
                attributes[key] = value.into();
            }
        }
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let body = review.to_string().into_bytes();
        let answer = self.send(Method::POST, path, "application/json", body).await?;
        AccessReviewAnswer::of(&answer["status"])
    }

    /// Whether another user may use a verb on an object. Only a clear "allowed" of the API server counts as yes.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn may_user(
        &self,
        user: &AuthenticatedUser,
        access: AccessToObject<'_>,
    ) -> Result<bool, ClusterError> {
        let AccessToObject { verb, group, resource, name } = access;
        let attributes = json!({"verb": verb, "group": group, "resource": resource, "name": name});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user.name, "groups": user.groups, "resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let body = review.to_string().into_bytes();
        let answer = self.send(Method::POST, path, "application/json", body).await?;
        let status = &answer["status"];
        Ok(status["allowed"] == true && status["denied"] != true)
    }

    /// The user name of this connection, as the API server knows it.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn own_name(&self) -> Result<String, ClusterError> {
        self.own_user().await.map(|user| user.name)
    }

    /// The user and the groups of this connection, as the API server knows them.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn own_user(&self) -> Result<AuthenticatedUser, ClusterError> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let body = review.to_string().into_bytes();
        let answer = self.send(Method::POST, path, "application/json", body).await?;
        let info = &answer["status"]["userInfo"];
        let groups = info["groups"].as_array().into_iter().flatten();
        Ok(AuthenticatedUser {
            name: info["username"].as_str().unwrap_or_default().to_owned(),
            groups: groups.filter_map(|it| Some(it.as_str()?.to_owned())).collect(),
        })
    }

    /// Replaces an object. If it has a `resourceVersion`, the API server refuses the write after another client's change.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn replace_object(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        manager: &str,
    ) -> Result<Object, ClusterError> {
        let path = resource.path(object.namespace(), Some(object.name()))?;
        let path = format!("{path}?fieldManager={manager}");
        to_object(self.send(Method::PUT, &path, "application/json", body_of(object)?).await?)
    }

    /// Changes an object by a merge patch (RFC 7386).
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn merge_patch(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<Object, ClusterError> {
        let path = resource.path(namespace, Some(name))?;
        self.send_patch(MERGE, &format!("{path}?fieldManager={manager}"), patch).await
    }

    /// Sets an annotation of an object that was read before. If the object is gone, nothing happens.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It refuses to change another object of the same name.
    pub async fn annotate(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        key: &str,
        value: &str,
        manager: &str,
    ) -> Result<(), ClusterError> {
        let patch = json!({"metadata": {"uid": object.uid(), "annotations": {key: value}}});
        let name = object.name();
        match self.merge_patch(resource, object.namespace(), name, &patch, manager).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a patch with this content type to a path.
    async fn send_patch(
        &self,
        as_type: &str,
        path: &str,
        patch: &Value,
    ) -> Result<Object, ClusterError> {
        let body = patch.to_string().into_bytes();
        to_object(self.send(Method::PATCH, path, as_type, body).await?)
    }

    /// As [`ClusterConnection::merge_patch`], but the API server refuses unknown fields.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn merge_patch_strictly(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<Object, ClusterError> {
        self.merge_patch(resource, namespace, name, patch, &format!("{manager}{STRICT}")).await
    }

    /// Changes the status of an object by a merge patch.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn merge_patch_status(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<(), ClusterError> {
        let path = resource.path(namespace, Some(name))?;
        self.send_patch(MERGE, &format!("{path}/status?fieldManager={manager}"), patch)
            .await
            .map(drop)
    }

    /// As [`ClusterConnection::merge_patch_status`], but the API server refuses unknown fields. Returns the object as it is stored.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn merge_patch_status_strictly(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<Object, ClusterError> {
        let path = resource.path(namespace, Some(name))?;
        let path = format!("{path}/status?fieldManager={manager}{STRICT}");
        self.send_patch(MERGE, &path, patch).await
    }

    /// Changes the status of an object by a JSON patch (RFC 6902). The API server refuses unknown fields.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn json_patch_status(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        operations: &Value,
        manager: &str,
    ) -> Result<Object, ClusterError> {
        let path = resource.path(namespace, Some(name))?;
        let path = format!("{path}/status?fieldManager={manager}{STRICT}");
        self.send_patch("application/json-patch+json", &path, operations).await
    }

    /// The object that a merge patch would result in, by a dry run. Changes nothing.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn try_merge_patch(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        patch: &Value,
        manager: &str,
    ) -> Result<Object, ClusterError> {
        let manager = format!("{manager}&dryRun=All");
        self.merge_patch(resource, namespace, name, patch, &manager).await
    }

    /// Deletes an object that no Kustomization, HelmRelease or Helmfile manages. The propagation is `Background`, and the uid
    /// must be the one that was read.
    ///
    /// This call passes no gate. It is for windlass's own records, for hook objects, which Helm's policy deletes, and for
    /// objects that the user of a command names. Records are Secrets of Helm and exports, audits, incidents, events of
    /// lifecycles, and generated HelmCharts and ExternalArtifacts. A test lists the callers (`xtask/src/tidy/ungated_deletions.rs`).
    /// All others use [`ClusterConnection::delete_managed`].
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It is no error if the object is already gone.
    pub async fn delete_unmanaged(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ClusterError> {
        self.delete_read(resource, namespace, name, uid, "Background").await
    }

    /// Deletes an object that windlass applied, only if its uid is still the one that was read. The propagation is
    /// `Background`, `Foreground` or `Orphan`.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It is no error if the object is already gone.
    pub async fn delete_managed(
        &self,
        _: RemovalPermit,
        resource: &ApiResourceLocation,
        live: &Object,
        propagation: &str,
    ) -> Result<(), ClusterError> {
        self.delete_read(resource, live.namespace(), live.name(), live.uid(), propagation).await
    }

    async fn delete_read(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        uid: &str,
        propagation: &str,
    ) -> Result<(), ClusterError> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "propagationPolicy": propagation, "preconditions": {"uid": uid}});
        self.delete_by(resource, namespace, name, &options).await
    }

    /// Deletes an object that windlass applied, only if it has not changed since it was read.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It answers with a conflict if the object has changed. It is no
    /// error if the object is already gone.
    pub async fn delete_unchanged(
        &self,
        _: RemovalPermit,
        resource: &ApiResourceLocation,
        object: &Object,
        propagation: &str,
    ) -> Result<(), ClusterError> {
        let same = json!({"uid": object.uid(), "resourceVersion": object.meta("resourceVersion")});
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "propagationPolicy": propagation, "preconditions": same});
        self.delete_by(resource, object.namespace(), object.name(), &options).await
    }

    /// Checks by a dry run whether the API server would accept a deletion. The object stays.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn try_delete(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ClusterError> {
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"],
            "preconditions": {"uid": uid}});
        self.delete_by(resource, namespace, name, &options).await
    }

    async fn delete_by(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<(), ClusterError> {
        let Ok(path) = resource.path(namespace, Some(name)) else { return Ok(()) };
        match self
            .send(Method::DELETE, &path, "application/json", options.to_string().into_bytes())
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(self.unserved(resource, error).await),
        }
    }
}

/// The path and query of one page of a list.
fn page_path(
    query: ObjectQuery<'_>,
    from: Option<&str>,
    limit: usize,
) -> Result<String, ClusterError> {
    let ObjectQuery { resource, namespace, label_selector, field_selector } = query;
    let path = resource.path(namespace, None)?;
    let labels = url_encode(label_selector);
    let fields = url_encode(field_selector);
    let from = from.map(|at| format!("&continue={}", url_encode(at))).unwrap_or_default();
    Ok(format!("{path}?limit={limit}&labelSelector={labels}&fieldSelector={fields}{from}"))
}

/// The content type of a merge patch.
const MERGE: &str = "application/merge-patch+json";
/// The query parameter that makes the API server refuse unknown fields.
const STRICT: &str = "&fieldValidation=Strict";

fn body_of(object: &Object) -> Result<Vec<u8>, ClusterError> {
    serde_json::to_vec(object.fields()).map_err(|e| ClusterError::NoAnswer(e.to_string()))
}

fn to_object(value: Value) -> Result<Object, ClusterError> {
    Object::new(value)
        .map_err(|e| ClusterError::NoAnswer(format!("the response is not an object: {e}")))
}

/// The characters that a query keeps unencoded.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes a text, such as a selector, for a query.
pub(super) fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}
