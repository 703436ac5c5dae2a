//! Example objects and explanations for tests of answers and of their output.

use cause::{CauseAdvice, CauseKind, CauseStep, ExaminedObjectState, RootCause, StateExplanation};
use objects::{Gvk, ObjectId};
use serde_json::{Value, json};
use windlass_cluster::discovery::ApiResourceLocation;

/// The location of a kind, for tests that need no plural name.
#[must_use]
pub fn resource(version: &str, kind: &str) -> ApiResourceLocation {
    ApiResourceLocation {
        gvk: Gvk::new(version, kind),
        plural: String::new(),
        namespaced: true,
        watchable: true,
    }
}

/// An example audit of an upgrade in the namespace `apps`, with the kind of its object and the time of its end.
#[must_use]
pub fn audit(name: &str, kind: &str, ended: &str) -> Value {
    json!({
        "metadata": {"name": format!("{name}-1"), "namespace": "apps"},
        "spec": {
            "subject": {"kind": kind, "name": name, "release": {"name": "shop", "namespace": "apps"}},
            "operation": "Upgrade", "outcome": "Succeeded", "ended": ended, "duration": "1.5s",
            "from": {"revision": "1", "chart": "web", "chartVersion": "1.0.0"},
            "to": {"revision": "2", "chart": "web", "chartVersion": "1.1.0"},
            "causes": [{"type": "Values", "object": "Secret/apps/v"}, {"type": "Spec"}],
            "changes": {"added": 1, "changed": 2, "removed": 0, "partial": true},
        },
    })
}

/// An example Incident of a GitRepository in the namespace `apps`, with its state and the time of its begin.
#[must_use]
pub fn incident(name: &str, state: &str, opened: &str) -> Value {
    json!({
        "metadata": {"name": format!("gitrepository-{name}-1"), "namespace": "apps"},
        "spec": {
            "subject": {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": name},
            "reason": "Credentials",
            "cause": {"object": format!("GitRepository/apps/{name}"), "reason": "AuthenticationFailed",
                "message": "authentication failed"},
        },
        "status": {"state": state, "openedAt": opened,
            "message": "authentication failed: the server rejects\u{1b} the credentials\nmore",
            "affected": {"count": 200, "objects": ["Kustomization/apps/shop"]},
            "notifications": [
                {"namespace": "apps", "alert": "a", "provider": "pagerduty", "state": "Opened"},
                {"namespace": "apps", "alert": "b", "provider": "chat", "state": "Failed"},
            ]},
    })
}

/// An example explanation of an object's state, with its cause.
///
/// # Panics
/// Never, because the time in it is valid.
#[must_use]
pub fn explanation(
    subject: ObjectId,
    state: ExaminedObjectState,
    cause: Option<(ObjectId, CauseKind, &str)>,
) -> StateExplanation {
    let since = Some("2026-11-24T11:55:00Z".parse().unwrap());
    StateExplanation {
        path: vec![CauseStep { object: subject.clone(), since, text: String::new() }],
        object: subject,
        state,
        message: "it says so".to_owned(),
        cause: cause.map(|(object, problem, text)| RootCause {
            object,
            problem,
            text: text.to_owned(),
            since,
            lines: Vec::new(),
            event: None,
        }),
        next: None,
        advice: Some(CauseAdvice {
            text: "correct it".to_owned(),
            command: Some("kubectl get".to_owned()),
        }),
        second: None,
        unread: Vec::new(),
        remarks: Vec::new(),
    }
}
