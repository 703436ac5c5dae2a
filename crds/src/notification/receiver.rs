//! Receiver: a webhook that asks for reconciliations.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::KINDS;
use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, READY, STATUS, custom_resource};
use crate::reconciled_object::reconciled;
use crate::{GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// A webhook by which another service asks for the reconciliation of objects.
    Receiver {
        spec: ReceiverSpec,
        status: ReceiverStatus,
        api: "notification.toolkit.fluxcd.io" / "v1",
        plural: "receivers",
        short: [],
        category: "fluxcd-notifications",
        columns: [AGE, READY, STATUS],
    }
}

reconciled!(Receiver ReceiverStatus "notification-controller");

/// The services that may send webhooks.
const TYPES: &[&str] = &[
    "generic",
    "generic-hmac",
    "generic-oidc",
    "github",
    "gitlab",
    "bitbucket",
    "harbor",
    "dockerhub",
    "quay",
    "gcr",
    "nexus",
    "acr",
    "cdevents",
];

/// Who may send, how that is checked, and which objects are reconciled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [
    {
        "rule": "self.type != 'generic-oidc' || (has(self.oidcProviders) && size(self.oidcProviders) > 0)",
        "message": "generic-oidc receivers must define at least one oidcProvider",
    },
    {
        "rule": "self.type == 'generic-oidc' || !has(self.oidcProviders) || size(self.oidcProviders) == 0",
        "message": "oidcProviders can only be set when type is generic-oidc",
    },
    {
        "rule": "self.type != 'generic-oidc' || !has(self.secretRef)",
        "message": "secretRef cannot be set when type is generic-oidc",
    },
    {
        "rule": "self.type == 'generic-oidc' || has(self.secretRef)",
        "message": "secretRef is required when type is not generic-oidc",
    },
]))]
pub struct ReceiverSpec {
    /// Which service sends, and so how its requests are checked.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = TYPES))]
    pub type_: String,

    /// How often to check the spec and the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10m"))]
    pub interval: Option<GoDuration>,

    /// The events that count, by the names of the service. All of them if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,

    /// The objects that a request has reconciled.
    pub resources: Vec<ReceiverResource>,

    /// A CEL expression that an object must pass. It sees the metadata of the object as `res` and
    /// the body of the request as `req`, and must yield a boolean.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub resource_filter: Option<String>,

    /// The Secret with `token`, from which the path is made and by which requests are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// The issuers whose tokens are accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["issuerURL"]))]
    pub oidc_providers: Vec<OidcProvider>,

    /// Whether to reject all requests.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

/// Objects of a kind that are reconciled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceiverResource {
    /// The API version of the objects. Sources need none.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub api_version: Option<String>,

    /// The kind of the objects.
    #[schemars(extend("enum" = KINDS))]
    pub kind: String,

    /// The name of the object, or `*` for all that have the labels.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The namespace of the objects. Defaults to that of the Receiver.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,

    /// Labels that the objects must have. Required with the name `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_labels: Option<BTreeMap<String, String>>,

    /// A CEL expression like `resourceFilter`, for these objects only.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub filter: Option<String>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcProvider {
    /// The URL of the issuer.
    #[serde(rename = "issuerURL")]
    #[schemars(regex(pattern = "^https?://"))]
    pub issuer_url: String,

    /// The audience for which a token must be issued. Defaults to `notification-controller`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub audience: Option<String>,

    /// CEL expressions with a name, for those that follow. They see `claims` and `vars`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<OidcVariable>,

    /// CEL expressions that must be true of a token.
    #[schemars(length(min = 1))]
    pub validations: Vec<OidcValidation>,
}

/// A CEL expression with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcVariable {
    /// The name.
    pub name: String,

    /// The expression.
    pub expression: String,
}

/// A CEL expression that must be true of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OidcValidation {
    /// The expression.
    pub expression: String,

    /// What is said when it is false.
    pub message: String,
}

/// Where requests are received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct ReceiverStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The path to which requests are sent.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub webhook_path: Option<String>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
