//! The group `source.toolkit.fluxcd.io/v1`: where manifests and charts come from.
//!
//! Here: one file per kind. Elsewhere: fetching (`sources`), running (`operator/source`).

mod bucket;
mod external_artifact;
mod git_repository;
mod helm_chart;
mod helm_repository;
mod oci_repository;
mod verification;

pub use bucket::{Bucket, BucketProvider, BucketSpec, BucketStatus, BucketSts, StsProvider};
pub use external_artifact::{ExternalArtifact, ExternalArtifactSpec, ExternalArtifactStatus};
pub use git_repository::{
    GitProvider, GitRepository, GitRepositoryInclude, GitRepositoryRef, GitRepositorySpec,
    GitRepositoryStatus, GitRepositoryVerification, GitVerificationMode,
};
pub use helm_chart::{
    ChartSourceKind, HelmChart, HelmChartSpec, HelmChartStatus, LocalHelmChartSourceReference,
    ReconcileStrategy,
};
pub use helm_repository::{
    AccessFrom, HelmRepository, HelmRepositorySpec, HelmRepositoryStatus, HelmRepositoryType,
    NamespaceSelector,
};
pub use oci_repository::{
    LayerOperation, OCILayerSelector, OCIRepository, OCIRepositoryRef, OCIRepositorySpec,
    OCIRepositoryStatus, RegistryProvider,
};
pub use verification::{
    HelmChartVerification, OCIRepositoryVerification, OIDCIdentityMatch, SignatureProvider,
};
