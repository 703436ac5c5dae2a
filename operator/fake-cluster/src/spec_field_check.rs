//! Checks for the tests of kinds: every kind has to know all fields of its spec.
//!
//! Elsewhere: the message that refuses fields (`windlass_runtime::unsupported_fields`).

use std::collections::BTreeSet;

use reconcile::RunOutcome;
use serde_json::Value;

/// Checks that the spec of a kind has exactly these fields. The calling test names the fields that a run uses and those that
/// it refuses. A kind of another project is named with its group, such as `Helmfile.apps.mumoshu.github.io`.
///
/// # Panics
/// The spec has a field that is not named, or lacks a named one.
pub fn knows_every_field<'f>(kind: &str, known: impl IntoIterator<Item = &'f str>) {
    let crds = crds::all();
    let is_its = |group: &str, name: &str| called(group, name) == kind;
    let mut definitions = crds.iter().map(|(_, crd)| crd);
    let crd = definitions.find(|it| is_its(&it.spec.group, &it.spec.names.kind)).unwrap();
    let crd = serde_json::to_value(crd).unwrap();
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = crd.pointer(path).and_then(Value::as_object).unwrap();
    let fields: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(fields, known.into_iter().collect(), "fields of {kind}");
}

/// The name of a kind in tests. It has the group if that is neither of Flux nor of windlass.
fn called(group: &str, kind: &str) -> String {
    let is_of_flux_or_windlass = group.ends_with(".fluxcd.io") || group.ends_with(".windlass.dev");
    if is_of_flux_or_windlass { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// Checks that an outcome refuses a field: it stalls the object until the spec changes, and its message names the field.
///
/// # Panics
/// If the outcome does not refuse the field.
pub fn refuses(field: &str, outcome: &RunOutcome) {
    assert!(matches!(outcome, RunOutcome::Stalled(..)), "{field}: {outcome:?}");
    let text = outcome.text();
    assert!(text.starts_with(&format!("spec.{field}")), "{text}");
    assert!(text.contains("is not supported"), "{text}");
}
