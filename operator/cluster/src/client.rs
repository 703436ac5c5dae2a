//! The HTTP client for API servers. It speaks HTTP/2, limits the time of every request except watches, and retries rarely.
//!
//! kube's own client speaks HTTP/1.1 only, waits without a limit, and retries fifteen times (kube-client 5.0).

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

use super::client_certificate::tls;
use super::connection_pool::ConnectionPool;
use super::egress_resolver::EgressResolver;
use super::error::chain;
use super::kubeconfig::{KubeconfigError, KubeconfigProxy, RemoteKubeconfig};
use super::leadership::{LeaderOnlyConnection, Leadership};
use super::request_limit::RequestLimit;
use super::request_retry::RetryAfterLayer;
use super::response_limit::{ANSWER_LIMIT, BoundedBody};
use super::{ClusterConnection, ClusterError};
use crate::metrics::{ApiRequestCounters, MetricsRegistry};

/// The time limit of a request that is not a watch.
const UNARY_TIMEOUT: Duration = Duration::from_secs(40);

/// How often a ping checks that an idle HTTP/2 connection is still alive.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Which cluster, context and user to connect with. The default is the cluster that the environment or the Pod names.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClusterAccessOptions<'a> {
    /// The path of the kubeconfig.
    pub kubeconfig: Option<&'a Path>,
    /// The context of the kubeconfig, if it is not the current one.
    pub context: Option<&'a str>,
    /// The cluster of the kubeconfig, if it is not the cluster of the context.
    pub cluster: Option<&'a str>,
    /// The user of the kubeconfig, if it is not the user of the context.
    pub user: Option<&'a str>,
    /// The user to impersonate in every request.
    pub impersonate: Option<&'a str>,
    /// The groups of the impersonated user.
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

    /// The name of the cluster for its user: the chosen cluster, or else the context. `None` without a kubeconfig, as in a Pod.
    fn cluster_name(self) -> Option<String> {
        let chosen = self.cluster.or(self.context).map(str::to_owned);
        let current = || read_kubeconfig(self.kubeconfig).ok()?.current_context;
        chosen.or_else(current).filter(|name| !name.is_empty())
    }

    /// Refuses a context, cluster or user that the kubeconfig does not have. The error lists the names that it has.
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

/// Reads the kubeconfig at a path, or the files that `$KUBECONFIG` names.
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

/// Connects to a cluster. Sends no request yet.
///
/// `identity` is the name of this process for the API server. The client refuses writes while `leadership` does not allow
/// them.
///
/// # Errors
/// The error says which configuration cannot be used.
pub async fn connect(
    access: ClusterAccessOptions<'_>,
    identity: &str,
    leadership: &Leadership,
    metrics: &MetricsRegistry,
) -> anyhow::Result<ClusterConnection> {
    let mut config = access.config().await?;
    config.headers.push((USER_AGENT, user_agent(identity)));
    // The Lease has a connection of its own. Other traffic cannot delay it, and it may be written before this process leads.
    let unlimited = Leadership::unlimited();
    let anywhere = &EgressRules::Anywhere;
    let leasing = ApiServerConnection::new(config.clone(), None, anywhere, &unlimited, metrics)?;
    let leasing = leasing.unary(None)?;
    let connection = ApiServerConnection::new(config.clone(), None, anywhere, leadership, metrics)?;
    let asking = ApiServerConnection {
        request_limit: connection.request_limit.clone(),
        ..ApiServerConnection::new(config, None, anywhere, &unlimited, metrics)?
    };
    let asking = asking.unary(None)?;
    let connected = ClusterConnection::new(connection, [leasing, asking], identity.into())?;
    Ok(ClusterConnection { name: access.cluster_name().map(Arc::from), ..connected })
}

/// The User-Agent of this process. It lets the audit log of the API server tell replicas apart.
fn user_agent(identity: &str) -> HeaderValue {
    let version = env!("CARGO_PKG_VERSION");
    HeaderValue::from_str(&format!("windlass/{version} ({identity})"))
        .unwrap_or(HeaderValue::from_static(concat!("windlass/", env!("CARGO_PKG_VERSION"))))
}

