//! The spec of a Bucket, checked. An unsupported field is rejected, and the error names it.

mod cloud_identities;

use std::time::Duration;

use crds::source::{Bucket, BucketProvider, BucketSpec, BucketSts, StsProvider};
use http_client::{ClientCertificateAndKey, HttpProxy, TlsConfig};
use objects::RedactedValue;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome, condition_reason};
use sources::bucket::{
    BucketCredentialSource, BucketEndpoint, BucketServerSettings, Error, LdapUserLogin,
    RemoteBucket, bucket_archive,
};
use sources::fetch_plan::ArtifactInputs;
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};
use url::Url;

use super::executor::{BucketFetchSpec, classify};
use super::referenced_objects::{BucketReferencedSecrets, BucketSecretData};
use crate::source::{LONGEST_TIMEOUT, ValidatedSourceSpec};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The `sts` of the spec cannot be used.
const INVALID_STS_CONFIGURATION: ConditionReason = ConditionReason::new("InvalidSTSConfiguration");

/// Fields that were given and have no support, in the spec's order.
pub(super) fn unsupported(spec: &BucketSpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let BucketSpec {
        provider: _,
        bucket_name: _,
        endpoint: _,
        sts: _,
        insecure: _,
        region: _,
        prefix: _,
        secret_ref: _,
        service_account_name,
        cert_secret_ref: _,
        proxy_secret_ref: _,
        interval: _,
        timeout: _,
        ignore: _,
        suspend: _,
    } = spec;
    service_account_name.iter().map(|_| "spec.serviceAccountName").collect()
}

/// Checks the spec of a Bucket. Returns the validated spec, or the outcome that names its fault.
pub(super) fn desired(
    object: &Bucket,
    resolved: BucketReferencedSecrets,
) -> Result<ValidatedSourceSpec<BucketFetchSpec>, RunOutcome> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        let text = windlass_runtime::unsupported_fields::unsupported_text(&fields);
        return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text));
    }
    let endpoint = endpoint(spec)
        .map_err(|e| RunOutcome::Stalled(URL_INVALID, format!("spec.endpoint: {e}")))?;
    let identity = identity(spec, &endpoint, &resolved)?;
    let tls = tls(spec, resolved.certificates.as_ref())?;
    let proxy = resolved.proxy.as_ref().map(HttpProxy::from_secret).transpose();
    let proxy = proxy.map_err(|error| unusable(format!("failed to get proxy URL: {error}")))?;
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT)
        .min(LONGEST_TIMEOUT);
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let bundle = super::bundle(object).map(str::to_owned);
    if let Some(key) = &bundle {
        bucket_archive::check(key).map_err(|error| {
            let text = format!("annotation {}: {error}", super::BUNDLE);
            RunOutcome::Stalled(condition_reason::INVALID_PATH, text)
        })?;
        if spec.prefix.is_some() {
            let text = format!(
                "spec.prefix cannot be combined with the annotation {}, which names the full key; remove one of them",
                super::BUNDLE
            );
            return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text));
        }
    }
    let server =
        BucketServerSettings { endpoint, region: spec.region.clone(), identity, tls, proxy };
    let remote = RemoteBucket {
        server,
        bucket: spec.bucket_name.clone(),
        prefix: spec.prefix.clone().unwrap_or_default(),
        timeout,
        limits: tree::TreeLimits::default(),
    };
    let shape = ArtifactInputs::default().with("ignore", spec.ignore.clone());
    Ok(ValidatedSourceSpec { work: BucketFetchSpec { remote, bundle }, shape })
}

/// Where the store is.
///
/// Differs(flux): there `spec.endpoint` is ignored for `gcp`.
fn endpoint(spec: &BucketSpec) -> Result<BucketEndpoint, Error> {
    match spec.provider {
        Some(BucketProvider::Azure) => BucketEndpoint::parse_account(&spec.endpoint),
        Some(BucketProvider::Gcp) => {
            let host = spec.endpoint.strip_prefix("https://").unwrap_or(&spec.endpoint);
            BucketEndpoint::parse(host, spec.insecure)
        }
        Some(BucketProvider::Generic | BucketProvider::Aws) | None => {
            BucketEndpoint::parse(&spec.endpoint, spec.insecure)
        }
    }
}

