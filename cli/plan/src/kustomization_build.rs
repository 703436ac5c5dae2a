//! Builds the objects of a Kustomization in the same way as the operator. The ConfigMaps and Secrets come from the repository
//! instead of a cluster.
//!
//! Elsewhere: building (`kustomize_controller::kustomization::validated_spec`), finding Kustomizations (`applier_discovery.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::KubeConfigReference;
use crds::kustomize::{DeletionPolicy, Kustomization};
use futures::executor::block_on;
use kustomize_controller::kustomization::build_inputs::KustomizationInputs;
use kustomize_controller::kustomization::validated_spec::{
    self, BuildRequest, DesiredKustomization, RemoteServerAccess,
};
use objects::{Object, ObjectId};
use parking_lot::Mutex;
use plan::{RenderedApplier, UnknownValue};
use reconcile::RunOutcome;
use sha2::{Digest as _, Sha256};
use tree::{MemoryTree, TreeAccessTrace};

use super::cluster_facts_file::ClusterFacts;
use super::remote_file_fetcher::{BuildRemoteBaseRules, RemoteFileFetcher};
use super::render_failure::RenderFailure;
use windlass_cluster::referenced_secrets_and_config_maps::{
    DeclaredConfigMapsAndSecrets, RunReferenceReads,
};
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_serve::settings::OperatorSettings;

/// The error for encrypted data, because this command has no keys.
const NO_SERVICES: &str = "this command decrypts nothing";

/// A Kustomization and its files.
pub(crate) struct KustomizationFiles<'b> {
    /// The Kustomization.
    pub(crate) object: &'b Kustomization,
    /// The artifact of its source.
    pub(crate) files: &'b MemoryTree,
    /// The revision of the files.
    pub(crate) revision: &'b str,
    /// The ConfigMaps and Secrets for variable substitution.
    pub(crate) references: Arc<DeclaredConfigMapsAndSecrets>,
    /// The known facts of the cluster.
    pub(crate) facts: &'b ClusterFacts,
}

/// A built Kustomization, and the inputs of the build.
struct KustomizationBuild {
    objects: Vec<Object>,
    unknown_values: Vec<UnknownValue>,
    /// The files that the build read, with their content.
    trace: TreeAccessTrace,
}

/// The builds of the base revision. The head reuses a build if neither the Kustomization nor its files have changed.
pub(crate) struct ReusableKustomizationBuilds {
    builds: Mutex<BTreeMap<String, Arc<KustomizationBuild>>>,
    /// The servers from which remote bases are fetched.
    servers: Arc<RemoteFileFetcher>,
}

impl ReusableKustomizationBuilds {
    /// Starts without any builds.
    pub(crate) fn new(servers: Arc<RemoteFileFetcher>) -> Self {
        Self { builds: Mutex::default(), servers }
    }

    /// Builds the objects of a Kustomization. If the build fails, the result contains the failure.
    pub(crate) fn build(
        &self,
        source: &KustomizationFiles<'_>,
        settings: &OperatorSettings,
    ) -> RenderedApplier {
        let begun = kustomization_applier(source.object, source.revision);
        match self.built(source, settings) {
            Ok(build) => RenderedApplier {
                objects: build.objects.clone(),
                unknown_values: build.unknown_values.clone(),
                ..begun
            },
            Err(failure) => failure.of_applier(begun),
        }
    }

