//! Compares the settings of clippy. Clippy reads only the nearest `clippy.toml`, so the file of the engines has to
//! repeat the settings of the root.
//!
//! `cargo clippy` runs the lints.

use toml::{Table, Value};

use super::{assert_none, dependencies, settings};

/// The settings of `part`, and the entries of its lists, that `whole` does not have.
fn missing(whole: &Table, part: &Table) -> Vec<String> {
    let lost = part.iter().flat_map(|(key, value)| match (value, whole.get(key)) {
        (Value::Array(wanted), Some(Value::Array(known))) => {
            wanted.iter().filter(|entry| !known.contains(entry)).map(|it| (key, it)).collect()
        }
        (value, known) if known == Some(value) => Vec::new(),
        _ => vec![(key, value)],
    });
    lost.map(|(key, value)| format!("engines/clippy.toml lacks {value:?} of `{key}`")).collect()
}

#[test]
fn the_engines_settings_repeat_the_root_settings() {
    assert_none(&missing(&settings("engines/clippy.toml"), &settings("clippy.toml")));
    let [whole, part] = [
        "a = 1\nb = [{ path = \"y\" }]",
        "# why\na = 1\nb = [\n  { path = \"x\" },\n { path = \"y\" },\n]\nc = 2",
    ]
    .map(|text| toml::from_str(text).unwrap());
    let lost = missing(&whole, &part);
    assert_eq!(lost.len(), 2, "{lost:?}");
}

#[test]
fn functions_are_limited_to_a_hundred_lines() {
    for file in ["clippy.toml", "engines/clippy.toml"] {
        assert_eq!(settings(file)["too-many-lines-threshold"].as_integer(), Some(100), "{file}");
    }
    let clippy = &settings("Cargo.toml")["workspace"]["lints"]["clippy"];
    assert_eq!(clippy["too_many_lines"].as_str(), Some("warn"));
}

/// Whether a manifest takes the workspace's lints.
fn inherits_lints(manifest: &Table) -> bool {
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    lints.and_then(Value::as_bool).unwrap_or_default()
}

#[test]
fn every_member_of_the_workspace_takes_its_lints() {
    let packages = dependencies::metadata().workspace_packages();
    assert!(packages.len() > 5, "{}", packages.len());
    let without =
        packages.iter().filter(|it| !inherits_lints(&settings(it.manifest_path.as_std_path())));
    assert_none(
        &without
            .map(|it| format!("{} has no `[lints] workspace = true`", it.name))
            .collect::<Vec<_>>(),
    );
    assert!(!inherits_lints(&toml::from_str("[package]\nname = \"x\"\n").unwrap()));
}
