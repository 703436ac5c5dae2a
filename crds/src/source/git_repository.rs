//! GitRepository: a branch, tag or commit as an artifact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::custom_resource::{AGE, READY, STATUS, URL, custom_resource};
use crate::duration::FETCH_PATTERN;
use crate::reconciled_object::{reconciled, source};
use crate::string_enum::choice;
use crate::{Artifact, GoDuration, LocalObjectReference, omit_empty};

custom_resource! {
    /// A Git repository of which one revision is fetched into an artifact.
    GitRepository {
        spec: GitRepositorySpec,
        status: GitRepositoryStatus,
        api: "source.toolkit.fluxcd.io" / "v1",
        plural: "gitrepositories",
        short: ["gitrepo"],
        category: "fluxcd-sources",
        columns: [URL, AGE, READY, STATUS],
    }
}

reconciled!(GitRepository GitRepositoryStatus "source-controller");
source!(GitRepository GitRepositoryStatus [included_artifacts]);

/// Which repository and revision to fetch, and how often to check for changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("x-kubernetes-validations" = [{
    "rule": "!has(self.serviceAccountName) || (has(self.provider) && (self.provider == 'azure' || self.provider == 'aws'))",
    "message": "serviceAccountName can only be set when provider is 'azure' or 'aws'",
}]))]
pub struct GitRepositorySpec {
    /// The address of the repository, over HTTP, HTTPS or SSH.
    #[schemars(regex(pattern = "^(http|https|ssh)://.*$"))]
    pub url: String,

    /// A Secret with credentials. Over HTTP and HTTPS: `username` and `password`, `bearerToken`,
    /// or TLS keys. Over SSH: `identity` and `known_hosts`, and `password` for an encrypted key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalObjectReference>,

    /// Where credentials come from. Defaults to `generic`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<GitProvider>,

    /// The ServiceAccount whose cloud identity is used to authenticate.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,

    /// How often to check for a new revision.
    pub interval: GoDuration,

    /// How long fetching may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = FETCH_PATTERN), extend("default" = "60s"))]
    pub timeout: Option<GoDuration>,

    /// The revision to fetch. Defaults to the branch `master`.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitRepositoryRef>,

    /// The signatures that the revision must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<GitRepositoryVerification>,

    /// A Secret that describes a proxy: `address`, and `username` and `password` if it asks for
    /// them. For HTTP and HTTPS only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<LocalObjectReference>,

    /// Patterns of files to leave out, in the notation of `.gitignore`. They are added to the
    /// `.sourceignore` files of the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore: Option<String>,

    /// Whether to suspend checking for new revisions. The artifact stays available.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub suspend: bool,

    /// Whether to fetch submodules too. Those of the same server are fetched with the same
    /// credentials, others with none.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub recurse_submodules: bool,

    /// Artifacts of other GitRepositories to copy into this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<GitRepositoryInclude>,

    /// The directories to check out, in place of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sparse_checkout: Vec<String>,
}

choice! {
    /// Where the credentials of a Git server come from.
    GitProvider {
        /// The Secret of the spec.
        #[default]
        Generic = "generic",
        /// The workload identity of AWS, for CodeCommit.
        Aws = "aws",
        /// The workload identity of Azure, for Azure DevOps.
        Azure = "azure",
        /// A GitHub App, whose keys are in the Secret of the spec.
        GitHub = "github",
    }
}

/// A revision of a repository. If several fields are set, `commit` wins over `name` over `tag`
/// over `semver` over `branch`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryRef {
    /// The newest commit of this branch. Beside `commit`, the branch that has to contain it.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub branch: Option<String>,

    /// The commit of this tag.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub tag: Option<String>,

    /// The commit of the highest tag in this range of semantic versions.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub semver: Option<String>,

    /// The commit of this full reference, such as `refs/pull/420/head`.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<String>,

    /// This commit, by its full hash.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub commit: Option<String>,
}

/// The signatures that a revision must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryVerification {
    /// Which objects of the repository have to be signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "HEAD"))]
    pub mode: Option<GitVerificationMode>,

    /// A Secret with the trusted public keys. One matching key is enough.
    pub secret_ref: LocalObjectReference,
}

choice! {
    /// Which Git objects have to be signed.
    GitVerificationMode {
        /// The commit; an older spelling of `HEAD`.
        LowercaseHead = "head",
        /// The commit.
        #[default]
        Head = "HEAD",
        /// The tag.
        Tag = "Tag",
        /// The tag and the commit that it points to.
        TagAndHead = "TagAndHEAD",
    }
}

/// The artifact of another GitRepository as a part of this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitRepositoryInclude {
    /// The GitRepository to copy from, in the same namespace.
    pub repository: LocalObjectReference,

    /// The directory to copy. Defaults to everything.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub from_path: Option<String>,

    /// The directory to copy to. Defaults to the name of the other GitRepository.
    #[serde(
        default,
        deserialize_with = "omit_empty::text",
        skip_serializing_if = "Option::is_none"
    )]
    pub to_path: Option<String>,
}

/// What was last fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, extend("default" = { "observedGeneration": -1 }))]
pub struct GitRepositoryStatus {
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

    /// The artifacts of other GitRepositories that went into this one, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub included_artifacts: Vec<Artifact>,

    /// The `ignore` of the spec that the artifact was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_ignore: Option<String>,

    /// The `recurseSubmodules` of the spec that the artifact was made with.
    #[serde(default, skip_serializing_if = "omit_empty::is_false")]
    pub observed_recurse_submodules: bool,

    /// The `include` of the spec that the artifact was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_include: Vec<GitRepositoryInclude>,

    /// The `sparseCheckout` of the spec that the artifact was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed_sparse_checkout: Vec<String>,

    /// Which Git objects were verified for the artifact, in the words of `verify.mode`.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub source_verification_mode: Option<String>,

    /// The value of the `reconcile.fluxcd.io/requestedAt` annotation that was last handled.
    #[serde(deserialize_with = "omit_empty::text", skip_serializing_if = "Option::is_none")]
    pub last_handled_reconcile_at: Option<String>,
}
