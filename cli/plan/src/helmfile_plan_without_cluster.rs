//! Plans a Helmfile without a cluster. It uses the code of the operator, and the ConfigMaps and Secrets that the repository
//! declares.
//!
//! No program is run and nothing is decrypted. The engine refuses parts that need programs, and encrypted values stay
//! encrypted.
//! Elsewhere: finding the helmfile and its releases (`helmfile_releases.rs`), planning (`helmfile_controller::helmfile::plan`),
//! servers (`helmfile_request_sender.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crds::ConfigKind;
use crds::helmfile::{Helmfile, HelmfileSpec, mumoshu_helmfile};
use futures::executor::block_on;
use golang::work_meter::StopSignal;
use helm::capabilities::Capabilities;
use helm::render::ReleaseToRender;
use helm_controller::helm_release::values::{self, ValuesFromObjects};
use helm_controller::release_runner::action_options::ActionOptions;
use helm_controller::release_runner::manifest_rendering::HelmReleaseRenderInputs;
use helmfile::SopsFileDecryptor;
use helmfile_controller::helmfile::helmfile_kind_differences::HelmfileCustomResource;
use helmfile_controller::helmfile::plan::{
    HelmfilePlan, HelmfilePlanInputs, PlannedChartStore, PlannedRelease, ReleaseKey, plan_with,
};
use helmfile_controller::helmfile::release_specification::release_spec;
use helmfile_controller::helmfile::remote_fetch::HelmfileFetchContext;
use helmfile_controller::helmfile::validated_spec::{self, HelmfileTimeouts};
use objects::{Object, ObjectId};
use plan::UnknownValue;
use reconcile::RunOutcome;
use release::OperationKind;
use serde_json::Value;
use sops::SopsFormat;
use zeroize::Zeroizing;

use super::helmfile_request_sender::HelmfileRequestSender;
use super::nondeterministic_values::{fixed_randomness, fixed_time};
use super::render_failure::RenderFailure;
use super::source_artifact::SourceArtifact;
use windlass_cluster::referenced_secrets_and_config_maps::{
    DeclaredConfigMapsAndSecrets, RunReferenceReads,
};
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};
use windlass_serve::settings::OperatorSettings;

/// The API group of helmfile-operator's Helmfiles.
pub(crate) const HELMFILE_OPERATOR_GROUP: &str = "apps.mumoshu.github.io";

/// The key under which SOPS stores its metadata in a file.
const SOPS_METADATA: &str = "sops";

/// The maximum number of listed warnings about a helmfile.
const MAX_WARNINGS: usize = 20;

/// A Helmfile of windlass or of helmfile-operator.
pub(crate) struct DeclaredHelmfile {
    pub(crate) id: ObjectId,
    pub(crate) spec: HelmfileSpec,
    timeouts: HelmfileTimeouts,
}

/// The files of a helmfile.
#[derive(Clone)]
pub(crate) struct HelmfileLocation {
    pub(crate) artifact: Arc<SourceArtifact>,
    /// The path of the helmfile or its directory.
    pub(crate) path: String,
}

/// The inputs of a Helmfile's plan, in addition to its spec and its files.
#[derive(Clone)]
pub(crate) struct HelmfilePlanEnvironment {
    /// The ConfigMaps and Secrets that the repository declares.
    pub(crate) references: Arc<DeclaredConfigMapsAndSecrets>,
    /// The releases in the base revision, with their helmfiles.
    pub(crate) known: BTreeMap<ReleaseKey, String>,
    pub(crate) capabilities: Arc<Capabilities>,
}

/// The plan of a Helmfile, and the values that are unknown.
pub(crate) struct HelmfilePlanResult {
    pub(crate) plan: HelmfilePlan,
    pub(crate) unknown_values: Vec<UnknownValue>,
}

impl DeclaredHelmfile {
    /// Reads a Helmfile of either kind.
    ///
    /// # Errors
    /// The object cannot be read, or the operator would not reconcile it.
    pub(crate) fn read(object: &Object) -> Result<Self, String> {
        match object.gvk().group.as_str() {
            HELMFILE_OPERATOR_GROUP => Self::of_kind::<mumoshu_helmfile::Helmfile>(object),
            _ => Self::of_kind::<Helmfile>(object),
        }
    }

    fn of_kind<K: HelmfileCustomResource>(object: &Object) -> Result<Self, String> {
        let id = object.id();
        let helmfile: K = serde_json::from_value(object.clone().into_value())
            .map_err(|error| format!("{} cannot be read: {error}", id.subject()))?;
        if let Some(fault) = helmfile.fault() {
            return Err(text_of(&fault));
        }
        let spec = helmfile.asked().into_owned();
        let timeouts = validated_spec::check(&spec).map_err(|outcome| text_of(&outcome))?;
        Ok(Self { id, spec, timeouts })
    }

