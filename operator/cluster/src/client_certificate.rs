//! TLS to an API server, with the client certificate of the user in the kubeconfig.
//!
//! `openssl x509 -req` makes certificates of X.509 version 1 by default. rustls parses only version 3, and only to compare the
//! certificate with its key. windlass presents such a certificate as kubectl does, and the API server decides. Elsewhere: the
//! connections ([`super::client`]).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::Config;
use kube::client::{ConfigExt as _, RustlsTlsError};
use kube::config::AuthInfo;
use memchr::memmem;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::client::ConnectionError;

/// The name of the certificate and the key in error messages.
const CERTIFICATE_AND_KEY: &str = "the client certificate and key of the kubeconfig's user";

/// The TLS settings of a kubeconfig's user.
///
/// # Errors
/// The error says which certificate or key cannot be used.
pub(super) fn tls(config: &Config) -> Result<ClientConfig, ConnectionError> {
    let error = match config.rustls_client_config() {
        Ok(tls) => return Ok(tls),
        Err(kube::Error::RustlsTls(error)) => error,
        Err(error) => return Err(error.into()),
    };
    let is_unread =
        matches!(&error, RustlsTlsError::InvalidPrivateKey(rustls::Error::InvalidCertificate(_)));
    let identity = KubeconfigClientCertificate::of(&config.auth_info);
    match identity.filter(|identity| is_unread && identity.is_of_version_1()) {
        Some(identity) => with_identity(config, identity),
        None => Err(ConnectionError::Tls(in_words(&error))),
    }
}

/// TLS settings with a client certificate that rustls does not parse.
fn with_identity(
    config: &Config,
    identity: KubeconfigClientCertificate,
) -> Result<ClientConfig, ConnectionError> {
    let mut anonymous = config.clone();
    let user = &mut anonymous.auth_info;
    user.client_certificate = None;
    user.client_certificate_data = None;
    user.client_key = None;
    user.client_key_data = None;
    let mut tls = anonymous.rustls_client_config()?;
    let unusable =
        |why: &str| ConnectionError::Tls(format!("{CERTIFICATE_AND_KEY} cannot be used: {why}"));
    let key = tls.crypto_provider().key_provider.load_private_key(identity.key);
    let key = key.map_err(|error| unusable(&error.to_string()))?;
    let certificate: &[u8] = identity.chain.first().map(AsRef::as_ref).unwrap_or_default();
    let is_of_key =
        key.public_key().is_none_or(|public| memmem::find(certificate, public.as_ref()).is_some());
    if !is_of_key {
        return Err(unusable("the key is not that of the certificate"));
    }
    let certified = CertifiedKey::new(identity.chain, key);
    tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    Ok(tls)
}

/// The reason why TLS cannot be set up, for a user. The texts of the libraries repeat each other.
fn in_words(error: &RustlsTlsError) -> String {
    match error {
        RustlsTlsError::InvalidPrivateKey(rustls::Error::InvalidCertificate(why)) => {
            format!("the client certificate of the kubeconfig's user cannot be read: {why}")
        }
        RustlsTlsError::InvalidPrivateKey(why) => {
            format!("{CERTIFICATE_AND_KEY} cannot be used: {why}")
        }
        RustlsTlsError::AddRootCertificate(why) => {
            format!("the certificate authority of the API server cannot be used: {why}")
        }
        other => format!("{CERTIFICATE_AND_KEY} cannot be used: {other}"),
    }
}

/// A client certificate with its chain and its key.
struct KubeconfigClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl KubeconfigClientCertificate {
    /// The certificate and key of a user. `None` if the user has none, or they cannot be read.
    fn of(user: &AuthInfo) -> Option<Self> {
        // The user is serialized first, because kube does not export the type of the key.
        let fields = serde_json::to_value(user).ok()?;
        let pem = |data: &str, file: &str| match fields[data].as_str() {
            Some(text) => BASE64.decode(text).ok(),
            None => std::fs::read(fields[file].as_str()?).ok(),
        };
        let chain = pem("client-certificate-data", "client-certificate")?;
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>().ok()?;
        let key = pem("client-key-data", "client-key")?;
        let key = PrivateKeyDer::from_pem_slice(&key).ok()?;
        Some(Self { chain, key })
    }

    /// Whether the certificate is of X.509 version 1.
    fn is_of_version_1(&self) -> bool {
        self.chain.first().is_some_and(|certificate| is_of_version_1(certificate))
    }
}

