//! Submodules: parses `.gitmodules`, and decides about the credentials for submodules.
//!
//! Here: reading the file, resolving its URLs, deciding which servers get credentials.
//! Elsewhere: fetching them one after the other (`commit_with_submodules`).

use std::collections::BTreeMap;

use gix::config::file::Metadata;
use gix::config::{File, Source};
use http_client::same_server;

use super::remote_url::{RemoteScheme, RemoteUrl};
use super::{Error, GitCredentials, GitRemote};

/// The file with the URLs of submodules.
pub(super) const FILE: &str = ".gitmodules";

/// The largest `.gitmodules` in bytes. A file with a thousand submodules has a tenth of this.
pub(super) const LONGEST_FILE: u64 = 1 << 20;

/// Parses the text of a `.gitmodules` file into URLs by path.
///
/// # Errors
/// [`Error::BadSubmodule`] for a file that cannot be read, and for a path that leaves the repository or leads into Git's own
/// folder.
pub(super) fn urls(text: &[u8], remote: &str) -> Result<BTreeMap<String, String>, Error> {
    let bad = |path: &str, reason: &str| Error::BadSubmodule {
        remote: remote.to_owned(),
        path: path.chars().filter(|c| !c.is_control()).take(200).collect(),
        reason: reason.to_owned(),
    };
    let file =
        File::from_bytes_no_includes(text, Metadata::from(Source::Local), Default::default())
            .map_err(|_unread| bad(FILE, "the file is not valid Git configuration"))?;
    let mut urls = BTreeMap::new();
    for section in file.sections_by_name("submodule").into_iter().flatten() {
        let value = |key: &str| section.value(key).map(|value| value.to_string());
        let (Some(path), Some(url)) = (value("path"), value("url")) else { continue };
        if path.starts_with('/') {
            return Err(bad(&path, "its path is absolute"));
        }
        let mut parts = path.split(['/', '\\']);
        if parts.clone().any(|part| part == "..") {
            return Err(bad(&path, "its path leaves the repository"));
        }
        if parts.any(|part| part.eq_ignore_ascii_case(".git")) {
            return Err(bad(&path, "its path leads into the .git directory"));
        }
        urls.insert(path.trim_end_matches('/').to_owned(), url);
    }
    Ok(urls)
}

/// Resolves a URL in a `.gitmodules` of the repository at `parent`.
///
/// # Errors
/// The reason why the URL may not be fetched.
pub(super) fn resolve(parent: &RemoteUrl, url: &str) -> Result<RemoteUrl, String> {
    let url = url.trim();
    if url.starts_with("./") || url.starts_with("../") {
        return parent
            .relative(url)
            .ok_or_else(|| "its relative URL leaves the path of the repository's URL".to_owned());
    }
    let refused = |error: Error| error.to_string();
    match url.split_once(':') {
        Some((_, rest)) if rest.starts_with("//") => RemoteUrl::parse(url).map_err(refused),
        // `ext::` and its like would have a program run.
        Some((helper, rest)) if rest.starts_with(':') => {
            let shown: String = helper.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
            Err(format!(
                "its URL requires the remote helper `{shown}`; remote helpers are not supported"
            ))
        }
        // An address such as `git@example.com:team/app.git`. The server may read the path as relative to a home directory, and
        // here it is absolute. Both are the same for all hosting services.
        Some((host, path)) if !host.contains('/') && !host.is_empty() => {
            let path = path.trim_start_matches('/');
            RemoteUrl::parse(&format!("ssh://{host}/{path}")).map_err(refused)
        }
        Some(_) | None => {
            Err("its URL is a local path; use `../name.git` for a sibling repository".to_owned())
        }
    }
}

