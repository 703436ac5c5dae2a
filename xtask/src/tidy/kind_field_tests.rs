//! Checks that every kind has a test that knows every field of its spec. The test calls
//! `spec_field_check::knows_every_field` of the crate `fake-cluster`.
//!
//! `operator/kinds/src/tests.rs` checks the lists that have to name each kind.

use super::{assert_none, files, read};

/// The folder with the CRDs, one kind in each file.
const MANIFESTS: &str = "deploy/chart/files/crds";

/// The categories of kinds that windlass writes as records. It never reads their specs, so they need no such test.
const RECORDS: [&str; 2] = ["fluxcd-audits", "fluxcd-incidents"];

/// The beginning of the call in the test of each kind, up to the name of the kind.
const CALL: &str = "knows_every_field(\"";

/// The name of a CRD's kind in the call that its test has to contain. `None` for the kind of a record.
fn called(manifest: &str) -> Option<String> {
    let lines = || manifest.lines().map(str::trim);
    let mut items = lines().filter_map(|line| line.strip_prefix("- "));
    let is_record = items.any(|item| RECORDS.contains(&item));
    // The first `kind:` is that of the CRD object itself, and the second one is the kind that it defines.
    let kind = lines().filter_map(|line| line.strip_prefix("kind: ")).nth(1)?;
    let group = lines().find_map(|line| line.strip_prefix("group: "))?;
    let is_of_flux_or_windlass = group.ends_with(".fluxcd.io") || group.ends_with(".windlass.dev");
    let name = if is_of_flux_or_windlass { kind.to_owned() } else { format!("{kind}.{group}") };
    (!is_record).then_some(name)
}

/// A source file without blanks, because a call may have line breaks.
fn without_blanks(source: &str) -> String {
    source.split_whitespace().collect()
}

/// The kinds without such a test.
fn faults(manifests: &[String], sources: &[String]) -> Vec<String> {
    let kinds = manifests.iter().filter_map(|it| called(it));
    let has_test = |kind: &String| {
        let call = format!("{CALL}{kind}\"");
        sources.iter().any(|it| without_blanks(it).contains(&call))
    };
    let without = kinds.filter(|kind| !has_test(kind));
    without
        .map(|kind| {
            format!(
                "no test calls `{CALL}{kind}\", …)`: write one beside what validates the spec of {kind}, with the fields \
                 that a run uses and those that it refuses"
            )
        })
        .collect()
}

#[test]
fn a_test_of_every_kind_knows_every_field_of_its_spec() {
    let texts = |folder: &str, ending: &str| files(folder, ending).into_iter().map(read).collect();
    let manifests: Vec<String> = texts(MANIFESTS, ".yaml");
    assert!(manifests.len() > 20, "{}", manifests.len());
    assert_none(&faults(&manifests, &texts("operator", ".rs")));
}

#[test]
fn a_kind_without_such_a_test_is_found_and_a_record_needs_none() {
    let manifest = |group: &str, kind: &str, category: &str| {
        format!(
            "kind: CustomResourceDefinition\nspec:\n  group: {group}\n  names:\n    categories:\n    - {category}\n    \
             kind: {kind}\n"
        )
    };
    let all = [
        manifest("source.windlass.dev", "HTTPArchive", "fluxcd-sources"),
        manifest("apps.example.com", "Helmfile", "fluxcd-appliers"),
        manifest("release.windlass.dev", "ReleaseAudit", "fluxcd-audits"),
    ];
    let calls = |names: [&str; 2]| names.map(|it| format!("{CALL}{it}\", used);"));
    assert_none(&faults(&all, &calls(["HTTPArchive", "Helmfile.apps.example.com"])));
    assert_eq!(faults(&all, &calls(["HTTPArchive", "Helmfile"])).len(), 1);
    assert_eq!(faults(&all, &[]).len(), 2);
}
