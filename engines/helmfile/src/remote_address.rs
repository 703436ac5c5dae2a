//! Remote addresses in the form of go-getter, which helmfiles can contain: `git::https://HOST/REPOSITORY@FILE?ref=TAG`.
//!
//! Here: reading such addresses. Elsewhere: fetching (the caller), where such an address is allowed (`working_directory.rs`,
//! `helmfile_paths.rs`).

use std::fmt;

use golang::url::GoUrl;

use crate::deps::ChartVersionRequest;
use crate::working_directory::{base, parent};

/// The getter of an address without `::`.
const NORMAL: &str = "normal";

/// A remote address as helmfile reads it.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The text before `::`, or `normal`.
    pub getter: String,
    /// The scheme.
    pub scheme: String,
    /// The user, perhaps with a password.
    pub user: String,
    /// The host name or IP address, with the port if there is one.
    pub host: String,
    /// The repository or archive to fetch. It is the part of the path before `@`, or the parent directory without its first
    /// slash.
    pub dir: String,
    /// The file or directory within the fetched content: the part of the path after `@`, or the last part.
    pub file: String,
    /// The text after `?`, unchanged.
    pub query: String,
}

/// The server and content that an address refers to.
#[derive(Clone, PartialEq, Eq)]
pub enum RemoteSource {
    /// A folder of a repository.
    Git {
        /// The URL to clone from: scheme, user and host.
        host: String,
        /// The repository on the host.
        path: String,
        /// The folder in the repository; empty for the whole repository.
        folder: String,
        /// A branch, tag or commit; empty for the default branch.
        reference: String,
    },
    /// A file on a web server.
    File {
        /// The URL of the archive.
        url: String,
    },
    /// An archive on a web server.
    Archive {
        /// Where it is.
        url: String,
        /// The folder in the archive; empty for the whole archive.
        folder: String,
    },
    /// An object in S3. An object whose name is that of an archive is unpacked.
    S3 {
        /// The region; empty if S3 must be asked for the region of the bucket.
        region: String,
        /// The bucket.
        bucket: String,
        /// The object.
        key: String,
    },
}

/// Fetches the remote files and charts that helmfiles refer to.
pub trait RemoteFetcher: Send + Sync {
    /// Fetches an address, and returns the directory that contains its `file`. The directory is an absolute path in the files
    /// of the environment.
    ///
    /// The plan calls this for the same address more than once.
    ///
    /// # Errors
    /// Why the address cannot be fetched.
    fn fetch(&self, address: &RemoteAddress) -> Result<String, String>;

    /// Fetches a chart from a repository or a registry, and returns its directory. The directory is an absolute path in the
    /// files of the environment.
    ///
    /// # Errors
    /// Why the chart cannot be fetched.
    fn chart(&self, chart: &ChartVersionRequest) -> Result<String, ChartFetchError>;
}

/// Why a chart of a repository or a registry cannot be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChartFetchError {
    /// A helmfile may not refer to the location of the chart. Of installed releases, only those with this chart fail.
    #[error("{0}")]
    Refused(String),
    /// The chart cannot be fetched now. A later attempt may succeed.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for ChartFetchError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl fmt::Debug for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Git { .. } => "Git",
            Self::File { .. } => "File",
            Self::Archive { .. } => "Archive",
            Self::S3 { .. } => "S3",
        })
    }
}

/// Without user, password and parameters, which may be secret.
impl fmt::Display for RemoteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { getter, scheme, host, dir, file, .. } = self;
        match getter.as_str() {
            NORMAL if dir.is_empty() => write!(f, "{scheme}://{host}/{file}"),
            NORMAL => write!(f, "{scheme}://{host}/{dir}/{file}"),
            _ => write!(f, "{getter}::{scheme}://{host}{dir}@{file}"),
        }
    }
}

