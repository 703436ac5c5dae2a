//! The address of an object store.

use std::fmt;
use std::net::IpAddr;

use http_client::EgressRules;
use url::Url;

use crate::bucket::Error;

/// A host with an optional port, reached over HTTP or HTTPS. For Azure it also has a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketEndpoint {
    is_insecure: bool,
    host: String,
    /// The port with a colon before it. Empty without a port.
    port: String,
    /// The path with a slash before it and none behind. Empty except for Azure's emulator.
    path: String,
}

/// The suffixes of the hosts of Azure's own stores.
const AZURE: [&str; 5] = [
    ".blob.core.windows.net",
    ".blob.storage.azure.net",
    ".blob.core.usgovcloudapi.net",
    ".blob.core.chinacloudapi.cn",
    ".blob.core.cloudapi.de",
];

impl BucketEndpoint {
    /// Parses `spec.endpoint` of a store whose endpoint is a host.
    ///
    /// # Errors
    /// [`Error::Endpoint`] for a text that is not a host and a port, such as a URL.
    pub fn parse(text: &str, is_insecure: bool) -> Result<Self, Error> {
        let wrong = || Error::Endpoint(shown(text));
        let host = text.strip_suffix('/').unwrap_or(text);
        let is_bare = !host.is_empty() && !host.contains(['/', '@', '?', '#', '\\', '%']);
        let scheme = if is_insecure { "http" } else { "https" };
        let url = Url::parse(&format!("{scheme}://{host}")).map_err(|_unread| wrong())?;
        let Some(name) = url.host_str().filter(|_| is_bare) else { return Err(wrong()) };
        refuse_metadata(&url).map_err(|()| wrong())?;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self { is_insecure, host: name.to_owned(), port, path: String::new() })
    }

    /// Reads `spec.endpoint` of Azure, which is the URL of a storage account.
    ///
    /// Differs(flux): a SAS token is read from the Secret only, so a URL with a query is refused.
    ///
    /// # Errors
    /// [`Error::Account`] for any other text.
    pub fn parse_account(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Account(shown(text));
        let url = Url::parse(text).map_err(|_unread| wrong())?;
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(wrong());
        };
        let is_http = matches!(url.scheme(), "http" | "https");
        let is_bare = url.username().is_empty() && url.password().is_none();
        if !is_http || !is_bare || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong());
        }
        refuse_metadata(&url).map_err(|()| wrong())?;
        Ok(Self {
            is_insecure: url.scheme() == "http",
            host: host.to_owned(),
            port: url.port().map(|port| format!(":{port}")).unwrap_or_default(),
            path: url.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The name of the account of Azure in this address; `None` if it has none.
    ///
    /// Parity(flux): the first label of a host of three or more. The emulator has the account in the path.
    pub fn account(&self) -> Option<&str> {
        if let Some((account, _)) = self.path.strip_prefix('/').map(|path| split(path, '/')) {
            return Some(account);
        }
        let is_address = self.host.starts_with('[') || self.host.parse::<IpAddr>().is_ok();
        let (first, rest) = split(&self.host, '.');
        (!is_address && rest.contains('.')).then_some(first)
    }

    /// Whether the endpoint is Google's own. Otherwise a user who may name an endpoint could receive the token of this
    /// machine.
    pub fn is_google(&self) -> bool {
        !self.is_insecure && self.host.ends_with(".googleapis.com")
    }

    /// Whether the endpoint is Azure's own. See [`BucketEndpoint::is_google`].
    pub fn is_azure(&self) -> bool {
        !self.is_insecure && AZURE.iter().any(|name| self.host.ends_with(name))
    }

    /// The URL that requests are sent to.
    ///
    /// Parity(flux): at AWS's global address a region is reached by its own.
    pub(super) fn url(&self, region: Option<&str>) -> String {
        let scheme = if self.is_insecure { "http" } else { "https" };
        let host = match region {
            Some(region) if self.host == "s3.amazonaws.com" => format!("s3.{region}.amazonaws.com"),
            _ => self.host.clone(),
        };
        format!("{scheme}://{host}{}{}", self.port, self.path)
    }

    /// Whether buckets are named in paths and not by hosts.
    ///
    /// Parity(flux): hosts are for AWS, Google and Aliyun, which have no others or will not for long.
    pub(super) fn is_path_style(&self) -> bool {
        let is_hosted = self.is_aws()
            || self.host == "storage.googleapis.com"
            || self.host.ends_with(".aliyuncs.com");
        !is_hosted
    }

    /// The region in the name of one of AWS's own hosts. `None` if the host is another one or names no region.
    pub(super) fn region(&self) -> Option<String> {
        if !self.is_aws() {
            return None;
        }
        let name = self.host.strip_suffix(".cn").unwrap_or(&self.host);
        let name = name.strip_suffix(".amazonaws.com")?;
        let mut parts = name.split('.').filter(|part| *part != "s3" && *part != "dualstack");
        let region = parts.next_back()?;
        let region = region.strip_prefix("s3-").unwrap_or(region);
        (region.split('-').count() >= 3).then(|| region.to_owned())
    }

    fn is_aws(&self) -> bool {
        self.host.ends_with(".amazonaws.com") || self.host.ends_with(".amazonaws.com.cn")
    }
}

/// Both parts around the first separator.
fn split(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

/// An invalid endpoint, as errors show it. The text before an `@` may be a password, and the text behind a `?` may be a
/// signature, so both are left out.
fn shown(text: &str) -> String {
    let (place, _query) = split(text, '?');
    let (place, _fragment) = split(place, '#');
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let shown = match rest.rsplit_once('@') {
        Some((_, place)) if scheme.is_empty() => format!("***@{place}"),
        Some((_, place)) => format!("{scheme}://***@{place}"),
        None => place.to_owned(),
    };
    let mark = if place.len() < text.len() { "?***" } else { "" };
    shown.chars().take(256).chain(mark.chars()).collect()
}

/// Addresses that hand out credentials to every client are not object stores.
fn refuse_metadata(url: &Url) -> Result<(), ()> {
    EgressRules::with_loopback().admits(url).map_err(drop)
}

impl fmt::Display for BucketEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.host, self.port, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for (text, url) in [
            ("minio.example.com:9000", "https://minio.example.com:9000"),
            ("s3.amazonaws.com", "https://s3.amazonaws.com"),
            ("127.0.0.1:9000/", "https://127.0.0.1:9000"),
            ("[::1]:9000", "https://[::1]:9000"),
        ] {
            assert_eq!(BucketEndpoint::parse(text, false).unwrap().url(None), url);
        }
        for text in [
            "",
            "https://minio.example.com",
            "minio.example.com/path",
            "user:password@minio",
            "http://user:pass@password@minio",
            "minio:port",
            "mi nio",
            "a?b",
            "a#b",
            "169.254.169.254",
            "2852039166",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
        ] {
            let error = BucketEndpoint::parse(text, true).unwrap_err();
            assert!(matches!(error, Error::Endpoint(_)), "{text}: {error:?}");
            assert!(!error.to_string().contains("password"), "{error}");
        }
    }

    #[test]
    fn an_account_is_a_url_and_has_a_name() {
        for (text, url, account) in [
            ("https://a1.blob.core.windows.net", "https://a1.blob.core.windows.net", Some("a1")),
            ("https://a1.blob.core.windows.net/", "https://a1.blob.core.windows.net", Some("a1")),
            ("http://127.0.0.1:10000/dev", "http://127.0.0.1:10000/dev", Some("dev")),
            ("http://127.0.0.1:10000", "http://127.0.0.1:10000", None),
            ("http://[::1]:10000", "http://[::1]:10000", None),
            ("https://azurite:10000/dev/", "https://azurite:10000/dev", Some("dev")),
            ("https://store.example", "https://store.example", None),
        ] {
            let endpoint = BucketEndpoint::parse_account(text).unwrap();
            assert_eq!((endpoint.url(None).as_str(), endpoint.account()), (url, account), "{text}");
        }
        for text in [
            "",
            "a1.blob.core.windows.net",
            "ftp://a1.blob.core.windows.net",
            "https://a1.blob.core.windows.net?sv=1&sig=password",
            "https://user:password@a1.blob.core.windows.net/?sig=password",
            "https://a1.blob.core.windows.net#password",
            "http://169.254.169.254/metadata",
        ] {
            let error = BucketEndpoint::parse_account(text).unwrap_err();
            assert!(matches!(error, Error::Account(_)), "{text}: {error:?}");
            assert!(!error.to_string().contains("password"), "{error}");
        }
    }

    #[test]
    fn tokens_of_the_machine_are_for_the_clouds_own_hosts() {
        let host = |text: &str, is_insecure| BucketEndpoint::parse(text, is_insecure).unwrap();
        assert!(host("storage.googleapis.com", false).is_google());
        assert!(!host("storage.googleapis.com", true).is_google());
        assert!(!host("storage.googleapis.com.evil.example", false).is_google());
        assert!(!host("evil-googleapis.com", false).is_google());
        let account = |text: &str| BucketEndpoint::parse_account(text).unwrap().is_azure();
        assert!(account("https://a.blob.core.windows.net"));
        assert!(account("https://a.z01.blob.storage.azure.net"));
        for text in [
            "http://a.blob.core.windows.net",
            "https://a.blob.core.windows.net.evil.example",
            "https://evil.example/a.blob.core.windows.net",
        ] {
            assert!(!account(text), "{text}");
        }
    }

    #[test]
    fn where_a_bucket_is_named_and_which_region_a_host_is_in() {
        for (host, is_path_style, region) in [
            ("minio.example.com", true, None),
            ("127.0.0.1:9000", true, None),
            ("s3.amazonaws.com", false, None),
            ("s3.eu-west-1.amazonaws.com", false, Some("eu-west-1")),
            ("s3-eu-west-1.amazonaws.com", false, Some("eu-west-1")),
            ("s3.dualstack.us-gov-west-1.amazonaws.com", false, Some("us-gov-west-1")),
            ("s3.cn-north-1.amazonaws.com.cn", false, Some("cn-north-1")),
            ("oss-cn-hangzhou.aliyuncs.com", false, None),
            ("s3.amazonaws.com.evil.example", true, None),
        ] {
            let endpoint = BucketEndpoint::parse(host, false).unwrap();
            assert_eq!(endpoint.is_path_style(), is_path_style, "{host}");
            assert_eq!(endpoint.region().as_deref(), region, "{host}");
        }
        let aws = BucketEndpoint::parse("s3.amazonaws.com", false).unwrap();
        assert_eq!(aws.url(Some("eu-west-1")), "https://s3.eu-west-1.amazonaws.com");
    }
}
