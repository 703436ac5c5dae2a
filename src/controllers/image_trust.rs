//! Who has to have signed what comes from a registry, and verifying that before it is pulled.
//!
//! Elsewhere: signatures themselves (the engine `signatures`), requests to registries (`sources::oci`), what becomes of it
//! (each kind), how it is remembered (`source::verified`).

use std::sync::Arc;

use crds::source::{
    HelmChartVerification, OCIRepositoryVerification, OIDCIdentityMatch, SignatureProvider,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use signatures::image::{Data, Trust, Verified, refusal};
use signatures::sigstore::Identity;
use sources::oci::{Digest, Error, Session};

use super::reference::References;

/// What a spec says of who has to have signed.
pub(crate) struct Wanted<'s> {
    provider: SignatureProvider,
    secret: Option<&'s str>,
    root: Option<&'s str>,
    identities: Vec<Identity>,
}

/// Who has to have signed.
pub(crate) struct Verification {
    provider: &'static str,
    trust: Arc<Trust>,
    how: Value,
}

/// Why an image is not known to be signed.
pub(crate) enum Failure {
    /// The registry did not say.
    Registry(Error),
    /// It is not, in Flux's words.
    Refused(String),
}

impl<'s> Wanted<'s> {
    /// As an OCIRepository says it.
    pub(crate) fn of_repository(verify: &'s OCIRepositoryVerification) -> Self {
        Self {
            provider: verify.provider,
            secret: verify.secret_ref.as_ref().map(|reference| reference.name.as_str()),
            root: verify.trusted_root_secret_ref.as_ref().map(|it| it.name.as_str()),
            identities: identities(&verify.match_oidc_identity),
        }
    }

    /// As a HelmChart says it.
    pub(crate) fn of_chart(verify: &'s HelmChartVerification) -> Self {
        Self {
            provider: verify.provider,
            secret: verify.secret_ref.as_ref().map(|reference| reference.name.as_str()),
            root: None,
            identities: identities(&verify.match_oidc_identity),
        }
    }

    /// Parity(flux): without keys, cosign verifies keyless.
    fn provider(&self) -> &'static str {
        match (self.provider, self.secret) {
            (SignatureProvider::Notation, _) => "notation",
            (SignatureProvider::Cosign, Some(_)) => "cosign",
            (SignatureProvider::Cosign, None) => "cosign keyless",
        }
    }

    /// Reads the Secrets that are named. The text of an error is what Flux says.
    pub(crate) async fn read(
        self,
        namespace: &str,
        references: &mut References,
    ) -> Result<Verification, String> {
        let provider = self.provider();
        let data = async {
            let name = match provider {
                "cosign keyless" => self.root,
                _ => self.secret,
            };
            let Some(name) = name else { return Ok(None) };
            let secret = references.secret(namespace, name).await;
            let secret = secret.map_err(|error| error.to_string())?;
            let data = secret.ok_or_else(|| format!("secrets \"{name}\" not found"))?;
            Ok(Some((format!("{namespace}/{name}"), data)))
        };
        let verification = match data.await {
            Ok(data) => self.with(data),
            Err(why) => Err(why),
        };
        verification.map_err(|why| refusal(provider, &why))
    }

    /// Puts the spec together with the Secret, of which the name is given too.
    fn with(self, secret: Option<(String, Data)>) -> Result<Verification, String> {
        let provider = self.provider();
        let secret = secret.as_ref().map(|(place, data)| (place.as_str(), data));
        let how = json!({
            "provider": provider,
            "secret": secret.map(|(_, data)| fingerprint(data)),
            "identities": self.identities.iter().map(|it| json!([it.issuer, it.subject])).collect::<Vec<_>>(),
        });
        let trust = match (self.provider, secret) {
            (SignatureProvider::Cosign, Some((_, data))) if self.secret.is_some() => {
                Trust::Keys(data.clone())
            }
            (SignatureProvider::Cosign, Some((place, data))) => {
                Trust::identities(place, data, self.identities)?
            }
            (SignatureProvider::Cosign, None) => Trust::public(self.identities)?,
            (SignatureProvider::Notation, Some((place, data))) => Trust::notation(place, data)?,
            (SignatureProvider::Notation, None) => {
                return Err("verification secret cannot be nil for provider: 'notation'".to_owned());
            }
        };
        Ok(Verification { provider, trust: Arc::new(trust), how })
    }
}

fn identities(matches: &[OIDCIdentityMatch]) -> Vec<Identity> {
    let identity = |it: &OIDCIdentityMatch| Identity {
        issuer: it.issuer.clone(),
        subject: it.subject.clone(),
    };
    matches.iter().map(identity).collect()
}

/// A hash of the data of a Secret.
fn fingerprint(data: &Data) -> String {
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
impl Verification {
    /// What an OCIRepository asks for, with the data of its Secret.
    pub(crate) fn for_tests(object: &crds::source::OCIRepository, data: Data) -> Self {
        let verify = object.spec.verify.as_ref().unwrap();
        let secret = Some(("shop/keys".to_owned(), data));
        Wanted::of_repository(verify).with(secret).unwrap_or_else(|why| panic!("{why}"))
    }
}

impl Verification {
    /// As the plan compares it: other keys or identities have everything verified anew.
    pub(crate) fn how(&self) -> Value {
        self.how.clone()
    }

    /// Verifies what has a digest; gives who signed it, or that the trust policy demands no signature.
    pub(crate) async fn verify(
        &self,
        session: &Session<'_>,
        digest: &Digest,
    ) -> Result<Verified, Failure> {
        let search = session.gather(self.trust.search(&digest.to_string())).await;
        let search = search.map_err(Failure::Registry)?;
        let (trust, repository) = (self.trust.clone(), session.repository().to_string());
        let now = jiff::Timestamp::now().as_second();
        let verify = move || trust.verify(&search, &repository, now);
        let verified = tokio::task::spawn_blocking(verify).await;
        let verified = verified.unwrap_or_else(|_| Err("it was interrupted".to_owned()));
        verified.map_err(|why| Failure::Refused(refusal(self.provider, &why)))
    }
}
