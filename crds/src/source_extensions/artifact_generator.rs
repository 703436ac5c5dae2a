//! ArtifactGenerator: artifacts made of the files of sources, each offered by an ExternalArtifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, READY, STATUS, custom_resource};
use crate::string_enum::choice;
use crate::{CommonMetadata, ObjectStatus, ReconciledObject, omit_empty};

/// The annotation that suspends an ArtifactGenerator with the value `disabled`, in any case: there is no `spec.suspend`.
pub const RECONCILE_ANNOTATION: &str = "source.extensions.fluxcd.io/reconcile";

/// The pattern of a reference to a source by its alias.
const ALIAS_REFERENCE: &str = "^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)$";

/// The pattern of a path in a source.
const SOURCE_PATH: &str = "^@([a-z0-9]([a-z0-9_-]*[a-z0-9])?)/(.*)$";

/// The pattern of a path in an artifact, none of whose parts is `..`. Parity(flux): that of source-watcher 2.2.3.
const ARTIFACT_PATH: &str = "^@artifact/([^/]{0,1}|[^./][^/]|[.][^./]|[^/]{3,})(/([^/]{0,1}|[^./][^/]|[.][^./]|[^/]{3,}))*$";

custom_resource! {
    /// Artifacts that are made of the files of sources.
    ArtifactGenerator {
        spec: ArtifactGeneratorSpec,
        status: ArtifactGeneratorStatus,
        api: "source.extensions.fluxcd.io" / "v1beta1",
        plural: "artifactgenerators",
        short: ["ag"],
        category: "fluxcd-sources",
        columns: [AGE, READY, STATUS],
    }
}

impl ReconciledObject for ArtifactGenerator {
    type Status = ArtifactGeneratorStatus;

    const CONTROLLER: &'static str = "source-watcher";
    const FINALIZER: &'static str = "source.extensions.fluxcd.io/finalizer";

    fn is_suspended(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        let value = annotations.and_then(|all| all.get(RECONCILE_ANNOTATION));
        value.is_some_and(|value| value.eq_ignore_ascii_case("disabled"))
    }

    fn status(&self) -> Option<&ArtifactGeneratorStatus> {
        self.status.as_ref()
    }

    fn set_status(&mut self, status: ArtifactGeneratorStatus) {
        self.status = Some(status);
    }
}

/// Its conditions say which generation they are of; the status itself does not.
impl ObjectStatus for ArtifactGeneratorStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn set_conditions(&mut self, conditions: Vec<Condition>) {
        self.conditions = conditions;
    }

    fn observed_generation(&self) -> Option<i64> {
        None
    }

    fn set_observed_generation(&mut self, _: i64) {}

    fn last_handled_reconcile_at(&self) -> Option<&str> {
        self.last_handled_reconcile_at.as_deref()
    }

    fn set_last_handled_reconcile_at(&mut self, request: &str) {
        self.last_handled_reconcile_at = Some(request.to_owned());
    }
}

/// Which sources there are, and what is made of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.pathPattern) && size(self.pathPattern) > 0 || self.artifacts.all(a, a.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))",
        "message": "artifact names must be valid Kubernetes object names when pathPattern is not set",
    },
]))]
pub struct ArtifactGeneratorSpec {
    /// Labels and annotations to set on all ExternalArtifacts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,

    /// The sources whose files are copied.
    #[schemars(length(min = 1, max = 1000))]
    pub sources: Vec<ArtifactGeneratorSourceReference>,

    /// A pattern of directories in a source, as `@alias/path/{variable}`. All artifacts are made once
    /// for each directory that it matches, where `{variable}` stands for the name that matched.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SOURCE_PATH), length(max = 1024))]
    pub path_pattern: Option<String>,

    /// The artifacts to make.
    #[schemars(length(min = 1, max = 1000))]
    pub artifacts: Vec<OutputArtifact>,
}

/// A source, and the name by which copies refer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactGeneratorSourceReference {
    /// The name by which copies refer to the source.
    #[schemars(regex(pattern = "^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$"), length(max = 63))]
    pub alias: String,

    /// The kind of the source.
    pub kind: ArtifactGeneratorSourceKind,

    /// The name of the source.
    #[schemars(regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"), length(max = 253))]
    pub name: String,

    /// The namespace of the source. Defaults to that of the ArtifactGenerator.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

choice! {
    /// The kind of a source whose files are copied.
    ArtifactGeneratorSourceKind {
        /// The objects of a bucket.
        Bucket = "Bucket",
        /// A Git repository.
        #[default]
        GitRepository = "GitRepository",
        /// An artifact of an OCI registry.
        OCIRepository = "OCIRepository",
        /// A chart.
        HelmChart = "HelmChart",
        /// An artifact of another controller, or of another ArtifactGenerator.
        ExternalArtifact = "ExternalArtifact",
    }
}

/// An artifact to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputArtifact {
    /// The name of the ExternalArtifact that offers the artifact.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The source whose revision the artifact has, as `@alias`. Defaults to `latest@` and the digest
    /// of the artifact.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = ALIAS_REFERENCE), length(max = 64))]
    pub revision: Option<String>,

    /// The source whose revision the metadata of the artifact names as its origin, as `@alias`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = ALIAS_REFERENCE), length(max = 64))]
    pub origin_revision: Option<String>,

    /// What is copied into the artifact, in this order. Later copies replace files of earlier ones.
    #[schemars(length(min = 1))]
    pub copy: Vec<CopyOperation>,
}

/// Files of a source, and their place in an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CopyOperation {
    /// The files to copy, as `@alias/` and a path or a pattern of paths.
    #[schemars(regex(pattern = SOURCE_PATH), length(min = 1, max = 1024))]
    pub from: String,

    /// The place in the artifact, as `@artifact/` and a path.
    #[schemars(regex(pattern = ARTIFACT_PATH), length(min = 1, max = 1024))]
    pub to: String,

    /// Patterns of paths that are not copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 1024)))]
    pub exclude: Vec<String>,

    /// What happens where a file exists already. Defaults to `Overwrite`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<CopyStrategy>,
}

choice! {
    /// What a copy does with files.
    CopyStrategy {
        /// Copied files replace existing files with the same path.
        #[default]
        Overwrite = "Overwrite",
        /// YAML files are merged into existing files with the same path.
        Merge = "Merge",
        /// The files are archives, whose contents are copied.
        Extract = "Extract",
    }
}

/// What was last made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ArtifactGeneratorStatus {
    /// The conditions of this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list")]
    pub conditions: Vec<Condition>,

    /// The ExternalArtifacts that exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<ExternalArtifactReference>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,

    /// The digest over the revisions of all sources that the artifacts were made of.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub observed_sources_digest: Option<String>,
}

/// An ExternalArtifact, and the artifact that it offers.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ExternalArtifactReference {
    /// The digest of the packed file.
    pub digest: String,

    /// The name of the packed file.
    pub filename: String,

    /// The name of the ExternalArtifact.
    pub name: String,

    /// The namespace of the ExternalArtifact.
    pub namespace: String,
}
