//! Entries of `generators`, `transformers` and `validators`: configurations of the builtin kinds.
//!
//! Elsewhere: the same kinds as fields of a kustomization (`target/builtin.rs`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::budget::{self, BuildBudget};
use crate::build::Build;
use crate::decode::{self, Decode, Int, Mode, decode_struct};
use crate::error::{Error, Result, Within as _};
use crate::fieldspec::FieldSpec;
use crate::generate;
use crate::inflate::Chart;
use crate::kustomization::{
    GeneratorArgs, HelmChart, HelmGlobals, Image, Metadata, Patch, Replacement, ReplacementField,
    Replica, SecretArgs,
};
use crate::loader::Loader;
use crate::output;
use crate::path_text;
use crate::resource::Resource;
use crate::selector::Selector;
use crate::transform::affix::{Affix, Side};
use crate::transform::image::Images;
use crate::transform::label::Strings;
use crate::transform::namespace::{Namespace, Subjects};
use crate::transform::replacement::Replacements;
use crate::transform::replica::Replicas;
use crate::transform::value_add::{ValueAdd, ValueAddTarget};
use crate::transform::{Transformer, patch};

/// A generator and all it needs.
#[derive(Debug, Clone)]
pub(crate) enum Generator {
    ConfigMap(GeneratorArgs),
    Secret(SecretArgs),
    Chart(Box<Chart>),
    IamPolicy(IamPolicy),
}

impl Generator {
    /// The generated objects.
    ///
    /// # Errors
    /// A source cannot be read, or gives no objects.
    pub(crate) fn generate(&self, loader: &Loader<'_>, build: &Build<'_>) -> Result<Vec<Resource>> {
        match self {
            Self::ConfigMap(args) => Ok(vec![generate::config_map(loader, args)?]),
            Self::Secret(args) => Ok(vec![generate::secret(loader, args)?]),
            Self::Chart(chart) => chart.render(loader, &build.schema()),
            Self::IamPolicy(policy) => Ok(vec![policy.service_account(&build.budget)?]),
        }
    }

    /// What errors call it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::ConfigMap(_) => "ConfigMapGenerator",
            Self::Secret(_) => "SecretGenerator",
            Self::Chart(_) => "HelmChartInflationGenerator",
            Self::IamPolicy(_) => "IAMPolicyGenerator",
        }
    }
}

/// The kinds of configurations.
enum Plugin {
    Generator(Generator),
    Transformer(Transformer),
}

/// The generator that an object configures.
///
/// # Errors
/// It configures a plugin of the other sort, or its configuration is not valid.
pub(crate) fn generator(
    loader: &Loader<'_>,
    build: &Build<'_>,
    config: &Resource,
) -> Result<Generator> {
    let loaded = load(loader, build, config).and_then(|plugin| match plugin {
        Plugin::Generator(generator) => Ok(generator),
        Plugin::Transformer(_) => {
            let id = config.original_id(&build.schema());
            Err(Error::new(format!("plugin {id} not a generator")))
        }
    });
    loaded.within(|| "failed to load generator")
}

/// The transformer that an object configures.
///
/// # Errors
/// It configures a plugin of the other sort, or its configuration is not valid.
pub(crate) fn transformer(
    loader: &Loader<'_>,
    build: &Build<'_>,
    config: &Resource,
) -> Result<Transformer> {
    match load(loader, build, config)? {
        Plugin::Transformer(transformer) => Ok(transformer),
        Plugin::Generator(_) => {
            let id = config.original_id(&build.schema());
            Err(Error::new(format!("plugin {id} not a transformer")))
        }
    }
}

fn load(loader: &Loader<'_>, build: &Build<'_>, config: &Resource) -> Result<Plugin> {
    let gvk = config.gvk();
    let id = config.original_id(&build.schema());
    if config.api_version() != "builtin" {
        let kind = &id.gvk.kind;
        return Err(Error::new(if build.options.plugins {
            format!(
                "`{kind}` ({}) is an exec or container function, and those are not supported; only plugins of \
                 apiVersion `builtin` are",
                config.api_version()
            )
        } else {
            format!("external plugins disabled; unable to load external plugin '{kind}'")
        }));
    }
    let value = output::value(&config.node).within(|| format!("marshalling yaml from res {id}"))?;
    let plugin = match gvk.kind.as_str() {
        "ConfigMapGenerator"
        | "SecretGenerator"
        | "HelmChartInflationGenerator"
        | "IAMPolicyGenerator" => {
            generator_of(loader, build, &gvk.kind, &value).map(Plugin::Generator)
        }
        kind => match transformer_of(loader, kind, &value) {
            Some(transformer) => transformer.map(Plugin::Transformer),
            None => return Err(Error::new(format!("unable to load builtin {gvk}"))),
        },
    };
    plugin.within(|| format!("plugin {id} fails configuration"))
}

