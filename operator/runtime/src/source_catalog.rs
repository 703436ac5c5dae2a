//! The catalog of all sources, by kind and name, as the watches last saw them. Appliers and other sources read it.
//!
//! Elsewhere: the files of an artifact (`artifact_files`), and the runs of sources (their crates).

pub mod artifact_owner;
pub mod verification_record;

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::{Artifact, ArtifactSource as _, ReconciledObject as _};
use futures::future::{BoxFuture, FutureExt as _, join_all};
use kube_core::{Resource as _, ResourceExt as _};
use reconcile::{ConditionReason, NextRunTrigger, ObjectKey, RunOutcome};

use artifacts::store::{ArtifactStore, ObjectFolder};
use verification_record::StoredVerificationRecord;
use windlass_cluster::namespace_policies::NamespacePolicies;
use windlass_cluster::object_store::TypeMap;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_serve::settings::OperatorSettings;

/// The API group of the sources.
pub const SOURCES: &str = "source.toolkit.fluxcd.io";

/// A kind of source, whose artifacts other objects use. The type that runs the kind implements it.
pub trait CatalogSourceKind {
    /// The Kubernetes kind of the sources that the catalog reads.
    type Object: WindlassKind + crds::ArtifactSource;

    /// Whether windlass runs the kind, so that its status has an `observedGeneration`.
    const IS_RUN: bool = true;

    /// The reason why an object's artifact does not count as verified. `None` if it does.
    fn unverified(_object: &Self::Object) -> Option<String> {
        Some(format!("windlass cannot verify a source of kind {}", Self::Object::kind(&())))
    }

    /// Whether the artifact is in another process's store and has to be downloaded.
    fn is_elsewhere(object: &Self::Object, settings: &OperatorSettings, _kept: &TypeMap) -> bool {
        !settings.selects(object.labels())
    }
}

/// The functions that find the sources of one kind.
#[derive(Clone, Copy)]
struct SourceKindLookup {
    find: fn(&TypeMap, &ObjectKey, &OperatorSettings) -> Option<SourceSnapshot>,
    /// Waits until the objects of the kind were listed. Returns false if the watch ended before.
    listed: fn(&TypeMap) -> BoxFuture<'_, bool>,
}

/// The catalog of all sources.
pub struct SourceCatalog {
    kept: Arc<TypeMap>,
    kinds: BTreeMap<String, SourceKindLookup>,
}

/// The facts about a source that other objects need.
#[derive(Debug, Clone)]
pub struct SourceSnapshot {
    /// The artifact of the source.
    pub artifact: Option<Artifact>,
    /// The reason why the artifact in the status is refused as another object's artifact.
    pub denied: Option<String>,
    /// Whether the artifact is in another process's store and has to be downloaded.
    pub is_elsewhere: bool,
    /// The reason why the artifact may not match the spec, because the spec has changed or is wrong.
    pub not_current: Option<String>,
    /// The reason why the artifact does not count as verified, by the status. `None` if it does.
    pub(crate) unverified: Option<String>,
    /// The uid of the source, and the generation of its spec.
    pub(crate) identity: (Option<String>, Option<i64>),
}

/// The reason of a condition: the namespace requires verified sources.
pub const SOURCE_NOT_VERIFIED: ConditionReason = ConditionReason::new("SourceNotVerified");

impl SourceSnapshot {
    /// Checks that the policy of a namespace lets its appliers apply the artifact.
    ///
    /// # Errors
    /// The policy requires verified sources and this one is not verified. Or the policy is not known.
    pub fn admit(
        &self,
        kept: &TypeMap,
        store: &ArtifactStore,
        namespace: &str,
        source: &ObjectKey,
    ) -> Result<(), RunOutcome> {
        if !kept.get::<NamespacePolicies>().is_verified_only(namespace)? {
            return Ok(());
        }
        let why = self.unverified.clone().or_else(|| self.unproven(store, source));
        let Some(why) = why else { return Ok(()) };
        let text = format!(
            "namespace {namespace} requires verified sources, and {source} is not verified: {why}"
        );
        Err(RunOutcome::Blocked(SOURCE_NOT_VERIFIED, text, NextRunTrigger::on([source.clone()])))
    }

