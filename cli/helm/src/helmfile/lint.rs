//! `windlass helmfile lint`: lints the chart of each release with its values, until one fails.

use golang::work_meter::StopSignal;
use helmfile::{
    HelmfileProcessingPlan, HelmfileReleaseToRender, PartialOutput, PrintOutput,
    ReleaseChartLocation, RenderCommandFlags,
};

use super::{FolderChartRenderer, HelmfileCommandOutcome, failure_of};
use crate::template::{LintedChart, lint_chart};

/// Lints the releases of a plan in the order of their needs.
pub(super) fn run(
    plan: HelmfileProcessingPlan,
    options: &RenderCommandFlags,
    stop: &StopSignal,
) -> HelmfileCommandOutcome {
    let PartialOutput { made: all, error } =
        plan.renderings_until_error(options, &FolderChartRenderer(stop));
    let mut printed = PrintOutput {
        warnings: all.warnings,
        has_releases: all.has_releases,
        ..PrintOutput::default()
    };
    for release in &all.releases {
        let (path, files) = match &release.chart {
            ReleaseChartLocation::Path(path) => (path, None),
            ReleaseChartLocation::Files { place, files } => (place, Some(files.as_slice())),
            ReleaseChartLocation::Refused { why } => {
                return HelmfileCommandOutcome::until_error(
                    printed,
                    Some(failure_of(release, why)),
                );
            }
        };
        let HelmfileReleaseToRender { name, shown, flags, values, .. } = release;
        let chart = LintedChart { shown, path, files };
        let linted = match lint_chart(&chart, flags, values, stop) {
            Ok(linted) => linted,
            Err(error) => {
                return HelmfileCommandOutcome::until_error(
                    printed,
                    Some(failure_of(release, &error)),
                );
            }
        };
        printed.text.push_str(&linted.text);
        // Parity(helmfile 1.8): a line is added to what Helm prints, if that is anything.
        if !linted.text.is_empty() {
            printed.text.push('\n');
        }
        if linted.is_failed {
            let error = format!(
                "{}: the chart `{shown}` of release \"{name}\" failed, see above",
                release.trail
            );
            return HelmfileCommandOutcome::until_error(printed, Some(error));
        }
    }
    PartialOutput { made: printed, error }.into()
}
