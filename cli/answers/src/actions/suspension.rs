//! Suspends an object with an owner, a reason and an end, and resumes it.
//!
//! Elsewhere: the effect of a suspension (`docs/windows-and-holds.md`), suspending one release of a Helmfile (`windlass-cli`).

use std::time::Duration;

use ::reconcile::{
    ObjectHold, REQUESTED_REASON, ROLLBACK, SUSPENDED_BY, SUSPENDED_REASON, SUSPENDED_UNTIL,
    may_end_suspension,
};
use anyhow::{Context as _, ensure};
use cause::{hold, owners};
use jiff::{SignedDuration, Timestamp};
use objects::Object;
use serde_json::json;

use super::{MANAGER, ObjectToChange};
use crate::object_row::ObjectRow;
use windlass_cluster::ClusterError;
use windlass_serve::settings::parse_duration;

/// A suspension: who suspends the object, why, and until when.
#[derive(Debug, Clone, Copy)]
pub struct ObjectSuspension<'s> {
    /// The user who suspends the object.
    pub owner: &'s str,
    /// The user's reason.
    pub reason: Option<&'s str>,
    /// When the suspension ends by itself.
    pub until: Option<Timestamp>,
}

impl ObjectSuspension<'_> {
    /// The end of the suspension in the format of the annotation that stores it. `None` if the suspension has no end.
    #[must_use]
    pub fn end(&self) -> Option<String> {
        self.until.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    /// If the suspension has an end, checks that windlass would end it for this object.
    ///
    /// # Errors
    /// windlass does not reconcile the kind, or another program suspended the object.
    pub fn check(&self, object: &Object) -> anyhow::Result<()> {
        self.check_kind(object)?;
        ensure!(self.until.is_none() || may_end(object), "{NOT_ENDED}");
        Ok(())
    }

    /// If the suspension has an end, checks that windlass ends suspensions of this kind.
    ///
    /// # Errors
    /// windlass does not reconcile the kind.
    pub fn check_kind(&self, object: &Object) -> anyhow::Result<()> {
        ensure!(self.until.is_none() || expires(object), "{NEVER_EXPIRES}");
        Ok(())
    }

    /// Describes the suspension that this one replaces: its owner, reason and end. Returns `None` if they are the same.
    #[must_use]
    pub fn replaced(&self, object: &Object) -> Option<String> {
        let end = self.end();
        let wanted = ObjectHold::parse(Some(self.owner), self.reason, end.as_deref());
        let wanted = wanted.map(|hold| hold.to_string()).unwrap_or_default();
        let before = hold(object).filter(|_| has_switch_on(object))?.to_string();
        (before != wanted).then_some(before)
    }

    /// Suspends an object after [`Self::check`], and returns a message about the result. If another program suspended the
    /// object meanwhile, the message says that the end does not count.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn carry_out(&self, of: &ObjectToChange<'_>) -> Result<String, ClusterError> {
        let annotations = json!({
            SUSPENDED_BY: self.owner,
            SUSPENDED_REASON: self.reason,
            SUSPENDED_UNTIL: self.end(),
        });
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"suspend": true}});
        let changed = of.change(&patch).await?;
        let description = hold(&changed).map(|hold| hold.to_string()).unwrap_or_default();
        Ok(format!("{} is {description}", of.object.id().subject()))
    }
}

/// Ends the suspension of an object. This also cancels a requested rollback.
///
/// # Errors
/// The API server refuses the request, or does not respond.
pub async fn resume(of: &ObjectToChange<'_>, reason: Option<&str>) -> Result<Object, ClusterError> {
    let annotations = json!({
        SUSPENDED_BY: null, SUSPENDED_REASON: null, SUSPENDED_UNTIL: null, ROLLBACK: null,
        REQUESTED_REASON: reason,
    });
    of.change(&json!({"metadata": {"annotations": annotations}, "spec": {"suspend": false}})).await
}

/// Whether the object is suspended, according to its spec, its annotations or its status.
#[must_use]
pub fn is_suspended(object: &Object) -> bool {
    has_switch_on(object)
        || hold(object).is_some()
        || ObjectRow::of(object, Timestamp::now()).is_suspended()
}

fn has_switch_on(object: &Object) -> bool {
    object.get("spec").is_some_and(|spec| spec["suspend"] == true)
}

