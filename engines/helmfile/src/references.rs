//! References to secrets, such as `ref+vault://path#/key`: they are found and refused by name, for nothing is fetched
//! while a plan is made.

use serde_json::Value;

use crate::error::Result;

/// The providers of references that helmfile knows. Parity(helmfile 1.8): a text with another one is left as it is.
const PROVIDERS: [&str; 34] = [
    "1password",
    "awskms",
    "awssecrets",
    "awsssm",
    "azurekeyvault",
    "bitwarden",
    "conjur",
    "doppler",
    "echo",
    "envsubst",
    "exec",
    "file",
    "gcpsecrets",
    "gcs",
    "gitlab",
    "gkms",
    "googlesheets",
    "hcpvaultsecrets",
    "httpjson",
    "infisical",
    "k8s",
    "keychain",
    "oci",
    "onepassword",
    "onepasswordconnect",
    "op",
    "openbao",
    "pulumistateapi",
    "s3",
    "scaleway",
    "secretserver",
    "servercore",
    "sops",
    "vault",
];

/// Refuses a text with a reference.
pub(crate) fn check_text(text: &str) -> Result<()> {
    for (at, _) in text.match_indices("ref+") {
        let rest = &text[at + 4..];
        let Some((scheme, _)) = rest.split_once("://") else { continue };
        if PROVIDERS.contains(&scheme) || scheme.starts_with("tfstate") {
            return Err(format!(
                "ref+{scheme}:// is not supported: windlass fetches no secrets while it plans; \
                 put the value into a Secret or a values file"
            )
            .into());
        }
    }
    Ok(())
}

/// Refuses a value with a reference.
pub(crate) fn check(value: &Value) -> Result<()> {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) => check_text(text)?,
            Value::Array(items) => left.extend(items),
            Value::Object(map) => left.extend(map.values()),
            _ => {}
        }
    }
    Ok(())
}
