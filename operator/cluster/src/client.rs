//! Our own client stack: HTTP/2, a time limit on every request with an answer, few and short retries.
//!
//! kube's own stack speaks HTTP/1.1 only, waits for ever and retries fifteen times (kube-client 5.0).

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue};
use http_client::EgressRules;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection as Connected, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{self, AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use objects::RedactedValue;
use parking_lot::Mutex;
use tower::util::{BoxCloneService, BoxCloneSyncService};
use tower::{BoxError, ServiceBuilder, ServiceExt as _};

use super::address_resolver::EgressResolver;
use super::client_certificate::tls;
use super::connection_pool::ConnectionPool;
use super::error::chain;
use super::kubeconfig::{KubeconfigError, KubeconfigProxy, RemoteKubeconfig};
use super::leadership::{LeaderOnlyConnection, Leadership};
use super::request_retry::RetryAfterLayer;
use super::response_limit::{ANSWER_LIMIT, BoundedBody};
use super::{ClusterConnection, ClusterError};
use crate::metrics::{ApiRequestCounters, MetricsRegistry};

/// Longest time that a request with an answer may take.
const UNARY_TIMEOUT: Duration = Duration::from_secs(40);

/// How often an idle HTTP/2 connection is asked whether it still lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The choice of a cluster; by default it is the one that the environment or the Pod names.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterAccessOptions<'a> {
    /// Path of a kubeconfig.
    pub kubeconfig: Option<&'a Path>,
    /// One of its contexts, if not the current one.
    pub context: Option<&'a str>,
    /// One of its clusters, if not that of the context.
    pub cluster: Option<&'a str>,
    /// One of its users, if not that of the context.
    pub user: Option<&'a str>,
    /// The user in whose name requests are sent.
    pub impersonate: Option<&'a str>,
    /// Groups of that user.
    pub groups: &'a [String],
}

impl ClusterAccessOptions<'_> {
    async fn config(self) -> anyhow::Result<Config> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let options = KubeConfigOptions {
            context: owned(self.context),
            cluster: owned(self.cluster),
            user: owned(self.user),
        };
        let is_chosen = self.context.or(self.cluster).or(self.user).is_some();
        let mut config = match self.kubeconfig {
            None if !is_chosen => Config::infer().await.map_err(|error| {
                let why = read_kubeconfig(None).and_then(|it| self.check(&it)).err();
                let why = why.map(|it| it.to_string());
                let why = why.unwrap_or_else(|| error.to_string());
                anyhow::anyhow!("no cluster configured ({why}): set --kubeconfig or $KUBECONFIG")
            })?,
            path => {
                let kubeconfig = read_kubeconfig(path)?;
                self.check(&kubeconfig)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await?
            }
        };
        if let Some(user) = self.impersonate {
            config.auth_info.impersonate = Some(user.to_owned());
        }
        if !self.groups.is_empty() {
            config.auth_info.impersonate_groups = Some(self.groups.to_vec());
        }
        Ok(config)
    }

    /// Refuses names that a kubeconfig does not have, and says which it has.
    fn check(&self, kubeconfig: &Kubeconfig) -> anyhow::Result<()> {
        let file = match self.kubeconfig {
            Some(path) => format!("kubeconfig {}", path.display()),
            None => "the kubeconfig".to_owned(),
        };
        let listed = |names: &[&str]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let contexts = kubeconfig.contexts.iter().map(|it| it.name.as_str()).collect::<Vec<_>>();
        let clusters = kubeconfig.clusters.iter().map(|it| it.name.as_str()).collect::<Vec<_>>();
        let users = kubeconfig.auth_infos.iter().map(|it| it.name.as_str()).collect::<Vec<_>>();
        let current = kubeconfig.current_context.as_deref().filter(|name| !name.is_empty());
        let Some(context) = self.context.or(current) else {
            anyhow::bail!("{file} names no current context: it has {}", listed(&contexts));
        };
        for (what, name, names) in [
            ("context", Some(context), contexts),
            ("cluster", self.cluster, clusters),
            ("user", self.user, users),
        ] {
            if let Some(name) = name.filter(|name| !names.contains(name)) {
                anyhow::bail!("{file} has no {what} `{name}`: it has {}", listed(&names));
            }
        }
        Ok(())
    }
}

