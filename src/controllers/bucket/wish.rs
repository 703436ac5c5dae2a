//! What a Bucket asks for, checked; every field without support is refused by its name.

use std::time::Duration;

use crds::source::{Bucket, BucketProvider, BucketSpec, BucketSts, StsProvider};
use objects::Redacted;
use reconcile::{Reason, Rest, Wake, reason};
use sources::bucket::{Endpoint, Identity, Remote, Server, bundle};
use sources::http::{ClientIdentity, Proxy, Tls};
use sources::plan::Shape;
use sources::reason::{AUTHENTICATION_FAILED, INVALID_DURATION, URL_INVALID};
use url::Url;

use super::resolve::{Data, Resolved};
use super::world::{Work, classify};
use crate::controllers::source::Wished;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The `sts` of the spec cannot be used.
const INVALID_STS_CONFIGURATION: Reason = Reason::new("InvalidSTSConfiguration");

/// Fields that were given and have no support, in the spec's order.
fn unsupported(spec: &BucketSpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let BucketSpec {
        provider,
        bucket_name: _,
        endpoint: _,
        sts,
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
    let is_ldap = |sts: &BucketSts| sts.provider == StsProvider::Ldap;
    let given = [
        ("spec.provider `gcp`", *provider == Some(BucketProvider::Gcp)),
        ("spec.provider `azure`", *provider == Some(BucketProvider::Azure)),
        ("spec.sts.provider `ldap`", sts.as_ref().is_some_and(is_ldap)),
        ("spec.serviceAccountName", service_account_name.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// Checks a spec.
pub(super) fn wish(object: &Bucket, resolved: Resolved) -> Result<Wished<Work>, Rest> {
    let spec = &object.spec;
    let fields = unsupported(spec);
    if !fields.is_empty() {
        let text = crate::controllers::gate::unsupported_text(&fields);
        return Err(Rest::Stalled(reason::UNSUPPORTED_FIELD, text));
    }
    let endpoint = Endpoint::parse(&spec.endpoint, spec.insecure)
        .map_err(|error| Rest::Stalled(URL_INVALID, format!("spec.endpoint: {error}")))?;
    let identity = identity(spec, resolved.secret.as_ref())?;
    let tls = tls(spec, resolved.certificates.as_ref())?;
    let proxy = resolved.proxy.as_ref().map(Proxy::from_secret).transpose();
    let proxy = proxy.map_err(|error| unusable(format!("failed to get proxy URL: {error}")))?;
    let timeout = spec.timeout.as_ref().map(|t| reconcile::parse_duration(t.as_str())).transpose();
    let timeout = timeout
        .map_err(|error| Rest::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
        .unwrap_or(DEFAULT_TIMEOUT);
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(Rest::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let bundle = super::bundle(object).map(str::to_owned);
    if let Some(key) = &bundle {
        bundle::check(key).map_err(|error| {
            let text = format!("annotation {}: {error}", super::BUNDLE);
            Rest::Stalled(reason::INVALID_PATH, text)
        })?;
        if spec.prefix.is_some() {
            let text = format!(
                "spec.prefix is of no use with the annotation {}, which names the whole key; remove one of them",
                super::BUNDLE
            );
            return Err(Rest::Stalled(reason::UNSUPPORTED_FIELD, text));
        }
    }
    let server = Server { endpoint, region: spec.region.clone(), identity, tls, proxy };
    let remote = Remote {
        server,
        bucket: spec.bucket_name.clone(),
        prefix: spec.prefix.clone().unwrap_or_default(),
        timeout,
        limits: tree::Limits::default(),
    };
    let shape = Shape::default().with("ignore", spec.ignore.clone());
    Ok(Wished { work: Work { remote, bundle }, shape })
}

fn unusable(text: String) -> Rest {
    Rest::Failed(AUTHENTICATION_FAILED, text, Wake::default())
}

/// A key of a Secret as text.
fn text<'d>(data: &'d Data, key: &str) -> Option<&'d str> {
    data.get(key).and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// As whom the server is asked.
///
/// Parity(flux): a Secret goes before the environment, which is asked for `aws` only; keys that are empty mean nobody.
fn identity(spec: &BucketSpec, secret: Option<&Data>) -> Result<Identity, Rest> {
    let is_aws = spec.provider == Some(BucketProvider::Aws);
    let sts = spec.sts.as_ref().map(|sts| sts_endpoint(spec, sts)).transpose()?;
    let Some(data) = secret else {
        return Ok(if is_aws { Identity::Environment { sts } } else { Identity::Anonymous });
    };
    let name = spec.secret_ref.as_ref().map_or("", |reference| reference.name.as_str());
    let (Some(access), Some(secret)) = (text(data, "accesskey"), text(data, "secretkey")) else {
        return Err(unusable(format!(
            "invalid '{name}' secret data: required fields 'accesskey' and 'secretkey'"
        )));
    };
    match (access.is_empty(), secret.is_empty()) {
        (true, true) => return Ok(Identity::Anonymous),
        (false, false) => {}
        _ => {
            return Err(unusable(format!(
                "invalid '{name}' secret data: one of 'accesskey' and 'secretkey' is empty"
            )));
        }
    }
    let session = text(data, "sessiontoken").filter(|token| !token.is_empty());
    Ok(Identity::Keys {
        access: access.to_owned(),
        secret: Redacted::new(secret.to_owned()),
        session: session.map(|token| Redacted::new(token.to_owned())),
    })
}

/// Where a web identity is exchanged.
///
/// Parity(flux): only AWS's own services are asked, since whoever answers gets the token of windlass itself.
fn sts_endpoint(spec: &BucketSpec, sts: &BucketSts) -> Result<Url, Rest> {
    let wrong = |text: String| Err(Rest::Stalled(INVALID_STS_CONFIGURATION, text));
    if spec.provider != Some(BucketProvider::Aws) {
        return wrong(
            "STS provider 'aws' is not supported for 'generic' bucket provider".to_owned(),
        );
    }
    if spec.secret_ref.is_some() {
        let text = "spec.sts is of no use with spec.secretRef, whose keys are used as they are; remove one of them";
        return wrong(text.to_owned());
    }
    let field = "spec.sts.endpoint";
    let url = Url::parse(&sts.endpoint)
        .map_err(|error| Rest::Stalled(URL_INVALID, format!("{field}: {error}")))?;
    let host = url.host_str().unwrap_or_default();
    let name = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com");
    let is_sts = name.is_some_and(|name| name.split('.').any(|it| it == "sts" || it == "sts-fips"));
    let is_plain = url.scheme() == "https" && url.path() == "/" && url.username().is_empty();
    if !is_sts || !is_plain || url.query().is_some() {
        return wrong(format!(
            "{field} `{}` is no token service of AWS, such as https://sts.eu-west-1.amazonaws.com",
            sts.endpoint
        ));
    }
    Ok(url)
}

/// Whom connections trust, and what they show.
///
/// Differs(flux): there the system's authorities are trusted besides.
fn tls(spec: &BucketSpec, data: Option<&Data>) -> Result<Tls, Rest> {
    let Some(data) = data else { return Ok(Tls::default()) };
    let name = spec.cert_secret_ref.as_ref().map_or("", |reference| reference.name.as_str());
    let wrong = |why: &str| unusable(format!("failed to get TLS config: secret '{name}' {why}"));
    if spec.insecure {
        let text = "spec.certSecretRef is of no use with spec.insecure; remove one of them";
        return Err(Rest::Stalled(reason::UNSUPPORTED_FIELD, text.to_owned()));
    }
    // Parity(flux): the older names count as well.
    let get = |new: &str, old: &str| data.get(new).or_else(|| data.get(old)).cloned();
    let (certificate, key) = (get("tls.crt", "certFile"), get("tls.key", "keyFile"));
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some(ClientIdentity { certificate, key: Redacted::new(key) })
        }
        (None, None) => None,
        _ => return Err(wrong("must have both 'tls.crt' and 'tls.key', or neither")),
    };
    let ca = get("ca.crt", "caFile");
    if ca.is_none() && identity.is_none() {
        return Err(wrong("has neither 'ca.crt' nor 'tls.crt' and 'tls.key'"));
    }
    let tls = Tls { ca, identity };
    // A Secret that cannot be used is told as such, and not as a server that cannot be reached.
    sources::http::client(&tls, None).map_err(|error| classify(&error.into()))?;
    Ok(tls)
}

#[cfg(test)]
mod tests;
