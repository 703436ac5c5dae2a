//! Tests of CRD removals with a fake API server, in which changes happen between two requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::crd_guard::custom_resource_export::{DIGEST, KEY, PARTS};
use fake_cluster::{RecordedRequest, answering};

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SECRETS: &str = "/api/v1/namespaces/flux-system/secrets";
const OBJECTS: &str = "/apis/acme.io/v1/widgets?";

/// Changes the fake cluster before a request is answered. Also returns the status and body of the answer, or `None` for the
/// usual answer.
type RequestInterception = fn(&str, &mut FakeClusterState) -> Option<(u16, Value)>;

/// The objects in the fake cluster.
struct FakeClusterState {
    crd: Option<Value>,
    objects: Vec<Value>,
    secrets: BTreeMap<String, Value>,
    asked: Vec<String>,
    version: u64,
    happens: RequestInterception,
}

fn refusal(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let details = json!({"name": "widgets.acme.io"});
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message, "details": details}),
    )
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "acme.io/v1", "kind": "Widget", "metadata": {"name": name,
        "namespace": "shop", "uid": name, "resourceVersion": "1"}, "spec": {"size": 1}})
}

fn definition(notes: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.acme.io", "uid": "u", "resourceVersion": "1", "annotations": notes,
            "labels": {"app": "acme", "kustomize.toolkit.fluxcd.io/name": "crds",
                "kustomize.toolkit.fluxcd.io/namespace": "infra",
                "helm.toolkit.fluxcd.io/name": "acme", "helm.toolkit.fluxcd.io/namespace": "infra"},
            "managedFields": [{"manager": "kustomize-controller", "operation": "Apply"}]},
        "spec": {"group": "acme.io", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true}]},
        "status": {"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]}})
}

impl FakeClusterState {
    /// A cluster with a CRD whose removal is confirmed or not, and with this many custom resources.
    fn with(is_confirmed: bool, objects: usize, happens: RequestInterception) -> Self {
        let notes = if is_confirmed { json!({REMOVAL: "u"}) } else { json!({}) };
        let objects = (0..objects).map(|at| widget(&format!("w-{at}"))).collect();
        let secrets = BTreeMap::new();
        let asked = Vec::new();
        Self { crd: Some(definition(&notes)), objects, secrets, asked, version: 1, happens }
    }

    /// Changes the CRD as another client would.
    fn edit(&mut self, edit: impl FnOnce(&mut Value)) {
        self.version += 1;
        if let Some(crd) = &mut self.crd {
            edit(crd);
            crd["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
    }

    fn answer(&mut self, (asked, body): RecordedRequest) -> (u16, Value) {
        self.asked.push(asked.clone());
        let happens = self.happens;
        if let Some(answer) = happens(&asked, self) {
            return answer;
        }
        let (method, path) = asked.split_once(' ').unwrap_or_default();
        if path.starts_with(CRD) {
            return self.of_definition(method, path, &body);
        }
        if path.starts_with(SECRETS) {
            return self.of_secrets(method, path, body);
        }
        if path.starts_with(OBJECTS) {
            return (200, json!({"metadata": {"resourceVersion": "9"}, "items": self.objects}));
        }
        (
            201,
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "status": {"allowed": true}}),
        )
    }

    fn of_definition(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let Some(crd) = self.crd.clone() else { return refusal(404, "NotFound", "not found") };
        let same = |wanted: &Value| {
            let metadata = &crd["metadata"];
            ["uid", "resourceVersion"]
                .iter()
                .all(|it| wanted[it].is_null() || wanted[it] == metadata[it])
        };
        match method {
            "GET" => (200, crd),
            "POST" => refusal(409, "AlreadyExists", "already exists"),
            "DELETE" if !same(&body["preconditions"]) => refusal(409, "Conflict", "changed"),
            "DELETE" if body["dryRun"].is_array() => (200, crd),
            "DELETE" => {
                self.crd = None;
                self.objects.clear();
                (200, crd)
            }
            "PATCH" if !same(&body["metadata"]) => refusal(409, "Conflict", "changed"),
            "PATCH" => {
                self.edit(|crd| merge(crd, body));
                (200, self.crd.clone().unwrap_or_default())
            }
            _ => panic!("{method} {path}"),
        }
    }

