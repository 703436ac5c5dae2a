//! Master keys that only a service can use: the request to a service, and the default without services.
//!
//! Elsewhere: requests to the services, in implementations of [`DataKeyServices`].

use std::fmt;

use zeroize::Zeroizing;

use crate::metadata::EncryptionContext;

/// A master key of a service, with the data key that it encrypted.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyServiceMasterKey {
    /// AWS KMS.
    AwsKms {
        /// The ARN of the key, which names its region too.
        arn: String,
        /// A role to assume. It may be empty.
        role: String,
        /// The context that the service authenticates together with the data key.
        context: EncryptionContext,
        /// A profile of the AWS command line; Flux ignores it.
        profile: String,
        /// The encrypted data key, in base64.
        encrypted: String,
    },
    /// Google Cloud KMS.
    GcpKms {
        /// `projects/…/cryptoKeys/…`.
        resource_id: String,
        /// The encrypted data key, in base64.
        encrypted: String,
    },
    /// Huawei Cloud KMS, which Flux does not support.
    HuaweiKms {
        /// Region and id.
        key_id: String,
        /// The encrypted data key, in base64.
        encrypted: String,
    },
    /// Azure Key Vault.
    AzureKeyVault {
        /// The address of the vault.
        vault_url: String,
        /// The name of the key.
        name: String,
        /// The version of the key.
        version: String,
        /// The encrypted data key, in base64 for URLs.
        encrypted: String,
    },
    /// The transit engine of OpenBao or HashiCorp Vault.
    Vault {
        /// The address of the server.
        address: String,
        /// The mount path of the engine.
        engine_path: String,
        /// The name of the key.
        key_name: String,
        /// The encrypted data key in the engine's format.
        encrypted: String,
    },
}

impl KeyServiceMasterKey {
    /// The name of the service.
    #[must_use]
    pub fn service(&self) -> &'static str {
        match self {
            Self::AwsKms { .. } => "AWS KMS",
            Self::GcpKms { .. } => "GCP KMS",
            Self::HuaweiKms { .. } => "Huawei Cloud KMS",
            Self::AzureKeyVault { .. } => "Azure Key Vault",
            Self::Vault { .. } => "Vault",
        }
    }

    /// The entry of a Secret that has credentials for the service. `None` if the service is not supported.
    #[must_use]
    pub fn entry(&self) -> Option<&'static str> {
        match self {
            Self::AwsKms { .. } => Some("sops.aws-kms"),
            Self::GcpKms { .. } => Some("sops.gcp-kms"),
            Self::AzureKeyVault { .. } => Some("sops.azure-kv"),
            Self::Vault { .. } => Some("sops.vault-token"),
            Self::HuaweiKms { .. } => None,
        }
    }

    /// The encrypted data key, as the file has it for this service.
    #[must_use]
    pub fn encrypted(&self) -> &str {
        match self {
            Self::AwsKms { encrypted, .. }
            | Self::GcpKms { encrypted, .. }
            | Self::HuaweiKms { encrypted, .. }
            | Self::AzureKeyVault { encrypted, .. }
            | Self::Vault { encrypted, .. } => encrypted,
        }
    }
}

impl fmt::Display for KeyServiceMasterKey {
    /// The name by which sops calls the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AwsKms { arn, .. } => f.write_str(arn),
            Self::GcpKms { resource_id, .. } => f.write_str(resource_id),
            Self::HuaweiKms { key_id, .. } => f.write_str(key_id),
            Self::AzureKeyVault { vault_url, name, version, .. } => {
                write!(f, "{vault_url}/keys/{name}/{version}")
            }
            Self::Vault { address, engine_path, key_name, .. } => {
                write!(f, "{address}/v1/{engine_path}/keys/{key_name}")
            }
        }
    }
}

impl fmt::Debug for KeyServiceMasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyServiceMasterKey({self})")
    }
}

/// Services that decrypt data keys.
pub trait DataKeyServices {
    /// Decrypts a data key, or a part of it, that a master key encrypted.
    ///
    /// # Errors
    /// Why it cannot be decrypted. The text is shown to users and must not contain secrets.
    fn decrypt(&self, key: &KeyServiceMasterKey) -> Result<Zeroizing<Vec<u8>>, String>;
}

/// No services. Every master key of a service is rejected.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDataKeyServices;

impl DataKeyServices for NoDataKeyServices {
    fn decrypt(&self, key: &KeyServiceMasterKey) -> Result<Zeroizing<Vec<u8>>, String> {
        let service = key.service();
        let Some(entry) = key.entry() else {
            return Err(format!("failed to decrypt sops data key with {service}: not supported"));
        };
        Err(format!(
            "failed to decrypt sops data key with {service}: no credentials for it; add `{entry}` to the Secret of \
             `spec.decryption.secretRef`"
        ))
    }
}