/// Connects to the cluster of a kubeconfig from a Secret, if `egress` allows its addresses. Writes are allowed only while
/// writes to the `home` cluster are allowed. Sends no request yet.
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

/// Why a configuration cannot be used for a connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The certificates, keys or credentials cannot be used.
    #[error(transparent)]
    Config(#[from] kube::Error),
    /// A certificate or key cannot be used. The text explains it to a user.
    #[error("{0}")]
    Tls(String),
    /// The user name contains characters that an HTTP header cannot have.
    #[error("`{0}` is not a valid user name")]
    User(String),
    /// The token is empty, or contains characters that an HTTP header cannot have. The message does not repeat the token.
    #[error("the token of the user is not valid")]
    Token,
}

type HttpService = BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, BoxError>;

/// The HTTP connections to one API server, shared by all users.
#[derive(Clone)]
pub(super) struct ApiServerConnection {
    /// The credentials that new requests use. Replacing them renews the credentials of all clients.
    access: Arc<Mutex<Arc<ApiServerCredentials>>>,
    egress: EgressRules,
    leadership: Leadership,
    requests: ApiRequestCounters,
    /// How many requests may be in flight. Renewed credentials do not change it.
    pub(super) request_limit: RequestLimit,
}

/// The address of the API server, and the credentials for it.
struct ApiServerCredentials {
    config: Config,
    proxy: Option<KubeconfigProxy>,
    /// For requests that are not watches. Watches stay open for long, so they have connections of their own.
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
        let request_limit = RequestLimit::new(address_of(&config.cluster_url));
        let credentials = ApiServerCredentials { config, proxy: proxy.cloned(), unary };
        Ok(Self {
            access: Arc::new(Mutex::new(Arc::new(credentials))),
            egress: egress.clone(),
            leadership: leadership.clone(),
            requests: metrics.api_requests.clone(),
            request_limit,
        })
    }

    fn credentials(&self) -> Arc<ApiServerCredentials> {
        self.access.lock().clone()
    }

    /// A client for requests that are not watches. Its requests have a limit of time and of length, and only a number of them
    /// are in flight at once.
    fn unary(&self, user: Option<&str>) -> Result<Client, ConnectionError> {
        self.client(ConnectionSharing::Shared, user, Some(UNARY_TIMEOUT))
    }

    /// A pool of connections for watches. No connection is open yet.
    fn watches(&self) -> ConnectionPool {
        let this = self.clone();
        ConnectionPool::new(move || {
            let client = this.client(ConnectionSharing::Own, None, None);
            client.map_err(|error| ClusterError::NoAnswer(chain(&error)))
        })
    }

    /// A client that sends requests as the configuration's user, or impersonates `user`.
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
        // This finds an unusable configuration now, and not at the first request.
        service.service()?;
        let namespace = self.credentials().config.default_namespace.clone();
        Ok(match timeout {
            Some(limit) => {
                let bounded = move |answer: http::Response<Incoming>| {
                    answer.map(|body| BoundedBody::new(body, ANSWER_LIMIT, limit))
                };
                // The time of a request begins when it is sent, and not while it waits for others.
                let service = ServiceBuilder::new()
                    .map_response(bounded)
                    .layer(self.request_limit.clone())
                    .timeout(limit)
                    .service(service);
                Client::new(service, namespace)
            }
            None => Client::new(service, namespace),
        })
    }

    /// An HTTP service that sends requests with these credentials, and impersonates `user` if it is given.
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
            // The given user replaces any impersonation that the configuration asks for.
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
            // This layer is the innermost one, so that no time passes between its check and the sending.
            .layer(self.leadership.clone())
            .map_err(BoxError::from)
            .service(http);
        Ok(BoxCloneService::new(ServiceBuilder::new().map_err(BoxError::from).service(service)))
    }
}

/// Whether a client shares its connection with other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionSharing {
    /// The connection of all requests that are not watches.
    Shared,
    /// A connection that no other client uses.
    Own,
}

