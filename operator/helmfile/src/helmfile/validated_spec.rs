//! The spec of a Helmfile, checked and with its defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crds::ConfigKind;
use crds::helm::HelmReleaseSpec;
use crds::helmfile::HelmfileSpec;
use crds::kustomize::DeletionPolicy;
use kube_core::ResourceExt as _;
use objects::SecretMasking;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome, SHORTEST_INTERVAL, condition_reason};

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::plan::HelmfilePlan;
use super::release_clusters::ContextTargets;
use super::{decryption, helmfile_source, release_clusters};
use helm_controller::helm_release::values::{self, ReleaseValues};
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::cluster_target::TargetSpec;
use windlass_runtime::drift_ignore_rules::ignored;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::shared_build_parts::decryption::BuildDecryptionKeys;
use windlass_runtime::unsupported_fields::unsupported_text;

/// An object that `envFrom` names cannot be read.
const ENVIRONMENT_ERROR: ConditionReason = ConditionReason::new("EnvironmentError");

/// The timeout of an operation, if no field gives another one.
const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_secs(300);

/// The longest delay before a failed release is tried again, unless the spec has another one.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The durations of a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HelmfileTimeouts {
    pub(super) interval: Duration,
    pub(super) retry: Duration,
    pub(super) timeout: Duration,
}

/// Fields that were given and have no support.
pub(super) fn unsupported(spec: &HelmfileSpec) -> Vec<&'static str> {
    let account = spec.decryption.as_ref().and_then(|it| it.service_account_name.as_ref());
    account.map(|_| "spec.decryption.serviceAccountName").into_iter().collect()
}

/// Checks what can be checked without the cluster.
///
/// # Errors
/// The outcome of a run with a field that is not supported or cannot be read.
pub fn check(spec: &HelmfileSpec) -> Result<HelmfileTimeouts, RunOutcome> {
    let read = |field: &str, given: Option<&crds::GoDuration>, default: Duration| {
        let Some(text) = given else { return Ok(default) };
        reconcile::parse_duration(text.as_str()).map_err(|error| {
            RunOutcome::Stalled(
                sources::source_condition_reasons::INVALID_DURATION,
                format!("{field}: {error}"),
            )
        })
    };
    let fields = unsupported(spec);
    if !fields.is_empty() {
        return Err(RunOutcome::Stalled(
            condition_reason::UNSUPPORTED_FIELD,
            unsupported_text(&fields),
        ));
    }
    helmfile_source::check(spec)?;
    release_clusters::check(spec)?;
    let interval = read("spec.interval", Some(&spec.interval), MAX_RETRY_DELAY)?;
    let retry = interval.clamp(SHORTEST_INTERVAL, MAX_RETRY_DELAY);
    let rules = spec.drift_detection.as_ref().map_or(&[][..], |drift| &drift.ignore);
    ignored("spec.driftDetection.ignore", rules)?;
    Ok(HelmfileTimeouts {
        interval,
        retry: read("spec.retryInterval", spec.retry_interval.as_ref(), retry)?
            .max(SHORTEST_INTERVAL),
        timeout: read("spec.timeout", spec.timeout.as_ref(), DEFAULT_OPERATION_TIMEOUT)?,
    })
}

impl HelmfileTimeouts {
    /// The durations for a deleted Helmfile whose spec cannot be read.
    pub(super) fn for_finalize() -> Self {
        Self {
            interval: MAX_RETRY_DELAY,
            retry: SHORTEST_INTERVAL,
            timeout: DEFAULT_OPERATION_TIMEOUT,
        }
    }
}

/// Whether releases go with their Helmfile.
pub fn uninstalls(spec: &HelmfileSpec) -> bool {
    match spec.deletion_policy.unwrap_or_default() {
        DeletionPolicy::MirrorPrune => spec.prune,
        DeletionPolicy::Delete | DeletionPolicy::WaitForTermination => true,
        DeletionPolicy::Orphan => false,
    }
}

/// The objects with values, variables and keys that a spec names, as kind and name.
pub(super) fn inputs(spec: &HelmfileSpec) -> Vec<(&'static str, String)> {
    let values = spec.values_from.iter().map(|it| (it.kind.as_str(), it.name.clone()));
    let env = spec.env_from.iter().map(|it| (it.kind.as_str(), it.name.clone()));
    let keys = spec.decryption.as_ref().and_then(|it| it.secret_ref.as_ref());
    let keys = keys.map(|it| ("Secret", it.name.clone()));
    values.chain(env).chain(keys).collect()
}

/// The inputs of a helmfile that its spec names, as they were read.
pub struct HelmfileInputs {
    /// State values as YAML.
    pub(super) values: Vec<u8>,
    /// Environment variables.
    pub(super) variables: BTreeMap<String, String>,
    /// Strings of Secrets, which no status, event or log may show.
    pub(super) secrets: SecretMasking,
    /// The clusters of the entries of `kubeContexts` that are in use.
    pub(super) contexts: ContextTargets,
    /// The decryption keys, if the spec asks for decryption.
    pub(super) decryption: Option<Arc<BuildDecryptionKeys>>,
}