    /// Plans the releases with the data of these servers. The caller needs a thread with a stack of
    /// [`helm::render::REQUIRED_STACK_BYTES`].
    ///
    /// # Errors
    /// The helmfile, a chart or the values are not valid, or an address in the helmfile is not fetched.
    pub(crate) fn plan(
        &self,
        files: &HelmfileLocation,
        surroundings: &HelmfilePlanEnvironment,
        servers: HelmfileRequestSender,
    ) -> Result<HelmfilePlanResult, RenderFailure> {
        let HelmfilePlanEnvironment { references, known, capabilities } = surroundings;
        let mut unknown_values = Vec::new();
        let spec = self.declared_spec(references, &mut unknown_values);
        let namespace = &self.id.namespace;
        let mut read = RunReferenceReads::of_manifests(references.clone());
        // The manifests are already in memory, so this never waits.
        let variables = block_on(validated_spec::variables(&spec, &mut read, namespace));
        let (variables, _) = variables.map_err(|outcome| text_of(&outcome))?;
        let inputs = HelmfilePlanInputs {
            source: Arc::new(files.artifact.files.clone()),
            path: files.path.clone(),
            dialect: spec.dialect.unwrap_or_default(),
            values: state_values(&spec, references, namespace)?,
            values_files: spec.values_files,
            environment: spec.environment.unwrap_or_else(|| "default".to_owned()),
            selectors: spec.selectors,
            variables,
            namespace: spec.target_namespace.unwrap_or_else(|| namespace.clone()),
            contexts: spec.kube_contexts.into_keys().collect(),
            known: known.keys().cloned().collect(),
            capabilities: capabilities.clone(),
            now: fixed_time(),
            random: fixed_randomness(),
            charts: PlannedChartStore::memory(),
        };
        let decryptor = Arc::new(CiphertextKeepingDecryptor::default());
        let stop = StopSignal::default();
        let limit = Arc::new(TimeLimit::start(TIME_LIMIT, &stop));
        let unfetched = servers.unfetched();
        let reaching = HelmfileFetchContext::of(Box::new(servers));
        let plan = plan_with(inputs, reaching, decryptor.clone(), &stop, limit);
        let plan = plan.map_err(|text| unfetched.failure(text))?;
        unknown_values.extend(decryptor.unknown_value());
        unknown_values.extend(unknown_of_plan(&plan));
        Ok(HelmfilePlanResult { plan, unknown_values })
    }

    /// The spec without references to objects that the repository does not declare. Such references are recorded as unknown.
    fn declared_spec(
        &self,
        references: &DeclaredConfigMapsAndSecrets,
        unknown_values: &mut Vec<UnknownValue>,
    ) -> HelmfileSpec {
        let mut spec = self.spec.clone();
        let namespace = &self.id.namespace;
        let mut is_declared = |kind: ConfigKind, name: &str, field: &str| {
            let kind = kind.as_str();
            let is_declared = references.data(kind, namespace, name).is_some();
            if !is_declared {
                unknown_values.push(UnknownValue {
                    what: format!("{kind}/{namespace}/{name}"),
                    reason: format!(
                        "{field} names it, and the repository does not declare it, or encrypted it"
                    ),
                });
            }
            is_declared
        };
        spec.values_from.retain(|it| is_declared(it.kind, &it.name, "spec.valuesFrom"));
        spec.env_from.retain(|it| is_declared(it.kind, &it.name, "spec.envFrom"));
        spec
    }

    /// The options of Helm's operations on a planned release. `None` if they cannot be read.
    pub(crate) fn action_options(
        &self,
        release: &PlannedRelease,
        settings: &OperatorSettings,
    ) -> Option<ActionOptions> {
        let PlannedRelease { key, operation, .. } = release;
        let spec = release_spec(&self.spec, key, operation, &self.timeouts, settings);
        spec.ok().map(|spec| spec.options)
    }

    /// The inputs for rendering a planned release, for an upgrade or an installation.
    ///
    /// # Errors
    /// The chart is unknown, or the options of the release cannot be read.
    pub(crate) fn release_to_render(
        &self,
        release: &PlannedRelease,
        is_upgrade: bool,
        settings: &OperatorSettings,
    ) -> Result<HelmReleaseRenderInputs, String> {
        let PlannedRelease { key, operation, .. } = release;
        let chart = release.chart.as_ref().map_err(Clone::clone)?;
        let spec = release_spec(&self.spec, key, operation, &self.timeouts, settings);
        let spec = spec.map_err(|outcome| text_of(&outcome))?;
        let action = if is_upgrade { OperationKind::Upgrade } else { OperationKind::Install };
        Ok(HelmReleaseRenderInputs {
            chart: chart.load()?.chart.clone(),
            config: release.values.clone(),
            release: ReleaseToRender {
                name: key.name.clone(),
                namespace: key.namespace.clone(),
                revision: 1,
                is_upgrade,
            },
            skip_schema: release.skips_schema || spec.options.of_action(action).skip_schema,
            post: spec.post,
        })
    }
}