/// Reads a kubeconfig: that at a path, or what `$KUBECONFIG` names.
fn read_kubeconfig(path: Option<&Path>) -> anyhow::Result<Kubeconfig> {
    let read = match path {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    read.map_err(|error| match error {
        config::KubeconfigError::ReadConfig(error, path) => {
            anyhow::anyhow!("cannot read kubeconfig {}: {error}", path.display())
        }
        other => match path {
            Some(path) => anyhow::anyhow!("kubeconfig {}: {other}", path.display()),
            None => anyhow::anyhow!("the kubeconfig cannot be read: {other}"),
        },
    })
}

/// Connects to a cluster. Sends nothing yet.
///
/// `identity` is who this process says it is; writes are refused here while `leadership` does not allow them.
///
/// # Errors
/// Says which configuration cannot be used.
pub async fn connect(
    access: ClusterAccessOptions<'_>,
    identity: &str,
    leadership: &Leadership,
    metrics: &MetricsRegistry,
) -> anyhow::Result<ClusterConnection> {
    let mut config = access.config().await?;
    config.headers.push((USER_AGENT, user_agent(identity)));
    // The Lease has a connection of its own, which no other traffic can hold up and no term silences.
    let unlimited = Leadership::unlimited();
    let anywhere = &EgressRules::Anywhere;
    let leasing = ApiServerConnection::new(config.clone(), None, anywhere, &unlimited, metrics)?;
    let leasing = leasing.unary(None)?;
    let asking = ApiServerConnection::new(config.clone(), None, anywhere, &unlimited, metrics)?;
    let asking = asking.unary(None)?;
    let connection = ApiServerConnection::new(config, None, anywhere, leadership, metrics)?;
    Ok(ClusterConnection::new(connection, [leasing, asking], identity.into())?)
}

/// How this process calls itself to the API server, so that its audit log tells replicas apart.
fn user_agent(identity: &str) -> HeaderValue {
    let version = env!("CARGO_PKG_VERSION");
    HeaderValue::from_str(&format!("windlass/{version} ({identity})"))
        .unwrap_or(HeaderValue::from_static(concat!("windlass/", env!("CARGO_PKG_VERSION"))))
}

/// Connects to the cluster of a kubeconfig from a Secret, where `egress` admits it, writing only while `home` may be
/// written to. Sends nothing yet.
///
/// # Errors
/// Says what in the kubeconfig cannot be used.
pub async fn connect_to(
    remote: &RemoteKubeconfig,
    egress: &EgressRules,
    home: &ClusterConnection,
    metrics: &MetricsRegistry,
) -> Result<ClusterConnection, KubeconfigError> {
    remote.check(egress)?;
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(remote.kubeconfig.clone(), &options)
        .await
        .map_err(|error| KubeconfigError::Unusable(chain(&error)))?;
    // Differs(flux): proxy variables of windlass's own process do not apply to remote clusters.
    config.proxy_url = None;
    config.headers.push((USER_AGENT, user_agent(&home.instance)));
    let unusable = |error: ConnectionError| KubeconfigError::Unusable(chain(&error));
    let connection =
        ApiServerConnection::new(config, remote.proxy.as_ref(), egress, &home.leadership, metrics);
    let beside = [home.leasing.clone(), home.asking.clone()];
    ClusterConnection::new(connection.map_err(unusable)?, beside, home.instance.clone())
        .map_err(unusable)
}

/// Why no connection can be made from a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Certificates, keys or credentials.
    #[error(transparent)]
    Config(#[from] kube::Error),
    /// A certificate or a key, for a person.
    #[error("{0}")]
    Tls(String),
    /// A user name that fits in no header.
    #[error("`{0}` is not a valid user name")]
    User(String),
    /// A token that is empty or fits in no header. It is not repeated.
    #[error("the token of the user is not valid")]
    Token,
}

type HttpService = BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, BoxError>;

/// The HTTP connections to one API server, shared by all users.
#[derive(Clone)]
pub(super) struct ApiServerConnection {
    /// Replacing them renews the credentials of all clients.
    access: Arc<Mutex<Arc<ApiServerCredentials>>>,
    egress: EgressRules,
    leadership: Leadership,
    requests: ApiRequestCounters,
}

/// How the API server is reached, and with which credentials.
struct ApiServerCredentials {
    config: Config,
    proxy: Option<KubeconfigProxy>,
    /// For requests with an answer. Watches, which last, have connections of their own.
    unary: HttpService,
}

impl ApiServerConnection {
    fn new(
        config: Config,
        proxy: Option<&KubeconfigProxy>,
        egress: &EgressRules,
        leadership: &Leadership,
        metrics: &MetricsRegistry,
    ) -> Result<Self, ConnectionError> {
        let unary = http(&config, proxy, egress, leadership)?;
        let credentials = ApiServerCredentials { config, proxy: proxy.cloned(), unary };
        Ok(Self {
            access: Arc::new(Mutex::new(Arc::new(credentials))),
            egress: egress.clone(),
            leadership: leadership.clone(),
            requests: metrics.api_requests.clone(),
        })
    }

    fn credentials(&self) -> Arc<ApiServerCredentials> {
        self.access.lock().clone()
    }

    /// A client for requests with an answer, whose end comes within bounds of time and length.
    fn unary(&self, user: Option<&str>) -> Result<Client, ConnectionError> {
        self.client(ConnectionSharing::Shared, user, Some(UNARY_TIMEOUT))
    }

    /// Connections for watches, none of them open yet.
    fn watches(&self) -> ConnectionPool {
        let this = self.clone();
        ConnectionPool::new(move || {
            let client = this.client(ConnectionSharing::Own, None, None);
            client.map_err(|error| ClusterError::NoAnswer(chain(&error)))
        })
    }

    /// A client that speaks as the configuration's user, or as `user` in whose name that one may speak.
    fn client(
        &self,
        way: ConnectionSharing,
        user: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Client, ConnectionError> {
        let user = user.map(|user| {
            let invalid = |_| ConnectionError::User(user.to_owned());
            HeaderValue::from_str(user).map_err(invalid)
        });
        let user = user.transpose()?;
        let service = CredentialRenewingHttpClient {
            connection: self.clone(),
            way,
            user,
            made: Arc::default(),
        };
        // An unusable configuration fails here and not at the first request.
        service.service()?;
        let namespace = self.credentials().config.default_namespace.clone();
        Ok(match timeout {
            Some(limit) => {
                let bounded = move |answer: http::Response<Incoming>| {
                    answer.map(|body| BoundedBody::new(body, ANSWER_LIMIT, limit))
                };
                let service =
                    ServiceBuilder::new().map_response(bounded).timeout(limit).service(service);
                Client::new(service, namespace)
            }
            None => Client::new(service, namespace),
        })
    }

    /// Requests with some credentials over a connection, in the name of `user`.
    fn service(
        &self,
        credentials: &ApiServerCredentials,
        way: ConnectionSharing,
        user: Option<HeaderValue>,
    ) -> Result<SendingService, ConnectionError> {
        let ApiServerCredentials { config, proxy, unary } = credentials;
        let http = match way {
            ConnectionSharing::Shared => unary.clone(),
            ConnectionSharing::Own => http(config, proxy.as_ref(), &self.egress, &self.leadership)?,
        };
        let mut config = config.clone();
        if user.is_some() {
            // The given user replaces every impersonation of the configuration.
            config.auth_info.impersonate = None;
            config.auth_info.impersonate_groups = None;
        }
        let requests = self.requests.clone();
        let service = ServiceBuilder::new()
            .map_request(move |mut request: http::Request<Body>| {
                requests.count(request.method(), request.uri());
                if let Some(user) = &user {
                    request.headers_mut().insert(IMPERSONATE_USER, user.clone());
                }
                request
            })
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .layer(config.extra_headers_layer()?)
            .layer(RetryAfterLayer)
            // Innermost, so that nothing can take time between the check and the sending.
            .layer(self.leadership.clone())
            .map_err(BoxError::from)
            .service(http);
        Ok(BoxCloneService::new(ServiceBuilder::new().map_err(BoxError::from).service(service)))
    }
}

/// Over which connection requests go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionSharing {
    /// That of all requests with an answer.
    Shared,
    /// One that no other client has.
    Own,
}

type SendingService = BoxCloneService<http::Request<Body>, http::Response<Incoming>, BoxError>;

/// Sends requests with the credentials that count now.
#[derive(Clone)]
struct CredentialRenewingHttpClient {
    connection: ApiServerConnection,
    way: ConnectionSharing,
    user: Option<HeaderValue>,
    /// What was made last.
    made: Arc<Mutex<Option<ServiceOfCredentials>>>,
}

/// A way to send requests, and the credentials of which it was made.
struct ServiceOfCredentials {
    of: Arc<ApiServerCredentials>,
    service: SendingService,
}

impl CredentialRenewingHttpClient {
    fn service(&self) -> Result<SendingService, ConnectionError> {
        let credentials = self.connection.credentials();
        let mut made = self.made.lock();
        if let Some(ServiceOfCredentials { of, service }) = &*made
            && Arc::ptr_eq(of, &credentials)
        {
            return Ok(service.clone());
        }
        let service = self.connection.service(&credentials, self.way, self.user.clone())?;
        *made = Some(ServiceOfCredentials { of: credentials, service: service.clone() });
        Ok(service)
    }
}

impl tower::Service<http::Request<Body>> for CredentialRenewingHttpClient {
    type Response = http::Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self.service() {
            Ok(service) => Box::pin(service.oneshot(request)),
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    }
}

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");

fn http(
    config: &Config,
    proxy: Option<&KubeconfigProxy>,
    egress: &EgressRules,
    leadership: &Leadership,
) -> Result<HttpService, ConnectionError> {
    let mut tcp = HttpConnector::new_with_resolver(EgressResolver(egress.clone()));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(config.connect_timeout.unwrap_or(Duration::from_secs(15))));
    let leadership = leadership.clone();
    let tcp =
        tcp.map_response(move |stream| LeaderOnlyConnection::wrap(stream, leadership.clone()));
    Ok(match proxy {
        None => over(config, tcp)?,
        Some(KubeconfigProxy::Http { address, credentials }) => {
            let tunnel = Tunnel::new(address.clone(), tcp);
            let tunnel = match credentials {
                Some(credentials) => tunnel.with_auth(credentials.clone()),
                None => tunnel,
            };
            over(config, tunnel)?
        }
        Some(KubeconfigProxy::Socks { address }) => {
            over(config, SocksV5::new(address.clone(), tcp))?
        }
    })
}

