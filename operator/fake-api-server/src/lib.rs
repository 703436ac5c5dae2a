//! A fake API server on loopback for tests. It answers with the result of a closure, or serves objects that it holds.
//!
//! It does not depend on the client. Tests connect with the kubeconfig that it writes.

#![expect(clippy::unwrap_used, reason = "only tests depend on it, and its faults are theirs")]

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use tempfile::TempDir;

/// A request as `METHOD path?query`, with its body. The body is null if there is none.
pub type RecordedRequest = (String, Value);

/// A fake API server that runs as long as the test.
#[derive(Debug)]
pub struct FakeApiServer {
    folder: TempDir,
}

impl FakeApiServer {
    /// The path of the kubeconfig with the only user of this server.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}

/// Starts a server that answers each request with the status and body that `answer` returns. It refuses lists as the initial
/// events of a watch, as an API server without the feature gate `WatchList` does, so clients ask for pages.
///
/// # Panics
/// If no port or no temporary folder is available.
pub async fn answering(
    answer: impl Fn(RecordedRequest) -> (u16, Body) + Clone + Send + Sync + 'static,
) -> FakeApiServer {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let handler = move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (parts, body) = request.into_parts();
            if parts.uri.query().is_some_and(|query| query.contains("sendInitialEvents=true")) {
                let body = Body::from(refused_initial_events().to_string());
                return Response::builder().status(422).body(body).unwrap();
            }
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, body) = answer((format!("{} {}", parts.method, parts.uri), body));
            Response::builder().status(code).body(body).unwrap()
        }
    };
    let router = Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, router).await });
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}]});
    let folder = tempfile::tempdir().unwrap();
    let server = FakeApiServer { folder };
    std::fs::write(server.kubeconfig(), kubeconfig.to_string()).unwrap();
    server
}

/// The answer of an API server to a watch with initial events if it does not serve them.
fn refused_initial_events() -> Value {
    let message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature \
                   gate is enabled";
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422, "reason": "Invalid",
        "message": message})
}

