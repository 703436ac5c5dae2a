//! Which dependencies of a chart are used, their names, and the values that the chart imports from them.
//!
//! Elsewhere: merging values (`coalesce.rs`), and the type of a dependency (`chart.rs`).

use golang::GoRuntimeValue;
use golang::fmt::sprintf;
use golang::value::{GoMap, GoType};
use golang::work_meter::StopSignal;

use super::coalesce::{CoalesceRun, CoalescedValues, NullHandling, whole};
use super::table::{copied, dismantle, empty, table_at, value_at};
use super::{Error, ValuesBudget};
use crate::chart::{Chart, ChartDependency};
use crate::warning::{HelmWarning, WarningLevel};

/// Removes the dependencies that tags and conditions disable. The others get their aliases, and their parents import
/// values from them.
///
/// Returns the warnings that Helm would log. After that, the values of the chart include those of its sub-charts, as in
/// Helm.
///
/// Differs(helm): aliases of one chart share nothing. In Helm, an alias may remove values of a chart two levels below
/// that no `Chart.yaml` lists, and they are then missing from the next alias, too.
///
/// # Errors
/// As for [`super::coalesce`].
pub fn process_dependencies(chart: &mut Chart, user: &GoMap) -> Result<Vec<HelmWarning>, Error> {
    process_dependencies_until(chart, user, StopSignal::default())
}

/// Like [`process_dependencies`], until the caller's stop signal is set.
pub(crate) fn process_dependencies_until(
    chart: &mut Chart,
    user: &GoMap,
    stop: StopSignal,
) -> Result<Vec<HelmWarning>, Error> {
    let mut run = ChartDependencyRun { budget: ValuesBudget::until(stop), warnings: Vec::new() };
    run.choose(chart, user, "")?;
    run.import_all(chart)?;
    Ok(run.warnings)
}

struct ChartDependencyRun {
    budget: ValuesBudget,
    warnings: Vec<HelmWarning>,
}

impl ChartDependencyRun {
    fn values(&mut self, chart: &Chart, user: &GoMap, nulls: NullHandling) -> Result<GoMap, Error> {
        let CoalescedValues { values, warnings } = whole(chart, user, nulls, &mut self.budget)?;
        self.warnings.extend(warnings);
        Ok(values)
    }

    /// Removes the disabled dependencies of this chart and of its sub-charts. `path` leads to the chart's values and
    /// ends with a dot.
    fn choose(&mut self, chart: &mut Chart, user: &GoMap, path: &str) -> Result<(), Error> {
        // Parity(helm): without a list Helm does not examine the charts below either.
        let Some(mut listed) = chart.metadata.dependencies.take() else { return Ok(()) };
        let unlisted = |sub: &&Chart| !listed.iter().any(|wanted| wanted.is_met_by(sub));
        let mut charts: Vec<Chart> = chart.charts.iter().filter(unlisted).cloned().collect();
        for wanted in &mut listed {
            let found = chart.charts.iter().find(|sub| wanted.is_met_by(sub)).cloned();
            if !wanted.alias.is_empty() {
                wanted.name.clone_from(&wanted.alias);
            }
            if let Some(mut found) = found {
                found.metadata.name.clone_from(&wanted.name);
                charts.push(found);
            }
        }
        chart.charts = charts;
        let values = self.values(chart, user, NullHandling::Remove)?;
        for dependency in &mut listed {
            dependency.enabled = true;
            self.heed_tags(dependency, &values);
            self.heed_condition(dependency, &values, path);
        }
        let is_out = |name: &str| listed.iter().any(|out| !out.enabled && out.name == name);
        chart.charts.retain(|sub| !is_out(&sub.metadata.name));
        let stay: Vec<ChartDependency> =
            listed.iter().filter(|dependency| !is_out(&dependency.name)).cloned().collect();
        for sub in &mut chart.charts {
            let path = format!("{path}{}.", sub.metadata.name);
            self.choose(sub, &values, &path)?;
        }
        chart.metadata.dependencies = (!stay.is_empty()).then_some(stay);
        Ok(())
    }

