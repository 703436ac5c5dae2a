//! Posts events like a controller that offers its artifacts as ExternalArtifacts.

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::objects::KIND;

/// How many events are posted at once. Each of several controllers would post one after the other.
const AT_ONCE: usize = 8;

/// How many objects the events are about.
const EVENT_OBJECT_COUNT: usize = 100;

/// A client that posts events.
pub(super) struct EventPostingClient {
    client: reqwest::Client,
    url: String,
    namespace: String,
}

impl EventPostingClient {
    /// A client for an address. The events are about objects of a namespace.
    pub(super) fn new(address: &str, namespace: &str) -> Self {
        let url = format!("http://{address}/");
        Self { client: reqwest::Client::new(), url, namespace: namespace.to_owned() }
    }

    /// Posts events with different messages, so that none counts as a repetition.
    ///
    /// # Errors
    /// An event is not accepted.
    pub(super) async fn post_all(&self, count: usize) -> anyhow::Result<()> {
        let post =
            |number| self.post(number, format!("made the artifact of revision 1.{number}.0"));
        let posted = futures::stream::iter(0..count).map(post).buffer_unordered(AT_ONCE);
        posted.try_collect().await
    }

    /// Posts a probe, which differs from all other events.
    ///
    /// # Errors
    /// The probe is not accepted.
    pub(super) async fn post_probe(&self, number: usize) -> anyhow::Result<()> {
        self.post(number, format!("probe {number}")).await
    }

    async fn post(&self, number: usize, message: String) -> anyhow::Result<()> {
        let event = event(&self.namespace, number, &message);
        let status = self.client.post(&self.url).json(&event).send().await?.status();
        ensure!(status == 202, "an event was answered with {status}");
        Ok(())
    }
}

fn event(namespace: &str, number: usize, message: &str) -> Value {
    let name = format!("app-{:03}", number % EVENT_OBJECT_COUNT);
    json!({
        "involvedObject": {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": KIND, "name": name,
            "namespace": namespace, "uid": format!("00000000-0000-0000-0000-{number:012}")},
        "severity": "info", "timestamp": "2026-01-02T03:04:05Z", "message": message,
        "reason": "Succeeded", "reportingController": "artifact-controller",
        "reportingInstance": "artifact-controller-1",
        "metadata": {"source.toolkit.fluxcd.io/revision": format!("1.{number}.0"),
            "event.toolkit.fluxcd.io/cluster": "bench"},
    })
}