/// The tag of a sequence in DER.
const SEQUENCE_TAG: u8 = 0x30;
/// The tag of an integer in DER.
const INTEGER_TAG: u8 = 0x02;
/// A bit in the first byte of a DER length. It says that the other bits count the length bytes that follow.
const LONG_LENGTH: u8 = 0x80;

/// Whether a certificate is of X.509 version 1. It has no version field, so its first field is the serial number.
fn is_of_version_1(certificate: &[u8]) -> bool {
    let fields = sequence(certificate).and_then(sequence);
    fields.and_then(|fields| fields.first()) == Some(&INTEGER_TAG)
}

/// The content of a DER sequence at the start of `der`.
fn sequence(der: &[u8]) -> Option<&[u8]> {
    let (header, content) = der.split_first_chunk::<2>()?;
    let [tag, length] = *header;
    if tag != SEQUENCE_TAG {
        return None;
    }
    let more = length.saturating_sub(LONG_LENGTH);
    content.get(usize::from(more)..)
}

#[cfg(test)]
mod tests {
    use kube::config::{KubeConfigOptions, Kubeconfig};
    use serde_json::json;

    use super::*;

    /// A certificate of X.509 version 1. `openssl x509 -req` of OpenSSL 3.0 made it, valid for a hundred years.
    const CERTIFICATE_OF_VERSION_1: &str = "-----BEGIN CERTIFICATE-----
MIIBTTCB9QIUPZJjXju3Dl9Ablp09X3FLME9B3owCgYIKoZIzj0EAwIwKTEXMBUG
A1UECgwOc3lzdGVtOm1hc3RlcnMxDjAMBgNVBAMMBWFsaWNlMCAXDTI2MTEyOTEx
MTIxMVoYDzIxMjYxMTA1MTExMjExWjApMRcwFQYDVQQKDA5zeXN0ZW06bWFzdGVy
czEOMAwGA1UEAwwFYWxpY2UwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARSVOtE
3lB2H4fd2IQZQguCTElF/lRj2YQLm6R8CqODbGVf2JyByh1LW+B82WRMOxOMaaO5
AH9Rud0r8iBerrtFMAoGCCqGSM49BAMCA0cAMEQCIARQLfqbctgnBjHrA7MyI6EB
Y+5LpzYZWd8ZDmSWMe6QAiA8+gsMnPoIskiOe58YMAASnh9+0zh5xlgdmGmSqRQk
Xw==
-----END CERTIFICATE-----
";
    /// The private key of that certificate.
    const CLIENT_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgn5Dmm0w80+ACKDXl
3I6/Q3lHs4QSd+1Sm6mgZkjx5a6hRANCAARSVOtE3lB2H4fd2IQZQguCTElF/lRj
2YQLm6R8CqODbGVf2JyByh1LW+B82WRMOxOMaaO5AH9Rud0r8iBerrtF
-----END PRIVATE KEY-----
";
    /// Another key.
    const OTHER_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgFH3j0Zv3cQUJKgqU
UQHDqrmemw89NKup2zTUrFkOgk6hRANCAASlo6muH3MWIot7ZuS3E1TQa6gkvL17
btMnRhz20OwMsXV0Mn69F58SgW6epZpqZXafP/cIBp/dPf1S+Ijo/BNQ
-----END PRIVATE KEY-----
";

    /// The client configuration of a kubeconfig whose user has this certificate and key.
    async fn config(certificate: &str, key: &str) -> Config {
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({"current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"client-certificate-data": BASE64.encode(certificate),
                "client-key-data": BASE64.encode(key)}}]}))
        .unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    #[tokio::test]
    async fn a_client_certificate_of_version_1_is_presented() {
        let config = config(CERTIFICATE_OF_VERSION_1, CLIENT_KEY).await;
        assert!(config.rustls_client_config().is_err(), "rustls parses it by now");
        assert!(tls(&config).unwrap().client_auth_cert_resolver.has_certs());
    }

    #[tokio::test]
    async fn a_certificate_or_key_that_cannot_be_used_is_named_once() {
        for (key, why) in [
            (OTHER_KEY, "the key is not that of the certificate"),
            ("", "identity PEM is missing a private key: the key must be PKCS8 or RSA/PKCS1"),
        ] {
            let error = tls(&config(CERTIFICATE_OF_VERSION_1, key).await).err();
            let text = error.map(|error| error.to_string());
            assert_eq!(text, Some(format!("{CERTIFICATE_AND_KEY} cannot be used: {why}")));
        }
    }
}
