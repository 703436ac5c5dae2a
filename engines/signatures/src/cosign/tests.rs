//! Which signatures of a key count for an image; all others are recorded answers of cosign (`tools/conformance/src/replay/trust`).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::referrers::{BUNDLE, ImageRegistryRequest, ImageRegistryResponse, hex};

const IMAGE: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

struct TestKeyOwner(EcdsaKeyPair);

impl TestKeyOwner {
    fn new() -> Self {
        Self(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap())
    }

    fn key(&self) -> Vec<u8> {
        let mut info = vec![0x30, 0x59, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8];
        info.extend([0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7, 3, 0x42, 0]);
        info.extend(self.0.public_key().as_ref());
        let encoded = STANDARD.encode(info);
        format!("-----BEGIN PUBLIC KEY-----\n{encoded}\n-----END PUBLIC KEY-----\n").into_bytes()
    }

    fn sign(&self, message: &[u8]) -> String {
        STANDARD.encode(self.0.sign(&SystemRandom::new(), message).unwrap())
    }

    /// The payload and its signature.
    fn simple(&self, image: &str) -> (Vec<u8>, String) {
        let payload = json!({"critical": {"image": {"docker-manifest-digest": image}}}).to_string();
        let signature = self.sign(payload.as_bytes());
        (payload.into_bytes(), signature)
    }

    fn bundle(&self, image: &str, change: fn(&mut Value)) -> Vec<u8> {
        let kind = "application/vnd.in-toto+json";
        let digest = image.replace("sha256:", "");
        let statement = json!({"subject": [{"digest": {"sha256": digest}}]}).to_string();
        let signed = format!("DSSEv1 {} {kind} {} {statement}", kind.len(), statement.len());
        let mut bundle = json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": ""}},
            "dsseEnvelope": {"payload": STANDARD.encode(&statement), "payloadType": kind,
                "signatures": [{"sig": self.sign(signed.as_bytes()), "keyid": ""}]},
        });
        change(&mut bundle);
        bundle.to_string().into_bytes()
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&crate::sha256(bytes)))
}

/// A search that found these signatures under the tag, and these bundles.
fn found(simple: &[(Vec<u8>, String)], bundles: &[Vec<u8>]) -> SignatureSearch {
    let mut search = SignatureSearch::for_cosign(IMAGE);
    let mut had: Vec<(ImageRegistryRequest, Vec<u8>)> = Vec::new();
    let mut blob = |bytes: &[u8]| {
        let size = bytes.len() as u64;
        had.push((ImageRegistryRequest::Blob { digest: digest(bytes), size }, bytes.to_vec()));
        json!({"digest": digest(bytes), "size": size})
    };
    let mut layers = Vec::new();
    for (payload, signature) in simple {
        let mut layer = blob(payload);
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": signature});
        layers.push(layer);
    }
    let mut manifests = Vec::new();
    for bundle in bundles {
        let mut layer = blob(bundle);
        layer["mediaType"] = json!(format!("{BUNDLE}.v0.3+json"));
        manifests.push(json!({"layers": [layer]}).to_string().into_bytes());
    }
    let mut referrers = Vec::new();
    for manifest in manifests {
        referrers.push(json!({"digest": digest(&manifest), "size": manifest.len()}));
        had.push((ImageRegistryRequest::Manifest(digest(&manifest)), manifest));
    }
    let tag = format!("{}.sig", IMAGE.replace(':', "-"));
    had.push((
        ImageRegistryRequest::Manifest(tag),
        json!({"layers": layers}).to_string().into_bytes(),
    ));
    let index = json!({"manifests": referrers}).to_string().into_bytes();
    had.push((ImageRegistryRequest::Referrers(IMAGE.to_owned()), index));
    for _ in 0..4 {
        for request in search.open() {
            let body = had.iter().find(|(it, _)| *it == request).map(|(_, body)| body.clone());
            let answer = body.map(|body| ImageRegistryResponse { media_type: String::new(), body });
            search.answer(request, answer).unwrap();
        }
    }
    assert_eq!(search.open(), []);
    search
}

#[test]
fn the_owner_of_any_key_may_sign_in_either_format() {
    let owner = TestKeyOwner::new();
    let other = TestKeyOwner::new();
    let keys = [("a.pub", other.key()), ("b.pub", owner.key()), ("c.txt", Vec::new())];
    let by = |search: &SignatureSearch| {
        verify(search, "r/a@x", keys.iter().map(|(name, key)| (*name, key.as_slice())))
    };
    let signer = Ok(CosignSigner { name: "b.pub".to_owned() });
    assert_eq!(by(&found(&[owner.simple(IMAGE)], &[])), signer);
    assert_eq!(by(&found(&[], &[owner.bundle(IMAGE, |_| {})])), signer);
    let none = Err("no matching signatures were found for 'r/a@x'".to_owned());
    assert_eq!(by(&found(&[], &[])), none);
    assert_eq!(by(&found(&[TestKeyOwner::new().simple(IMAGE)], &[])), none);
}

