//! The specification of a release, as the release runner gets it from its owner. Pure.
//!
//! Here: the fields that were read from the owner's spec, and the desired state that they give with a chart and values.
//! Elsewhere: reading the owner's spec (`helm_release/validated_spec.rs`, and the crate `helmfile-controller`), decisions
//! (engine `release`).

use std::time::Duration;

use apply::drift_ignore_rules::DriftIgnoreRules;
use crds::helm::PostRenderStrategy;
use reconcile::SHORTEST_INTERVAL;
use release::failure_policy::FailurePolicy;
use release::gated_release_change::ReleaseChangeGates;
use release::lifecycle_hold::ReleaseLifecycles;
use release::release_spec::AnnotationRequests;
use release::{ReleaseDesiredState, ReleaseSpec};
use sha2::{Digest as _, Sha256};

use super::action_options::ActionOptions;
use super::audit::origin;
use super::postrender::PostRenderers;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::applier_run::{self, ReconcileIntervals};
use windlass_serve::settings::OperatorSettings;

/// The desired state of a release by its spec, with the defaults of fields that were left out.
#[derive(Debug)]
pub struct ValidatedSpec {
    /// The intervals at which the release is reconciled.
    pub(crate) pace: ReconcileIntervals,
    /// The part of the spec that decisions depend on.
    pub release: ReleaseSpec,
    /// The options for performing operations. No decision depends on them.
    pub options: ActionOptions,
    /// The fields whose differences do not count as drift.
    pub(crate) ignore: DriftIgnoreRules,
    /// The post-renderers that change the documents of the release.
    pub post: PostRenderers,
    /// Which documents the post-renderers get by the spec alone. This belongs to the inputs of a release, and flags do not.
    pub(crate) post_render_strategy: PostRenderStrategy,
}

/// The inputs of a release besides the spec: chart and values.
#[derive(Debug, Clone, Default)]
pub struct ReleaseInputs {
    /// The chart's name.
    pub chart_name: String,
    /// The chart's version, with the digest of its artifact where that belongs to it.
    pub chart_version: String,
    /// The version of the application that the chart installs.
    pub app_version: String,
    /// The digest of the artifact, where a release is known by it.
    pub oci_digest: String,
    /// The digest of the values.
    pub config_digest: String,
    /// The digest of the chart's artifact.
    pub artifact_digest: String,
}

impl ValidatedSpec {
    /// The desired state of an owner's release after this number of failures in a row. Nothing holds it yet, and nothing is
    /// requested.
    pub fn desired<O: WindlassKind>(
        &self,
        owner: &O,
        inputs: ReleaseInputs,
        failures: i64,
        settings: &OperatorSettings,
    ) -> ReleaseDesiredState {
        let meta = owner.meta();
        ReleaseDesiredState {
            owner: meta.uid.clone().unwrap_or_default(),
            kube_context: String::new(),
            generation: meta.generation.unwrap_or_default(),
            spec: self.release.clone(),
            deleted: meta.deletion_timestamp.is_some(),
            suspended: false,
            gates: ReleaseChangeGates::default(),
            lifecycles: ReleaseLifecycles::default(),
            inputs: self.digest(&inputs),
            chart_name: inputs.chart_name,
            chart_version: inputs.chart_version,
            app_version: inputs.app_version,
            oci_digest: inputs.oci_digest,
            config_digest: inputs.config_digest,
            requests: AnnotationRequests::default(),
            failures: FailurePolicy::default(),
            origin: origin(meta),
            retry: retry(failures, settings),
            interval: applier_run::interval(owner, self.pace, settings),
        }
    }

    /// A digest of everything from which a release is rendered. With it, a running operation notices that the desired release
    /// changed.
    fn digest(&self, inputs: &ReleaseInputs) -> String {
        let ReleaseSpec { target, post_renderers_digest, common_metadata_digest, .. } =
            &self.release;
        let ReleaseInputs {
            chart_name,
            chart_version,
            // Both are the chart's.
            app_version: _,
            oci_digest: _,
            config_digest,
            artifact_digest,
        } = inputs;
        let mut hash = Sha256::new();
        for part in [
            target.namespace.as_str(),
            &target.name,
            chart_name,
            chart_version,
            artifact_digest,
            config_digest,
            post_renderers_digest,
            common_metadata_digest,
            self.post_render_strategy.as_str(),
            if self.options.preserve_values { "values are kept" } else { "" },
        ] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        format!("sha256:{}", hex::encode(hash.finalize()))
    }
}

/// The delay after the next failure, if so many attempts failed before it.
fn retry(failures: i64, settings: &OperatorSettings) -> Duration {
    let next = u32::try_from(failures.saturating_add(1)).unwrap_or(u32::MAX);
    let delay = reconcile::backoff(next, settings.min_retry_delay, settings.max_retry_delay);
    delay.max(SHORTEST_INTERVAL)
}
