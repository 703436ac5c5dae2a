//! The spec of a Kustomization, checked and built. An unsupported field is rejected, and the error names it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use apply::drift_ignore_rules::DriftIgnoreRules;
use apply::{ApplyDesiredState, HealthWaitScope};
use crds::kustomize::{DeletionPolicy, Kustomization, KustomizationSpec};
use kube_core::ResourceExt as _;
use objects::{Object, ObjectId, SecretMasking};
use reconcile::{DurationError, NextRunTrigger, RunOutcome, SHORTEST_INTERVAL, condition_reason};
use sha2::{Digest as _, Sha256};
use tree::{FileTree, TreeAccessTrace, TreeRecorder};

use super::build_inputs::KustomizationInputs;
use super::build_manifests::{BuildWorkLimits, LoadedManifests, MAX_WARNINGS};
use super::{build_manifests, crd_ca_bundle, kustomization_file, quarantined_results};
use windlass_runtime::drift_ignore_rules::ignored;
use windlass_runtime::shared_build_parts::decryption;
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_runtime::shared_build_parts::remote_base_access::RemoteBaseAccess;
use windlass_runtime::time_limit::TIME_LIMIT;
use windlass_runtime::unsupported_fields::unsupported_text;
use windlass_serve::settings::OperatorSettings;

/// The longest time until CRDs and classes are ready.
const STAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Annotation of a Kustomization: `"false"` fails a build without a single object. `"true"` permits the build. Its deletions
/// still exceed every deletion budget, since tenants may write the annotation.
pub(super) const ALLOW_EMPTY: &str = "windlass.dev/allow-empty";

/// The durations of a spec.
#[derive(Debug, Clone, Copy)]
pub struct KustomizationTimeouts {
    pub(super) interval: Duration,
    pub(super) retry: Duration,
    pub(super) timeout: Duration,
}

/// The desired state of a Kustomization, with the inputs of its build.
#[derive(Clone)]
pub struct DesiredKustomization {
    /// The desired state of the plan.
    pub desired: Arc<ApplyDesiredState>,
    /// Names the content of all manifests.
    pub digest: String,
    /// The files that the build read.
    pub trace: TreeAccessTrace,
    /// Whether something on another server went into it, which the trace does not have.
    pub(super) is_remote: bool,
    /// The digest of all build inputs that are not files.
    pub(super) inputs: String,
    /// The fields that other managers may change.
    pub ignore: Arc<DriftIgnoreRules>,
    /// API version of everything whose health is asked for by name.
    pub(super) health_versions: Vec<(ObjectId, String)>,
    /// The values that were substituted from Secrets, and the values of Secrets among the manifests.
    pub secrets: SecretMasking,
    /// The names in kustomizations that are not built, for people.
    pub warnings: Vec<String>,
}

/// The message of a condition about an applied build, with its warnings.
pub(super) fn with_warnings(text: String, warnings: &[String]) -> String {
    warnings.iter().fold(text, |text, warning| format!("{text}; warning: {warning}"))
}

impl DesiredKustomization {
    /// Whether the health of objects counts that are not among the manifests.
    pub(super) fn asks_others(&self) -> bool {
        let HealthWaitScope::These(ids) = &self.desired.health else { return false };
        let manifests = self.desired.stages.iter().flat_map(|stage| &stage.objects);
        let ours: BTreeSet<&ObjectId> = manifests.map(|manifest| &manifest.id).collect();
        ids.iter().any(|id| !ours.contains(id))
    }
}

