//! FreezeBypasses: which of them permit an operation, and how one is used up.
//!
//! A bypass is for one revision of one spec of one object, and for one Freeze. A failed operation may be repeated with it
//! until it expires. Once the object is ready, the bypass has ended. The end is recorded, because the object may become
//! unready again. A tenant could otherwise use another user's bypass for a second operation.
//!
//! Elsewhere: creating a bypass (`cli`), and the right to create one (`deploy/policies/freezes.yaml`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::windlass_release::{
    AuditCauseKind, AuditFreezeBypass, AuditOperation, BypassedFreeze, FreezeBypass,
    FreezeBypassSpec, FreezeBypassSubject, ReleaseAuditSpec,
};
use crds::{ReconciledObject, Time as When};
use kube_core::ResourceExt as _;
use objects::Object;
use reconcile::Time;
use serde_json::json;

use super::DenyingFreeze;
use crate::approval_plan::SERVICE_ACCOUNT_PREFIX;
use crate::lifecycle::watched_object_cache::{WatchedObjectCache, resource};
use crate::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::events::{EventSeverity, ObjectEvent};
use windlass_cluster::windlass_kind::WindlassKind;

/// The field manager of FreezeBypasses.
const MANAGER: &str = "windlass";

/// How long after its creation a bypass is valid at most, whatever its spec says.
const LONGEST_BYPASS: Duration = Duration::from_secs(4 * 3600);

/// The error code with which the admission policy refuses ServiceAccounts. The API server itself uses this code only for very
/// large bodies. Other policies, missing rights and invalid objects have other codes.
pub(crate) const REFUSED_BY_POLICY: u16 = 413;

/// The operation that needs a bypass.
struct OperationNeedingBypass<'o> {
    subject: FreezeBypassSubject,
    /// The revision that the operation applies. `None` if it is not known yet.
    revision: Option<&'o str>,
    /// Whether the object is ready with its newest spec. Then the operation of a used bypass has ended.
    is_ready: bool,
    now: Time,
}

impl OperationNeedingBypass<'_> {
    /// Whether a bypass permits the operation although a Freeze denies it.
    fn is_let(&self, bypass: &FreezeBypass, freeze: &DenyingFreeze) -> bool {
        let FreezeBypassSpec { freeze: of, subject, revision, user, .. } = &bypass.spec;
        let is_ended = bypass.status.as_ref().is_some_and(|status| status.ended_at.is_some());
        let is_user = !user.is_empty() && !user.starts_with(SERVICE_ACCOUNT_PREFIX);
        (&of.name, &of.uid) == (&freeze.name, &freeze.uid)
            && !of.uid.is_empty()
            && *subject == self.subject
            && self.revision.is_none_or(|known| known == revision)
            && is_user
            && is_in_force(bypass, self.now)
            && !is_ended
            && !(is_used(bypass) && self.is_ready)
    }
}

/// Whether an operation has begun with a bypass.
fn is_used(bypass: &FreezeBypass) -> bool {
    bypass.status.as_ref().is_some_and(|status| status.used_at.is_some())
}

/// Whether an object is ready with its newest spec.
fn is_ready<K: WindlassKind + ReconciledObject>(object: &K) -> bool {
    object.condition("Ready").is_some_and(|it| it.status == "True")
        && object.observed_generation() == Some(object.meta().generation.unwrap_or_default())
}

/// Whether a bypass has not expired.
fn is_in_force(bypass: &FreezeBypass, now: Time) -> bool {
    let is_before = |expires: &When| now < expires.0;
    // The API server sets the creation time.
    let is_recent = |created: &When| {
        let last = created.0.saturating_add(LONGEST_BYPASS).unwrap_or(created.0);
        now < last
    };
    bypass.spec.expires.as_ref().is_some_and(is_before)
        && bypass.metadata.creation_timestamp.as_ref().is_some_and(is_recent)
}

