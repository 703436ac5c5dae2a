//! Every source by kind and name, as the watches last saw it: what appliers and other sources read from.
//!
//! Elsewhere: the artifact's files (`controllers::artifact`), running the kinds (each its folder).

use std::sync::Arc;

use crds::Artifact;
use crds::source::{
    Bucket, ExternalArtifact, GitRepository, HelmChart, HelmRepository, OCIRepository,
};
use crds::windlass::HTTPArchive;
use crds::{Reconciled, Source as _};
use kube::core::{Resource as _, ResourceExt as _};
use kube::runtime::reflector::store::{Writer, WriterDropped};
use kube::runtime::reflector::{self, ObjectRef, Store};
use reconcile::Node;

use crate::cluster::status::OurKind;
use crate::controllers::artifact::own;
use crate::settings::Settings;

/// The API group of the sources.
pub(crate) const SOURCES: &str = "source.toolkit.fluxcd.io";

/// See the module.
pub(crate) struct Catalog {
    pub(crate) buckets: Store<Bucket>,
    pub(crate) external_artifacts: Store<ExternalArtifact>,
    pub(crate) git_repositories: Store<GitRepository>,
    pub(crate) helm_charts: Store<HelmChart>,
    pub(crate) helm_repositories: Store<HelmRepository>,
    pub(crate) http_archives: Store<HTTPArchive>,
    pub(crate) oci_repositories: Store<OCIRepository>,
}

/// What fills a [`Catalog`].
pub(crate) struct Writers {
    pub(crate) buckets: Writer<Bucket>,
    pub(crate) external_artifacts: Writer<ExternalArtifact>,
    pub(crate) git_repositories: Writer<GitRepository>,
    pub(crate) helm_charts: Writer<HelmChart>,
    pub(crate) helm_repositories: Writer<HelmRepository>,
    pub(crate) http_archives: Writer<HTTPArchive>,
    pub(crate) oci_repositories: Writer<OCIRepository>,
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
}

/// Why the artifact of a source may not be what its spec says.
///
/// Parity(flux): helm-controller 1.6 `isHelmChartReady`; a Kustomization takes the last artifact whatever this says.
fn not_current<K: OurKind + Reconciled>(object: &K) -> Option<String> {
    // Nobody runs for one, so nothing says which generation it speaks of.
    if K::kind(&()) == ExternalArtifact::kind(&()) {
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
pub(crate) fn currency<K: OurKind + Reconciled>(object: &K) -> String {
    format!("{:?} {}", object.observed_generation(), not_current(object).is_none())
}

impl Catalog {
    /// A catalog without anything in it, and what fills it.
    pub(crate) fn new() -> (Self, Writers) {
        let (buckets, bucket_writer) = reflector::store();
        let (external_artifacts, external_writer) = reflector::store();
        let (git_repositories, git_writer) = reflector::store();
        let (helm_charts, chart_writer) = reflector::store();
        let (helm_repositories, helm_writer) = reflector::store();
        let (http_archives, http_writer) = reflector::store();
        let (oci_repositories, oci_writer) = reflector::store();
        let writers = Writers {
            buckets: bucket_writer,
            external_artifacts: external_writer,
            git_repositories: git_writer,
            helm_charts: chart_writer,
            helm_repositories: helm_writer,
            http_archives: http_writer,
            oci_repositories: oci_writer,
        };
        let catalog = Self {
            buckets,
            external_artifacts,
            git_repositories,
            helm_charts,
            helm_repositories,
            http_archives,
            oci_repositories,
        };
        (catalog, writers)
    }

    /// The source that a node stands for; `None` if there is none of that name, or if its kind is no source.
    ///
    /// What its status names is its artifact only if it can be its own.
    pub(crate) fn find(&self, node: &Node, settings: &Settings) -> Option<Found> {
        let mut found = self.named(node, settings)?;
        if let Some(artifact) = &found.artifact
            && let Err(why) = own::check(node, artifact, found.is_elsewhere)
        {
            found = Found { artifact: None, denied: Some(why), ..found };
        }
        Some(found)
    }

    fn named(&self, node: &Node, settings: &Settings) -> Option<Found> {
        match node.kind.as_str() {
            "ExternalArtifact" => {
                let mut found = found(&self.external_artifacts, node, settings)?;
                found.is_elsewhere &= !self.is_offered(node, &found, settings);
                Some(found)
            }
            "Bucket" => found(&self.buckets, node, settings),
            "GitRepository" => found(&self.git_repositories, node, settings),
            "HelmChart" => found(&self.helm_charts, node, settings),
            "HelmRepository" => found(&self.helm_repositories, node, settings),
            "OCIRepository" => found(&self.oci_repositories, node, settings),
            _ => None,
        }
    }

    /// Whether what an ExternalArtifact says is the artifact of an HTTPArchive of this process.
    fn is_offered(&self, node: &Node, found: &Found, settings: &Settings) -> bool {
        let named = ObjectRef::new(&node.name).within(&node.namespace);
        let Some(object) = self.http_archives.get(&named) else { return false };
        let place = |artifact: &Artifact| (artifact.path.clone(), artifact.digest.clone());
        settings.selects(object.labels())
            && found.artifact.is_some()
            && object.artifact().map(place) == found.artifact.as_ref().map(place)
    }

    /// Returns when all kinds of Flux have listed their objects once; ours need not be installed.
    ///
    /// # Errors
    /// The watches ended before.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), WriterDropped> {
        self.buckets.wait_until_ready().await?;
        self.external_artifacts.wait_until_ready().await?;
        self.git_repositories.wait_until_ready().await?;
        self.helm_charts.wait_until_ready().await?;
        self.helm_repositories.wait_until_ready().await?;
        self.oci_repositories.wait_until_ready().await
    }
}

fn found<K: OurKind + crds::Source>(
    store: &Store<K>,
    node: &Node,
    settings: &Settings,
) -> Option<Found> {
    let object: Arc<K> = store.get(&ObjectRef::new(&node.name).within(&node.namespace))?;
    // Parity(flux): nobody runs for an ExternalArtifact, so its files are always with whoever wrote it.
    let is_foreign = K::kind(&()) == ExternalArtifact::kind(&());
    Some(Found {
        artifact: object.artifact().cloned(),
        not_current: not_current(&*object),
        denied: None,
        is_elsewhere: is_foreign || !settings.selects(object.labels()),
    })
}

#[cfg(test)]
mod tests {
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