    fn of_secrets(&mut self, method: &str, path: &str, mut body: Value) -> (u16, Value) {
        let name = path.trim_start_matches(SECRETS).trim_start_matches('/');
        match method {
            "GET" if name.starts_with('?') => {
                let items: Vec<&Value> = self.secrets.values().collect();
                (200, json!({"metadata": {}, "items": items}))
            }
            "GET" => (200, self.secrets.get(name).cloned().unwrap_or_default()),
            "DELETE" => (200, self.secrets.remove(name).unwrap_or_default()),
            "POST" => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if self.secrets.contains_key(&name) {
                    return refusal(409, "AlreadyExists", "already exists");
                }
                body["metadata"]["uid"] = name.clone().into();
                self.secrets.insert(name, body.clone());
                (201, body)
            }
            _ => panic!("{method} {path}"),
        }
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *into = patch.clone() };
    for (key, value) in patch {
        match (value, into.as_object_mut()) {
            (Value::Null, Some(fields)) => drop(fields.remove(key)),
            (value, _) => merge(&mut into[key], value),
        }
    }
}

/// The result of a removal, and the cluster after it.
async fn removed(state: FakeClusterState) -> (Result<CrdPruneOutcome, String>, FakeClusterState) {
    let live = Object::new(state.crd.clone().unwrap()).unwrap();
    let state = Arc::new(Mutex::new(state));
    let shared = state.clone();
    let cluster = answering(move |asked| {
        let (code, body) = shared.lock().answer(asked);
        (code, Body::from(body.to_string()))
    })
    .await;
    let mine = [
        OwnerLabelOrAnnotation::label(
            apply::owner_labels_and_apply_annotations::OWNER_NAME,
            "crds",
        ),
        OwnerLabelOrAnnotation::label(
            apply::owner_labels_and_apply_annotations::OWNER_NAMESPACE,
            "infra",
        ),
    ];
    let site = CustomResourceExportDestination {
        namespace: "flux-system",
        place: "",
        owner: "infra",
        is_tenant: false,
    };
    let gate = reconcile::RemovalGate {
        cause: reconcile::RemovalCause::Pruned,
        is_owner_suspended: false,
        is_suspended: false,
        closes: None,
        is_frozen: false,
    };
    let removing = CrdPruneRequest {
        ours: &cluster,
        theirs: &cluster,
        live: &live,
        manager: "kustomize-controller",
        mine: &mine,
        propagation: "Background",
        is_trusted: true,
        permit: gate.permit(reconcile::Time::UNIX_EPOCH).unwrap(),
        site,
    };
    let removal = removing.run().await.map_err(|error| error.to_string());
    let mut state = state.lock();
    let empty = FakeClusterState::with(false, 0, |_, _| None);
    (removal, std::mem::replace(&mut *state, empty))
}

/// The names of the exported custom resources, and the CRD in the last export.
fn exported(state: &FakeClusterState) -> (Vec<String>, Value) {
    let mut names = Vec::new();
    let mut definition = Value::Null;
    for secret in state.secrets.values() {
        let notes = &secret["metadata"]["annotations"];
        assert_eq!(notes[PARTS], "1");
        let part = STANDARD.decode(secret["data"][KEY].as_str().unwrap()).unwrap();
        let digest = notes[DIGEST].as_str().unwrap();
        let mut all = crdguard::CrdExportReader::of(&[part], digest).unwrap().map(Result::unwrap);
        definition = all.next().unwrap().manifest;
        names.extend(all.map(|it| it.manifest["metadata"]["name"].as_str().unwrap().to_owned()));
    }
    (names, definition)
}

#[tokio::test]
async fn a_definition_without_objects_is_deleted_as_it_was_read() {
    let mut state = FakeClusterState::with(false, 0, |_, _| None);
    // The CRD must not have another owner here.
    state.edit(|crd| {
        let labels = crd["metadata"]["labels"].as_object_mut().unwrap();
        labels.retain(|key, _| !key.starts_with("helm"));
    });
    let (removal, state) = removed(state).await;
    assert_eq!(removal, Ok(CrdPruneOutcome::Deleted));
    assert!(state.crd.is_none() && state.secrets.is_empty());
}

