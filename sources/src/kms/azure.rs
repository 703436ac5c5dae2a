//! Azure Key Vault and managed HSMs: `decrypt` with RSA-OAEP-256.
//!
//! Elsewhere: logins (`bucket::azure`). The semantics are those of sops's `azkv`, credentials those of Flux's.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use object_store::azure::{AzureCredential, AzureCredentialProvider};
use objects::RedactedValue;
use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{
    DataKey, IDENTITY, KmsFailureReason, KmsSession, authorize, encrypted, no_login, request,
    server,
};
use crate::bucket::azure::{AzureCredentialSource, provider};
use crate::bucket::cloud_login;
use crate::bucket::http_request::{is_relative, segment};
use crate::bucket::request_context::printable;

/// The entry of the Secret.
const ENTRY: &str = "sops.azure-kv";

/// The version of the interface.
const VERSION: &str = "7.4";

/// The token providers by their audience.
pub(super) type AzureTokenProviders =
    BTreeMap<&'static str, RedactedValue<AzureCredentialProvider>>;

/// What the names of vaults end in, and what tokens for them are for.
///
/// Parity(flux): a token is for the domain of the vault, so that no other server gets one that is worth something.
const VAULTS: [(&str, &str); 7] = [
    (".vault.azure.net", "https://vault.azure.net"),
    (".vault.azure.cn", "https://vault.azure.cn"),
    (".vault.usgovcloudapi.net", "https://vault.usgovcloudapi.net"),
    (".vault.microsoftazure.de", "https://vault.microsoftazure.de"),
    (".managedhsm.azure.net", "https://managedhsm.azure.net"),
    (".managedhsm.azure.cn", "https://managedhsm.azure.cn"),
    (".managedhsm.usgovcloudapi.net", "https://managedhsm.usgovcloudapi.net"),
];

/// A key of a vault.
pub(super) struct AzureVaultKey {
    url: Url,
    audience: &'static str,
}

#[derive(Deserialize)]
struct AzureDecryptResponse {
    value: String,
}

#[derive(Deserialize)]
struct AzureKmsErrorBody {
    error: AzureErrorDetail,
}

