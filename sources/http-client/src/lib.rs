//! The HTTP client that every source shares: trusted authorities, client certificates, connections.
//!
//! Here: building a [`reqwest::Client`], and turning its errors into causes that a person can read.
//! In the folder: the proxy ([`HttpProxy`]), which servers may be asked ([`EgressRules`]), limits for each host
//! ([`HostBudgets`]), one fetch for many callers ([`SingleFlightCache`]). Elsewhere: credentials in headers, redirects, limits
//! on bytes and on time, which are part of each source's protocol.

pub mod client_cache;
mod egress_rules;
pub mod host_budget;
mod proxy;
mod single_flight;

use std::error::Error as StdError;
use std::time::Duration;

use jiff::Timestamp;
use objects::RedactedValue;
use percent_encoding::percent_decode_str;
use reqwest::redirect::Policy;
use rustls::CertificateError;
use rustls::pki_types::UnixTime;
use url::Url;

pub use client_cache::HttpClientCache;
pub use egress_rules::{EgressDeniedError, EgressDenyList, EgressHostList, EgressRules, refusal};
pub use host_budget::{HostBudgets, HostBusyError};
pub use proxy::{HttpProxy, is_refusal_of_proxy};
pub use single_flight::{LoginTokenCache, SingleFlightCache};

/// The authorities that a connection trusts and the client certificate that it shows.
///
/// Without anything the system's authorities are trusted and no certificate is shown.
#[derive(Debug, Clone, Default)]
pub struct TlsConfig {
    /// The certificate authorities in PEM. If they are given, only these are trusted.
    pub ca: Option<Vec<u8>>,
    /// The client certificate, for servers that ask for one.
    pub identity: Option<ClientCertificateAndKey>,
}

/// How the authorities in [`TlsConfig::ca`] combine with the authorities of the system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsTrust {
    /// The given authorities replace the authorities of the system.
    #[default]
    Instead,
    /// The given authorities are trusted in addition.
    Beside,
    /// Nothing is checked, so any certificate of any server is accepted.
    Anyone,
}

/// A client certificate and its key, both in PEM.
#[derive(Debug, Clone)]
pub struct ClientCertificateAndKey {
    /// The certificate, followed by its intermediates.
    pub certificate: Vec<u8>,
    /// The private key of the certificate.
    pub key: RedactedValue<Vec<u8>>,
}

/// The reason why no client could be built, which is an invalid entry of the Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `ca` has no certificate in it.
    #[error("`ca.crt` has no valid PEM certificate")]
    BadAuthority,
    /// `identity` cannot be used.
    #[error("`tls.crt` and `tls.key` are not a PEM certificate and its PEM private key")]
    BadIdentity,
    /// The Secret of the proxy lacks something, or something in it cannot be used.
    #[error("the Secret of the proxy is invalid: {0}")]
    BadProxy(String),
    /// The platform's own trust store or resolver is broken.
    #[error("cannot create an HTTP client: {0}")]
    Setup(String),
}

/// The time limit for a connection. The whole operation has a separate limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A client of HTTP, as the functions below build it.
pub type HttpClient = reqwest::Client;

/// Builds a client for one source.
///
/// # Guarantees
/// The client does not follow redirects, because the caller decides to which server it sends credentials. Without a proxy of
/// its own, it uses the proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`), as Flux does.
///
/// # Errors
/// The error names the key of the Secret that cannot be used. It repeats no text of the Secret.
pub fn client(tls: &TlsConfig, proxy: Option<&HttpProxy>) -> Result<reqwest::Client, Error> {
    client_within(tls, proxy, &EgressRules::Anywhere)
}

/// Like [`client_within`], for bodies that are stored as the server sent them. The client does not decompress responses.
///
/// # Errors
/// As [`client`].
pub fn client_undecoded(
    tls: &TlsConfig,
    proxy: Option<&HttpProxy>,
    egress: &EgressRules,
) -> Result<reqwest::Client, Error> {
    let builder = reqwest::Client::builder().no_gzip().no_brotli().no_deflate().no_zstd();
    built(builder, tls, TlsTrust::Instead, proxy, egress)
}

/// Like [`client`], for the servers that `egress` permits. The caller checks IP addresses in URLs with
/// [`EgressRules::admits`].
///
/// # Errors
/// As [`client`].
pub fn client_within(
    tls: &TlsConfig,
    proxy: Option<&HttpProxy>,
    egress: &EgressRules,
) -> Result<reqwest::Client, Error> {
    client_trusting(tls, TlsTrust::Instead, proxy, egress)
}

/// Like [`client_within`]. `trust` decides how custom authorities are used.
///
/// # Errors
/// As [`client`].
pub fn client_trusting(
    tls: &TlsConfig,
    trust: TlsTrust,
    proxy: Option<&HttpProxy>,
    egress: &EgressRules,
) -> Result<reqwest::Client, Error> {
    built(reqwest::Client::builder(), tls, trust, proxy, egress)
}