#[tokio::test]
async fn a_confirmed_removal_exports_the_objects_and_nothing_lies_between_the_comparison_and_the_deletion()
 {
    let (removal, state) = removed(FakeClusterState::with(true, 2, |_, _| None)).await;
    let Ok(CrdPruneOutcome::Exported(text)) = removal else { panic!("{removal:?}") };
    assert!(text.contains("with 2 objects") && text.contains("--export u-"), "{text}");
    assert!(state.crd.is_none());
    let (names, definition) = exported(&state);
    assert_eq!(names, ["w-0", "w-1"]);
    // The exported CRD has no owner of any kind, and its removal is not confirmed.
    assert_eq!(definition["metadata"]["labels"], json!({"app": "acme"}));
    assert_eq!(definition["metadata"]["annotations"], json!({}));
    let last: Vec<&str> = state.asked.iter().rev().take(2).map(String::as_str).collect();
    assert!(last[0].starts_with(&format!("DELETE {CRD}/widgets")), "{last:?}");
    assert!(last[1].starts_with(&format!("GET {OBJECTS}")), "{last:?}");
}

#[tokio::test]
async fn what_changes_while_it_is_exported_is_exported_again_and_leaves_one_export() {
    let happens: RequestInterception = |asked, state| {
        // This is between the storing and the comparison of the export.
        let is_compared = asked.starts_with(&format!("GET {OBJECTS}")) && state.secrets.len() == 1;
        if is_compared && state.objects.len() == 1 {
            state.objects.push(widget("late"));
        }
        None
    };
    let (removal, state) = removed(FakeClusterState::with(true, 1, happens)).await;
    assert!(matches!(removal, Ok(CrdPruneOutcome::Exported(_))), "{removal:?}");
    assert_eq!(exported(&state).0, ["w-0", "late"]);
}

#[tokio::test]
async fn a_confirmation_that_is_withdrawn_meanwhile_does_not_count() {
    // One change comes while the custom resources are read, the other after they were compared.
    let at_reading: RequestInterception = |asked, state| {
        if asked.starts_with(&format!("GET {OBJECTS}")) && state.version == 1 {
            state.edit(|crd| crd["metadata"]["annotations"] = json!({}));
        }
        None
    };
    let at_deletion: RequestInterception = |asked, state| {
        if asked.starts_with("DELETE") && state.version == 1 && !state.secrets.is_empty() {
            state.edit(|crd| crd["metadata"]["annotations"] = json!({}));
        }
        None
    };
    for (happens, exports) in [(at_reading, 0), (at_deletion, 1)] {
        let (removal, state) = removed(FakeClusterState::with(true, 1, happens)).await;
        let Ok(CrdPruneOutcome::Released(text)) = removal else { panic!("{removal:?}") };
        assert!(text.contains("1 object (shop/w-0)"), "{text}");
        assert!(state.crd.is_some() && state.objects.len() == 1);
        assert_eq!(state.secrets.len(), exports);
    }
}