fn unusable(text: String) -> RunOutcome {
    RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
}

/// The name of the Secret with credentials.
fn name_of_secret(spec: &BucketSpec) -> &str {
    spec.secret_ref.as_ref().map_or("", |reference| reference.name.as_str())
}

/// The value of a key in a Secret, as text. `None` if the key is missing or its value is not UTF-8.
fn text<'d>(data: &'d BucketSecretData, key: &str) -> Option<&'d str> {
    data.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// The identity with which the server is asked, and the protocol.
fn identity(
    spec: &BucketSpec,
    endpoint: &BucketEndpoint,
    resolved: &BucketReferencedSecrets,
) -> Result<BucketCredentialSource, RunOutcome> {
    let secret = resolved.secret.as_ref();
    match spec.provider {
        Some(BucketProvider::Gcp) => {
            cloud_identities::google(spec, endpoint, secret).map(BucketCredentialSource::Google)
        }
        Some(BucketProvider::Azure) => {
            cloud_identities::azure(spec, endpoint, secret).map(BucketCredentialSource::Azure)
        }
        Some(BucketProvider::Generic | BucketProvider::Aws) | None => {
            identity_of_s3(spec, resolved)
        }
    }
}

/// The identity with which an S3 server is asked.
///
/// Parity(flux): a Secret goes before the environment, which is used for `aws` only; empty keys mean anonymous access.
fn identity_of_s3(
    spec: &BucketSpec,
    resolved: &BucketReferencedSecrets,
) -> Result<BucketCredentialSource, RunOutcome> {
    let is_aws = spec.provider == Some(BucketProvider::Aws);
    if let Some(sts) = spec.sts.as_ref().filter(|sts| sts.provider == StsProvider::Ldap) {
        return ldap(spec, sts, resolved).map(BucketCredentialSource::Ldap);
    }
    let sts = spec.sts.as_ref().map(|sts| sts_endpoint(spec, sts)).transpose()?;
    let Some(data) = &resolved.secret else {
        return Ok(if is_aws {
            BucketCredentialSource::Environment { sts }
        } else {
            BucketCredentialSource::Anonymous
        });
    };
    let name = name_of_secret(spec);
    let (Some(access), Some(secret)) = (text(data, "accesskey"), text(data, "secretkey")) else {
        return Err(unusable(format!(
            "invalid '{name}' secret data: required fields 'accesskey' and 'secretkey'"
        )));
    };
    match (access.is_empty(), secret.is_empty()) {
        (true, true) => return Ok(BucketCredentialSource::Anonymous),
        (false, false) => {}
        _ => {
            return Err(unusable(format!(
                "invalid '{name}' secret data: one of 'accesskey' and 'secretkey' is empty"
            )));
        }
    }
    let session = text(data, "sessiontoken").filter(|token| !token.is_empty());
    Ok(BucketCredentialSource::Keys {
        access: access.to_owned(),
        secret: RedactedValue::new(secret.to_owned()),
        session: session.map(|token| RedactedValue::new(token.to_owned())),
    })
}

/// The message if the spec has both keys and a service that gives other keys.
const BOTH: &str = "spec.sts cannot be combined with spec.secretRef, which has the credentials; remove one of them";

/// The user that a token service gives keys to.
///
/// Differs(flux): there the service is asked without credentials if no Secret names a user.
fn ldap(
    spec: &BucketSpec,
    sts: &BucketSts,
    resolved: &BucketReferencedSecrets,
) -> Result<LdapUserLogin, RunOutcome> {
    let wrong = |text: &str| Err(RunOutcome::Stalled(INVALID_STS_CONFIGURATION, text.to_owned()));
    if !matches!(spec.provider, None | Some(BucketProvider::Generic)) {
        return wrong("STS provider 'ldap' is supported for the 'generic' bucket provider only");
    }
    if spec.secret_ref.is_some() {
        return wrong(BOTH);
    }
    let (Some(reference), Some(data)) = (&sts.secret_ref, &resolved.sts_secret) else {
        return wrong(
            "spec.sts.provider `ldap` requires spec.sts.secretRef, a Secret with `username` and `password`",
        );
    };
    // Some directories accept an empty password as an anonymous bind.
    let some = |key| text(data, key).filter(|value| !value.is_empty());
    let (Some(username), Some(password)) = (some("username"), some("password")) else {
        return Err(unusable(format!(
            "invalid '{}' secret data for 'ldap' STS provider: required fields username, password",
            reference.name
        )));
    };
    let endpoint = Url::parse(&sts.endpoint)
        .map_err(|error| RunOutcome::Stalled(URL_INVALID, format!("spec.sts.endpoint: {error}")))?;
    let is_bare = endpoint.username().is_empty() && endpoint.password().is_none();
    if !is_bare || !matches!(endpoint.scheme(), "http" | "https") {
        return wrong(
            "spec.sts.endpoint must be http:// or https:// and a host, without credentials",
        );
    }
    let name = sts.cert_secret_ref.as_ref().map_or("", |reference| reference.name.as_str());
    let tls = resolved.sts_certificates.as_ref().map(|data| certificates("STS TLS", name, data));
    Ok(LdapUserLogin {
        endpoint,
        username: username.to_owned(),
        password: RedactedValue::new(password.to_owned()),
        tls: tls.transpose()?.unwrap_or_default(),
    })
}

