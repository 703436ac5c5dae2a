//! The settings of clippy: clippy reads the nearest `clippy.toml` alone, so the engines' repeats the root's.
//!
//! Elsewhere: what the lints find (`cargo clippy`).

use super::{assert_none, dependencies, read};

/// Lines of a settings file that set something.
fn entries(text: &str) -> Vec<&str> {
    let lines = text.lines().map(|line| line.trim().trim_end_matches(','));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// Entries of one file that another does not have.
fn missing(whole: &str, part: &str) -> Vec<String> {
    let known = entries(whole);
    let lost = entries(part).into_iter().filter(|entry| !known.contains(entry));
    lost.map(|entry| format!("engines/clippy.toml lacks `{entry}`")).collect()
}

#[test]
fn the_engines_settings_repeat_the_root_settings() {
    assert_none(&missing(&read("engines/clippy.toml"), &read("clippy.toml")));
    let lost = missing("a = 1\n", "# why\na = 1\nb = [\n  { path = \"x\" },\n]\n");
    assert_eq!(lost.len(), 3, "{lost:?}");
}

#[test]
fn functions_are_limited_to_eighty_lines() {
    for file in ["clippy.toml", "engines/clippy.toml"] {
        assert!(entries(&read(file)).contains(&"too-many-lines-threshold = 80"), "{file}");
    }
    assert!(entries(&read("Cargo.toml")).contains(&"too_many_lines = \"warn\""));
}

/// Whether a manifest takes the workspace's lints.
fn inherits_lints(manifest: &str) -> bool {
    manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").nth(1)
        == Some("workspace = true")
}

#[test]
fn every_member_of_the_workspace_takes_its_lints() {
    let packages = dependencies::metadata().workspace_packages();
    assert!(packages.len() > 5, "{}", packages.len());
    let without =
        packages.iter().filter(|it| !inherits_lints(&read(it.manifest_path.as_std_path())));
    assert_none(
        &without
            .map(|it| format!("{} has no `[lints] workspace = true`", it.name))
            .collect::<Vec<_>>(),
    );
    assert!(!inherits_lints("[package]\nname = \"x\"\n"));
}
