//! Credentials of services. They are checked only as much as Flux checks them on import.

use std::fmt;

use serde_json::Value;
use zeroize::Zeroizing;

use crate::value::SecretBytes;

/// Credentials for services as the Secret has them. The implementation of a service parses them.
#[derive(Default)]
pub struct KeyServiceCredentials {
    /// `sops.vault-token`: a token, without blanks around it.
    pub vault_token: Option<SecretBytes>,
    /// `sops.aws-kms`: YAML with `aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`.
    pub aws_kms: Option<SecretBytes>,
    /// `sops.azure-kv`: YAML or JSON with `tenantId`, `clientId` and a secret or certificate.
    pub azure_kv: Option<SecretBytes>,
    /// `sops.gcp-kms`: the JSON of a service account or of another credential.
    pub gcp_kms: Option<SecretBytes>,
}

impl fmt::Debug for KeyServiceCredentials {
    /// Shows only which credentials are set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyServiceCredentials")
            .field("vault_token", &self.vault_token.is_some())
            .field("aws_kms", &self.aws_kms.is_some())
            .field("azure_kv", &self.azure_kv.is_some())
            .field("gcp_kms", &self.gcp_kms.is_some())
            .finish()
    }
}

impl KeyServiceCredentials {
    pub(super) fn import(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let kept = || Some(Zeroizing::new(value.to_vec()));
        match name {
            "sops.vault-token" => {
                self.vault_token = Some(Zeroizing::new(value.trim_ascii().to_vec()));
            }
            "sops.aws-kms" => {
                check_aws(value)?;
                self.aws_kms = kept();
            }
            "sops.azure-kv" => {
                check_azure(value)?;
                self.azure_kv = kept();
            }
            "sops.gcp-kms" => {
                check_gcp(value)?;
                self.gcp_kms = kept();
            }
            _ => {}
        }
        Ok(())
    }
}

fn check_aws(value: &[u8]) -> Result<(), String> {
    let unreadable =
        || "failed to unmarshal AWS credentials file: it is not a map of strings".to_owned();
    match goyaml::to_json(value) {
        Ok(Value::Object(members)) => {
            let is_text = |name: &str| {
                members.get(name).is_none_or(|value| value.is_string() || value.is_null())
            };
            let names = ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"];
            if names.into_iter().all(is_text) { Ok(()) } else { Err(unreadable()) }
        }
        Ok(Value::Null) => Ok(()),
        _ => Err(unreadable()),
    }
}

fn check_azure(value: &[u8]) -> Result<(), String> {
    let Ok(Value::Object(members)) = goyaml::to_json(value) else {
        return Err("invalid data: it is not a map".to_owned());
    };
    let has =
        |name: &str| members.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    // A client without a secret is a managed identity. The other names are those of Azure's command line.
    if has("clientId") || has("tenant") && has("appId") && has("password") {
        return Ok(());
    }
    Err("invalid data: requires a 'clientId' field, a combination of 'tenantId', 'clientId' and 'clientSecret', or \
         'tenantId', 'clientId' and 'clientCertificate'"
        .to_owned())
}

fn check_gcp(value: &[u8]) -> Result<(), String> {
    let known = [
        "service_account",
        "authorized_user",
        "external_account",
        "external_account_authorized_user",
        "impersonated_service_account",
        "gdch_service_account",
    ];
    let Ok(Value::Object(members)) = serde_json::from_slice(value.trim_ascii()) else {
        return Err("the credentials are no JSON object".to_owned());
    };
    match members.get("type").and_then(Value::as_str) {
        Some(kind) if known.contains(&kind) => Ok(()),
        Some(kind) => Err(format!("unknown credential type: {kind:?}")),
        None => Err("missing 'type' field in credentials".to_owned()),
    }
}