/// One valid bypass for each of these Freezes, for an operation on an object. `None` if one is missing.
pub(super) fn of_all<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    revision: Option<&str>,
    denying: &[DenyingFreeze],
    now: Time,
) -> Option<Vec<Arc<FreezeBypass>>> {
    let known = context.shared::<WatchedObjectCache<FreezeBypass>>();
    let known = known.of(&object.namespace().unwrap_or_default());
    // It is not known which Freezes deny.
    if known.is_empty() || denying.is_empty() {
        return None;
    }
    let generation = object.meta().generation.unwrap_or_default();
    let subject = FreezeBypassSubject {
        group: K::group(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: object.name_any(),
        uid: object.uid()?,
        generation,
    };
    let operation = OperationNeedingBypass { subject, revision, is_ready: is_ready(object), now };
    let of = |freeze: &DenyingFreeze| known.iter().find(|it| operation.is_let(it, freeze)).cloned();
    denying.iter().map(of).collect()
}

/// Records that an operation begins with these bypasses, and announces it. A use that is already recorded is not recorded
/// again.
///
/// # Errors
/// The reason why the bypasses do not count, for users.
pub(super) async fn spend<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    bypasses: &[Arc<FreezeBypass>],
    now: Time,
) -> Result<(), String> {
    let namespace = object.namespace().unwrap_or_default();
    match is_proved(context, &namespace).await {
        Ok(true) => {}
        Ok(false) => {
            return Err("the admission policy that proves its user is not in force; apply \
                        deploy/policies/freezes.yaml"
                .to_owned());
        }
        Err(error) => return Err(format!("its admission policy cannot be asked: {error}")),
    }
    let table = context.shared::<WatchedObjectCache<FreezeBypass>>();
    for bypass in bypasses {
        if is_used(bypass) {
            continue;
        }
        let status = json!({"usedAt": whole_second(now)});
        let version = bypass.resource_version();
        let written =
            context.cluster.write_status(&**bypass, MANAGER, &status, version.as_deref()).await;
        let written = written.map_err(|error| format!("its use cannot be recorded: {error}"))?;
        let written = written.ok_or_else(|| "it was deleted".to_owned())?;
        table.insert(written);
        let FreezeBypassSpec { freeze, revision, user, reason, .. } = &bypass.spec;
        let message = format!(
            "{user} lets {revision} begin although Freeze {} denies (FreezeBypass {}): {reason}",
            freeze.name,
            bypass.name_any()
        );
        let kind = K::kind(&());
        let name = object.name_any();
        tracing::info!(controller_kind = %kind, name, namespace, "{message}");
        let event = ObjectEvent {
            severity: EventSeverity::Info,
            reason: "FreezeBypassed".to_owned(),
            message,
            metadata: BTreeMap::new(),
        };
        context.events.announce(object, K::CONTROLLER, event);
    }
    Ok(())
}

/// A time in whole seconds, as the API stores it.
fn whole_second(time: Time) -> When {
    When(Time::from_second(time.as_second()).unwrap_or(time))
}

/// Records that bypassed operations of an object have ended, if the object is ready. If that fails, the next run tries again.
pub(super) async fn end<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    now: Time,
) {
    if !is_ready(object) {
        return;
    }
    let uid = object.uid().unwrap_or_default();
    let table = context.shared::<WatchedObjectCache<FreezeBypass>>();
    for bypass in table.of(&object.namespace().unwrap_or_default()) {
        if !is_to_end(&bypass, &uid, now) {
            continue;
        }
        let status = json!({"endedAt": whole_second(now)});
        match context.cluster.write_status(&*bypass, MANAGER, &status, None).await {
            Ok(Some(written)) => drop(table.insert(written)),
            Ok(None) => {}
            Err(error) => {
                let name = bypass.name_any();
                tracing::warn!(
                    "the end of the operation of FreezeBypass {name} cannot be recorded: {error}"
                );
            }
        }
    }
}

/// Whether an operation of this object has begun with the bypass and its end is not recorded yet.
fn is_to_end(bypass: &FreezeBypass, uid: &str, now: Time) -> bool {
    let is_ended = bypass.status.as_ref().is_some_and(|status| status.ended_at.is_some());
    bypass.spec.subject.uid == uid && is_used(bypass) && !is_ended && is_in_force(bypass, now)
}

/// The most bypasses that an audit names.
const MAX_AUDITED_BYPASSES: usize = 16;

/// The bypasses that let the operation of an audit begin. They were used before, had not expired or ended, and match the
/// revision of a Kustomization. A release has its own revisions, so a later operation before the bypass expires looks the
/// same.
pub(super) fn of_audit(
    bypasses: &[Arc<FreezeBypass>],
    audit: &ReleaseAuditSpec,
) -> Vec<AuditFreezeBypass> {
    let is_deletion = audit.causes.iter().any(|it| matches!(it.type_, AuditCauseKind::Deletion));
    let needs_none = is_deletion
        || matches!(
            audit.operation,
            AuditOperation::CorrectDrift
                | AuditOperation::Suspend
                | AuditOperation::Resume
                | AuditOperation::Delete
        );
    let revision = audit.to.as_ref().and_then(|it| it.revision.as_ref());
    let revision = revision.filter(|_| audit.subject.kind == "Kustomization");
    let Some(started) = audit.started.as_ref().filter(|_| !needs_none) else { return Vec::new() };
    // The times of bypasses are whole seconds.
    let began = started.0;
    let started = began.as_second();
    let is_of = |bypass: &&Arc<FreezeBypass>| {
        let Some(status) = &bypass.status else { return false };
        let is_used = status.used_at.as_ref().is_some_and(|at| at.0.as_second() <= started);
        let is_over = status.ended_at.as_ref().is_some_and(|at| at.0.as_second() < started);
        bypass.spec.subject.uid == audit.subject.uid
            && revision.is_none_or(|revision| *revision == bypass.spec.revision)
            && is_in_force(bypass, began)
            && is_used
            && !is_over
    };
    let named = |bypass: &Arc<FreezeBypass>| AuditFreezeBypass {
        name: bypass.name_any(),
        freeze: bypass.spec.freeze.name.clone(),
        user: bypass.spec.user.clone(),
        reason: bypass.spec.reason.clone(),
    };
    bypasses.iter().filter(is_of).take(MAX_AUDITED_BYPASSES).map(named).collect()
}