/// HTTP and TLS over the connections that `connector` opens.
fn over<C>(config: &Config, connector: C) -> Result<HttpService, ConnectionError>
where
    C: tower::Service<http::Uri> + Clone + Send + Sync + 'static,
    C::Response: Connected + hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls(config)?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector);
    let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .timer(hyper_util::rt::TokioTimer::new())
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_adaptive_window(true)
        .build::<_, Body>(https);
    Ok(BoxCloneSyncService::new(ServiceBuilder::new().map_err(BoxError::from).service(client)))
}

impl ClusterConnection {
    fn new(
        connection: ApiServerConnection,
        [leasing, asking]: [Client; 2],
        instance: Arc<str>,
    ) -> Result<Self, ConnectionError> {
        let ourselves = connection.unary(None)?;
        Ok(Self {
            unary: ourselves.clone(),
            ourselves,
            own_watches: connection.watches(),
            watches: connection.watches(),
            leasing,
            asking,
            leadership: connection.leadership.clone(),
            discovery: Arc::default(),
            instance,
            connection,
            reads_for_bearer: false,
        })
    }

    /// The same cluster as the user whom a token names, and as no other one: the credentials and impersonations of the
    /// configuration are not in it, and no connection of other users is used. Requests are sent whichever process leads, since
    /// the API server decides what the token may do.
    ///
    /// # Errors
    /// The token is empty, which would be an anonymous user, or has what no header has; no client can be built.
    pub fn with_bearer(
        &self,
        token: &RedactedValue<String>,
        metrics: &MetricsRegistry,
    ) -> Result<Self, ConnectionError> {
        let is_token = |byte: u8| byte.is_ascii_graphic();
        if token.expose().is_empty() || !token.expose().bytes().all(is_token) {
            return Err(ConnectionError::Token);
        }
        let credentials = self.connection.credentials();
        let mut config = credentials.config.clone();
        config.auth_info =
            AuthInfo { token: Some(token.expose().as_str().into()), ..AuthInfo::default() };
        let proxy = credentials.proxy.as_ref();
        let egress = &self.connection.egress;
        let leadership = Leadership::unlimited();
        let connection = ApiServerConnection::new(config, proxy, egress, &leadership, metrics)?;
        let own = connection.unary(None)?;
        let same = Self::new(connection, [own.clone(), own], self.instance.clone())?;
        Ok(Self { reads_for_bearer: true, ..same })
    }