/// The kinds that every fake API server serves.
const KINDS: [(&str, &str, bool); 16] = [
    ("apps/v1", "Deployment", true),
    ("apps/v1", "StatefulSet", true),
    ("policy/v1", "PodDisruptionBudget", true),
    ("v1", "Pod", true),
    ("v1", "Service", true),
    ("v1", "ResourceQuota", true),
    ("v1", "PersistentVolumeClaim", true),
    ("v1", "ServiceAccount", true),
    ("v1", "ConfigMap", true),
    ("networking.k8s.io/v1", "NetworkPolicy", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", true),
    ("rbac.authorization.k8s.io/v1", "Role", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", false),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", false),
    ("coordination.k8s.io/v1", "Lease", true),
];

/// The recorded requests, in their order, without discovery, lists and reads.
pub type RecordedWrites = Arc<Mutex<Vec<String>>>;

/// Starts a server with these objects. It serves their kinds in addition to those that every server has. A deletion removes
/// the object, and all other writes change nothing. Each user is named `user`, and may do everything.
pub async fn with_objects(objects: Vec<Value>) -> (FakeApiServer, RecordedWrites) {
    with_shared_objects(Arc::new(Mutex::new(objects))).await
}

/// As [`with_objects`], with objects that the test may change later.
pub async fn with_shared_objects(
    objects: Arc<Mutex<Vec<Value>>>,
) -> (FakeApiServer, RecordedWrites) {
    let writes = RecordedWrites::default();
    let written = writes.clone();
    let server = answering(move |(request, _)| {
        let (method, path) = request.split_once(' ').unwrap();
        let mut objects = objects.lock();
        if path.ends_with("subjectaccessreviews") {
            return (200, Body::from(json!({"status": {"allowed": true}}).to_string()));
        }
        if path.ends_with("selfsubjectreviews") {
            let answer = json!({"status": {"userInfo": {"username": "user"}}});
            return (200, Body::from(answer.to_string()));
        }
        if method != "GET" {
            written.lock().push(request.clone());
            let (path, _) = path.split_once('?').unwrap_or((path, ""));
            let found = objects.iter().position(|it| place(it) == path);
            let answer = match (method, found) {
                ("DELETE", Some(at)) => objects.remove(at),
                (_, Some(at)) => objects[at].clone(),
                (_, None) => json!({}),
            };
            return (200, Body::from(answer.to_string()));
        }
        let (code, answer) = answer(&objects, path);
        (code, Body::from(answer.to_string()))
    })
    .await;
    (server, writes)
}

/// As [`with_shared_objects`], but merge patches change objects and statuses. An apply replaces labels, annotations and spec,
/// as if there were only one field manager. Each write increases the resourceVersion. A deleted object disappears with its
/// last finalizer. Lists have a version and watches end at once, so a client can follow both.
///
/// # Panics
/// If no port or no temporary folder is available.
pub async fn with_patched_objects(objects: Arc<Mutex<Vec<Value>>>) -> FakeApiServer {
    answering(move |(request, body)| {
        let (method, target) = request.split_once(' ').unwrap();
        if target.contains("watch=true") {
            return (200, Body::empty());
        }
        let mut objects = objects.lock();
        let (code, mut answer) = match method {
            "PATCH" if target.contains("force=true") => applied(&mut objects, target, body),
            "PATCH" => patched(&mut objects, target, &body),
            "DELETE" => deleted(&mut objects, target),
            _ => answer(&objects, target),
        };
        if answer["kind"] == "List" {
            answer["metadata"]["resourceVersion"] = json!("1");
        }
        (code, Body::from(answer.to_string()))
    })
    .await
}

/// Applies a merge patch to an object or to its status.
fn patched(objects: &mut Vec<Value>, target: &str, patch: &Value) -> (u16, Value) {
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let of_object = path.strip_suffix("/status").unwrap_or(path);
    let Some(at) = objects.iter().position(|it| place(it) == of_object) else {
        return answer(objects, of_object);
    };
    let object = &mut objects[at];
    let version = next_version(object);
    match of_object == path {
        true => merge(object, patch),
        false => merge(&mut object["status"], &patch["status"]),
    }
    object["metadata"]["resourceVersion"] = version;
    let object = object.clone();
    let finalizers = object["metadata"]["finalizers"].as_array().map_or(0, Vec::len);
    if object["metadata"]["deletionTimestamp"].is_string() && finalizers == 0 {
        objects.remove(at);
    }
    (200, object)
}

/// Creates an object, or replaces its labels, annotations and spec with the applied ones.
fn applied(objects: &mut Vec<Value>, target: &str, mut desired: Value) -> (u16, Value) {
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let Some(object) = objects.iter_mut().find(|it| place(it) == path) else {
        desired["metadata"]["uid"] = json!(format!("applied-{}", objects.len()));
        desired["metadata"]["resourceVersion"] = json!("1");
        objects.push(desired.clone());
        return (201, desired);
    };
    for field in ["labels", "annotations"] {
        object["metadata"][field] = desired["metadata"][field].take();
    }
    object["spec"] = desired["spec"].take();
    object["metadata"]["resourceVersion"] = next_version(object);
    (200, object.clone())
}

/// Deletes an object. If it has finalizers, it only gets a deletion timestamp.
fn deleted(objects: &mut Vec<Value>, target: &str) -> (u16, Value) {
    let (path, _) = target.split_once('?').unwrap_or((target, ""));
    let Some(at) = objects.iter().position(|it| place(it) == path) else {
        return answer(objects, path);
    };
    let object = &mut objects[at];
    if object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
        return (200, objects.remove(at));
    }
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["resourceVersion"] = next_version(object);
    (200, object.clone())
}

/// The resourceVersion of an object after its next change.
fn next_version(object: &Value) -> Value {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    json!((version.parse::<u64>().unwrap_or_default() + 1).to_string())
}

/// Applies a merge patch (RFC 7386) to a value.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The discovery document of the core group or of all other groups.
fn versions(objects: &[Value], path: &str) -> Option<Value> {
    let kinds = served(objects);
    let all = kinds.iter().map(|(api_version, ..)| api_version.as_str());
    match path {
        "/api" => {
            let core: Vec<&str> = all.filter(|it| !it.contains('/')).collect();
            Some(json!({"kind": "APIVersions", "versions": core}))
        }
        "/apis" => {
            let group = |it: &str| {
                let (name, version) = it.split_once('/')?;
                Some(json!({"name": name, "versions": [{"groupVersion": it, "version": version}]}))
            };
            let groups: Vec<Value> = all.filter_map(group).collect();
            Some(json!({"kind": "APIGroupList", "groups": groups}))
        }
        _ => None,
    }
}