    /// The reason why the store does not prove that the artifact was verified. `None` if it does. The status is no proof,
    /// because Flux's role for editors lets users write it.
    fn unproven(&self, store: &ArtifactStore, source: &ObjectKey) -> Option<String> {
        // Without an artifact, nothing is applied.
        let artifact = self.artifact.as_ref()?;
        if self.is_elsewhere {
            return Some(
                "its artifact is in the store of another process, which alone can prove that it was verified; \
                 have the source reconciled by the same windlass"
                    .to_owned(),
            );
        }
        let slot = ObjectFolder::new(&source.kind, &source.namespace, &source.name).ok();
        // The record is a small file, so it is read on this thread.
        let proof = slot.and_then(|slot| StoredVerificationRecord::read(store, &slot));
        let (uid, generation) = &self.identity;
        let is_of =
            |proof: StoredVerificationRecord| proof.is_of(artifact, uid.as_deref(), *generation);
        let is_proven = proof.is_some_and(is_of);
        (!is_proven)
            .then(|| "windlass has not verified its artifact for its latest generation".to_owned())
    }
}

/// The reason why the artifact of a source may not match its spec. `None` if it does.
///
/// Parity(flux): helm-controller 1.6 `isHelmChartReady`; a Kustomization takes the last artifact without this check.
fn not_current<K: CatalogSourceKind>(object: &K::Object) -> Option<String> {
    if !K::IS_RUN {
        return None;
    }
    let message = |kind: &str| object.condition(kind).map(|it| it.message.clone());
    if object.observed_generation() != object.meta().generation {
        let is_false = object.condition("Ready").is_some_and(|it| it.status == "False");
        let ready_message = if is_false { message("Ready") } else { None };
        let text = match object.is_suspended() {
            true => "its spec was changed while it is suspended; resume it",
            false => "its latest generation has not been reconciled",
        };
        return Some(ready_message.unwrap_or_else(|| text.to_owned()));
    }
    let is_stalled = object.condition("Stalled").is_some_and(|it| it.status == "True");
    if is_stalled { message("Stalled") } else { None }
}

/// A string that changes together with [`SourceSnapshot::not_current`]. Objects that check this depend on the string.
pub fn currency<K: CatalogSourceKind>(object: &K::Object) -> String {
    format!("{:?} {}", object.observed_generation(), not_current::<K>(object).is_none())
}

impl SourceCatalog {
    /// A catalog of sources that has no kinds yet.
    pub fn new(kept: Arc<TypeMap>) -> Self {
        Self { kept, kinds: BTreeMap::new() }
    }

    /// Adds a kind to the catalog.
    pub fn add<K: CatalogSourceKind>(&mut self) {
        let listed = |kept: &TypeMap| kept.listed::<K::Object>().boxed();
        self.kinds.insert(
            K::Object::kind(&()).into_owned(),
            SourceKindLookup { find: found::<K>, listed },
        );
    }

    /// The source with this key in the dependency graph. `None` if no such source exists, or its kind is not a source.
    ///
    /// The artifact in the status counts only if its path or URL belongs to this object.
    pub fn find(&self, node: &ObjectKey, settings: &OperatorSettings) -> Option<SourceSnapshot> {
        let kind = self.kinds.get(&node.kind)?;
        let mut found = (kind.find)(&self.kept, node, settings)?;
        if let Some(artifact) = &found.artifact
            && let Err(why) = artifact_owner::check(node, artifact, found.is_elsewhere)
        {
            found = SourceSnapshot { artifact: None, denied: Some(why), ..found };
        }
        Some(found)
    }

    /// Waits until the objects of all kinds were listed, because before that a source may only seem to be missing. `None` if
    /// the process ends before.
    pub async fn listed(&self) -> Option<()> {
        let all = join_all(self.kinds.values().map(|kind| (kind.listed)(&self.kept))).await;
        all.into_iter().all(|listed| listed).then_some(())
    }
}

fn found<K: CatalogSourceKind>(
    kept: &TypeMap,
    node: &ObjectKey,
    settings: &OperatorSettings,
) -> Option<SourceSnapshot> {
    let object = kept.seen::<K::Object>(&node.namespace, &node.name)?;
    Some(SourceSnapshot {
        artifact: object.artifact().cloned(),
        not_current: not_current::<K>(&object),
        unverified: K::unverified(&object),
        identity: (object.uid(), object.meta().generation),
        denied: None,
        is_elsewhere: K::is_elsewhere(&object, settings, kept),
    })
}