    /// This cluster for requests to reconcile an object, which are sent even while another process leads: it does not
    /// matter which process a webhook reaches.
    pub fn asking(&self) -> Self {
        Self { unary: self.asking.clone(), ..self.clone() }
    }

    /// The same cluster and connections, with requests in the name of another user.
    ///
    /// Watches stay windlass's own: a tenant could hardly ever list a kind in all namespaces, and an event of a watch
    /// only triggers a run, whose requests are in the tenant's name.
    ///
    /// # Errors
    /// No client can be built for that user.
    pub fn acting_as(&self, user: &str) -> Result<Self, ConnectionError> {
        let unary = self.connection.unary(Some(user))?;
        Ok(Self { unary, ..self.clone() })
    }
}

impl ClusterConnection {
    /// Replaces the credentials of this connection and of all its clones by those of `renewed`, another connection to the
    /// same cluster.
    pub fn renew(&self, renewed: &Self) {
        let credentials = renewed.connection.credentials();
        let access = &self.connection.access;
        *access.lock() = credentials;
    }

    /// The namespace of the kubeconfig's context.
    pub fn default_namespace(&self) -> &str {
        self.unary.default_namespace()
    }

    /// Where the API server is, without what may be secret.
    pub fn address(&self) -> String {
        let credentials = self.connection.credentials();
        let url = &credentials.config.cluster_url;
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!(
            "{}://{}{port}",
            url.scheme_str().unwrap_or("https"),
            url.host().unwrap_or_default()
        )
    }