/// Whether the admission policy that proves the users of bypasses is in force in a namespace. A dry run checks that it refuses
/// a bypass from windlass, which is a ServiceAccount.
async fn is_proved(context: &RunContext, namespace: &str) -> Result<bool, ClusterError> {
    let spec = FreezeBypassSpec {
        freeze: BypassedFreeze { name: "probe".to_owned(), uid: "probe".to_owned() },
        subject: FreezeBypassSubject {
            group: String::new(),
            kind: "Probe".to_owned(),
            name: "probe".to_owned(),
            uid: "probe".to_owned(),
            generation: 1,
        },
        revision: "probe".to_owned(),
        reason: "whether the admission policy is in force".to_owned(),
        user: "probe".to_owned(),
        expires: None,
    };
    let mut probe = FreezeBypass::new("windlass-probe", spec);
    probe.metadata.namespace = Some(namespace.to_owned());
    let value = serde_json::to_value(&probe).unwrap_or_default();
    let Ok(probe) = Object::new(value) else { return Ok(false) };
    match context.cluster.try_create(&resource::<FreezeBypass>(), &probe, MANAGER).await {
        Err(error) if error.code() == Some(REFUSED_BY_POLICY) => Ok(true),
        Err(error) if error.is_transient() => Err(error),
        // Any other refusal proves nothing.
        Ok(()) | Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use crds::windlass_release::AuditRevision;
    use serde_json::Value;

    use super::*;

    fn freeze(uid: &str) -> DenyingFreeze {
        DenyingFreeze {
            name: "christmas".to_owned(),
            uid: uid.to_owned(),
            text: String::new(),
            until: None,
            corrects_drift: true,
        }
    }

    fn operation(
        revision: Option<&'static str>,
        is_ready: bool,
        now: &str,
    ) -> OperationNeedingBypass<'static> {
        let subject = FreezeBypassSubject {
            group: "kustomize.toolkit.fluxcd.io".to_owned(),
            kind: "Kustomization".to_owned(),
            name: "app".to_owned(),
            uid: "uid-app".to_owned(),
            generation: 3,
        };
        let now = now.parse().unwrap();
        OperationNeedingBypass { subject, revision, is_ready, now }
    }

    /// A valid FreezeBypass with one field replaced.
    fn bypass(pointer: &str, other: Value) -> FreezeBypass {
        let mut object = json!({
            "apiVersion": "release.windlass.dev/v1alpha1", "kind": "FreezeBypass",
            "metadata": {"name": "b", "namespace": "apps", "creationTimestamp": "2026-12-24T08:00:00Z"},
            "spec": {
                "freeze": {"name": "christmas", "uid": "uid-1"},
                "subject": {"group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": "app",
                    "uid": "uid-app", "generation": 3},
                "revision": "main@sha1:1", "reason": "a fix", "user": "alice",
                "expires": "2026-12-24T10:00:00Z",
            },
            "status": {},
        });
        if let Some(field) = object.pointer_mut(pointer) {
            *field = other;
        }
        serde_json::from_value(object).unwrap()
    }

    const NOW: &str = "2026-12-24T09:00:00Z";
    const REVISION: Option<&str> = Some("main@sha1:1");

    #[test]
    fn a_bypass_is_for_one_freeze_and_one_revision_of_one_spec_of_one_object() {
        let is_let = |bypass: &FreezeBypass| {
            operation(REVISION, false, NOW).is_let(bypass, &freeze("uid-1"))
        };
        assert!(is_let(&bypass("/none", Value::Null)), "nothing is changed");
        for (pointer, other) in [
            ("/spec/freeze/uid", json!("uid-2")),
            ("/spec/freeze/name", json!("easter")),
            ("/spec/subject/uid", json!("uid-other")),
            ("/spec/subject/name", json!("other")),
            ("/spec/subject/kind", json!("HelmRelease")),
            ("/spec/subject/generation", json!(4)),
            ("/spec/revision", json!("main@sha1:2")),
            ("/spec/user", json!("")),
            ("/spec/user", json!("system:serviceaccount:apps:robot")),
            ("/spec/expires", json!("2026-12-24T09:00:00Z")),
            ("/spec/expires", Value::Null),
            ("/metadata/creationTimestamp", Value::Null),
        ] {
            assert!(!is_let(&bypass(pointer, other.clone())), "{pointer}: {other}");
        }
        let before = bypass("/spec/revision", json!("main@sha1:2"));
        let is_unknown = operation(None, false, NOW).is_let(&before, &freeze("uid-1"));
        assert!(is_unknown, "the revision is compared once it is known");
        let gone = operation(REVISION, false, NOW).is_let(&before, &freeze(""));
        assert!(!gone);
    }

    #[test]
    fn a_bypass_counts_for_four_hours_at_most() {
        let long = bypass("/spec/expires", json!("2027-12-24T10:00:00Z"));
        let at = |now: &str| operation(REVISION, false, now).is_let(&long, &freeze("uid-1"));
        assert!(at("2026-12-24T11:59:59Z"));
        assert!(!at("2026-12-24T12:00:00Z"));
    }

    #[test]
    fn a_bypass_that_was_used_is_over_once_its_subject_is_ready() {
        let used = bypass("/status", json!({"usedAt": "2026-12-24T08:30:00Z"}));
        let unused = bypass("/none", Value::Null);
        for (is_ready, bypass, expected) in
            [(false, &used, true), (true, &used, false), (true, &unused, true)]
        {
            let is_let = operation(REVISION, is_ready, NOW).is_let(bypass, &freeze("uid-1"));
            assert_eq!(is_let, expected, "ready: {is_ready}");
        }
    }

    #[test]
    fn an_audit_names_the_bypasses_with_which_its_operation_began() {
        let of = |status: Value, started: &str, operation: AuditOperation| {
            let mut audit = ReleaseAuditSpec { operation, ..ReleaseAuditSpec::default() };
            audit.subject.uid = "uid-app".to_owned();
            audit.started = Some(When(started.parse().unwrap()));
            let named = of_audit(&[Arc::new(bypass("/status", status))], &audit);
            named.into_iter().map(|it| [it.name, it.freeze, it.user, it.reason]).collect::<Vec<_>>()
        };
        let used = json!({"usedAt": "2026-12-24T08:30:00Z", "endedAt": "2026-12-24T08:31:00Z"});
        let named = vec![["b", "christmas", "alice", "a fix"].map(str::to_owned)];
        let apply = AuditOperation::Apply;
        for (started, is_named) in [
            ("2026-12-24T08:29:59.9Z", false),
            ("2026-12-24T08:30:00.1Z", true),
            ("2026-12-24T08:31:00.9Z", true),
            ("2026-12-24T08:31:01Z", false),
        ] {
            assert_eq!(of(used.clone(), started, apply) == named, is_named, "{started}");
        }
        let begun = json!({"usedAt": "2026-12-24T08:30:00Z"});
        assert_eq!(of(begun.clone(), NOW, AuditOperation::Rollback), named);
        assert!(of(begun, NOW, AuditOperation::CorrectDrift).is_empty());
        assert!(of(json!({}), NOW, apply).is_empty(), "it was not used");
        let begun = json!({"usedAt": "2026-12-24T08:30:00Z"});
        assert!(of(begun.clone(), "2026-12-24T10:00:00Z", apply).is_empty(), "it has expired");
        assert!(of(begun.clone(), NOW, AuditOperation::Delete).is_empty());
        let used = [Arc::new(bypass("/status", begun))];
        let mut audit = ReleaseAuditSpec { operation: apply, ..ReleaseAuditSpec::default() };
        audit.started = Some(When(NOW.parse().unwrap()));
        [audit.subject.uid, audit.subject.kind] = ["uid-app", "Kustomization"].map(str::to_owned);
        for (revision, count) in [("main@sha1:1", 1), ("main@sha1:2", 0)] {
            let revision = Some(revision.to_owned());
            audit.to = Some(AuditRevision { revision, ..AuditRevision::default() });
            assert_eq!(of_audit(&used, &audit).len(), count, "{:?}", audit.to);
        }
    }

    #[test]
    fn the_end_of_a_used_bypass_is_recorded_once_and_stays_also_if_its_subject_fails_later() {
        let now = NOW.parse().unwrap();
        let used = bypass("/status", json!({"usedAt": "2026-12-24T08:30:00Z"}));
        assert!(is_to_end(&used, "uid-app", now));
        assert!(!is_to_end(&used, "uid-other", now));
        assert!(!is_to_end(&bypass("/none", Value::Null), "uid-app", now), "it was not used");
        let times = json!({"usedAt": "2026-12-24T08:30:00Z", "endedAt": "2026-12-24T08:31:00Z"});
        let ended = bypass("/status", times);
        assert!(!is_to_end(&ended, "uid-app", now));
        for is_ready in [true, false] {
            assert!(!operation(REVISION, is_ready, NOW).is_let(&ended, &freeze("uid-1")));
        }
    }
}