type SendingService = BoxCloneService<http::Request<Body>, http::Response<Incoming>, BoxError>;

/// An HTTP client that uses the current credentials, also after they were renewed.
#[derive(Clone)]
struct CredentialRenewingHttpClient {
    connection: ApiServerConnection,
    way: ConnectionSharing,
    user: Option<HeaderValue>,
    /// The service that was built last.
    made: Arc<Mutex<Option<ServiceOfCredentials>>>,
}

/// A service that sends requests, and the credentials from which it was built.
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

/// An address without parts that may be secret.
fn address_of(url: &http::Uri) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme_str().unwrap_or("https"), url.host().unwrap_or_default())
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

/// An HTTP service with TLS over the connections that `connector` opens.
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
            refused_initial_events: Arc::default(),
            leasing,
            asking,
            leadership: connection.leadership.clone(),
            discovery: Arc::default(),
            instance,
            name: None,
            connection,
            reads_for_bearer: false,
        })
    }

    /// A connection to the same cluster that sends requests as the user of a bearer token, and as no other user. It has none
    /// of the configuration's credentials and impersonations, and uses no connection of another user. Its writes do not depend
    /// on the leader election, since the API server decides what the token may do.
    ///
    /// # Errors
    /// If the token is empty, which would mean an anonymous user, if it has characters that are not allowed in an HTTP header,
    /// or if no client can be built.
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

    /// This cluster for requests that ask for the reconciliation of an object. They are sent even while another process leads,
    /// because a webhook may reach any replica.
    pub fn asking(&self) -> Self {
        Self { unary: self.asking.clone(), ..self.clone() }
    }

    /// The same cluster and connections, but every request impersonates another user.
    ///
    /// Watches keep windlass's own identity, because few tenants may list a kind in all namespaces. An event of a watch only
    /// triggers a run, and the run sends its requests as the tenant.
    ///
    /// # Errors
    /// No client can be built for that user.
    pub fn acting_as(&self, user: &str) -> Result<Self, ConnectionError> {
        let unary = self.connection.unary(Some(user))?;
        Ok(Self { unary, ..self.clone() })
    }
}

impl ClusterConnection {
    /// Replaces the credentials of this connection and of all its clones. The new ones are taken from `renewed`, another
    /// connection to the same cluster.
    pub fn renew(&self, renewed: &Self) {
        let credentials = renewed.connection.credentials();
        let access = &self.connection.access;
        *access.lock() = credentials;
    }

    /// The namespace that the context of the kubeconfig names.
    pub fn default_namespace(&self) -> &str {
        self.unary.default_namespace()
    }

    /// The name of the cluster for its user: the name that its kubeconfig gives to the context or, if it was chosen, to the
    /// cluster. `None` without a kubeconfig, and for the user of a bearer token: the names in the kubeconfig of this process may
    /// contain those of its administrators.
    pub fn cluster_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The address of the API server, without parts that may be secret.
    pub fn address(&self) -> String {
        address_of(&self.connection.credentials().config.cluster_url)
    }

    /// Waits until the API server responds, and returns its version. A program may therefore start before the API server does.
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

    /// A fake cluster whose Namespace `kube-system` has this uid.
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
        let operator = ClusterConnection { name: Some("admin@prod".into()), ..operator };
        for token in ["of-alice", "of-bob"] {
            let token = RedactedValue::new(token.to_owned());
            let user = operator.with_bearer(&token, &metrics).unwrap();
            assert!(user.reads_for_bearer && !operator.reads_for_bearer);
            assert_eq!(user.cluster_name(), None);
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

    /// A kubeconfig with two contexts. The first one is the current context.
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

    /// The error of a refused kubeconfig, with its path replaced by `FILE`.
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
        assert_eq!(prod.cluster_name().as_deref(), Some("prod"));
        let current = ClusterAccessOptions { context: None, ..prod };
        assert_eq!(current.cluster_name().as_deref(), Some("dev"));
        let chosen = ClusterAccessOptions { cluster: Some("far"), ..prod };
        assert_eq!(chosen.cluster_name().as_deref(), Some("far"));
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
