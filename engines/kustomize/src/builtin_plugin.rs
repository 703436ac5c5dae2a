//! Reads entries of `generators`, `transformers` and `validators`: the configurations of built-in plugins.
//!
//! Elsewhere: the same plugins as fields of a kustomization (`kustomization_target/builtin_generators_and_transformers.rs`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::budget::{self, BuildBudget};
use crate::build::KustomizeBuildContext;
use crate::chart_inflation::InflatableChart;
use crate::config_map_secret_generator;
use crate::error::{Error, ErrorContext as _, Result};
use crate::fieldspec::FieldSpec;
use crate::file_path;
use crate::json_struct_decode::{self, DecodableField, DecodeMode, GoInt, decode_struct};
use crate::kustomization::{
    GeneratorArgs, HelmChart, HelmGlobals, ImageEntry, KustomizationMetadata, PatchEntry,
    Replacement, ReplacementField, ReplicaEntry, SecretArgs,
};
use crate::loader::KustomizationLoader;
use crate::resource::BuildResource;
use crate::selector::ResourceSelector;
use crate::transform::affix::{AffixPosition, AffixTransformer};
use crate::transform::image::ImageTransformer;
use crate::transform::label::LabelTransformer;
use crate::transform::namespace::{NamespaceTransformer, RoleBindingSubjects};
use crate::transform::replacement::ReplacementTransformer;
use crate::transform::replica::ReplicaTransformer;
use crate::transform::value_add::{ValueAddTarget, ValueAddTransformer};
use crate::transform::{ResourceTransformer, patch};
use crate::yaml_output;

/// A generator with its configuration.
#[derive(Debug, Clone)]
pub(crate) enum ResourceGenerator {
    ConfigMap(GeneratorArgs),
    Secret(SecretArgs),
    Chart(Box<InflatableChart>),
    IamPolicy(IamPolicyConfig),
}

impl ResourceGenerator {
    /// Generates the objects.
    ///
    /// # Errors
    /// A source cannot be read, or contains no objects.
    pub(crate) fn generate(
        &self,
        loader: &KustomizationLoader<'_>,
        build: &KustomizeBuildContext<'_>,
    ) -> Result<Vec<BuildResource>> {
        match self {
            Self::ConfigMap(args) => {
                Ok(vec![config_map_secret_generator::config_map(loader, args)?])
            }
            Self::Secret(args) => Ok(vec![config_map_secret_generator::secret(loader, args)?]),
            Self::Chart(chart) => chart.render(loader, &build.schema()),
            Self::IamPolicy(policy) => Ok(vec![policy.service_account(&build.budget)?]),
        }
    }

    /// The name of the plugin in errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::ConfigMap(_) => "ConfigMapGenerator",
            Self::Secret(_) => "SecretGenerator",
            Self::Chart(_) => "HelmChartInflationGenerator",
            Self::IamPolicy(_) => "IAMPolicyGenerator",
        }
    }
}

/// A configuration of a builtin plugin, which generates or transforms objects.
enum GeneratorOrTransformer {
    Generator(ResourceGenerator),
    Transformer(ResourceTransformer),
}

