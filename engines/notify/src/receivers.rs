//! Receivers: which webhook requests are accepted, and which objects they cause to be reconciled.
//!
//! Here: what a Receiver is, its path, and the order of the checks. Below: authentication (`receivers/authenticate.rs`,
//! `receivers/oidc_token.rs`), the format of bodies (`receivers/payload.rs`, `receivers/cdevents.rs`), checks of the spec
//! (`receivers/spec_validation.rs`), which objects are reconciled (`receivers/resource_selection.rs`). The caller of a
//! [`WebhookAuthentication`] fetches keys of issuers.
//!
//! Source of the semantics: notification-controller 1.9.3, `internal/server/receiver_*.go`.

mod authenticate;
mod cdevents;
mod oidc_token;
mod payload;
mod resource_selection;
mod spec_validation;
#[cfg(test)]
mod tests;

use golang::work_meter::WorkAllowance;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

pub use authenticate::WebhookAuthentication;
pub use resource_selection::{AnnotationTarget, ReceiverClusterReader, ReceiverSelection};
pub use spec_validation::{ReceiverSpecError, check};

use crate::api_objects::{ApiObjectMetadata, EventSourceSelector, NameReference, nil};
use crate::event_delivery::ProviderRequest;

/// Longest body of a request, in bytes.
pub const MAX_BODY: usize = 3 << 20;
/// Most bytes of headers of a request.
pub const MAX_HEADERS: usize = 256 << 10;
/// The beginning of a Receiver's path.
pub const PATH: &str = "/hook/";

/// The allowance for evaluating a Receiver's expressions for one request: about a second of a processor. Reading the
/// expressions is not included.
const EVALUATING: WorkAllowance = WorkAllowance { steps: 10_000_000, bytes: 256 << 20 };

/// Most entries of `resources`.
///
/// Differs(flux): Flux has no limit.
const MOST_RESOURCES: usize = 64;

/// The error about too many entries.
fn too_many(receiver: &Receiver) -> Option<String> {
    let count = receiver.spec.resources.len();
    (count > MOST_RESOURCES).then(|| {
        format!("resources has {count} entries, which is more than {MOST_RESOURCES}; use further Receivers, or `*` with matchLabels")
    })
}

/// Whether a Receiver may refer to objects of an API version.
///
/// Differs(flux): windlass reads and annotates objects with its own permissions and not with those of the Receiver's author, so
/// only objects of Flux and windlass are allowed.
fn is_within_reach(api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let of_theirs = [".toolkit.fluxcd.io", ".extensions.fluxcd.io", ".windlass.dev"];
    // The last group belongs to helmfile-operator, whose Helmfiles windlass reconciles.
    of_theirs.iter().any(|end| group.ends_with(end)) || group == "apps.mumoshu.github.io"
}

/// An issuer of tokens that a Receiver trusts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OidcProvider {
    /// The issuer.
    #[serde(rename = "issuerURL")]
    pub issuer_url: String,
    /// The audience of the token; `notification-controller` if empty.
    pub audience: String,
    /// Named expressions. Later expressions can use them.
    #[serde(deserialize_with = "nil")]
    pub variables: Vec<OidcVariable>,
    /// Expressions that have to be true.
    #[serde(deserialize_with = "nil")]
    pub validations: Vec<OidcValidation>,
}

/// An expression with a name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct OidcVariable {
    /// The name of the variable.
    pub name: String,
    /// The expression.
    pub expression: String,
}

/// An expression that has to be true.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct OidcValidation {
    /// The expression.
    pub expression: String,
    /// The message if the expression is false.
    pub message: String,
}

/// The spec of a Receiver.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReceiverSpec {
    /// The type, which names the sender.
    pub r#type: String,
    /// The kinds of events that are accepted; empty for all.
    #[serde(deserialize_with = "nil")]
    pub events: Vec<String>,
    /// The objects.
    #[serde(deserialize_with = "nil")]
    pub resources: Vec<EventSourceSelector>,
    /// An expression for all objects.
    pub resource_filter: String,
    /// The Secret with the token.
    pub secret_ref: Option<NameReference>,
    /// Trusted issuers.
    #[serde(deserialize_with = "nil")]
    pub oidc_providers: Vec<OidcProvider>,
    /// Whether the Receiver is suspended and accepts no requests.
    pub suspend: bool,
}

/// A Receiver.
#[derive(Debug, Clone, Default)]
pub struct Receiver {
    /// The metadata of the Receiver.
    pub metadata: ApiObjectMetadata,
    /// The spec of the Receiver.
    pub spec: ReceiverSpec,
    /// The path in the Receiver's status. Requests are matched by this path.
    pub path: String,
    /// Whether the Receiver's conditions say that it is ready.
    pub is_ready: bool,
}

impl Receiver {
    /// Reads a Receiver.
    ///
    /// # Errors
    /// If a member has another type than in the definition.
    pub fn new(object: &Value) -> Result<Self, crate::UnreadableObjectError> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct ReceiverParts {
            metadata: ApiObjectMetadata,
            spec: ReceiverSpec,
        }
        let ReceiverParts { metadata, spec } = ReceiverParts::deserialize(object)?;
        let path = object.pointer("/status/webhookPath").and_then(Value::as_str);
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        let is_true = |kind: &str| {
            conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == "True")
        };
        let is_ready = is_true("Ready") && !is_true("Reconciling") && !is_true("Stalled");
        Ok(Self { metadata, spec, path: path.unwrap_or_default().to_owned(), is_ready })
    }
}

/// The path of a Receiver, computed from its token. The token is empty for types without one.
pub fn path(token: &[u8], name: &str, namespace: &str) -> String {
    let digest = Sha256::new_with_prefix(token).chain_update(name).chain_update(namespace);
    format!("{PATH}{}", hex::encode(digest.finalize()))
}

/// Whether a token is empty or blank. A sender who knows the name of the Receiver could then compute its path and forge its
/// HMAC.
fn is_blank(token: &[u8]) -> bool {
    token.trim_ascii().is_empty()
}

/// A request of a webhook.
#[derive(Debug, Clone, Default)]
pub struct ReceiverWebhookRequest {
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// The body, at most [`MAX_BODY`] bytes.
    pub body: Vec<u8>,
}

impl ReceiverWebhookRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// The settings that hold for all Receivers.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReceiverControllerSettings {
    /// Whether objects of other namespaces are out of reach.
    pub no_cross_namespace: bool,
    /// Whether an empty token is allowed and disables the check of a signature or header, as in Flux.
    ///
    /// Differs(flux): by default a Receiver with such a token takes no requests, because it would accept those of every sender.
    pub allows_empty_token: bool,
    /// Seconds since 1970.
    pub now: i64,
}

/// The content of an accepted request, which filters may read.
#[derive(Debug)]
pub struct AcceptedHookRequest {
    /// The body for filters.
    body: Vec<u8>,
    /// Whether filters read the body.
    is_json: bool,
    /// The claims of the token, if there is one.
    claims: Option<Map<String, Value>>,
}

/// The next step for a request.
#[derive(Debug)]
pub enum ReceiverRequestStep {
    /// Keys must be fetched. [`WebhookAuthentication::answer`] takes the response.
    Fetch(Box<ProviderRequest>),
    /// The status of the answer, and why. The reason is for logs.
    Refused(u16, String),
    /// The request is accepted.
    Accepted(AcceptedHookRequest),
}