impl RemoteAddress {
    /// Reads an address; `None` if helmfile would read the text as a path.
    ///
    /// Parity(helmfile 1.8): without exactly one `@` in its path, an address with `::` has a directory without its first slash,
    /// which then follows the host; and three parts with `::` between them are an address, too.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return None;
        }
        let parts: Vec<&str> = text.split("::").collect();
        let (getter, rest) = match parts.as_slice() {
            [getter, rest] => (*getter, *rest),
            _ => match text.split("://").collect::<Vec<_>>().as_slice() {
                [scheme, _] => match scheme.to_ascii_lowercase().as_str() {
                    "s3" | "http" | "https" => (NORMAL, text),
                    _ => return None,
                },
                _ => ("", text),
            },
        };
        if rest.starts_with('/') {
            return None;
        }
        let url = GoUrl::parse(rest.as_bytes()).ok()?;
        if url.scheme.is_empty() {
            return None;
        }
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let path = lossy(&url.path);
        let (dir, file) = match path.split('@').collect::<Vec<_>>().as_slice() {
            [dir, file] if getter != NORMAL => ((*dir).to_owned(), (*file).to_owned()),
            _ => {
                let dir = parent(&path);
                (dir.get(1..).unwrap_or_default().to_owned(), base(&path).to_owned())
            }
        };
        let user = url.user.map(|user| match user.password {
            Some(password) => format!("{}:{}", lossy(&user.name), lossy(&password)),
            None => lossy(&user.name),
        });
        Some(Self {
            getter: getter.to_owned(),
            scheme: lossy(&url.scheme),
            user: user.unwrap_or_default(),
            host: lossy(&url.host),
            dir,
            file,
            query: lossy(&url.query),
        })
    }

    /// The server and content that the address refers to.
    ///
    /// Differs(helmfile 1.8): nothing is cached from one run to the next, so `cache` has no effect; keys are not taken out of
    /// addresses; `hg`, `smb`, `file` and other getters are not there.
    ///
    /// # Errors
    /// Which part is not supported, and an alternative.
    pub fn source(&self) -> Result<RemoteSource, String> {
        match (self.getter.as_str(), self.scheme.as_str()) {
            (NORMAL, "http" | "https") => {
                Ok(RemoteSource::File { url: self.url(&self.whole_path(), &[]) })
            }
            (NORMAL, _) => self.s3(&self.host, "", &self.whole_path()),
            ("s3", "http" | "https") => self.s3_of_host(),
            ("git", "http" | "https" | "ssh" | "file") => self.git(),
            ("http" | "https", "http" | "https") => {
                self.check_dir()?;
                let (path, folder) = split_folder(&self.dir);
                Ok(RemoteSource::Archive { url: self.url(path, &[]), folder: folder.to_owned() })
            }
            (getter, scheme) => Err(format!(
                "`{getter}::{scheme}://` is not supported: use git::https, git::ssh, s3::https, https::https or https"
            )),
        }
    }

    fn git(&self) -> Result<RemoteSource, String> {
        self.check_dir()?;
        if self.parameter("sshkey").is_some() {
            return Err(
                "`sshkey` is not supported, since addresses are printed: configure the key for ssh"
                    .to_owned(),
            );
        }
        let (path, folder) = split_folder(&self.dir);
        let at = if self.user.is_empty() { String::new() } else { format!("{}@", self.user) };
        let reference = self.parameter("ref").unwrap_or_default();
        Ok(RemoteSource::Git {
            host: format!("{}://{at}{}", self.scheme, self.host),
            path: path.to_owned(),
            folder: folder.to_owned(),
            reference: reference.to_owned(),
        })
    }

    /// Reads the bucket and region from AWS's forms of host names.
    fn s3_of_host(&self) -> Result<RemoteSource, String> {
        let path = if self.dir.starts_with('/') { self.dir.clone() } else { self.whole_path() };
        let key = path.trim_start_matches('/');
        let place = self.host.strip_suffix(".amazonaws.com");
        let place = place.ok_or_else(|| {
            format!("`{}` is not a host of S3: it must end in .amazonaws.com", self.host)
        })?;
        let of_path = |region: &str| match key.split_once('/') {
            Some((bucket, key)) => self.s3(bucket, region, key),
            None => Err("the path of an address of S3 is a bucket and an object".to_owned()),
        };
        if place == "s3" {
            return of_path("us-east-1");
        }
        if let Some(region) = place.strip_prefix("s3-").or_else(|| place.strip_prefix("s3."))
            && !region.contains('.')
        {
            return of_path(region);
        }
        let parts: Vec<&str> = place.rsplitn(3, '.').collect();
        match parts.as_slice() {
            [region, "s3", bucket] => self.s3(bucket, region, key),
            _ => match place.rsplit_once(".s3-") {
                Some((bucket, region)) => self.s3(bucket, region, key),
                None => match place.strip_suffix(".s3") {
                    Some(bucket) => self.s3(bucket, "us-east-1", key),
                    None => Err(format!("`{}` does not name a bucket of S3", self.host)),
                },
            },
        }
    }

    fn s3(&self, bucket: &str, region: &str, key: &str) -> Result<RemoteSource, String> {
        let key = key.trim_start_matches('/');
        if bucket.is_empty() || key.is_empty() || key == "." {
            return Err("an address of S3 names a bucket and an object".to_owned());
        }
        let [region, bucket, key] = [region, bucket, key].map(str::to_owned);
        Ok(RemoteSource::S3 { region, bucket, key })
    }

    /// The path of an address without `@`.
    fn whole_path(&self) -> String {
        match self.dir.as_str() {
            "" => format!("/{}", self.file),
            dir => format!("/{dir}/{}", self.file),
        }
    }

    /// The value of a parameter of the address, unchanged. `None` if the address does not have the parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The names and values of all parameters of the address, unchanged.
    fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.query.split('&').filter(|part| !part.is_empty());
        all.map(|part| part.split_once('=').unwrap_or((part, "")))
    }

    fn url(&self, path: &str, without: &[&str]) -> String {
        let at = if self.user.is_empty() { String::new() } else { format!("{}@", self.user) };
        let mut url = format!("{}://{at}{}{path}", self.scheme, self.host);
        let kept = self.parameters().filter(|(key, _)| *key != "cache" && !without.contains(key));
        let kept: Vec<String> = kept.map(|(key, value)| format!("{key}={value}")).collect();
        if !kept.is_empty() {
            url.push_str(&format!("?{}", kept.join("&")));
        }
        url
    }

    /// Rejects a path that helmfile would append to the host without a slash.
    fn check_dir(&self) -> Result<(), String> {
        if self.dir.starts_with('/') {
            return Ok(());
        }
        Err("the address needs one `@` between what is fetched and the path in it, such as \
             git::https://example.com/org/repo.git@path/to/file.yaml"
            .to_owned())
    }
}