/// Whether the credentials of the root repository may be sent to the server of a submodule.
pub(super) fn is_at_home(root: &RemoteUrl, url: &RemoteUrl) -> bool {
    match (root.scheme(), url.scheme()) {
        (RemoteScheme::Ssh, RemoteScheme::Ssh) => {
            (root.host(), root.port()) == (url.host(), url.port())
        }
        (RemoteScheme::Ssh, _) | (_, RemoteScheme::Ssh) => false,
        (RemoteScheme::Http | RemoteScheme::Https, RemoteScheme::Http | RemoteScheme::Https) => {
            same_server(&root.bare(), &url.bare())
        }
    }
}

/// The remote of a submodule; the caller fills in the rest of the root's time and limits.
///
/// Differs(flux): in Flux the credentials go wherever a submodule is; here they, and the certificates beside them, are
/// for the server of the repository alone. Others are accessed anonymously, or with the credentials in the URL in
/// `.gitmodules`. The proxy is the same for all.
///
/// # Errors
/// What is missing to reach the submodule.
pub(super) fn remote(root: &GitRemote, url: RemoteUrl) -> Result<GitRemote, String> {
    let credentials = if is_at_home(&root.url, &url) {
        root.credentials.clone()
    } else if url.scheme() == RemoteScheme::Ssh {
        return Err(format!(
            "{url} requires a key, and the Secret is used for {} only; use a URL on that host, or an https URL, \
             for the submodule",
            root.url.authority()
        ));
    } else {
        GitCredentials::from_secret(&BTreeMap::new(), &url).map_err(|error| error.to_string())?
    };
    let proxy = root.proxy.clone();
    Ok(GitRemote { url, credentials, proxy, timeout: root.timeout, limits: root.limits })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use expect_test::{Expect, expect};
    use http_client::TlsConfig;
    use objects::RedactedValue;

    use super::*;
    use crate::{GitAuth, GitLimits};

    fn check(parent: &str, url: &str, expected: &Expect) {
        let parent = RemoteUrl::parse(parent).unwrap();
        expected.assert_eq(&match resolve(&parent, url) {
            Ok(url) => url.to_string(),
            Err(reason) => reason,
        });
    }

    #[test]
    fn a_relative_url_is_read_from_the_url_of_the_repository() {
        let parent = "https://example.com/team/app.git";
        check(parent, "../lib.git", &expect!["https://example.com/team/lib.git"]);
        check(parent, "./lib.git", &expect!["https://example.com/team/app.git/lib.git"]);
        check(parent, "../../other/lib", &expect!["https://example.com/other/lib"]);
        check(
            parent,
            "../../../lib",
            &expect!["its relative URL leaves the path of the repository's URL"],
        );
        check(&format!("{parent}/"), "../lib.git", &expect!["https://example.com/team/lib.git"]);
        check(parent, "../lib?x#y", &expect!["https://example.com/team/lib%3Fx%23y"]);
        check(
            "ssh://git@example.com:2222/team/app.git",
            "../lib.git",
            &expect!["ssh://git@example.com:2222/team/lib.git"],
        );
        check(
            "ssh://git@example.com/~me/app.git",
            "../lib.git",
            &expect!["ssh://git@example.com/~me/lib.git"],
        );
    }

    #[test]
    fn other_forms_are_taken_or_refused_with_the_reason() {
        let parent = "https://example.com/team/app.git";
        check(
            parent,
            "git@example.com:team/lib.git",
            &expect!["ssh://git@example.com/team/lib.git"],
        );
        check(
            parent,
            "https://me:hunter2@elsewhere.org/lib.git",
            &expect!["https://elsewhere.org/lib.git"],
        );
        for url in ["file:///etc/passwd", "ext::sh -c touch% /tmp/x", "/srv/lib.git", "lib.git"] {
            let parent = RemoteUrl::parse(parent).unwrap();
            assert!(resolve(&parent, url).is_err(), "{url}");
        }
        check(
            parent,
            "file:///etc/passwd",
            &expect![
                "invalid URL `file:///etc/passwd`: it must start with http://, https:// or ssh://"
            ],
        );
        check(
            parent,
            "ext::sh -c touch% /tmp/x",
            &expect!["its URL requires the remote helper `ext`; remote helpers are not supported"],
        );
        check(
            parent,
            "/srv/lib.git",
            &expect!["its URL is a local path; use `../name.git` for a sibling repository"],
        );
        check(
            parent,
            "git://example.com/lib.git",
            &expect![
                "invalid URL `git://example.com/lib.git`: it must start with http://, https:// or ssh://"
            ],
        );
    }

    fn root(url: &str, auth: GitAuth) -> GitRemote {
        let tls = TlsConfig { ca: Some(b"pem".to_vec()), identity: None };
        GitRemote {
            url: RemoteUrl::parse(url).unwrap(),
            credentials: GitCredentials { auth, tls },
            proxy: None,
            timeout: Duration::from_secs(1),
            limits: GitLimits::default(),
        }
    }

    #[test]
    fn credentials_and_certificates_are_for_the_server_of_the_repository_alone() {
        let auth = GitAuth::Bearer(RedactedValue::new("hunter2".to_owned()));
        let root = root("https://example.com/app.git", auth);
        let carries = |url: &str| {
            let remote = remote(&root, RemoteUrl::parse(url).unwrap()).unwrap();
            let is_known = matches!(remote.credentials.auth, GitAuth::Bearer(_));
            assert_eq!(is_known, remote.credentials.tls.ca.is_some(), "{url}");
            is_known
        };
        assert!(carries("https://example.com/lib.git"));
        assert!(carries("https://EXAMPLE.com:443/lib.git"));
        assert!(!carries("https://evil.example.com/lib.git"));
        assert!(!carries("https://example.com.evil.org/lib.git"));
        assert!(!carries("https://example.com:8443/lib.git"));
        assert!(!carries("http://example.com/lib.git"));
        assert!(!carries("https://example.com@evil.org/lib.git"));
        let other = RemoteUrl::parse("ssh://git@example.com/lib.git").unwrap();
        let reason = remote(&root, other).unwrap_err();
        assert!(reason.contains("requires a key") && !reason.contains("hunter2"), "{reason}");
    }

    #[test]
    fn a_key_is_for_its_host_alone() {
        let auth = GitAuth::Ssh {
            identity: RedactedValue::new("hunter2".to_owned()),
            passphrase: None,
            known_hosts: String::new(),
        };
        let root = root("ssh://git@example.com:2222/app.git", auth);
        let get = |url: &str| remote(&root, RemoteUrl::parse(url).unwrap());
        assert!(get("ssh://git@example.com:2222/lib.git").is_ok());
        assert!(get("ssh://git@example.com/lib.git").is_err());
        assert!(get("ssh://git@elsewhere.org:2222/lib.git").is_err());
        let anonymous = get("https://example.com/lib.git").unwrap();
        assert!(matches!(anonymous.credentials.auth, GitAuth::None));
    }

    fn read(text: &str) -> Result<Vec<(String, String)>, String> {
        let read = urls(text.as_bytes(), "https://example.com/app.git");
        read.map(|urls| urls.into_iter().collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_names_urls_by_path_and_what_else_it_says_does_not_count() {
        let text = "[core]\n\tx = y\n[include]\n\tpath = /etc/passwd\n\
            [submodule \"a b\"]\n\tpath = \"vendor/a b/\"\n\turl = ../a.git\n\tupdate = !touch /tmp/x\n\
            [submodule \"half\"]\n\tpath = half\n";
        assert_eq!(read(text), Ok(vec![("vendor/a b".to_owned(), "../a.git".to_owned())]));
        assert_eq!(read(""), Ok(Vec::new()));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["../x", "a/../../x", "/etc", ".git/hooks", "a/.GIT", "a\\\\..\\\\x"] {
            let message = read(&format!("[submodule \"x\"]\n\tpath = {path}\n\turl = ../x\n"));
            assert!(
                message.as_ref().is_err_and(|message| message.contains("cannot be fetched")),
                "{message:?}"
            );
        }
        assert!(read("[submodule").is_err());
    }
}
