//! Verifies JWTs from an OIDC issuer, whose keys are fetched.
//!
//! Elsewhere: reading a JWT and checking its signature (`json_web_token_signature.rs`).
//! Source of the semantics: coreos/go-oidc 3.18.0, Google's `idtoken`.

use std::sync::Arc;

use gocel::{CelExpression, READING};
use golang::work_meter::{StopSignal, WorkMeter};
use serde_json::{Map, Value};

use super::authenticate::AuthenticationStep;
use super::resource_selection::doubles;
use super::{
    AcceptedHookRequest, EVALUATING, OidcProvider, OidcValidation, OidcVariable,
    ReceiverWebhookRequest,
};
use crate::event_delivery::{HttpResponse, ProviderRequest};
use crate::json_web_token_signature::UnverifiedJwt;

const AUDIENCE: &str = "notification-controller";
const GOOGLE_KEYS: &str = "https://www.googleapis.com/oauth2/v3/certs";
const GOOGLE_EC_KEYS: &str = "https://www.gstatic.com/iap/verify/public_key-jwk";
/// The most keys of an issuer that are tried for a signature.
const MOST_KEYS: usize = 100;
/// How far the issuer's clock may be ahead, in seconds, before a token is rejected as not yet valid.
const CLOCK_LEEWAY_SECONDS: i64 = 300;

/// The keys of an answer.
fn keys(answer: Result<HttpResponse, String>) -> Result<Vec<Value>, String> {
    let body = body(answer)?;
    Ok(body.get("keys").and_then(Value::as_array).cloned().unwrap_or_default())
}

fn body(answer: Result<HttpResponse, String>) -> Result<Value, String> {
    let answer = answer?;
    if answer.status != 200 {
        return Err(format!("{}: {}", answer.status_line(), answer.text()));
    }
    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
}

fn bearer(hook: &ReceiverWebhookRequest) -> Result<&str, String> {
    let header = hook.header("Authorization").strip_prefix("Bearer ");
    header.ok_or_else(|| "the Authorization header is missing or malformed".to_owned())
}

fn fetch(
    url: impl Into<String>,
    then: impl FnOnce(Result<HttpResponse, String>) -> AuthenticationStep + Send + 'static,
) -> AuthenticationStep {
    AuthenticationStep::Fetch(Box::new(ProviderRequest::new("GET", url)), Box::new(then))
}

/// A token of Google for this audience and service account.
pub(super) fn google(
    hook: ReceiverWebhookRequest,
    email: String,
    audience: String,
    now: i64,
    then: impl FnOnce(ReceiverWebhookRequest) -> AuthenticationStep + Send + 'static,
) -> AuthenticationStep {
    let refuse = |reason: String| {
        AuthenticationStep::Refused(format!("cannot authenticate GCR request: {reason}"))
    };
    let jwt = match bearer(&hook).and_then(UnverifiedJwt::parse) {
        Ok(jwt) => jwt,
        Err(error) => return refuse(error),
    };
    if jwt.text("aud") != audience {
        let got = jwt.text("aud");
        return refuse(format!("invalid ID token: audience is '{got}', want '{audience}'"));
    }
    if jwt.time("exp").unwrap_or_default() < now {
        return refuse("invalid ID token: token expired".to_owned());
    }
    let url = match &*jwt.algorithm {
        "RS256" => GOOGLE_KEYS,
        "ES256" => GOOGLE_EC_KEYS,
        other => {
            return refuse(format!(
                "expected JWT signed with RS256 or ES256 but found \"{other}\""
            ));
        }
    };
    fetch(url, move |answer| {
        let checked = keys(answer).and_then(|keys| {
            let key = keys.iter().find(|key| key["kid"] == *jwt.key);
            let key = key.ok_or("could not find matching cert keyId for the token provided")?;
            if !jwt.is_signed_by(key) {
                return Err("invalid ID token: its signature does not match".to_owned());
            }
            let issuer = jwt.text("iss");
            if !matches!(issuer, "accounts.google.com" | "https://accounts.google.com") {
                return Err(format!("token issuer is '{issuer}', want 'accounts.google.com'"));
            }
            if jwt.text("email") != email {
                return Err(format!("token email is '{}', want '{email}'", jwt.text("email")));
            }
            if jwt.claims.get("email_verified") != Some(&Value::Bool(true)) {
                return Err(format!("token email '{email}' is not verified"));
            }
            Ok(())
        });
        match checked {
            Ok(()) => then(hook),
            Err(error) => {
                AuthenticationStep::Refused(format!("cannot authenticate GCR request: {error}"))
            }
        }
    })
}

/// Verifies a token of an issuer that the Receiver trusts.
pub(super) fn oidc(
    hook: ReceiverWebhookRequest,
    providers: &[OidcProvider],
    now: i64,
) -> AuthenticationStep {
    if providers.is_empty() {
        return AuthenticationStep::Refused(
            "generic-oidc receiver has no oidcProviders configured".to_owned(),
        );
    }
    let jwt = match bearer(&hook).and_then(|token| UnverifiedJwt::parse(token.trim())) {
        Ok(jwt) => jwt,
        Err(error) => {
            return AuthenticationStep::Refused(format!("failed to parse bearer token: {error}"));
        }
    };
    let issuer = jwt.text("iss");
    let Some(provider) = providers.iter().find(|it| !issuer.is_empty() && it.issuer_url == issuer)
    else {
        return AuthenticationStep::Refused(format!(
            "no oidcProvider configured for issuer \"{issuer}\""
        ));
    };
    let provider = Arc::new(provider.clone());
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    fetch(url, move |answer| {
        let discovery = body(answer).and_then(|found| {
            if found["issuer"] == *provider.issuer_url {
                Ok(found)
            } else {
                Err("issuer did not match".to_owned())
            }
        });
        let discovery = match discovery {
            Ok(discovery) => discovery,
            Err(error) => {
                return AuthenticationStep::Refused(format!(
                    "failed to initialize OIDC provider: {error}"
                ));
            }
        };
        if let Err(error) = current(&jwt, &provider, &discovery, now) {
            return AuthenticationStep::Refused(format!("failed to verify OIDC token: {error}"));
        }
        let keys_url = discovery["jwks_uri"].as_str().unwrap_or_default().to_owned();
        fetch(keys_url, move |answer| verified(hook, jwt, &provider, answer).into())
    })
}