/// Splits a path at `//` into the content to fetch and a folder in it.
fn split_folder(dir: &str) -> (&str, &str) {
    match dir.find("//") {
        Some(at) => (dir.get(..at).unwrap_or(dir), dir.get(at + 2..).unwrap_or_default()),
        None => (dir, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Getter, scheme, user, host, directory, file and query, or nothing for a path.
    fn parts(text: &str) -> Option<[String; 7]> {
        let RemoteAddress { getter, scheme, user, host, dir, file, query } =
            RemoteAddress::parse(text)?;
        Some([getter, scheme, user, host, dir, file, query])
    }

    /// Addresses with their parts. Answers are those of `remote.Parse` of helmfile 1.8.0, also below.
    const ADDRESSES: &[(&str, [&str; 7])] = &[
        (
            "git::https://github.com/cloudposse/helmfiles.git@releases/kiam.yaml?ref=0.40.0",
            [
                "git",
                "https",
                "",
                "github.com",
                "/cloudposse/helmfiles.git",
                "releases/kiam.yaml",
                "ref=0.40.0",
            ],
        ),
        (
            "git::https://user:pw@h.example/org/repo.git//charts@foo/values.yaml?ref=v1&depth=1",
            [
                "git",
                "https",
                "user:pw",
                "h.example",
                "/org/repo.git//charts",
                "foo/values.yaml",
                "ref=v1&depth=1",
            ],
        ),
        (
            "git::ssh://git@github.com/org/repo.git@path/to/file.yaml",
            ["git", "ssh", "git", "github.com", "/org/repo.git", "path/to/file.yaml", ""],
        ),
        (
            "git::ssh://git@github.com:22/org/repo.git@/file.yaml",
            ["git", "ssh", "git", "github.com:22", "/org/repo.git", "/file.yaml", ""],
        ),
        ("git::https://h/org/repo.git", ["git", "https", "", "h", "org", "repo.git", ""]),
        ("git::https://h/a@b@c", ["git", "https", "", "h", "", "a@b@c", ""]),
        ("git::file:///abs/repo@x", ["git", "file", "", "", "/abs/repo", "x", ""]),
        ("s3://bucket/dir/file.yaml", ["normal", "s3", "", "bucket", "dir", "file.yaml", ""]),
        (
            "s3::https://bucket.s3.eu-north-1.amazonaws.com/test/test.tar.gz@in.yaml",
            [
                "s3",
                "https",
                "",
                "bucket.s3.eu-north-1.amazonaws.com",
                "/test/test.tar.gz",
                "in.yaml",
                "",
            ],
        ),
        (
            "gcs::https://www.googleapis.com/storage/v1/bucket/dir@file",
            ["gcs", "https", "", "www.googleapis.com", "/storage/v1/bucket/dir", "file", ""],
        ),
        (
            "https://example.com/dir/file.yaml?x=y",
            ["normal", "https", "", "example.com", "dir", "file.yaml", "x=y"],
        ),
        ("http://example.com", ["normal", "http", "", "example.com", "", ".", ""]),
        (
            "https://user@example.com/a.yaml",
            ["normal", "https", "user", "example.com", "", "a.yaml", ""],
        ),
        ("HTTPS://example.com/a.yaml", ["normal", "https", "", "example.com", "", "a.yaml", ""]),
        ("a::b::c", ["", "a", "", "", "", ".", ""]),
        (
            "https::https://example.com/a.tgz@dir",
            ["https", "https", "", "example.com", "/a.tgz", "dir", ""],
        ),
        ("::https://h/r@f", ["", "https", "", "h", "/r", "f", ""]),
        (
            "git::https://h/r.git@d/f.yaml?ref=a@b",
            ["git", "https", "", "h", "/r.git", "d/f.yaml", "ref=a@b"],
        ),
        ("s3://bucket", ["normal", "s3", "", "bucket", "", ".", ""]),
        ("https://example.com/a://b", ["", "https", "", "example.com", "a:", "b", ""]),
    ];

    /// What is a path to it.
    const PATHS: &[&str] = &[
        "git::git@github.com:org/repo.git@x",
        "git::/abs/repo@x",
        "ftp://example.com/a.yaml",
        "oci://example.com/a",
        "github.com/org/repo",
        "git@github.com:org/repo.git",
        "./local/path",
        "/abs/path",
        "git::https://h%zz/r@f",
        "git::nope",
        "file:///x/y",
        "foo",
    ];

    #[test]
    fn addresses_are_read_as_helmfile_reads_them() {
        for (text, expected) in ADDRESSES {
            assert_eq!(parts(text), Some(expected.map(str::to_owned)), "{text}");
        }
        for text in PATHS {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    /// What an address asks for, on a line.
    fn source(text: &str) -> String {
        match RemoteAddress::parse(text).unwrap().source() {
            Ok(RemoteSource::Git { host, path, folder, reference }) => {
                format!("git {host} {path} [{folder}] {reference}")
            }
            Ok(RemoteSource::File { url }) => format!("file {url}"),
            Ok(RemoteSource::Archive { url, folder }) => format!("archive {url} [{folder}]"),
            Ok(RemoteSource::S3 { region, bucket, key }) => format!("s3 [{region}] {bucket} {key}"),
            Err(error) => format!("error {error}"),
        }
    }

    #[test]
    fn an_address_asks_for_a_repository_a_file_an_archive_or_an_object() {
        for (text, expected) in [
            (
                "git::https://u@h.example/org/r.git//charts/a@f.yaml?ref=v1&depth=1",
                "git https://u@h.example /org/r.git [charts/a] v1",
            ),
            ("git::ssh://git@h:22/r.git@f", "git ssh://git@h:22 /r.git [] "),
            ("https://h/d/f.yaml?x=y&cache=false", "file https://h/d/f.yaml?x=y"),
            ("https::https://h/a.tgz//d@f", "archive https://h/a.tgz [d]"),
            ("s3://bucket/d/f.yaml", "s3 [] bucket d/f.yaml"),
            ("s3::https://b.s3.eu-north-1.amazonaws.com/t/t.tgz@f", "s3 [eu-north-1] b t/t.tgz"),
            ("s3::https://b.s3-us-west-2.amazonaws.com/d/f.txt", "s3 [us-west-2] b d/f.txt"),
            ("s3::https://s3.amazonaws.com/b/d/f.txt", "s3 [us-east-1] b d/f.txt"),
            ("s3::https://s3-eu-west-1.amazonaws.com/b/d/f.txt", "s3 [eu-west-1] b d/f.txt"),
        ] {
            assert_eq!(source(text), expected, "{text}");
        }
        for (text, part) in [
            ("git::https://h/org/r.git", "needs one `@`"),
            ("git::https://h/r.git@f?sshkey=abc", "`sshkey` is not supported"),
            (
                "gcs::https://www.googleapis.com/storage/v1/b/d@f",
                "`gcs::https://` is not supported",
            ),
            ("hg::https://h/r@f", "use git::https"),
            ("s3::https://h/k@f", "not a host of S3"),
            ("s3://bucket", "a bucket and an object"),
        ] {
            assert!(source(text).starts_with("error ") && source(text).contains(part), "{text}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let address = RemoteAddress::parse("git::https://u:pw@h/r.git@f?token=abc").unwrap();
        assert_eq!(
            format!("{address} {address:?}"),
            "git::https://h/r.git@f Address(git::https://h/r.git@f)"
        );
        assert_eq!(
            RemoteAddress::parse("https://u:pw@h/d/f?x=y").unwrap().to_string(),
            "https://h/d/f"
        );
    }
}
