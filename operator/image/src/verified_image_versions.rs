//! Records which latest version of each ImagePolicy this process has verified, and with which keys.
//!
//! A status is no proof of that: a user who may write statuses could set it, and it does not name the keys. The run of a
//! policy keeps the record, and automations read it. The record is in memory only, so each policy is verified again after a
//! restart. A suspended policy does not run, and therefore gives no result then.
//! Elsewhere: which keys are required (`image_verification`), verifying (`image_policy`), which results are written
//! (`image_update_automation`).

use std::collections::BTreeMap;

use crds::image::{ImagePolicy, ImageRef};
use parking_lot::Mutex;
use signatures::image_verification::SignatureSecretData;
use sources::oci::OciDigest;

use crate::image_verification::ImageVerificationKeySecretReference;

/// Digests of keys, by the Secrets that contain the keys.
pub(crate) type KeyFingerprints = BTreeMap<String, String>;

/// A digest of the keys of a Secret. If the keys change, versions are verified again.
pub(crate) fn fingerprint(keys: &SignatureSecretData) -> String {
    let mut digests = String::new();
    for (name, key) in keys {
        digests.push_str(&format!("{} {name}\n", OciDigest::of(key)));
    }
    OciDigest::of(digests.as_bytes()).to_string()
}

/// A version that is signed with a key of each required Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedImageVersion {
    /// The version, with its digest.
    pub(crate) version: ImageRef,
    /// All keys of these Secrets.
    pub(crate) keys: KeyFingerprints,
}

/// The notes of all policies, by their uids.
#[derive(Default)]
pub(crate) struct VerifiedImageVersions(Mutex<BTreeMap<String, VerifiedImageVersion>>);

impl VerifiedImageVersions {
    /// Stores the note of a policy. Returns whether the policy had no note or another one.
    pub(crate) fn keep(&self, object: &ImagePolicy, note: &VerifiedImageVersion) -> bool {
        let Some(uid) = object.metadata.uid.clone() else { return false };
        self.0.lock().insert(uid, note.clone()).as_ref() != Some(note)
    }

    /// Removes the note of a policy whose latest version is not verified, or that does not exist. Returns whether there was a
    /// note.
    pub(crate) fn forget(&self, object: &ImagePolicy) -> bool {
        let uid = object.metadata.uid.as_ref();
        uid.is_some_and(|uid| self.0.lock().remove(uid).is_some())
    }

    fn of(&self, object: &ImagePolicy) -> Option<VerifiedImageVersion> {
        self.0.lock().get(object.metadata.uid.as_ref()?).cloned()
    }

    /// The reason why the version in a policy's status is not known to be signed with a key of each of these Secrets. `None`
    /// if it is.
    pub(crate) fn doubt(
        &self,
        object: &ImagePolicy,
        secrets: &[ImageVerificationKeySecretReference],
    ) -> Option<String> {
        let status = object.status.as_ref();
        let latest = status.and_then(|status| status.latest_ref.as_ref());
        let Some(latest) = latest.filter(|latest| latest.digest.is_some()) else {
            return Some(format!("it has no digest; {}", remedy(object)));
        };
        let Some(note) = self.of(object) else {
            let remedy = remedy(object);
            return Some(format!("it was not verified, or not since windlass started; {remedy}"));
        };
        if note.version != *latest {
            let VerifiedImageVersion { version, .. } = note;
            let remedy = remedy(object);
            return Some(format!("the status has {latest} and verified is {version}; {remedy}"));
        }
        let missing = secrets.iter().find(|secret| !note.keys.contains_key(&secret.place()))?;
        let place = missing.place();
        Some(format!("it was not verified with the keys of secret '{place}'; {}", remedy(object)))
    }

    /// Like [`Self::doubt`], but also returns a reason if a Secret is missing or its keys changed since the verification.
    /// `current` holds the key fingerprints of the Secrets that exist. `None` if there is no doubt about the verification.
    pub(crate) fn doubt_by_keys(
        &self,
        object: &ImagePolicy,
        secrets: &[ImageVerificationKeySecretReference],
        current: &KeyFingerprints,
    ) -> Option<String> {
        let known = self.of(object).map(|note| note.keys).unwrap_or_default();
        let of_note = self.doubt(object, secrets);
        of_note.or_else(|| {
            secrets.iter().find_map(|secret| {
                let place = secret.place();
                match current.get(&place) {
                    None => Some(format!("secret '{place}' not found; {}", secret.advice)),
                    now if now == known.get(&place) => None,
                    Some(_) => Some(format!(
                        "the keys of secret '{place}' were changed after it was verified; {}",
                        remedy(object)
                    )),
                }
            })
        })
    }
}