fn built(
    builder: reqwest::ClientBuilder,
    tls: &TlsConfig,
    trust: TlsTrust,
    proxy: Option<&HttpProxy>,
    egress: &EgressRules,
) -> Result<reqwest::Client, Error> {
    let mut builder = builder
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none())
        .referer(false)
        .user_agent(concat!("windlass/", env!("CARGO_PKG_VERSION")));
    if let Some(pem) = &tls.ca {
        let authorities =
            reqwest::Certificate::from_pem_bundle(pem).map_err(|_unread| Error::BadAuthority)?;
        if authorities.is_empty() {
            return Err(Error::BadAuthority);
        }
        builder = match trust {
            TlsTrust::Instead | TlsTrust::Anyone => builder.tls_certs_only(authorities),
            TlsTrust::Beside => builder.tls_certs_merge(authorities),
        };
    }
    if trust == TlsTrust::Anyone {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    if let Some(ClientCertificateAndKey { certificate, key }) = &tls.identity {
        let mut pem = key.expose().clone();
        pem.push(b'\n');
        pem.extend_from_slice(certificate);
        let identity = reqwest::Identity::from_pem(&pem).map_err(|_unread| Error::BadIdentity)?;
        builder = builder.identity(identity);
    }
    if egress.is_limited() {
        builder = builder.dns_resolver(egress_rules::EgressResolver::new(egress.clone()));
    }
    if let Some(proxy) = proxy {
        proxy.check(egress)?;
        builder = builder.proxy(proxy.for_client()?);
    }
    builder.build().map_err(|error| match (&tls.identity, &tls.ca) {
        (Some(_), _) => Error::BadIdentity,
        (None, Some(_)) => Error::BadAuthority,
        (None, None) => Error::Setup(root_cause(&error.without_url())),
    })
}

/// True when credentials for one server may be sent to the other.
///
/// `Differs(flux)`: Go examines the name of the host alone; here the port counts too, and TLS is never left.
pub fn same_server(origin: &Url, other: &Url) -> bool {
    let place = |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
    let upgraded = origin.scheme() == "http"
        && other.scheme() == "https"
        && origin.host_str() == other.host_str()
        && (origin.port_or_known_default(), other.port_or_known_default()) == (Some(80), Some(443));
    upgraded || (origin.scheme() == other.scheme() && place(origin) == place(other))
}

/// A text of a URL without its percent signs.
pub fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The innermost error of a chain, on one line.
///
/// The outer errors are "error sending request" and repeat the URL; the innermost is "Connection refused".
pub fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let mut deepest = error;
    while let Some(next) = cause(deepest) {
        deepest = next;
    }
    let text = validity(deepest).unwrap_or_else(|| deepest.to_string());
    proxy::socks_words(&text).map_or(text, str::to_owned)
}

/// The reason why a certificate is not accepted. It is expired or not valid yet, with the time, or it is a certificate
/// of an authority. `None` for any other reason. The library's own text contains the time of the attempt, so it would
/// differ at each attempt.
fn validity(error: &(dyn StdError + 'static)) -> Option<String> {
    let Some(rustls::Error::InvalidCertificate(why)) = error.downcast_ref() else { return None };
    let moment = |at: &UnixTime| Timestamp::from_second(i64::try_from(at.as_secs()).ok()?).ok();
    match why {
        CertificateError::ExpiredContext { not_after, .. } => {
            Some(format!("invalid peer certificate: it expired at {}", moment(not_after)?))
        }
        CertificateError::NotValidYetContext { not_before, .. } => Some(format!(
            "invalid peer certificate: it is not valid before {}",
            moment(not_before)?
        )),
        // The library exports no type for it.
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            let text = "invalid peer certificate: it is the certificate of an authority, which is not accepted as that of \
                        a server";
            Some(text.to_owned())
        }
        _ => None,
    }
}

/// True when a chain of errors ends in a certificate that was not accepted.
pub fn is_distrust(error: &(dyn StdError + 'static)) -> bool {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
            return true;
        }
        current = cause(error);
    }
    false
}

/// The next error of a chain. `None` if the chain ends. An [`std::io::Error`] does not return the error that it wraps
/// as its `source`.
fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_authority_without_a_certificate_is_refused_by_its_key() {
        let tls = TlsConfig { ca: Some(b"not PEM".to_vec()), identity: None };
        assert_eq!(client(&tls, None).unwrap_err(), Error::BadAuthority);
    }

    #[test]
    fn an_identity_that_cannot_be_read_is_refused_and_not_shown() {
        let key = RedactedValue::new(b"-----BEGIN hunter2-----".to_vec());
        let identity = Some(ClientCertificateAndKey { certificate: b"x".to_vec(), key });
        let tls = TlsConfig { ca: None, identity };
        let error = client(&tls, None).unwrap_err();
        assert_eq!(error, Error::BadIdentity);
        assert!(!format!("{error} {error:?} {tls:?}").contains("hunter2"));
    }

    #[test]
    fn the_cause_is_found_below_an_io_error() {
        let inner = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let error = std::io::Error::other(std::io::Error::other(inner));
        assert_eq!(root_cause(&error), "invalid peer certificate: UnknownIssuer");
        assert!(is_distrust(&error));
        assert!(!is_distrust(&std::io::Error::other("certificate")));
    }

    #[test]
    fn a_server_with_the_certificate_of_an_authority_is_refused_in_words() {
        let why = rustls::OtherError(Arc::new(std::io::Error::other("CaUsedAsEndEntity")));
        let error = rustls::Error::InvalidCertificate(CertificateError::Other(why));
        let text = "invalid peer certificate: it is the certificate of an authority, which is not accepted as that of a server";
        assert_eq!(root_cause(&std::io::Error::other(error)), text);
    }

    #[test]
    fn a_certificate_that_has_expired_is_the_same_failure_at_each_attempt() {
        let at = |seconds: u64| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let text = |time: u64| {
            let why = CertificateError::ExpiredContext { time: at(time), not_after: at(86_400) };
            root_cause(&rustls::Error::InvalidCertificate(why))
        };
        assert_eq!(text(90_000), "invalid peer certificate: it expired at 1970-01-02T00:00:00Z");
        assert_eq!(text(90_000), text(95_000));
        let time = at(1);
        let why = CertificateError::NotValidYetContext { time, not_before: at(86_400) };
        let text = root_cause(&rustls::Error::InvalidCertificate(why));
        assert_eq!(text, "invalid peer certificate: it is not valid before 1970-01-02T00:00:00Z");
    }
}
