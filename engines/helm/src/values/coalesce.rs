//! Merges the defaults of a chart and its sub-charts below the values of the user.
//!
//! Tables are merged, and any other value replaces the default. Globals are passed to every sub-chart. A null of the
//! user removes a default when values are coalesced, and stays when they are merged. Elsewhere: which sub-charts are
//! used (`dependencies.rs`).

use golang::GoRuntimeValue;
use golang::fmt::{FormatLimits, sprintf_within};
use golang::strconv::{QuotingStyle, quote};
use golang::value::{GoMap, GoString};
use golang::work_meter::StopSignal;

use super::table::{copied, dismantle, empty, remove_nulls};
use super::{Error, ValuesBudget};
use crate::chart::Chart;
use crate::warning::{HelmWarning, WarningLevel};

/// The key of the table that all charts share.
const GLOBAL: &str = "global";

/// The values of a chart and its sub-charts after merging, with warnings.
#[derive(Debug, Clone)]
pub struct CoalescedValues {
    /// The values. They share no table with the input.
    pub values: GoMap,
    /// The warnings that Helm would log.
    pub warnings: Vec<HelmWarning>,
}

/// The values that the templates of a chart and its sub-charts see. The values of the user win over all defaults. A
/// null of the user removes the default.
///
/// # Errors
/// The values of a sub-chart are not a table, there are more values than [`super::MAX_STEPS`], or they are nested
/// deeper than [`super::MAX_DEPTH`].
pub fn coalesce(chart: &Chart, user: &GoMap) -> Result<CoalescedValues, Error> {
    coalesce_until(chart, user, StopSignal::default())
}

/// Like [`coalesce`], until the caller's stop signal is set.
pub(crate) fn coalesce_until(
    chart: &Chart,
    user: &GoMap,
    stop: StopSignal,
) -> Result<CoalescedValues, Error> {
    whole(chart, user, NullHandling::Remove, &mut ValuesBudget::until(stop))
}

/// Like [`coalesce`], but nulls are kept, because the values will be coalesced later.
///
/// # Errors
/// As for [`coalesce`].
pub fn merge(chart: &Chart, user: &GoMap) -> Result<CoalescedValues, Error> {
    whole(chart, user, NullHandling::Keep, &mut ValuesBudget::new())
}

pub(super) fn whole(
    chart: &Chart,
    user: &GoMap,
    nulls: NullHandling,
    budget: &mut ValuesBudget,
) -> Result<CoalescedValues, Error> {
    let values = copied(user, budget)?;
    let mut run = CoalesceRun { budget, warnings: Vec::new() };
    if let Err(error) = run.chart(chart, &values, "", nulls, 0) {
        dismantle(&values);
        return Err(error);
    }
    Ok(CoalescedValues { values, warnings: run.warnings })
}

/// Whether a null stays in the merged values, or removes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NullHandling {
    Keep,
    Remove,
}

/// One merge, with its warnings.
pub(super) struct CoalesceRun<'b> {
    pub(super) budget: &'b mut ValuesBudget,
    pub(super) warnings: Vec<HelmWarning>,
}

