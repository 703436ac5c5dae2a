//! How the release runner performs an operation, such as with which flags. No decision about the release depends on these
//! options.
//!
//! Elsewhere: all of the specification (`validated_spec`), reading these fields of a HelmRelease
//! (`helm_release/validated_spec.rs`).

use crds::helm::{CrdsPolicy, ServerSideApplyMode};
use helm::template::PostRendererStrategy;
use release::{OperationKind, ReleaseRecord};

/// The options with which an action makes a revision of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionOptions {
    /// Whether existing objects that belong to no release, or to another one, are taken over.
    pub take_ownership: bool,
    /// How an operation treats the CRDs in the chart's folder `crds`.
    pub crds: CrdsPolicy,
    /// Whether values are not validated against the chart's schema.
    pub skip_schema: bool,
    /// Whether objects are not checked against the schemas of the cluster.
    pub disable_openapi: bool,
}

/// The options of all actions on a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionOptions {
    /// The options with which an installation makes its revision.
    pub(crate) install: RevisionOptions,
    /// The options with which an upgrade makes its revision.
    pub(crate) upgrade: RevisionOptions,
    /// Whether the API server merges the objects of an installation. Its conflicts are always forced.
    pub(crate) install_ssa: bool,
    /// Whether an upgrade uses server-side apply. `auto` means the method of the last revision.
    pub(crate) upgrade_ssa: ServerSideApplyMode,
    /// Whether a rollback uses server-side apply. `auto` means the method of the revision to which windlass rolls back.
    pub(crate) rollback_ssa: ServerSideApplyMode,
    /// Whether an upgrade replaces objects. It only applies if the API server does not merge them.
    pub(crate) upgrade_force: bool,
    /// The same for a rollback.
    pub(crate) rollback_force: bool,
    /// Whether an installation creates the namespace if it is missing.
    pub create_namespace: bool,
    /// Whether an upgrade merges the values into those of the last revision.
    pub preserve_values: bool,
    /// Whether objects are ready by Helm 3's list of kinds, instead of by the conventions for all.
    pub(crate) legacy_wait: bool,
    /// Which documents post-renderers get.
    pub(crate) post_render: PostRendererStrategy,
}

impl ActionOptions {
    /// The same options. If `skips`, an installation and an upgrade do not validate the values against the chart's schema.
    pub fn skipping_schema(self, skips: bool) -> Self {
        let of = |options: RevisionOptions| RevisionOptions {
            skip_schema: options.skip_schema || skips,
            ..options
        };
        Self { install: of(self.install), upgrade: of(self.upgrade), ..self }
    }

    /// The options with which an action makes its revision. An installation has its own options, and every other action uses
    /// the options of an upgrade.
    pub fn of_action(&self, action: OperationKind) -> &RevisionOptions {
        if action == OperationKind::Install { &self.install } else { &self.upgrade }
    }

    /// Whether the API server merges the objects of an action, by server-side apply. `like` is the revision whose method
    /// `auto` repeats.
    pub fn is_server_side(&self, action: OperationKind, like: Option<&ReleaseRecord>) -> bool {
        let mode = match action {
            OperationKind::Install => return self.install_ssa,
            OperationKind::Rollback => self.rollback_ssa,
            _ => self.upgrade_ssa,
        };
        match mode {
            ServerSideApplyMode::Enabled => true,
            ServerSideApplyMode::Disabled => false,
            ServerSideApplyMode::Auto => like.is_none_or(ReleaseRecord::is_server_side),
        }
    }

    /// Whether objects are replaced by an action.
    pub fn forces(&self, action: OperationKind) -> bool {
        match action {
            OperationKind::Upgrade => self.upgrade_force,
            OperationKind::Rollback => self.rollback_force,
            _ => false,
        }
    }
}
