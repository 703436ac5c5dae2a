//! The identities for Google and Azure, from the keys that Flux reads in a Secret.

use crds::source::BucketSpec;
use objects::RedactedValue;
use reconcile::RunOutcome;
use sources::bucket::{BucketEndpoint, azure, google};
use url::Url;

use super::{BucketSecretData, name_of_secret, text, unusable};

/// Without a Secret Google's own hosts get the credentials of windlass itself, and others are accessed anonymously.
///
/// Differs(flux): there those are sent to Google without regard to the endpoint; here the endpoint counts, so that the
/// author of a spec cannot have the token of windlass sent to another server.
pub(super) fn google(
    spec: &BucketSpec,
    endpoint: &BucketEndpoint,
    secret: Option<&BucketSecretData>,
) -> Result<google::GoogleCredentialSource, RunOutcome> {
    let Some(data) = secret else {
        return Ok(match endpoint.is_google() {
            true => google::GoogleCredentialSource::Environment,
            false => google::GoogleCredentialSource::Anonymous,
        });
    };
    let key = text(data, "serviceaccount").ok_or_else(|| {
        let name = name_of_secret(spec);
        unusable(format!("invalid '{name}' secret data: required fields 'serviceaccount'"))
    })?;
    Ok(google::GoogleCredentialSource::ServiceAccount(RedactedValue::new(key.to_owned())))
}

/// Without a Secret Azure's own hosts get the credentials of windlass itself, and others are accessed anonymously.
///
/// Parity(flux): the first of these that the Secret has: an application, a managed identity, the key of the account, a
/// signature.
pub(super) fn azure(
    spec: &BucketSpec,
    endpoint: &BucketEndpoint,
    secret: Option<&BucketSecretData>,
) -> Result<azure::AzureCredentialSource, RunOutcome> {
    let Some(data) = secret else {
        return Ok(match endpoint.is_azure() {
            true => azure::AzureCredentialSource::Environment { client: None },
            false => azure::AzureCredentialSource::Anonymous,
        });
    };
    let invalid =
        |why: &str| unusable(format!("invalid '{}' secret data: {why}", name_of_secret(spec)));
    let get = |key: &str| text(data, key).filter(|value| !value.is_empty());
    if let (Some(tenant), Some(client)) = (get("tenantId"), get("clientId")) {
        if let Some(secret) = get("clientSecret") {
            let authority = get("authorityHost").map(Url::parse).transpose();
            let authority =
                authority.map_err(|error| invalid(&format!("authorityHost: {error}")))?;
            return Ok(azure::AzureCredentialSource::Application {
                tenant: tenant.to_owned(),
                client: client.to_owned(),
                secret: RedactedValue::new(secret.to_owned()),
                authority,
            });
        }
        if get("clientCertificate").is_some() {
            return Err(invalid(
                "'clientCertificate' is not supported; use 'clientSecret', 'accountKey' or 'sasKey'",
            ));
        }
    }
    if let Some(client) = get("clientId") {
        if !endpoint.is_azure() {
            return Err(invalid(
                "'clientId' alone selects a managed identity, which is used for Azure hosts only",
            ));
        }
        return Ok(azure::AzureCredentialSource::Environment { client: Some(client.to_owned()) });
    }
    if let Some(key) = get("accountKey") {
        let account = get("accountName").or_else(|| endpoint.account()).ok_or_else(|| {
            invalid(
                "'accountName' is missing, and spec.endpoint does not start with an account name",
            )
        })?;
        let account = account.trim().to_owned();
        let key = RedactedValue::new(key.to_owned());
        return Ok(azure::AzureCredentialSource::Key { account, key });
    }
    if let Some(signature) = get("sasKey") {
        return Ok(azure::AzureCredentialSource::Signature(RedactedValue::new(
            signature.to_owned(),
        )));
    }
    Err(invalid(
        "requires a 'clientId', 'accountKey' or 'sasKey' field, or a combination of 'tenantId', 'clientId' and \
         'clientSecret'",
    ))
}
