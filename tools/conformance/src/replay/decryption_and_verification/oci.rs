//! Replays cases about signatures of images in registries in memory. cosign with and without keys, and Notation made
//! them.
//!
//! The clock has a time at which all answers are as recorded.

use std::collections::BTreeMap;
use std::io::Read as _;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use signatures::cosign;
use signatures::image_verification::{ImageTrust, ImageVerification, acceptance, refusal};
use signatures::referrers::{ImageRegistryRequest, ImageRegistryResponse, SignatureSearch};
use signatures::sigstore::CertificateIdentityMatcher;

use super::TrustCase;
use crate::replay::case::{self, Case, CaseFailure, CaseJudgement};

/// The repository of the recorded registry.
const REPOSITORY: &str = "127.0.0.1:5599/rec/app";
/// The time at which the cases are judged: 2026-12-01, in seconds of Unix time.
const VERIFICATION_UNIX_TIME: i64 = 1_796_083_200;

const HIDDEN_BY_BUNDLE: &str =
    "the signature of the older format is good; in Flux any bundle hides it, whoever made it";

/// Cases in which windlass differs on purpose. Images with signatures only about other images are not listed, because
/// a rule covers them.
pub(super) const EXCEPTIONS: [(&str, &str); 3] = [
    ("oci-cosign-mixed-p256", HIDDEN_BY_BUNDLE),
    ("oci-cosign-mixed-tagschema-p256", HIDDEN_BY_BUNDLE),
    ("oci-cosign-attestation-hides-old-signature", HIDDEN_BY_BUNDLE),
];

/// The output that is recorded together with an error.
#[derive(Deserialize)]
struct RecordedOutput {
    #[serde(default)]
    out: Value,
}

/// A registry with one repository.
#[derive(Default)]
struct FakeRegistry {
    blobs: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
    has_referrers: bool,
}

fn not_run(error: impl std::fmt::Display) -> CaseFailure {
    CaseFailure::NotRun(error.to_string())
}

impl FakeRegistry {
    fn of(recorded: &TrustCase) -> Result<Self, CaseFailure> {
        let mut registry = Self { has_referrers: recorded.flag("referrersApi"), ..Self::default() };
        let layout = recorded.file("layout.tar")?;
        let mut index = Value::Null;
        for entry in tar::Archive::new(layout.as_slice()).entries().map_err(not_run)? {
            let mut entry = entry.map_err(not_run)?;
            let path = entry.path().map_err(not_run)?.to_string_lossy().into_owned();
            let mut body = Vec::new();
            entry.read_to_end(&mut body).map_err(not_run)?;
            if path.ends_with("index.json") {
                index = serde_json::from_slice(&body).map_err(not_run)?;
            } else if let Some((_, digest)) = path.split_once("blobs/sha256/") {
                registry.blobs.insert(format!("sha256:{digest}"), body);
            }
        }
        for manifest in index["manifests"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let digest = text(&manifest["digest"]);
            registry.manifests.insert(digest.clone(), text(&manifest["mediaType"]));
            let tag = text(&manifest["annotations"]["org.opencontainers.image.ref.name"]);
            if !tag.is_empty() {
                registry.tags.insert(tag, digest);
            }
        }
        Ok(registry)
    }

    fn answer(&self, request: &ImageRegistryRequest) -> Option<ImageRegistryResponse> {
        match request {
            ImageRegistryRequest::Manifest(reference) => {
                let digest = self.tags.get(reference).unwrap_or(reference);
                let media_type = self.manifests.get(digest)?.clone();
                Some(ImageRegistryResponse { media_type, body: self.blobs.get(digest)?.clone() })
            }
            ImageRegistryRequest::Blob { digest, .. } => Some(ImageRegistryResponse {
                media_type: String::new(),
                body: self.blobs.get(digest)?.clone(),
            }),
            ImageRegistryRequest::Referrers(digest) => {
                self.has_referrers.then(|| self.referrers(digest))
            }
        }
    }

