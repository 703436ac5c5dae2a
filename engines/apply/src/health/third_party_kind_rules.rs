//! Judges more kinds than kstatus does, by a library of rules.
//!
//! kstatus calls an object Current unless its status says otherwise. An object whose controller reports a phase or its
//! own conditions would therefore always count as ready. The library knows the words that such controllers write. Here:
//! when the library is used, and its judgements translated to those of kstatus. Elsewhere: its rules (engine
//! `health_library`). Waits of Helm never use the library, because they follow Helm.

use health_library::{HealthLibrary, HealthState};
use objects::Object;
use reconcile::Time;
use serde_json::Value;

use super::{
    HealthStatus, MalformedStatusError, ObjectHealth, by_kind, compute, conditions, generic,
};

/// The reason of a report about an object that does not work, but whose controller tries again.
pub(crate) const DEGRADED_REASON: &str = "Degraded";

/// The transition time of a condition that the definition of a kind wrote, and not a controller.
const BEGINNING_OF_TIME: &str = "1970-01-01T00:00:00Z";

/// Which judgements of kstatus the library replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthLibraryUse {
    /// The library replaces judgements that have no evidence: Unknown, and Current by a status that names no observed
    /// generation and none of the conditions Ready, Reconciling and Stalled. The second holds only if a controller
    /// wrote the status and kstatus has no rule for the kind.
    ///
    /// An object without a status stays Current. Its controller may not be installed, or may never write a status.
    UnknownKinds,
    /// The library replaces all judgements about the kinds that it knows. The rules for every kind stay: deletion, an
    /// unobserved generation, Reconciling and Stalled.
    Full,
    /// The library is not used.
    Off,
}

/// The judgement of the library about an object, or else that of kstatus, which is `own`.
///
/// If the library answers Unknown, the judgement of kstatus stays. A Degraded object is waited for, as kstatus waits
/// for an object whose Ready is False, because most controllers retry. An object has failed only if the library calls
/// that final.
pub fn refined(
    object: &Object,
    own: ObjectHealth,
    now: Time,
    library: HealthLibraryUse,
) -> ObjectHealth {
    let is_asked = match library {
        HealthLibraryUse::Off => false,
        HealthLibraryUse::UnknownKinds => is_without_evidence(object, &own, now),
        HealthLibraryUse::Full => !matches!(generic(object), Ok(Some(_))),
    };
    let found = if is_asked { HealthLibrary::builtin().assess(object) } else { None };
    let Some(health) = found else { return own };
    match health.state {
        HealthState::Healthy => ObjectHealth::current(health.reason),
        // The object was suspended on purpose, so there is no state to wait for.
        HealthState::Suspended => ObjectHealth::current(format!("suspended: {}", health.reason)),
        HealthState::Progressing => ObjectHealth::in_progress("Progressing", health.reason),
        HealthState::Missing => ObjectHealth::in_progress("Missing", health.reason),
        HealthState::Degraded if health.is_final => {
            ObjectHealth::failed(DEGRADED_REASON, health.reason)
        }
        HealthState::Degraded => ObjectHealth::in_progress(DEGRADED_REASON, health.reason),
        HealthState::Unknown => own,
    }
}

/// Judges an object as waits do by default: by its own content, and by the library where its content is no evidence.
///
/// # Errors
/// As for [`compute`], unless the library can judge the object.
pub fn compute_refined(object: &Object, now: Time) -> Result<ObjectHealth, MalformedStatusError> {
    let library = HealthLibraryUse::UnknownKinds;
    match compute(object, now) {
        Ok(own) => Ok(refined(object, own, now, library)),
        Err(error) => {
            let report = refined(object, ObjectHealth::unknown(error.clone()), now, library);
            if matches!(report.status, HealthStatus::Unknown(_)) { Err(error) } else { Ok(report) }
        }
    }
}