#[test]
fn a_signature_of_another_image_does_not_count_in_either_format() {
    let owner = TestKeyOwner::new();
    let refused = verify_by(&found(&[owner.simple(OTHER)], &[]), &owner.key()).unwrap_err();
    assert!(refused.to_string().contains("invalid or missing digest in claim"), "{refused}");
    let refused = verify_by(&found(&[], &[owner.bundle(OTHER, |_| {})]), &owner.key()).unwrap_err();
    assert!(refused.to_string().contains("does not match any digest in statement"), "{refused}");
    // Differs(flux): Flux accepts any signed payload, even if it is not JSON; `cosign verify` refuses all of these.
    let named = format!(r#"{{"critical":{{"image":{{"docker-manifest-digest":"{IMAGE}"}}}}"#);
    for payload in [
        "",
        "no JSON",
        "{}",
        "null",
        "[]",
        IMAGE,
        r#"{"critical":{"image":{}}}"#,
        r#"{"critical":{"image":{"docker-manifest-digest":null}}}"#,
        // Cut off.
        &named,
    ] {
        let signed = (payload.as_bytes().to_vec(), owner.sign(payload.as_bytes()));
        assert!(verify_by(&found(&[signed], &[]), &owner.key()).is_err(), "{payload}");
    }
}

#[test]
fn a_bundle_of_another_key_hides_no_good_signature() {
    let owner = TestKeyOwner::new();
    let other = TestKeyOwner::new();
    let bundles = [other.bundle(IMAGE, |_| {}), b"{}".to_vec(), b"garbage".to_vec()];
    assert_eq!(verify_by(&found(&[owner.simple(IMAGE)], &bundles), &owner.key()), Ok(()));
    let two = [other.bundle(IMAGE, |_| {}), owner.bundle(IMAGE, |_| {})];
    assert_eq!(verify_by(&found(&[], &two), &owner.key()), Ok(()));
}

#[test]
fn a_changed_bundle_does_not_count() {
    let owner = TestKeyOwner::new();
    let changes: [fn(&mut Value); 9] = [
        |it| it["dsseEnvelope"]["payload"] = json!(STANDARD.encode("{}")),
        |it| it["dsseEnvelope"]["payloadType"] = json!("text/plain"),
        |it| it["dsseEnvelope"]["signatures"] = json!([]),
        |it| {
            let one = it["dsseEnvelope"]["signatures"][0].clone();
            it["dsseEnvelope"]["signatures"] = json!([one, one]);
        },
        |it| it["mediaType"] = json!("application/vnd.dev.sigstore.bundle.v0.2+json"),
        |it| it["verificationMaterial"] = json!({"certificate": {"rawBytes": "AAAA"}}),
        |it| it["verificationMaterial"]["tlogEntries"] = json!([{"logIndex": "1"}]),
        |it| it["novel"] = json!(1),
        |it| it["dsseEnvelope"]["signatures"][0]["sig"] = json!("%"),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let search = found(&[], &[owner.bundle(IMAGE, change)]);
        assert!(verify_by(&search, &owner.key()).is_err(), "{at}");
    }
}

#[test]
fn deep_or_endless_json_is_refused() {
    let owner = TestKeyOwner::new();
    let deep = format!("{{\"mediaType\":{}", "[".repeat(100_000)).into_bytes();
    let refused = verify_by(&found(&[], &[deep]), &owner.key()).unwrap_err();
    assert_eq!(refused, CosignVerificationError::Unsigned);
}

#[test]
fn keys_and_identities_are_few() {
    let owner = TestKeyOwner::new();
    let search = found(&[owner.simple(IMAGE)], &[]);
    let keys = |count: usize| -> Vec<(String, Vec<u8>)> {
        (0..count).map(|at| (format!("{at}.pub"), owner.key())).collect()
    };
    let by = |keys: &[(String, Vec<u8>)]| {
        verify(&search, "r/a@x", keys.iter().map(|(name, key)| (name.as_str(), key.as_slice())))
    };
    assert!(by(&keys(64)).is_ok());
    assert_eq!(by(&keys(65)).unwrap_err(), "the Secret has more than 64 keys that end in `.pub`");
    let identity = CertificateIdentityMatcher { issuer: "a".to_owned(), subject: "b".to_owned() };
    let public = |count: usize| {
        crate::image_verification::ImageTrust::public(vec![identity.clone(); count]).map(drop)
    };
    assert_eq!(public(64), Ok(()));
    assert!(public(65).unwrap_err().contains("more than 64 identities"));
}
