//! The proxy that connections go through, from the keys that Flux reads in a Secret.

use std::collections::BTreeMap;
use std::fmt;

use objects::RedactedValue;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::{EgressRules, Error};

/// Parity(flux): a longer address is refused.
const LONGEST_ADDRESS: usize = 2048;

/// The longest user or password of SOCKS (RFC 1929).
const LONGEST_OF_SOCKS: usize = 255;

/// A proxy of the type `http`, `https` or `socks5`, which is used for every connection to any host.
///
/// The proxy resolves names itself, and decides which servers can be reached. Its own address is checked like that of a server
/// ([`EgressRules::Named`]). Otherwise a user could name a cloud's metadata server as a proxy, and windlass would send
/// requests to it.
///
/// `Display` and `Debug` leave out everything that could be a credential.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpProxy {
    /// The URL without user and password.
    url: Url,
    username: Option<String>,
    password: RedactedValue<String>,
}

impl HttpProxy {
    /// Reads `address`, `username` and `password`. If the two keys are missing, user and password in the address are used.
    ///
    /// # Errors
    /// [`Error::BadProxy`] naming the key that is missing or unusable. No text of the Secret is repeated.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, Error> {
        let text = |key: &str| {
            let value = data.get(key).filter(|value| !value.is_empty()).cloned();
            let not_text = |_| Error::BadProxy(format!("`{key}` is not valid UTF-8"));
            value.map(String::from_utf8).transpose().map_err(not_text)
        };
        let bad = |why: &str| Error::BadProxy(why.to_owned());
        let address = text("address")?
            .ok_or_else(|| bad("it requires `address`, such as `http://proxy.example.com:3128`"))?;
        if address.len() > LONGEST_ADDRESS {
            return Err(Error::BadProxy(format!(
                "`address` is longer than {LONGEST_ADDRESS} bytes"
            )));
        }
        let mut url = Url::parse(&address).map_err(|_| bad("`address` is not a URL"))?;
        if !matches!(url.scheme(), "http" | "https" | "socks5") {
            return Err(bad("`address` must start with http://, https:// or socks5://"));
        }
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(bad("`address` has no host"));
        };
        let place = Url::parse(&format!("http://{host}"))
            .map_err(|_| bad("the host in `address` is invalid"))?;
        if EgressRules::with_loopback().admits(&place).is_err() {
            return Err(bad(
                "`address` is a link-local or cloud metadata address, which is not allowed",
            ));
        }
        let (username, password) = match (text("username")?, text("password")?) {
            (Some(username), password) => (Some(username), password.unwrap_or_default()),
            (None, Some(_)) => return Err(bad("`password` requires `username`")),
            (None, None) => {
                let decoded = crate::percent_decoded;
                let username = Some(decoded(url.username())).filter(|user| !user.is_empty());
                (username, url.password().map(decoded).unwrap_or_default())
            }
        };
        let is_long = |text: &str| text.len() > LONGEST_OF_SOCKS;
        if url.scheme() == "socks5"
            && (username.as_deref().is_some_and(is_long) || is_long(&password))
        {
            return Err(Error::BadProxy(format!(
                "`username` and `password` must not be longer than {LONGEST_OF_SOCKS} bytes for SOCKS"
            )));
        }
        // Both fail only for URLs without a host.
        let _: Result<(), ()> = url.set_password(None);
        let _: Result<(), ()> = url.set_username("");
        url.set_path("");
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self { url, username, password: RedactedValue::new(password) })
    }

    /// Checks the address of the proxy, if it is an IP address. A name is checked when it is resolved.
    pub(super) fn check(&self, egress: &EgressRules) -> Result<(), Error> {
        egress.admits(&self.url).map_err(|refused| Error::BadProxy(refused.to_string()))
    }

    /// The proxy in the form of the HTTP client.
    pub(super) fn for_client(&self) -> Result<reqwest::Proxy, Error> {
        let mut address = self.url.to_string();
        // Parity(go): names are resolved by the proxy; reqwest spells that with an `h`.
        if let Some(rest) = address.strip_prefix("socks5://") {
            address = format!("socks5h://{rest}");
        }
        let proxy = reqwest::Proxy::all(address)
            .map_err(|_unusable| Error::BadProxy("`address` is invalid".to_owned()))?;
        // The client puts user and password into a URL and parses them again, where `%2F` would become `/`.
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        Ok(match &self.username {
            Some(username) => {
                proxy.basic_auth(&encoded(username), &encoded(self.password.expose()))
            }
            None => proxy,
        })
    }

    /// The values that identify the proxy, including credentials. They are only for digests.
    pub(crate) fn parts(&self) -> [Option<&[u8]>; 3] {
        let username = self.username.as_deref().map(str::as_bytes);
        [Some(self.url.as_str().as_bytes()), username, Some(self.password.expose().as_bytes())]
    }

    /// The password, which must not appear in any message.
    pub fn password(&self) -> &RedactedValue<String> {
        &self.password
    }
}

