//! Addresses of Git repositories, which kustomize distinguishes from paths.

/// The address of a Git repository, split into the repository, the folder in it, and the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryAddress {
    /// The address as it was written.
    pub address: String,
    /// Scheme, user and host, including the separator before the path.
    pub host: String,
    /// The repository on the host.
    pub path: String,
    /// The folder in the repository; empty for its root.
    pub dir: String,
    /// A branch, tag or commit; empty for the default branch.
    pub reference: String,
    /// Whether submodules are wanted too.
    pub submodules: bool,
    /// The timeout of fetching, in nanoseconds.
    pub timeout: u64,
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;
const SCHEMES: [&str; 4] = ["ssh://", "https://", "http://", "file://"];

impl RepositoryAddress {
    /// The URL that Git clones.
    pub fn url(&self) -> String {
        format!("{}{}", self.host, self.path)
    }

    /// Reads the address of a repository. `None` if the text is no such address.
    ///
    /// A local path is not an address. A text without a scheme counts as a path even if it begins with a host, except for
    /// `github.com`.
    pub fn parse(address: &str) -> Option<Self> {
        if address.starts_with('/') {
            return None;
        }
        let (rest, query) = address.split_once('?').unwrap_or((address, ""));
        let (host, rest) = host(rest)?;
        let (path, dir) = parts(rest, host.starts_with("file://"))?;
        if path.is_empty() {
            return None;
        }
        let first = golang::path::clean(dir.strip_prefix('/').unwrap_or(&dir));
        if first == ".." || first.starts_with("../") {
            return None;
        }
        let mut repository = Self {
            address: address.to_owned(),
            host,
            path,
            dir: dir.strip_prefix('/').unwrap_or(&dir).to_owned(),
            reference: String::new(),
            submodules: true,
            timeout: 27 * NANOS_PER_SECOND,
        };
        repository.take_query(query);
        Some(repository)
    }

    /// Reads the settings of a query. A setting that cannot be read is ignored.
    fn take_query(&mut self, query: &str) {
        let mut values: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (unescape(name), unescape(value)) else { return };
            if pair.contains(';') {
                return;
            }
            values.push((name, value));
        }
        let get = |name: &str| {
            let found = values.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        self.reference = get("version").to_owned();
        if !get("ref").is_empty() {
            self.reference = get("ref").to_owned();
        }
        let timeout = get("timeout");
        let seconds =
            timeout.parse::<u64>().ok().and_then(|seconds| seconds.checked_mul(NANOS_PER_SECOND));
        let duration = || {
            let parsed = golang::time::GoDuration::parse(timeout).ok()?;
            u64::try_from(parsed.nanoseconds()).ok()
        };
        if let Some(timeout) = seconds.or_else(duration).filter(|timeout| *timeout > 0) {
            self.timeout = timeout;
        }
        match get("submodules") {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => self.submodules = true,
            "0" | "f" | "F" | "FALSE" | "false" | "False" => self.submodules = false,
            _ => {}
        }
    }
}

/// Decodes a part of a query. `None` if it is malformed.
fn unescape(text: &str) -> Option<String> {
    let bytes = golang::url::query_unescape(text.as_bytes())?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn without_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

/// The scheme, user and host of an address in their usual form, and the rest of the address. `None` if the address has
/// no host.
fn host(address: &str) -> Option<(String, &str)> {
    let address = without_prefix(address, "git::").unwrap_or(address);
    let known = SCHEMES.iter().find_map(|scheme| Some((*scheme, without_prefix(address, scheme)?)));
    let (scheme, rest) = known.unwrap_or(("", address));
    if scheme == "file://" {
        return Some((scheme.to_owned(), rest));
    }
    let (user, rest) = user(rest);
    let is_github =
        ["github.com/", "github.com:"].iter().any(|host| without_prefix(rest, host).is_some());
    let is_scp = scheme.is_empty() && (!user.is_empty() || is_github);
    if scheme.is_empty() && !is_scp {
        return None;
    }
    let mut separator = rest.find('/');
    if is_scp && let Some(colon) = rest.find(':') {
        let is_first = separator.is_none_or(|slash| colon > 0 && colon < slash);
        separator = if is_first { Some(colon) } else { separator };
    }
    let (host, path) = separator.map_or((rest, ""), |at| rest.split_at(at + 1));
    let host = match () {
        () if !is_github => format!("{scheme}{user}{host}"),
        () if scheme == "ssh://" || !user.is_empty() => format!("{user}github.com:"),
        () => "https://github.com/".to_owned(),
    };
    (!host.is_empty()).then_some((host, path))
}

/// A user with its `@`.
fn user(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_alphanumeric() && byte != b'-');
    match end {
        Some(end)
            if end > 0
                && text.as_bytes()[0].is_ascii_alphabetic()
                && text[end..].starts_with('@') =>
        {
            text.split_at(end + 1)
        }
        _ => ("", text),
    }
}

