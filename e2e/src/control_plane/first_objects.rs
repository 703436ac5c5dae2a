//! The first objects of every bed, and the requests that find out whether the bed is ready.
//!
//! Here: the node, and the namespace, the service account and the rights of the operator.
//! Elsewhere: when they are created (`crate::control_plane`), the behaviour of the node (`testbed/kwok/stages.yaml`).

use anyhow::{Context, Result};
use http::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The rights with which windlass is installed.
const OWN_RIGHTS: &str = include_str!("../../../deploy/chart/files/base/rbac.yaml");
/// The rights to apply the objects of stories.
const APPLIED_RIGHTS: &str = include_str!("../../testbed/rights.yaml");

/// Whether the API server is ready. This includes its work after the start, such as creating the RBAC defaults.
pub(super) async fn is_api_ready(client: &Client) -> Result<bool> {
    let request = Request::get("/readyz").body(Vec::new())?;
    Ok(client.request_text(request).await? == "ok")
}

/// Creates the objects on which every story relies. The call can be repeated.
pub(super) async fn create(client: &Client) -> Result<bool> {
    let labels = json!({
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "testbed",
    });
    let node = json!({"metadata": {"name": "testbed", "labels": labels}});
    put(client, ApiResource::erase::<Node>(&()), None, &node).await?;
    let namespace = json!({"metadata": {"name": "flux-system"}});
    put(client, ApiResource::erase::<Namespace>(&()), None, &namespace).await?;
    let account = json!({"metadata": {"name": "windlass-controller"}});
    put(client, ApiResource::erase::<ServiceAccount>(&()), Some("flux-system"), &account).await?;
    for text in [OWN_RIGHTS, APPLIED_RIGHTS] {
        put_rights(client, text).await?;
    }
    let rights = json!({
        "metadata": {"name": "windlass-testbed"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "windlass-testbed",
        },
        "subjects": [
            {"kind": "ServiceAccount", "name": "windlass-controller", "namespace": "flux-system"},
        ],
    });
    put(client, ApiResource::erase::<ClusterRoleBinding>(&()), None, &rights).await?;
    Ok(true)
}

/// Whether the controllers and kwok have finished their first work.
pub(super) async fn are_controllers_ready(client: &Client) -> Result<bool> {
    let accounts = Api::<ServiceAccount>::all(client.clone()).list(&Default::default()).await?;
    let has_default = |namespace: &str| {
        accounts.items.iter().any(|account| {
            account.metadata.name.as_deref() == Some("default")
                && account.metadata.namespace.as_deref() == Some(namespace)
        })
    };
    let node = Api::<Node>::all(client.clone()).get("testbed").await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    let is_ready = conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    Ok(has_default("default") && has_default("flux-system") && is_ready)
}

/// Requests a token for a service account from the API server. It is valid for an hour.
pub(super) async fn request_token(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() }),
        ..Default::default()
    };
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for the service account {namespace}/{name}"))?;
    answer.status.and_then(|status| status.token).context("the API server sent no token")
}

/// Server-side applies roles and their bindings, in the same way as an installation does.
async fn put_rights(client: &Client, text: &str) -> Result<()> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("a role is wrong")?;
    for object in documents {
        let kind = object["kind"].as_str().context("a role has no kind")?;
        let gvk = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let namespace = object["metadata"]["namespace"].as_str();
        put(client, ApiResource::from_gvk(&gvk), namespace, &object).await?;
    }
    Ok(())
}

async fn put(
    client: &Client,
    resource: ApiResource,
    namespace: Option<&str>,
    object: &Value,
) -> Result<()> {
    let name = object["metadata"]["name"].as_str().context("the object has no name")?;
    let api = match namespace {
        Some(namespace) => {
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource)
        }
        None => Api::all_with(client.clone(), &resource),
    };
    let mut object = object.clone();
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    let params = PatchParams::apply("windlass-testbed").force();
    api.patch(name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("cannot create {} {name}", resource.kind))?;
    Ok(())
}