fn is_without_evidence(object: &Object, own: &ObjectHealth, now: Time) -> bool {
    match own.status {
        HealthStatus::Unknown(_) => true,
        HealthStatus::Current => {
            let is_observed =
                object.get("status").is_some_and(|it| it.get("observedGeneration").is_some());
            let has_condition = || {
                conditions(object).is_ok_and(|all| {
                    all.iter().any(|it| matches!(it.kind, "Ready" | "Reconciling" | "Stalled"))
                })
            };
            has_report(object)
                && !is_observed
                && matches!(by_kind(object, now), Ok(None))
                && !has_condition()
        }
        HealthStatus::InProgress
        | HealthStatus::Failed
        | HealthStatus::Terminating
        | HealthStatus::NotFound => false,
    }
}

/// Whether a controller wrote something into the status.
///
/// The definitions of some kinds, such as Gateway, give the status default conditions. These do not count.
fn has_report(object: &Object) -> bool {
    let is_written = |condition: &Value| {
        condition.get("lastTransitionTime").and_then(Value::as_str) != Some(BEGINNING_OF_TIME)
    };
    let status = object.get("status").and_then(Value::as_object);
    status.into_iter().flatten().any(|(field, value)| match value {
        Value::Null => false,
        Value::Array(items) if field == "conditions" => items.iter().any(is_written),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, status: &Value) -> Object {
        Object::new(json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "it", "generation": 2}, "status": status}))
        .unwrap()
    }

    fn judged(object: &Object, library: HealthLibraryUse) -> HealthStatus {
        let own = super::super::read(object, &[], Time::UNIX_EPOCH);
        refined(object, own, Time::UNIX_EPOCH, library).status
    }

    fn proxy(status: &Value) -> Object {
        object("projectcontour.io/v1", "HTTPProxy", status)
    }

    #[test]
    fn an_object_whose_controller_wrote_nothing_is_waited_for_in_full_use_only() {
        let gateway = |status: &Value| object("gateway.networking.k8s.io/v1", "Gateway", status);
        let pending = |since: &str| {
            let condition = json!({"type": "Programmed", "status": "Unknown",
                "reason": "Pending", "lastTransitionTime": since});
            gateway(&json!({"conditions": [condition]}))
        };
        let begun = json!({"conditions": [], "addresses": [], "x": {}, "y": "", "z": null});
        let begun_by_definition = pending(BEGINNING_OF_TIME);
        for fresh in
            [gateway(&json!(null)), gateway(&json!({})), gateway(&begun), begun_by_definition]
        {
            assert_eq!(judged(&fresh, HealthLibraryUse::Off), HealthStatus::Current);
            assert_eq!(judged(&fresh, HealthLibraryUse::UnknownKinds), HealthStatus::Current);
            assert_eq!(judged(&fresh, HealthLibraryUse::Full), HealthStatus::InProgress);
        }
        let seen = pending("2026-01-01T00:00:00Z");
        assert_eq!(judged(&seen, HealthLibraryUse::Off), HealthStatus::Current);
        assert_eq!(judged(&seen, HealthLibraryUse::UnknownKinds), HealthStatus::InProgress);
    }

    #[test]
    fn only_a_failure_for_good_ends_a_wait() {
        let bucket = |kind: &str, generation: u8| {
            let says = json!({"conditions": [{"type": kind, "status": "True", "message": "no"}]});
            let mut bucket = object("s3.services.k8s.aws/v1alpha1", "Bucket", &says);
            bucket.metadata_mut().insert("generation".to_owned(), generation.into());
            let own = super::super::read(&bucket, &[], Time::UNIX_EPOCH);
            refined(&bucket, own, Time::UNIX_EPOCH, HealthLibraryUse::UnknownKinds)
        };
        assert_eq!(bucket("ACK.ResourceSynced", 1).status, HealthStatus::Current);
        assert_eq!(bucket("ACK.Terminal", 1).status, HealthStatus::Failed);
        let again = ObjectHealth::in_progress(DEGRADED_REASON, "no");
        assert_eq!(bucket("ACK.Recoverable", 1), again);
        // It may be the failure of the spec before.
        assert_eq!(bucket("ACK.Terminal", 2), again);
    }

    #[test]
    fn what_holds_for_every_kind_comes_first_in_full_use() {
        // The rules of Kafka ask for no generation.
        let status =
            json!({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]});
        let old = object("kafka.strimzi.io/v1beta2", "Kafka", &status);
        assert_eq!(judged(&old, HealthLibraryUse::Full), HealthStatus::InProgress);
        let both = json!({"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "Reconciling", "status": "True"}]});
        let issuer = object("cert-manager.io/v1", "Issuer", &both);
        assert_eq!(judged(&issuer, HealthLibraryUse::Full), HealthStatus::InProgress);
    }

    #[test]
    fn evidence_that_kstatus_understands_is_replaced_in_full_use_only() {
        let failed =
            json!({"phase": "Failed", "conditions": [{"type": "Ready", "status": "False"}]});
        let machine = object("cluster.x-k8s.io/v1beta1", "Machine", &failed);
        assert_eq!(judged(&machine, HealthLibraryUse::UnknownKinds), HealthStatus::InProgress);
        assert_eq!(judged(&machine, HealthLibraryUse::Full), HealthStatus::Failed);
        // The key may be on its way.
        let failed = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        let certificate = object("cert-manager.io/v1", "Certificate", &failed);
        assert_eq!(judged(&certificate, HealthLibraryUse::Full), HealthStatus::InProgress);
        let seen = object(
            "elasticsearch.k8s.elastic.co/v1",
            "Elasticsearch",
            &json!({"observedGeneration": 2, "health": "yellow"}),
        );
        assert_eq!(judged(&seen, HealthLibraryUse::UnknownKinds), HealthStatus::Current);
        assert_eq!(judged(&seen, HealthLibraryUse::Full), HealthStatus::InProgress);
    }

    #[test]
    fn a_kind_with_a_rule_of_kstatus_keeps_it() {
        let budget = object("policy/v1", "PodDisruptionBudget", &json!({}));
        assert_eq!(judged(&budget, HealthLibraryUse::UnknownKinds), HealthStatus::Current);
        assert_eq!(judged(&budget, HealthLibraryUse::Full), HealthStatus::InProgress);
    }

    #[test]
    fn a_status_that_kstatus_cannot_read_is_left_to_the_library() {
        let rollout = object(
            "argoproj.io/v1alpha1",
            "Rollout",
            &json!({"observedGeneration": "2", "phase": "Healthy"}),
        );
        assert!(matches!(judged(&rollout, HealthLibraryUse::Off), HealthStatus::Unknown(_)));
        assert_eq!(judged(&rollout, HealthLibraryUse::UnknownKinds), HealthStatus::Current);
        assert!(compute_refined(&rollout, Time::UNIX_EPOCH).is_ok_and(|it| it.is_current()));
        let unknown = object("example.com/v1", "Widget", &json!({"observedGeneration": "2"}));
        assert!(compute_refined(&unknown, Time::UNIX_EPOCH).is_err());
    }

    #[test]
    fn what_is_deleted_or_suspended_or_unknown_is_not_waited_for_longer_than_before() {
        let mut deleted = proxy(&json!({}));
        deleted
            .metadata_mut()
            .insert("deletionTimestamp".to_owned(), "2026-01-01T00:00:00Z".into());
        assert_eq!(judged(&deleted, HealthLibraryUse::Full), HealthStatus::Terminating);
        let paused =
            object("psmdb.percona.com/v1", "PerconaServerMongoDB", &json!({"state": "paused"}));
        assert_eq!(judged(&paused, HealthLibraryUse::UnknownKinds), HealthStatus::Current);
        let silent = object("rabbitmq.com/v1beta1", "Queue", &json!({}));
        assert_eq!(judged(&silent, HealthLibraryUse::UnknownKinds), HealthStatus::Current);
    }
}