#[cfg(test)]
mod tests {
    use crds::source::{ExternalArtifact, HelmChart};
    use serde_json::{Value, json};

    use super::*;

    struct HelmChartProvider;

    impl CatalogSourceKind for HelmChartProvider {
        type Object = HelmChart;
    }

    struct ExternalArtifactProvider;

    impl CatalogSourceKind for ExternalArtifactProvider {
        type Object = ExternalArtifact;

        const IS_RUN: bool = false;
    }

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
        let reason_of = |suspend, generations, conditions: &Value| {
            not_current::<HelmChartProvider>(&source::<HelmChart>(
                "HelmChart",
                suspend,
                generations,
                conditions,
            ))
        };
        assert_eq!(reason_of(false, [1, 1], &json!([])), None);
        assert_eq!(
            reason_of(false, [1, 1], &condition("Ready", "False")),
            None,
            "a failure to refresh"
        );
        assert_eq!(
            reason_of(false, [1, 1], &condition("Stalled", "True")).as_deref(),
            Some("said")
        );
        assert_eq!(reason_of(false, [2, 1], &condition("Ready", "False")).as_deref(), Some("said"));
        let text = "its latest generation has not been reconciled";
        assert_eq!(reason_of(false, [2, 1], &condition("Ready", "True")).as_deref(), Some(text));
        let text = "its spec was changed while it is suspended; resume it";
        assert_eq!(reason_of(true, [2, 1], &json!([])).as_deref(), Some(text));
        let external: ExternalArtifact = source("ExternalArtifact", false, [2, 1], &json!([]));
        assert_eq!(not_current::<ExternalArtifactProvider>(&external), None);
    }

    #[test]
    fn an_artifact_is_verified_only_if_the_store_says_so_too() {
        let folder = tempfile::tempdir().unwrap();
        let store =
            ArtifactStore::open(folder.path(), artifacts::store::StoreOptions::default()).unwrap();
        let node = ObjectKey::new(SOURCES, "GitRepository", "shop", "app");
        let artifact = |digest: &str| -> Artifact {
            serde_json::from_value(
                json!({"path": "gitrepository/shop/app/1.tar.gz", "url": "http://h/1",
                "digest": digest, "revision": "1", "lastUpdateTime": "2026-01-01T00:00:00Z"}),
            )
            .unwrap()
        };
        // The status claims that the artifact is verified.
        let found = |digest: &str, uid: &str, generation: i64, is_elsewhere: bool| SourceSnapshot {
            artifact: Some(artifact(digest)),
            denied: None,
            is_elsewhere,
            not_current: None,
            unverified: None,
            identity: (Some(uid.to_owned()), Some(generation)),
        };
        let right = found("sha256:1", "u", 2, false);
        assert!(right.unproven(&store, &node).is_some(), "there is no note");
        let slot = ObjectFolder::new("gitrepository", "shop", "app").unwrap();
        let proof = StoredVerificationRecord {
            digest: "sha256:1".to_owned(),
            uid: Some("u".to_owned()),
            generation: Some(2),
            is_signed: true,
            verified: json!({}),
        };
        proof.keep(&store, &slot).unwrap();
        assert_eq!(right.unproven(&store, &node), None);
        for forged in [
            found("sha256:2", "u", 2, false),
            found("sha256:1", "v", 2, false),
            found("sha256:1", "u", 3, false),
            found("sha256:1", "u", 2, true),
        ] {
            assert!(forged.unproven(&store, &node).is_some(), "{forged:?}");
        }
        StoredVerificationRecord { is_signed: false, ..proof }.keep(&store, &slot).unwrap();
        assert!(right.unproven(&store, &node).is_some(), "the policy demands no signature");
        store.keep_note(&slot, br#"{"digest":"sha256:1","verified":{}}"#).unwrap();
        assert!(right.unproven(&store, &node).is_some(), "a note of an older windlass");
    }

    #[test]
    fn each_generation_that_is_dealt_with_is_announced() {
        let announced = |generations| {
            currency::<HelmChartProvider>(&source::<HelmChart>(
                "HelmChart",
                false,
                generations,
                &json!([]),
            ))
        };
        assert_ne!(announced([1, 1]), announced([2, 1]));
        assert_ne!(announced([1, 1]), announced([2, 2]));
    }
}
