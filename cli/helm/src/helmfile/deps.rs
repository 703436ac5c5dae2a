//! `windlass helmfile deps`: chooses the versions of charts from repositories, and writes them to lock files.
//!
//! Elsewhere: the charts and the format of the lock file (engine `helmfile`), repositories (`helmfile_controller::helmfile`).

use anyhow::Context as _;
use helmfile::{HelmfileChartsToLock, HelmfileProcessingPlan, PrintOutput};

use super::HelmfileCommandOutcome;
use super::registry_logins;
use helmfile_controller::helmfile::chart_fetch::ChartRepositoryCache;
use windlass_cli_runtime::connection::block_on;

/// Writes the lock files of a plan.
pub(super) fn run(plan: &HelmfileProcessingPlan) -> Result<HelmfileCommandOutcome, String> {
    let all = plan.dependencies().map_err(|error| error.to_string())?;
    let printed = PrintOutput {
        warnings: all.warnings,
        has_releases: all.has_releases,
        ..PrintOutput::default()
    };
    let mut outcome = HelmfileCommandOutcome::from(printed);
    if all.unlocked.is_empty() {
        outcome.summary =
            "no release has a chart of a repository, so there is nothing to lock\n".to_owned();
    }
    let mut charts = registry_logins::charts();
    for unlocked in &all.unlocked {
        let lock = block_on(lock(unlocked, &mut charts)).map_err(|error| format!("{error:#}"))?;
        std::fs::write(&unlocked.path, lock)
            .map_err(|error| format!("cannot write {}: {error}", unlocked.path))?;
        outcome.summary.push_str(&format!(
            "{} has the charts of {} releases\n",
            unlocked.name(),
            unlocked.charts.len()
        ));
    }
    Ok(outcome)
}

/// The text of a lock file.
async fn lock(
    unlocked: &HelmfileChartsToLock,
    charts: &mut ChartRepositoryCache,
) -> anyhow::Result<String> {
    let mut versions = Vec::new();
    for chart in &unlocked.charts {
        let version = charts.version(chart).await;
        versions
            .push(version.with_context(|| format!("the chart {} of {}", chart.name, chart.url))?);
    }
    let generated = jiff::Timestamp::now().to_string();
    Ok(unlocked.text(&versions, &generated)?)
}
