//! Kubeconfigs from Secrets. windlass removes every part that would run a program, read a local file or skip a check.
//!
//! Elsewhere: connecting ([`super::client`]), and finding the Secret (`windlass_runtime::cluster_target`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderValue, Uri};
use http_client::{EgressDeniedError, EgressRules};
use kube::config::{AuthInfo, Kubeconfig};
use sha2::{Digest as _, Sha256};
use url::Url;

/// The kubeconfig of a remote cluster, without its dangerous parts.
#[derive(Clone)]
pub struct RemoteKubeconfig {
    pub(super) kubeconfig: Kubeconfig,
    pub(super) proxy: Option<KubeconfigProxy>,
    /// The digest of the kubeconfig's content.
    pub digest: String,
    /// The digest of the server and the user, without the credentials, because those are renewed.
    pub identity: String,
    /// The parts that were removed. They explain to a user why the API server later refuses a request.
    pub stripped: Vec<String>,
}

/// A proxy between windlass and an API server.
#[derive(Clone)]
pub(super) enum KubeconfigProxy {
    /// An `http://` proxy, with a tunnel by CONNECT.
    Http { address: Uri, credentials: Option<HeaderValue> },
    /// A `socks5://` proxy.
    Socks { address: Uri },
}

/// Which dangerous parts of a kubeconfig the operator of windlass allows.
#[derive(Debug, Clone, Copy, Default)]
pub struct KubeconfigPolicy {
    /// `--insecure-kubeconfig-tls`: whether servers are allowed whose certificate is not checked.
    pub insecure_tls: bool,
}

/// Why a kubeconfig cannot be used. The messages never repeat its content.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum KubeconfigError {
    /// The Secret does not have the key.
    #[error("it has no kubeconfig in key `{0}`")]
    NoKey(String),
    /// The value is not a kubeconfig.
    #[error("its key `{key}` is not a kubeconfig: {why}")]
    Malformed {
        /// The key of the Secret.
        key: String,
        /// What is wrong, without values.
        why: String,
    },
    /// The kubeconfig has no credentials left after the removal of the dangerous parts.
    #[error(
        "its kubeconfig has no credentials that are allowed: {0}; use a token, or a client certificate and key as \
         data"
    )]
    NothingLeft(String),
    /// The proxy is neither an HTTP nor a SOCKS5 proxy.
    #[error("its proxy-url is not an http:// or socks5:// address")]
    Proxy,
    /// The egress rules forbid the address of the server or the proxy.
    #[error("the server of its kubeconfig is not allowed: {0}")]
    OffLimits(String),
    /// No connection can be made from the kubeconfig.
    #[error("its kubeconfig is invalid: {0}")]
    Unusable(String),
}

impl RemoteKubeconfig {
    /// Reads the kubeconfig of a Secret; without `key`, `value` and then `value.yaml` are tried.
    ///
    /// Parity(flux): of a kubeconfig only the current context counts, and exec, auth-provider and file references are
    /// ignored. Differs(flux): when that leaves no credentials, the error says so, and no program is run even with
    /// `--insecure-kubeconfig-exec`.
    ///
    /// # Errors
    /// Says what is missing or wrong, without repeating the content.
    pub fn from_secret(
        data: &BTreeMap<String, Vec<u8>>,
        key: Option<&str>,
        allowed: KubeconfigPolicy,
    ) -> Result<Self, KubeconfigError> {
        let (key, bytes) = match key {
            Some(key) => (key, data.get(key)),
            None if data.contains_key("value") => ("value", data.get("value")),
            None => ("value.yaml", data.get("value.yaml")),
        };
        let bytes = bytes.ok_or_else(|| {
            KubeconfigError::NoKey(if key == "value.yaml" { "value".into() } else { key.into() })
        })?;
        Self::parse(key, bytes, allowed)
    }

    /// Checks the addresses of the server and the proxy against the egress rules. Host names are checked later, when DNS
    /// resolves them.
    ///
    /// # Errors
    /// The egress rules forbid an address.
    pub(super) fn check(&self, egress: &EgressRules) -> Result<(), KubeconfigError> {
        let clusters = self.kubeconfig.clusters.iter().filter_map(|it| it.cluster.as_ref());
        let servers = clusters.filter_map(|cluster| cluster.server.clone());
        let proxy = self.proxy.as_ref().map(|proxy| match proxy {
            KubeconfigProxy::Http { address, .. } | KubeconfigProxy::Socks { address } => {
                address.to_string()
            }
        });
        for place in servers.chain(proxy) {
            // An address that is not a URL is reported when windlass connects.
            let Ok(place) = Url::parse(&place) else { continue };
            let refused =
                |refused: EgressDeniedError| KubeconfigError::OffLimits(refused.to_string());
            egress.admits(&place).map_err(refused)?;
        }
        Ok(())
    }

