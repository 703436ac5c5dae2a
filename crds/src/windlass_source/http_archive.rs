//! HTTPArchive: a file on a web server as an artifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, READY, STATUS, URL, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::{reconciled, source};
use crate::{Artifact, GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// An archive or a YAML file on a web server, made into an artifact. An ExternalArtifact of the
    /// same name offers it to Kustomizations and HelmReleases.
    HTTPArchive {
        spec: HTTPArchiveSpec,
        status: HTTPArchiveStatus,
        api: "source.windlass.dev" / "v1alpha1",
        plural: "httparchives",
        short: ["httparc"],
        category: "fluxcd-sources",
        columns: [URL, AGE, READY, STATUS],
    }
}

reconciled!(HTTPArchive HTTPArchiveStatus "source-controller");
source!(HTTPArchive HTTPArchiveStatus []);

/// Which file to fetch, and how often to check for changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct HTTPArchiveSpec {
    /// The address of a tar.gz, zip or YAML file. What its bytes are decides, then its type and
    /// name. It has no credentials in it.
    #[schemars(regex(pattern = "^https?://.*$"), length(max = 2048))]
    pub url: String,

    /// The expected digest of the downloaded file, as `sha256:` and 64 hexadecimal digits. A file with
    /// another digest is rejected.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"))]
    pub digest: Option<String>,

    /// A Secret with `username` and `password`, or with `bearerToken`. Redirects to other servers
    /// are followed without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// A Secret with `ca.crt`, or with `tls.crt` and `tls.key`, for the connection.
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

    /// Patterns of files to leave out, in the notation of `.gitignore`. They are added to the
    /// `.sourceignore` files of the archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,

    /// Whether to suspend checking for changes. The artifact stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,
}

/// What was last fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct HTTPArchiveStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The artifact of the last fetch that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,

    /// The `url` of the spec that the artifact was made with.
    #[serde(
        rename = "observedURL",
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub observed_url: Option<String>,

    /// The `digest` of the spec that the artifact was made with.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_digest: Option<String>,

    /// The `ignore` of the spec that the artifact was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,

    /// The `ETag` that the server gave with the file.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,

    /// The `Last-Modified` that the server gave with the file.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
