//! Limits, and what is shared; the rules of coalescing are recorded cases.

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoType};
use serde_json::{Value as Json, json};

use super::{
    Error, MAX_DEPTH, ValuesReference, ValuesReferenceLookup, coalesce, compose,
    process_dependencies, to_json,
};
use crate::chart::{Chart, ChartDependency, ChartMetadata};

fn table(json: &Json) -> GoMap {
    let GoRuntimeValue::Map(table) = GoRuntimeValue::from_json(json) else {
        panic!("{json} is no table")
    };
    table
}

fn chart(name: &str, values: &Json, charts: Vec<Chart>) -> Chart {
    let version = "1.0.0".to_owned();
    let metadata = ChartMetadata { name: name.to_owned(), version, ..ChartMetadata::default() };
    Chart { metadata, values: table(values), charts, ..Chart::default() }
}

fn importing(imports: &[(&str, &str)], values: &Json) -> Chart {
    let imports = imports.iter().map(|(child, parent)| {
        GoRuntimeValue::map([
            ("child", GoRuntimeValue::from(*child)),
            ("parent", GoRuntimeValue::from(*parent)),
        ])
    });
    let dependency = ChartDependency {
        name: "sub".to_owned(),
        version: "1.0.0".to_owned(),
        import_values: imports.collect(),
        ..ChartDependency::default()
    };
    let mut top = chart("top", &json!({}), vec![chart("sub", values, Vec::new())]);
    top.metadata.dependencies = Some(vec![dependency]);
    top
}

#[test]
fn nothing_of_what_was_given_is_changed_or_shared() {
    let top = chart("top", &json!({"a": {"b": null, "c": [1]}}), Vec::new());
    let user = table(&json!({"a": {"c": null}}));
    let done = coalesce(&top, &user).unwrap();
    assert_eq!(to_json(&done.values).unwrap(), json!({"a": {}}));
    done.values.insert("new", GoRuntimeValue::Nil);
    assert_eq!(to_json(&user).unwrap(), json!({"a": {"c": null}}));
    assert_eq!(to_json(&top.values).unwrap(), json!({"a": {"b": null, "c": [1]}}));
}

#[test]
fn a_table_that_is_imported_into_itself_ends() {
    let values = json!({"data": {"inner": {"x": 1}}});
    let mut top = importing(&[("data.inner", "p"), ("data", "p.q")], &values);
    assert_eq!(process_dependencies(&mut top, &table(&json!({}))), Err(Error::TooDeep));
}

#[test]
fn imports_that_double_again_and_again_end() {
    let mut values = serde_json::Map::new();
    let mut imports = Vec::new();
    for step in 0..60 {
        values.insert(format!("t{step}"), json!({"x": 1}));
    }
    let names: Vec<[String; 3]> = (0..59)
        .map(|step| [format!("t{}", step + 1), format!("r{step}.a"), format!("r{step}.b")])
        .collect();
    let roots: Vec<[String; 2]> =
        (0..60).map(|step| [format!("t{step}"), format!("r{step}")]).collect();
    imports.extend(roots.iter().map(|[child, parent]| (child.as_str(), parent.as_str())));
    for [child, a, b] in &names {
        imports.push((child.as_str(), a.as_str()));
        imports.push((child.as_str(), b.as_str()));
    }
    let mut top = importing(&imports, &Json::Object(values));
    assert_eq!(process_dependencies(&mut top, &table(&json!({}))), Err(Error::TooMany));
}

#[test]
fn values_that_are_nested_too_deep_are_refused() {
    let nested = |depth| {
        (0..depth).fold(GoRuntimeValue::Nil, |inner, _| GoRuntimeValue::map([("a", inner)]))
    };
    let top = chart("top", &json!({}), Vec::new());
    let user = |depth| GoMap::new(GoType::Any, [("a".into(), nested(depth))]);
    assert!(coalesce(&top, &user(MAX_DEPTH - 1)).is_ok());
    assert_eq!(coalesce(&top, &user(MAX_DEPTH)).unwrap_err(), Error::TooDeep);
    assert_eq!(coalesce(&top, &user(100_000)).unwrap_err(), Error::TooDeep);
    let composed = compose("apps", &user(100_000), &[], &mut |_, _| Err("unused".to_owned()));
    assert_eq!(composed.unwrap_err().to_string(), Error::TooDeep.to_string());
}

#[test]
fn a_target_path_changes_an_item_of_a_list_of_the_inline_values() {
    let composed = |path: &str, value: &str| {
        let inline = table(&json!({"l": [1, 2], "a": {"l": [{"x": 1}, [3]]}}));
        let reference = ValuesReference {
            kind: "ConfigMap".to_owned(),
            name: "c".to_owned(),
            target_path: path.to_owned(),
            ..ValuesReference::default()
        };
        let data = [("values.yaml".to_owned(), value.as_bytes().to_vec())];
        let mut lookup = |_: &str, _: &str| Ok(ValuesReferenceLookup::Data(data.clone().into()));
        let values = compose("apps", &inline, &[reference], &mut lookup).unwrap();
        to_json(&values).unwrap()
    };
    let own = json!({"l": [1, 2], "a": {"l": [{"x": 1}, [3]]}});
    // Answered by fluxcd/pkg/chartutil 1.27.1.
    assert_eq!(composed("l[0]", "9"), json!({"l": [9, 2], "a": own["a"]}));
    assert_eq!(composed("l[0]", "9,l[0]=8,l[1]=7")["l"], json!([8, 7]));
    assert_eq!(composed("a.l[0].x", "9")["a"]["l"], json!([{"x": 9}, [3]]));
    assert_eq!(composed("a.l[1][0]", "9")["a"]["l"], json!([{"x": 1}, [9]]));
    assert_eq!(composed("l[2]", "9"), own, "a list that is too short is another one then");
    assert_eq!(composed("l", "{7,8}"), own, "a list as a whole is another one");
}
