//! Every source by kind and name, as the watches last saw it: what appliers and other sources read from.
//!
//! Elsewhere: the artifact's files (`controllers::artifact`), running the kinds (each its folder).

pub(crate) mod own;

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::Artifact;
use futures::future::{BoxFuture, FutureExt as _, join_all};
use kube::core::ResourceExt as _;
use reconcile::{Node, Reason, Rest, Wake};

use super::kept::ByType;
use super::namespaces::Namespaces;
use crate::cluster::kind::OurKind;
use crate::settings::Settings;

/// The API group of the sources.
pub(crate) const SOURCES: &str = "source.toolkit.fluxcd.io";

/// A kind whose artifacts others name.
pub(crate) trait Provider: OurKind + crds::Source {
    /// Whether its status tells of which generation of the spec it is: somebody of ours runs for it.
    const IS_RUN: bool = true;

    /// Why its artifact does not count as verified; nothing if it does.
    fn unverified(&self) -> Option<String> {
        Some(format!("windlass cannot verify a source of kind {}", Self::kind(&())))
    }

    /// Whether its artifact is in another process' store, and comes over HTTP.
    fn is_elsewhere(&self, settings: &Settings, _kept: &ByType) -> bool {
        !settings.selects(self.labels())
    }
}

/// The sources of one kind.
#[derive(Clone, Copy)]
struct OfKind {
    find: fn(&ByType, &Node, &Settings) -> Option<Found>,
    /// Returns once they were listed; false if the watch ended before.
    listed: fn(&ByType) -> BoxFuture<'_, bool>,
}

/// See the module.
pub(crate) struct Catalog {
    kept: Arc<ByType>,
    kinds: BTreeMap<String, OfKind>,
}

/// A source, as whoever reads from it needs to know it.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// Its artifact.
    pub(crate) artifact: Option<Artifact>,
    /// Why what its status names is not used as its artifact.
    pub(crate) denied: Option<String>,
    /// Whether its artifact is in another process' store, and comes over HTTP.
    pub(crate) is_elsewhere: bool,
    /// Why its artifact may not be what its spec says: the spec was changed since, or is wrong.
    pub(crate) not_current: Option<String>,
    /// Why its artifact does not count as verified; nothing if it does.
    pub(crate) unverified: Option<String>,
}

/// The policy of the namespace asks for sources that are verified.
pub(crate) const SOURCE_NOT_VERIFIED: Reason = Reason::new("SourceNotVerified");

impl Found {
    /// Checks that an applier of a namespace may apply the artifact, as the policy of the namespace says.
    ///
    /// # Errors
    /// The policy asks for sources that are verified, and this one is not; or the policy is not known.
    pub(crate) fn admit(&self, kept: &ByType, namespace: &str, source: &Node) -> Result<(), Rest> {
        if !kept.get::<Namespaces>().is_verified_only(namespace)? {
            return Ok(());
        }
        let Some(why) = &self.unverified else { return Ok(()) };
        let text = format!(
            "namespace {namespace} requires verified sources, and {source} is not verified: {why}"
        );
        Err(Rest::Blocked(SOURCE_NOT_VERIFIED, text, Wake::on([source.clone()])))
    }
}

/// Why the artifact of a source may not be what its spec says.
///
/// Parity(flux): helm-controller 1.6 `isHelmChartReady`; a Kustomization takes the last artifact whatever this says.
fn not_current<K: Provider>(object: &K) -> Option<String> {
    if !K::IS_RUN {
        return None;
    }
    let message = |kind: &str| object.condition(kind).map(|it| it.message.clone());
    if object.observed_generation() != object.meta().generation {
        let is_false = object.condition("Ready").is_some_and(|it| it.status == "False");
        let told = if is_false { message("Ready") } else { None };
        let text = match object.is_suspended() {
            true => "its spec was changed while it is suspended; resume it",
            false => "its latest generation has not been reconciled",
        };
        return Some(told.unwrap_or_else(|| text.to_owned()));
    }
    let is_stalled = object.condition("Stalled").is_some_and(|it| it.status == "True");
    if is_stalled { message("Stalled") } else { None }
}

/// What others have to know of a source that compare [`Found::not_current`].
pub(crate) fn currency<K: Provider>(object: &K) -> String {
    format!("{:?} {}", object.observed_generation(), not_current(object).is_none())
}

