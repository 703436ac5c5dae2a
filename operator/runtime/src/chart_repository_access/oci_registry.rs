//! How windlass reaches the registry of a HelmRepository of type `oci`.

use std::collections::BTreeMap;

use crds::source::HelmRepository;
use objects::RedactedValue;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use sources::charts::MAX_CHART;
use sources::oci::{
    self, OciRepositoryName, RegistryAuth, RegistryKeyring, RegistryLimits, RemoteOciRepository,
};
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};

use super::{DEFAULT_TIMEOUT, HelmRepositorySecrets, unsupported};
use crate::registry_login::login;
use crate::run_context::RunContext;
use crate::unsupported_fields::unsupported_text;

/// The repository of a chart in an OCI registry, with a login if the spec asks for one.
///
/// # Errors
/// The outcome of a run: a field is not supported, an address or Secret cannot be used, or the login fails.
pub async fn registry(
    context: &RunContext,
    object: &HelmRepository,
    secrets: &HelmRepositorySecrets,
    chart: &str,
) -> Result<RemoteOciRepository, RunOutcome> {
    let mut remote = remote(object, secrets, chart)?;
    let has_secret = object.spec.secret_ref.is_some();
    login(context, object.spec.provider, has_secret, &mut remote).await?;
    Ok(remote)
}

/// The repository of a chart, with the credentials and certificates of the Secrets.
fn remote(
    object: &HelmRepository,
    secrets: &HelmRepositorySecrets,
    chart: &str,
) -> Result<RemoteOciRepository, RunOutcome> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let text = format!("HelmRepository '{name}': {}", unsupported_text(&fields));
        return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text));
    }
    let refused =
        |text: String| RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default());
    let url = format!("{}/{chart}", spec.url.trim_end_matches('/'));
    let repository = OciRepositoryName::parse(&url).map_err(|error| {
        RunOutcome::Stalled(URL_INVALID, format!("invalid Helm repository URL: {error}"))
    })?;
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT);
    let auth = match &secrets.secret {
        Some(data) => auth(data, &repository)
            .map_err(|why| refused(format!("failed to configure Helm client: {why}")))?,
        None => RegistryAuth::Anonymous,
    };
    let tls = secrets.certificates.as_ref().map(oci::tls_from_secret).transpose();
    let tls = tls.map_err(|error| {
        refused(format!("failed to construct Helm client's TLS config: {error}"))
    })?;
    Ok(RemoteOciRepository {
        repository,
        auth,
        tls: tls.unwrap_or_default(),
        proxy: None,
        insecure: spec.insecure,
        timeout,
        limits: RegistryLimits { layer: MAX_CHART, ..RegistryLimits::default() },
    })
}

/// Parity(flux): a docker config, or a user and a password.
fn auth(
    data: &BTreeMap<String, Vec<u8>>,
    repository: &OciRepositoryName,
) -> Result<RegistryAuth, String> {
    let mut keyring = RegistryKeyring::default();
    if keyring.add(data).map_err(|error| error.to_string())? {
        return Ok(keyring.auth(repository));
    }
    let text = |key: &str| {
        let value = data.get(key).filter(|value| !value.is_empty());
        let text = value.map(|value| String::from_utf8(value.clone()));
        text.transpose().map_err(|_| format!("`{key}` of the Secret is not valid UTF-8"))
    };
    match (text("username")?, text("password")?) {
        (Some(username), Some(password)) => {
            Ok(RegistryAuth::Basic { username, password: RedactedValue::new(password) })
        }
        (None, None) => Ok(RegistryAuth::Anonymous),
        (Some(_), None) => Err("`username` of the Secret requires `password`".to_owned()),
        (None, Some(_)) => Err("`password` of the Secret requires `username`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login_of(data: &[(&str, &str)]) -> Result<String, String> {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let repository = OciRepositoryName::parse("oci://registry.example.com/charts/app").unwrap();
        Ok(match auth(&data, &repository)? {
            RegistryAuth::Anonymous => "anonymous".to_owned(),
            RegistryAuth::Basic { username, password } => {
                format!("{username}:{}", password.expose())
            }
            RegistryAuth::Login { .. } | RegistryAuth::Identity(_) | RegistryAuth::Bearer(_) => {
                "a token".to_owned()
            }
        })
    }

    #[test]
    fn a_docker_config_or_a_user_and_a_password() {
        let config = r#"{"auths":{"registry.example.com":{"username":"a","password":"b"}}}"#;
        assert_eq!(login_of(&[(".dockerconfigjson", config)]).unwrap(), "a:b");
        assert_eq!(login_of(&[("username", "u"), ("password", "p")]).unwrap(), "u:p");
        assert_eq!(login_of(&[]).unwrap(), "anonymous");
        let half = login_of(&[("username", "u")]).unwrap_err();
        assert_eq!(half, "`username` of the Secret requires `password`");
    }
}
