//! The blind digest of an applier: a hash of everything that the applier applies, computed without access to a cluster. Equal
//! digests mean the same result, no matter where they were computed.
//!
//! Here: which data is part of the digest. Elsewhere: rendering, and the identity of a release's inputs (the program).

use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::field_change::is_encrypted;
use crate::rendering::{HelmReleaseTarget, RenderedApplier};

/// The format version. It changes with the data that is hashed, because digests of different versions cannot be compared.
const FORMAT: &str = "windlass blind digest 1";

/// The blind digest of an applier; `None` if its rendering failed. For a release, `inputs` identifies its chart, values and
/// references, and is hashed in place of the objects. An unchanged release then has a digest without being rendered. For other
/// appliers the objects are hashed.
///
/// # Guarantees
/// For an unknown value, the hash contains its name. An object encrypted by SOPS is hashed as ciphertext, without the
/// metadata of SOPS, which changes with each encryption. The source's revision and the order of objects have no effect. The
/// digest has no key and is public, so the rendering must hold only values from the repository or declared facts.
pub fn blind_digest(
    id: &ObjectId,
    applier: &RenderedApplier,
    inputs: Option<&str>,
) -> Option<String> {
    if applier.failure.is_some() {
        return None;
    }
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        // The length has a fixed size, so that every machine computes the same digest.
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    };
    add(FORMAT);
    add(&id.to_string());
    add(&applier.target_cluster);
    let HelmReleaseTarget { name, storage_namespace, keeps_with_other_chart, .. } =
        applier.helm_release.clone().unwrap_or_default();
    add(&name);
    add(&storage_namespace);
    let RenderedApplier { prunes, deletes_with_itself, forces, .. } = applier;
    add(&format!("{keeps_with_other_chart} {prunes} {deletes_with_itself} {forces}"));
    match inputs {
        Some(inputs) => add(inputs),
        None => {
            let objects: BTreeMap<String, String> =
                applier.objects.iter().map(|it| (it.id().to_string(), content_of(it))).collect();
            add(&objects.len().to_string());
            for (id, content) in &objects {
                add(id);
                add(content);
            }
        }
    }
    let unknown: BTreeSet<&str> =
        applier.unknown_values.iter().map(|it| it.what.as_str()).collect();
    unknown.into_iter().for_each(add);
    Some(format!("blind-sha256:{}", hex::encode(hash.finalize())))
}

/// The digest of an object. For an encrypted object, the digest of its ciphertext.
fn content_of(object: &Object) -> String {
    if !is_encrypted(object) {
        return apply::digest(object);
    }
    let mut fields = object.fields().clone();
    fields.remove("sops");
    let without_sops = Object::new(Value::Object(fields));
    without_sops.map_or_else(|_| apply::digest(object), |it| apply::digest(&it))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rendering::UnknownValue;

    fn object(name: &str, value: &str) -> Object {
        let metadata = json!({"name": name, "namespace": "shop"});
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"key": value}}))
        .unwrap()
    }

    fn encrypted(ciphertext: &str, mac: &str) -> Object {
        let metadata = json!({"name": "login", "namespace": "shop"});
        Object::new(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "data": {"key": ciphertext}, "sops": {"mac": mac, "lastmodified": mac}}))
        .unwrap()
    }

    fn applier(objects: Vec<Object>) -> RenderedApplier {
        RenderedApplier { objects, prunes: true, ..RenderedApplier::default() }
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new("flux-system", name, "kustomize.toolkit.fluxcd.io", "Kustomization")
    }

    fn digest(applier: &RenderedApplier) -> String {
        blind_digest(&id("apps"), applier, None).unwrap()
    }

    #[test]
    fn the_same_objects_have_the_same_digest_in_any_order_and_at_any_revision() {
        let one = applier(vec![object("a", "1"), object("b", "1")]);
        let other = RenderedApplier {
            source_revision: "main@sha1:2".to_owned(),
            ..applier(vec![object("b", "1"), object("a", "1")])
        };
        assert_eq!(digest(&one), digest(&other));
        assert!(digest(&one).starts_with("blind-sha256:"));
        assert_ne!(Some(digest(&one)), blind_digest(&id("other"), &one, None));
    }

    #[test]
    fn whatever_changes_the_result_changes_the_digest() {
        let one = || applier(vec![object("a", "1")]);
        let unknown = |what: &str, reason: &str| {
            let value = UnknownValue { what: what.to_owned(), reason: reason.to_owned() };
            RenderedApplier { unknown_values: vec![value], ..one() }
        };
        let first = digest(&one());
        for other in [
            applier(vec![object("a", "2")]),
            applier(vec![object("a", "1"), object("b", "1")]),
            applier(Vec::new()),
            RenderedApplier { prunes: false, ..one() },
            RenderedApplier { forces: true, ..one() },
            RenderedApplier { target_cluster: "west".to_owned(), ..one() },
            unknown("Secret/shop/login, key password", "it is not in the repository"),
        ] {
            assert_ne!(digest(&other), first, "{other:?}");
        }
        let named = unknown("Secret/shop/login", "it is not in the repository");
        assert_eq!(digest(&named), digest(&unknown("Secret/shop/login", "for another reason")));
        let failed = RenderedApplier { failure: Some("no chart".to_owned()), ..one() };
        assert_eq!(blind_digest(&id("apps"), &failed, None), None);
    }

    #[test]
    fn of_an_encrypted_object_the_ciphertext_counts() {
        let of = |ciphertext: &str, mac: &str| digest(&applier(vec![encrypted(ciphertext, mac)]));
        assert_eq!(of("ENC[AES256_GCM,data:a]", "1"), of("ENC[AES256_GCM,data:a]", "2"));
        assert_ne!(of("ENC[AES256_GCM,data:a]", "1"), of("ENC[AES256_GCM,data:b]", "1"));
    }

    #[test]
    fn the_inputs_of_a_release_stand_for_its_objects() {
        let of = |objects: Vec<Object>, inputs: &str| {
            blind_digest(&id("apps"), &applier(objects), Some(inputs))
        };
        assert_eq!(of(vec![object("a", "1")], "chart 1"), of(Vec::new(), "chart 1"));
        assert_ne!(of(Vec::new(), "chart 1"), of(Vec::new(), "chart 2"));
    }
}
