//! Asks a registry for a digest, pulls the layer, and turns failures into outcomes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::sync::Arc;

use artifacts::archive::{self, ExtractOptions};
use artifacts::store::{ArtifactStore, NeededArtifact};
use crds::source::{OCIRepository, OCIRepositoryStatus};
use jiff::Timestamp;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};
use signatures::image_verification::{self, acceptance};
use sources::oci::{
    Error, FetchedLayer, ManifestReference, OciDigest, RegistrySession, RegistrySessionCache,
    RemoteOciRepository, TagSelection, chart,
};
use sources::source_condition_reasons::{
    OCI_LAYER_OPERATION_FAILED, OCI_PULL_FAILED, READ_OPERATION_FAILED, VERIFICATION_ERROR,
};

use super::artifact_file_selection::{contents, write};
use super::signed_version;
use crate::image_trust::{ImageTrustError, ImageVerificationPolicy, signer};
use crate::source::artifact_verification_record::VerificationRecord;
use crate::source::executor::{RemoteRevision, SourceRun, StoredArtifact, keep};
use crate::source::needed_artifact_refetch::keep_again;
use crate::source::{LATEST_ARCHIVE, linked};
use windlass_cluster::error::chain;
use windlass_runtime::artifact_files::ORIGIN_REVISION;
use windlass_runtime::blocking_task::blocking;

/// Parity(flux): the annotation of the image whose value events have beside the revision.
const SOURCE: &str = "org.opencontainers.image.source";

/// The artifact to pull, and the settings for it.
pub(crate) struct OciFetchSpec {
    pub(super) remote: RemoteOciRepository,
    pub(super) wanted: OciReferenceSelector,
    pub(super) media_type: Option<String>,
    /// Whether the layer is stored unchanged.
    pub(super) is_copied: bool,
    /// The keys of the required signatures. `None` if the spec requires no signatures.
    pub(super) signed: Option<ImageVerificationPolicy>,
}

/// The reference of the artifact.
#[derive(Debug)]
pub(super) enum OciReferenceSelector {
    One(ManifestReference),
    Highest(TagSelection),
}

/// The revision that the registry has now.
pub(crate) struct OciLookupResult {
    digest: OciDigest,
    revision: String,
    /// The tag in the registry, unless the spec names a digest.
    tag: Option<String>,
}

/// What a failure means for the object; Parity(flux): `what` stands before the cause.
fn failed(why: ConditionReason, what: &str, error: &Error) -> RunOutcome {
    let wake = error.retry_at(Timestamp::now()).map(NextRunTrigger::at).unwrap_or_default();
    let text = if what.is_empty() { chain(error) } else { format!("{what}: {}", chain(error)) };
    RunOutcome::Failed(why, text, wake)
}

fn client<'w>(
    work: &'w OciFetchSpec,
    known: &'w RegistrySessionCache,
    url: &str,
) -> Result<RegistrySession<'w>, RunOutcome> {
    let what = super::referenced_objects::transport(url);
    RegistrySession::new(&work.remote, known)
        .map_err(|error| super::referenced_objects::unusable(&what, &error.to_string()))
}

/// Asks for the revision that the registry has now. A digest needs no request, a tag needs one, and a range of versions also
/// needs all pages of tags.
pub(super) async fn ask(
    run: &SourceRun<OCIRepository>,
) -> Result<RemoteRevision<OciLookupResult>, RunOutcome> {
    let found = resolve_tag(&run.work, &run.context.remotes.oci, &run.object.spec.url).await?;
    Ok(RemoteRevision { revision: found.revision.clone(), found })
}

async fn resolve_tag(
    work: &OciFetchSpec,
    known: &RegistrySessionCache,
    url: &str,
) -> Result<OciLookupResult, RunOutcome> {
    let client = client(work, known, url)?;
    let reference = match &work.wanted {
        OciReferenceSelector::One(reference) => reference.clone(),
        OciReferenceSelector::Highest(selection) => {
            let what = format!("failed to determine the artifact tag for '{url}'");
            let tags = client.tags().await;
            tags.and_then(|tags| selection.choose(&tags))
                .map_err(|error| failed(READ_OPERATION_FAILED, &what, &error))?
        }
    };
    let digest = client.resolve(&reference).await;
    let digest = digest
        .map_err(|error| failed(OCI_PULL_FAILED, "failed to determine artifact digest", &error))?;
    let revision = reference.revision(&digest);
    let tag = match reference {
        ManifestReference::Tag(tag) => Some(tag),
        ManifestReference::Digest(_) => None,
    };
    Ok(OciLookupResult { digest, revision, tag })
}

