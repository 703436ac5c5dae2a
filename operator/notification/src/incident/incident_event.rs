//! The text that people read about an incident: the event that is sent for it.
//!
//! Elsewhere: to which Alerts and when (`incident_notifier`), how services show it (`engines/notify`).

use std::collections::BTreeMap;
use std::time::Duration;

use crds::windlass_notification::{Incident, IncidentStatus};
use kube_core::ResourceExt as _;
use notify::{EVENT_GROUP, FluxEvent, ObjectReference};
use reconcile::Time;

use super::incident_store;
use crate::delivery::incident_notifications::IncidentTransition;

/// The most affected objects that a message names.
const MAX_OBJECTS_NAMED: usize = 5;

/// The subject of an incident, for its events.
pub(super) type IncidentEventSubject<'a> = (&'a ObjectReference, &'static str);

/// The text with the duration of the failure.
fn took(status: &IncidentStatus, until: Time) -> String {
    let since = incident_store::began(status).map(|since| until.duration_since(since).as_secs());
    let seconds = since.and_then(|it| u64::try_from(it).ok()).unwrap_or_default();
    reconcile::format_duration(Duration::from_secs(seconds))
}

/// The message of a notification about an Incident, for people.
fn message(status: &IncidentStatus, saying: IncidentTransition, now: Time) -> String {
    let said = status.message.clone().unwrap_or_default();
    let affected = status.affected.clone().unwrap_or_default();
    let names: Vec<&str> =
        affected.objects.iter().take(MAX_OBJECTS_NAMED).map(String::as_str).collect();
    let count = usize::try_from(affected.count).unwrap_or_default();
    let others = match (count, count.saturating_sub(names.len())) {
        (0, _) => String::new(),
        (1, _) => format!("\nIt affects {}.", names.join(", ")),
        (count, 0) => format!("\nIt affects {count} objects: {}.", names.join(", ")),
        (count, more) => {
            format!("\nIt affects {count} objects: {} and {more} more.", names.join(", "))
        }
    };
    match saying {
        IncidentTransition::Opened => format!("{said}{others}"),
        IncidentTransition::Reminded => {
            format!("Not resolved for {}: {said}{others}", took(status, now))
        }
        IncidentTransition::Resolved => {
            let until = status.resolved_at.as_ref().map_or(now, |at| at.0);
            format!("Resolved after {}. The failure was: {said}{others}", took(status, until))
        }
    }
}

/// The event about an incident.
pub(super) fn event(
    incident: &Incident,
    (object, controller): IncidentEventSubject<'_>,
    saying: IncidentTransition,
    now: Time,
) -> FluxEvent {
    let status = incident.status.clone().unwrap_or_default();
    let is_over = saying == IncidentTransition::Resolved;
    let of = |key: &str, value: String| (format!("{EVENT_GROUP}/{key}"), value);
    let name = format!("{}/{}", incident.namespace().unwrap_or_default(), incident.name_any());
    let affected = status.affected.as_ref().map_or(0, |it| it.count);
    let metadata = BTreeMap::from([
        of("incident", name),
        of("incidentState", if is_over { "Resolved" } else { "Open" }.to_owned()),
        of("affected", affected.to_string()),
    ]);
    FluxEvent {
        object: object.clone(),
        severity: if is_over { "info" } else { "error" }.to_owned(),
        timestamp: Some(now.as_second()),
        message: message(&status, saying, now),
        reason: match is_over {
            true => "IncidentResolved".to_owned(),
            false => incident.spec.cause.reason.clone(),
        },
        metadata,
        reporting_controller: controller.to_owned(),
        ..FluxEvent::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::incident::testing::{at, status};

    #[test]
    fn messages_name_the_first_objects_and_count_the_others() {
        let said = |saying| message(&status(), saying, at("2026-11-24T14:30:00Z"));
        let affects = "It affects 200 objects: Kustomization/apps/k0, Kustomization/apps/k1, \
                       Kustomization/apps/k2, Kustomization/apps/k3, Kustomization/apps/k4 and 195 more.";
        assert_eq!(said(IncidentTransition::Opened), format!("authentication failed\n{affects}"));
        assert!(
            said(IncidentTransition::Reminded)
                .starts_with("Not resolved for 2h30m0s: authentication")
        );
        let resolved = said(IncidentTransition::Resolved);
        let begin = "Resolved after 2h30m0s. The failure was: authentication failed";
        assert!(resolved.starts_with(begin), "{resolved}");
        let one = json!({"message": "no", "affected": {"count": 1, "objects": ["A/b/c"]}});
        let one: IncidentStatus = serde_json::from_value(one).unwrap();
        assert_eq!(
            message(&one, IncidentTransition::Opened, Time::UNIX_EPOCH),
            "no\nIt affects A/b/c."
        );
    }

    #[test]
    fn the_event_of_an_end_is_no_error() {
        let mut incident = Incident::new("i", crds::windlass_notification::IncidentSpec::default());
        incident.spec.cause.reason = "BuildFailed".to_owned();
        incident.metadata.namespace = Some("apps".to_owned());
        incident.status = Some(status());
        let object = ObjectReference::default();
        let of = |saying| event(&incident, (&object, "c"), saying, Time::UNIX_EPOCH);
        let opened = of(IncidentTransition::Opened);
        let resolved = of(IncidentTransition::Resolved);
        assert_eq!((&*opened.severity, &*opened.reason), ("error", "BuildFailed"));
        assert_eq!((&*resolved.severity, &*resolved.reason), ("info", "IncidentResolved"));
        assert_eq!(opened.metadata["event.toolkit.fluxcd.io/incident"], "apps/i");
        assert_eq!(resolved.metadata["event.toolkit.fluxcd.io/incidentState"], "Resolved");
    }

    #[test]
    fn a_failure_that_was_there_before_windlass_is_as_old_as_it_is() {
        let mut status = status();
        status.since = Some(crds::Time(at("2026-11-24T10:00:00Z")));
        let reminded = message(&status, IncidentTransition::Reminded, at("2026-11-24T12:30:00Z"));
        assert!(reminded.starts_with("Not resolved for 2h30m0s:"), "{reminded}");
    }
}
