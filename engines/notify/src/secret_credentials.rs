//! Reads credentials and certificates from a Secret.
//!
//! Source of the semantics: fluxcd/pkg/runtime `secrets`.

use std::fmt;
use std::sync::Arc;

use golang::url::{GoUrl, UrlUserInfo};
use x509_parser::pem::Pem;

use crate::api_objects::SecretData;

/// Longest address of a proxy, in bytes.
const MAX_PROXY: usize = 2048;

/// The certificates that a connection trusts and presents. Its `Debug` shows no keys.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificate authorities to trust instead of those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Certificate and private key of the client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings")
            .field("has_authorities", &self.authorities.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

/// The login methods in a Secret.
#[derive(Default)]
pub(crate) struct SecretAuthMethods {
    /// Name and password.
    pub(crate) basic: Option<(String, String)>,
    /// The token.
    pub(crate) token: Option<String>,
    /// Certificates.
    pub(crate) tls: Option<Arc<TlsSettings>>,
}

/// Why the certificates of a Secret cannot be used.
enum TlsSecretError {
    /// There are no credentials, or only one part of a pair. Callers with other credentials try those next.
    Incomplete(String),
    /// The certificates cannot be read.
    Malformed(String),
}

/// Reads all login methods from a Secret.
///
/// # Errors
/// Go's message if a part is malformed. Then no method of the Secret is used.
pub(crate) fn methods(secret: &SecretData) -> Result<SecretAuthMethods, String> {
    let has = |key: &str| secret.data.contains_key(key);
    let name = &secret.name;
    let basic = match (secret.text("username"), secret.text("password")) {
        (Some(username), Some(password)) => Some((username, password)),
        (None, None) => None,
        (username, _) => {
            let both = ["username", "password"];
            let [present, missing] = if username.is_some() { both } else { [both[1], both[0]] };
            return Err(format!(
                "secret '{name}': malformed basic auth - has '{present}' but missing '{missing}'"
            ));
        }
    };
    let is_owner_known = has("githubAppInstallationOwner");
    if has("githubAppID")
        && has("githubAppPrivateKey")
        && is_owner_known == has("githubAppInstallationID")
    {
        return Err(format!(
            "secret '{name}' must contain exactly one of 'githubAppInstallationOwner' or \
             'githubAppInstallationID'"
        ));
    }
    let tls = match read_tls(secret) {
        Ok(tls) => Some(Arc::new(tls)),
        Err(TlsSecretError::Incomplete(_)) => None,
        Err(TlsSecretError::Malformed(reason)) => return Err(reason),
    };
    Ok(SecretAuthMethods { basic, token: secret.text("token"), tls })
}

/// The certificates in a Secret.
///
/// # Errors
/// Go's message if the Secret has no usable certificates.
pub(crate) fn tls(secret: &SecretData) -> Result<Arc<TlsSettings>, String> {
    match read_tls(secret) {
        Ok(tls) => Ok(Arc::new(tls)),
        Err(TlsSecretError::Incomplete(reason) | TlsSecretError::Malformed(reason)) => Err(reason),
    }
}

fn read_tls(secret: &SecretData) -> Result<TlsSettings, TlsSecretError> {
    // The second name of each is deprecated.
    let value = |key: &str, old: &str| {
        let found = secret.bytes(key).or_else(|| secret.bytes(old));
        found.filter(|value| !value.is_empty()).map(<[u8]>::to_vec)
    };
    let authorities = value("ca.crt", "caFile");
    let name = &secret.name;
    let identity = match (value("tls.crt", "certFile"), value("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (certificate, _) => {
            let pair = ["tls.crt", "tls.key"];
            let [present, missing] = if certificate.is_some() { pair } else { [pair[1], pair[0]] };
            return Err(TlsSecretError::Incomplete(format!(
                "secret '{name}' contains '{present}' but missing '{missing}'"
            )));
        }
    };
    if authorities.is_none() && identity.is_none() {
        return Err(TlsSecretError::Incomplete(format!(
            "secret '{name}' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'"
        )));
    }
    if let Some((certificate, _)) = &identity
        && !has_certificate(certificate)
    {
        return Err(TlsSecretError::Malformed(
            "failed to parse TLS certificate and key: tls: failed to find any PEM data in \
             certificate input"
                .to_owned(),
        ));
    }
    if authorities.as_deref().is_some_and(|text| !has_certificate(text)) {
        return Err(TlsSecretError::Malformed("failed to parse CA certificate".to_owned()));
    }
    Ok(TlsSettings { authorities, identity })
}

/// Whether there is a certificate among the blocks of a PEM text.
fn has_certificate(text: &[u8]) -> bool {
    Pem::iter_from_buffer(text)
        .flatten()
        .any(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok())
}

/// The address of a proxy with its credentials.
///
/// # Errors
/// Go's message when the Secret has no address that can be used.
pub(crate) fn proxy(secret: &SecretData) -> Result<String, String> {
    let name = &secret.name;
    let address = secret
        .text("address")
        .ok_or_else(|| format!("secret '{name}': key 'address' not found"))?;
    if address.is_empty() {
        return Err(format!("secret '{name}': proxy address is empty"));
    }
    if address.len() > MAX_PROXY {
        let limit = format!("proxy URL exceeds maximum length of {MAX_PROXY} characters");
        return Err(format!("secret '{name}': {limit}"));
    }
    let mut url = GoUrl::parse(address.as_bytes()).map_err(|error| {
        format!("secret '{name}': failed to parse proxy address '{address}': {error}")
    })?;
    if !matches!(&*url.scheme, b"http" | b"https" | b"socks5") {
        let scheme = String::from_utf8_lossy(&url.scheme);
        return Err(format!(
            "secret '{name}': proxy URL must use one of the supported schemes (http, https), got \
             '{scheme}'"
        ));
    }
    if let Some(username) = secret.bytes("username") {
        let password = secret.bytes("password").map(<[u8]>::to_vec);
        url.user = Some(UrlUserInfo { name: username.to_vec(), password });
    }
    Ok(String::from_utf8_lossy(&url.to_bytes()).into_owned())
}