    /// Waits until the API server answers, and returns its version. A program that starts before the API server does not
    /// fail.
    ///
    /// # Errors
    /// The last error, if the API server has not answered within `limit`.
    pub async fn await_answer(&self, limit: Duration) -> anyhow::Result<String> {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            match self.unary.apiserver_version().await {
                Ok(version) => return Ok(version.git_version),
                Err(error) if tokio::time::Instant::now() >= deadline => {
                    anyhow::bail!(
                        "the API server at {} did not respond: {}",
                        self.address(),
                        super::error::chain(&error)
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use objects::Gvk;

    use super::*;
    use crate::ClusterConnection;
    use crate::fake_cluster::answering;

    /// A cluster with one Namespace, which has a uid.
    async fn cluster(uid: &'static str) -> ClusterConnection {
        answering(move |(request, _)| {
            let text = match request.split_once("/namespaces/") {
                Some(_) => serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
                    "metadata": {"name": "kube-system", "uid": uid}}),
                None => serde_json::json!({"groupVersion": "v1", "resources": [
                    {"name": "namespaces", "singularName": "", "kind": "Namespace",
                        "namespaced": false, "verbs": ["get"]}]}),
            };
            (200, Body::from(text.to_string()))
        })
        .await
    }

    async fn uid(cluster: &ClusterConnection) -> String {
        let resource = cluster.resource(&Gvk::new("v1", "Namespace")).await.unwrap();
        cluster.get(&resource, "", "kube-system").await.unwrap().unwrap().uid().to_owned()
    }

    #[tokio::test]
    async fn all_clients_go_on_with_renewed_credentials() {
        let before = cluster("one").await;
        let after = cluster("two").await;
        let tenant = before.acting_as("somebody").unwrap();
        let copy = before.clone();
        for it in [&before, &tenant, &copy] {
            assert_eq!(uid(it).await, "one");
        }
        before.renew(&after);
        for it in [&before, &tenant, &copy] {
            assert_eq!(uid(it).await, "two");
        }
        assert_eq!(before.system_uid().await.as_deref(), Some("two"));
    }

    #[tokio::test]
    async fn a_bearer_is_the_only_user_of_its_connection_and_needs_no_leadership() {
        let (seen, mut requests) = tokio::sync::mpsc::unbounded_channel();
        let server = axum::Router::new().fallback(move |request: axum::extract::Request| {
            let headers = request.headers().clone();
            drop(seen.send(headers));
            async { "{\"status\": {\"allowed\": true}}" }
        });
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(socket, server).await });
        let mut config = Config::new(url.parse().unwrap());
        config.auth_info = AuthInfo {
            token: Some("of-the-operator".into()),
            impersonate: Some("admin".to_owned()),
            impersonate_groups: Some(vec!["system:masters".to_owned()]),
            ..AuthInfo::default()
        };
        let metrics = MetricsRegistry::new();
        let standby = Leadership::standby();
        let anywhere = &EgressRules::Anywhere;
        let connection =
            ApiServerConnection::new(config, None, anywhere, &standby, &metrics).unwrap();
        let own = connection.unary(None).unwrap();
        let beside = [own.clone(), own];
        let operator = ClusterConnection::new(connection, beside, "windlass".into()).unwrap();
        for token in ["of-alice", "of-bob"] {
            let token = RedactedValue::new(token.to_owned());
            let user = operator.with_bearer(&token, &metrics).unwrap();
            assert!(user.reads_for_bearer && !operator.reads_for_bearer);
            assert!(user.may("list", "", "pods").await.unwrap());
            let headers = requests.recv().await.unwrap();
            assert_eq!(headers["authorization"], format!("Bearer {}", token.expose()).as_str());
            assert!(!headers.contains_key("impersonate-user"));
            assert!(!headers.contains_key("impersonate-group"));
        }
        for token in ["", "a b", "a\r\nimpersonate-user: admin", "ä"] {
            let token = RedactedValue::new(token.to_owned());
            assert!(matches!(operator.with_bearer(&token, &metrics), Err(ConnectionError::Token)));
        }
    }

