//! The raw client with which windlass is compared. It applies objects server-side as fast as it can, and does nothing
//! else.
//!
//! It compares no objects, stores no state and reads nothing. It sends one request for each object, and prepares all
//! requests before the measurement. Like the operator it is a ServiceAccount, so RBAC and the API server's flow
//! control apply to both. This module has its account, connection and requests. `super::workload` makes the objects.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::Path;
use tower::{BoxError, ServiceBuilder};

/// How many requests the client sends at once.
const IN_FLIGHT: usize = 16;

/// The format of bodies in this API.
const JSON: &str = "json";
const APPLY: &str = "apply-patch+yaml";
const MERGE: &str = "merge-patch+json";

/// The namespace of its ServiceAccount.
const NAMESPACE: &str = "windlass-bench";

/// The user name of the client at the API server.
pub(super) const USER: &str = "system:serviceaccount:windlass-bench:raw";

/// A client that sends requests to the API server and does nothing else, for comparison with windlass.
pub(super) struct RawApiClient {
    client: Client,
}

/// A prepared request that applies an object.
pub(super) struct PreparedObject {
    path: String,
    body: Vec<u8>,
}

impl PreparedObject {
    /// The objects of a manifest, each as a request.
    ///
    /// # Errors
    /// When the text is not YAML, or a document is not an object.
    pub(super) fn all(manifest: &str) -> anyhow::Result<Vec<Self>> {
        let documents = goyaml::documents(manifest.as_bytes(), &goyaml::YamlLimits::default())?;
        documents.iter().map(|document| Self::of(&document.value)).collect()
    }

    fn of(object: &Value) -> anyhow::Result<Self> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let version = text("/apiVersion").context("an object without `apiVersion`")?;
        let kind = text("/kind").context("an object without `kind`")?;
        let name = text("/metadata/name").context("an object without a name")?;
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        let plural = ApiResource::from_gvk(&GroupVersionKind::gvk(group, short, kind)).plural;
        let root = if group.is_empty() { "api" } else { "apis" };
        let within = text("/metadata/namespace")
            .map(|namespace| format!("namespaces/{namespace}/"))
            .unwrap_or_default();
        let path = format!(
            "/{root}/{version}/{within}{plural}/{name}?fieldManager=windlass-bench&force=true"
        );
        Ok(Self { path, body: serde_json::to_vec(object)? })
    }
}

impl RawApiClient {
    /// Creates a ServiceAccount with an administrator's rights, and connects with its token.
    ///
    /// # Errors
    /// The API server rejects a request, or cannot be reached.
    pub(super) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot read the kubeconfig {}", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let administrator = Self { client: stack(&config)? };
        for object in account() {
            administrator.apply(&[PreparedObject::of(&object)?]).await?;
        }
        let ask = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            // The token is valid for longer than any measurement.
            "spec": {"expirationSeconds": 43_200},
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/raw/token");
        let answer = administrator.send("POST", &path, JSON, serde_json::to_vec(&ask)?).await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        let token = token.context("the API server sent no token")?;
        let text = std::fs::read(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(
            with_token(&text, token)?,
            &KubeConfigOptions::default(),
        )
        .await?;
        let raw = Self { client: stack(&config)? };
        // This request opens the connection before the measurement.
        raw.send("GET", "/version", JSON, Vec::new()).await?;
        Ok(raw)
    }

    /// Applies objects, sixteen at a time. It returns the time from the beginning to each response.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(super) async fn apply(&self, objects: &[PreparedObject]) -> anyhow::Result<Vec<Duration>> {
        let begun = Instant::now();
        let send = |object: &PreparedObject| {
            let path = object.path.clone();
            let body = object.body.clone();
            async move {
                self.send("PATCH", &path, APPLY, body).await?;
                anyhow::Ok(begun.elapsed())
            }
        };
        futures::stream::iter(objects).map(send).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Deletes objects, sixteen at a time. It does not wait until they are gone.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(super) async fn delete(&self, objects: &[PreparedObject]) -> anyhow::Result<()> {
        let send = |object: &PreparedObject| {
            let path = object.path.split('?').next().unwrap_or_default().to_owned();
            async move { self.send("DELETE", &path, JSON, Vec::new()).await.map(drop) }
        };
        let sent = futures::stream::iter(objects).map(send).buffer_unordered(IN_FLIGHT);
        sent.try_collect().await
    }

