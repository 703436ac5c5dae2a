//! The group `helm.toolkit.fluxcd.io/v2`: charts that are kept released.
//!
//! Here: its one kind, spread over the spec, the chart, the actions and the status.
//! Elsewhere: charts and releases themselves (`engines/helm`), running (`operator/helm`).

mod action;
mod chart_template;
mod helm_release;
mod status;

pub use action::{
    ActionStrategy, ChartNameChangeStrategy, CrdsPolicy, DeletionPropagation, Filter, Install,
    InstallRemediation, InstallStrategy, RemediationStrategy, Rollback, ServerSideApplyMode, Test,
    Uninstall, Upgrade, UpgradeRemediation, UpgradeStrategy,
};
pub use chart_template::{
    ChartRefKind, CrossNamespaceChartReference, CrossNamespaceObjectReference, HelmChartTemplate,
    HelmChartTemplateMetadata, HelmChartTemplateSpec, HelmChartTemplateVerification,
};
pub use helm_release::{
    DriftDetection, DriftDetectionMode, HelmRelease, HelmReleaseSpec, Kustomize,
    PostRenderStrategy, PostRenderer, ValuesReference, WaitStrategy, WaitStrategyName,
};
pub use status::{HelmReleaseStatus, ReleaseAction, Snapshot, TestHookStatus};
