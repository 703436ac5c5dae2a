//! Authenticates requests by the type of the Receiver: tokens, signatures and the format of the body.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::payload::{PayloadValueType, first, fits, media_type, member, text, whole};
use super::{
    AcceptedHookRequest, Receiver, ReceiverControllerSettings, ReceiverRequestStep,
    ReceiverWebhookRequest, cdevents, is_blank, oidc_token,
};
use crate::api_objects::SecretData;
use crate::case_folding::equal_fold;
use crate::event_delivery::{HttpResponse, MessageSendResult, ProviderRequest};

const QUAY: PayloadValueType = PayloadValueType::Object(&[
    ("docker_url", PayloadValueType::Text),
    ("updated_tags", PayloadValueType::Strings),
]);
const DOCKER_HUB: PayloadValueType = PayloadValueType::Object(&[
    ("push_data", PayloadValueType::Object(&[("tag", PayloadValueType::Text)])),
    ("repository", PayloadValueType::Object(&[("repo_url", PayloadValueType::Text)])),
]);
const NEXUS: PayloadValueType = PayloadValueType::Object(&[
    ("action", PayloadValueType::Text),
    ("repositoryName", PayloadValueType::Text),
]);
const ACR: PayloadValueType = PayloadValueType::Object(&[
    ("action", PayloadValueType::Text),
    (
        "target",
        PayloadValueType::Object(&[
            ("repository", PayloadValueType::Text),
            ("tag", PayloadValueType::Text),
        ]),
    ),
]);
const GCR: PayloadValueType = PayloadValueType::Object(&[(
    "message",
    PayloadValueType::Object(&[
        ("data", PayloadValueType::Text),
        ("messageId", PayloadValueType::Text),
        ("publishTime", PayloadValueType::Time),
        ("subscription", PayloadValueType::Text),
    ]),
)]);
const GCR_DATA: PayloadValueType = PayloadValueType::Object(&[
    ("action", PayloadValueType::Text),
    ("digest", PayloadValueType::Text),
    ("tag", PayloadValueType::Text),
]);

/// The next step of authentication. A closure takes the response to a request.
pub(super) enum AuthenticationStep {
    Fetch(Box<ProviderRequest>, ResponseContinuation),
    Refused(String),
    Accepted(AcceptedHookRequest),
}

pub(super) type ResponseContinuation =
    Box<dyn FnOnce(Result<HttpResponse, String>) -> AuthenticationStep + Send>;

impl From<Result<AcceptedHookRequest, String>> for AuthenticationStep {
    fn from(result: Result<AcceptedHookRequest, String>) -> Self {
        match result {
            Ok(accepted) => Self::Accepted(accepted),
            Err(reason) => Self::Refused(reason),
        }
    }
}

/// A request on its way to a Receiver that was found by its path.
pub struct WebhookAuthentication {
    next: Option<ResponseContinuation>,
}

impl fmt::Debug for WebhookAuthentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookReception").field("waits", &self.next.is_some()).finish()
    }
}

impl WebhookAuthentication {
    /// Begins to authenticate a request. `secret` is the Receiver's Secret, if it can be read.
    pub fn start(
        hook: ReceiverWebhookRequest,
        receiver: &Receiver,
        secret: Option<&SecretData>,
        settings: ReceiverControllerSettings,
    ) -> (Self, ReceiverRequestStep) {
        if receiver.spec.suspend || !receiver.is_ready {
            let reason = if receiver.spec.suspend { "suspended" } else { "not ready" };
            let gate = ReceiverRequestStep::Refused(503, format!("the Receiver is {reason}"));
            return (Self { next: None }, gate);
        }
        let mut reception = Self { next: None };
        let gate = reception.settle(authenticate(hook, receiver, secret, settings));
        (reception, gate)
    }

    /// Continues with the answer to the request.
    pub fn answer(&mut self, outcome: MessageSendResult) -> ReceiverRequestStep {
        match self.next.take() {
            Some(then) => {
                let next = then(outcome.map_err(|(text, _)| text));
                self.settle(next)
            }
            None => ReceiverRequestStep::Refused(400, "nothing was asked for".to_owned()),
        }
    }

    fn settle(&mut self, next: AuthenticationStep) -> ReceiverRequestStep {
        match next {
            AuthenticationStep::Fetch(request, then) => {
                self.next = Some(then);
                ReceiverRequestStep::Fetch(request)
            }
            AuthenticationStep::Refused(reason) => ReceiverRequestStep::Refused(400, reason),
            AuthenticationStep::Accepted(accepted) => ReceiverRequestStep::Accepted(accepted),
        }
    }
}

