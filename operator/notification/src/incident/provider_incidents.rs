//! Incidents of Providers whose services do not accept notifications. A Provider has no status in which it could report this.
//!
//! Windlass sends no notification about such an incident. An Alert selects no Provider, and the notification would not be
//! delivered either. The incident ends with the next notification that the service accepts. Elsewhere: how notifications ended
//! (`delivery::last_deliveries`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cause::CauseKind;
use cause::incident::{ObjectFailureVerdict, ReportedObjectState, RootFailure};
use crds::notification::Provider;
use crds::windlass_notification::Incident;
use kube_core::{Resource as _, ResourceExt as _};
use objects::ObjectId;
use reconcile::Time;

use super::incident_store;
use crate::delivery::{LastDeliveryOutcome, ProviderKey};
use windlass_runtime::object_hold::is_suspended;

/// The reason in an Incident of a Provider.
const REASON: &str = "DeliveryFailed";

/// The uid of a Provider, if it is judged by how its last notification ended. `None` if it does not exist or is suspended.
pub(super) fn judged_uid(provider: Option<&Provider>, now: Time) -> Option<String> {
    provider.filter(|it| !is_suspended(*it, now))?.uid()
}

/// Whether an Incident is about the deliveries of a suspended Provider. Such an Incident stays open and needs no judgement
/// until the Provider is resumed or deleted. Until then no notification is sent that could end it. `provider_of` returns `None`
/// if the Provider does not exist.
pub(super) fn is_at_rest(
    incident: &Incident,
    now: Time,
    provider_of: impl FnOnce(&str, &str) -> Option<Arc<Provider>>,
) -> bool {
    let Some((subject, problem)) = incident_store::identity(incident) else { return false };
    problem == CauseKind::Delivery.to_string()
        && provider_of(&subject.namespace, &subject.name).is_some_and(|it| is_suspended(&*it, now))
}

/// Judges Providers by how their last notifications ended. If that is not known, as after a restart, the Provider counts
/// neither as working nor as failing.
pub(super) fn judge(
    verdicts: &mut BTreeMap<ObjectId, ObjectFailureVerdict>,
    deliveries: &BTreeMap<ProviderKey, LastDeliveryOutcome>,
) {
    let group = Provider::group(&());
    let kind = Provider::kind(&());
    let providers = verdicts.iter_mut().filter(|(id, _)| id.group == group && id.kind == kind);
    for (id, verdict) in providers.filter(|(_, verdict)| verdict.own == ReportedObjectState::Well) {
        let key = ProviderKey { namespace: id.namespace.clone(), name: id.name.clone() };
        match deliveries.get(&key) {
            Some(LastDeliveryOutcome::Accepted | LastDeliveryOutcome::Replaced) => {}
            None => verdict.own = ReportedObjectState::Unclear,
            Some(LastDeliveryOutcome::Failed { since, message }) => {
                verdict.own = ReportedObjectState::Failing;
                verdict.since = Some(*since);
                verdict.is_own = true;
                verdict.failure = Some(RootFailure {
                    subject: id.clone(),
                    problem: CauseKind::Delivery,
                    cause: id.clone(),
                    reason: REASON.to_owned(),
                    text: message.clone(),
                    since: Some(*since),
                    is_waiting: false,
                    cycle: Vec::new(),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cause::incident::{IncidentRecord, incidents, is_over};
    use crds::windlass_notification::{IncidentSpec, IncidentSubject};
    use serde_json::json;

    use super::*;

    fn provider(is_suspended: bool) -> Provider {
        let spec = json!({"type": "slack", "suspend": is_suspended});
        let metadata = json!({"name": "chat", "namespace": "apps", "uid": "u"});
        let object = json!({"apiVersion": Provider::api_version(&()), "kind": "Provider",
            "metadata": metadata, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_provider_that_does_not_exist_or_is_suspended_is_not_judged() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        assert_eq!(judged_uid(Some(&provider(false)), now).as_deref(), Some("u"));
        assert_eq!(judged_uid(Some(&provider(true)), now), None);
        assert_eq!(judged_uid(None, now), None);
    }

    #[test]
    fn an_open_incident_has_nothing_judged_while_its_provider_is_suspended() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let of = |reason: &str, provider: Option<Provider>| {
            let subject = IncidentSubject {
                api_version: Provider::api_version(&()).into_owned(),
                kind: Provider::kind(&()).into_owned(),
                name: "chat".to_owned(),
                uid: None,
            };
            let id = ObjectId::new("apps", "chat", &Provider::group(&()), "Provider");
            let spec =
                IncidentSpec { subject, reason: reason.to_owned(), ..IncidentSpec::default() };
            let mut incident = Incident::new(&incident_store::name(&id, reason, ""), spec);
            incident.metadata.namespace = Some("apps".to_owned());
            is_at_rest(&incident, now, |_, _| provider.map(Arc::new))
        };
        assert!(of("Delivery", Some(provider(true))));
        assert!(!of("Delivery", Some(provider(false))), "it was resumed");
        assert!(!of("Delivery", None), "it was deleted, which ends the incident");
        assert!(!of("Fetch", Some(provider(true))));
    }

    #[test]
    fn a_provider_fails_until_its_service_accepts_a_notification() {
        let id =
            |name: &str| ObjectId::new("apps", name, "notification.toolkit.fluxcd.io", "Provider");
        let key = |name: &str| ProviderKey { namespace: "apps".to_owned(), name: name.to_owned() };
        let since = "2026-11-24T12:00:00Z".parse().unwrap();
        let failed = || LastDeliveryOutcome::Failed { since, message: "status 404".to_owned() };
        let deliveries = BTreeMap::from([
            (key("failing"), failed()),
            (key("suspended"), failed()),
            (key("well"), LastDeliveryOutcome::Accepted),
            (key("replaced"), LastDeliveryOutcome::Replaced),
        ]);
        let verdict = |own| ObjectFailureVerdict {
            own,
            since: None,
            failure: None,
            is_own: false,
            refers_to: None,
        };
        let mut verdicts = BTreeMap::from([
            (id("failing"), verdict(ReportedObjectState::Well)),
            (id("suspended"), verdict(ReportedObjectState::Paused)),
            (id("well"), verdict(ReportedObjectState::Well)),
            (id("replaced"), verdict(ReportedObjectState::Well)),
            (id("unknown"), verdict(ReportedObjectState::Well)),
        ]);
        judge(&mut verdicts, &deliveries);
        let found = incidents(&verdicts);
        let keys: Vec<_> = found.keys().cloned().collect();
        assert_eq!(keys, [(id("failing"), CauseKind::Delivery)]);
        let failure = &found[&keys[0]].failure;
        assert_eq!((failure.text.as_str(), failure.since), ("status 404", Some(since)));
        let ended = |name: &str| {
            let record = IncidentRecord {
                subject: &id(name),
                problem: "Delivery",
                cause: "",
                affected: &BTreeSet::new(),
                kept: None,
                are_all_judged: true,
            };
            is_over(&record, &verdicts, |_| true)
        };
        assert!(ended("well") && ended("deleted") && ended("replaced"));
        assert!(!ended("failing") && !ended("suspended"));
        assert!(!ended("unknown"), "the process was started again, and nothing was sent since");
    }
}