/// The advice about a policy whose latest version is not verified.
fn remedy(object: &ImagePolicy) -> &'static str {
    match object.spec.suspend {
        true => "the policy is suspended: resume it, so that it is verified",
        false => "condition Ready of the policy says more",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(uid: &str, latest: &Value) -> ImagePolicy {
        serde_json::from_value(json!({
            "metadata": {"name": "app", "namespace": "apps", "uid": uid},
            "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {}},
            "status": {"latestRef": latest},
        }))
        .unwrap()
    }

    fn version(digest: &str) -> ImageRef {
        let [name, tag, digest] = ["r.io/app", "1", digest].map(str::to_owned);
        ImageRef { name, tag, digest: Some(digest) }
    }

    fn secret(name: &str) -> ImageVerificationKeySecretReference {
        let [namespace, name] = ["apps", name].map(str::to_owned);
        ImageVerificationKeySecretReference { namespace, name, advice: "create it" }
    }

    fn keys(all: &[(&str, &str)]) -> KeyFingerprints {
        all.iter().map(|(place, keys)| ((*place).to_owned(), (*keys).to_owned())).collect()
    }

    #[test]
    fn a_version_is_verified_by_the_note_of_the_policy_and_not_by_its_status() {
        let notes = VerifiedImageVersions::default();
        let latest = |digest: &str| json!({"name": "r.io/app", "tag": "1", "digest": digest});
        let object = policy("1", &latest("sha256:1"));
        let own = [secret("own")];
        let doubt = |object: &ImagePolicy| notes.doubt(object, &own).unwrap_or_default();
        assert!(doubt(&object).starts_with("it was not verified, or not since windlass started; "));
        let note = VerifiedImageVersion {
            version: version("sha256:1"),
            keys: keys(&[("apps/own", "a"), ("apps/other", "b")]),
        };
        assert!(notes.keep(&object, &note), "it is new");
        assert!(!notes.keep(&object, &note), "it is the same");
        assert_eq!(doubt(&object), "");
        let forged = doubt(&policy("1", &latest("sha256:2")));
        let text = "the status has r.io/app:1@sha256:2 and verified is r.io/app:1@sha256:1; ";
        assert!(forged.starts_with(text), "{forged}");
        let without = doubt(&policy("1", &json!({"name": "r.io/app", "tag": "1"})));
        assert!(without.starts_with("it has no digest; "), "{without}");
        assert_ne!(doubt(&policy("2", &latest("sha256:1"))), "", "another object of the name");
        assert!(notes.forget(&object) && !notes.forget(&object));
        assert_ne!(doubt(&object), "");
    }

    #[test]
    fn each_secret_that_is_required_now_has_to_have_the_keys_of_the_verification() {
        let notes = VerifiedImageVersions::default();
        let latest = json!({"name": "r.io/app", "tag": "1", "digest": "sha256:1"});
        let mut object = policy("1", &latest);
        let note =
            VerifiedImageVersion { version: version("sha256:1"), keys: keys(&[("apps/own", "a")]) };
        notes.keep(&object, &note);
        let doubt = |object: &ImagePolicy, names: &[&str], current: &[(&str, &str)]| {
            let secrets: Vec<ImageVerificationKeySecretReference> =
                names.iter().map(|name| secret(name)).collect();
            notes.doubt_by_keys(object, &secrets, &keys(current)).unwrap_or_default()
        };
        let same = [("apps/own", "a"), ("apps/platform", "p")];
        assert_eq!(doubt(&object, &["own"], &same), "");
        let text = "it was not verified with the keys of secret 'apps/platform'; ";
        let of_platform = doubt(&object, &["platform", "own"], &same);
        assert!(of_platform.starts_with(text), "{of_platform}");
        let text = "the keys of secret 'apps/own' were changed after it was verified; ";
        let changed = doubt(&object, &["own"], &[("apps/own", "b")]);
        assert!(changed.starts_with(text), "{changed}");
        assert_eq!(doubt(&object, &["own"], &[]), "secret 'apps/own' not found; create it");
        object.spec.suspend = true;
        let suspended = doubt(&object, &["own"], &[("apps/own", "b")]);
        assert!(suspended.ends_with("resume it, so that it is verified"), "{suspended}");
    }

    #[test]
    fn other_keys_have_another_fingerprint() {
        let of = |entries: &[(&str, &str)]| {
            let entry = |(name, key): &(&str, &str)| ((*name).to_owned(), key.as_bytes().to_vec());
            fingerprint(&entries.iter().map(entry).collect())
        };
        let one = of(&[("a.pub", "x")]);
        assert_eq!(one, of(&[("a.pub", "x")]));
        for other in
            [of(&[("a.pub", "y")]), of(&[("b.pub", "x")]), of(&[("a.pub", "x"), ("b.pub", "x")])]
        {
            assert_ne!(one, other);
        }
    }
}
