//! Signatures of what comes from a registry.
//!
//! Here: what OCIRepositories and HelmCharts ask for. Git has its own, in `git_repository`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::LocalObjectReference;
use crate::string_enum::choice;

choice! {
    /// The technology of a signature.
    SignatureProvider {
        /// Sigstore's cosign, with keys or keyless.
        #[default]
        Cosign = "cosign",
        /// Notary Project's notation.
        Notation = "notation",
    }
}

/// The signature that an OCI artifact must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OCIRepositoryVerification {
    /// The technology of the signature.
    #[schemars(extend("default" = "cosign"))]
    pub provider: SignatureProvider,

    /// A Secret with the trusted keys or certificates. Without it, cosign verifies keyless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// The identities of which a keyless signature must show one. Without any, all are accepted.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OIDCIdentityMatch>,

    /// A Secret whose key `trusted_root.json` describes a private Sigstore instance. Without it,
    /// the public instance is trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<LocalObjectReference>,
}

/// The signature that a chart from an OCI registry must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartVerification {
    /// The technology of the signature.
    #[schemars(extend("default" = "cosign"))]
    pub provider: SignatureProvider,

    /// A Secret with the trusted keys or certificates. Without it, cosign verifies keyless.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// The identities of which a keyless signature must show one. Without any, all are accepted.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Vec::is_empty")]
    pub match_oidc_identity: Vec<OIDCIdentityMatch>,
}

/// An identity in the certificate of a keyless signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OIDCIdentityMatch {
    /// The issuer of the identity, as a regular expression.
    pub issuer: String,

    /// The identity itself, as a regular expression.
    pub subject: String,
}
