//! Tokens of Google and Azure for services other than sources. They are requested with the key in a Secret, or without one
//! with the credentials of the environment.
//!
//! Elsewhere: where tokens come from (`bucket::google`, `bucket::azure`), logins of buckets and of keys that decrypt.

use http_client::EgressRules;
use object_store::azure::AzureCredential;
use objects::RedactedValue;

use crate::bucket::cloud_login::{self, NoTokenProviderError};
use crate::bucket::credential_request_tracker::CredentialRequestTracker;
use crate::bucket::{azure, google};

/// Requests a token for all services of Google. It uses the JSON key of a service account, or without one the credentials of
/// the environment (`GOOGLE_APPLICATION_CREDENTIALS`, `gcloud`, the machine).
///
/// # Errors
/// The reason why there is no token, and whether another attempt may help. The text does not contain the key.
pub async fn google(
    key: Option<RedactedValue<String>>,
    egress: &EgressRules,
) -> Result<RedactedValue<String>, (String, bool)> {
    let identity = key.map_or(
        google::GoogleCredentialSource::Environment,
        google::GoogleCredentialSource::ServiceAccount,
    );
    let provider = google::provider(&identity, egress, &CredentialRequestTracker::default())
        .map_err(missing)?;
    let provider = provider.ok_or_else(|| ("no credentials".to_owned(), false))?;
    let token = provider
        .expose()
        .get_credential()
        .await
        .map_err(|error| (cloud_login::why(&error), true))?;
    Ok(RedactedValue::new(token.bearer.clone()))
}

/// Requests a token for an Azure service, with the credentials of the environment (workload identity, a managed identity,
/// `AZURE_CLIENT_SECRET`). `audience` is the URL of all resources of the service.
///
/// # Errors
/// The reason why there is no token, and whether another attempt may help.
pub async fn azure(
    audience: &'static str,
    egress: &EgressRules,
) -> Result<RedactedValue<String>, (String, bool)> {
    let identity = azure::AzureCredentialSource::Environment { client: None };
    let provider =
        azure::provider(&identity, Some(audience), egress, &CredentialRequestTracker::default());
    let provider = provider.map_err(missing)?;
    let token = provider
        .expose()
        .get_credential()
        .await
        .map_err(|error| (cloud_login::why(&error), true))?;
    match &*token {
        AzureCredential::BearerToken(token) => Ok(RedactedValue::new(token.clone())),
        _ => Err(("the environment has no identity that gets tokens".to_owned(), false)),
    }
}

fn missing(why: NoTokenProviderError) -> (String, bool) {
    match why {
        NoTokenProviderError::Secret(why) => (format!("the key in the Secret {why}"), false),
        NoTokenProviderError::Environment(why) => (why, true),
        NoTokenProviderError::Client(error) => (error.to_string(), true),
    }
}
