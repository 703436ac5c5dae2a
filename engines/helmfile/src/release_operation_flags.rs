//! The options of Helm operations on a release: the flags that helmfile's `apply` and `sync` pass to `helm upgrade --install`
//! and `helm uninstall`.
//!
//! Elsewhere: the chart, its values, and flags for rendering (`release_render_preparation.rs`); performing operations (the caller).

use crate::error::Result;
use crate::load::Helmfile;
use crate::spec::Release;

/// The options of Helm operations on a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of Helm")]
pub struct ReleaseOperationSettings {
    /// Whether objects have to be healthy until an operation has succeeded.
    pub wait: bool,
    /// Whether Jobs have to be complete, too.
    pub wait_for_jobs: bool,
    /// The timeout of an operation in seconds, if it is set.
    pub timeout: Option<u64>,
    /// Whether an operation that failed is undone.
    pub rolls_back: bool,
    /// Whether objects that an upgrade which failed has created are deleted.
    pub cleans_up: bool,
    /// Whether objects are replaced.
    pub force: bool,
    /// How many revisions are kept. Zero keeps all.
    pub history: u64,
    /// Whether a namespace that is missing is created.
    pub creates_namespace: bool,
    /// Whether the operation takes over objects of other releases.
    pub takes_ownership: bool,
    /// Whether the CRDs of charts are left out.
    pub skips_crds: bool,
    /// Whether objects are not checked against the schemas of the cluster.
    pub skips_openapi: bool,
    /// Whether the API server merges objects. `None` keeps the setting of the last revision.
    pub server_side: Option<bool>,
    /// How dependents of the release's objects are deleted: `background`, `foreground` or `orphan`.
    pub cascade: String,
    /// Whether uninstalling waits until the objects are deleted.
    pub waits_for_deletion: bool,
    /// The timeout of uninstalling in seconds, if it is set.
    pub deletion_timeout: Option<u64>,
}

/// The number of revisions that helmfile keeps by default.
const DEFAULT_HISTORY_COUNT: u64 = 10;

impl Helmfile {
    /// The options of Helm operations on a release.
    ///
    /// # Errors
    /// A value that Helm does not know.
    pub(crate) fn operation(&self, release: &Release) -> Result<ReleaseOperationSettings> {
        let defaults = &self.spec.helm_defaults;
        let either = |own: Option<bool>, default: bool| own.unwrap_or(default);
        let seconds = |own: Option<i64>, default: i64| {
            u64::try_from(own.unwrap_or(default)).ok().filter(|seconds| *seconds > 0)
        };
        let text = |own: &Option<String>, default: &Option<String>| {
            own.clone().or_else(|| default.clone()).unwrap_or_default()
        };
        let atomic = either(release.atomic, defaults.atomic);
        let history = release.history_max.or(defaults.history_max);
        let cascade = text(&release.cascade, &defaults.cascade);
        if !matches!(cascade.as_str(), "" | "background" | "foreground" | "orphan") {
            return Err(format!(
                "cascade `{cascade}` is not supported: use background, foreground or orphan"
            )
            .into());
        }
        let server_side = match text(&release.server_side, &defaults.server_side).as_str() {
            "" | "auto" => None,
            "true" => Some(true),
            "false" => Some(false),
            other => {
                return Err(format!(
                    "serverSide `{other}` is not supported: use auto, true or false"
                )
                .into());
            }
        };
        Ok(ReleaseOperationSettings {
            // If a failed operation is to be rolled back, Helm always waits.
            wait: atomic || either(release.wait, defaults.wait),
            wait_for_jobs: either(release.wait_for_jobs, defaults.wait_for_jobs),
            timeout: seconds(release.timeout, defaults.timeout),
            rolls_back: atomic || either(release.rollback_on_failure, defaults.rollback_on_failure),
            cleans_up: either(release.cleanup_on_fail, defaults.cleanup_on_fail),
            force: either(release.force, defaults.force),
            history: history
                .map_or(DEFAULT_HISTORY_COUNT, |most| u64::try_from(most).unwrap_or_default()),
            creates_namespace: release
                .create_namespace
                .or(defaults.create_namespace)
                .unwrap_or(true),
            takes_ownership: either(
                release.take_ownership,
                defaults.take_ownership.unwrap_or_default(),
            ),
            skips_crds: defaults.skip_crds,
            skips_openapi: release.disable_open_api_validation == Some(true)
                || defaults.disable_open_api_validation == Some(true),
            server_side,
            cascade,
            waits_for_deletion: either(release.delete_wait, defaults.delete_wait),
            deletion_timeout: seconds(release.delete_timeout, defaults.delete_timeout),
        })
    }
}
