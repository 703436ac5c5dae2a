//! Collects the values of a HelmRelease from its spec, and from the ConfigMaps and Secrets that the spec names.
//!
//! Source: fluxcd/pkg/chartutil 1.27. Elsewhere: the order in which values override each other, and their digest
//! (`helm::values`).

use std::collections::BTreeMap;

use crds::ConfigKind;
use crds::helm::HelmReleaseSpec;
use golang::GoRuntimeValue;
use golang::value::{GoMap, GoType};
use helm::values::{
    UnresolvedValuesReference, ValuesReference, ValuesReferenceData, ValuesReferenceError,
    ValuesReferenceLookup, ValuesReferenceProblem,
};
use objects::SecretMasking;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome};

use windlass_cluster::ClusterError;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::blocking_task::blocking;

/// The values could not be put together.
pub const VALUES_ERROR: ConditionReason = ConditionReason::new("ValuesError");

/// The values of a release.
pub struct ReleaseValues {
    /// The values that override the chart's own values.
    pub map: GoMap,
    /// The digest of `map` as the history holds it: `sha256:…`.
    pub digest: String,
    /// Strings of Secrets, which no status, event or log may show.
    pub secrets: SecretMasking,
    /// The resource versions of the objects in `valuesFrom`, by `Kind/namespace/name`.
    pub(crate) versions: BTreeMap<String, String>,
}

/// The data of every object that `valuesFrom` names, by kind and name. `None` if the object does not exist, an error if it
/// could not be read.
pub type ValuesFromObjects =
    BTreeMap<(ConfigKind, String), Result<Option<ValuesReferenceData>, ClusterError>>;

/// Reads the objects that `valuesFrom` names, and merges the values.
///
/// The references then contain all named objects, also the missing ones, so that the creation of a missing object wakes the
/// HelmRelease.
///
/// # Errors
/// The outcome of a run without some of these objects.
pub async fn read(
    namespace: &str,
    spec: &HelmReleaseSpec,
    references: &mut RunReferenceReads,
) -> Result<ReleaseValues, RunOutcome> {
    let mut objects = ValuesFromObjects::new();
    for named in &spec.values_from {
        let place = (named.kind, named.name.clone());
        // Each is read once, so that all entries about it see the same version.
        if objects.contains_key(&place) {
            continue;
        }
        let found = match named.kind {
            ConfigKind::Secret => references.secret(namespace, &named.name).await,
            ConfigKind::ConfigMap => {
                let found = references.config_map(namespace, &named.name).await;
                let bytes = |data: BTreeMap<String, String>| {
                    data.into_iter().map(|(key, text)| (key, text.into_bytes())).collect()
                };
                found.map(|data| data.map(bytes))
            }
        };
        objects.insert(place, found);
    }
    let mut versions = BTreeMap::new();
    for (kind, name) in objects.keys() {
        let version = references.version(kind.as_str(), namespace, name);
        let subject = format!("{}/{namespace}/{name}", kind.as_str());
        versions.extend(version.map(|version| (subject, version.to_string())));
    }
    let namespace = namespace.to_owned();
    let spec = spec.clone();
    // Values of a megabyte take their time.
    let compose = move || compose(&namespace, &spec, &objects);
    let values: ReleaseValues =
        blocking(VALUES_ERROR, "putting the values together", compose).await?;
    Ok(ReleaseValues { versions, ..values })
}

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(VALUES_ERROR, text, NextRunTrigger::default())
}

/// Merges the values of a release from its spec and the objects that were read.
///
/// # Errors
/// The outcome of a run whose values cannot be merged. No message contains anything from a Secret.
pub fn compose(
    namespace: &str,
    spec: &HelmReleaseSpec,
    objects: &ValuesFromObjects,
) -> Result<ReleaseValues, RunOutcome> {
    let references: Vec<ValuesReference> = spec
        .values_from
        .iter()
        .map(|named| ValuesReference {
            kind: named.kind.as_str().to_owned(),
            name: named.name.clone(),
            values_key: named.values_key.clone(),
            target_path: named.target_path.clone().unwrap_or_default(),
            optional: named.optional,
            literal: named.literal,
        })
        .collect();
    let mut lookup = |kind: &str, name: &str| {
        let (kind, resource) = match kind {
            "ConfigMap" => (ConfigKind::ConfigMap, "configmaps"),
            _ => (ConfigKind::Secret, "secrets"),
        };
        match objects.get(&(kind, name.to_owned())) {
            Some(Ok(Some(data))) => Ok(ValuesReferenceLookup::Data(data.clone())),
            // The text is that of the API server.
            Some(Ok(None)) | None => {
                Ok(ValuesReferenceLookup::Absent(format!("{resource} \"{name}\" not found")))
            }
            Some(Err(error)) => Err(format!(
                "could not read {kind} '{namespace}/{name}' for spec.valuesFrom: {error}"
            )),
        }
    };
    let map = helm::values::compose(namespace, &inline(spec), &references, &mut lookup)
        .map_err(|error| failed(reference_error(&error)))?;
    let digest = helm::values::digest(&map).map_err(|error| failed(error.to_string()))?;
    Ok(ReleaseValues { map, digest, secrets: secrets(objects), versions: BTreeMap::new() })
}

/// The values of Secrets among the references. Errors of templates, API servers and hooks may quote them.
fn secrets(objects: &ValuesFromObjects) -> SecretMasking {
    let of_secrets = objects.iter().filter(|((kind, _), _)| *kind == ConfigKind::Secret);
    let data = of_secrets.filter_map(|(_, found)| found.as_ref().ok()?.as_ref());
    SecretMasking::new(data.flat_map(BTreeMap::values).cloned())
}

/// Parity(flux): `values` that are not a table are treated as missing.
fn inline(spec: &HelmReleaseSpec) -> GoMap {
    match spec.values.as_ref().map(GoRuntimeValue::from_json) {
        Some(GoRuntimeValue::Map(table)) => table,
        Some(_) | None => GoMap::new(GoType::Any, []),
    }
}

/// The text of an error, in Flux's words and with advice. It contains no value of a Secret.
fn reference_error(error: &ValuesReferenceError) -> String {
    let ValuesReferenceError::Unresolved(unresolved) = error else { return error.to_string() };
    let UnresolvedValuesReference { kind, problem, .. } = &**unresolved;
    let text = unresolved.to_string();
    // A parser may quote a part of a value.
    let hidden = match problem {
        _ if kind != "Secret" => None,
        ValuesReferenceProblem::Yaml(error) => {
            let line = error.line().map(|line| format!(" at line {line}")).unwrap_or_default();
            Some(format!("it is not valid YAML{line}"))
        }
        ValuesReferenceProblem::TargetPath(_) => {
            let advice = "correct either, or set `literal: true` to use the value as it is";
            Some(format!("its value cannot be set at the target path as with `--set`; {advice}"))
        }
        _ => None,
    };
    if let Some(hidden) = hidden {
        let problem = problem.to_string();
        return format!("{}{hidden}", text.strip_suffix(&problem).unwrap_or_default());
    }
    match problem {
        ValuesReferenceProblem::Absent(_) | ValuesReferenceProblem::NoKey => {
            format!("{text}; create it, or set `optional: true` in spec.valuesFrom")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests;
