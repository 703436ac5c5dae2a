//! Finds the source that set each value, for `windlass values`.
//!
//! The merge itself is not repeated. A value of the result comes from the uppermost source that has exactly this value
//! at the same path. Elsewhere: the merge (`values_from.rs`, `coalesce.rs`).

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoString};
use serde_json::Value as Json;

use super::json::exact_json;
use super::{Error, ValuesBudget};
use crate::chart::Chart;

/// The key of the table that every sub-chart gets, too.
const GLOBAL_VALUES_KEY: &[u8] = b"global";

/// One source of a release's values, such as a ConfigMap.
#[derive(Debug, Clone)]
pub struct ValuesLayer {
    /// The name of the source in messages, such as `ConfigMap/defaults`.
    pub name: String,
    /// The path of its values among those of the release, such as the name of a sub-chart.
    pub at: Vec<GoString>,
    /// The values of the source.
    pub values: GoMap,
}

/// A value of the result that is not a table, or an empty table.
#[derive(Debug, Clone)]
pub struct ValuesLeaf {
    /// The path to the value: names of tables and indices of lists.
    pub path: Vec<String>,
    /// The value.
    pub value: GoRuntimeValue,
    /// The index of the layer that set the value. `None` if the value was computed, for example by an import.
    pub source: Option<usize>,
    /// The indices of the layers that have another value at this path.
    pub overrode: Vec<usize>,
}

/// The defaults of a chart and its sub-charts as layers, the lowest first.
pub fn layers(chart: &Chart) -> Vec<ValuesLayer> {
    let mut found = Vec::new();
    let mut pending = vec![(chart, Vec::new(), chart.metadata.name.clone())];
    while let Some((chart, at, name)) = pending.pop() {
        for sub in &chart.charts {
            let mut below = at.clone();
            below.push(GoString::from(sub.metadata.name.as_str()));
            pending.push((sub, below, format!("{name}/charts/{}", sub.metadata.name)));
        }
        found.push(ValuesLayer { name: format!("chart {name}"), at, values: chart.values.clone() });
    }
    // A chart's values for a sub-chart win over the defaults of that sub-chart.
    found.reverse();
    found
}

/// Finds the source of every leaf of `result`. `result` is the merge of `layers`, the lowest first.
///
/// # Errors
/// There are too many values, or they are nested too deeply.
pub fn provenance(result: &GoMap, layers: &[ValuesLayer]) -> Result<Vec<ValuesLeaf>, Error> {
    let mut search = ValueOriginSearch { layers, leaves: Vec::new(), budget: ValuesBudget::new() };
    search.table(result, &mut Vec::new())?;
    Ok(search.leaves)
}

struct ValueOriginSearch<'l> {
    layers: &'l [ValuesLayer],
    leaves: Vec<ValuesLeaf>,
    budget: ValuesBudget,
}

/// A step of a path.
#[derive(Debug, Clone)]
enum ValuePathPart {
    Name(GoString),
    Index(usize),
}