/// Decodes a configuration, of which other fields are ignored.
fn read<T: Decode>(value: &Value) -> Result<T> {
    decode::decode(value, Mode::Yaml)
        .map_err(|error| error.within("error unmarshaling JSON: while decoding JSON"))
}

fn generator_of(
    loader: &Loader<'_>,
    build: &Build<'_>,
    kind: &str,
    value: &Value,
) -> Result<Generator> {
    let metadata: WithMetadata = read(value)?;
    Ok(match kind {
        "ConfigMapGenerator" => {
            let mut args: GeneratorArgs = read(value)?;
            args.metadata = metadata.metadata;
            Generator::ConfigMap(args)
        }
        "SecretGenerator" => {
            let mut args: SecretArgs = read(value)?;
            args.generator.metadata = metadata.metadata;
            Generator::Secret(args)
        }
        "IAMPolicyGenerator" => Generator::IamPolicy(read(value)?),
        _ => {
            let (globals, chart): (HelmGlobals, HelmChart) = (read(value)?, read(value)?);
            let chart = Chart::new(loader, &globals, chart, &build.options.helm)?;
            Generator::Chart(Box::new(chart))
        }
    })
}

fn transformer_of(loader: &Loader<'_>, kind: &str, value: &Value) -> Option<Result<Transformer>> {
    let made = match kind {
        "AnnotationsTransformer" => read(value)
            .map(|Annotations { strings, specs }| Transformer::Labels(Strings { strings, specs })),
        "LabelTransformer" => read(value)
            .map(|Labels { strings, specs }| Transformer::Labels(Strings { strings, specs })),
        "HashTransformer" => Ok(Transformer::Hash),
        "ImageTagTransformer" => read(value).and_then(|ImageTag { image, specs }| {
            Images::new(image, specs).map(Transformer::Images)
        }),
        "NamespaceTransformer" => {
            read::<NamespaceConfig>(value).and_then(NamespaceConfig::transformer)
        }
        "PatchJson6902Transformer" => read::<Json6902Config>(value)
            .and_then(|config| patch::Json6902::load(loader, &config.entry))
            .map(Transformer::Json6902),
        "PatchStrategicMergeTransformer" => read::<MergeConfig>(value)
            .and_then(|config| patch::StrategicMerge::load(loader, &config.paths, &config.patches))
            .map(Transformer::StrategicMerge),
        "PatchTransformer" => read::<PatchConfig>(value)
            .and_then(|config| patch::Patch::load(loader, &config.entry))
            .map(Transformer::Patch),
        "PrefixTransformer" => affix(value, Side::Prefix),
        "SuffixTransformer" => affix(value, Side::Suffix),
        "PrefixSuffixTransformer" => affix(value, Side::Prefix)
            .and_then(|prefix| Ok(Transformer::Several(vec![prefix, affix(value, Side::Suffix)?]))),
        "ReplacementTransformer" => read::<ReplacementConfig>(value)
            .and_then(|config| replacements(loader, &config.replacements)),
        "ReplicaCountTransformer" => read(value).map(|ReplicaConfig { replica, specs }| {
            Transformer::Replicas(Replicas { replica, specs })
        }),
        "ValueAddTransformer" => value_add(loader, value),
        _ => return None,
    };
    Some(made)
}

fn affix(value: &Value, side: Side) -> Result<Transformer> {
    let AffixConfig { prefix, suffix, specs } = read(value)?;
    let Some(specs) = specs else {
        return Err(Error::new("fieldSpecs is not expected to be nil"));
    };
    let text = if side == Side::Prefix { prefix } else { suffix };
    Ok(Transformer::Affix(Affix { side, text, specs }))
}