/// Fields that were given and have no support, in the spec's order.
pub(super) fn unsupported(spec: &KustomizationSpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
    let KustomizationSpec {
        common_metadata: _,
        depends_on: _,
        decryption,
        interval: _,
        retry_interval: _,
        kube_config: _,
        path: _,
        post_build: _,
        prune: _,
        deletion_policy: _,
        health_checks: _,
        name_prefix: _,
        name_suffix: _,
        patches: _,
        images: _,
        service_account_name: _,
        source_ref: _,
        suspend: _,
        target_namespace: _,
        timeout: _,
        force: _,
        wait: _,
        build_metadata: _,
        components: _,
        ignore_missing_components: _,
        health_check_exprs: _,
        ignore: _,
    } = spec;
    let has_account =
        decryption.as_ref().is_some_and(|decryption| decryption.service_account_name.is_some());
    let given = [("spec.decryption.serviceAccountName", has_account)];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// Checks what can be checked of a spec without files and expressions, and returns its durations.
///
/// # Errors
/// The outcome of a run: a field that is not supported, a duration that cannot be read.
pub fn check(spec: &KustomizationSpec) -> Result<KustomizationTimeouts, RunOutcome> {
    let fields = unsupported(spec);
    if !fields.is_empty() {
        return Err(RunOutcome::Stalled(
            condition_reason::UNSUPPORTED_FIELD,
            unsupported_text(&fields),
        ));
    }
    timeouts(spec).map_err(|(field, error)| {
        RunOutcome::Stalled(
            sources::source_condition_reasons::INVALID_DURATION,
            format!("{field}: {error}"),
        )
    })
}

fn timeouts(
    spec: &KustomizationSpec,
) -> Result<KustomizationTimeouts, (&'static str, DurationError)> {
    let read =
        |field: &'static str, text: &str| reconcile::parse_duration(text).map_err(|e| (field, e));
    let interval = read("spec.interval", spec.interval.as_str())?;
    let retry = match &spec.retry_interval {
        Some(retry) => read("spec.retryInterval", retry.as_str())?,
        None => interval,
    };
    let timeout = match &spec.timeout {
        Some(timeout) => Some(read("spec.timeout", timeout.as_str())?),
        None => None,
    };
    Ok(KustomizationTimeouts {
        interval,
        retry: retry.max(SHORTEST_INTERVAL),
        timeout: reconcile::kustomization_timeout(interval, timeout),
    })
}

/// Whether leaving objects are deleted when the Kustomization is, and whether their end is awaited.
pub(super) fn deletion(spec: &KustomizationSpec) -> (bool, bool) {
    match spec.deletion_policy.unwrap_or_default() {
        DeletionPolicy::MirrorPrune => (spec.prune, false),
        DeletionPolicy::Delete => (true, false),
        DeletionPolicy::WaitForTermination => (true, true),
        DeletionPolicy::Orphan => (false, false),
    }
}

/// The objects that decryption and substitution read, as kind and name.
pub(super) fn inputs(spec: &KustomizationSpec) -> Vec<(&'static str, String)> {
    let decryption = spec.decryption.as_ref();
    let keys = decryption.and_then(|it| it.secret_ref.as_ref()).map(|it| it.name.clone());
    let account = decryption.and_then(|it| it.service_account_name.clone());
    let substituted = spec.post_build.iter().flat_map(|it| &it.substitute_from);
    let substituted = substituted.map(|it| (it.kind.as_str(), it.name.clone()));
    let keys = keys.map(|name| ("Secret", name));
    let account = account.map(|name| ("ServiceAccount", name));
    keys.into_iter().chain(account).chain(substituted).collect()
}

/// The id of a Kustomization itself.
pub(super) fn own_id(object: &Kustomization) -> ObjectId {
    let namespace = object.namespace().unwrap_or_default();
    ObjectId::new(&namespace, &object.name_any(), "kustomize.toolkit.fluxcd.io", "Kustomization")
}

/// The desired state of a deleted Kustomization, which has no objects.
pub(super) fn finalize(
    object: &Kustomization,
    timeouts: KustomizationTimeouts,
) -> ApplyDesiredState {
    ApplyDesiredState {
        own: own_id(object),
        stages: Vec::new(),
        empty_is_intended: true,
        prune: true,
        prunes_after_health: false,
        health: HealthWaitScope::None,
        fail_fast: true,
        revision: String::new(),
        timeout: timeouts.timeout,
        stage_timeout: STAGE_TIMEOUT,
        retry: timeouts.retry,
    }
}

/// Whether a build without a single object is applied, and does not fail.
///
/// Parity(flux): it is, by default. Differs(flux): what it deletes is held as beyond the deletion budget. Neither the
/// annotation nor anything else that a tenant may write weakens the flag, and an unreadable annotation does not permit it.
fn may_be_empty(object: &Kustomization, settings: &OperatorSettings) -> bool {
    let says = object.annotations().get(ALLOW_EMPTY);
    !settings.no_empty_builds && says.is_none_or(|says| says == "true")
}

/// Steps that decrypting an object or substituting in it costs, besides accounts of their own.
const STEPS_PER_OBJECT_PASS: u64 = 100_000;

/// The access of a build to other servers.
pub struct RemoteServerAccess {
    /// The access to bases on other servers.
    pub bases: RemoteBaseAccess,
    /// The services that decrypt data keys.
    pub keys: KeyServiceAccess,
}

/// A Kustomization to build, with its artifact and inputs.
pub struct BuildRequest<'b> {
    /// The Kustomization.
    pub object: &'b Kustomization,
    /// The durations of its spec.
    pub timeouts: KustomizationTimeouts,
    /// The files of its source.
    pub files: &'b dyn FileTree,
    /// The revision of the files.
    pub revision: &'b str,
    /// The variables and keys of the build.
    pub inputs: &'b KustomizationInputs,
}

