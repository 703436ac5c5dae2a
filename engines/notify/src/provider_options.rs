//! The settings of a provider, combined from the spec of a Provider and its Secrets.
//!
//! Source of the semantics: notification-controller 1.9.3, `createNotifier` and its factory.

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::url::GoUrl;

use crate::api_objects::{Alert, ApiObjectMetadata, NameReference, Provider, SecretData};
use crate::commit_status_id::is_commit_status_type;
use crate::secret_credentials::{self, TlsSettings};

/// Longest address in a Secret, in bytes.
const MAX_ADDRESS: usize = 2048;

/// Everything that a provider may need.
#[derive(Default)]
pub(crate) struct ProviderOptions {
    pub(crate) url: String,
    pub(crate) proxy: String,
    pub(crate) username: String,
    pub(crate) password: String,
    pub(crate) channel: String,
    pub(crate) token: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) tls: Option<Arc<TlsSettings>>,
    /// The id of the commit status; empty if there is none.
    pub(crate) commit_status: String,
    pub(crate) provider: ApiObjectMetadata,
    pub(crate) service_account: String,
    pub(crate) secret: SecretData,
    /// The Alert by which the event came.
    pub(crate) alert: ApiObjectMetadata,
    /// Seconds since 1970, for tokens and events that need a time.
    pub(crate) now: i64,
}

/// A secret that error messages must not show.
pub(crate) struct SecretToMask(pub(crate) String);

/// Puts a Provider and its Secrets together. `secret` returns a Secret by namespace and name, or `None` if it is
/// missing.
///
/// # Errors
/// Flux's message when a Secret is missing or malformed.
pub(crate) fn assemble(
    provider: &Provider,
    alert: &Alert,
    commit_status: String,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
) -> Result<(ProviderOptions, SecretToMask), String> {
    let spec = &provider.spec;
    let namespace = &provider.metadata.namespace;
    let find = |reference: &NameReference| {
        let name = &reference.name;
        secret(namespace, name).ok_or_else(|| {
            format!("failed to get secret '{namespace}/{name}': secrets \"{name}\" not found")
        })
    };
    let mut options = ProviderOptions {
        url: spec.address.clone(),
        proxy: spec.proxy.clone(),
        username: spec.username.clone(),
        channel: spec.channel.clone(),
        commit_status,
        provider: provider.metadata.clone(),
        service_account: spec.service_account_name.clone(),
        alert: alert.metadata.clone(),
        now,
        ..ProviderOptions::default()
    };
    let own = spec.secret_ref.as_ref().map(find).transpose()?;
    let mut masked = SecretToMask(String::new());
    if let Some(secret) = &own {
        take_secret(&mut options, secret)?;
        if let Some(token) = secret.text("token") {
            token.trim().clone_into(&mut masked.0);
        }
        options.secret = secret.clone();
    }
    if let Some(reference) = &spec.proxy_secret_ref {
        options.proxy = secret_credentials::proxy(&find(reference)?)
            .map_err(|error| format!("failed to get proxy URL: {error}"))?;
    }
    let certificates = spec.cert_secret_ref.as_ref().map(find).transpose()?;
    options.tls = tls(certificates.as_ref(), own.as_ref(), &spec.r#type)
        .map_err(|error| format!("failed to get TLS config: {error}"))?;
    Ok((options, masked))
}

fn take_secret(options: &mut ProviderOptions, secret: &SecretData) -> Result<(), String> {
    if secret.bytes("address").is_some_and(|address| address.len() > MAX_ADDRESS) {
        return Err(format!(
            "invalid address in secret: address exceeds maximum length of {MAX_ADDRESS} bytes"
        ));
    }
    if let Some(proxy) = secret.text("proxy") {
        let proxy = proxy.trim();
        if GoUrl::parse(proxy.as_bytes()).is_err() {
            return Err(format!("invalid 'proxy' in secret '{}'", secret.name));
        }
        proxy.clone_into(&mut options.proxy);
    }
    if let Some(headers) = secret.bytes("headers") {
        options.headers = read_headers(headers)
            .map_err(|error| format!("failed to read headers from secret: {error}"))?;
    }
    // If a part is malformed, all login methods of the Secret are dropped without an error.
    if let Ok(methods) = secret_credentials::methods(secret) {
        if let Some(token) = methods.token {
            options.token = token;
        }
        if let Some((username, password)) = methods.basic {
            (options.username, options.password) = (username, password);
        }
    }
    if let Some(address) = secret.text("address")
        && !address.trim().is_empty()
    {
        address.trim().clone_into(&mut options.url);
    } else if secret.data.contains_key("address") {
        options.url.clear();
    }
    Ok(())
}

/// Reads headers from YAML: a map of strings.
fn read_headers(text: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let value = goyaml::to_json(text).map_err(|error| error.to_string())?;
    let wrong = |kind: &str, at: &str, to: &str| {
        format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go \
             value{at} of type {to}"
        )
    };
    match value {
        serde_json::Value::Null => Ok(BTreeMap::new()),
        serde_json::Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| match value {
                serde_json::Value::String(value) => Ok((name, value)),
                serde_json::Value::Null => Ok((name, String::new())),
                // Go's YAML reader converts these values to strings where a string is expected.
                serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
                    Ok((name, value.to_string()))
                }
                serde_json::Value::Array(_) => Err(wrong("array", "", "string")),
                serde_json::Value::Object(_) => Err(wrong("object", "", "string")),
            })
            .collect(),
        _ => Err(wrong("value", "", "map[string]string")),
    }
}

fn tls(
    certificates: Option<&SecretData>,
    own: Option<&SecretData>,
    kind: &str,
) -> Result<Option<Arc<TlsSettings>>, String> {
    match (certificates, own) {
        (Some(secret), _) => secret_credentials::tls(secret).map(Some),
        (None, Some(secret)) if is_commit_status_type(kind) => {
            secret_credentials::methods(secret).map(|methods| methods.tls)
        }
        _ => Ok(None),
    }
}
