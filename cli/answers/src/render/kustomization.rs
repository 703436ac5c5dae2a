//! Builds a Kustomization, from a local folder or from the artifact of its source.
//!
//! Elsewhere: building (`kustomize_controller::kustomization::validated_spec`), comparing with the cluster (`diff`).

use anyhow::{Context as _, ensure};
use apply::ManifestToApply;
use artifacts::archive::{ExtractOptions, extract};
use crds::kustomize::Kustomization;
use objects::Object;
use tree::{FileTree, RelPath};

use super::local_source_checkout::LocalSourceCheckout;
use super::{
    ArtifactDownload, BuildFilesOrigin, fetched, fetched_earlier, on_large_stack, outcome_error,
    references, typed,
};
use kustomize_controller::kustomization::build_inputs::KustomizationInputs;
use kustomize_controller::kustomization::cluster_scoped_namespace_removal::scoped;
use kustomize_controller::kustomization::validated_spec::{
    self, BuildRequest, DesiredKustomization, RemoteServerAccess,
};
use windlass_cluster::ClusterConnection;
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_runtime::shared_build_parts::remote_base_access::RemoteBaseAccess;
use windlass_serve::settings::OperatorSettings;

/// The error for bases on other servers.
const NO_BASES: &str = "remote bases are not fetched by this command";

/// The error for data keys that only a service can decrypt. Local files must not make this machine send the token of a Secret
/// anywhere.
const NO_SERVICES: &str = "this command decrypts with age and OpenPGP keys only";

/// A built Kustomization, and the inputs of the build.
pub struct KustomizationBuild {
    pub(crate) object: Kustomization,
    /// The built objects, and the strings in them that are secret.
    pub desired_kustomization: DesiredKustomization,
    pub(crate) settings: OperatorSettings,
}

impl KustomizationBuild {
    /// The built objects, in the order in which they are applied.
    pub fn manifests(&self) -> impl Iterator<Item = &ManifestToApply> {
        self.desired_kustomization.desired.stages.iter().flat_map(|stage| &stage.objects)
    }
}

type BoxedFileTree = Box<dyn FileTree + Send>;

/// Builds a Kustomization with the ConfigMaps and Secrets of the cluster.
///
/// # Errors
/// The Kustomization cannot be built, or it applies to another cluster.
pub async fn build(
    cluster: &ClusterConnection,
    object: Object,
    given: &BuildFilesOrigin,
    settings: OperatorSettings,
) -> anyhow::Result<KustomizationBuild> {
    let mut object: Kustomization = typed(object)?;
    let spec = &object.spec;
    ensure!(
        spec.kube_config.is_none(),
        "it is applied to the cluster of spec.kubeConfig, which this command does not read"
    );
    let timeouts = validated_spec::check(spec).map_err(outcome_error)?;
    let inputs = KustomizationInputs::read(&settings, &object, &mut references(cluster))
        .await
        .map_err(outcome_error)?;
    let path = spec.path.clone().unwrap_or_default();
    let (files, path, revision) = tree(cluster, given, &path).await?;
    if let Some(path) = path {
        object.spec.path = Some(path.as_str().to_owned());
    }
    let (desired_kustomization, object, settings) = on_large_stack(move || {
        let bases = RemoteBaseAccess::Refused(NO_BASES);
        let keys = KeyServiceAccess::Refused(NO_SERVICES);
        let servers = RemoteServerAccess { bases, keys };
        let request = BuildRequest {
            object: &object,
            timeouts,
            files: &*files,
            revision: &revision,
            inputs: &inputs,
        };
        let built = validated_spec::desired(&request, servers, &settings);
        (built, object, settings)
    })
    .await?;
    let desired_kustomization = desired_kustomization.map_err(outcome_error)?;
    let desired_kustomization =
        scoped(&desired_kustomization, cluster, &settings.custom_apply_stage_kinds)
            .await?
            .unwrap_or(desired_kustomization);
    Ok(KustomizationBuild { desired_kustomization, object, settings })
}

/// The files, the path of `spec.path` in them if it differs, and their revision.
async fn tree(
    cluster: &ClusterConnection,
    given: &BuildFilesOrigin,
    path: &str,
) -> anyhow::Result<(BoxedFileTree, Option<RelPath>, String)> {
    match given {
        BuildFilesOrigin::Local(folder) => {
            let (checkout, path) = LocalSourceCheckout::of(folder, path)?;
            Ok((Box::new(checkout), Some(path), String::new()))
        }
        BuildFilesOrigin::Source(source) => {
            of_artifact(fetched(cluster, source).await?, &source.subject()).await
        }
        BuildFilesOrigin::Earlier(earlier) => {
            let fetched = fetched_earlier(cluster, earlier).await?;
            of_artifact(fetched, &earlier.source.subject()).await
        }
    }
}

/// The files of an artifact, and their revision.
async fn of_artifact(
    fetched: ArtifactDownload,
    subject: &str,
) -> anyhow::Result<(BoxedFileTree, Option<RelPath>, String)> {
    let ArtifactDownload { bytes, revision, .. } = fetched;
    let extracted = on_large_stack(move || extract(bytes.as_slice(), &ExtractOptions::default()));
    let files = extracted.await?.with_context(|| format!("the artifact of {subject}"))?;
    Ok((Box::new(files), None, revision))
}