/// Builds the desired state that a Kustomization declares at a revision.
///
/// # Errors
/// The outcome of a run that cannot build it.
pub fn desired(
    request: &BuildRequest<'_>,
    servers: RemoteServerAccess,
    settings: &OperatorSettings,
) -> Result<DesiredKustomization, RunOutcome> {
    let mut secrets = request.inputs.secrets();
    let built = built(request, servers, settings, &mut secrets);
    // The error may quote unreadable text, which may have been encrypted.
    built.map_err(|outcome| match outcome {
        RunOutcome::Failed(why, text, wake) => RunOutcome::Failed(why, secrets.mask(&text), wake),
        other => other,
    })
}

fn built(
    request: &BuildRequest<'_>,
    servers: RemoteServerAccess,
    settings: &OperatorSettings,
    secrets: &mut SecretMasking,
) -> Result<DesiredKustomization, RunOutcome> {
    let BuildRequest { object, timeouts, files, revision, inputs } = *request;
    let spec = &object.spec;
    let recorder = TreeRecorder::new(files);
    let account = BuildWorkLimits::new(TIME_LIMIT);
    let RemoteServerAccess { bases, keys } = servers;
    let asked = inputs.decryption.as_ref().map(|it| it.services(&keys, &account.limit));
    let decrypting = inputs.decryption.as_ref().zip(asked.as_ref());
    let decrypting = decrypting.map(|(it, services)| it.with(services, &account.stop));
    let LoadedManifests { objects: loaded, is_remote, mut warnings } =
        build_manifests::load(&recorder, spec, decrypting, bases, &account, secrets)
            .map_err(|error| refused(&error))?;
    let trace = recorder.seen();
    let decrypting = decrypting.map(|it| it.objects(files, &trace)).transpose();
    let decrypting = decrypting.map_err(failed)?;
    let completed = completed(loaded, object, inputs, decrypting.as_ref(), &account, secrets)?;
    let ManifestsToApply { objects, unknown_fields } = completed;
    warnings.extend(unknown_fields);
    warnings.truncate(MAX_WARNINGS);
    let mut stages =
        apply::stages(objects, &settings.custom_apply_stage_kinds).map_err(|error| {
            RunOutcome::Failed(
                condition_reason::BUILD_FAILED,
                error.to_string(),
                NextRunTrigger::default(),
            )
        })?;
    let (health, health_versions) = health(spec);
    let digest = digest(&stages);
    let ignore = Arc::new(ignored("spec.ignore", &spec.ignore)?);
    for manifest in stages.iter_mut().flat_map(|stage| &mut stage.objects) {
        manifest.digest = ignore.digest(&manifest.object, &manifest.digest);
    }
    let manifests = stages.iter().flat_map(|stage| &stage.objects);
    let secrets = secrets.clone().with_manifests(manifests.map(|manifest| &manifest.object));
    let desired = Arc::new(ApplyDesiredState {
        own: own_id(object),
        stages,
        // A missing folder was refused above, so this is about empty builds only.
        empty_is_intended: may_be_empty(object, settings),
        prune: spec.prune,
        prunes_after_health: quarantined_results::rolls_back(object),
        health,
        fail_fast: settings.fails_fast(),
        revision: revision.to_owned(),
        timeout: timeouts.timeout,
        stage_timeout: STAGE_TIMEOUT,
        retry: timeouts.retry,
    });
    Ok(DesiredKustomization {
        desired,
        digest,
        trace,
        is_remote,
        inputs: inputs.digest(),
        ignore,
        health_versions,
        secrets,
        warnings,
    })
}