impl HelmfileInputs {
    /// Whether a plan has a context that was not read.
    pub(super) fn lacks_contexts_of(&self, planned: &HelmfilePlan) -> bool {
        let mut contexts = planned.releases.iter().map(|it| &it.key.context);
        contexts.any(|it| !it.is_empty() && !self.contexts.contains_key(it))
    }
}

/// Reads the objects that `valuesFrom`, `envFrom` and `decryption` name, and those that the used entries of `kubeContexts`
/// name.
pub(super) async fn read<K: HelmfileCustomResource>(
    context: &RunContext,
    object: &K,
    in_use: &BTreeSet<String>,
    references: &mut RunReferenceReads,
    preparing: &PreparingPermit,
) -> Result<HelmfileInputs, RunOutcome> {
    let spec: &HelmfileSpec = &object.asked();
    let namespace: &str = &object.namespace().unwrap_or_default();
    let kube_config = spec.kube_config.as_ref();
    let account = spec.service_account_name.as_deref();
    let wanted = TargetSpec::new(&context.settings, namespace, kube_config, account);
    let contexts = release_clusters::contexts(context, spec, &wanted, in_use, references);
    let contexts = match spec.kube_contexts.is_empty() {
        true => contexts.await,
        // One of these clusters may not respond.
        false => preparing.aside(contexts).await,
    };
    let variables = variables(spec, references, namespace).await;
    let settings = &context.settings;
    let annotations = object.annotations();
    let decryption = decryption::read(settings, spec, namespace, annotations, references).await;
    let ReleaseValues { map, secrets, .. } =
        values::read(namespace, &state_values(spec), references).await?;
    let text = helm::values::yaml(&map).map_err(|error| {
        RunOutcome::Failed(values::VALUES_ERROR, error.to_string(), NextRunTrigger::default())
    })?;
    let (variables, hidden) = variables?;
    let values = text.into();
    let secrets = secrets.with(hidden);
    Ok(HelmfileInputs { values, variables, secrets, contexts, decryption: decryption? })
}

/// The state values of a spec, which are put together as the values of a HelmRelease are.
pub fn state_values(spec: &HelmfileSpec) -> HelmReleaseSpec {
    HelmReleaseSpec {
        values: spec.values.clone(),
        values_from: spec.values_from.clone(),
        ..HelmReleaseSpec::default()
    }
}

/// The environment variables, and the values of the variables that came from Secrets.
///
/// # Errors
/// The outcome of a run without some of the variables.
pub async fn variables(
    spec: &HelmfileSpec,
    references: &mut RunReferenceReads,
    namespace: &str,
) -> Result<(BTreeMap<String, String>, Vec<Vec<u8>>), RunOutcome> {
    let mut all = BTreeMap::new();
    let mut hidden = Vec::new();
    let mut problem = None;
    // All references are watched before a missing one ends the run.
    for source in &spec.env_from {
        let kind = source.kind;
        let name = &source.name;
        let found = match kind {
            ConfigKind::Secret => {
                let found = references.secret(namespace, name).await;
                found.map(|data| data.inspect(|data| hidden.extend(data.values().cloned())))
            }
            ConfigKind::ConfigMap => {
                let bytes = |data: BTreeMap<String, String>| {
                    data.into_iter().map(|(key, text)| (key, text.into_bytes())).collect()
                };
                references.config_map(namespace, name).await.map(|data| data.map(bytes))
            }
        };
        let subject = format!("{} '{namespace}/{name}' of spec.envFrom", kind.as_str());
        match found {
            Ok(Some(data)) => {
                for (key, value) in data {
                    match String::from_utf8(value) {
                        Ok(text) => drop(all.insert(key, text)),
                        Err(_) => {
                            problem = Some(format!("{subject}: the key `{key}` is not UTF-8"));
                        }
                    }
                }
            }
            Ok(None) if source.optional => {}
            Ok(None) => problem = Some(format!("{subject} not found")),
            Err(error) => problem = Some(format!("{subject} could not be read: {error}")),
        }
    }
    if let Some(text) = problem {
        return Err(RunOutcome::Failed(ENVIRONMENT_ERROR, text, NextRunTrigger::default()));
    }
    all.extend(spec.env.iter().map(|it| (it.name.clone(), it.value.clone())));
    Ok((all, hidden))
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_of_the_schema_is_used() {
        let used = [
            "decryption",
            "deletionPolicy",
            "dependsOn",
            "dialect",
            "driftDetection",
            "env",
            "envFrom",
            "environment",
            "interval",
            "kubeConfig",
            "kubeContexts",
            "path",
            "prune",
            "retryInterval",
            "selectors",
            "serviceAccountName",
            "source",
            "sourceRef",
            "suspend",
            "suspendedReleases",
            "targetNamespace",
            "timeout",
            "values",
            "valuesFiles",
            "valuesFrom",
            "wait",
        ];
        spec_field_check::knows_every_field("Helmfile", used);
    }

    #[test]
    fn the_account_of_a_key_service_is_refused_by_its_name() {
        let decryption = json!({"provider": "sops", "serviceAccountName": "keys"});
        let spec = json!({"interval": "1m", "decryption": decryption});
        let outcome = check(&serde_json::from_value(spec).unwrap()).unwrap_err();
        spec_field_check::refuses("decryption.serviceAccountName", &outcome);
    }
}
