//! The address of a server that speaks S3.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use crate::bucket::Error;

/// A host with an optional port, reached over HTTP or HTTPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    is_insecure: bool,
    host: String,
    /// With a colon before it; empty without one.
    port: String,
}

impl Endpoint {
    /// Reads `spec.endpoint`.
    ///
    /// # Errors
    /// [`Error::Endpoint`] for anything else than a host and a port, such as a URL.
    pub fn parse(text: &str, is_insecure: bool) -> Result<Self, Error> {
        let wrong = || {
            // What stands before an `@` may be a password.
            let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
            let shown = match rest.rsplit_once('@') {
                Some((_, place)) if scheme.is_empty() => format!("***@{place}"),
                Some((_, place)) => format!("{scheme}://***@{place}"),
                None => text.to_owned(),
            };
            Error::Endpoint(shown.chars().take(256).collect())
        };
        let host = text.strip_suffix('/').unwrap_or(text);
        let is_bare = !host.is_empty() && !host.contains(['/', '@', '?', '#', '\\', '%']);
        let scheme = if is_insecure { "http" } else { "https" };
        let url = Url::parse(&format!("{scheme}://{host}")).map_err(|_unread| wrong())?;
        let Some(name) = url.host_str().filter(|_| is_bare) else { return Err(wrong()) };
        if let Some(Host::Ipv4(address)) = url.host() {
            refuse_metadata(IpAddr::V4(address)).map_err(|()| wrong())?;
        } else if let Some(Host::Ipv6(address)) = url.host() {
            refuse_metadata(IpAddr::V6(address)).map_err(|()| wrong())?;
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self { is_insecure, host: name.to_owned(), port })
    }

    /// The URL that requests are sent to.
    ///
    /// Parity(flux): at AWS's global address a region is reached by its own.
    pub(in crate::bucket) fn url(&self, region: Option<&str>) -> String {
        let scheme = if self.is_insecure { "http" } else { "https" };
        let host = match region {
            Some(region) if self.host == "s3.amazonaws.com" => format!("s3.{region}.amazonaws.com"),
            _ => self.host.clone(),
        };
        format!("{scheme}://{host}{}", self.port)
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

    /// The region in the name of one of AWS's own hosts.
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

/// Addresses that hand out credentials to whoever asks are no object stores.
fn refuse_metadata(address: IpAddr) -> Result<(), ()> {
    let is_link_local = match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0x0ec2]
        }
    };
    if is_link_local { Err(()) } else { Ok(()) }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.host, self.port)
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
            assert_eq!(Endpoint::parse(text, false).unwrap().url(None), url);
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
            let error = Endpoint::parse(text, true).unwrap_err();
            assert!(matches!(error, Error::Endpoint(_)), "{text}: {error:?}");
            assert!(!error.to_string().contains("password"), "{error}");
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
            let endpoint = Endpoint::parse(host, false).unwrap();
            assert_eq!(endpoint.is_path_style(), is_path_style, "{host}");
            assert_eq!(endpoint.region().as_deref(), region, "{host}");
        }
        let aws = Endpoint::parse("s3.amazonaws.com", false).unwrap();
        assert_eq!(aws.url(Some("eu-west-1")), "https://s3.eu-west-1.amazonaws.com");
    }
}