fn failed(text: String) -> RunOutcome {
    RunOutcome::Failed(condition_reason::BUILD_FAILED, text, NextRunTrigger::default())
}

/// The objects of a build in the form in which they are applied.
struct ManifestsToApply {
    objects: Vec<Object>,
    /// The warnings about unknown fields of built-in kinds, with a text for each object.
    unknown_fields: Vec<String>,
}

/// Completes the objects of a build: decrypts them, substitutes variables, and adds the metadata of the spec.
fn completed(
    loaded: Vec<Object>,
    object: &Kustomization,
    inputs: &KustomizationInputs,
    decrypting: Option<&decryption::ObjectDecryptor<'_>>,
    account: &BuildWorkLimits,
    secrets: &mut SecretMasking,
) -> Result<ManifestsToApply, RunOutcome> {
    let mut hidden = Vec::new();
    let mut objects = Vec::with_capacity(loaded.len());
    let mut unknown_fields = Vec::new();
    for mut manifest in loaded {
        let subject = manifest.id().subject();
        let count = |manifest: &Object, what: &str| {
            let too_much = |exhausted| failed(format!("{what} {subject}: {exhausted}"));
            let weight: usize = manifest.fields().values().map(kustomize::weight_of_value).sum();
            let counted = account.budget.with(|meter| {
                meter.steps(STEPS_PER_OBJECT_PASS)?;
                meter.bytes(weight as u64)
            });
            counted.map_err(too_much)
        };
        let mut is_secret = false;
        if let Some(decrypting) = decrypting {
            let revealed;
            (manifest, revealed) = decrypting.decrypt(manifest).map_err(failed)?;
            is_secret = !revealed.is_empty() || manifest.kind() == "Secret";
            count(&manifest, "decryption of")?;
            hidden.extend(revealed);
        }
        let is_encrypted = decryption::is_still_encrypted(&manifest);
        if is_encrypted && !inputs.keeps_encrypted {
            return Err(failed(format!(
                "{subject} is encrypted with SOPS; set spec.decryption, and name the Secret with the key there"
            )));
        }
        if let Some(substitution) = &inputs.substitution {
            manifest = substitution.apply(manifest, is_secret).map_err(|error| {
                // The error is masked, and the masking needs all values that were decrypted so far.
                *secrets = std::mem::take(secrets).with(std::mem::take(&mut hidden));
                failed(error)
            })?;
            count(&manifest, "substitution in")?;
        }
        // The API server would repeat such a value in its refusal, and so publish it.
        if let Some(key) = value_that_is_no_text(&manifest) {
            return Err(failed(format!("{subject} {key} must be a string; put it in quotes")));
        }
        add_common_metadata(&mut manifest, object);
        // The types of built-in kinds have no field for the data of SOPS, which identifies ciphertext.
        let unknown = if is_encrypted { Vec::new() } else { normalize(&mut manifest) };
        if !unknown.is_empty() && unknown_fields.len() < MAX_WARNINGS {
            unknown_fields.push(unknown_fields_text(&subject, &unknown));
        }
        objects.push(manifest);
    }
    *secrets = std::mem::take(secrets).with(hidden);
    Ok(ManifestsToApply { objects, unknown_fields })
}