/// The transformer of `replacements`, of which files are read.
///
/// # Errors
/// A file cannot be read or holds something other than a replacement, or an entry is both a file and a replacement.
pub(crate) fn replacements(
    loader: &Loader<'_>,
    entries: &[ReplacementField],
) -> Result<Transformer> {
    let mut all = Vec::new();
    for ReplacementField { replacement, path } in entries {
        let has_targets = replacement.targets.as_ref().is_some_and(|targets| !targets.is_empty());
        match path.as_str() {
            "" => all.push(replacement.clone()),
            _ if replacement.source.is_some() || has_targets => {
                return Err(Error::new("cannot specify both path and inline replacement"));
            }
            path => {
                let text = loader.load(path)?;
                let limits = loader.budget().reading(text.len())?;
                let value = goyaml::to_json_within(&text, &limits).map_err(|error| {
                    Error::new(format!("error converting YAML to JSON: {error}"))
                })?;
                loader.budget().bytes(budget::weight_of_value(&value))?;
                match &value {
                    Value::Array(_) => all.extend(read::<Vec<Replacement>>(&value)?),
                    Value::Object(_) => all.push(read::<Replacement>(&value)?),
                    other => {
                        let kind = match other {
                            Value::String(_) => "string",
                            Value::Bool(_) => "bool",
                            Value::Number(_) => "float64",
                            _ => "invalid",
                        };
                        return Err(Error::new(format!(
                            "unsupported replacement type encountered within replacement path: {kind}"
                        )));
                    }
                }
            }
        }
    }
    Ok(Transformer::Replacements(Replacements(all)))
}

fn value_add(loader: &Loader<'_>, value: &Value) -> Result<Transformer> {
    let config: ValueAddConfig = read(value)?;
    let mut text = config.value.trim().to_owned();
    if text.is_empty() {
        path_text::split(loader.root()).1.clone_into(&mut text);
    }
    let mut targets = config.targets;
    if !config.path.is_empty() {
        let file: ValueAddTargets =
            decode::from_yaml(&loader.load(&config.path)?, Mode::Yaml, loader.budget())?;
        targets.extend(file.targets);
    }
    let targets = targets.into_iter().map(|TargetConfig { selector, field_path, position }| {
        ValueAddTarget { selector, field_path, position: position.0 }
    });
    let addition = ValueAdd { value: text, targets: targets.collect() };
    addition.check()?;
    Ok(Transformer::ValueAdd(addition))
}

#[derive(Debug, Default)]
struct WithMetadata {
    metadata: Metadata,
}

decode_struct!(WithMetadata, "builtins", "Plugin", { "metadata" => metadata });

#[derive(Debug, Default)]
struct Annotations {
    strings: BTreeMap<String, String>,
    specs: Vec<FieldSpec>,
}