impl fmt::Display for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

const REJECTED: &str = "authentication failed at the SOCKS proxy";
const OTHER_METHOD: &str = "the SOCKS proxy requires another authentication method; check `username` and `password` of its Secret";

/// A replacement for an error of the HTTP client's SOCKS code, which does not say what the user can do. `None` for any
/// other error.
pub(super) fn socks_words(text: &str) -> Option<&'static str> {
    Some(match text.strip_prefix("SOCKS error: ")? {
        // The text hides the cause.
        "failed to create underlying connection" => "cannot connect to the SOCKS proxy",
        "credentials not accepted" => REJECTED,
        // The proxy returns this also if it requires credentials and none are set.
        "server does not support user/pass authentication"
        | "server implements authentication incorrectly" => OTHER_METHOD,
        "failed parsing server response" => "the server is not a SOCKS5 proxy",
        "failed serialize request" => "user, password and host are longer than 249 bytes in total",
        _ => return None,
    })
}

/// Whether a proxy refuses the credentials. That happens during the connection, so there is no response to examine.
pub fn is_refusal_of_proxy(cause: &str) -> bool {
    cause.contains("proxy authorization required")
        || [REJECTED, OTHER_METHOD].iter().any(|socks| cause.starts_with(socks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(secret: &[(&str, &str)], expected: &Expect) {
        let data = secret.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let text = match HttpProxy::from_secret(&data) {
            Ok(proxy) => {
                let known = (proxy.username.is_some(), !proxy.password.expose().is_empty());
                assert!(proxy.for_client().is_ok());
                format!("{proxy} {proxy:?} {known:?}")
            }
            Err(error) => format!("{error}"),
        };
        assert!(!text.contains("hunter2"), "{text}");
        expected.assert_eq(&text);
    }

    #[test]
    fn an_address_with_or_without_credentials_is_a_proxy_and_shows_none() {
        check(
            &[("address", "http://p:3128")],
            &expect!["http://p:3128 Proxy(http://p:3128) (false, false)"],
        );
        check(
            &[("address", "https://p:3128/x?y"), ("username", "me"), ("password", "hunter2")],
            &expect!["https://p:3128 Proxy(https://p:3128) (true, true)"],
        );
        check(
            &[("address", "socks5://me:hunter2@p:1080")],
            &expect!["socks5://p:1080 Proxy(socks5://p:1080) (true, true)"],
        );
    }

    #[test]
    fn what_cannot_be_a_proxy_is_refused_by_its_key() {
        check(
            &[],
            &expect![
                "the Secret of the proxy is invalid: it requires `address`, such as `http://proxy.example.com:3128`"
            ],
        );
        check(
            &[("address", "hunter2")],
            &expect!["the Secret of the proxy is invalid: `address` is not a URL"],
        );
        check(
            &[("address", "ftp://me:hunter2@p")],
            &expect![
                "the Secret of the proxy is invalid: `address` must start with http://, https:// or socks5://"
            ],
        );
        check(
            &[("address", "socks4://p")],
            &expect![
                "the Secret of the proxy is invalid: `address` must start with http://, https:// or socks5://"
            ],
        );
        for address in [
            "http://169.254.169.254",
            "socks5://169.254.169.254:80",
            "socks5://0xa9fea9fe",
            "socks5://[fe80::1]:1080",
            "https://[fd00:ec2::254]",
        ] {
            check(
                &[("address", address)],
                &expect![
                    "the Secret of the proxy is invalid: `address` is a link-local or cloud metadata address, \
                     which is not allowed"
                ],
            );
        }
        let address = "socks5://p";
        let long = "hunter2".repeat(37);
        check(
            &[("address", address), ("username", "me"), ("password", &long)],
            &expect![
                "the Secret of the proxy is invalid: `username` and `password` must not be longer than 255 bytes \
                 for SOCKS"
            ],
        );
        check(
            &[("address", "http://p"), ("password", "hunter2")],
            &expect!["the Secret of the proxy is invalid: `password` requires `username`"],
        );
    }
}
