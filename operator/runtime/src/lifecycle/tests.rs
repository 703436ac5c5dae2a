//! Tests of the conversion of Lifecycle objects for the engine, and of the objects that windlass writes.

use fake_cluster::spec_field_check;
use serde_json::json;

use super::*;

fn read<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[test]
fn every_field_of_the_schemas_is_used() {
    let of_lifecycle = ["handler", "key", "onTimeout", "phases", "required", "timeout"];
    spec_field_check::knows_every_field("Lifecycle", of_lifecycle);
    let of_binding = ["lifecycle", "order", "parameters", "phases", "subjects"];
    spec_field_check::knows_every_field("LifecycleBinding", of_binding);
    let of_event = [
        "approvals",
        "deadline",
        "from",
        "key",
        "lifecycle",
        "operation",
        "parameters",
        "phase",
        "subject",
        "to",
    ];
    spec_field_check::knows_every_field("LifecycleEvent", of_event);
}

#[test]
fn a_lifecycle_has_defaults_and_is_not_weakened_by_what_cannot_be_read() {
    let of = |spec: serde_json::Value| {
        definition(&read(json!({"metadata": {"name": "a"}, "spec": spec})))
    };
    let plain = of(json!({"key": "k", "phases": ["PreUpgrade"]}));
    assert_eq!(
        (plain.timeout, plain.on_timeout, plain.approvals),
        (DEFAULT_EVENT_TIMEOUT, LifecycleTimeoutPolicy::Fail, 0)
    );
    assert_eq!((plain.phases, plain.required), (vec![LifecycleHoldPhase::PreUpgrade], None));
    let approval = of(json!({"handler": {"approval": {}}, "timeout": "5m", "onTimeout": "Hold"}));
    assert_eq!(
        (approval.timeout.as_secs(), approval.on_timeout),
        (300, LifecycleTimeoutPolicy::Hold)
    );
    assert_eq!(approval.approvals, 1);
    let two = of(json!({"handler": {"approval": {"count": 2}}}));
    assert_eq!(two.approvals, 2);
    let required = json!({"required": {"namespaceSelector": {"matchLabels": {"env": "prod"}}}});
    let required = of(required).required.unwrap();
    assert!(required.selects(&BTreeMap::from([("env".to_owned(), "prod".to_owned())])));
    assert_eq!(plain.broken, None);
    assert!(of(json!({"timeout": "soon"})).broken.unwrap().starts_with("spec.timeout: "));
    let strange = of(json!({"handler": {"future": {}}})).broken.unwrap();
    assert!(strange.contains("spec.handler has no handler"), "{strange}");
}

#[test]
fn every_phase_is_written_and_read_as_itself() {
    for of in LifecycleHoldPhase::ALL {
        assert_eq!(phase(spelled(*of)), *of);
        assert_eq!(spelled(*of).as_str(), of.as_str());
    }
}

#[test]
fn an_event_says_what_is_asked_and_is_read_back() {
    let node = ObjectKey::new("helm.toolkit.fluxcd.io", "HelmRelease", "apps", "web");
    let asking = LifecycleSubject {
        node: &node,
        uid: "uid",
        release: Some(("shop", "elsewhere", "")),
        owner: None,
    };
    let hold = lifecycle::HoldingLifecycle {
        lifecycle: "check".to_owned(),
        key: "k".to_owned(),
        phases: vec![LifecycleHoldPhase::Promote],
        timeout_ms: 1000,
        on_timeout: LifecycleTimeoutPolicy::Fail,
        approvals: 2,
        parameters: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        required: false,
    };
    let to = ReleaseOrSourceRevision {
        revision: "2".to_owned(),
        chart_name: "c".to_owned(),
        chart_version: "1.0.0".to_owned(),
    };
    let ask = LifecycleEventRequest {
        name: "web-promote-0".to_owned(),
        hold,
        phase: LifecycleHoldPhase::Promote,
        operation: "shop.v2.0".to_owned(),
        from: None,
        to: Some(to),
        deadline: Time::UNIX_EPOCH,
    };
    let written = asked(&asking, &ask);
    assert_eq!(written.labels()[KEY_LABEL], "k");
    assert_eq!(written.labels()[SUBJECT_UID_LABEL], "uid");
    assert_eq!(written.spec.to.as_ref().unwrap().revision, "2");
    assert_eq!(waiting(&written), node);
    assert!(is_same(&written.spec, &asked(&asking, &ask).spec));
    let other = LifecycleEventRequest { operation: "shop.v3.0".to_owned(), ..ask };
    assert!(!is_same(&written.spec, &asked(&asking, &other).spec));
    let mut value = serde_json::to_value(&written).unwrap();
    value["status"] = json!({"phase": "Failed", "answeredBy": "checker", "message": "no",
        "approvals": [{"user": "alice", "comment": "yes"}]});
    let found = event(&read(value));
    assert_eq!(
        (found.state, found.phase),
        (LifecycleEventState::Failed, Some(LifecycleHoldPhase::Promote))
    );
    assert_eq!((found.answered_by.as_str(), found.approvals.len()), ("checker", 1));
    assert_eq!(found.deadline, Some(Time::UNIX_EPOCH));
    let fresh = event(&written);
    assert_eq!(fresh.state, LifecycleEventState::Pending, "what has no status was not answered");
}

#[test]
fn nothing_is_asked_before_a_removal_in_a_namespace_that_goes() {
    let hold = |phases: &[LifecycleHoldPhase]| lifecycle::HoldingLifecycle {
        lifecycle: "a".to_owned(),
        key: String::new(),
        phases: phases.to_vec(),
        timeout_ms: 0,
        on_timeout: LifecycleTimeoutPolicy::Fail,
        approvals: 0,
        parameters: BTreeMap::new(),
        required: true,
    };
    let mut holds = vec![
        hold(&[LifecycleHoldPhase::PreDelete, LifecycleHoldPhase::PostUpgrade]),
        hold(&[LifecycleHoldPhase::PostDelete]),
    ];
    skip_removal(&mut holds, "apps", "web");
    assert_eq!(holds, [hold(&[LifecycleHoldPhase::PostUpgrade])]);
}