decode_struct!(Annotations, "builtins", "AnnotationsTransformerPlugin", {
    "annotations" => strings,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct Labels {
    strings: BTreeMap<String, String>,
    specs: Vec<FieldSpec>,
}

decode_struct!(Labels, "builtins", "LabelTransformerPlugin", {
    "labels" => strings,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct ImageTag {
    image: Image,
    specs: Vec<FieldSpec>,
}

decode_struct!(ImageTag, "builtins", "ImageTagTransformerPlugin", {
    "imageTag" => image,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct NamespaceConfig {
    metadata: Metadata,
    specs: Vec<FieldSpec>,
    unset_only: bool,
    subjects: String,
}

decode_struct!(NamespaceConfig, "builtins", "NamespaceTransformerPlugin", {
    "metadata" => metadata,
    "fieldSpecs" => specs,
    "unsetOnly" => unset_only,
    "setRoleBindingSubjects" => subjects,
});

impl NamespaceConfig {
    fn transformer(self) -> Result<Transformer> {
        let subjects = match self.subjects.as_str() {
            "" | "defaultOnly" => Subjects::NamedDefault,
            "allServiceAccounts" => Subjects::ServiceAccounts,
            "none" => Subjects::None,
            other => {
                return Err(Error::new(format!(
                    "invalid value {other:?} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \
                     \"allServiceAccounts\""
                )));
            }
        };
        let Self { metadata, specs, unset_only, .. } = self;
        let namespace = metadata.namespace;
        Ok(Transformer::Namespace(Namespace { namespace, specs, unset_only, subjects }))
    }
}

#[derive(Debug, Default)]
struct Json6902Config {
    entry: Patch,
}

decode_struct!(Json6902Config, "builtins", "PatchJson6902TransformerPlugin", {
    "target" => entry.target,
    "path" => entry.path,
    "jsonOp" => entry.patch,
});

#[derive(Debug, Default)]
struct MergeConfig {
    paths: Vec<String>,
    patches: String,
}

decode_struct!(MergeConfig, "builtins", "PatchStrategicMergeTransformerPlugin", {
    "paths" => paths,
    "patches" => patches,
});

#[derive(Debug, Default)]
struct PatchConfig {
    entry: Patch,
}

decode_struct!(PatchConfig, "builtins", "PatchTransformerPlugin", {
    "path" => entry.path,
    "patch" => entry.patch,
    "target" => entry.target,
    "options" => entry.options,
});

#[derive(Debug, Default)]
struct AffixConfig {
    prefix: String,
    suffix: String,
    specs: Option<Vec<FieldSpec>>,
}

decode_struct!(AffixConfig, "builtins", "PrefixTransformerPlugin", {
    "prefix" => prefix,
    "suffix" => suffix,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct ReplacementConfig {
    replacements: Vec<ReplacementField>,
}

decode_struct!(ReplacementConfig, "builtins", "ReplacementTransformerPlugin", {
    "replacements" => replacements,
});

#[derive(Debug, Default)]
struct ReplicaConfig {
    replica: Replica,
    specs: Vec<FieldSpec>,
}

decode_struct!(ReplicaConfig, "builtins", "ReplicaCountTransformerPlugin", {
    "replica" => replica,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct TargetConfig {
    selector: Option<Selector>,
    field_path: String,
    position: Int,
}

decode_struct!(TargetConfig, "builtins", "Target", {
    "selector" => selector,
    "fieldPath" => field_path,
    "filePathPosition" => position,
});

#[derive(Debug, Default)]
struct ValueAddTargets {
    targets: Vec<TargetConfig>,
}

decode_struct!(ValueAddTargets, "builtins", "Targets", { "targets" => targets });

#[derive(Debug, Default)]
struct ValueAddConfig {
    value: String,
    targets: Vec<TargetConfig>,
    path: String,
}

decode_struct!(ValueAddConfig, "builtins", "ValueAddTransformerPlugin", {
    "value" => value,
    "targets" => targets,
    "targetFilePath" => path,
});

/// A service account for a policy of a cloud.
#[derive(Debug, Clone, Default)]
pub(crate) struct IamPolicy {
    cloud: String,
    kubernetes: KubernetesService,
    account: ServiceAccount,
}

decode_struct!(IamPolicy, "types", "IAMPolicyGeneratorArgs", {
    "cloud" => cloud,
    "kubernetesService" => kubernetes,
    "serviceAccount" => account,
});

#[derive(Debug, Clone, Default)]
struct KubernetesService {
    name: String,
    namespace: String,
}

decode_struct!(KubernetesService, "types", "KubernetesService", {
    "name" => name,
    "namespace" => namespace,
});

#[derive(Debug, Clone, Default)]
struct ServiceAccount {
    name: String,
    project: String,
}

decode_struct!(ServiceAccount, "types", "ServiceAccount", {
    "name" => name,
    "projectId" => project,
});

impl IamPolicy {
    fn service_account(&self, budget: &BuildBudget) -> Result<Resource> {
        if self.cloud != "gke" {
            let text = format!("cloud provider {} not supported yet", self.cloud);
            return Err(Error::new(text));
        }
        let ServiceAccount { name, project } = &self.account;
        let mut value = serde_json::json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "annotations": {
                    "iam.gke.io/gcp-service-account":
                        format!("{name}@{project}.iam.gserviceaccount.com"),
                },
                "name": self.kubernetes.name,
            },
        });
        if !self.kubernetes.namespace.is_empty() {
            value["metadata"]["namespace"] = self.kubernetes.namespace.as_str().into();
        }
        Ok(Resource::new(crate::manifest::from_value(&value, budget)?))
    }
}