/// Splits the rest of an address into the repository and the folder in it. `None` if it names no repository.
fn parts(text: &str, is_file: bool) -> Option<(String, String)> {
    if let Some(at) = text.find("_git/") {
        let (head, rest) = text.split_at(at + "_git/".len());
        let (name, dir) = rest.split_once('/').unwrap_or((rest, ""));
        return Some((format!("{head}{name}"), dir.to_owned()));
    }
    if let Some((path, dir)) = text.split_once("//") {
        return Some((path.to_owned(), dir.to_owned()));
    }
    if let Some(at) = text.find(".git") {
        let (path, dir) = text.split_at(at + ".git".len());
        return Some((path.to_owned(), dir.to_owned()));
    }
    if is_file {
        return Some((text.to_owned(), String::new()));
    }
    let segments: Vec<&str> = text.split('/').collect();
    if segments.len() < 2 {
        return None;
    }
    Some((segments[..2].join("/"), segments[2..].join("/")))
}

#[cfg(test)]
mod tests {
    use super::RepositoryAddress;

    fn check(address: &str, wanted: Option<(&str, &str, &str)>) {
        let parsed = RepositoryAddress::parse(address);
        let shown = parsed
            .as_ref()
            .map(|parsed| (parsed.url(), parsed.dir.as_str(), parsed.reference.as_str()));
        let shown = shown.as_ref().map(|(url, dir, reference)| (url.as_str(), *dir, *reference));
        assert_eq!(shown, wanted, "{address}");
    }

    #[test]
    fn addresses_are_distinguished_from_paths() {
        for path in [
            "base",
            "../base",
            "/abs",
            "host/path",
            "host/a/b/c",
            "file.yaml",
            "ftp://host/a/b",
            "",
        ] {
            check(path, None);
        }
        check("https://host/a/b/c/d?ref=v1", Some(("https://host/a/b", "c/d", "v1")));
        check("https://host/a/b.git//c?version=x", Some(("https://host/a/b.git", "c", "x")));
        check("git@host:a/b/c", Some(("git@host:a/b", "c", "")));
        check("ssh://git@github.com/a/b", Some(("git@github.com:a/b", "", "")));
        check("github.com/a/b/c", Some(("https://github.com/a/b", "c", "")));
        check("http://GitHub.com/a/b", Some(("https://github.com/a/b", "", "")));
        check("file:///a/b//c", Some(("file:///a/b", "c", "")));
        check("git::https://host/_git/r/c", Some(("https://host/_git/r", "c", "")));
        check("https://host/a/b//../c", None);
        check("https://host/a", None);
    }

    #[test]
    fn a_query_that_cannot_be_read_says_nothing() {
        let parsed =
            RepositoryAddress::parse("https://host/a/b?ref=x&timeout=2m&submodules=false").unwrap();
        assert_eq!((parsed.timeout, parsed.submodules), (120_000_000_000, false));
        let parsed = RepositoryAddress::parse("https://host/a/b?ref=%zz&timeout=2m").unwrap();
        assert_eq!((parsed.reference.as_str(), parsed.timeout), ("", 27_000_000_000));
        for (query, reference) in [("a%2Fb+c", "a/b c"), ("%+1", ""), ("a%2", "")] {
            let parsed =
                RepositoryAddress::parse(&format!("https://host/a/b?ref={query}")).unwrap();
            assert_eq!(parsed.reference, reference, "{query}");
        }
    }
}