impl Catalog {
    /// A catalog of no kinds yet.
    pub(crate) fn new(kept: Arc<ByType>) -> Self {
        Self { kept, kinds: BTreeMap::new() }
    }

    /// Has the objects of a kind found.
    pub(crate) fn add<K: Provider>(&mut self) {
        let listed = |kept: &ByType| kept.listed::<K>().boxed();
        self.kinds.insert(K::kind(&()).into_owned(), OfKind { find: found::<K>, listed });
    }

    /// The source that a node stands for; `None` if there is none of that name, or if its kind is no source.
    ///
    /// What its status names is its artifact only if it can be its own.
    pub(crate) fn find(&self, node: &Node, settings: &Settings) -> Option<Found> {
        let kind = self.kinds.get(&node.kind)?;
        let mut found = (kind.find)(&self.kept, node, settings)?;
        if let Some(artifact) = &found.artifact
            && let Err(why) = own::check(node, artifact, found.is_elsewhere)
        {
            found = Found { artifact: None, denied: Some(why), ..found };
        }
        Some(found)
    }

    /// Returns when all kinds have listed their objects once: before, a source may only seem to be missing. `None` if the
    /// process ends before.
    pub(crate) async fn listed(&self) -> Option<()> {
        let all = join_all(self.kinds.values().map(|kind| (kind.listed)(&self.kept))).await;
        all.into_iter().all(|listed| listed).then_some(())
    }
}

fn found<K: Provider>(kept: &ByType, node: &Node, settings: &Settings) -> Option<Found> {
    let object = kept.seen::<K>(&node.namespace, &node.name)?;
    Some(Found {
        artifact: object.artifact().cloned(),
        not_current: not_current(&*object),
        unverified: object.unverified(),
        denied: None,
        is_elsewhere: object.is_elsewhere(settings, kept),
    })
}

#[cfg(test)]
mod tests {
    use crds::source::{ExternalArtifact, HelmChart};
    use serde_json::{Value, json};

    use super::*;

    fn source<K: serde::de::DeserializeOwned>(
        kind: &str,
        suspend: bool,
        generations: [i64; 2],
        conditions: &Value,
    ) -> K {
        let [generation, observed] = generations;
        let of = json!({"kind": "HelmRepository", "name": "r"});
        serde_json::from_value(json!({
            "apiVersion": format!("{SOURCES}/v1"), "kind": kind,
            "metadata": {"name": "s", "generation": generation},
            "spec": {"chart": "c", "interval": "1m", "suspend": suspend, "sourceRef": of},
            "status": {"observedGeneration": observed, "conditions": conditions},
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str) -> Value {
        json!([{"type": kind, "status": status, "reason": "R", "message": "said",
            "lastTransitionTime": "2026-11-01T00:00:00Z"}])
    }

    #[test]
    fn a_source_is_current_once_its_newest_generation_was_dealt_with() {
        let told = |suspend, generations, conditions: &Value| {
            not_current(&source::<HelmChart>("HelmChart", suspend, generations, conditions))
        };
        assert_eq!(told(false, [1, 1], &json!([])), None);
        assert_eq!(told(false, [1, 1], &condition("Ready", "False")), None, "a failure to refresh");
        assert_eq!(told(false, [1, 1], &condition("Stalled", "True")).as_deref(), Some("said"));
        assert_eq!(told(false, [2, 1], &condition("Ready", "False")).as_deref(), Some("said"));
        let text = "its latest generation has not been reconciled";
        assert_eq!(told(false, [2, 1], &condition("Ready", "True")).as_deref(), Some(text));
        let text = "its spec was changed while it is suspended; resume it";
        assert_eq!(told(true, [2, 1], &json!([])).as_deref(), Some(text));
        let external: ExternalArtifact = source("ExternalArtifact", false, [2, 1], &json!([]));
        assert_eq!(not_current(&external), None);
    }

    #[test]
    fn each_generation_that_is_dealt_with_is_announced() {
        let announced = |generations| {
            currency(&source::<HelmChart>("HelmChart", false, generations, &json!([])))
        };
        assert_ne!(announced([1, 1]), announced([2, 1]));
        assert_ne!(announced([1, 1]), announced([2, 2]));
    }
}