fn answer(objects: &[Value], path: &str) -> (u16, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if let Some(document) = versions(objects, path) {
        return (200, document);
    }
    let of_version: Vec<Value> = served(objects)
        .into_iter()
        .filter(|(api, ..)| path == prefix(api))
        .map(|(_, kind, namespaced)| {
            json!({"kind": kind, "name": plural(&kind), "singularName": "", "namespaced": namespaced, "verbs": ["list"]})
        })
        .collect();
    if !of_version.is_empty() {
        return (
            200,
            json!({"kind": "APIResourceList", "groupVersion": "", "resources": of_version}),
        );
    }
    if let Some(object) = objects.iter().find(|it| place(it) == path) {
        return (200, object.clone());
    }
    let lists = served(objects).into_iter().any(|(api, kind, _)| {
        path.starts_with(&prefix(&api)) && path.ends_with(&format!("/{}", plural(&kind)))
    });
    if !lists {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": "not found", "details": {"name": "it"}});
        return (404, status);
    }
    let selector =
        query.split('&').find_map(|it| it.strip_prefix("labelSelector=")).unwrap_or_default();
    let selector = selector.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",");
    let is_selected = |it: &&Value| {
        let mut wanted = selector.split(',').filter_map(|one| one.split_once('='));
        wanted.all(|(key, value)| it["metadata"]["labels"][key] == value)
    };
    let is_in = |it: &&Value| {
        let of = place(it);
        let (list, _) = of.rsplit_once('/').unwrap();
        let namespace =
            format!("/namespaces/{}", it["metadata"]["namespace"].as_str().unwrap_or_default());
        list == path || list.replace(&namespace, "") == path
    };
    let items: Vec<&Value> = objects.iter().filter(is_in).filter(is_selected).collect();
    (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// The served kinds, with their version and whether they are namespaced.
fn served(objects: &[Value]) -> Vec<(String, String, bool)> {
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    let of_objects = objects.iter().map(|it| {
        (text(it, "apiVersion"), text(it, "kind"), it["metadata"]["namespace"].is_string())
    });
    let fixed = KINDS.iter().map(|(api, kind, is)| ((*api).to_owned(), (*kind).to_owned(), *is));
    let mut found: Vec<_> = fixed.chain(of_objects).collect();
    found.sort();
    found.dedup();
    found
}

fn prefix(api_version: &str) -> String {
    match api_version.contains('/') {
        true => format!("/apis/{api_version}"),
        false => format!("/api/{api_version}"),
    }
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match (kind.strip_suffix('y'), kind.ends_with('s')) {
        (Some(stem), _) => format!("{stem}ies"),
        (None, true) => format!("{kind}es"),
        (None, false) => format!("{kind}s"),
    }
}

/// The path of an object.
fn place(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    let namespace = match text(&metadata["namespace"]) {
        it if it.is_empty() => it,
        it => format!("/namespaces/{it}"),
    };
    let api = text(&object["apiVersion"]);
    let kind = text(&object["kind"]);
    format!("{}{namespace}/{}/{}", prefix(&api), plural(&kind), text(&metadata["name"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_made_or_replaced_and_what_is_deleted_goes_with_its_last_finalizer() {
        let target = "/api/v1/namespaces/apps/configmaps/a?fieldManager=m&force=true";
        let desired = |labels: &Value| {
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"namespace": "apps", "name": "a", "labels": labels}})
        };
        let mut objects = Vec::new();
        assert_eq!(applied(&mut objects, target, desired(&json!({"x": "1"}))).0, 201);
        objects[0]["status"] = json!({"kept": true});
        assert_eq!(applied(&mut objects, target, desired(&json!({"y": "2"}))).0, 200);
        assert_eq!(objects[0]["metadata"]["labels"], json!({"y": "2"}));
        assert_eq!(objects[0]["metadata"]["resourceVersion"], "2");
        assert_eq!(objects[0]["status"], json!({"kept": true}));
        objects[0]["metadata"]["finalizers"] = json!(["f"]);
        let path = "/api/v1/namespaces/apps/configmaps/a";
        assert_eq!(deleted(&mut objects, path).0, 200);
        assert!(objects[0]["metadata"]["deletionTimestamp"].is_string());
        patched(&mut objects, path, &json!({"metadata": {"finalizers": []}}));
        assert!(objects.is_empty());
        assert_eq!(deleted(&mut objects, path).0, 404);
    }
}
