//! Checks the spec of a Receiver.

use gocel::{CelExpression, READING};
use golang::work_meter::{StopSignal, WorkMeter};

use super::resource_selection::out_of_reach;
use super::{OidcProvider, Receiver, is_blank, is_within_reach, oidc_token, path, too_many};
use crate::api_objects::SecretData;

/// The problem of a Receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverSpecError {
    /// The spec must be changed. The values are the reason of the condition, and the message.
    Terminal(&'static str, String),
    /// The token cannot be read yet.
    TokenNotFound(String),
}

/// The path of a Receiver with a valid spec.
///
/// # Errors
/// The first problem. Expressions are checked first, then issuers, then the token.
pub fn check(
    receiver: &Receiver,
    secret: Option<&SecretData>,
) -> Result<String, ReceiverSpecError> {
    const EXPRESSION: &str = "InvalidCELExpression";
    const VALIDATION: &str = "ValidationFailed";
    if let Some(error) = too_many(receiver) {
        return Err(ReceiverSpecError::Terminal(VALIDATION, error));
    }
    // All expressions of an object share one allowance for reading them.
    let run = &mut WorkMeter::new(READING, StopSignal::default());
    filters(receiver, run).map_err(|error| ReceiverSpecError::Terminal(EXPRESSION, error))?;
    kinds(receiver).map_err(|error| ReceiverSpecError::Terminal(VALIDATION, error))?;
    let providers = &receiver.spec.oidc_providers;
    issuers(providers).map_err(|error| ReceiverSpecError::Terminal(VALIDATION, error))?;
    for (at, provider) in providers.iter().enumerate() {
        oidc_token::compile(provider, run).map_err(|error| {
            let shown = issuer(at, provider);
            ReceiverSpecError::Terminal(EXPRESSION, format!("{shown}: {error}"))
        })?;
    }
    let key = key(receiver, secret).map_err(ReceiverSpecError::TokenNotFound)?;
    Ok(path(&key, &receiver.metadata.name, &receiver.metadata.namespace))
}

fn is_oidc(receiver: &Receiver) -> bool {
    receiver.spec.r#type == "generic-oidc"
}

fn filters(receiver: &Receiver, run: &mut WorkMeter) -> Result<(), String> {
    let scope: &[&str] =
        if is_oidc(receiver) { &["res", "req", "claims"] } else { &["res", "req"] };
    let spec = &receiver.spec;
    if !spec.resource_filter.is_empty() {
        CelExpression::compile_within(&spec.resource_filter, scope, run)
            .map_err(|error| format!("invalid resourceFilter expression: {error}"))?;
    }
    for (at, resource) in spec.resources.iter().enumerate().filter(|(_, it)| !it.filter.is_empty())
    {
        CelExpression::compile_within(&resource.filter, scope, run).map_err(|error| {
            format!(
                "invalid filter expression for resources[{at}] (kind=\"{}\", name=\"{}\"): {error}",
                resource.kind, resource.name
            )
        })?;
    }
    Ok(())
}

fn kinds(receiver: &Receiver) -> Result<(), String> {
    let spec = &receiver.spec;
    let has_secret = spec.secret_ref.is_some();
    let has_issuers = !spec.oidc_providers.is_empty();
    let reason = match (is_oidc(receiver), has_secret, has_issuers) {
        (true, true, _) => "secretRef cannot be set when type is generic-oidc",
        (true, false, false) => {
            "oidcProviders must have at least one entry when type is generic-oidc"
        }
        (false, _, true) => "oidcProviders can only be set when type is generic-oidc",
        (false, false, false) => "secretRef is required when type is not generic-oidc",
        _ => {
            let mut named = spec.resources.iter().enumerate();
            let stray = named
                .find(|(_, it)| !it.api_version.is_empty() && !is_within_reach(&it.api_version));
            let Some((at, it)) = stray else { return Ok(()) };
            let why = out_of_reach(&it.api_version, &it.kind);
            return Err(format!("resources[{at}]: {why}"));
        }
    };
    Err(reason.to_owned())
}

fn issuer(at: usize, provider: &OidcProvider) -> String {
    format!("oidcProviders[{at}] (issuerURL=\"{}\")", provider.issuer_url)
}

fn issuers(providers: &[OidcProvider]) -> Result<(), String> {
    for (at, provider) in providers.iter().enumerate() {
        let url = &provider.issuer_url;
        let refuse = |reason: String| Err(format!("oidcProviders[{at}]: {reason}"));
        if url.is_empty() {
            return refuse("issuerURL is required".to_owned());
        }
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return refuse(format!("issuerURL \"{url}\" must start with http:// or https://"));
        }
        if providers.iter().take(at).any(|known| known.issuer_url == *url) {
            return refuse(format!("duplicate issuerURL \"{url}\""));
        }
        expressions(provider).map_err(|error| format!("{}: {error}", issuer(at, provider)))?;
    }
    Ok(())
}

fn expressions(provider: &OidcProvider) -> Result<(), String> {
    if provider.validations.is_empty() {
        return Err("at least one validation is required; without validations any caller able to \
                    obtain a token from this issuer can trigger the Receiver"
            .to_owned());
    }
    for (at, variable) in provider.variables.iter().enumerate() {
        if variable.name.is_empty() {
            return Err(format!("variables[{at}]: name is required"));
        }
        if variable.expression.is_empty() {
            let name = &variable.name;
            return Err(format!("variables[{at}] (name=\"{name}\"): expression is required"));
        }
    }
    for (at, validation) in provider.validations.iter().enumerate() {
        if validation.expression.is_empty() {
            return Err(format!("validations[{at}]: expression is required"));
        }
        if validation.message.is_empty() {
            return Err(format!("validations[{at}]: message is required"));
        }
    }
    Ok(())
}

fn key(receiver: &Receiver, secret: Option<&SecretData>) -> Result<Vec<u8>, String> {
    let Some(reference) = &receiver.spec.secret_ref else { return Ok(Vec::new()) };
    let name = format!("{}/{}", receiver.metadata.namespace, reference.name);
    let secret = secret.ok_or_else(|| {
        let missing = format!("secrets \"{}\" not found", reference.name);
        format!("unable to read token from secret '{name}' error: {missing}")
    })?;
    let token = secret.bytes("token");
    let token =
        token.ok_or_else(|| format!("invalid '{name}' secret data: required fields 'token'"))?;
    if is_blank(token) {
        return Err(format!("invalid '{name}' secret data: field 'token' is empty"));
    }
    Ok(token.to_vec())
}