    fn heed_tags(&mut self, dependency: &mut ChartDependency, values: &GoMap) {
        let Ok(tags) = table_at(values, "tags") else { return };
        let mut some_on = false;
        let mut some_off = false;
        for tag in &dependency.tags {
            match tags.get(tag.as_bytes()) {
                None => {}
                Some(GoRuntimeValue::Bool(true)) => some_on = true,
                Some(GoRuntimeValue::Bool(false)) => some_off = true,
                Some(_) => self.warnings.push(
                    HelmWarning::new(WarningLevel::Warn, "returned non-bool value")
                        .with("tag", tag)
                        .with("chart", &dependency.name),
                ),
            }
        }
        dependency.enabled = some_on || !some_off;
    }

    fn heed_condition(&mut self, dependency: &mut ChartDependency, values: &GoMap, path: &str) {
        let condition = dependency.condition.trim();
        for place in condition.split(',').filter(|place| !place.is_empty()) {
            match value_at(values, &format!("{path}{place}")) {
                None => {}
                Some(GoRuntimeValue::Bool(truth)) => {
                    dependency.enabled = truth;
                    break;
                }
                Some(_) => self.warnings.push(
                    HelmWarning::new(WarningLevel::Warn, "returned non-bool value")
                        .with("path", place)
                        .with("chart", &dependency.name),
                ),
            }
        }
    }

    /// Imports values, from the innermost charts outwards.
    fn import_all(&mut self, chart: &mut Chart) -> Result<(), Error> {
        for sub in &mut chart.charts {
            self.import_all(sub)?;
        }
        let Some(mut listed) = chart.metadata.dependencies.take() else { return Ok(()) };
        let values = self.values(chart, &empty(), NullHandling::Keep)?;
        let imported = empty();
        let done = self.import(&mut listed, &values, &imported).and_then(|()| {
            // Imports share tables with the values and have changed them. Helm passes these changes on, too.
            let all = copied(&values, &mut self.budget)?;
            self.below(&all, &imported)?;
            // Imported values share tables with their origin.
            copied(&all, &mut self.budget)
        });
        dismantle(&imported);
        dismantle(&values);
        chart.values = done?;
        chart.metadata.dependencies = Some(listed);
        Ok(())
    }

    fn import(
        &mut self,
        listed: &mut [ChartDependency],
        values: &GoMap,
        imported: &GoMap,
    ) -> Result<(), Error> {
        for dependency in listed {
            let mut imports = Vec::new();
            for import in &dependency.import_values {
                let (child, parent, missing) = match import {
                    GoRuntimeValue::Map(import) => {
                        let missing = HelmWarning::new(
                            WarningLevel::Warn,
                            "ImportValues missing table from chart",
                        )
                        .with("chart", &dependency.name);
                        (text(import, "child"), text(import, "parent"), missing)
                    }
                    GoRuntimeValue::String(export) => {
                        let child = format!("exports.{}", export.lossy());
                        let missing =
                            HelmWarning::new(WarningLevel::Warn, "ImportValues missing table");
                        (child, ".".to_owned(), missing)
                    }
                    // Parity(helm): any other value is dropped without a warning.
                    _ => continue,
                };
                match table_at(values, &format!("{}.{child}", dependency.name)) {
                    Ok(table) => self.below(imported, &wrapped(&table, &parent))?,
                    Err(error) => self.warnings.push(missing.with("error", error.to_string())),
                }
                let entries = [("child", child), ("parent", parent)];
                let entries = entries.map(|(key, text)| (key.into(), GoRuntimeValue::from(text)));
                imports.push(GoRuntimeValue::Map(GoMap::new(GoType::String, entries)));
            }
            dependency.import_values = imports;
        }
        Ok(())
    }

    /// Merges a table below another one, including nulls.
    fn below(&mut self, into: &GoMap, below: &GoMap) -> Result<(), Error> {
        let mut run = CoalesceRun { budget: &mut self.budget, warnings: Vec::new() };
        run.tables(into, below, "", NullHandling::Keep, 0)?;
        self.warnings.append(&mut run.warnings);
        Ok(())
    }
}

fn text(import: &GoMap, key: &str) -> String {
    let value = import.get(key.as_bytes()).unwrap_or_default();
    let text = sprintf("%v", &[value]).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Wraps a table in the tables that a path names. The path `.` gives the table itself.
fn wrapped(table: &GoMap, path: &str) -> GoMap {
    let table = if table.is_empty() { empty() } else { table.clone() };
    if path == "." {
        return table;
    }
    path.rsplit('.').fold(table, |inner, name| {
        GoMap::new(GoType::Any, [(name.into(), GoRuntimeValue::Map(inner))])
    })
}