    fn parse(key: &str, bytes: &[u8], allowed: KubeconfigPolicy) -> Result<Self, KubeconfigError> {
        let malformed =
            |why: &str| KubeconfigError::Malformed { key: key.to_owned(), why: why.to_owned() };
        // The messages of the parser may quote the content, which may be a password.
        let value = goyaml::to_json(bytes).map_err(|_| malformed("it is not YAML"))?;
        let mut kubeconfig: Kubeconfig = serde_json::from_value(value)
            .map_err(|_| malformed("its fields do not have the shape of a kubeconfig"))?;
        let stripped = strip(&mut kubeconfig, allowed)?;
        let proxy = proxy(&mut kubeconfig)?;
        let digest = hex::encode(Sha256::digest(bytes));
        let identity = identity(&kubeconfig);
        Ok(Self { kubeconfig, proxy, digest, identity, stripped })
    }
}

/// Removes the parts that a kubeconfig from a Secret may not have, and returns their names.
fn strip(
    kubeconfig: &mut Kubeconfig,
    allowed: KubeconfigPolicy,
) -> Result<Vec<String>, KubeconfigError> {
    let (cluster_name, user_name) = current(kubeconfig);
    let mut stripped = Vec::new();
    for named in &mut kubeconfig.clusters {
        let Some(cluster) = &mut named.cluster else { continue };
        let used = Some(&named.name) == cluster_name.as_ref();
        let file = cluster.certificate_authority.take().is_some();
        let insecure = !allowed.insecure_tls
            && cluster.insecure_skip_tls_verify.take().is_some_and(|insecure| insecure);
        let found =
            [("certificate-authority (a file)", file), ("insecure-skip-tls-verify", insecure)];
        stripped.extend(found.iter().filter(|(_, found)| used && *found).map(|(what, _)| *what));
    }
    let mut left = false;
    for named in &mut kubeconfig.auth_infos {
        let Some(user) = &mut named.auth_info else { continue };
        let used = Some(&named.name) == user_name.as_ref();
        let found = [
            ("exec", user.exec.take().is_some()),
            ("auth-provider", user.auth_provider.take().is_some()),
            ("tokenFile", user.token_file.take().is_some()),
            ("client-certificate (a file)", user.client_certificate.take().is_some()),
            ("client-key (a file)", user.client_key.take().is_some()),
        ];
        stripped.extend(found.iter().filter(|(_, found)| used && *found).map(|(what, _)| *what));
        left |= used && identifies(user);
    }
    if !left && !stripped.is_empty() {
        let text = format!("{} not allowed", stripped.join(", "));
        return Err(KubeconfigError::NothingLeft(text));
    }
    Ok(stripped.into_iter().map(str::to_owned).collect())
}

/// Whether a user still has credentials.
fn identifies(user: &AuthInfo) -> bool {
    let password = user.username.is_some() && user.password.is_some();
    let certificate = user.client_certificate_data.is_some() && user.client_key_data.is_some();
    user.token.is_some() || password || certificate
}

/// The names of the cluster and the user of the current context.
fn current(kubeconfig: &Kubeconfig) -> (Option<String>, Option<String>) {
    let context = kubeconfig
        .contexts
        .iter()
        .find(|c| Some(&c.name) == kubeconfig.current_context.as_ref())
        .and_then(|c| c.context.as_ref());
    (context.map(|c| c.cluster.clone()), context.and_then(|c| c.user.clone()))
}

