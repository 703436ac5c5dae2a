//! Decides which signatures the artifacts of a registry need, and verifies these signatures before a pull.
//!
//! Elsewhere: signatures themselves (the engine `signatures`), requests to registries (`sources::oci`), the use of the result
//! (each kind), recording it (`source::artifact_verification_record`).

use std::sync::Arc;

use crds::source::{
    HelmChartVerification, OCIRepositoryVerification, OIDCIdentityMatch, SignatureProvider,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signatures::image_verification::{ImageTrust, ImageVerification, SignatureSecretData, refusal};
use signatures::sigstore::CertificateIdentityMatcher;
use sources::oci::{Error, OciDigest, RegistrySession};

use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;

/// The signatures that a spec requires.
pub(crate) struct SignaturePolicy {
    provider: SignatureProvider,
    secret: Option<String>,
    root: Option<String>,
    identities: Vec<CertificateIdentityMatcher>,
}

/// The required signatures, with the keys or identities that count.
pub(crate) struct ImageVerificationPolicy {
    provider: &'static str,
    trust: Arc<ImageTrust>,
    how: Value,
}

/// The reason why an image is not known to be signed.
pub(crate) enum ImageTrustError {
    /// The registry did not say.
    Registry(Error),
    /// The image is not signed as required, in Flux's words.
    Refused(String),
}

impl SignaturePolicy {
    /// The required signatures of an OCIRepository.
    pub(crate) fn of_repository(verify: &OCIRepositoryVerification) -> Self {
        Self {
            provider: verify.provider,
            secret: verify.secret_ref.as_ref().map(|it| it.name.clone()),
            root: verify.trusted_root_secret_ref.as_ref().map(|it| it.name.clone()),
            identities: identities(&verify.match_oidc_identity),
        }
    }

    /// The required signatures of a HelmChart.
    pub(crate) fn of_chart(verify: &HelmChartVerification) -> Self {
        Self {
            provider: verify.provider,
            secret: verify.secret_ref.as_ref().map(|it| it.name.clone()),
            root: None,
            identities: identities(&verify.match_oidc_identity),
        }
    }

    /// Parity(flux): without keys, cosign verifies keyless.
    fn provider(&self) -> &'static str {
        match (self.provider, &self.secret) {
            (SignatureProvider::Notation, _) => "notation",
            (SignatureProvider::Cosign, Some(_)) => "cosign",
            (SignatureProvider::Cosign, None) => "cosign keyless",
        }
    }

    /// The warning that any user may have signed, because the authority certifies the identities of all its users. `None` if
    /// only some users may sign.
    pub(crate) fn accepts_anyone(&self) -> Option<String> {
        let is_anyone =
            |it: &CertificateIdentityMatcher| it.issuer.is_empty() || it.subject.is_empty();
        let all = &self.identities;
        let is_open = all.is_empty() || all.iter().any(is_anyone);
        (self.provider() == "cosign keyless" && is_open).then(|| {
            "it accepts the signature of anyone: set spec.verify.matchOIDCIdentity, with issuer and subject"
                .to_owned()
        })
    }

    /// Reads the Secrets for verifying artifacts of a repository. Errors have Flux's text.
    pub(crate) async fn read(
        self,
        repository: &str,
        namespace: &str,
        references: &mut RunReferenceReads,
    ) -> Result<ImageVerificationPolicy, String> {
        let provider = self.provider();
        let data = async {
            let name = match provider {
                "cosign keyless" => self.root.as_deref(),
                _ => self.secret.as_deref(),
            };
            let Some(name) = name else { return Ok(None) };
            let secret = references.secret(namespace, name).await;
            let secret = secret.map_err(|error| error.to_string())?;
            let data = secret.ok_or_else(|| format!("secrets \"{name}\" not found"))?;
            Ok(Some((format!("{namespace}/{name}"), data)))
        };
        let verification = match data.await {
            Ok(data) => {
                let repository = repository.to_owned();
                // Keys, roots and policies are parsed and compared, however many there are.
                let read = tokio::task::spawn_blocking(move || self.with(&repository, data)).await;
                read.unwrap_or_else(|_| Err("reading the keys was interrupted".to_owned()))
            }
            Err(why) => Err(why),
        };
        verification.map_err(|why| refusal(provider, &why))
    }

    /// Puts the spec together with the Secret, of which the name is given too.
    ///
    /// Differs(flux): what was verified in one repository is verified anew in another, for which others may be trusted.
    fn with(
        self,
        repository: &str,
        secret: Option<(String, SignatureSecretData)>,
    ) -> Result<ImageVerificationPolicy, String> {
        let provider = self.provider();
        let secret = secret.as_ref().map(|(place, data)| (place.as_str(), data));
        let how = json!({
            "provider": provider,
            "repository": repository,
            "secret": secret.map(|(_, data)| fingerprint(data)),
            "identities": self.identities.iter().map(|it| json!([it.issuer, it.subject])).collect::<Vec<_>>(),
        });
        let trust = match (self.provider, secret) {
            (SignatureProvider::Cosign, Some((_, data))) if self.secret.is_some() => {
                ImageTrust::Keys(data.clone())
            }
            (SignatureProvider::Cosign, Some((place, data))) => {
                ImageTrust::identities(place, data, self.identities)?
            }
            (SignatureProvider::Cosign, None) => ImageTrust::public(self.identities)?,
            (SignatureProvider::Notation, Some((place, data))) => {
                ImageTrust::notation(place, data)?
            }
            (SignatureProvider::Notation, None) => {
                return Err("verification secret cannot be nil for provider: 'notation'".to_owned());
            }
        };
        Ok(ImageVerificationPolicy { provider, trust: Arc::new(trust), how })
    }
}

