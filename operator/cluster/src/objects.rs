//! Reading and writing any object, as JSON and without types.

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

/// Attempts at a request that the server could not take right now.
const MAX_REQUEST_ATTEMPTS: u32 = 4;

/// Longest list that is read as a whole.
const LARGEST_LIST: usize = 64 << 20;

/// Whether a write is only tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRunMode {
    /// The server answers as if it had written, and writes nothing.
    DryRun,
    /// The server writes.
    Write,
}

/// A page of a list of objects.
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<Object>,
    /// Where the next page begins; none after the last.
    pub next: Option<String>,
    /// How long the answer was.
    pub bytes: usize,
}

/// A user as the API server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthenticatedUser {
    /// The name.
    pub name: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// What an access review says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessAnswer {
    /// Whether it is allowed.
    pub is_allowed: bool,
    /// Which rule says so, if the API server names one.
    pub reason: String,
}

/// A verb on one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessToObject<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The API group of the object.
    pub group: &'a str,
    /// Its resource, such as `planpolicies`.
    pub resource: &'a str,
    /// Its name.
    pub name: &'a str,
}

impl ClusterConnection {
    /// Sends a request and reads the answer as JSON; a server that is busy is asked again a few times.
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

    /// As [`ClusterConnection::send`]; the answer is not read.
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
        // A reply may have been lost after the write, and every write here may be repeated.
        self.send_while_busy(&request, 1).await
    }

    /// Sends a request, again a few times while the server is busy, and at most `repeats` times more where no answer comes.
    ///
    /// # Errors
    /// The last answer.
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
            // A creation has no version, so what conflicts is something else that was written in between, such as a quota.
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

    /// One object as it is now; `None` when it is not there.
    ///
    /// # Errors
    /// The API server does not respond, or refuses the request for another reason than "not found";
    /// [`ClusterError::NoSuchKind`] when discovery says that the kind is not served any more.
    pub async fn get(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, ClusterError> {
        // No object has a name that no path can have.
        let Ok(path) = resource.path(namespace, Some(name)) else { return Ok(None) };
        match self.send(Method::GET, &path, "application/json", Vec::new()).await {
            Ok(value) => to_object(value).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(self.unserved(resource, error).await),
        }
    }

    /// What a refusal comes to that may be that of a path that is not served any more: what was known of its group is
    /// forgotten, and discovery says whether the kind is missing. A proxy and an admission webhook answer 404, too.
    async fn unserved(&self, resource: &ApiResourceLocation, error: ClusterError) -> ClusterError {
        if !error.is_unserved() {
            return error;
        }
        self.forget_group(&resource.gvk.group);
        self.resource(&resource.gvk).await.err().unwrap_or(error)
    }

    /// Objects of a kind; none where discovery says that the kind is not served. An empty `namespace` stands for all.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond: then nothing is known of the objects.
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

    /// All objects of a kind in a namespace that a label selector matches, read page by page. Each is decoded
    /// separately: what lies too deep in one is null, and the others are whole. For callers that need whole objects in
    /// memory.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; [`ClusterError::Unreadable`] for a list that does not fit
    /// into memory.
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

    /// A page of the objects that a query selects, as [`ClusterConnection::list`] reads them: the first, or the one
    /// that begins where another ended.
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

    /// Like [`ClusterConnection::list_part`], but a page of at most `limit` objects.
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

    /// Server-side apply, taking ownership of every field sent.
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

    /// Like [`ClusterConnection::apply`]; if `strict`, fields that the server does not know are an error.
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

    /// Creates an object; `strict` refuses fields that the server does not know.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; the code is 409 if the object exists already. A reply that
    /// was lost is asked for again, so this may also be the object that the first attempt made.
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

    /// Whether an object could be created; nothing is.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; the code is 409 if the object is valid and its name is
    /// taken.
    pub async fn try_create(
        &self,
        resource: &ApiResourceLocation,
        object: &Object,
        manager: &str,
    ) -> Result<(), ClusterError> {
        let tried = format!("{manager}&dryRun=All");
        self.create_object(resource, object, &tried, false).await.map(drop)
    }

    /// Whether this user may do something with all objects of a resource.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn may(&self, verb: &str, group: &str, resource: &str) -> Result<bool, ClusterError> {
        self.may_in("", verb, group, resource).await.map(|answer| answer.is_allowed)
    }

    /// Whether this user may do something with all objects of a resource in a namespace, and which rule says so. In all
    /// namespaces if it is empty; `resource` may have a subresource, such as `pods/log`.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn may_in(
        &self,
        namespace: &str,
        verb: &str,
        group: &str,
        resource: &str,
    ) -> Result<AccessAnswer, ClusterError> {
        let access = AccessToObject { verb, group, resource, name: "" };
        self.may_access(namespace, access).await
    }

    /// As [`ClusterConnection::may_in`], with the one object that `access` names: a rule may allow that one only. With all
    /// objects if it has no name.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn may_access(
        &self,
        namespace: &str,
        access: AccessToObject<'_>,
    ) -> Result<AccessAnswer, ClusterError> {
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
        let status = &answer["status"];
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        Ok(AccessAnswer { is_allowed: status["allowed"] == true, reason })
    }

    /// Whether another user may do something with an object. An answer that does not clearly say so is no.
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

    /// The name that the API server has for the user of this connection.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn own_name(&self) -> Result<String, ClusterError> {
        self.own_user().await.map(|user| user.name)
    }

    /// The user of this connection, as the API server knows it.
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

    /// Replaces an object. Its `resourceVersion`, if it has one, makes sure that no other client changed it meanwhile.
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

    /// Sets an annotation of an object that was read. One that does not exist any more is not an error; another object of its
    /// name is one, and is not changed.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
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

    /// Sends a patch of a content type to a path.
    async fn send_patch(
        &self,
        as_type: &str,
        path: &str,
        patch: &Value,
    ) -> Result<Object, ClusterError> {
        let body = patch.to_string().into_bytes();
        to_object(self.send(Method::PATCH, path, as_type, body).await?)
    }

    /// Like [`ClusterConnection::merge_patch`], but fields that the server does not know are an error.
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

    /// Changes the status of an object by a JSON patch (RFC 6902); fields that the server does not know are refused.
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

    /// The object that a merge patch would make; nothing is changed.
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

    /// Deletes an object that no Kustomization, HelmRelease or Helmfile manages, with background propagation, if its uid is
    /// still the one that was read.
    ///
    /// No gate is asked about: what windlass keeps for itself (Secrets of Helm's records and of exports, audits, incidents,
    /// events of lifecycles, the HelmChart of a HelmRelease, the ExternalArtifact of an HTTPArchive), the object of a hook,
    /// which belongs to the operation that creates it and is deleted by Helm's policy, and what the user of a command names.
    /// A test lists the files that do so (`xtask/src/tidy/removals.rs`). Anything else takes
    /// [`ClusterConnection::delete_managed`].
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; an object that is gone already is not an error.
    pub async fn delete_unmanaged(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), ClusterError> {
        self.delete_read(resource, namespace, name, uid, "Background").await
    }

    /// Deletes an object that is applied by us, only if it is still the one that was read. The propagation is `Background`,
    /// `Foreground` or `Orphan`.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; an object that is gone already is not an error.
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

    /// Deletes an object that is applied by us, only if it is still as it was read.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; the error is a conflict if the object has changed; an
    /// object that is gone already is not an error.
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

    /// Checks whether a deletion would be accepted; the object stays.
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

/// The path of a page of a list.
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
/// The part of a query that makes the server refuse fields that it does not know.
const STRICT: &str = "&fieldValidation=Strict";

fn body_of(object: &Object) -> Result<Vec<u8>, ClusterError> {
    serde_json::to_vec(object.fields()).map_err(|e| ClusterError::NoAnswer(e.to_string()))
}

fn to_object(value: Value) -> Result<Object, ClusterError> {
    Object::new(value)
        .map_err(|e| ClusterError::NoAnswer(format!("the response is not an object: {e}")))
}

/// What stands for itself in a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes what may stand in a selector and not in a query.
pub(super) fn url_encode(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}