    fn referrers(&self, digest: &str) -> ImageRegistryResponse {
        let mut referrers = Vec::new();
        for (own, media_type) in &self.manifests {
            let body = self.blobs.get(own).map(Vec::as_slice).unwrap_or_default();
            let manifest: Value = serde_json::from_slice(body).unwrap_or_default();
            if manifest["subject"]["digest"] == *digest {
                let kind = &manifest["config"]["mediaType"];
                referrers.push(json!({"mediaType": media_type, "digest": own, "size": body.len(), "artifactType": kind}));
            }
        }
        let body = json!({"schemaVersion": 2, "manifests": referrers}).to_string().into_bytes();
        ImageRegistryResponse {
            media_type: "application/vnd.oci.image.index.v1+json".to_owned(),
            body,
        }
    }

    fn gather(&self, mut search: SignatureSearch) -> Result<SignatureSearch, CaseFailure> {
        loop {
            let open = search.open();
            if open.is_empty() {
                return Ok(search);
            }
            for request in open {
                let answer = self.answer(&request);
                search.answer(request, answer).map_err(not_run)?;
            }
        }
    }
}

/// The trusted signers, with the provider's name in Flux.
fn trust(recorded: &TrustCase) -> Result<(&'static str, Result<ImageTrust, String>), CaseFailure> {
    let keys = recorded.folder("keys/")?;
    let missing = || Err("secrets \"verify-keys\" not found".to_owned());
    let has_secret = !keys.is_empty() || recorded.flag("secretRef");
    if recorded.arg("provider") == "notation" {
        let trust = match recorded.flag("missingSecret") {
            true => missing(),
            false => ImageTrust::notation("apps/verify-keys", &keys),
        };
        return Ok(("notation", trust));
    }
    if has_secret {
        let is_missing = recorded.flag("missingSecret");
        return Ok(("cosign", if is_missing { missing() } else { Ok(ImageTrust::Keys(keys)) }));
    }
    let root = recorded.folder("trusted-root/")?;
    let identities = recorded.args.get("matchOIDCIdentity").and_then(Value::as_array);
    let identities = identities.into_iter().flatten().map(|it| {
        let text = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
        CertificateIdentityMatcher { issuer: text("issuer"), subject: text("subject") }
    });
    Ok(("cosign keyless", ImageTrust::identities("apps/trusted-root", &root, identities.collect())))
}

pub(super) fn verify(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let wanted = match &case.answer {
        case::ReferenceAnswer::Out(out) => out.clone(),
        _ => case.inputs::<RecordedOutput>()?.out,
    };
    let registry = FakeRegistry::of(recorded)?;
    let tag = match recorded.arg("tag") {
        "" => "v1",
        tag => tag,
    };
    let digest = registry.tags.get(tag).ok_or_else(|| not_run("no such tag"))?.clone();
    let (provider, trust) = trust(recorded)?;
    let mut got = Map::new();
    if let Ok(ImageTrust::Keys(keys)) = &trust {
        let search = registry.gather(SignatureSearch::for_cosign(&digest))?;
        let mut words = Map::new();
        for (name, key) in keys.iter().filter(|(name, _)| name.ends_with(".pub")) {
            words.insert(name.clone(), Value::from(word(&search, key)));
        }
        if !words.is_empty() {
            got.insert("perKey".to_owned(), Value::Object(words));
        }
    }
    let verified = match trust {
        Ok(trust) => {
            let search = registry.gather(trust.search(&digest))?;
            trust.verify(&search, REPOSITORY, VERIFICATION_UNIX_TIME)
        }
        Err(why) => Err(why),
    };
    let mut say = |result: &str, status: &str, reason: &str, message: String| {
        let message = message.replace("127.0.0.1:5599", "${REGISTRY}");
        let texts =
            [("result", result), ("status", status), ("reason", reason), ("message", &message)];
        got.extend(texts.map(|(name, text)| (name.to_owned(), Value::from(text))));
    };
    match verified {
        Ok(ImageVerification::By(_)) => {
            let text = acceptance(&format!("{tag}@{digest}"));
            say("verified", "True", "Succeeded", text);
        }
        Ok(ImageVerification::Ignored) => {
            got.insert("result".to_owned(), Value::from("ignored"));
        }
        Err(why) => say("unverified", "False", "VerificationError", refusal(provider, &why)),
    }
    let got = Value::Object(got);
    if wanted["result"] == "verified" && is_about_others(&registry, &digest) {
        return refused(&got);
    }
    let variants = recorded.variants.iter().filter_map(|variant| variant.get("out"));
    if variants.clone().any(|wanted| is_same(wanted, &got)) || is_same(&wanted, &got) {
        return Ok(());
    }
    Err(CaseFailure::Mismatch { wanted: wanted.to_string(), got: got.to_string() })
}

