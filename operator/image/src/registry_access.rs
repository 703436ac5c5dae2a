//! How windlass connects to the registry of an ImageRepository: its Secrets, its ServiceAccount, and the login of its cloud.
//!
//! Elsewhere: the requests to the registry (`sources::oci`).

use std::collections::BTreeMap;
use std::time::Duration;

use crds::LocalObjectReference;
use crds::image::ImageRepositorySpec;
use crds::source::RegistryProvider;
use http_client::{HttpProxy, TlsConfig};
use image::ImageName;
use reconcile::{RunOutcome, condition_reason};
use sources::oci::{
    self, Error, OciRepositoryName, RegistryKeyring, RegistryLimits, RegistrySession,
    RegistrySessionCache, RemoteOciRepository,
};
use sources::source_condition_reasons::INVALID_DURATION;
use windlass_cluster::referenced_secrets_and_config_maps::{
    RunReferenceReads, distinct_pull_secrets,
};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::time_limit::LONGEST_TIMEOUT;
use windlass_runtime::unsupported_fields::unsupported_text;

use crate::image_kind_run::IMAGE_URL_INVALID;

/// The shortest. Parity(flux).
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The data of a Secret.
type SecretData = BTreeMap<String, Vec<u8>>;

/// Fields that were given and have no support.
pub(crate) fn unsupported(spec: &ImageRepositorySpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let ImageRepositorySpec {
        image: _,
        interval: _,
        timeout: _,
        secret_ref: _,
        proxy_secret_ref: _,
        service_account_name,
        cert_secret_ref: _,
        suspend: _,
        access_from: _,
        exclusion_list: _,
        provider,
        insecure: _,
    } = spec;
    let is_aws = *provider == Some(RegistryProvider::Aws);
    let given = [
        (
            "spec.serviceAccountName with spec.provider `aws`",
            is_aws && service_account_name.is_some(),
        ),
        ("spec.provider `azure`", *provider == Some(RegistryProvider::Azure)),
        ("spec.provider `gcp`", *provider == Some(RegistryProvider::Gcp)),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// The image of an ImageRepository, checked.
#[derive(Debug)]
pub(crate) struct ScannedImage {
    /// The name of the image. It is displayed in its canonical form.
    pub(crate) name: ImageName,
    /// The name of the repository.
    repository: OciRepositoryName,
    /// `spec.interval`.
    pub(crate) interval: Duration,
    /// The time limit for all requests of a run.
    timeout: Duration,
}

impl ScannedImage {
    /// Checks the image and the durations of a spec.
    ///
    /// # Errors
    /// The spec is invalid, and only a change of the spec helps.
    pub(crate) fn of(spec: &ImageRepositorySpec) -> Result<Self, RunOutcome> {
        let fields = unsupported(spec);
        if !fields.is_empty() {
            return Err(RunOutcome::Stalled(
                condition_reason::UNSUPPORTED_FIELD,
                unsupported_text(&fields),
            ));
        }
        let name = ImageName::parse(&spec.image, spec.insecure)
            .map_err(|error| RunOutcome::Stalled(IMAGE_URL_INVALID, error.to_string()))?;
        let repository = OciRepositoryName::of_image(name.registry(), &name.repository());
        let repository = repository.map_err(|error| {
            let text = format!("could not parse reference: {}: {error}", spec.image);
            RunOutcome::Stalled(IMAGE_URL_INVALID, text)
        })?;
        let duration = |field: &str, text: &str| {
            reconcile::parse_duration(text).map_err(|error| {
                RunOutcome::Stalled(INVALID_DURATION, format!("spec.{field}: {error}"))
            })
        };
        let interval = duration("interval", spec.interval.as_str())?;
        let timeout = match &spec.timeout {
            Some(timeout) => duration("timeout", timeout.as_str())?,
            None => interval,
        };
        let timeout = timeout.clamp(SHORTEST_TIMEOUT, LONGEST_TIMEOUT);
        Ok(Self { name, repository, interval, timeout })
    }
}

/// The data of the Secrets that a spec names.
#[derive(Default)]
pub(crate) struct RegistrySecrets {
    secret: Option<SecretData>,
    /// The image pull secrets of the ServiceAccount, in its order.
    pull_secrets: Vec<SecretData>,
    certificates: Option<SecretData>,
    proxy: Option<SecretData>,
}

impl RegistrySecrets {
    /// Reads all objects that a spec names, in the namespace of its object. All of them are among the references then.
    ///
    /// # Errors
    /// The outcome names the first object that is missing or cannot be read.
    pub(crate) async fn read(
        spec: &ImageRepositorySpec,
        namespace: &str,
        references: &mut RunReferenceReads,
    ) -> Result<Self, String> {
        let mut reader = SecretReader { namespace, references };
        let secret = reader.named("secretRef", spec.secret_ref.as_ref()).await;
        let pull_secrets = match &spec.service_account_name {
            Some(name) => reader.pull_secrets(name).await,
            None => Ok(Vec::new()),
        };
        let certificates = reader.named("certSecretRef", spec.cert_secret_ref.as_ref()).await;
        let proxy = reader.named("proxySecretRef", spec.proxy_secret_ref.as_ref()).await;
        Ok(Self {
            secret: secret?,
            pull_secrets: pull_secrets?,
            certificates: certificates?,
            proxy: proxy?,
        })
    }

    /// The registry of an image, reached as a spec says.
    ///
    /// Parity(flux): a Secret without a docker config has no credentials.
    ///
    /// # Errors
    /// Something in a Secret cannot be used.
    pub(crate) fn remote(
        &self,
        image: &ScannedImage,
        is_insecure: bool,
    ) -> Result<RemoteOciRepository, String> {
        let mut keyring = RegistryKeyring::default();
        for secret in self.secret.iter().chain(&self.pull_secrets) {
            keyring.add(secret).map_err(|error| error.to_string())?;
        }
        let tls = self.certificates.as_ref().map(oci::tls_from_secret).transpose();
        let tls: Option<TlsConfig> = tls.map_err(|error| error.to_string())?;
        let proxy = self.proxy.as_ref().map(HttpProxy::from_secret).transpose();
        Ok(RemoteOciRepository {
            auth: keyring.auth(&image.repository),
            repository: image.repository.clone(),
            tls: tls.unwrap_or_default(),
            proxy: proxy.map_err(|error| error.to_string())?,
            insecure: is_insecure,
            timeout: image.timeout,
            limits: RegistryLimits::default(),
        })
    }
}

struct SecretReader<'a> {
    namespace: &'a str,
    references: &'a mut RunReferenceReads,
}

impl SecretReader<'_> {
    /// The data of a Secret that a field names. `None` if the field is empty.
    async fn named(
        &mut self,
        field: &str,
        reference: Option<&LocalObjectReference>,
    ) -> Result<Option<SecretData>, String> {
        let Some(reference) = reference else { return Ok(None) };
        let advice = format!("create it or correct spec.{field}");
        self.secret(&reference.name, &advice).await.map(Some)
    }

    async fn secret(&mut self, name: &str, advice: &str) -> Result<SecretData, String> {
        let place = format!("{}/{name}", self.namespace);
        let secret = self.references.secret(self.namespace, name).await;
        let secret = secret.map_err(|error| format!("failed to get secret '{place}': {error}"))?;
        secret.ok_or_else(|| format!("secret '{place}' not found; {advice}"))
    }

    /// Parity(flux): each image pull secret has to exist.
    async fn pull_secrets(&mut self, account: &str) -> Result<Vec<SecretData>, String> {
        let place = format!("{}/{account}", self.namespace);
        let names = self.references.pull_secrets(self.namespace, account).await;
        let names =
            names.map_err(|error| format!("failed to get serviceaccount '{place}': {error}"))?;
        let names = names.ok_or_else(|| {
            format!(
                "serviceaccount '{place}' not found; create it or correct spec.serviceAccountName"
            )
        })?;
        let names = distinct_pull_secrets(names)
            .map_err(|why| format!("failed to get serviceaccount '{place}': {why}"))?;
        let mut secrets = Vec::new();
        let mut missing = None;
        for name in names {
            match self.secret(&name, "create it or take it off the ServiceAccount").await {
                Ok(data) => secrets.push(data),
                Err(why) => {
                    let text = format!(
                        "failed to get image pull secret for serviceaccount '{place}': {why}"
                    );
                    missing = missing.or(Some(text));
                }
            }
        }
        missing.map_or(Ok(secrets), Err)
    }
}