#[derive(Deserialize)]
struct AzureErrorDetail {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl AzureVaultKey {
    /// Checks the parts of a key. The vault is always a server of Azure.
    pub(super) fn new(vault: &str, name: &str, version: &str) -> Result<Self, KmsFailureReason> {
        let bad = |what: &str, text: &str| {
            KmsFailureReason::BadKey(format!("`{}` is not {what}", printable(text)))
        };
        let of_azure = || bad("the URL of a vault of Azure", vault);
        let url = server(vault).filter(|url| url.scheme() == "https" && url.path() == "/");
        let url = url.ok_or_else(of_azure)?;
        let host = url.host_str().unwrap_or_default();
        let found = VAULTS.iter().find(|(end, _)| host.ends_with(end) && host.len() > end.len());
        let &(_, audience) = found.ok_or_else(of_azure)?;
        for part in [name, version] {
            if is_relative(part) || part.contains('/') {
                return Err(bad("the name or version of a key", part));
            }
        }
        let path = format!("/keys/{}/{}/decrypt", segment(name), segment(version));
        let mut url = url.join(&path).map_err(|_unread| of_azure())?;
        url.set_query(Some(&format!("api-version={VERSION}")));
        Ok(Self { url, audience })
    }
}

pub(super) async fn decrypt(
    session: &mut KmsSession<'_>,
    key: &AzureVaultKey,
    text: &str,
) -> Result<DataKey, KmsFailureReason> {
    let value = URL_SAFE_NO_PAD.encode(encrypted(text, &URL_SAFE_NO_PAD)?);
    let body = json!({"alg": "RSA-OAEP-256", "value": value}).to_string();
    let mut request = request(Method::POST, key.url.clone(), body.into());
    let (identity, secret) = identity(session)?;
    if !session.azure.contains_key(key.audience) {
        let egress = session.wire.budgets.egress();
        let waiting = &session.wire.waiting;
        let found = provider(&identity, Some(key.audience), egress, waiting);
        session.azure.insert(key.audience, found.map_err(|why| no_login(why, ENTRY))?);
    }
    let tokens = session.azure.get(key.audience).ok_or(KmsFailureReason::NoCredentials(ENTRY))?;
    let token = tokens.expose().get_credential().await.map_err(|error| {
        let why = cloud_login::why(&error);
        KmsFailureReason::Login(if secret.is_empty() { why } else { why.replace(&secret, "****") })
    })?;
    let AzureCredential::BearerToken(token) = &*token else {
        return Err(KmsFailureReason::NoCredentials(ENTRY));
    };
    authorize(&mut request, AUTHORIZATION, format!("Bearer {token}").as_bytes())?;
    let answer = session.wire.send(request).await?;
    if answer.is_success() {
        return answer.data_key(|read: AzureDecryptResponse| read.value, &URL_SAFE_NO_PAD);
    }
    let said =
        serde_json::from_slice::<AzureKmsErrorBody>(&answer.body).map(|refusal| refusal.error);
    let said = said
        .map(|AzureErrorDetail { code, message }| [code, message].join(" "))
        .unwrap_or_default();
    // The lines below the first differ each time.
    let said = said.lines().next().unwrap_or_default();
    let advice = match answer.status {
        401 | 403 => "; check that its credentials allow `keys/decrypt` in the vault",
        _ => "",
    };
    Err(answer.refused(said, &[token.as_str(), secret.as_str()], advice.to_owned()))
}

/// The credentials for vaults, and their secret.
///
/// Parity(flux): the first of these that the Secret has: an application with a secret, one as the command line of Azure
/// writes it, a managed identity.
fn identity(session: &KmsSession<'_>) -> Result<(AzureCredentialSource, String), KmsFailureReason> {
    let Some(text) = &session.credentials.azure_kv else {
        session.own(IDENTITY, ENTRY)?;
        return Ok((AzureCredentialSource::Environment { client: None }, String::new()));
    };
    let bad =
        |problem: &str| KmsFailureReason::BadSecret { entry: ENTRY, problem: problem.to_owned() };
    let read = goyaml::to_json(text).unwrap_or_default();
    let member = |name: &str| {
        read.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let authority = member("authorityHost").map(|url| Url::parse(&url)).transpose();
    let authority = authority.map_err(|_unread| bad("`authorityHost` is not a URL"))?;
    let application = |tenant, client, secret: String| {
        let shown = secret.clone();
        let secret = RedactedValue::new(secret);
        let authority = authority.clone();
        Ok((AzureCredentialSource::Application { tenant, client, secret, authority }, shown))
    };
    if let (Some(tenant), Some(client)) = (member("tenantId"), member("clientId")) {
        if let Some(secret) = member("clientSecret") {
            return application(tenant, client, secret);
        }
        if member("clientCertificate").is_some() {
            return Err(bad("`clientCertificate` is not supported; use `clientSecret`"));
        }
    }
    let of_az = (member("tenant"), member("appId"), member("password"));
    if let (Some(tenant), Some(client), Some(secret)) = of_az {
        return application(tenant, client, secret);
    }
    let client = member("clientId").ok_or_else(|| bad("it has no `clientId`"))?;
    // A managed identity belongs to the machine, so a Secret may not choose it without permission.
    session.own("a managed identity of windlass's machine", ENTRY)?;
    Ok((AzureCredentialSource::Environment { client: Some(client) }, String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_to_vaults_of_azure_only() {
        let key = AzureVaultKey::new("https://shop.vault.azure.net/", "sops", "v1").ok().unwrap();
        let url = "https://shop.vault.azure.net/keys/sops/v1/decrypt?api-version=7.4";
        assert_eq!((key.url.as_str(), key.audience), (url, "https://vault.azure.net"));
        let hsm =
            AzureVaultKey::new("https://shop.managedhsm.azure.cn", "sops", "v1").ok().unwrap();
        assert_eq!(hsm.audience, "https://managedhsm.azure.cn");
        for (vault, name, version) in [
            ("http://shop.vault.azure.net", "k", "1"),
            ("https://shop.vault.azure.net.evil.example", "k", "1"),
            ("https://evil.example/.vault.azure.net", "k", "1"),
            ("https://.vault.azure.net", "k", "1"),
            ("https://shop.vault.azure.net@evil.example", "k", "1"),
            ("https://shop.vault.azure.net/secrets", "k", "1"),
            ("https://shop.vault.azure.net", "../secrets", "1"),
            ("https://shop.vault.azure.net", "k", ".."),
            ("https://shop.vault.azure.net", "k", ""),
        ] {
            let why = AzureVaultKey::new(vault, name, version).err().unwrap().to_string();
            assert!(why.contains(" is not the "), "{vault} {name} {version}: {why}");
        }
    }
}