impl AcceptedHookRequest {
    pub(super) fn of(hook: ReceiverWebhookRequest) -> Self {
        let is_json = is_json(hook.header("Content-Type"));
        Self { body: hook.body, is_json, claims: None }
    }
}

/// Whether one of the media types in a header is JSON. Media types after a malformed one are ignored.
fn is_json(header: &str) -> bool {
    let kinds = header.split(',').map(media_type).take_while(Option::is_some).flatten();
    kinds.into_iter().any(|kind| kind == "application/json")
}

fn authenticate(
    hook: ReceiverWebhookRequest,
    receiver: &Receiver,
    secret: Option<&SecretData>,
    settings: ReceiverControllerSettings,
) -> AuthenticationStep {
    let spec = &receiver.spec;
    let mut key = Vec::new();
    if let Some(reference) = &spec.secret_ref {
        let name = format!("{}/{}", receiver.metadata.namespace, reference.name);
        let Some(secret) = secret else {
            return AuthenticationStep::Refused(format!(
                "unable to read secret \"{name}\": it was not found"
            ));
        };
        match secret.bytes("token") {
            Some(token) if is_blank(token) && !settings.allows_empty_token => {
                return AuthenticationStep::Refused(format!(
                    "invalid \"{name}\" secret data: field 'token' is empty"
                ));
            }
            Some(token) => key = token.to_vec(),
            None => {
                let reason = "secret data: required field 'token'";
                return AuthenticationStep::Refused(format!("invalid \"{name}\" {reason}"));
            }
        }
    }
    match &*spec.r#type {
        "generic" => AuthenticationStep::Accepted(AcceptedHookRequest::of(hook)),
        "generic-oidc" => oidc_token::oidc(hook, &spec.oidc_providers, settings.now),
        "gcr" => match secret.filter(|_| spec.secret_ref.is_some()) {
            Some(secret) => gcr(hook, secret, settings.now),
            None => {
                AuthenticationStep::Refused("secretRef is required for GCR receivers".to_owned())
            }
        },
        kind => plain(hook, kind, &spec.events, &key).into(),
    }
}

/// The types that only need the request and a token.
fn plain(
    hook: ReceiverWebhookRequest,
    kind: &str,
    events: &[String],
    key: &[u8],
) -> Result<AcceptedHookRequest, String> {
    let allowed =
        |event: &str| match events.is_empty() || events.iter().any(|it| equal_fold(it, event)) {
            true => Ok(()),
            false => Err(format!("the event \"{event}\" is not authorised")),
        };
    match kind {
        "generic-hmac" => signature(hook.header("X-Signature"), &hook.body, key)?,
        "github" | "bitbucket" => {
            let hook = signed_form(hook, key)?;
            let header = if kind == "github" { "X-GitHub-Event" } else { "X-Event-Key" };
            allowed(hook.header(header))?;
            return Ok(AcceptedHookRequest::of(hook));
        }
        "gitlab" => {
            secret_header(hook.header("X-Gitlab-Token"), key)?;
            allowed(hook.header("X-Gitlab-Event"))?;
        }
        "harbor" => secret_header(hook.header("Authorization"), key)?,
        "cdevents" => {
            cdevents::check(&hook.body)?;
            allowed(hook.header("Ce-Type"))?;
        }
        "quay" => shaped(first(&hook.body)?, &QUAY)?,
        "dockerhub" => shaped(first(&hook.body)?, &DOCKER_HUB)?,
        "acr" => shaped(first(&hook.body)?, &ACR)?,
        "nexus" => {
            nexus_signature(hook.header("X-Nexus-Webhook-Signature"), &hook.body, key)?;
            shaped(whole(&hook.body)?, &NEXUS)?;
        }
        other => return Err(format!("receiver type \"{other}\" not supported")),
    }
    Ok(AcceptedHookRequest::of(hook))
}

fn shaped(value: Value, shape: &PayloadValueType) -> Result<(), String> {
    if fits(&value, shape) {
        return Ok(());
    }
    Err("cannot decode the payload: a member has another type than the webhook documents"
        .to_owned())
}

/// Compares a header with the token.
fn secret_header(header: &str, key: &[u8]) -> Result<(), String> {
    if verify_slices_are_equal(header.as_bytes(), key).is_ok() {
        return Ok(());
    }
    Err("the header with the token does not match the token of the Receiver".to_owned())
}

