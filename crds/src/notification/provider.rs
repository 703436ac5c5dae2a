//! Provider: a service to which events are sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::custom_resource::{AGE, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::without_status;
use crate::{GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// A service to which Alerts send events.
    Provider {
        spec: ProviderSpec,
        api: "notification.toolkit.fluxcd.io" / "v1beta3",
        plural: "providers",
        short: [],
        category: "fluxcd-notifications",
        columns: [AGE],
    }
}

without_status!(Provider "notification-controller");

/// The types of services; the engine has what each of them is sent.
const TYPES: &[&str] = &[
    "slack",
    "discord",
    "msteams",
    "rocket",
    "generic",
    "generic-hmac",
    "github",
    "gitlab",
    "gitea",
    "giteapullrequestcomment",
    "bitbucketserver",
    "bitbucket",
    "azuredevops",
    "googlechat",
    "googlepubsub",
    "webex",
    "sentry",
    "azureeventhub",
    "telegram",
    "lark",
    "matrix",
    "opsgenie",
    "alertmanager",
    "grafana",
    "githubdispatch",
    "githubpullrequestcomment",
    "gitlabmergerequestcomment",
    "pagerduty",
    "datadog",
    "nats",
    "zulip",
    "otel",
    "zoom",
    "incident.io",
];

/// Which service it is, where it is, and how to authenticate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "self.type == 'github' || self.type == 'gitlab' || self.type == 'gitea' || self.type == 'bitbucketserver' || self.type == 'bitbucket' || self.type == 'azuredevops' || !has(self.commitStatusExpr)",
    "message": "spec.commitStatusExpr is only supported for the 'github', 'gitlab', 'gitea', 'bitbucketserver', 'bitbucket', 'azuredevops' provider types",
}]))]
pub struct ProviderSpec {
    /// The type of the service.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = TYPES))]
    pub type_: String,

    /// Has no effect. Deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<GoDuration>,

    /// The channel, room, topic or routing key, depending on the type.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,

    /// The name under which messages are posted.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,

    /// The address of the service, such as the URL of a webhook or of a repository. `address` of
    /// the Secret takes precedence.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,

    /// How long sending an event may take. Defaults to 15 seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = FETCH_PATTERN))]
    pub timeout: Option<GoDuration>,

    /// The address of a proxy. Deprecated: use `proxySecretRef`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = "^(http|https)://.*$"))]
    pub proxy: Option<String>,

    /// A Secret that describes a proxy: `address`, and `username` and `password` if it asks for
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,

    /// A Secret with credentials, whose keys depend on the type: `address`, `token`, `username`,
    /// `password`, `headers` and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,

    /// The ServiceAccount whose cloud identity is used to authenticate.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// A CEL expression that gives the id of a commit status. It sees `event`, `alert` and
    /// `provider`, and must yield a string.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub commit_status_expr: Option<String>,

    /// Whether to send nothing.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}
