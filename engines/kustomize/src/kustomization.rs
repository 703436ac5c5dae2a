//! The fields of a `kustomization.yaml`.
//!
//! Here: the fields, their deprecated forms, and rejected values. Below: the content of single fields (`kustomization/`).
//! Elsewhere: accumulating the kustomization (`kustomization_target.rs`).

mod helm_chart_fields;
mod list_entries;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::budget::{self, BudgetReservation, BuildBudget};
use crate::error::{Error, Result};
use crate::json_struct_decode::{self, DecodeMode, decode_struct};

pub(crate) use helm_chart_fields::HelmChartArgs;
pub use helm_chart_fields::{HelmChart, HelmGlobals};
pub(crate) use list_entries::{
    FieldOptions, GeneratorArgs, GeneratorOptions, ImageEntry, KustomizationMetadata, LabelEntry,
    LegacySort, PatchEntry, Replacement, ReplacementField, ReplacementSource, ReplicaEntry,
    SortOptions, TargetSelector, VariableEntry,
};

/// The names that a kustomization may have.
pub const FILE_NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

pub(crate) const COMPONENT: &str = "Component";

/// A decoded kustomization. The content of deprecated fields has been moved to the present ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kustomization {
    api_version: String,
    pub(crate) kind: String,
    metadata: Option<KustomizationMetadata>,
    pub(crate) openapi: BTreeMap<String, String>,
    pub(crate) name_prefix: String,
    pub(crate) name_suffix: String,
    pub(crate) namespace: String,
    pub(crate) common_labels: BTreeMap<String, String>,
    pub(crate) labels: Vec<LabelEntry>,
    pub(crate) common_annotations: BTreeMap<String, String>,
    pub(crate) patches_strategic_merge: Vec<String>,
    pub(crate) patches_json6902: Vec<PatchEntry>,
    pub(crate) patches: Vec<PatchEntry>,
    pub(crate) images: Vec<ImageEntry>,
    image_tags: Vec<ImageEntry>,
    pub(crate) replacements: Vec<ReplacementField>,
    pub(crate) replicas: Vec<ReplicaEntry>,
    pub(crate) vars: Vec<VariableEntry>,
    pub(crate) sort_options: Option<SortOptions>,
    pub(crate) resources: Vec<String>,
    pub(crate) components: Vec<String>,
    pub(crate) crds: Vec<String>,
    bases: Vec<String>,
    pub(crate) config_map_generator: Vec<GeneratorArgs>,
    pub(crate) secret_generator: Vec<SecretArgs>,
    pub(crate) helm_globals: Option<HelmGlobals>,
    pub(crate) helm_charts: Vec<HelmChart>,
    helm_chart_inflation_generator: Vec<HelmChartArgs>,
    pub(crate) generator_options: Option<GeneratorOptions>,
    pub(crate) configurations: Vec<String>,
    pub(crate) generators: Vec<String>,
    pub(crate) transformers: Vec<String>,
    pub(crate) validators: Vec<String>,
    pub(crate) build_metadata: Vec<String>,
}

pub(crate) use list_entries::SecretArgs;

decode_struct!(Kustomization, "types", "Kustomization", {
    "TypeMeta.apiVersion" => api_version,
    "TypeMeta.kind" => kind,
    "metadata" => metadata,
    "openapi" => openapi,
    "namePrefix" => name_prefix,
    "nameSuffix" => name_suffix,
    "namespace" => namespace,
    "commonLabels" => common_labels,
    "labels" => labels,
    "commonAnnotations" => common_annotations,
    "patchesStrategicMerge" => patches_strategic_merge,
    "patchesJson6902" => patches_json6902,
    "patches" => patches,
    "images" => images,
    "imageTags" => image_tags,
    "replacements" => replacements,
    "replicas" => replicas,
    "vars" => vars,
    "sortOptions" => sort_options,
    "resources" => resources,
    "components" => components,
    "crds" => crds,
    "bases" => bases,
    "configMapGenerator" => config_map_generator,
    "secretGenerator" => secret_generator,
    "helmGlobals" => helm_globals,
    "helmCharts" => helm_charts,
    "helmChartInflationGenerator" => helm_chart_inflation_generator,
    "generatorOptions" => generator_options,
    "configurations" => configurations,
    "generators" => generators,
    "transformers" => transformers,
    "validators" => validators,
    "buildMetadata" => build_metadata,
});