    fn built(
        &self,
        source: &KustomizationFiles<'_>,
        settings: &OperatorSettings,
    ) -> Result<Arc<KustomizationBuild>, RenderFailure> {
        let failed = |outcome: RunOutcome| RenderFailure::Failed(outcome.text().to_owned());
        let KustomizationFiles { object, files, revision, references, facts } = source;
        let timeouts = validated_spec::check(&object.spec).map_err(failed)?;
        let mut references = RunReferenceReads::of_manifests(references.clone());
        // The manifests are already in memory, so this never waits.
        let inputs = block_on(KustomizationInputs::of_manifests(settings, object, &mut references));
        let inputs = inputs.map_err(failed)?;
        let undeclared: Vec<ObjectId> = references.undeclared().iter().cloned().collect();
        let key = key(object, &inputs.digest(), &undeclared);
        let known = self.builds.lock().get(&key).cloned();
        if let Some(known) = known.filter(|known| known.trace.is_same_in(*files)) {
            return Ok(known);
        }
        let request = BuildRequest { object, timeouts, files: *files, revision, inputs: &inputs };
        let bases = BuildRemoteBaseRules::new(&self.servers);
        let servers = RemoteServerAccess {
            bases: RemoteFileFetcher::base_access(&bases, settings),
            keys: KeyServiceAccess::Refused(NO_SERVICES),
        };
        let desired = validated_spec::desired(&request, servers, settings);
        let desired = desired.map_err(|outcome| bases.failure(outcome.text().to_owned()))?;
        let mut unknown_values = undeclared_values(&undeclared, facts);
        unknown_values.extend(unknown_variables(object, &inputs));
        unknown_values.extend(bases.notes());
        let DesiredKustomization { desired, trace, .. } = desired;
        let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
        let objects = manifests.map(|manifest| manifest.object.clone()).collect();
        let build = Arc::new(KustomizationBuild { objects, unknown_values, trace });
        self.builds.lock().insert(key, build.clone());
        Ok(build)
    }
}

/// Makes the applier of a Kustomization that is not built yet, with the revision of its source.
pub(crate) fn kustomization_applier(object: &Kustomization, revision: &str) -> RenderedApplier {
    let spec = &object.spec;
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    RenderedApplier {
        source_revision: revision.to_owned(),
        target_cluster: target_cluster(namespace, spec.kube_config.as_ref()),
        is_suspended: spec.suspend,
        prunes: spec.prune,
        deletes_with_itself: match spec.deletion_policy.unwrap_or_default() {
            DeletionPolicy::MirrorPrune => spec.prune,
            DeletionPolicy::Delete | DeletionPolicy::WaitForTermination => true,
            DeletionPolicy::Orphan => false,
        },
        forces: spec.force,
        ..RenderedApplier::default()
    }
}

/// The target cluster of an applier in a namespace. Empty for the applier's own cluster.
pub(crate) fn target_cluster(namespace: &str, reference: Option<&KubeConfigReference>) -> String {
    let Some(KubeConfigReference { config_map_ref, secret_ref }) = reference else {
        return String::new();
    };
    match (secret_ref, config_map_ref) {
        (Some(secret), _) => format!("that of Secret/{namespace}/{}", secret.name),
        (None, Some(map)) => format!("that of ConfigMap/{namespace}/{}", map.name),
        (None, None) => "that of spec.kubeConfig".to_owned(),
    }
}

/// A key of all inputs of a build except the files.
fn key(object: &Kustomization, inputs: &str, undeclared: &[ObjectId]) -> String {
    let mut hash = Sha256::new();
    let object = serde_json::to_string(object).unwrap_or_default();
    let undeclared: Vec<String> = undeclared.iter().map(ObjectId::subject).collect();
    for part in [object.as_str(), inputs, &undeclared.join("\n")] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

/// The ConfigMaps and Secrets whose values only the cluster knows.
fn undeclared_values(undeclared: &[ObjectId], facts: &ClusterFacts) -> Vec<UnknownValue> {
    let unknown = |id: &ObjectId| UnknownValue {
        what: id.subject(),
        reason: facts.unknown_reason(id, "spec.postBuild.substituteFrom"),
    };
    undeclared.iter().map(unknown).collect()
}

/// The parts of a build that only the cluster knows.
fn unknown_variables(object: &Kustomization, inputs: &KustomizationInputs) -> Vec<UnknownValue> {
    let reason = "no source that the repository declares has a value, so it stays as it is written";
    let names = inputs.unknown_variables().into_iter();
    let mut unknown: Vec<UnknownValue> = names
        .map(|name| UnknownValue {
            what: format!("variable ${{{name}}}"),
            reason: reason.to_owned(),
        })
        .collect();
    if object.spec.decryption.is_some() {
        unknown.push(UnknownValue {
            what: "values that SOPS encrypted".to_owned(),
            reason: "this command has no keys, so the ciphertext is compared".to_owned(),
        });
    }
    unknown
}
