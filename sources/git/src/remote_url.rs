//! The URL of a repository. It is checked once, and shown without credentials.

use std::fmt;

use http_client::percent_decoded;
use url::Url;

use super::Error;

/// The protocol of a remote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteScheme {
    /// Smart HTTP without TLS. Credentials are sent nevertheless, as Flux does.
    Http,
    /// Smart HTTP over TLS.
    Https,
    /// `git-upload-pack` over SSH.
    Ssh,
}

/// The URL of a repository: `http`, `https` or `ssh`.
///
/// `Display` and `Debug` leave out the password. For HTTP they also leave out the user, since some users put tokens there.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    url: Url,
    scheme: RemoteScheme,
}

impl RemoteUrl {
    /// Checks a URL.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`], with the invalid part. The scp form `user@host:path` is refused, as by Flux.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |reason: &str| Error::InvalidUrl { url: redact(text), reason: reason.to_owned() };
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(bad("it contains white space or control characters"));
        }
        if !text.contains("://") {
            return Err(bad(
                "it must start with http://, https:// or ssh:// (use `ssh://user@host/path` for `user@host:path`)",
            ));
        }
        let url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
        let scheme = match url.scheme() {
            "http" => RemoteScheme::Http,
            "https" => RemoteScheme::Https,
            "ssh" => RemoteScheme::Ssh,
            _ => return Err(bad("it must start with http://, https:// or ssh://")),
        };
        if url.host_str().is_none_or(str::is_empty) {
            return Err(bad("it has no host"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("it must not contain `?` or `#`"));
        }
        if scheme == RemoteScheme::Ssh && matches!(url.path(), "" | "/") {
            return Err(bad("it has no repository path"));
        }
        Ok(Self { url, scheme })
    }

    /// The protocol of the remote.
    pub fn scheme(&self) -> RemoteScheme {
        self.scheme
    }

    /// The host without the port, in lower case. An IPv6 address has no brackets.
    pub fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
    }

    /// The port, given or usual.
    pub fn port(&self) -> u16 {
        self.url.port().unwrap_or(match self.scheme {
            RemoteScheme::Http => 80,
            RemoteScheme::Https => 443,
            RemoteScheme::Ssh => 22,
        })
    }

    /// Host and port, in the usual notation.
    pub(super) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// The user in the URL, decoded. `None` if the URL has none.
    pub(super) fn user(&self) -> Option<String> {
        Some(percent_decoded(self.url.username())).filter(|user| !user.is_empty())
    }

    /// The password in the URL, decoded. `None` if the URL has none.
    pub(super) fn password(&self) -> Option<String> {
        self.url.password().map(percent_decoded).filter(|password| !password.is_empty())
    }

    /// The decoded path, as the remote shell should see it. `/~user/…` is relative to a home directory.
    pub(super) fn path(&self) -> String {
        let path = percent_decoded(self.url.path());
        match path.strip_prefix("/~") {
            Some(_) => path[1..].to_owned(),
            None => path,
        }
    }

    /// Resolves a relative URL such as `../lib.git` against this URL, which counts as a folder.
    ///
    /// `None` if the relative URL leads above the host.
    pub(super) fn relative(&self, text: &str) -> Option<Self> {
        let mut parts: Vec<&str> =
            self.url.path().split('/').filter(|part| !part.is_empty()).collect();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()?),
                name => parts.push(name),
            }
        }
        let mut url = self.url.clone();
        url.set_path(&format!("/{}", parts.join("/")));
        Some(Self { url, scheme: self.scheme })
    }

    /// The URL without user and password.
    pub(super) fn bare(&self) -> Url {
        without_userinfo(self.url.clone())
    }
}

/// Takes user and password out of a URL.
pub(super) fn without_userinfo(mut url: Url) -> Url {
    // Both fail only for URLs without a host, which have no user information either.
    let _: Result<(), ()> = url.set_password(None);
    let _: Result<(), ()> = url.set_username("");
    url
}

/// A text that may not be a URL at all, without the part before its `@`.
fn redact(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(s, r)| (s, r));
    let end = rest.find('/').unwrap_or(rest.len());
    // An `@` further back can still end a password that has a slash in it.
    let rest = match rest.rfind('@') {
        Some(at) if at < end || rest[..at].contains(':') => &rest[at + 1..],
        _ => rest,
    };
    let shown: String = rest.chars().filter(|c| !c.is_control()).take(200).collect();
    if scheme.is_empty() { shown } else { format!("{scheme}://{shown}") }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.bare();
        if self.scheme == RemoteScheme::Ssh {
            let _: Result<(), ()> = shown.set_username(self.url.username());
        }
        f.write_str(shown.as_str())
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(text: &str, expected: &Expect) {
        let message = match RemoteUrl::parse(text) {
            Ok(url) => format!(
                "{url} host={} port={} user={:?} path={}",
                url.host(),
                url.port(),
                url.user(),
                url.path()
            ),
            Err(error) => error.to_string(),
        };
        expected.assert_eq(&message);
    }

    #[test]
    fn the_parts_of_a_url_are_what_git_takes_them_for() {
        check(
            "ssh://git@Git.Example.com:2222/team/app%20one.git",
            &expect![
                "ssh://git@Git.Example.com:2222/team/app%20one.git host=git.example.com port=2222 user=Some(\"git\") path=/team/app one.git"
            ],
        );
        check("ssh://h/~me/app", &expect!["ssh://h/~me/app host=h port=22 user=None path=~me/app"]);
        check(
            "https://[::1]:8443/a.git",
            &expect!["https://[::1]:8443/a.git host=::1 port=8443 user=None path=/a.git"],
        );
        // Text that is not an escape stays.
        check(
            "https://h/a%+1%2b.git",
            &expect!["https://h/a%+1%2b.git host=h port=443 user=None path=/a%+1+.git"],
        );
    }

    #[test]
    fn what_cannot_be_fetched_is_refused_with_the_reason() {
        check(
            "git@github.com:team/app.git",
            &expect![
                "invalid URL `github.com:team/app.git`: it must start with http://, https:// or ssh:// (use \
                 `ssh://user@host/path` for `user@host:path`)"
            ],
        );
        check(
            "file:///etc",
            &expect!["invalid URL `file:///etc`: it must start with http://, https:// or ssh://"],
        );
        check(
            "https://example.com/a.git?x=1",
            &expect!["invalid URL `https://example.com/a.git?x=1`: it must not contain `?` or `#`"],
        );
        check("ssh://host/", &expect!["invalid URL `ssh://host/`: it has no repository path"]);
        check(
            "https://a\n.com/x",
            &expect![
                "invalid URL `https://a.com/x`: it contains white space or control characters"
            ],
        );
    }

    #[test]
    fn credentials_in_a_url_are_never_shown() {
        for text in [
            "https://hunter2@example.com/a.git",
            "https://me:hunter2@example.com/a.git",
            "ssh://git:hunter2@example.com/a.git",
            "https://me:hunter2@exa mple.com/a.git",
            "ftp://me:hunter2@example.com/a.git",
            "https://me:hun/hunter2@example.com/a.git",
            "me:hunter2@example.com",
        ] {
            let message = match RemoteUrl::parse(text) {
                Ok(url) => format!("{url} {url:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