impl ValueOriginSearch<'_> {
    fn table(&mut self, table: &GoMap, path: &mut Vec<ValuePathPart>) -> Result<(), Error> {
        if table.is_empty() && !path.is_empty() {
            return self.leaf(&GoRuntimeValue::Map(table.clone()), path);
        }
        for (key, value) in table.entries() {
            path.push(ValuePathPart::Name(key));
            self.value(&value, path)?;
            path.pop();
        }
        Ok(())
    }

    fn value(
        &mut self,
        value: &GoRuntimeValue,
        path: &mut Vec<ValuePathPart>,
    ) -> Result<(), Error> {
        self.budget.spend(path.len())?;
        match value {
            GoRuntimeValue::Map(table) => self.table(table, path),
            // No layer has exactly this list, so its items come from several layers.
            GoRuntimeValue::List(list)
                if !list.is_empty() && self.source(value, path)?.is_none() =>
            {
                for (at, item) in list.items().iter().enumerate() {
                    path.push(ValuePathPart::Index(at));
                    self.value(item, path)?;
                    path.pop();
                }
                Ok(())
            }
            other => self.leaf(other, path),
        }
    }

    fn leaf(&mut self, value: &GoRuntimeValue, path: &[ValuePathPart]) -> Result<(), Error> {
        let source = self.source(value, path)?;
        let has_one = |at: &usize| Some(*at) != source && self.at(*at, path).is_some();
        let overrode = (0..source.unwrap_or(self.layers.len())).rev().filter(has_one).collect();
        let path = path.iter().map(ValuePathPart::shown).collect();
        self.leaves.push(ValuesLeaf { path, value: value.clone(), source, overrode });
        Ok(())
    }

    /// The uppermost layer that has this value at the path.
    fn source(
        &mut self,
        value: &GoRuntimeValue,
        path: &[ValuePathPart],
    ) -> Result<Option<usize>, Error> {
        self.budget.spend(path.len())?;
        let wanted = json(value);
        let is_it = |at: &usize| self.at(*at, path).is_some_and(|found| json(&found) == wanted);
        let uppermost = || (0..self.layers.len()).rev();
        // A null removes an entry, so a table may become empty.
        let is_emptied = matches!(value, GoRuntimeValue::Map(table) if table.is_empty());
        let has_table = |at: &usize| matches!(self.at(*at, path), Some(GoRuntimeValue::Map(_)));
        let or_table = || uppermost().find(has_table).filter(|_| is_emptied);
        Ok(uppermost().find(is_it).or_else(or_table))
    }

    /// The value that a layer has at a path. `None` if the layer does not have it. Globals of a chart also count for
    /// its sub-charts.
    fn at(&self, layer: usize, path: &[ValuePathPart]) -> Option<GoRuntimeValue> {
        let layer = self.layers.get(layer)?;
        let below = below(path, &layer.at);
        if let Some(found) = below.and_then(|rest| found(&layer.values, rest)) {
            return Some(found);
        }
        // The globals of each parent chart count, because a parent chart may have set the value.
        let global = path.iter().position(
            |part| matches!(part, ValuePathPart::Name(name) if **name == *GLOBAL_VALUES_KEY),
        )?;
        let (charts, rest) = path.split_at_checked(global)?;
        let own = below_names(charts, &layer.at).then(|| charts.get(layer.at.len()..)).flatten()?;
        (0..=own.len()).rev().find_map(|depth| {
            let place: Vec<ValuePathPart> = own.iter().take(depth).chain(rest).cloned().collect();
            found(&layer.values, &place)
        })
    }
}

impl ValuePathPart {
    fn shown(&self) -> String {
        match self {
            Self::Name(name) => name.lossy().into_owned(),
            Self::Index(at) => format!("[{at}]"),
        }
    }
}

fn below_names(path: &[ValuePathPart], at: &[GoString]) -> bool {
    let is_same = |(part, name): (&ValuePathPart, &GoString)| matches!(part, ValuePathPart::Name(it) if it == name);
    path.len() >= at.len() && path.iter().zip(at).all(is_same)
}

/// The rest of a path after the path of a layer. `None` if the path is not below the layer.
fn below<'p>(path: &'p [ValuePathPart], at: &[GoString]) -> Option<&'p [ValuePathPart]> {
    below_names(path, at).then(|| path.get(at.len()..)).flatten()
}

fn found(values: &GoMap, path: &[ValuePathPart]) -> Option<GoRuntimeValue> {
    let mut value = GoRuntimeValue::Map(values.clone());
    for part in path {
        value = match (value, part) {
            (GoRuntimeValue::Map(table), ValuePathPart::Name(name)) => table.get(name)?,
            (GoRuntimeValue::List(list), ValuePathPart::Index(at)) => {
                list.items().get(*at)?.clone()
            }
            _ => return None,
        };
    }
    Some(value)
}