impl CoalesceRun<'_> {
    fn warn(&mut self, warning: String) {
        self.warnings.push(HelmWarning::new(WarningLevel::Info, warning));
    }

    /// Adds a warning that shows a value.
    fn warn_of(&mut self, before: &str, value: &GoRuntimeValue) {
        let value = shown("%v", value, self.budget.words());
        self.budget.say(value.len());
        self.warnings.push(HelmWarning::about(WarningLevel::Info, before, &value, ")"));
    }

    fn chart(
        &mut self,
        chart: &Chart,
        into: &GoMap,
        prefix: &str,
        nulls: NullHandling,
        depth: usize,
    ) -> Result<(), Error> {
        self.budget.spend(depth)?;
        let prefix = joined(prefix, &chart.metadata.name);
        self.defaults(chart, into, &prefix, nulls, depth)?;
        for sub in &chart.charts {
            let own = match into.get(sub.metadata.name.as_bytes()) {
                None => {
                    let own = empty();
                    into.insert(sub.metadata.name.as_str(), GoRuntimeValue::Map(own.clone()));
                    own
                }
                Some(GoRuntimeValue::Map(own)) => own,
                Some(other) => {
                    let found = shown("%t", &other, self.budget.words());
                    return Err(Error::NotTable { chart: sub.metadata.name.clone(), found });
                }
            };
            self.globals(&own, into, &prefix, depth)?;
            self.chart(sub, &own, &prefix, nulls, depth + 1)?;
        }
        Ok(())
    }

    /// Merges a chart's own defaults below `into`.
    fn defaults(
        &mut self,
        chart: &Chart,
        into: &GoMap,
        prefix: &str,
        nulls: NullHandling,
        depth: usize,
    ) -> Result<(), Error> {
        for (key, default) in copied(&chart.values, self.budget)?.entries() {
            match (into.get(&key), default) {
                (Some(GoRuntimeValue::Nil), _) if nulls == NullHandling::Remove => {
                    into.remove(&key);
                }
                (Some(GoRuntimeValue::Map(own)), GoRuntimeValue::Map(default)) => {
                    // The nulls of a sub-chart only concern that sub-chart.
                    let is_chart =
                        chart.charts.iter().any(|sub| *sub.metadata.name.as_bytes() == *key);
                    let nulls = if is_chart { NullHandling::Keep } else { nulls };
                    if nulls == NullHandling::Remove {
                        remove_nulls(&default, depth, self.budget)?;
                    }
                    let prefix = joined(prefix, &key.lossy());
                    self.tables(&own, &default, &prefix, nulls, depth + 1)?;
                }
                (None, GoRuntimeValue::Nil) if nulls == NullHandling::Remove => {}
                (Some(GoRuntimeValue::Map(_)), GoRuntimeValue::Nil) => {}
                (Some(GoRuntimeValue::Map(_)), _) => {
                    let key = key.lossy();
                    self.warn(format!("warning: skipped value for {prefix}.{key}: Not a table."));
                }
                (Some(_), _) => {}
                (None, default) => {
                    if let (GoRuntimeValue::Map(table), NullHandling::Remove) = (&default, nulls) {
                        remove_nulls(table, depth, self.budget)?;
                    }
                    into.insert(key, default);
                }
            }
        }
        Ok(())
    }

    /// Merges the globals of `from` above those of `into`.
    fn globals(
        &mut self,
        into: &GoMap,
        from: &GoMap,
        prefix: &str,
        depth: usize,
    ) -> Result<(), Error> {
        let Some(own) = self.global_table(into, "destination") else { return Ok(()) };
        let Some(outer) = self.global_table(from, "source") else { return Ok(()) };
        for (key, value) in outer.entries() {
            match (value, own.get(&key)) {
                (GoRuntimeValue::Map(outer), None) => {
                    own.insert(key, GoRuntimeValue::Map(shallow(&outer)));
                }
                (GoRuntimeValue::Map(outer), Some(GoRuntimeValue::Map(inner))) => {
                    let both = shallow(&outer);
                    let prefix = joined(prefix, &key.lossy());
                    self.tables(&both, &inner, &prefix, NullHandling::Keep, depth + 1)?;
                    own.insert(key, GoRuntimeValue::Map(both));
                }
                (GoRuntimeValue::Map(_), Some(_)) => {
                    let key = quote(&key, QuotingStyle::Printable);
                    let key = String::from_utf8_lossy(&key);
                    self.warn(format!(
                        "Conflict: cannot merge map onto non-map for {key}. Skipping."
                    ));
                }
                (_, Some(GoRuntimeValue::Map(_))) => {
                    self.warn(format!("key {} is table. Skipping", key.lossy()));
                }
                (other, _) => {
                    own.insert(key, other);
                }
            }
        }
        into.insert(GLOBAL, GoRuntimeValue::Map(own));
        Ok(())
    }

    fn global_table(&mut self, values: &GoMap, role: &str) -> Option<GoMap> {
        match values.get(GLOBAL.as_bytes()) {
            None => Some(empty()),
            Some(GoRuntimeValue::Map(table)) => Some(table),
            Some(_) => {
                self.warn(format!(
                    "warning: skipping globals because {role} {GLOBAL} is not a table."
                ));
                None
            }
        }
    }

    /// Merges `below` into `into`, whose own values win. A null in `into` is also written into `below`, because Helm
    /// remembers nulls in this way.
    pub(super) fn tables(
        &mut self,
        into: &GoMap,
        below: &GoMap,
        prefix: &str,
        nulls: NullHandling,
        depth: usize,
    ) -> Result<(), Error> {
        let has_default: Vec<GoString> = below
            .entries()
            .into_iter()
            .filter_map(|(key, value)| (!matches!(value, GoRuntimeValue::Nil)).then_some(key))
            .collect();
        for (key, value) in into.entries() {
            self.budget.spend(depth)?;
            if matches!(value, GoRuntimeValue::Nil) {
                below.insert(key, GoRuntimeValue::Nil);
            }
        }
        for (key, value) in below.entries() {
            self.budget.spend(depth)?;
            let path = joined(prefix, &key.lossy());
            match (into.get(&key), value) {
                (Some(GoRuntimeValue::Nil), _)
                    if nulls == NullHandling::Remove && has_default.binary_search(&key).is_ok() =>
                {
                    into.remove(&key);
                }
                (None, value) => {
                    into.insert(key, value);
                }
                (Some(GoRuntimeValue::Map(own)), GoRuntimeValue::Map(inner)) => {
                    self.tables(&own, &inner, &path, nulls, depth + 1)?;
                }
                (Some(_), value @ GoRuntimeValue::Map(_)) => {
                    let before =
                        format!("warning: cannot overwrite table with non table for {path} (");
                    self.warn_of(&before, &value);
                }
                (Some(GoRuntimeValue::Map(_)), GoRuntimeValue::Nil) => {}
                (Some(GoRuntimeValue::Map(_)), value) => {
                    let before = format!(
                        "warning: destination for {path} is a table. Ignoring non-table value ("
                    );
                    self.warn_of(&before, &value);
                }
                (Some(_), _) => {}
            }
        }
        Ok(())
    }
}

fn shallow(table: &GoMap) -> GoMap {
    GoMap::new(table.item_type().clone(), table.entries())
}

fn joined(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

fn shown(verb: &str, value: &GoRuntimeValue, most: usize) -> String {
    let limits = FormatLimits { bytes: most, ..FormatLimits::default() };
    let text = sprintf_within(verb.as_bytes(), std::slice::from_ref(value), limits);
    let text = text.unwrap_or_else(|_| b"...".to_vec());
    String::from_utf8_lossy(&text).into_owned()
}
