//! Silences an Incident. Until the silence ends, nothing but the end of the Incident is sent.
//!
//! The request is written to the status of the Incident with the user's name. The included admission policy verifies that name
//! (`deploy/policies/incidents.yaml`).
//! Elsewhere: the effect of a silence (`notification_controller::incident::incident_silence`).

use anyhow::{Context as _, ensure};
use cause::CauseKind;
use crds::windlass_notification::{Incident, IncidentState};
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use notification_controller::incident::incident_silence::LONGEST_SILENCE;
use serde_json::{Value, json};

use super::suspension::end_of;
use super::{MANAGER, SERVICE_ACCOUNT_PREFIX};
use crate::command_scope::CommandScope;
use crate::incidents::{in_seconds, silence_words};
use windlass_cli_runtime::status_request;
use windlass_cli_runtime::table::clean;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// A request to silence an Incident.
#[derive(Debug, Clone, Copy)]
pub struct IncidentSilenceRequest<'r> {
    /// The Incident, in the version that was read.
    pub incident: &'r Incident,
    /// The user's reason.
    pub reason: &'r str,
    /// When the silence ends, as a time or as a duration from now.
    pub until: &'r str,
    /// Whether the request requires the resourceVersion that was read. Otherwise, it only requires the same UID.
    pub is_of_version: bool,
}

impl IncidentSilenceRequest<'_> {
    /// Sends the request. Returns a message that says what was done.
    ///
    /// # Errors
    /// The reason is empty, the end cannot be read or is too late, or the Incident is not open. The user is a ServiceAccount, or
    /// the API server refuses.
    pub async fn make(&self, site: &CommandScope) -> anyhow::Result<String> {
        ensure!(!self.reason.trim().is_empty(), "give a reason for the silence, which others see");
        let incident = self.incident;
        check(incident)?;
        let now = Timestamp::now();
        let until = end(self.until, now)?;
        let user = site.cluster.own_name().await.context("cannot tell who silences")?;
        ensure!(!user.is_empty(), "the API server does not name this user");
        ensure!(
            !user.starts_with(SERVICE_ACCOUNT_PREFIX),
            "{user} is a ServiceAccount, which cannot silence an incident"
        );
        let patch = self.patch(&user, now, until);
        let namespace = incident.namespace().unwrap_or_default();
        let name = incident.name_any();
        let resource = resource::<Incident>();
        let cluster = &site.cluster;
        status_request::write(cluster, &resource, &namespace, &name, &patch, MANAGER).await?;
        let words = silence_words(&user, until, self.reason.trim());
        Ok(clean(&format!("Incident/{namespace}/{name} is {words}")))
    }

    /// The patch with the request. It contains the UID, so it applies only to the object that was read.
    fn patch(&self, user: &str, now: Timestamp, until: Timestamp) -> Value {
        let silence = json!({"user": user, "at": in_seconds(now), "until": in_seconds(until),
            "reason": self.reason.trim()});
        let mut metadata = json!({"uid": self.incident.uid()});
        if self.is_of_version {
            metadata["resourceVersion"] = self.incident.resource_version().into();
        }
        json!({"metadata": metadata, "status": {"silence": silence}})
    }
}

/// Checks that a silence would have an effect on an Incident.
///
/// # Errors
/// The Incident is not open, or windlass sends nothing about Incidents of its class.
pub fn check(incident: &Incident) -> anyhow::Result<()> {
    let name = clean(&incident.name_any());
    let state = incident.status.as_ref().and_then(|status| status.state);
    ensure!(state == Some(IncidentState::Open), "incident {name} is not open");
    ensure!(
        incident.spec.reason != CauseKind::Delivery.to_string(),
        "windlass sends nothing about incident {name}, which is about notifications themselves"
    );
    Ok(())
}

/// When a silence ends that begins now.
fn end(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    let until = end_of(text, now)?;
    let latest = now.checked_add(LONGEST_SILENCE)?;
    ensure!(
        until <= latest,
        "{text} is more than 7 days from now: silence it again when that is over"
    );
    Ok(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(state: &str, reason: &str) -> Incident {
        serde_json::from_value(
            json!({"metadata": {"name": "kustomization-web-1", "namespace": "apps",
                "uid": "u", "resourceVersion": "7"},
            "spec": {"subject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                "kind": "Kustomization", "name": "web"}, "reason": reason,
                "cause": {"object": "", "reason": "", "message": ""}},
            "status": {"state": state}}),
        )
        .unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn an_open_incident_about_which_something_is_sent_can_be_silenced() {
        assert!(check(&incident("Open", "Build")).is_ok());
        let text = check(&incident("Resolved", "Build")).unwrap_err().to_string();
        assert_eq!(text, "incident kustomization-web-1 is not open");
        let text = check(&incident("Open", "Delivery")).unwrap_err().to_string();
        assert!(text.starts_with("windlass sends nothing about incident"), "{text}");
    }

    #[test]
    fn a_silence_ends_within_seven_days() {
        let now = at("2026-11-30T09:00:00Z");
        let said = |text: &str| end(text, now).map(in_seconds).map_err(|error| error.to_string());
        assert_eq!(said("2h").unwrap(), "2026-11-30T11:00:00Z");
        assert_eq!(said("168h").unwrap(), "2026-12-07T09:00:00Z");
        assert!(said("169h").unwrap_err().contains("more than 7 days"));
        assert!(said("2026-12-08T00:00:00Z").unwrap_err().contains("more than 7 days"));
        assert!(said("2026-11-29T09:00:00Z").unwrap_err().contains("in the past"));
        assert!(said("").is_err() && said("for ever").is_err());
    }

    #[test]
    fn the_request_names_the_user_and_the_object_and_where_asked_its_version() {
        let incident = incident("Open", "Build");
        let patch = |is_of_version: bool| {
            let request = IncidentSilenceRequest {
                incident: &incident,
                reason: " known ",
                until: "2h",
                is_of_version,
            };
            request.patch("alice", at("2026-11-30T09:00:00Z"), at("2026-11-30T11:00:00Z"))
        };
        let silence = json!({"user": "alice", "at": "2026-11-30T09:00:00Z",
            "until": "2026-11-30T11:00:00Z", "reason": "known"});
        let status = json!({"silence": silence});
        assert_eq!(patch(false), json!({"metadata": {"uid": "u"}, "status": status}));
        let metadata = json!({"uid": "u", "resourceVersion": "7"});
        assert_eq!(patch(true), json!({"metadata": metadata, "status": status}));
    }
}
