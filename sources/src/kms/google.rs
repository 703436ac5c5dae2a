//! Google Cloud KMS: `cryptoKeys:decrypt` by its REST interface.
//!
//! Elsewhere: logins (`bucket::google`). The semantics are those of sops's `gcpkms`.

use std::env;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object_store::gcp::GcpCredentialProvider;
use objects::RedactedValue;
use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{
    DataKey, IDENTITY, KmsFailureReason, KmsSession, authorize, encrypted, no_login, request,
};
use crate::bucket::cloud_login;
use crate::bucket::google::{GoogleCredentialSource, provider};
use crate::bucket::http_request::{is_relative, segment};
use crate::bucket::request_context::printable;

/// The entry of the Secret.
const ENTRY: &str = "sops.gcp-kms";

/// The variable with the endpoint of the service, as for sops.
const ENDPOINT: &str = "SOPS_GCP_KMS_ENDPOINT";

/// The token provider, once it is known.
pub(super) type GoogleTokenProvider = Option<RedactedValue<GcpCredentialProvider>>;

#[derive(Deserialize)]
struct GoogleDecryptResponse {
    plaintext: String,
}

#[derive(Deserialize)]
struct GoogleKmsErrorBody {
    error: GoogleErrorDetail,
}

#[derive(Deserialize)]
struct GoogleErrorDetail {
    message: String,
}

/// The URL of the action on a key.
fn url(resource: &str) -> Result<Url, KmsFailureReason> {
    let parts: Vec<&str> = resource.split('/').collect();
    let is_key =
        matches!(parts.as_slice(), ["projects", _, "locations", _, "keyRings", _, "cryptoKeys", _])
            && !is_relative(resource)
            && parts.iter().all(|part| !part.is_empty());
    if !is_key {
        let resource = printable(resource);
        return Err(KmsFailureReason::BadKey(format!(
            "`{resource}` is not the resource id of a KMS key"
        )));
    }
    let base = match env::var(ENDPOINT).ok().filter(|it| !it.is_empty()) {
        Some(place) if place.contains("://") => place,
        Some(place) => format!("https://{place}"),
        None => "https://cloudkms.googleapis.com".to_owned(),
    };
    let path: Vec<String> = parts.into_iter().map(segment).collect();
    let url = Url::parse(&format!("{}/v1/{}:decrypt", base.trim_end_matches('/'), path.join("/")));
    url.map_err(|error| {
        KmsFailureReason::Login(format!("environment variable {ENDPOINT}: {error}"))
    })
}

pub(super) async fn decrypt(
    session: &mut KmsSession<'_>,
    resource: &str,
    text: &str,
) -> Result<DataKey, KmsFailureReason> {
    let ciphertext = STANDARD.encode(encrypted(text, &STANDARD)?);
    let mut request =
        request(Method::POST, url(resource)?, json!({"ciphertext": ciphertext}).to_string().into());
    let token = token(session).await?;
    if !token.expose().is_empty() {
        authorize(&mut request, AUTHORIZATION, format!("Bearer {}", token.expose()).as_bytes())?;
    }
    let answer = session.wire.send(request).await?;
    if answer.is_success() {
        return answer.data_key(|read: GoogleDecryptResponse| read.plaintext, &STANDARD);
    }
    let said = serde_json::from_slice::<GoogleKmsErrorBody>(&answer.body);
    let said = said.map(|refusal| refusal.error.message).unwrap_or_default();
    let advice = match answer.status {
        401 | 403 => "; check that its credentials allow `cloudkms.cryptoKeyVersions.useToDecrypt`",
        _ => "",
    };
    Err(answer.refused(&said, &[token.expose().as_str()], advice.to_owned()))
}

/// A token for the service. Empty if a key disables tokens.
async fn token(session: &mut KmsSession<'_>) -> Result<RedactedValue<String>, KmsFailureReason> {
    if session.google.is_none() {
        let identity = match &session.credentials.gcp_kms {
            Some(key) => {
                let key = String::from_utf8_lossy(key.trim_ascii()).into_owned();
                GoogleCredentialSource::ServiceAccount(RedactedValue::new(key))
            }
            None => {
                session.own(IDENTITY, ENTRY)?;
                GoogleCredentialSource::Environment
            }
        };
        let egress = session.wire.budgets.egress();
        let waiting = &session.wire.waiting;
        let found = provider(&identity, egress, waiting).map_err(|why| no_login(why, ENTRY))?;
        session.google = found;
    }
    let tokens = session.google.as_ref().ok_or(KmsFailureReason::NoCredentials(ENTRY))?;
    let token = tokens.expose().get_credential().await;
    let token = token.map_err(|error| KmsFailureReason::Login(cloud_login::why(&error)))?;
    Ok(RedactedValue::new(token.bearer.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_id_leads_to_a_key_of_google_or_nowhere() {
        let key = "projects/p/locations/global/keyRings/r/cryptoKeys/k";
        let wanted = format!("https://cloudkms.googleapis.com/v1/{key}:decrypt");
        assert_eq!(url(key).unwrap().as_str(), wanted);
        for bad in [
            "",
            "projects/p/locations/global/keyRings/r/cryptoKeys/",
            "projects/../locations/global/keyRings/r/cryptoKeys/k",
            "projects/p/locations/global/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
            "https://evil.example/locations/global/keyRings/r/cryptoKeys/k",
        ] {
            let why = url(bad).unwrap_err().to_string();
            assert!(why.contains("is not the resource id of a KMS key"), "{bad}: {why}");
        }
        let odd = url("projects/p/locations/global/keyRings/r/cryptoKeys/k?x#y").unwrap();
        assert!(odd.as_str().ends_with("/k%3Fx%23y:decrypt"), "{odd}");
    }
}