/// Whether an image has signatures of the older format, but none about itself. Each signs another image, or no claim
/// at all. `cosign verify` rejects them too, while Flux does not read the signed text.
fn is_about_others(registry: &FakeRegistry, digest: &str) -> bool {
    let tag = format!("{}.sig", digest.replace(':', "-"));
    let blob = |digest: &str| -> Option<Value> {
        serde_json::from_slice(registry.blobs.get(digest)?).ok()
    };
    let manifest = registry.tags.get(&tag).and_then(|it| blob(it)).unwrap_or_default();
    let layers = manifest["layers"].as_array().cloned().unwrap_or_default();
    let is_claim = |layer: &Value| {
        let claim = layer["digest"].as_str().and_then(blob).unwrap_or_default();
        claim["critical"]["image"]["docker-manifest-digest"] == *digest
    };
    !layers.is_empty() && !layers.iter().any(is_claim)
}

/// Passes an outcome in which no key verifies the image.
fn refused(got: &Value) -> CaseJudgement {
    let mut keys = got["perKey"].as_object().into_iter().flatten();
    let is_refused = got["result"] == "unverified"
        && got["status"] == "False"
        && got["reason"] == "VerificationError"
        && keys.all(|(_, word)| word != "verified");
    if is_refused {
        return Ok(());
    }
    let wanted = "no signature is about the image".to_owned();
    Err(CaseFailure::Mismatch { wanted, got: got.to_string() })
}

/// The verifier's outcome for one key.
fn word(search: &SignatureSearch, key: &[u8]) -> String {
    match cosign::verify_by(search, key) {
        Ok(()) => "verified".to_owned(),
        Err(cosign::CosignVerificationError::BadKey(why)) => format!("KEY {why}"),
        Err(why) => why.to_string(),
    }
}

/// Words after which a parser, a library of Go or the network words the rest. The rest is not compared.
const ENDS: [&str; 8] = [
    "failed to proto-json unmarshal trusted root",
    "error occurred while parsing trustpolicy.json",
    "unable to parse the digital signature",
    "unmarshaling bundle",
    "no matching signatures: error verifying bundle",
    "failed to parse certificate",
    "certificate-chain is invalid",
    "failed to verify certificate identity",
];

/// Whether two outcomes are equal, apart from words that windlass need not repeat.
fn is_same(wanted: &Value, got: &Value) -> bool {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(got)) => {
            wanted.len() == got.len()
                && wanted
                    .iter()
                    .all(|(name, value)| got.get(name).is_some_and(|it| is_same(value, it)))
        }
        (Value::String(wanted), Value::String(got)) => {
            let end = ENDS.iter().filter_map(|end| Some(wanted.find(end)? + end.len())).min();
            match end {
                Some(end) => got.get(..end) == wanted.get(..end),
                None => wanted == got,
            }
        }
        _ => wanted == got,
    }
}