/// Pulls the artifact with the digest that was found, after it is verified, and stores it.
pub(super) async fn fetch(
    run: &Arc<SourceRun<OCIRepository>>,
    found: OciLookupResult,
) -> Result<StoredArtifact<OCIRepositoryStatus>, RunOutcome> {
    let run = run.clone();
    let VerifiedArtifact { pulled, verified } = verified_pull(&run, &found).await?;
    let is_signed = has_signature(verified.as_ref());
    let work = move || {
        let pulled = of_signed_version(pulled, is_signed, &found)?;
        store(&run.work, &run.context.artifacts, &run.object, pulled, &found)
    };
    let stored = blocking(OCI_PULL_FAILED, "fetching", work).await?;
    Ok(StoredArtifact { verified, ..stored })
}

/// The digest with which an earlier artifact was pulled.
///
/// # Errors
/// The revision has no digest.
fn earlier(revision: &str) -> Result<OciLookupResult, RunOutcome> {
    let (tag, digest) = match revision.rsplit_once('@') {
        Some((tag, digest)) => (Some(tag.to_owned()), digest),
        None => (None, revision),
    };
    let digest = OciDigest::parse(digest)
        .map_err(|error| failed(OCI_PULL_FAILED, "failed to read the revision", &error))?;
    Ok(OciLookupResult { digest, revision: revision.to_owned(), tag })
}

/// Pulls an earlier artifact again by its digest, after it is verified. It is stored in its former place if it is the same.
pub(super) async fn fetch_again(
    run: &Arc<SourceRun<OCIRepository>>,
    artifact: &NeededArtifact,
) -> Result<(), RunOutcome> {
    let run = run.clone();
    let artifact = artifact.clone();
    let found = earlier(&artifact.revision)?;
    let VerifiedArtifact { pulled, verified } = verified_pull(&run, &found).await?;
    let is_signed = has_signature(verified.as_ref());
    let work = move || {
        let pulled = of_signed_version(pulled, is_signed, &found)?;
        let store = &run.context.artifacts;
        let object = &run.object;
        let mut body = pulled.layer.file;
        if run.work.is_copied {
            let copy = |out: &mut dyn io::Write| io::copy(&mut body, out).map(drop);
            return keep_again(store, &**object, &artifact, copy);
        }
        let tree = extract(body)?;
        let contents = contents(&tree, object.spec.ignore.as_deref())?;
        keep_again(store, &**object, &artifact, |out| write(out, &tree, &contents))
    };
    blocking(OCI_PULL_FAILED, "fetching", work).await
}

/// A pulled artifact, and the result of its verification.
struct VerifiedArtifact {
    pulled: PulledArtifact,
    verified: Option<VerificationRecord>,
}

/// Pulls the artifact with the found digest, after it is verified by this digest.
async fn verified_pull(
    run: &SourceRun<OCIRepository>,
    found: &OciLookupResult,
) -> Result<VerifiedArtifact, RunOutcome> {
    let known = &run.context.remotes.oci;
    let url = &run.object.spec.url;
    let verified = verify(&run.work, known, url, found).await?;
    let pulled = pull(&run.work, known, url, found).await?;
    Ok(VerifiedArtifact { pulled, verified })
}

/// Whether a signature was required and found. If a trust policy requires no signature, no version is required either.
fn has_signature(verified: Option<&VerificationRecord>) -> bool {
    verified.is_some_and(|verified| !verified.text.is_empty())
}

/// The pulled artifact, if it has the signed version. Blocks.
fn of_signed_version(
    mut pulled: PulledArtifact,
    is_signed: bool,
    found: &OciLookupResult,
) -> Result<PulledArtifact, RunOutcome> {
    if is_signed && let Some(tag) = &found.tag {
        signed_version::check(&mut pulled, tag)?;
    }
    Ok(pulled)
}