/// The message about unknown fields that were left out, with advice.
fn unknown_fields_text(subject: &str, paths: &[String]) -> String {
    let named = paths.join(", ");
    format!("{subject}: its kind has no field {named}, so it is not applied; correct or remove it")
}

fn refused(error: &build_manifests::Error) -> RunOutcome {
    use kustomization_file::Error as Start;
    let text = error.to_string();
    let why = match error {
        build_manifests::Error::Generated(
            Start::NoSuchFolder(_) | Start::NotAFolder(_) | Start::Path(_),
        ) => condition_reason::ARTIFACT_FAILED,
        build_manifests::Error::Generated(_)
        | build_manifests::Error::Build(_)
        | build_manifests::Error::Decryption(_)
        | build_manifests::Error::NotAnObject { .. }
        | build_manifests::Error::TooMuch => condition_reason::BUILD_FAILED,
    };
    RunOutcome::Failed(why, text, NextRunTrigger::default())
}

/// The first entry of a Secret that is not a text, such as a number or a boolean. `None` for a Secret without such an entry,
/// and for other objects.
fn value_that_is_no_text(manifest: &Object) -> Option<String> {
    if manifest.api_version() != "v1" || manifest.kind() != "Secret" {
        return None;
    }
    ["data", "stringData"].into_iter().find_map(|map| {
        let entries = manifest.get(map)?.as_object()?;
        let wrong = entries.iter().find(|(_, value)| !value.is_string() && !value.is_null());
        wrong.map(|(key, _)| format!("{map}.{key}"))
    })
}

/// Adds the metadata and the owner of the spec to an object.
fn add_common_metadata(manifest: &mut Object, object: &Kustomization) {
    if let Some(common) = &object.spec.common_metadata {
        for (key, value) in &common.labels {
            manifest.set_label(key, value);
        }
        for (key, value) in &common.annotations {
            manifest.set_annotation(key, value);
        }
    }
    apply::owner_labels_and_apply_annotations::set_owner(
        manifest,
        &object.name_any(),
        &object.namespace().unwrap_or_default(),
    );
}

/// Converts an object to the form in which it is applied. Returns the fields that its kind does not have, which are left out.
fn normalize(manifest: &mut Object) -> Vec<String> {
    let unknown = apply::manifest_normalization::typed(manifest);
    crd_ca_bundle::remove_unusable(manifest);
    unknown
}

/// The objects whose health is awaited, and the API versions in which named objects are read.
fn health(spec: &KustomizationSpec) -> (HealthWaitScope, Vec<(ObjectId, String)>) {
    if spec.wait {
        return (HealthWaitScope::All, Vec::new());
    }
    if spec.health_checks.is_empty() {
        return (HealthWaitScope::None, Vec::new());
    }
    let named: Vec<(ObjectId, String)> = spec
        .health_checks
        .iter()
        .map(|check| {
            // Parity(flux): without an apiVersion it is apps/v1.
            let gvk =
                objects::Gvk::new(check.api_version.as_deref().unwrap_or("apps/v1"), &check.kind);
            let namespace = check.namespace.as_deref().unwrap_or_default();
            (ObjectId::new(namespace, &check.name, &gvk.group, &gvk.kind), gvk.version)
        })
        .collect();
    (HealthWaitScope::These(named.iter().map(|(id, _)| id.clone()).collect()), named)
}

/// A digest of the content of all manifests. Equal digests mean equal builds.
fn digest(stages: &[apply::ApplyStage]) -> String {
    let mut lines: Vec<String> = stages
        .iter()
        .flat_map(|stage| &stage.objects)
        .map(|manifest| format!("{} {}\n", manifest.id, manifest.digest))
        .collect();
    lines.sort();
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line);
    }
    format!("sha256:{}", hex::encode(hash.finalize()))
}

#[cfg(test)]
mod tests;