    /// Lists the names of the objects at an API path, page by page.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(super) async fn names(&self, path: &str) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut from = String::new();
        loop {
            let page = format!("{path}?limit=500{from}");
            let answer: Value =
                serde_json::from_slice(&self.send("GET", &page, JSON, Vec::new()).await?)?;
            let items = answer["items"].as_array().into_iter().flatten();
            names.extend(items.filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned)));
            match answer["metadata"]["continue"].as_str() {
                // The token is base64 without padding, which needs no escapes in a query.
                Some(next) if !next.is_empty() => from = format!("&continue={next}"),
                _ => return Ok(names),
            }
        }
    }

    /// Sends the same merge patch to several paths, `at_once` at a time.
    ///
    /// # Errors
    /// The first request that the API server rejected.
    pub(super) async fn merge(
        &self,
        paths: &[String],
        patch: &Value,
        at_once: usize,
    ) -> anyhow::Result<()> {
        let body = serde_json::to_vec(patch)?;
        let send = |path: &String| {
            let path = path.clone();
            let body = body.clone();
            async move { self.send("PATCH", &path, MERGE, body).await.map(drop) }
        };
        futures::stream::iter(paths).map(send).buffer_unordered(at_once).try_collect().await
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Vec<u8>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", format!("application/{content}"))
            .header("accept", "application/json")
            .body(Body::from(body))?;
        let answer = self.client.send(request).await.with_context(|| format!("{method} {path}"))?;
        let status = answer.status();
        let text = answer.into_body().collect_bytes().await?;
        let said = String::from_utf8_lossy(&text);
        ensure!(status.is_success(), "{method} {path}: {status}: {said}");
        Ok(text.to_vec())
    }
}

fn account() -> [Value; 3] {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
    });
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "raw", "namespace": NAMESPACE},
    });
    let rights = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAMESPACE},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "raw", "namespace": NAMESPACE}],
    });
    [namespace, account, rights]
}

/// A kubeconfig with the same clusters, in which every user has this token as the only credential.
fn with_token(kubeconfig: &[u8], token: &str) -> anyhow::Result<Kubeconfig> {
    let mut file = goyaml::to_json(kubeconfig)?;
    let users = file["users"].as_array_mut().context("the kubeconfig has no users")?;
    for user in users {
        user["user"] = json!({"token": token});
    }
    Ok(Kubeconfig::from_yaml(&file.to_string())?)
}

/// An HTTP/2 client, in which all requests share a connection. kube's own client has only HTTP/1.1.
fn stack(config: &Config) -> anyhow::Result<Client> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    let https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    let hyper = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .http2_adaptive_window(true)
        .build::<_, Body>(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(hyper);
    Ok(Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_applied_at_the_path_of_its_kind() {
        let paths = |text: &str| -> Vec<String> {
            let all = PreparedObject::all(text).unwrap();
            all.iter().map(|it| it.path.split('?').next().unwrap().to_owned()).collect()
        };
        let text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b}}\n---\n\
             {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n---\n\
             {apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: a, namespace: b}}\n";
        assert_eq!(
            paths(text),
            [
                "/api/v1/namespaces/b/configmaps/a",
                "/api/v1/namespaces/b",
                "/apis/source.toolkit.fluxcd.io/v1/namespaces/b/gitrepositories/a",
            ]
        );
        assert!(PreparedObject::all("{kind: ConfigMap}").is_err());
    }

    #[test]
    fn a_token_takes_the_place_of_every_other_credential() {
        let text = b"clusters: [{name: c, cluster: {server: \"https://x\"}}]\n\
            users: [{name: u, user: {client-key-data: eA==, client-certificate-data: eA==}}]\n\
            contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\n";
        let file = with_token(text, "t0ken").unwrap();
        let user = file.auth_infos[0].auth_info.as_ref().unwrap();
        assert!(user.token.is_some() && user.client_key_data.is_none());
        assert_eq!(file.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://x"));
    }
}
