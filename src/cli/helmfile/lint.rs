//! `windlass helmfile lint`: the chart of each release with its values, until one fails.

use golang::meter::Stop;
use helmfile::{Chart, Options, Plan, Printed, Rendering};

use super::{Ending, InFolder, Outcome};
use crate::cli::template::{LintedChart, lint_chart};

/// Lints the releases of a plan in the order of their needs.
pub(super) fn run(plan: Plan, options: &Options, stop: &Stop) -> Result<Outcome, String> {
    let all = plan.renderings(options, &InFolder(stop)).map_err(|error| error.to_string())?;
    let mut printed =
        Printed { warnings: all.warnings, has_releases: all.has_releases, ..Printed::default() };
    for release in &all.releases {
        let (path, files) = match &release.chart {
            Chart::Path(path) => (path, None),
            Chart::Files { place, files } => (place, Some(files.as_slice())),
        };
        let Rendering { name, shown, flags, values, .. } = release;
        let chart = LintedChart { shown, path, files };
        let linted = lint_chart(&chart, flags, values, stop);
        let linted = linted.map_err(|error| format!("release \"{name}\": {error}"))?;
        printed.text.push_str(&linted.text);
        // Parity(helmfile 1.8): a line is added to what Helm prints, if that is anything.
        if !linted.text.is_empty() {
            printed.text.push('\n');
        }
        if linted.is_failed {
            let error = format!("the chart `{shown}` of release \"{name}\" failed, see above");
            return Ok(Outcome { ending: Ending::Failed(error), ..Outcome::from(printed) });
        }
    }
    Ok(printed.into())
}
