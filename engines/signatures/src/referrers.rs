//! Finds the signatures of an image in a registry: its referrers, and manifests under tags that are derived from its digest.
//!
//! Here: which requests are needed ([`SignatureSearch`]), one round after the other. The caller sends them and passes the
//! responses back. A failed request leads to no conclusion. Below: reading manifests (`manifest`).
//! Elsewhere: judging the responses (`cosign`, `notation`).
//!
//! The semantics are those of the OCI distribution specification 1.1: referrers come from its API, or from the index under the
//! fallback tag if a registry lacks the API.

mod manifest;

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

pub(crate) use manifest::{OciDescriptor, OciManifest};

/// The most referrers of an image that are read. Referrers of the wanted type come first, and among these the smallest.
pub(crate) const MOST_REFERRERS: usize = 64;
/// Most signatures under the tag of an image.
pub(crate) const MOST_LAYERS: usize = 64;
/// The most bytes of one blob or manifest of a signature.
pub(crate) const MOST_BLOB: u64 = 4 << 20;
/// The most bytes of all referrers together. Referrers beyond the limit are ignored.
pub const MOST_BYTES: usize = 32 << 20;
/// The most bytes of the manifests under an image's tag. Referrers have a separate limit and cannot use up this one.
const MOST_OLD_BYTES: usize = 8 << 20;

/// A request to the repository of the image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageRegistryRequest {
    /// `manifests/<tag or digest>`.
    Manifest(String),
    /// `referrers/<digest>`.
    Referrers(String),
    /// `blobs/<digest>`.
    Blob {
        /// The digest.
        digest: String,
        /// The size in bytes according to the manifest, at most [`MOST_BLOB`].
        size: u64,
    },
}

/// The response of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRegistryResponse {
    /// The media type.
    pub media_type: String,
    /// The bytes.
    pub body: Vec<u8>,
}

/// The registry sent bytes that do not have this digest, so the image cannot be judged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the digest of what the registry sent for {0} is another")]
pub struct DigestMismatchError(pub String);

/// The tool whose signatures are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureTool {
    Cosign,
    Notation,
}

/// The media type of Sigstore bundles, which a version follows.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The type of Notation's signatures.
pub(crate) const NOTATION: &str = "application/vnd.cncf.notary.signature";
/// Parity(flux): so many signatures of Notation are tried.
pub(crate) const MOST_NOTATION: usize = 3;

/// The search for signatures of an image.
#[derive(Debug)]
pub struct SignatureSearch {
    sought: SignatureTool,
    subject: String,
    answers: BTreeMap<ImageRegistryRequest, Option<ImageRegistryResponse>>,
    /// The bytes of referrers, and of the content under the tag.
    bytes: [usize; 2],
}

impl SignatureSearch {
    /// Searches for cosign signatures: bundles among the referrers, and signatures under the tag `sha256-….sig`.
    pub fn for_cosign(digest: &str) -> Self {
        Self::new(SignatureTool::Cosign, digest)
    }

    /// A search for the Notation signatures of the image with this digest.
    pub(crate) fn for_notation(digest: &str) -> Self {
        Self::new(SignatureTool::Notation, digest)
    }

    fn new(sought: SignatureTool, digest: &str) -> Self {
        Self { sought, subject: digest.to_owned(), answers: BTreeMap::new(), bytes: [0; 2] }
    }

    /// The requests that the search still needs; empty if it is complete.
    ///
    /// # Guarantees
    /// There are at most three rounds. The number of requests is at most twice [`MOST_REFERRERS`] and [`MOST_LAYERS`], plus
    /// four.
    pub fn open(&self) -> Vec<ImageRegistryRequest> {
        let mut needed = Vec::new();
        match self.sought {
            SignatureTool::Cosign => {
                needed.push(self.old_tag());
                self.needed_of_referrers(&mut needed);
                needed.extend(self.old_layers().iter().filter_map(blob));
            }
            SignatureTool::Notation => {
                needed.push(ImageRegistryRequest::Manifest(self.subject.clone()));
                self.needed_of_referrers(&mut needed);
            }
        }
        needed.retain(|request| !self.answers.contains_key(request));
        needed.dedup();
        needed
    }

    fn needed_of_referrers(&self, needed: &mut Vec<ImageRegistryRequest>) {
        let api = ImageRegistryRequest::Referrers(self.subject.clone());
        if self.answers.get(&api).is_some_and(Option::is_none) {
            needed.push(self.fallback());
        }
        needed.push(api);
        let mut blobs = Vec::new();
        for referrer in self.candidates() {
            let request = ImageRegistryRequest::Manifest(referrer.digest);
            if let Some(manifest) = self.manifest(&request) {
                blobs.extend(self.signature(&manifest).map(|it| (it.size, blob(it))));
            }
            needed.push(request);
        }
        // Signatures are small, so small blobs come first. A large one must not use up the limit.
        blobs.sort_by_key(|(size, _)| *size);
        needed.extend(blobs.into_iter().filter_map(|(_, request)| request));
    }