fn text_of(outcome: &RunOutcome) -> String {
    outcome.text().to_owned()
}

/// The state values of a spec, as YAML.
fn state_values(
    spec: &HelmfileSpec,
    references: &DeclaredConfigMapsAndSecrets,
    namespace: &str,
) -> Result<Vec<u8>, String> {
    let mut objects = ValuesFromObjects::new();
    for named in &spec.values_from {
        let data = references.data(named.kind.as_str(), namespace, &named.name);
        objects.insert((named.kind, named.name.clone()), Ok(data.cloned()));
    }
    let composed = values::compose(namespace, &validated_spec::state_values(spec), &objects);
    let composed = composed.map_err(|outcome| text_of(&outcome))?;
    let text = helm::values::yaml(&composed.map).map_err(|error| error.to_string())?;
    Ok(text.into())
}

/// The values of a plan that may differ in the next plan, and warnings for the user.
fn unknown_of_plan(plan: &HelmfilePlan) -> Vec<UnknownValue> {
    let mut unknown = Vec::new();
    if !plan.drawn.is_empty() {
        unknown.push(UnknownValue {
            what: format!("what {} give", plan.drawn.join(", ")),
            reason: "the helmfile draws on the time or on randomness, which are fixed here"
                .to_owned(),
        });
    }
    unknown.extend(plan.warnings.iter().take(MAX_WARNINGS).map(|warning| UnknownValue {
        what: "what a warning of the helmfile is about".to_owned(),
        reason: warning.clone(),
    }));
    unknown
}

/// Uses encrypted text as the value, so a change of the encrypted text is visible.
#[derive(Default)]
struct CiphertextKeepingDecryptor {
    is_used: AtomicBool,
}

impl CiphertextKeepingDecryptor {
    fn unknown_value(&self) -> Option<UnknownValue> {
        self.is_used.load(Ordering::Relaxed).then(|| UnknownValue {
            what: "values that SOPS encrypted".to_owned(),
            reason: "this command has no keys, so the ciphertext is compared".to_owned(),
        })
    }
}

impl SopsFileDecryptor for CiphertextKeepingDecryptor {
    fn decrypt(&self, data: &[u8], format: SopsFormat) -> Result<Zeroizing<Vec<u8>>, String> {
        self.is_used.store(true, Ordering::Relaxed);
        let read = match format {
            SopsFormat::Yaml => goyaml::to_json(data).map_err(|error| error.to_string()),
            SopsFormat::Json | SopsFormat::Binary => {
                serde_json::from_slice(data).map_err(|error| error.to_string())
            }
            SopsFormat::Dotenv | SopsFormat::Ini => return Ok(Zeroizing::new(data.to_vec())),
        };
        let mut value: Value = read?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove(SOPS_METADATA);
        }
        let text = goyaml::emit(&value).map_err(|error| error.to_string())?;
        Ok(Zeroizing::new(text.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn helmfile(api_version: &str, spec: Value) -> Result<DeclaredHelmfile, String> {
        let metadata = json!({"name": "shop", "namespace": "apps"});
        let object = json!({"apiVersion": api_version, "kind": "Helmfile",
            "metadata": metadata, "spec": spec});
        DeclaredHelmfile::read(&Object::new(object).unwrap())
    }

    #[test]
    fn helmfiles_of_both_kinds_are_read_and_refused_as_the_operator_does_it() {
        let source = "git::https://example.com/org/fleet.git@helmfile.yaml?ref=main";
        let own = "helmfile.windlass.dev/v1alpha1";
        let other = "apps.mumoshu.github.io/v1alpha1";
        let of_operator = helmfile(other, json!({"source": source})).unwrap();
        assert_eq!(of_operator.spec.source.as_deref(), Some(source));
        assert!(!validated_spec::uninstalls(&of_operator.spec));
        let both = json!({"interval": "1m", "source": source,
            "sourceRef": {"kind": "GitRepository", "name": "fleet"}});
        assert!(helmfile(own, both).err().unwrap().contains("exactly one"));
        assert!(helmfile(other, json!({})).err().unwrap().contains("spec.source is not set"));
    }

    #[test]
    fn what_sops_encrypted_stays_as_it_is_without_what_sops_knows() {
        let decryptor = CiphertextKeepingDecryptor::default();
        assert!(decryptor.unknown_value().is_none());
        let file = "password: ENC[x]\nsops:\n  mac: ENC[y]\n";
        let plain = decryptor.decrypt(file.as_bytes(), SopsFormat::Yaml).unwrap();
        assert_eq!(String::from_utf8_lossy(&plain), "password: ENC[x]\n");
        assert!(decryptor.unknown_value().is_some());
        assert!(decryptor.decrypt(b"[", SopsFormat::Json).is_err());
    }
}