/// A conversation with a registry, after the login of its cloud where the spec wants that.
///
/// Parity(flux): a Secret goes before the cloud.
///
/// # Errors
/// There is no login, or what the Secrets say about the connection cannot be used.
pub(crate) async fn session<'s>(
    context: &'s RunContext,
    spec: &ImageRepositorySpec,
    remote: &'s mut RemoteOciRepository,
) -> Result<RegistrySession<'s>, Error> {
    let known: &RegistrySessionCache = &context.remotes.oci;
    if spec.provider == Some(RegistryProvider::Aws) && spec.secret_ref.is_none() {
        remote.auth = known.login_to_aws(&remote.repository, remote.timeout).await?;
    }
    RegistrySession::new(remote, known)
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::{Value, json};

    use super::*;

    fn spec(more: &Value) -> ImageRepositorySpec {
        let mut spec = json!({"image": "example.com/team/app", "interval": "10m"});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn docker(user: &str) -> SecretData {
        let config = json!({"auths": {"example.com": {"username": user, "password": "hunter2"}}});
        BTreeMap::from([(".dockerconfigjson".to_owned(), config.to_string().into_bytes())])
    }

    #[test]
    fn every_field_of_the_schema_is_used_or_refused() {
        let used = [
            "image",
            "interval",
            "timeout",
            "secretRef",
            "proxySecretRef",
            "serviceAccountName",
            "certSecretRef",
            "suspend",
            "accessFrom",
            "exclusionList",
            "insecure",
        ];
        spec_field_check::knows_every_field(
            "ImageRepository",
            used.into_iter().chain(["provider"]),
        );
        for provider in ["azure", "gcp"] {
            let outcome = ScannedImage::of(&spec(&json!({"provider": provider}))).unwrap_err();
            spec_field_check::refuses("provider", &outcome);
        }
        let both = json!({"provider": "aws", "serviceAccountName": "app"});
        let outcome = ScannedImage::of(&spec(&both)).unwrap_err();
        spec_field_check::refuses("serviceAccountName", &outcome);
        for provider in ["aws", "generic"] {
            assert!(ScannedImage::of(&spec(&json!({"provider": provider}))).is_ok());
        }
    }

    #[test]
    fn only_a_change_of_spec_helps_against_what_is_malformed() {
        for (more, reason, text) in [
            (
                json!({"image": "oci://ghcr.io/acme/app"}),
                "ImageURLInvalid",
                "image 'oci://ghcr.io/acme/app' should not include URL scheme; remove 'oci://'",
            ),
            (
                json!({"image": "ghcr.io/acme/app:v1"}),
                "ImageURLInvalid",
                "image 'ghcr.io/acme/app:v1' should not include a tag; remove ':v1'",
            ),
            (
                json!({"image": "ghcr.io/../app"}),
                "ImageURLInvalid",
                "could not parse reference: ghcr.io/../app: ",
            ),
            (json!({"interval": "soon"}), "InvalidDuration", "spec.interval: "),
            (json!({"timeout": "-1s"}), "InvalidDuration", "spec.timeout: "),
        ] {
            let outcome = ScannedImage::of(&spec(&more)).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
            assert_eq!(outcome.reason().as_str(), reason);
            assert!(outcome.text().starts_with(text), "{outcome:?}");
        }
    }

    #[test]
    fn a_scan_has_a_second_at_least_and_the_interval_without_a_timeout() {
        let timeout = |more: Value| ScannedImage::of(&spec(&more)).unwrap().timeout.as_secs();
        assert_eq!(timeout(json!({"interval": "2m"})), 120);
        assert_eq!(timeout(json!({"timeout": "100ms"})), 1);
        assert_eq!(timeout(json!({"timeout": "30s"})), 30);
        assert_eq!(timeout(json!({"interval": "24h"})), 600);
    }

    #[test]
    fn credentials_are_those_of_the_secret_before_those_of_the_account() {
        let image = ScannedImage::of(&spec(&json!({}))).unwrap();
        let login = |secrets: &RegistrySecrets| match secrets.remote(&image, false).unwrap().auth {
            oci::RegistryAuth::Basic { username, .. } => username,
            other => format!("{other:?}"),
        };
        let pull_secrets = vec![docker("sa")];
        let account = RegistrySecrets { pull_secrets, ..RegistrySecrets::default() };
        assert_eq!(login(&account), "sa");
        let both = RegistrySecrets { secret: Some(docker("own")), ..account };
        assert_eq!(login(&both), "own");
        let other = BTreeMap::from([("token".to_owned(), b"x".to_vec())]);
        let other = RegistrySecrets { secret: Some(other), ..RegistrySecrets::default() };
        assert_eq!(login(&other), "Anonymous");
        let broken = BTreeMap::from([(".dockerconfigjson".to_owned(), b"hunter2".to_vec())]);
        let broken = RegistrySecrets { secret: Some(broken), ..RegistrySecrets::default() };
        let error = broken.remote(&image, false).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