/// Deprecated fields with kustomize's warnings about them, in its order.
const DEPRECATED: [(&str, &str); 6] = [
    ("bases", "'resources' instead."),
    ("commonLabels", "'labels' instead."),
    ("imageTags", "'images' instead."),
    ("patchesJson6902", "'patches' instead."),
    ("patchesStrategicMerge", "'patches' instead."),
    ("vars", "'replacements' instead. [EXPERIMENTAL]"),
];

impl Kustomization {
    /// Reads a file.
    ///
    /// Deprecated fields are added to `warnings`, even if the file is rejected for another reason.
    ///
    /// # Errors
    /// The text is not YAML, a field is unknown or of the wrong type, the file is empty, or its kind is not Kustomization or
    /// Component.
    pub(crate) fn parse(
        text: &[u8],
        dir: &str,
        budget: &BuildBudget,
        warnings: &mut Vec<String>,
    ) -> Result<(Self, BudgetReservation)> {
        let invalid = |error: Error| error.within("invalid Kustomization");
        let limits = budget.reading(text.len())?;
        let value = goyaml::to_json_within(text, &limits)
            .map_err(|error| invalid(Error::new(error.to_string())))?;
        // The decoded form is as large as the value, and kept.
        let held = budget.hold(budget::weight_of_value(&value))?;
        let mut file: Self =
            json_struct_decode::decode(&value, DecodeMode::Strict).map_err(invalid)?;
        let said = |name: &str| {
            let fields = value.as_object().into_iter().flatten();
            let mut values = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
            values.next_back().map(|(_, value)| value).filter(|value| !value.is_null())
        };
        for (field, advice) in DEPRECATED {
            if said(field).is_some() {
                warnings.push(format!(
                    "# Warning: '{field}' is deprecated. Please use {advice} Run 'kustomize edit fix' to update your \
                     Kustomization automatically."
                ));
            }
        }
        let mut fields = value.as_object().into_iter().flatten();
        let is_empty = !fields.any(|(name, value)| says_something(name, value));
        file.modernize();
        if is_empty {
            return Err(Error::new("kustomization.yaml is empty"));
        }
        file.check_type(dir)?;
        Ok((file, held))
    }

    /// Moves the content of deprecated fields to the present ones.
    fn modernize(&mut self) {
        if self.kind.is_empty() {
            "Kustomization".clone_into(&mut self.kind);
        }
        if self.api_version.is_empty() {
            self.required_version().clone_into(&mut self.api_version);
        }
        self.resources.append(&mut self.bases);
        self.images.append(&mut self.image_tags);
        let secrets = self.secret_generator.iter_mut().map(|secret| &mut secret.generator);
        for generator in self.config_map_generator.iter_mut().chain(secrets) {
            if !generator.env.is_empty() {
                generator.envs.push(std::mem::take(&mut generator.env));
            }
        }
        let old = std::mem::take(&mut self.helm_chart_inflation_generator);
        let (charts, globals) = HelmChartArgs::modernize(old);
        if self.helm_globals.is_none() && globals != HelmGlobals::default() {
            self.helm_globals = Some(globals);
        }
        self.helm_charts.extend(charts);
    }

    fn required_version(&self) -> &'static str {
        if self.kind == COMPONENT {
            "kustomize.config.k8s.io/v1alpha1"
        } else {
            "kustomize.config.k8s.io/v1beta1"
        }
    }

    fn check_type(&self, dir: &str) -> Result<()> {
        let mut problems = Vec::new();
        if self.kind != "Kustomization" && self.kind != COMPONENT {
            problems.push("kind should be Kustomization or Component".to_owned());
        }
        let required = self.required_version();
        if self.api_version != required {
            problems.push(format!("apiVersion for {} should be {required}", self.kind));
        }
        if problems.is_empty() {
            return Ok(());
        }
        let problems = problems.join("\n");
        Err(Error::new(format!("Failed to read kustomization file under {dir}:\n{problems}")))
    }

    /// Whether `buildMetadata` lists this option.
    pub(crate) fn wants(&self, metadata: &str) -> bool {
        self.build_metadata.iter().any(|wanted| wanted == metadata)
    }
}

/// Whether a field makes a file count as not empty. An empty list does, unless its field is a deprecated form.
fn says_something(name: &str, value: &Value) -> bool {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    if is("apiVersion") || is("kind") {
        return false;
    }
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items)
            if is("bases") || is("imageTags") || is("helmChartInflationGenerator") =>
        {
            !items.is_empty()
        }
        _ => true,
    }
}