/// The generator that an object configures.
///
/// # Errors
/// It configures a plugin of the other sort, or its configuration is not valid.
pub(crate) fn generator(
    loader: &KustomizationLoader<'_>,
    build: &KustomizeBuildContext<'_>,
    config: &BuildResource,
) -> Result<ResourceGenerator> {
    let loaded = load(loader, build, config).and_then(|plugin| match plugin {
        GeneratorOrTransformer::Generator(generator) => Ok(generator),
        GeneratorOrTransformer::Transformer(_) => {
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
    loader: &KustomizationLoader<'_>,
    build: &KustomizeBuildContext<'_>,
    config: &BuildResource,
) -> Result<ResourceTransformer> {
    match load(loader, build, config)? {
        GeneratorOrTransformer::Transformer(transformer) => Ok(transformer),
        GeneratorOrTransformer::Generator(_) => {
            let id = config.original_id(&build.schema());
            Err(Error::new(format!("plugin {id} not a transformer")))
        }
    }
}

fn load(
    loader: &KustomizationLoader<'_>,
    build: &KustomizeBuildContext<'_>,
    config: &BuildResource,
) -> Result<GeneratorOrTransformer> {
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
    let value =
        yaml_output::value(&config.node).within(|| format!("marshalling yaml from res {id}"))?;
    let plugin = match gvk.kind.as_str() {
        "ConfigMapGenerator"
        | "SecretGenerator"
        | "HelmChartInflationGenerator"
        | "IAMPolicyGenerator" => {
            generator_of(loader, build, &gvk.kind, &value).map(GeneratorOrTransformer::Generator)
        }
        kind => match transformer_of(loader, kind, &value) {
            Some(transformer) => transformer.map(GeneratorOrTransformer::Transformer),
            None => return Err(Error::new(format!("unable to load builtin {gvk}"))),
        },
    };
    plugin.within(|| format!("plugin {id} fails configuration"))
}

/// Decodes a configuration. Unknown fields are ignored.
fn read<T: DecodableField>(value: &Value) -> Result<T> {
    json_struct_decode::decode(value, DecodeMode::Yaml)
        .map_err(|error| error.within("error unmarshaling JSON: while decoding JSON"))
}

fn generator_of(
    loader: &KustomizationLoader<'_>,
    build: &KustomizeBuildContext<'_>,
    kind: &str,
    value: &Value,
) -> Result<ResourceGenerator> {
    let metadata: MetadataConfig = read(value)?;
    Ok(match kind {
        "ConfigMapGenerator" => {
            let mut args: GeneratorArgs = read(value)?;
            args.metadata = metadata.metadata;
            ResourceGenerator::ConfigMap(args)
        }
        "SecretGenerator" => {
            let mut args: SecretArgs = read(value)?;
            args.generator.metadata = metadata.metadata;
            ResourceGenerator::Secret(args)
        }
        "IAMPolicyGenerator" => ResourceGenerator::IamPolicy(read(value)?),
        _ => {
            let (globals, chart): (HelmGlobals, HelmChart) = (read(value)?, read(value)?);
            let chart = InflatableChart::new(loader, &globals, chart, &build.options.helm)?;
            ResourceGenerator::Chart(Box::new(chart))
        }
    })
}

fn transformer_of(
    loader: &KustomizationLoader<'_>,
    kind: &str,
    value: &Value,
) -> Option<Result<ResourceTransformer>> {
    let made = match kind {
        "AnnotationsTransformer" => read(value).map(|AnnotationsConfig { strings, specs }| {
            ResourceTransformer::Labels(LabelTransformer { strings, specs })
        }),
        "LabelTransformer" => read(value).map(|LabelsConfig { strings, specs }| {
            ResourceTransformer::Labels(LabelTransformer { strings, specs })
        }),
        "HashTransformer" => Ok(ResourceTransformer::Hash),
        "ImageTagTransformer" => read(value).and_then(|ImageTagConfig { image, specs }| {
            ImageTransformer::new(image, specs).map(ResourceTransformer::Images)
        }),
        "NamespaceTransformer" => {
            read::<NamespaceConfig>(value).and_then(NamespaceConfig::transformer)
        }
        "PatchJson6902Transformer" => read::<Json6902Config>(value)
            .and_then(|config| patch::Json6902Transformer::load(loader, &config.entry))
            .map(ResourceTransformer::Json6902),
        "PatchStrategicMergeTransformer" => read::<MergeConfig>(value)
            .and_then(|config| {
                patch::StrategicMergeTransformer::load(loader, &config.paths, &config.patches)
            })
            .map(ResourceTransformer::StrategicMerge),
        "PatchTransformer" => read::<PatchConfig>(value)
            .and_then(|config| patch::PatchTransformer::load(loader, &config.entry))
            .map(ResourceTransformer::Patch),
        "PrefixTransformer" => affix(value, AffixPosition::Prefix),
        "SuffixTransformer" => affix(value, AffixPosition::Suffix),
        "PrefixSuffixTransformer" => affix(value, AffixPosition::Prefix).and_then(|prefix| {
            Ok(ResourceTransformer::Several(vec![prefix, affix(value, AffixPosition::Suffix)?]))
        }),
        "ReplacementTransformer" => read::<ReplacementConfig>(value)
            .and_then(|config| replacements(loader, &config.replacements)),
        "ReplicaCountTransformer" => read(value).map(|ReplicaConfig { replica, specs }| {
            ResourceTransformer::Replicas(ReplicaTransformer { replica, specs })
        }),
        "ValueAddTransformer" => value_add(loader, value),
        _ => return None,
    };
    Some(made)
}

fn affix(value: &Value, side: AffixPosition) -> Result<ResourceTransformer> {
    let AffixConfig { prefix, suffix, specs } = read(value)?;
    let Some(specs) = specs else {
        return Err(Error::new("fieldSpecs is not expected to be nil"));
    };
    let text = if side == AffixPosition::Prefix { prefix } else { suffix };
    Ok(ResourceTransformer::Affix(AffixTransformer { side, text, specs }))
}

/// Creates the transformer for `replacements`, and reads the files that it refers to.
///
/// # Errors
/// A file cannot be read or contains no replacement, or an entry is both a file and a replacement.
pub(crate) fn replacements(
    loader: &KustomizationLoader<'_>,
    entries: &[ReplacementField],
) -> Result<ResourceTransformer> {
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
    Ok(ResourceTransformer::Replacements(ReplacementTransformer(all)))
}

fn value_add(loader: &KustomizationLoader<'_>, value: &Value) -> Result<ResourceTransformer> {
    let config: ValueAddConfig = read(value)?;
    let mut text = config.value.trim().to_owned();
    if text.is_empty() {
        file_path::split(loader.root()).1.clone_into(&mut text);
    }
    let mut targets = config.targets;
    if !config.path.is_empty() {
        let file: ValueAddTargetsConfig = json_struct_decode::from_yaml(
            &loader.load(&config.path)?,
            DecodeMode::Yaml,
            loader.budget(),
        )?;
        targets.extend(file.targets);
    }
    let targets =
        targets.into_iter().map(|ValueAddTargetConfig { selector, field_path, position }| {
            ValueAddTarget { selector, field_path, position: position.0 }
        });
    let addition = ValueAddTransformer { value: text, targets: targets.collect() };
    addition.check()?;
    Ok(ResourceTransformer::ValueAdd(addition))
}

#[derive(Debug, Default)]
struct MetadataConfig {
    metadata: KustomizationMetadata,
}

decode_struct!(MetadataConfig, "builtins", "Plugin", { "metadata" => metadata });

#[derive(Debug, Default)]
struct AnnotationsConfig {
    strings: BTreeMap<String, String>,
    specs: Vec<FieldSpec>,
}

decode_struct!(AnnotationsConfig, "builtins", "AnnotationsTransformerPlugin", {
    "annotations" => strings,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct LabelsConfig {
    strings: BTreeMap<String, String>,
    specs: Vec<FieldSpec>,
}

decode_struct!(LabelsConfig, "builtins", "LabelTransformerPlugin", {
    "labels" => strings,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct ImageTagConfig {
    image: ImageEntry,
    specs: Vec<FieldSpec>,
}

decode_struct!(ImageTagConfig, "builtins", "ImageTagTransformerPlugin", {
    "imageTag" => image,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct NamespaceConfig {
    metadata: KustomizationMetadata,
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
    fn transformer(self) -> Result<ResourceTransformer> {
        let subjects = match self.subjects.as_str() {
            "" | "defaultOnly" => RoleBindingSubjects::NamedDefault,
            "allServiceAccounts" => RoleBindingSubjects::ServiceAccounts,
            "none" => RoleBindingSubjects::None,
            other => {
                return Err(Error::new(format!(
                    "invalid value {other:?} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \
                     \"allServiceAccounts\""
                )));
            }
        };
        let Self { metadata, specs, unset_only, .. } = self;
        let namespace = metadata.namespace;
        Ok(ResourceTransformer::Namespace(NamespaceTransformer {
            namespace,
            specs,
            unset_only,
            subjects,
        }))
    }
}

#[derive(Debug, Default)]
struct Json6902Config {
    entry: PatchEntry,
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
    entry: PatchEntry,
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
    replica: ReplicaEntry,
    specs: Vec<FieldSpec>,
}

decode_struct!(ReplicaConfig, "builtins", "ReplicaCountTransformerPlugin", {
    "replica" => replica,
    "fieldSpecs" => specs,
});

#[derive(Debug, Default)]
struct ValueAddTargetConfig {
    selector: Option<ResourceSelector>,
    field_path: String,
    position: GoInt,
}

decode_struct!(ValueAddTargetConfig, "builtins", "Target", {
    "selector" => selector,
    "fieldPath" => field_path,
    "filePathPosition" => position,
});

#[derive(Debug, Default)]
struct ValueAddTargetsConfig {
    targets: Vec<ValueAddTargetConfig>,
}

decode_struct!(ValueAddTargetsConfig, "builtins", "Targets", { "targets" => targets });

#[derive(Debug, Default)]
struct ValueAddConfig {
    value: String,
    targets: Vec<ValueAddTargetConfig>,
    path: String,
}

decode_struct!(ValueAddConfig, "builtins", "ValueAddTransformerPlugin", {
    "value" => value,
    "targets" => targets,
    "targetFilePath" => path,
});

/// A service account for a policy of a cloud.
#[derive(Debug, Clone, Default)]
pub(crate) struct IamPolicyConfig {
    cloud: String,
    kubernetes: KubernetesService,
    account: ServiceAccount,
}

decode_struct!(IamPolicyConfig, "types", "IAMPolicyGeneratorArgs", {
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

impl IamPolicyConfig {
    fn service_account(&self, budget: &BuildBudget) -> Result<BuildResource> {
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
        Ok(BuildResource::new(crate::manifest::from_value(&value, budget)?))
    }
}
