//! Records Kubernetes Events as Flux's controllers do. They are core/v1 Events, so that `flux events` finds them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, PostParams};

use super::ClusterConnection;
use crate::events::{EventObject, EventRecord, EventSeverity, EventSink};

/// The longest message of a core/v1 Event.
const MESSAGE_LIMIT: usize = 1024;

/// The pause after each Event, so that a record of many changes does not slow down the changes that follow.
const EVENT_WRITE_DELAY: Duration = Duration::from_millis(4);

/// An event sink that records Kubernetes Events in a cluster.
pub struct KubernetesEventRecorder {
    client: kube::Client,
}

impl ClusterConnection {
    /// An event sink that records Kubernetes Events in this cluster.
    pub fn recorder(&self) -> KubernetesEventRecorder {
        KubernetesEventRecorder { client: self.unary.clone() }
    }
}

impl EventSink for KubernetesEventRecorder {
    const NAME: &'static str = "kubernetes";
    /// The controller that posts an event has also recorded it.
    const TAKES_POSTED: bool = false;

    async fn tell(&mut self, record: &EventRecord, is_last: bool) {
        let EventObject { namespace, name, .. } = &record.about;
        let api: Api<CoreEvent> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = api.create(&PostParams::default(), &recorded(record)).await {
            tracing::info!(name, namespace, error = %error, "failed to record event");
        }
        if !is_last {
            tokio::time::sleep(EVENT_WRITE_DELAY).await;
        }
    }
}

/// An event as a core/v1 Event.
fn recorded(record: &EventRecord) -> CoreEvent {
    let EventRecord { about, event, at, controller, instance, .. } = record;
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let severity = match event.severity {
        EventSeverity::Info => "Normal",
        EventSeverity::Error => "Warning",
    };
    CoreEvent {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", about.name, at.as_nanosecond())),
            namespace: Some(about.namespace.clone()),
            annotations: Some(event.metadata.clone()).filter(|it| !it.is_empty()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: given(&about.api_version),
            kind: given(&about.kind),
            name: given(&about.name),
            namespace: given(&about.namespace),
            resource_version: given(&about.resource_version),
            uid: given(&about.uid),
            ..ObjectReference::default()
        },
        reason: Some(event.reason.clone()),
        message: Some(shortened(event.message.clone())),
        type_: Some(severity.to_owned()),
        first_timestamp: Some(Time(*at)),
        last_timestamp: Some(Time(*at)),
        count: Some(1),
        source: Some(EventSource { component: Some(controller.to_string()), host: None }),
        reporting_component: Some(controller.to_string()),
        reporting_instance: Some(instance.to_string()),
        ..CoreEvent::default()
    }
}

/// A message cut to the longest length of a core/v1 Event. Other sinks get the whole text.
fn shortened(mut message: String) -> String {
    const CUT: &str = " ...";
    if message.len() > MESSAGE_LIMIT {
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT - CUT.len()));
        message.push_str(CUT);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::tests::announcement;

    #[test]
    fn an_event_is_recorded_as_flux_records_it() {
        let record = announcement("no such file");
        let event = serde_json::to_value(recorded(&record)).unwrap();
        assert_eq!(event["metadata"]["name"], "app.1886caf244ffa780");
        assert_eq!(event["metadata"]["namespace"], "apps");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["involvedObject"]["resourceVersion"], "7");
        assert_eq!(event["source"]["component"], "kustomize-controller");
        let revision = &event["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/revision"];
        assert_eq!(revision, "main@sha1:1");
    }

    #[test]
    fn a_message_is_cut_for_a_core_event_between_characters_and_no_other_is() {
        let fits = "ä".repeat(MESSAGE_LIMIT / 2);
        assert_eq!(shortened(fits.clone()), fits);
        let cut = shortened(format!("x{fits}"));
        assert!(cut.len() <= MESSAGE_LIMIT && cut.ends_with("ä ..."), "{cut}");
    }
}
