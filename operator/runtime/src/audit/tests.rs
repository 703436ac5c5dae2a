//! Tests of the names, sizes and field managers of audits.

use crds::windlass_release::{AuditStep, AuditSubject};
use objects::ObjectId;
use serde_json::json;

use super::*;

#[test]
fn an_audit_is_named_by_its_subject_and_its_operation() {
    let of =
        |subject: &str, uid: &str, key: &str| name(subject, AuditOperation::CorrectDrift, uid, key);
    let web = of("web", "u", "web.v1.0");
    assert!(web.starts_with("web-correctdrift-") && web.len() == 33, "{web}");
    assert_eq!(web, of("web", "u", "web.v1.0"));
    assert_ne!(web, of("web", "v", "web.v1.0"), "another object of the same name");
    assert_ne!(web, of("web", "u", "web.v2.0"));
    let long = of(&format!("{}.{}", "a".repeat(39), "b".repeat(200)), "u", "k");
    assert!(long.starts_with(&format!("{}-correctdrift-", "a".repeat(39))), "{long}");
}

#[test]
fn an_audit_that_is_there_is_the_same_if_it_is_about_the_same_operation() {
    let of = |uid: &str, operation: AuditOperation, id: Option<&str>, message: &str| {
        let subject = AuditSubject { uid: uid.to_owned(), ..AuditSubject::default() };
        let id = id.map(str::to_owned);
        let message = text(message);
        let spec =
            ReleaseAuditSpec { subject, operation, id, message, ..ReleaseAuditSpec::default() };
        object("n", "a", spec).unwrap()
    };
    let ours = of("u", AuditOperation::Delete, None, "");
    assert!(is_same(&ours, &of("u", AuditOperation::Delete, None, "less is known")));
    assert!(!is_same(&ours, &of("v", AuditOperation::Delete, None, "")));
    assert!(!is_same(&ours, &of("u", AuditOperation::Apply, None, "")));
    assert!(!is_same(&ours, &of("u", AuditOperation::Delete, Some("web.v1.0"), "")));
    let empty = json!({"apiVersion": ours.api_version(), "kind": "ReleaseAudit",
        "metadata": {"name": "a", "namespace": "n"}});
    assert!(!is_same(&ours, &Object::new(empty).unwrap()), "nothing is no audit of it");
}

#[test]
fn the_largest_audit_fits() {
    let long = |text: &str| text.repeat(1000);
    let changes = (0..400).map(|at| ObjectChange {
        id: ObjectId::new(&long("n"), &format!("{at}{}", long("\u{1}")), "g", "Secret"),
        what: ObjectChangeKind::Changed,
        fields: (0..20).map(|_| long("/é")).collect(),
    });
    let cause =
        AuditCause { object: Some(long("a/")), version: Some(long("\"")), ..AuditCause::default() };
    let step =
        AuditStep { name: "pre-install".to_owned(), hook: Some(long("h")), ..AuditStep::default() };
    let state = AuditRevision {
        chart: Some(long("\n")),
        revision: Some(long("r")),
        ..AuditRevision::default()
    };
    let approval = lifecycle::LifecycleApproval { user: long("u"), at: None, comment: long("c") };
    let answered = lifecycle::LifecycleEventAnswer {
        lifecycle: "a".to_owned(),
        phase: lifecycle::LifecycleHoldPhase::PostUpgrade,
        outcome: lifecycle::LifecyclePhaseOutcome::Succeeded,
        event: String::new(),
        answered_by: long("b"),
        message: long("m"),
        approvals: vec![approval; 16],
        asked: Time::UNIX_EPOCH,
        ended: Time::UNIX_EPOCH,
    };
    let spec = fitted(ReleaseAuditSpec {
        causes: vec![cause; 64],
        from: Some(state.clone()),
        to: Some(state),
        changes: listed(changes.collect(), false, &SecretMasking::default()),
        steps: vec![step; 64],
        lifecycles: vec![answer(answered); 48],
        message: Some(long("m")),
        ..ReleaseAuditSpec::default()
    });
    let object = object("n", "a", spec.clone()).unwrap();
    let size = serde_json::to_vec(object.fields()).unwrap().len();
    assert!(size <= 64 << 10, "{size} bytes");
    assert_eq!(spec.changes.changed, 400);
    assert_eq!(spec.changes.omitted + count(spec.changes.objects.len()), 400);
}

#[test]
fn what_came_from_secrets_is_masked() {
    let change = ObjectChange {
        id: ObjectId::new("n", "a-hunter2hunter2", "", "ConfigMap"),
        what: ObjectChangeKind::Changed,
        fields: vec!["/data/hunter2hunter2".to_owned()],
    };
    let secrets = SecretMasking::new([b"hunter2hunter2".to_vec()]);
    let listed = listed(vec![change], false, &secrets);
    assert_eq!(listed.objects[0].name, "a-****");
    assert_eq!(listed.objects[0].fields, ["/data/****"]);
}