    /// Takes a response. `None` says that the content does not exist or is too large, so it is not a valid signature. A
    /// response beyond the total byte limit is ignored, so that it cannot hide a good signature.
    ///
    /// # Errors
    /// The content does not have the requested digest.
    pub fn answer(
        &mut self,
        request: ImageRegistryRequest,
        answer: Option<ImageRegistryResponse>,
    ) -> Result<(), DigestMismatchError> {
        let mut answer = answer;
        let is_old = self.is_old(&request);
        if let Some(given) = &answer {
            let [of_referrers, old] = &mut self.bytes;
            let (used, most) = match is_old {
                true => (old, MOST_OLD_BYTES),
                false => (of_referrers, MOST_BYTES),
            };
            let digest = match &request {
                ImageRegistryRequest::Manifest(reference) => {
                    Some(reference).filter(|it| it.contains(':'))
                }
                ImageRegistryRequest::Blob { digest, .. } => Some(digest),
                ImageRegistryRequest::Referrers(_) => None,
            };
            if let Some(digest) = digest
                && *digest != digest_of(&given.body)
            {
                return Err(DigestMismatchError(digest.clone()));
            }
            let sum = used.saturating_add(given.body.len());
            if sum > most {
                answer = None;
            } else {
                *used = sum;
            }
        }
        self.answers.insert(request, answer);
        Ok(())
    }

    /// Whether a request is for content under the image's tag.
    fn is_old(&self, request: &ImageRegistryRequest) -> bool {
        *request == self.old_tag()
            || (matches!(request, ImageRegistryRequest::Blob { .. })
                && self.old_layers().iter().filter_map(blob).any(|it| it == *request))
    }

    /// The digest of the image.
    pub(crate) fn subject(&self) -> &str {
        &self.subject
    }

    /// The descriptor of the image's own manifest, which Notation signs. `None` if the manifest was not found.
    pub(crate) fn described(&self) -> Option<OciDescriptor> {
        let answer = self.found(&ImageRegistryRequest::Manifest(self.subject.clone()))?;
        let said = OciManifest::parse(&answer.body).and_then(|manifest| manifest.media_type);
        Some(OciDescriptor {
            media_type: said.unwrap_or_else(|| answer.media_type.clone()),
            digest: self.subject.clone(),
            size: answer.body.len() as u64,
            ..OciDescriptor::default()
        })
    }

    /// The layers of the manifest under the tag that cosign derives from the digest.
    pub(crate) fn old_layers(&self) -> Vec<OciDescriptor> {
        let manifest = self.manifest(&self.old_tag()).unwrap_or_default();
        manifest.layers.into_iter().take(MOST_LAYERS).collect()
    }

    /// The content of a descriptor. `None` if the registry does not have it or if it is beyond the limits.
    pub(crate) fn blob(&self, descriptor: &OciDescriptor) -> Option<&[u8]> {
        self.found(&blob(descriptor)?).map(|answer| answer.body.as_slice())
    }

    /// The signatures among the referrers: the digest of the manifest, and the descriptor of the signature.
    pub(crate) fn attached(&self) -> Vec<(String, Option<OciDescriptor>)> {
        let manifest = |referrer: OciDescriptor| {
            let manifest = self.manifest(&ImageRegistryRequest::Manifest(referrer.digest.clone()));
            let signature = manifest.and_then(|manifest| self.signature(&manifest).cloned());
            (referrer.digest, signature)
        };
        self.candidates().into_iter().map(manifest).collect()
    }

    fn found(&self, request: &ImageRegistryRequest) -> Option<&ImageRegistryResponse> {
        self.answers.get(request)?.as_ref()
    }

    fn manifest(&self, request: &ImageRegistryRequest) -> Option<OciManifest> {
        OciManifest::parse(&self.found(request)?.body)
    }

    /// The layer of a manifest that is a signature of the kind that is searched for. `None` if the manifest has another
    /// number of layers or another kind.
    fn signature<'m>(&self, manifest: &'m OciManifest) -> Option<&'m OciDescriptor> {
        let [layer] = manifest.layers.as_slice() else { return None };
        let is_one = match self.sought {
            SignatureTool::Cosign => layer.media_type.starts_with(BUNDLE),
            SignatureTool::Notation => true,
        };
        Some(layer).filter(|_| is_one)
    }

    /// The referrers that may contain signatures.
    ///
    /// Parity(flux): cosign reads all, of every type that the registry reports; Notation those of its type.
    fn candidates(&self) -> Vec<OciDescriptor> {
        let api = ImageRegistryRequest::Referrers(self.subject.clone());
        let request = match self.answers.get(&api) {
            Some(None) => self.fallback(),
            _ => api,
        };
        let mut referrers = self.manifest(&request).unwrap_or_default().manifests;
        match self.sought {
            SignatureTool::Cosign => {
                let is_other = |it: &OciDescriptor| !it.artifact_type.starts_with(BUNDLE);
                referrers.sort_by_key(|referrer| (is_other(referrer), referrer.size));
                referrers.truncate(MOST_REFERRERS);
            }
            SignatureTool::Notation => {
                referrers.retain(|referrer| referrer.artifact_type == NOTATION);
                referrers.truncate(MOST_NOTATION);
            }
        }
        referrers
    }

    /// The request for the manifest with the tag `sha256-<hex>`, where referrers are found if the registry does not
    /// list them.
    fn fallback(&self) -> ImageRegistryRequest {
        ImageRegistryRequest::Manifest(self.subject.replace(':', "-"))
    }

    fn old_tag(&self) -> ImageRegistryRequest {
        ImageRegistryRequest::Manifest(format!("{}.sig", self.subject.replace(':', "-")))
    }
}

fn blob(descriptor: &OciDescriptor) -> Option<ImageRegistryRequest> {
    let OciDescriptor { digest, size, .. } = descriptor;
    let request = ImageRegistryRequest::Blob { digest: digest.clone(), size: *size };
    Some(request).filter(|_| *size <= MOST_BLOB && is_sha256(digest))
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_sha256(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests;