/// Whether a token is for this audience, now, and signed in a way that the issuer names.
fn current(
    jwt: &UnverifiedJwt,
    provider: &OidcProvider,
    discovery: &Value,
    now: i64,
) -> Result<(), String> {
    let audience = if provider.audience.is_empty() { AUDIENCE } else { &provider.audience };
    let is_for = match jwt.claims.get("aud") {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(all)) => all.iter().any(|one| one == audience),
        _ => false,
    };
    if !is_for {
        return Err(format!("oidc: expected audience \"{audience}\""));
    }
    if jwt.time("exp").unwrap_or_default() < now {
        return Err("oidc: token is expired".to_owned());
    }
    if jwt.time("nbf").is_some_and(|begin| now + CLOCK_LEEWAY_SECONDS < begin) {
        return Err("oidc: current time before the nbf (not before) time".to_owned());
    }
    let named = discovery["id_token_signing_alg_values_supported"].as_array();
    let named: Vec<_> = named.into_iter().flatten().filter_map(Value::as_str).collect();
    let is_named =
        if named.is_empty() { jwt.algorithm == "RS256" } else { named.contains(&&*jwt.algorithm) };
    if !is_named {
        return Err(format!(
            "oidc: malformed jwt: unexpected signature algorithm \"{}\"",
            jwt.algorithm
        ));
    }
    Ok(())
}

fn verified(
    hook: ReceiverWebhookRequest,
    jwt: UnverifiedJwt,
    provider: &OidcProvider,
    answer: Result<HttpResponse, String>,
) -> Result<AcceptedHookRequest, String> {
    let unverified = |error: &str| format!("failed to verify OIDC token: {error}");
    let keys = keys(answer).map_err(|error| unverified(&format!("fetching keys {error}")))?;
    let is_its = |key: &&Value| jwt.key.is_empty() || key["kid"] == *jwt.key;
    if !keys.iter().filter(is_its).take(MOST_KEYS).any(|key| jwt.is_signed_by(key)) {
        return Err(unverified("failed to verify signature: failed to verify id token signature"));
    }
    let mut claims = Value::Object(jwt.claims);
    doubles(&mut claims);
    evaluate(provider, &claims)?;
    let Value::Object(claims) = claims else { return Err("the claims are no object".to_owned()) };
    Ok(AcceptedHookRequest { claims: Some(claims), ..AcceptedHookRequest::of(hook) })
}

/// An expression with the name of its variable, or with the message of its validation.
type NamedExpression<'a> = (&'a str, CelExpression);

/// Reads all expressions of an issuer, variables and validations, at the cost of a run.
///
/// # Errors
/// Flux's message for the first that is not valid.
pub(super) fn compile<'a>(
    provider: &'a OidcProvider,
    run: &mut WorkMeter,
) -> Result<(Vec<NamedExpression<'a>>, Vec<NamedExpression<'a>>), String> {
    let scope = ["claims", "vars"];
    let mut variables = Vec::new();
    for OidcVariable { name, expression } in &provider.variables {
        let read = CelExpression::compile_any_within(expression, &scope, run);
        let read =
            read.map_err(|error| format!("invalid expression for variable \"{name}\": {error}"))?;
        variables.push((&**name, read));
    }
    let mut validations = Vec::new();
    for OidcValidation { expression, message } in &provider.validations {
        let read = CelExpression::compile_within(expression, &scope, run);
        let read = read
            .map_err(|error| format!("invalid expression for validation \"{message}\": {error}"))?;
        validations.push((&**message, read));
    }
    Ok((variables, validations))
}

fn evaluate(provider: &OidcProvider, claims: &Value) -> Result<(), String> {
    let reading = &mut WorkMeter::new(READING, StopSignal::default());
    let run = &mut WorkMeter::new(EVALUATING, StopSignal::default());
    let (variables, validations) = compile(provider, reading).map_err(|error| {
        format!(
            "invalid oidcProvider configuration for issuer \"{}\": {error}",
            provider.issuer_url
        )
    })?;
    let mut known = Value::Object(Map::new());
    for (name, expression) in variables {
        let value = expression
            .evaluate_json_within(&[("claims", claims), ("vars", &known)], run)
            .map_err(|error| format!("failed to evaluate variable \"{name}\": {error}"))?;
        if let Some(members) = known.as_object_mut() {
            members.insert(name.to_owned(), value);
        }
    }
    let mut failures = Vec::new();
    for (message, expression) in validations {
        let holds = expression
            .evaluate_bool_within(&[("claims", claims), ("vars", &known)], run)
            .map_err(|error| format!("failed to evaluate validation: {error}"))?;
        if !holds {
            failures.push(message);
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("token validation failed: {}", failures.join("; ")))
}