#[test]
fn the_last_writer_is_the_manager() {
    let entry = |manager: &str, second: u32, fields: serde_json::Value| {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": format!("2026-01-02T03:04:{second:02}Z"), "fieldsV1": fields})
    };
    let asked = json!({"f:metadata": {"f:annotations": {"f:reconcile.fluxcd.io/requestedAt": {}}}});
    let mut status = entry("helm-controller", 9, json!({"f:spec": {}}));
    status["subresource"] = "status".into();
    let meta: ObjectMeta = serde_json::from_value(json!({"managedFields": [
        entry("kustomize-controller", 1, json!({"f:spec": {"f:interval": {}}})),
        entry("kubectl", 2, json!({"f:spec": {"f:values": {}}})),
        entry("flux", 3, asked),
        status,
    ]}))
    .unwrap();
    assert_eq!(manager_of_spec(&meta), "kubectl");
    assert_eq!(manager_of_annotation(&meta, "reconcile.fluxcd.io/requestedAt"), "flux");
    assert_eq!(manager_of_annotation(&meta, "other"), "");
    assert_eq!(manager_of_spec(&ObjectMeta::default()), "");
}

#[test]
fn a_refusal_is_logged_once() {
    let last_error = LastAuditError::default();
    assert!(last_error.is_new(Some("database space exceeded")));
    assert!(!last_error.is_new(Some("database space exceeded")));
    assert!(last_error.is_new(Some("forbidden")));
    last_error.is_new(None);
    assert!(last_error.is_new(Some("forbidden")), "it was written in between");
}

#[test]
fn what_a_refusal_means_is_read_from_it() {
    let refused = |code: u16, reason: &str, message: &str| {
        ClusterError::Refused(kube_core::Status::failure(message, reason).with_code(code).boxed())
    };
    // The answer of the API server of Kubernetes 1.36.
    let terminating = serde_json::from_value(json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "releaseaudits is forbidden: unable to create new content in namespace n because it is being terminated",
        "details": {"name": "a", "group": "release.windlass.dev", "kind": "releaseaudits", "causes": [
            {"reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace"},
        ]},
    }));
    let terminating = ClusterError::Refused(Box::new(terminating.unwrap()));
    for (error, outcome) in [
        (refused(409, "AlreadyExists", "exists"), AuditOutcome::Exists),
        (refused(409, "Conflict", "quota"), AuditOutcome::Failed),
        (terminating, AuditOutcome::Terminating),
        (refused(403, "Forbidden", "no"), AuditOutcome::Failed),
        (refused(404, "NotFound", "the server could not find it"), AuditOutcome::NotInstalled),
        (refused(500, "InternalError", "mvcc: database space exceeded"), AuditOutcome::Failed),
        (ClusterError::NoAnswer(String::new()), AuditOutcome::Failed),
    ] {
        assert_eq!(classified(&error), outcome, "{error}");
    }
}

#[test]
fn a_request_has_the_user_that_the_same_program_names() {
    let meta = |annotations: serde_json::Value, managers: [(&str, &str); 2]| -> ObjectMeta {
        let wrote = managers.map(|(key, manager)| {
            let key = format!("f:{key}");
            json!({"manager": manager, "operation": "Update", "time": "2026-11-01T00:00:00Z",
                "fieldsV1": {"f:metadata": {"f:annotations": {key: {}}}}})
        });
        serde_json::from_value(json!({"annotations": annotations, "managedFields": wrote})).unwrap()
    };
    let asked = |key: &str, by: &str, managers: [&str; 2]| {
        let annotations = json!({key: "5->3", by: "alice"});
        let meta = meta(annotations, [(key, managers[0]), (by, managers[1])]);
        let asked = request(&meta, key).unwrap();
        assert_eq!((asked.at.as_str(), asked.manager.as_str()), ("5->3", managers[0]));
        asked.user
    };
    let at = crate::controller_kind::REQUESTED_AT;
    assert_eq!(asked(at, REQUESTED_BY, ["windlass", "windlass"]), "alice");
    assert_eq!(asked(ROLLBACK, REQUESTED_BY, ["windlass", "windlass"]), "alice");
    // The annotation belongs to an earlier request by another program.
    assert_eq!(asked(at, REQUESTED_BY, ["flux", "windlass"]), "");
    assert_eq!(asked(at, REQUESTED_BY, ["", ""]), "");
    // The annotation of a suspension names the user only of a rollback request.
    assert_eq!(asked(ROLLBACK, SUSPENDED_BY, ["windlass", "windlass"]), "alice");
    assert_eq!(asked(at, SUSPENDED_BY, ["windlass", "windlass"]), "");
    assert_eq!(request(&ObjectMeta::default(), at), None);
}