/// Whether the end of a new suspension would count. It counts if the object is not suspended yet, or if the same manager
/// suspended it.
fn may_end(object: &Object) -> bool {
    !has_switch_on(object) || may_end_suspension(owners(object), |manager| manager == MANAGER)
}

const NOT_ENDED: &str = "it is suspended already, and not by `windlass suspend`, which does not end what another program or a \
                         manifest suspended: leave out --until, or end that suspension first";

/// Whether windlass ends suspensions of an object, because it reconciles the kind.
fn expires(object: &Object) -> bool {
    let gvk = object.gvk();
    crds::names().any(|it| it.group == gvk.group && it.kind == gvk.kind)
}

const NEVER_EXPIRES: &str = "windlass does not reconcile this kind, so it would stay suspended after --until: leave out \
                             --until, and resume it with `windlass resume`";

/// Parses a time, or a duration from now.
///
/// # Errors
/// The text is neither a time nor a duration, or it is in the past.
pub fn end_of(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let at = match text.parse::<Timestamp>() {
        Ok(at) => at,
        Err(_) => {
            let length: Duration = parse_duration(text)
                .ok()
                .with_context(|| format!("{text} is neither a time such as 2026-11-24T21:00:00Z nor a duration such as 2h"))?;
            now.checked_add(SignedDuration::try_from(length)?)?
        }
    };
    ensure!(at > now, "{text} is in the past");
    Ok(at)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_suspension_that_is_replaced_is_reported_with_its_owner() {
        let suspended = |reason: &str, suspend: bool| {
            Object::new(json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {
                    "name": "app", "namespace": "apps",
                    "annotations": {SUSPENDED_BY: "alice", SUSPENDED_REASON: reason},
                },
                "spec": {"suspend": suspend},
            }))
            .unwrap()
        };
        let by = |owner: &'static str, reason: &'static str| ObjectSuspension {
            owner,
            reason: Some(reason),
            until: None,
        };
        let first = suspended("incident-1", true);
        let before = by("bob", "incident-2").replaced(&first).unwrap();
        assert!(before.contains("alice") && before.contains("incident-1"), "{before}");
        assert_eq!(by("alice", "incident-2").replaced(&first), Some(before));
        assert_eq!(by("alice", "incident-1").replaced(&first), None);
        assert_eq!(by("bob", "incident-2").replaced(&suspended("incident-1", false)), None);
    }

    #[test]
    fn an_end_is_given_to_no_suspension_that_another_program_or_a_manifest_set() {
        let ends = |suspend: bool, entries: Value| {
            let object = json!({"apiVersion": "v1", "kind": "X", "spec": {"suspend": suspend},
                "metadata": {"name": "a", "managedFields": entries}});
            may_end(&Object::new(object).unwrap())
        };
        let entry = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:suspend": {}}}});
        let own = entry(MANAGER, "Update");
        let applied = entry("kustomize-controller", "Apply");
        assert!(ends(true, json!([own])));
        assert!(ends(false, json!([applied])), "a manifest says that it is not suspended");
        assert!(!ends(true, json!([entry("flux", "Update")])));
        assert!(!ends(true, json!([own, applied])));
    }

    #[test]
    fn a_suspension_ends_by_itself_only_for_kinds_that_windlass_reconciles() {
        let of = |version: &str, kind: &str| {
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "a"}});
            expires(&Object::new(object).unwrap())
        };
        for kind in ["Alert", "Provider", "Receiver"] {
            let version = if kind == "Receiver" { "v1" } else { "v1beta3" };
            assert!(of(&format!("notification.toolkit.fluxcd.io/{version}"), kind), "{kind}");
        }
        assert!(of("kustomize.toolkit.fluxcd.io/v1", "Kustomization"));
        assert!(of("apps.mumoshu.github.io/v1alpha1", "Helmfile"));
        assert!(of("image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation"));
        assert!(!of("example.com/v1", "Team"));
    }

    #[test]
    fn an_end_is_a_time_or_a_duration_and_in_the_future() {
        let now: Timestamp = "2026-11-24T12:00:00Z".parse().unwrap();
        let end = |text: &str| {
            end_of(text, now).map(|at| at.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(end("2h").unwrap(), "2026-11-24T14:00:00Z");
        assert_eq!(end("2026-11-24T22:00:00+01:00").unwrap(), "2026-11-24T21:00:00Z");
        assert!(end("2026-11-24T11:00:00Z").unwrap_err().contains("in the past"));
        assert!(end("tomorrow").unwrap_err().contains("neither a time"));
    }
}