/// The digest of the current cluster and of the identity of the current user.
fn identity(kubeconfig: &Kubeconfig) -> String {
    let (cluster, user) = current(kubeconfig);
    let clusters = kubeconfig.clusters.iter().filter(|it| Some(&it.name) == cluster.as_ref());
    let cluster = clusters.filter_map(|it| it.cluster.as_ref()).next();
    let users = kubeconfig.auth_infos.iter().filter(|it| Some(&it.name) == user.as_ref());
    let user = users.filter_map(|it| it.auth_info.as_ref()).next();
    let parts = serde_json::json!([
        cluster.map(|it| &it.server),
        cluster.map(|it| &it.certificate_authority_data),
        cluster.map(|it| &it.tls_server_name),
        cluster.map(|it| &it.insecure_skip_tls_verify),
        user.map(|it| &it.impersonate),
        user.map(|it| &it.impersonate_groups),
    ]);
    hex::encode(Sha256::digest(parts.to_string()))
}

/// Removes the proxy of the current cluster from the kubeconfig and returns it. windlass uses the proxy itself, so kube must
/// not see it.
fn proxy(kubeconfig: &mut Kubeconfig) -> Result<Option<KubeconfigProxy>, KubeconfigError> {
    let (name, _) = current(kubeconfig);
    let mut chosen = None;
    for named in &mut kubeconfig.clusters {
        let url = named.cluster.as_mut().and_then(|cluster| cluster.proxy_url.take());
        if Some(&named.name) == name.as_ref() {
            chosen = url.filter(|url| !url.is_empty());
        }
    }
    let Some(url) = chosen else { return Ok(None) };
    let url = url::Url::parse(&url).map_err(|_| KubeconfigError::Proxy)?;
    let host = url.host_str();
    let port = url.port_or_known_default();
    let host = host.ok_or(KubeconfigError::Proxy)?;
    let address = |scheme: &str, port: u16| {
        Uri::try_from(format!("{scheme}://{host}:{port}")).map_err(|_| KubeconfigError::Proxy)
    };
    match url.scheme() {
        "http" => {
            let credentials = (!url.username().is_empty()).then(|| {
                let pair = format!("{}:{}", url.username(), url.password().unwrap_or_default());
                HeaderValue::try_from(format!("Basic {}", BASE64.encode(pair)))
            });
            let credentials = credentials.transpose().map_err(|_| KubeconfigError::Proxy)?;
            let address = address("http", port.unwrap_or(80))?;
            Ok(Some(KubeconfigProxy::Http { address, credentials }))
        }
        "socks5" | "socks5h" if url.username().is_empty() => {
            Ok(Some(KubeconfigProxy::Socks { address: address("socks5", port.unwrap_or(1080))? }))
        }
        _ => Err(KubeconfigError::Proxy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(user: &str, cluster: &str) -> BTreeMap<String, Vec<u8>> {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
             contexts: [{{name: c, context: {{cluster: a, user: u}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'{cluster}}}}}], \
             users: [{{name: u, user: {{{user}}}}}]}}"
        );
        BTreeMap::from([("value".to_owned(), text.into_bytes())])
    }

    fn read(user: &str, cluster: &str) -> Result<RemoteKubeconfig, KubeconfigError> {
        RemoteKubeconfig::from_secret(&secret(user, cluster), None, KubeconfigPolicy::default())
    }

    #[test]
    fn every_dangerous_form_is_taken_out_of_a_kubeconfig_with_credentials() {
        for (user, what) in [
            ("exec: {apiVersion: client.authentication.k8s.io/v1, command: sh}", "exec"),
            ("auth-provider: {name: gcp, config: {}}", "auth-provider"),
            ("tokenFile: /var/run/secrets/token", "tokenFile"),
            ("client-certificate: /etc/passwd", "client-certificate (a file)"),
            ("client-key: /etc/passwd", "client-key (a file)"),
        ] {
            let alone = read(user, "").map(|_| ()).unwrap_err();
            assert!(
                matches!(&alone, KubeconfigError::NothingLeft(t) if t.contains(what)),
                "{alone}"
            );
            let remote = read(&format!("token: t, {user}"), "").unwrap();
            assert_eq!(remote.stripped, [what]);
            let left = serde_json::to_string(&remote.kubeconfig.auth_infos).unwrap();
            for word in ["exec", "auth-provider", "tokenFile", "/etc/passwd"] {
                assert!(!left.contains(word), "{left}");
            }
        }
        let remote = read("token: t", ", certificate-authority: /etc/passwd").unwrap();
        assert_eq!(remote.stripped, ["certificate-authority (a file)"]);
    }

    #[test]
    fn a_cluster_stays_the_same_when_credentials_are_renewed() {
        let of = |user: &str, cluster: &str| read(user, cluster).unwrap();
        let before = of("token: a", "");
        let renewed = of("token: b", "");
        assert_eq!(before.identity, renewed.identity);
        assert_ne!(before.digest, renewed.digest);
        let certified = of("client-certificate-data: YQ==, client-key-data: YQ==", "");
        assert_eq!(before.identity, certified.identity);
        for other in [
            of("token: a, as: somebody", ""),
            of("token: a", ", certificate-authority-data: YQ=="),
            of("token: a", ", tls-server-name: other"),
        ] {
            assert_ne!(before.identity, other.identity);
        }
    }

    #[test]
    fn certificates_are_checked_unless_the_flag_says_otherwise() {
        let data = secret("token: t", ", insecure-skip-tls-verify: true");
        let strict =
            RemoteKubeconfig::from_secret(&data, None, KubeconfigPolicy::default()).unwrap();
        assert_eq!(strict.stripped, ["insecure-skip-tls-verify"]);
        let skips = |r: &RemoteKubeconfig| {
            r.kubeconfig.clusters[0].cluster.clone().unwrap().insecure_skip_tls_verify
        };
        assert_eq!(skips(&strict), None);
        let lax =
            RemoteKubeconfig::from_secret(&data, None, KubeconfigPolicy { insecure_tls: true })
                .unwrap();
        assert_eq!(skips(&lax), Some(true));
    }

    #[test]
    fn an_error_never_repeats_the_content() {
        for text in ["token: [hunter2", "users: hunter2", "- hunter2", "a: {b: c}: hunter2"] {
            let data = BTreeMap::from([("value".to_owned(), text.as_bytes().to_vec())]);
            let error = RemoteKubeconfig::from_secret(&data, None, KubeconfigPolicy::default());
            let error = error.map(|_| ()).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_missing_key_is_named() {
        let data = secret("token: t", "");
        let error = RemoteKubeconfig::from_secret(&data, Some("prod"), KubeconfigPolicy::default());
        assert_eq!(error.map(|_| ()).unwrap_err(), KubeconfigError::NoKey("prod".to_owned()));
        let error =
            RemoteKubeconfig::from_secret(&BTreeMap::new(), None, KubeconfigPolicy::default());
        assert_eq!(error.map(|_| ()).unwrap_err(), KubeconfigError::NoKey("value".to_owned()));
    }

    #[test]
    fn neither_a_server_nor_a_proxy_is_this_machine_or_a_cloud() {
        let named = |server: &str, more: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{server}'{more}}}}}]\n\
                 users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
            );
            let data = BTreeMap::from([("value".to_owned(), text.into_bytes())]);
            RemoteKubeconfig::from_secret(&data, None, KubeconfigPolicy::default()).unwrap()
        };
        let tenants = EgressRules::Named(std::sync::Arc::default());
        for remote in [
            named("https://127.0.0.1:6443", ""),
            named("http://[::ffff:127.0.0.1]:9090", ""),
            named("https://169.254.169.254", ""),
            named("https://2852039166", ""),
            named("https://api.example", ", proxy-url: 'http://127.0.0.1:3128'"),
            named("https://api.example", ", proxy-url: 'socks5://169.254.169.254:80'"),
        ] {
            let error = remote.check(&tenants).unwrap_err();
            assert!(matches!(error, KubeconfigError::OffLimits(_)), "{error}");
        }
        let remote = named("https://api.example", ", proxy-url: 'http://proxy.example:3128'");
        assert_eq!(remote.check(&tenants), Ok(()));
        let near = named("https://127.0.0.1:6443", "");
        assert_eq!(near.check(&EgressRules::with_loopback()), Ok(()));
    }

    #[test]
    fn a_proxy_is_http_or_socks5() {
        let proxied = |url: &str| read("token: t", &format!(", proxy-url: '{url}'"));
        assert!(matches!(
            proxied("http://a:b@127.0.0.1:3128").unwrap().proxy,
            Some(KubeconfigProxy::Http { credentials: Some(_), .. })
        ));
        assert!(matches!(
            proxied("socks5://127.0.0.1").unwrap().proxy,
            Some(KubeconfigProxy::Socks { .. })
        ));
        for url in ["ftp://127.0.0.1", "nonsense", "https://127.0.0.1", "file:///etc/passwd"] {
            assert_eq!(proxied(url).map(|_| ()).unwrap_err(), KubeconfigError::Proxy, "{url}");
        }
    }
}