/// Verifies the artifact with the found digest, if a signature is required.
async fn verify(
    work: &OciFetchSpec,
    known: &RegistrySessionCache,
    url: &str,
    found: &OciLookupResult,
) -> Result<Option<VerificationRecord>, RunOutcome> {
    let Some(signed) = &work.signed else { return Ok(None) };
    let client = client(work, known, url)?;
    let verified =
        signed.verify(&client, &found.digest).await.map_err(|failure| match failure {
            ImageTrustError::Registry(error) => {
                let what = format!("failed to fetch the signatures of '{url}'");
                failed(OCI_PULL_FAILED, &what, &error)
            }
            ImageTrustError::Refused(text) => {
                RunOutcome::Failed(VERIFICATION_ERROR, text, NextRunTrigger::default())
            }
        })?;
    let text = match verified {
        image_verification::ImageVerification::By(name) => {
            acceptance(&found.revision) + &signer(&name)
        }
        image_verification::ImageVerification::Ignored => String::new(),
    };
    Ok(Some(VerificationRecord { how: signed.how(), text }))
}

/// An artifact that was pulled from an OCI registry.
pub(super) struct PulledArtifact {
    pub(super) layer: FetchedLayer,
    /// Whether the manifest calls the layer a chart.
    pub(super) is_chart: bool,
    /// The annotations of the manifest.
    annotations: BTreeMap<String, String>,
}

async fn pull(
    work: &OciFetchSpec,
    known: &RegistrySessionCache,
    url: &str,
    found: &OciLookupResult,
) -> Result<PulledArtifact, RunOutcome> {
    let what = format!("failed to pull artifact from '{url}'");
    let client = client(work, known, url)?;
    let manifest = client.manifest(&found.digest).await;
    let manifest = manifest.map_err(|error| failed(OCI_PULL_FAILED, &what, &error))?;
    let not_taken = |error: Error| failed(OCI_LAYER_OPERATION_FAILED, "", &error);
    let layer = manifest.layer(work.media_type.as_deref()).map_err(not_taken)?;
    let is_chart = layer.media_type == chart::CHART;
    // Parity(flux): the text speaks of the first layer whichever it is.
    let what = "failed to extract the first layer from artifact";
    let layer = client.layer(layer).await;
    let layer = layer.map_err(|error| failed(OCI_LAYER_OPERATION_FAILED, what, &error))?;
    Ok(PulledArtifact { layer, is_chart, annotations: manifest.annotations })
}

/// Makes the artifact of a layer and stores it. Blocks.
fn store(
    work: &OciFetchSpec,
    store: &ArtifactStore,
    object: &OCIRepository,
    pulled: PulledArtifact,
    found: &OciLookupResult,
) -> Result<StoredArtifact<OCIRepositoryStatus>, RunOutcome> {
    // Parity(flux): the name does not depend on how the layer is stored.
    let file = format!("{}.tar.gz", found.digest);
    let PulledArtifact { layer, annotations, .. } = pulled;
    let mut body = layer.file;
    let mut artifact = if work.is_copied {
        let copy = |out: &mut dyn io::Write| io::copy(&mut body, out).map(drop);
        keep(store, object, &file, &found.revision, copy)?
    } else {
        let tree = extract(body)?;
        let contents = contents(&tree, object.spec.ignore.as_deref())?;
        keep(store, object, &file, &found.revision, |out| write(out, &tree, &contents))?
    };
    let message = message(&object.spec.url, &found.revision, &annotations);
    artifact.metadata = annotations;
    let url = linked(store, &artifact, LATEST_ARCHIVE);
    Ok(StoredArtifact::new(artifact, message, move |status: &mut OCIRepositoryStatus| {
        status.url.clone_from(&url);
    }))
}

/// Parity(flux): symbolic links are passed over.
fn extract(body: File) -> Result<tree::MemoryTree, RunOutcome> {
    archive::extract(BufReader::new(body), &ExtractOptions::default()).map_err(|error| {
        let text = format!("failed to extract layer contents from artifact: {}", chain(&error));
        RunOutcome::Failed(OCI_LAYER_OPERATION_FAILED, text, NextRunTrigger::default())
    })
}

/// Parity(flux): what the event says.
fn message(url: &str, revision: &str, annotations: &BTreeMap<String, String>) -> String {
    let said = |key: &str| annotations.get(key).filter(|value| !value.is_empty());
    let origin = match (said(SOURCE), said(ORIGIN_REVISION)) {
        (Some(source), Some(revision)) => {
            format!(", origin source '{source}', origin revision '{revision}'")
        }
        _ => String::new(),
    };
    format!("stored artifact with revision '{revision}' from '{url}'{origin}")
}

#[cfg(test)]
mod tests;