/// Where a web identity is exchanged.
///
/// Parity(flux): only AWS's own services are asked, since the service gets the token of windlass itself.
fn sts_endpoint(spec: &BucketSpec, sts: &BucketSts) -> Result<Url, RunOutcome> {
    let wrong = |text: String| Err(RunOutcome::Stalled(INVALID_STS_CONFIGURATION, text));
    if spec.provider != Some(BucketProvider::Aws) {
        return wrong(
            "STS provider 'aws' is not supported for 'generic' bucket provider".to_owned(),
        );
    }
    if spec.secret_ref.is_some() {
        return wrong(BOTH.to_owned());
    }
    let field = "spec.sts.endpoint";
    let url = Url::parse(&sts.endpoint)
        .map_err(|error| RunOutcome::Stalled(URL_INVALID, format!("{field}: {error}")))?;
    let host = url.host_str().unwrap_or_default();
    let name = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com");
    let is_sts = name.is_some_and(|name| name.split('.').any(|it| it == "sts" || it == "sts-fips"));
    let is_plain = url.scheme() == "https" && url.path() == "/" && url.username().is_empty();
    if !is_sts || !is_plain || url.query().is_some() {
        return wrong(format!(
            "{field} `{}` is not an AWS STS endpoint, such as https://sts.eu-west-1.amazonaws.com",
            sts.endpoint
        ));
    }
    Ok(url)
}

/// Whom connections trust, and what they show.
///
/// Differs(flux): there the system's authorities are trusted besides.
fn tls(spec: &BucketSpec, data: Option<&BucketSecretData>) -> Result<TlsConfig, RunOutcome> {
    let Some(data) = data else { return Ok(TlsConfig::default()) };
    let name = spec.cert_secret_ref.as_ref().map_or("", |reference| reference.name.as_str());
    if spec.insecure {
        let text = "spec.certSecretRef cannot be combined with spec.insecure; remove one of them";
        return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text.to_owned()));
    }
    certificates("TLS", name, data)
}

/// The certificates in a Secret. `what` is their purpose.
fn certificates(what: &str, name: &str, data: &BucketSecretData) -> Result<TlsConfig, RunOutcome> {
    let wrong = |why: &str| unusable(format!("failed to get {what} config: secret '{name}' {why}"));
    // Parity(flux): the older names count as well.
    let get = |new: &str, old: &str| data.get(new).or_else(|| data.get(old)).cloned();
    let certificate = get("tls.crt", "certFile");
    let key = get("tls.key", "keyFile");
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(ClientCertificateAndKey { certificate, key: RedactedValue::new(key) })
        }
        (None, None) => None,
        _ => return Err(wrong("must have both 'tls.crt' and 'tls.key', or neither")),
    };
    let ca = get("ca.crt", "caFile");
    if ca.is_none() && identity.is_none() {
        return Err(wrong("has neither 'ca.crt' nor 'tls.crt' and 'tls.key'"));
    }
    let tls = TlsConfig { ca, identity };
    // An unusable Secret is reported as such, and not as a server that cannot be reached.
    http_client::client(&tls, None).map_err(|error| classify(&error.into()))?;
    Ok(tls)
}

#[cfg(test)]
mod tests;
