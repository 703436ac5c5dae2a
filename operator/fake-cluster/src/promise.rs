//! What every kind promises of the fields of its spec, for the tests of the kinds.
//!
//! Elsewhere: how a refusal of fields reads (`windlass_runtime::unsupported_fields`).

use std::collections::BTreeSet;

use reconcile::RunOutcome;
use serde_json::Value;

/// Every field of the schema of a kind is among those that are used or those that are refused, and no other is.
///
/// # Panics
/// Where a field is in neither list or in no schema.
pub fn knows_every_field<'f>(kind: &str, known: impl IntoIterator<Item = &'f str>) {
    let crds = crds::all();
    let (_, crd) = crds.iter().find(|(_, crd)| crd.spec.names.kind == kind).unwrap();
    let crd = serde_json::to_value(crd).unwrap();
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = crd.pointer(path).and_then(Value::as_object).unwrap();
    let fields: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    assert_eq!(fields, known.into_iter().collect(), "fields of {kind}");
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
