//! What every kind promises of the fields of its spec, for the tests of the kinds.
//!
//! Elsewhere: how a refusal of fields reads (`windlass_runtime::unsupported_fields`).

use std::collections::BTreeSet;

use reconcile::RunOutcome;
use serde_json::Value;

/// The spec of a kind has these fields and no others: the test that calls this names those that a run uses and those that
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

/// What the tests call a kind: with its group if that is neither of Flux nor of windlass.
fn called(group: &str, kind: &str) -> String {
    let is_of_flux_or_windlass = group.ends_with(".fluxcd.io") || group.ends_with(".windlass.dev");
    if is_of_flux_or_windlass { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// A field without support ends the run until the spec changes, and the message names it.
///
/// # Panics
/// Where the run does not end so.
pub fn refuses(field: &str, outcome: &RunOutcome) {
    assert!(matches!(outcome, RunOutcome::Stalled(..)), "{field}: {outcome:?}");
    let text = outcome.text();
    assert!(text.starts_with(&format!("spec.{field}")), "{text}");
    assert!(text.contains("is not supported"), "{text}");
}