#[tokio::test]
async fn a_definition_that_another_owner_took_over_meanwhile_is_left_to_it() {
    let happens: RequestInterception = |asked, state| {
        if asked.starts_with(&format!("GET {OBJECTS}")) && state.version == 1 {
            state.edit(|crd| {
                crd["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = "other".into();
            });
        }
        None
    };
    for is_confirmed in [true, false] {
        let (removal, state) = removed(FakeClusterState::with(is_confirmed, 1, happens)).await;
        assert!(matches!(removal, Ok(CrdPruneOutcome::Released(_))), "{removal:?}");
        let crd = state.crd.unwrap();
        let metadata = &crd["metadata"];
        assert_eq!(metadata["labels"]["kustomize.toolkit.fluxcd.io/name"], "other");
        assert_eq!(metadata["managedFields"][0]["operation"], "Apply", "its fields are its own");
    }
}

#[tokio::test]
async fn an_export_is_never_written_over_another() {
    let mut state = FakeClusterState::with(true, 1, |_, _| None);
    let other =
        json!({"metadata": {"name": "crd-export-u-0000000000000000-0"}, "data": {KEY: "AA=="}});
    state.secrets.insert("crd-export-u-0000000000000000-0".to_owned(), other.clone());
    let (removal, mut state) = removed(state).await;
    assert!(matches!(removal, Ok(CrdPruneOutcome::Exported(_))), "{removal:?}");
    assert_eq!(state.secrets.remove("crd-export-u-0000000000000000-0"), Some(other));
    assert_eq!(exported(&state).0, ["w-0"]);
}

#[tokio::test]
async fn what_is_not_stored_as_it_was_written_is_no_export() {
    let happens: RequestInterception = |asked, state| {
        if asked.starts_with("GET") && asked.contains("/secrets?") {
            // The Secret was stored and disappears at once.
            state.secrets.clear();
        }
        None
    };
    let (removal, state) = removed(FakeClusterState::with(true, 1, happens)).await;
    let error = removal.unwrap_err();
    assert!(error.contains("was written and is not there"), "{error}");
    assert!(state.crd.is_some() && state.objects.len() == 1);
    let mutated: RequestInterception = |asked, _| {
        let name = json!({"name": "crd-export-x", "namespace": "flux-system", "uid": "x"});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": name, "data": {KEY: "AA=="}});
        (asked.starts_with("POST") && asked.contains("/secrets")).then_some((201, secret))
    };
    let (removal, state) = removed(FakeClusterState::with(true, 1, mutated)).await;
    let error = removal.unwrap_err();
    assert!(error.contains("does not have what was written"), "{error}");
    assert!(state.crd.is_some());
    let is_deleted = |it: &String| it.starts_with(&format!("DELETE {SECRETS}/crd-export-x"));
    assert!(state.asked.iter().any(is_deleted), "what was made is removed: {:?}", state.asked);
}

#[tokio::test]
async fn without_the_right_to_delete_nothing_is_exported() {
    fn refused(
        asked: &str,
        state: &FakeClusterState,
        answer: (u16, Value),
    ) -> Option<(u16, Value)> {
        (asked.starts_with("DELETE") && state.secrets.is_empty()).then_some(answer)
    }
    let cases: [(RequestInterception, bool); 4] = [
        (|asked, state| refused(asked, state, refusal(403, "Forbidden", "no")), false),
        (|asked, state| refused(asked, state, refusal(422, "Invalid", "a policy")), false),
        (|asked, state| refused(asked, state, refusal(500, "InternalError", "no")), false),
        (
            |asked, state| {
                let text = "admission webhook \"a\" does not support dry run";
                refused(asked, state, refusal(400, "BadRequest", text))
            },
            true,
        ),
    ];
    for (at, (happens, is_deleted)) in cases.into_iter().enumerate() {
        let (removal, state) = removed(FakeClusterState::with(true, 1, happens)).await;
        assert_eq!(removal.is_ok(), is_deleted, "{at}: {removal:?}");
        assert_eq!(
            (state.secrets.is_empty(), state.crd.is_none()),
            (!is_deleted, is_deleted),
            "{at}"
        );
    }
}

#[tokio::test]
async fn a_definition_that_cannot_be_created_again_is_not_deleted() {
    let invalid: RequestInterception = |asked, _| {
        asked.starts_with(&format!("POST {CRD}")).then(|| refusal(422, "Invalid", "must be false"))
    };
    let (removal, state) = removed(FakeClusterState::with(true, 1, invalid)).await;
    let error = removal.unwrap_err();
    assert!(error.contains("could not be created again: must be false"), "{error}");
    assert!(state.crd.is_some() && state.secrets.is_empty());
    // If windlass may not create CRDs, only a known reason for a refusal counts.
    let forbidden: RequestInterception = |asked, _| {
        asked.starts_with(&format!("POST {CRD}")).then(|| refusal(403, "Forbidden", "no"))
    };
    let mut state = FakeClusterState::with(true, 1, forbidden);
    state.edit(|crd| crd["spec"]["preserveUnknownFields"] = true.into());
    assert!(removed(state).await.0.is_err());
    assert!(removed(FakeClusterState::with(true, 1, forbidden)).await.0.is_ok());
}

#[tokio::test]
async fn a_deletion_whose_reply_was_lost_is_reported_with_its_export() {
    let happens: RequestInterception = |asked, state| {
        let is_deleted = asked.starts_with("DELETE") && !state.secrets.is_empty();
        is_deleted.then(|| {
            state.crd = None;
            refusal(409, "Conflict", "changed")
        })
    };
    let (removal, _) = removed(FakeClusterState::with(true, 1, happens)).await;
    assert!(matches!(removal, Ok(CrdPruneOutcome::Exported(_))), "{removal:?}");
}

#[tokio::test]
async fn a_list_without_end_is_no_absence() {
    let happens: RequestInterception = |asked, _| {
        let endless = json!({"metadata": {"continue": "x"}, "items": []});
        asked.starts_with(&format!("GET {OBJECTS}")).then_some((200, endless))
    };
    let (removal, state) = removed(FakeClusterState::with(false, 0, happens)).await;
    let Ok(CrdPruneOutcome::Released(text)) = removal else { panic!("{removal:?}") };
    assert!(text.contains("objects that cannot be listed"), "{text}");
    assert!(state.crd.is_some());
}
