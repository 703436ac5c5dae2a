//! Watches: our own kinds in full, everything else by its metadata.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher::watcher};

use super::Cluster;
use super::discovery::Resource;
use super::status::OurKind;

/// What a watch of other objects sees: their metadata.
pub(crate) type Sighting = Event<PartialObjectMeta<DynamicObject>>;

/// What to watch among the objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Selection {
    /// Those that carry a label, in every namespace.
    Labelled(&'static str),
    /// One, by namespace (empty for cluster-scoped kinds) and name.
    Named(String, String),
    /// All of them.
    All,
}

impl Cluster {
    /// Every object of a kind of ours, from now until the process ends. Errors are retried with growing delays.
    pub(crate) fn watch_ours<K: OurKind>(
        &self,
        namespace: Option<&str>,
    ) -> impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + use<K> {
        let api: Api<DeserializeGuard<K>> = match namespace {
            Some(namespace) => Api::namespaced(self.watching.clone(), namespace),
            None => Api::all(self.watching.clone()),
        };
        let guarded = watcher(api, watcher::Config::default()).backoff(Backoff::default());
        guarded.filter_map(|event| async { event.map(understood).transpose() }).boxed()
    }

    /// Metadata of the selected objects of a kind.
    pub(crate) fn watch_metadata(
        &self,
        resource: &Resource,
        selection: &Selection,
    ) -> impl Stream<Item = Result<Sighting, watcher::Error>> + Send + use<> {
        let kind = resource.to_kube();
        let everywhere = || Api::all_with(self.watching.clone(), &kind);
        let config = watcher::Config::default();
        // kube asks for metadata only because the type of the objects is their metadata.
        let (api, config): (Api<PartialObjectMeta<DynamicObject>>, _) = match selection {
            Selection::Labelled(label) => (everywhere(), config.labels(label)),
            Selection::All => (everywhere(), config),
            Selection::Named(namespace, name) => {
                let api = if namespace.is_empty() {
                    everywhere()
                } else {
                    Api::namespaced_with(self.watching.clone(), namespace, &kind)
                };
                (api, config.fields(&format!("metadata.name={name}")))
            }
        };
        watcher(api, config).backoff(Backoff::default())
    }
}

/// An event about an object that we can read; one that we cannot is told and keeps nobody else.
fn understood<K: OurKind>(event: Event<DeserializeGuard<K>>) -> Option<Event<K>> {
    let read = |guarded: DeserializeGuard<K>| match guarded.0 {
        Ok(object) => Some(object),
        Err(error) => {
            let name = error.metadata.name.unwrap_or_default();
            let namespace = error.metadata.namespace.unwrap_or_default();
            let kind = K::kind(&());
            let error = error.error.to_string();
            tracing::error!(controller_kind = %kind, name, namespace, error, "object cannot be read and is left alone");
            None
        }
    };
    Some(match event {
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::Delete(object) => Event::Delete(read(object)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

/// Delays between attempts at a watch that fails: 200 ms doubling to 10 s, with nothing random.
#[derive(Debug, Clone)]
pub(crate) struct Backoff(Duration);

const FIRST_DELAY: Duration = Duration::from_millis(200);
/// Short, so that the end of a long outage is noticed soon.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_DELAY)
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.0;
        self.0 = (delay * 2).min(LONGEST_DELAY);
        Some(delay)
    }
}

impl kube::runtime::utils::Backoff for Backoff {
    fn reset(&mut self) {
        self.0 = FIRST_DELAY;
    }
}