fn identities(matches: &[OIDCIdentityMatch]) -> Vec<CertificateIdentityMatcher> {
    let identity = |it: &OIDCIdentityMatch| CertificateIdentityMatcher {
        issuer: it.issuer.clone(),
        subject: it.subject.clone(),
    };
    matches.iter().map(identity).collect()
}

/// The signer in one line, as a condition shows it.
pub(crate) fn signer(name: &str) -> String {
    const MAX_SHOWN_NAME_CHARACTERS: usize = 256;
    let shown: String =
        name.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_NAME_CHARACTERS).collect();
    format!(": signed by {shown}")
}

/// A hash of the data of a Secret.
fn fingerprint(data: &SignatureSecretData) -> String {
    let mut digest = Sha256::new();
    for (name, value) in data {
        for part in [name.as_bytes(), value] {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
    }
    hex::encode(digest.finalize())
}

#[cfg(test)]
impl ImageVerificationPolicy {
    /// The trust of an OCIRepository, with the data of its Secret.
    pub(crate) fn for_tests(
        object: &crds::source::OCIRepository,
        data: SignatureSecretData,
    ) -> Self {
        let verify = object.spec.verify.as_ref().unwrap();
        let secret = Some(("shop/keys".to_owned(), data));
        let url = object.spec.url.as_str();
        SignaturePolicy::of_repository(verify)
            .with(url, secret)
            .unwrap_or_else(|why| panic!("{why}"))
    }
}

impl ImageVerificationPolicy {
    /// The required signatures, as the plan compares them. With other keys or identities, every artifact is verified again.
    pub(crate) fn how(&self) -> Value {
        self.how.clone()
    }

    /// Verifies the artifact with a digest. Returns the signer, or that the trust policy requires no signature.
    pub(crate) async fn verify(
        &self,
        session: &RegistrySession<'_>,
        digest: &OciDigest,
    ) -> Result<ImageVerification, ImageTrustError> {
        let search = session.gather(self.trust.search(&digest.to_string())).await;
        let search = search.map_err(ImageTrustError::Registry)?;
        let trust = self.trust.clone();
        let repository = session.repository().to_string();
        let now = jiff::Timestamp::now().as_second();
        let verify = move || trust.verify(&search, &repository, now);
        let verified = tokio::task::spawn_blocking(verify).await;
        let verified = verified.unwrap_or_else(|_| Err("it was interrupted".to_owned()));
        verified.map_err(|why| ImageTrustError::Refused(refusal(self.provider, &why)))
    }
}

#[cfg(test)]
mod tests {
    use crds::source::OCIRepository;

    use super::*;

    fn verify(verify: &Value) -> OCIRepositoryVerification {
        serde_json::from_value(verify.clone()).unwrap()
    }

    #[test]
    fn keyless_signatures_are_of_anyone_unless_an_identity_is_given() {
        let warning_of =
            |wanted: Value| SignaturePolicy::of_repository(&verify(&wanted)).accepts_anyone();
        let of = |issuer: &str, subject: &str| {
            json!({"provider": "cosign", "matchOIDCIdentity": [
                {"issuer": "^https://a$", "subject": "^b$"}, {"issuer": issuer, "subject": subject}]})
        };
        for open in [json!({"provider": "cosign"}), of("", "b"), of("a", "")] {
            let why = warning_of(open).unwrap();
            assert!(why.contains("set spec.verify.matchOIDCIdentity"), "{why}");
        }
        assert_eq!(warning_of(of("a", "b")), None);
        assert_eq!(warning_of(json!({"provider": "cosign", "secretRef": {"name": "keys"}})), None);
        assert_eq!(
            warning_of(json!({"provider": "notation", "secretRef": {"name": "keys"}})),
            None
        );
        let chart: HelmChartVerification =
            serde_json::from_value(json!({"provider": "cosign"})).unwrap();
        assert!(SignaturePolicy::of_chart(&chart).accepts_anyone().is_some());
    }

    #[test]
    fn another_repository_is_verified_anew() {
        let of = |url: &str| {
            let object: OCIRepository = serde_json::from_value(json!({
                "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
                "metadata": {"name": "app"},
                "spec": {"interval": "1m", "url": url,
                    "verify": {"provider": "cosign", "secretRef": {"name": "keys"}}},
            }))
            .unwrap();
            ImageVerificationPolicy::for_tests(&object, SignatureSecretData::new()).how()
        };
        assert_eq!(of("oci://r.io/dev"), of("oci://r.io/dev"));
        assert_ne!(of("oci://r.io/dev"), of("oci://r.io/prod"));
    }

    #[test]
    fn a_signer_has_one_short_line() {
        assert_eq!(signer("cosign.pub"), ": signed by cosign.pub");
        assert_eq!(signer(&"x\n".repeat(1000)).len(), ": signed by ".len() + 256);
    }
}