/// Checks a signature in GitHub's form: the algorithm, `=`, and hexadecimal digits.
fn signature(header: &str, body: &[u8], key: &[u8]) -> Result<(), String> {
    if header.is_empty() {
        return Err("missing signature".to_owned());
    }
    let (name, digits) =
        header.split_once('=').ok_or_else(|| format!("error parsing signature \"{header}\""))?;
    let algorithm = match name {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha512" => hmac::HMAC_SHA512,
        other => return Err(format!("unknown hash type prefix: \"{other}\"")),
    };
    let tag = hex::decode(digits)
        .map_err(|error| format!("error decoding signature \"{header}\": {error}"))?;
    hmac::verify(&hmac::Key::new(algorithm, key), body, &tag)
        .map_err(|_| "payload signature check failed".to_owned())
}

/// Checks the signature of a body that is JSON or a form. Filters get the JSON.
fn signed_form(
    mut hook: ReceiverWebhookRequest,
    key: &[u8],
) -> Result<ReceiverWebhookRequest, String> {
    let newer = hook.header("X-Hub-Signature-256");
    let header = if newer.is_empty() { hook.header("X-Hub-Signature") } else { newer }.to_owned();
    let kind = hook.header("Content-Type");
    let payload = match media_type(kind).as_deref() {
        Some("application/json") => None,
        Some("application/x-www-form-urlencoded") => Some(form_payload(&hook.body)?),
        _ => return Err(format!("webhook request has unsupported Content-Type \"{kind}\"")),
    };
    // Parity(flux): an empty token, where it is allowed, switches the check off.
    if !key.is_empty() {
        signature(&header, &hook.body, key)?;
    }
    if let Some(payload) = payload {
        hook.body = payload;
    }
    Ok(hook)
}

/// The member `payload` of a form.
fn form_payload(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut payload = None;
    for pair in body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let unescape = |text: &[u8]| {
            golang::url::query_unescape(text)
                .ok_or_else(|| "invalid URL escape in the form".to_owned())
        };
        if pair.contains(&b';') {
            return Err("invalid semicolon separator in query".to_owned());
        }
        let key = unescape(&pair[..at])?;
        let value = unescape(pair.get(at + 1..).unwrap_or_default())?;
        if key == b"payload" && payload.is_none() {
            payload = Some(value);
        }
    }
    Ok(payload.unwrap_or_default())
}

fn nexus_signature(header: &str, body: &[u8], key: &[u8]) -> Result<(), String> {
    if header.is_empty() {
        return Err("the Nexus signature is missing from header".to_owned());
    }
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    let wanted = hex::encode(hmac::sign(&key, body));
    verify_slices_are_equal(header.as_bytes(), wanted.as_bytes())
        .map_err(|_| "invalid Nexus signature".to_owned())
}

/// Authenticates a push from Pub/Sub: it has a token from Google, and a message in base 64.
fn gcr(hook: ReceiverWebhookRequest, secret: &SecretData, now: i64) -> AuthenticationStep {
    let field = |key: &str| {
        let found = secret.text(key).filter(|text| !text.is_empty());
        found.ok_or_else(|| format!("invalid secret data: required field '{key}' for GCR receiver"))
    };
    match field("email").and_then(|email| Ok((email, field("audience")?))) {
        Err(error) => AuthenticationStep::Refused(error),
        Ok((email, audience)) => {
            oidc_token::google(hook, email, audience, now, |hook| gcr_body(hook).into())
        }
    }
}

/// Replaces the body by the message in it, because filters check the message.
fn gcr_body(mut hook: ReceiverWebhookRequest) -> Result<AcceptedHookRequest, String> {
    let push = first(&hook.body)?;
    shaped(push.clone(), &GCR)?;
    let message = member(&push, "message").unwrap_or(&Value::Null);
    // Parity(flux): the text before an invalid character counts.
    let encoded: String =
        text(message, "data").chars().filter(|it| !matches!(it, '\r' | '\n')).collect();
    let data = decode(&encoded);
    let data = whole(&data).map_err(|error| format!("cannot decode GCR webhook body: {error}"))?;
    shaped(data.clone(), &GCR_DATA)?;
    let action = text(&data, "action");
    let digest = text(&data, "digest");
    let tag = text(&data, "tag");
    hook.body = json!({"action": action, "digest": digest, "tag": tag}).to_string().into_bytes();
    Ok(AcceptedHookRequest::of(hook))
}

/// Decodes base 64 up to the first invalid character.
fn decode(text: &str) -> Vec<u8> {
    if let Ok(bytes) = STANDARD.decode(text) {
        return bytes;
    }
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let good = text.bytes().take_while(is_digit).count() / 4 * 4;
    STANDARD.decode(&text[..good]).unwrap_or_default()
}