    /// A kubeconfig of two contexts, of which the first is the current one.
    const TWO_CONTEXTS: &str = "
current-context: dev
contexts:
- {name: dev, context: {cluster: near, user: alice}}
- {name: prod, context: {cluster: far, user: alice}}
clusters:
- {name: near, cluster: {server: 'https://127.0.0.1:1'}}
- {name: far, cluster: {server: 'https://127.0.0.1:2'}}
users:
- {name: alice, user: {token: none}}
";

    /// How the configuration of an access is refused, without the path of its kubeconfig.
    async fn refusal(path: &Path, access: ClusterAccessOptions<'_>) -> String {
        let access = ClusterAccessOptions { kubeconfig: Some(path), ..access };
        let text = access.config().await.unwrap_err().to_string();
        let shown = path.display().to_string();
        assert!(text.contains(&shown), "{text} does not name {shown}");
        text.replace(&shown, "FILE")
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent");
        let text = refusal(&path, ClusterAccessOptions::default()).await;
        assert!(text.starts_with("cannot read kubeconfig FILE: No such file"), "{text}");
        let text = refusal(folder.path(), ClusterAccessOptions::default()).await;
        assert!(text.starts_with("cannot read kubeconfig FILE: "), "{text}");
        let path = folder.path().join("broken");
        std::fs::write(&path, "contexts: [").unwrap();
        let text = refusal(&path, ClusterAccessOptions::default()).await;
        assert!(text.starts_with("kubeconfig FILE: "), "{text}");
    }

    #[tokio::test]
    async fn a_name_that_a_kubeconfig_does_not_have_is_refused_with_those_that_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, TWO_CONTEXTS).unwrap();
        let prod = ClusterAccessOptions {
            kubeconfig: Some(&path),
            context: Some("prod"),
            ..ClusterAccessOptions::default()
        };
        assert_eq!(prod.config().await.unwrap().cluster_url.port_u16(), Some(2));
        let context = Some("staging");
        let text =
            refusal(&path, ClusterAccessOptions { context, ..ClusterAccessOptions::default() })
                .await;
        assert_eq!(text, "kubeconfig FILE has no context `staging`: it has dev, prod");
        let cluster = Some("nowhere");
        let text =
            refusal(&path, ClusterAccessOptions { cluster, ..ClusterAccessOptions::default() })
                .await;
        assert_eq!(text, "kubeconfig FILE has no cluster `nowhere`: it has near, far");
        let user = Some("bob");
        let text =
            refusal(&path, ClusterAccessOptions { user, ..ClusterAccessOptions::default() }).await;
        assert_eq!(text, "kubeconfig FILE has no user `bob`: it has alice");
    }

    #[tokio::test]
    async fn a_kubeconfig_without_its_current_context_is_reported_with_its_contexts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        for (current, expected) in [
            ("staging", "kubeconfig FILE has no context `staging`: it has dev, prod"),
            ("''", "kubeconfig FILE names no current context: it has dev, prod"),
        ] {
            let text = TWO_CONTEXTS
                .replace("current-context: dev", &format!("current-context: {current}"));
            std::fs::write(&path, text).unwrap();
            assert_eq!(refusal(&path, ClusterAccessOptions::default()).await, expected);
        }
        std::fs::write(&path, "current-context: dev").unwrap();
        let text = refusal(&path, ClusterAccessOptions::default()).await;
        assert_eq!(text, "kubeconfig FILE has no context `dev`: it has none");
    }
}
