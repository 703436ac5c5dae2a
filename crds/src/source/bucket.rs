//! Bucket: the objects of an object store as an artifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::{reconciled, source};
use crate::string_enum::choice;
use crate::{Artifact, GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// A bucket of an object store whose objects are fetched into an artifact.
    Bucket {
        spec: BucketSpec,
        status: BucketStatus,
        api: "source.toolkit.fluxcd.io" / "v1",
        plural: "buckets",
        short: [],
        category: "fluxcd-sources",
        columns: [PrinterColumn::text("Endpoint", ".spec.endpoint"), AGE, READY, STATUS],
    }
}

reconciled!(Bucket BucketStatus "source-controller");
source!(Bucket BucketStatus [url]);

/// Which bucket to fetch, and how often to check for changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [
    {
        "rule": "self.provider == 'aws' || self.provider == 'generic' || !has(self.sts)",
        "message": "STS configuration is only supported for the 'aws' and 'generic' Bucket providers",
    },
    {
        "rule": "self.provider != 'aws' || !has(self.sts) || self.sts.provider == 'aws'",
        "message": "'aws' is the only supported STS provider for the 'aws' Bucket provider",
    },
    {
        "rule": "self.provider != 'generic' || !has(self.sts) || self.sts.provider == 'ldap'",
        "message": "'ldap' is the only supported STS provider for the 'generic' Bucket provider",
    },
    {
        "rule": "!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.secretRef)",
        "message": "spec.sts.secretRef is not required for the 'aws' STS provider",
    },
    {
        "rule": "!has(self.sts) || self.sts.provider != 'aws' || !has(self.sts.certSecretRef)",
        "message": "spec.sts.certSecretRef is not required for the 'aws' STS provider",
    },
    {
        "rule": "self.provider != 'generic' || !has(self.serviceAccountName)",
        "message": "ServiceAccountName is not supported for the 'generic' Bucket provider",
    },
    {
        "rule": "!has(self.secretRef) || !has(self.serviceAccountName)",
        "message": "cannot set both .spec.secretRef and .spec.serviceAccountName",
    },
]))]
pub struct BucketSpec {
    /// The protocol of the store, and where credentials come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "generic"))]
    pub provider: Option<BucketProvider>,

    /// The name of the bucket.
    pub bucket_name: String,

    /// The host of the store, with its port if that is not the usual one.
    pub endpoint: String,

    /// A security token service (STS) that issues temporary credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sts: Option<BucketSts>,

    /// Whether the store is reached over plain HTTP.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub insecure: bool,

    /// The region of the bucket.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,

    /// The beginning of the keys to fetch. Other objects are not listed.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,

    /// A Secret with credentials, whose keys depend on the provider. For S3 they are `accesskey`
    /// and `secretkey`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// The ServiceAccount whose cloud identity is used to authenticate.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection. For the
    /// provider `generic` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,

    /// A Secret that describes a proxy: `address`, and `username` and `password` if it asks for
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,

    /// How often to check for changes.
    pub interval: GoDuration,

    /// How long fetching may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = FETCH_PATTERN), extend("default" = "60s"))]
    pub timeout: Option<GoDuration>,

    /// Patterns of keys to leave out, in the notation of `.gitignore`. They are added to the
    /// `.sourceignore` at the root of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,

    /// Whether to suspend checking for changes. The artifact stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

choice! {
    /// The protocol of an object store.
    BucketProvider {
        /// S3 with the credentials of a Secret.
        #[default]
        Generic = "generic",
        /// S3 of AWS, with its workload identity if there is no Secret.
        Aws = "aws",
        /// Google Cloud Storage.
        Gcp = "gcp",
        /// Azure Blob Storage.
        Azure = "azure",
    }
}

/// A security token service (STS) that issues temporary credentials for a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketSts {
    /// The protocol of the service.
    pub provider: StsProvider,

    /// The address of the service, over HTTP or HTTPS.
    #[schemars(regex(pattern = "^(http|https)://.*$"))]
    pub endpoint: String,

    /// A Secret with `username` and `password` for the service. For `ldap` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection. For `ldap`
    /// only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,
}

choice! {
    /// The protocol of a token service.
    StsProvider {
        /// That of AWS.
        #[default]
        Aws = "aws",
        /// An exchange of LDAP credentials, as MinIO offers it.
        Ldap = "ldap",
    }
}

/// What was last fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct BucketStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// A stable address of whatever artifact is the newest.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The artifact of the last fetch that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,

    /// The `ignore` of the spec that the artifact was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