/// A value in a form that can be compared. `None` if JSON cannot represent it.
fn json(value: &GoRuntimeValue) -> Option<Json> {
    exact_json(&GoMap::new(golang::value::GoType::Any, [(GoString::from("v"), value.clone())])).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{compose, empty};
    use super::*;

    fn table(json: &Json) -> GoMap {
        let GoRuntimeValue::Map(table) = GoRuntimeValue::from_json(json) else {
            panic!("{json} is no table")
        };
        table
    }

    fn layer(name: &str, at: &[&str], values: &Json) -> ValuesLayer {
        let at = at.iter().map(|it| GoString::from(*it)).collect();
        ValuesLayer { name: name.to_owned(), at, values: table(values) }
    }

    fn origins(result: &GoMap, layers: &[ValuesLayer]) -> Vec<String> {
        let name = |at: usize| layers[at].name.clone();
        let leaves = provenance(result, layers).unwrap();
        let origins = leaves.iter().map(|leaf| {
            let source = leaf.source.map_or("computed".to_owned(), name);
            let over: Vec<String> = leaf.overrode.iter().map(|at| name(*at)).collect();
            format!("{} {source} {over:?}", leaf.path.join("."))
        });
        origins.collect()
    }

    #[test]
    fn a_value_comes_from_the_uppermost_source_that_has_it() {
        let layers = [
            layer("chart", &[], &json!({"a": 1, "b": {"c": 1, "d": 1}, "list": [1]})),
            layer("file", &[], &json!({"b": {"c": 2}, "list": [2]})),
            layer("inline", &[], &json!({"b": {"c": 3}, "e": {}})),
        ];
        let result = table(&json!({"a": 1, "b": {"c": 3, "d": 1}, "e": {}, "list": [2]}));
        let expected = [
            "a chart []",
            "b.c inline [\"file\", \"chart\"]",
            "b.d chart []",
            "e inline []",
            "list file [\"chart\"]",
        ];
        assert_eq!(origins(&result, &layers), expected);
    }

    #[test]
    fn a_table_that_a_null_emptied_comes_from_the_uppermost_source_that_has_it() {
        let layers = [
            layer("chart", &[], &json!({"a": {"b": 1}})),
            layer("file", &[], &json!({"a": {"b": null}})),
            layer("inline", &[], &json!({"c": 1})),
        ];
        let result = table(&json!({"a": {}, "c": 1}));
        assert_eq!(origins(&result, &layers), ["a file [\"chart\"]", "c inline []"]);
    }

    #[test]
    fn items_of_a_list_that_no_source_has_as_a_whole_have_sources_of_their_own() {
        let layers = [
            layer("file", &[], &json!({"hosts": [{"name": "a"}, {"name": "b"}]})),
            layer("path", &[], &json!({"hosts": [{"name": "x"}]})),
        ];
        let result = table(&json!({"hosts": [{"name": "x"}, {"name": "b"}]}));
        let expected = ["hosts.[0].name path [\"file\"]", "hosts.[1].name file []"];
        assert_eq!(origins(&result, &layers), expected);
    }

    #[test]
    fn globals_and_values_of_charts_below_come_from_where_they_are_set() {
        let layers = [
            layer("sub", &["sub"], &json!({"x": 1, "global": {"own": 1}})),
            layer("top", &[], &json!({"sub": {"x": 2}, "global": {"shared": 1}})),
        ];
        let result = table(
            &json!({"global": {"shared": 1}, "sub": {"x": 2, "global": {"own": 1, "shared": 1}}}),
        );
        let expected = [
            "global.shared top []",
            "sub.global.own sub []",
            "sub.global.shared top []",
            "sub.x top [\"sub\"]",
        ];
        assert_eq!(origins(&result, &layers), expected);
    }

    #[test]
    fn a_value_without_a_source_is_computed() {
        let result = table(&json!({"a": 1}));
        assert_eq!(origins(&result, &[layer("x", &[], &json!({"a": 2}))]), ["a computed [\"x\"]"]);
        let composed = compose("apps", &result, &[], &mut |_, _| Err("unused".to_owned())).unwrap();
        assert_eq!(origins(&composed, &[layer("inline", &[], &json!({"a": 1}))]), ["a inline []"]);
        assert!(provenance(&empty(), &[]).unwrap().is_empty());
    }
}
