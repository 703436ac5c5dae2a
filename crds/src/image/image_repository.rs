//! ImageRepository: an image whose tags are listed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, PrinterColumn, READY, STATUS, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::reconciled;
use crate::source::{AccessFrom, RegistryProvider};
use crate::{GoDuration, LocalObjectReference, Time, omit_empty, schema};

custom_resource! {
    /// An image in a registry, whose tags are listed for ImagePolicies.
    ImageRepository {
        spec: ImageRepositorySpec,
        status: ImageRepositoryStatus,
        api: "image.toolkit.fluxcd.io" / "v1",
        plural: "imagerepositories",
        short: ["imgrepo", "imagerepo"],
        category: "fluxcd-images",
        columns: [
            PrinterColumn::text("Image", ".spec.image"),
            PrinterColumn::text("Tags", ".status.lastScanResult.tagCount"),
            READY,
            STATUS,
            PrinterColumn::wide("Last scan", ".status.lastScanResult.scanTime"),
            AGE,
        ],
    }
}

reconciled!(ImageRepository ImageRepositoryStatus "image-reflector-controller");

/// Which image to scan, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ImageRepositorySpec {
    /// The name of the image with its registry, without scheme, tag and digest.
    pub image: String,

    /// How often to list the tags of the image.
    pub interval: GoDuration,

    /// How long a scan may take. Defaults to the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = FETCH_PATTERN))]
    pub timeout: Option<GoDuration>,

    /// A Secret of type `kubernetes.io/dockerconfigjson` with the credentials of the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// A Secret that describes a proxy: `address`, and `username` and `password` if it asks for
    /// them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,

    /// The ServiceAccount whose image pull secrets or cloud identity are used to authenticate.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<LocalObjectReference>,

    /// Whether to suspend scans. The tags that are known stay available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// Which other namespaces may have ImagePolicies that refer to this object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,

    /// Regular expressions. Tags that match one of them are left out. Without any, signatures of
    /// cosign are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 25), extend("default" = ["^.*\\.sig$"]))]
    pub exclusion_list: Vec<String>,

    /// Where credentials come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "generic"))]
    pub provider: Option<RegistryProvider>,

    /// Whether the registry may be reached over plain HTTP.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub insecure: bool,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ScanResult {
    /// A checksum of the tags.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,

    /// How many tags there are.
    #[schemars(transform = schema::without_format)]
    pub tag_count: i64,

    /// When the tags were listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan_time: Option<Time>,

    /// The first ten tags, in descending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latest_tags: Vec<String>,
}

/// What was last scanned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct ImageRepositoryStatus {
    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The name of the image with everything that `spec.image` leaves out.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub canonical_image_name: Option<String>,

    /// The last scan that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scan_result: Option<ScanResult>,

    /// The regular expressions that left tags out in that scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_exclusion_list: Vec<String>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
