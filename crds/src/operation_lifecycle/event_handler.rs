//! What windlass itself does with the events of a Lifecycle.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::string_enum::choice;
use crate::{GoDuration, omit_empty, schema};

/// What windlass itself does with events: exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleEventHandlerSpec {
    /// Users approve, such as with `windlass approve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<LifecycleApprovalHandler>,

    /// The operation continues after a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<LifecyclePauseHandler>,

    /// The operation continues when an object of the cluster is as an expression says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for: Option<LifecycleWaitForHandler>,

    /// The operation continues when a web server answers as it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_check: Option<LifecycleHttpCheckHandler>,

    /// The operation continues when the result of a Prometheus query stays within bounds for a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<LifecycleMetricsHandler>,

    /// The operation continues when a Job in the namespace of the event has completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<LifecycleJobHandler>,
}

/// How many users have to approve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleApprovalHandler {
    /// How many different users have to approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 16), extend("default" = 1))]
    pub count: Option<i64>,
}

/// How long the operation waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecyclePauseHandler {
    /// How long, from the creation of the event.
    pub duration: GoDuration,
}

/// The object that is waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleWaitForHandler {
    /// Its apiVersion.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,

    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,

    /// Its name, in which `${subject}` and the like stand for what the event says.
    #[schemars(length(min = 1, max = 512))]
    pub name: String,

    /// Its namespace; that of the event by default. `${subject}` and the like may be in it.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub namespace: Option<String>,

    /// The CEL expression over `object` and `event` (the spec of the event) that has to be true.
    #[schemars(length(min = 1, max = 4096))]
    pub expression: String,

    /// A CEL expression over the same that is true when it failed.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub failure_expression: Option<String>,

    /// How often the object is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<GoDuration>,
}

choice! {
    /// A method of HTTP.
    HttpMethod {
        /// Without a body.
        #[default]
        Get = "GET",
        /// Without a body, and the answer has none either.
        Head = "HEAD",
        /// With the spec of the event as JSON.
        Post = "POST",
    }
}

/// What is asked of a web server, and what it has to answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleHttpCheckHandler {
    /// The URL. Behind the host, `${subject}` and the like stand for what the event says.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://[^/?#${}@]+([/?#].*)?$"))]
    pub url: String,

    /// The method.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "GET"))]
    pub method: Option<HttpMethod>,

    /// The CEL expression over `response` (`status`, `body`, and `json` if it is JSON) and `event` that
    /// has to be true. By default the status has to be one of 200 to 299.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub expression: Option<String>,

    /// A CEL expression over the same that is true when it failed.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub failure_expression: Option<String>,

    /// How often it is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "10s"))]
    pub interval: Option<GoDuration>,
}

/// A Prometheus query whose result has to stay within bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "has(self.min) || has(self.max)",
    "message": "one of min and max is required",
}]))]
pub struct LifecycleMetricsHandler {
    /// The URL of the Prometheus server, without `/api/v1/query`.
    #[schemars(
        length(min = 1, max = 2048),
        regex(pattern = "^https?://[^/?#${}@]+(/[^?#${}]*)?$")
    )]
    pub address: String,

    /// The query. Within strings, `${subject}` and the like stand for what the event says.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,

    /// The least value that is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::without_format)]
    pub min: Option<f64>,

    /// The greatest value that is good.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::without_format)]
    pub max: Option<f64>,

    /// How long the values have to be good, from the creation of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5m"))]
    pub duration: Option<GoDuration>,

    /// How often the query is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "30s"))]
    pub interval: Option<GoDuration>,
}

/// The Job that has to complete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct LifecycleJobHandler {
    /// What the Job is made from. Its containers get what the event says as environment variables:
    /// `LIFECYCLE_SUBJECT` and the like, and `LIFECYCLE_PARAMETER_<NAME>`.
    pub template: JobTemplate,
}

/// Metadata and spec of a Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct JobTemplate {
    /// Labels and annotations.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub metadata: Map<String, Value>,

    /// The spec of a Job.
    #[schemars(schema_with = "any_object")]
    pub spec: Map<String, Value>,
}

/// The schema of an object that another API defines.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}
