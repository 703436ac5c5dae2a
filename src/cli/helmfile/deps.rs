//! `windlass helmfile deps`: the versions of charts in repositories, chosen and locked.
//!
//! Elsewhere: which charts these are, and the lock file (engine `helmfile`), repositories (`sources::charts`).

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use golang::semver::Version;
use helmfile::{Plan, Printed, Unlocked, Wanted};
use objects::Redacted;
use sources::charts::repository::Reach;
use sources::charts::{Answer, Credentials, Index, MAX_INDEX, Repository};

use super::Outcome;
use crate::cli::connection::block_on;

/// How long a repository may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Writes the lock files of a plan.
pub(super) fn run(plan: &Plan) -> Result<Outcome, String> {
    let all = plan.dependencies().map_err(|error| error.to_string())?;
    let printed =
        Printed { warnings: all.warnings, has_releases: all.has_releases, ..Printed::default() };
    let mut outcome = Outcome::from(printed);
    if all.unlocked.is_empty() {
        outcome.summary =
            "no release has a chart of a repository, so there is nothing to lock\n".to_owned();
    }
    let mut indexes = BTreeMap::new();
    for unlocked in &all.unlocked {
        let lock = block_on(lock(unlocked, &mut indexes)).map_err(|error| format!("{error:#}"))?;
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
    unlocked: &Unlocked,
    indexes: &mut BTreeMap<String, Index>,
) -> anyhow::Result<String> {
    let mut versions = Vec::new();
    for chart in &unlocked.charts {
        let version = version(chart, indexes).await;
        versions
            .push(version.with_context(|| format!("the chart {} of {}", chart.name, chart.url))?);
    }
    let generated = jiff::Timestamp::now().to_string();
    Ok(unlocked.text(&versions, &generated)?)
}

/// The highest version of a chart in its range.
async fn version(chart: &Wanted, indexes: &mut BTreeMap<String, Index>) -> anyhow::Result<String> {
    if chart.url.starts_with("oci://") {
        // The tags of a registry are not listed here.
        let is_exact = Version::parse_strict(chart.range.trim_start_matches('v')).is_ok();
        return match is_exact {
            true => Ok(chart.range.clone()),
            false => bail!(
                "versions of charts in registries are not listed: set an exact `version` instead of `{}`",
                chart.range
            ),
        };
    }
    if !chart.unsupported.is_empty() {
        bail!("the repository has {}, which `deps` does not support", chart.unsupported.join(", "));
    }
    let index = match indexes.get(&chart.url) {
        Some(index) => index,
        None => {
            let index = index(chart).await?;
            indexes.entry(chart.url.clone()).or_insert(index)
        }
    };
    let chosen = index.choose(&chart.name, &chart.range)?;
    Ok(chosen.version.to_owned())
}

async fn index(chart: &Wanted) -> anyhow::Result<Index> {
    let basic = chart.login.clone().map(|(user, password)| (user, Redacted::new(password)));
    let credentials = Credentials { basic, ..Credentials::default() };
    let reach = Reach::default();
    let repository =
        Repository::new(&chart.url, credentials, chart.pass_credentials, TIMEOUT, &reach)?;
    let Answer::Index { file, .. } = repository.index(None).await? else {
        return Err(anyhow!("the repository answers that its index is unchanged"));
    };
    let mut text = Vec::new();
    file.take(MAX_INDEX).read_to_end(&mut text)?;
    Ok(Index::parse(&text)?)
}
