//! The fields of a kustomization as generators and transformers.

use serde_json::json;

use super::KustomizationTarget;
use crate::builtin_plugin::{self, ResourceGenerator};
use crate::chart_inflation::InflatableChart;
use crate::error::{ErrorContext as _, Result};
use crate::fieldspec::FieldSpec;
use crate::kustomization::{GeneratorArgs, GeneratorOptions};
use crate::origin::ResourceOrigin;
use crate::transform::affix::{AffixPosition, AffixTransformer};
use crate::transform::image::ImageTransformer;
use crate::transform::label::LabelTransformer;
use crate::transform::namespace::{NamespaceTransformer, RoleBindingSubjects};
use crate::transform::replica::ReplicaTransformer;
use crate::transform::{ResourceTransformer, patch};
use crate::transformer_config::{self, TransformerConfig};

/// A value, with the origin of the objects that it generates if origins are recorded.
type ValueWithOrigin<T> = (T, Option<ResourceOrigin>);

/// Adds the configuration to an error, in kustomize's words.
fn configuring<T>(result: Result<T>, kind: &str, config: &serde_json::Value) -> Result<T> {
    result.within(|| {
        let config = goyaml::emit::emit(config).unwrap_or_default();
        format!("trouble configuring builtin {kind} with config: `\n{config}`")
    })
}

impl KustomizationTarget<'_> {
    fn origin_of(&self, kind: &str) -> Option<ResourceOrigin> {
        self.origin.as_ref().map(|origin| origin.builtin(self.file, kind))
    }

    /// The generators of fields, in kustomize's order.
    pub(super) fn builtin_generators(&self) -> Result<Vec<ValueWithOrigin<ResourceGenerator>>> {
        let file = &self.kustomization;
        let with_options = |args: &GeneratorArgs| {
            let mut args = args.clone();
            if let Some(global) = &file.generator_options {
                args.options.get_or_insert_with(GeneratorOptions::default).add(global);
            }
            args
        };
        let mut generators = Vec::new();
        for args in &file.config_map_generator {
            generators.push(ResourceGenerator::ConfigMap(with_options(args)));
        }
        for args in &file.secret_generator {
            let mut args = args.clone();
            args.generator = with_options(&args.generator);
            generators.push(ResourceGenerator::Secret(args));
        }
        let globals = file.helm_globals.clone().unwrap_or_default();
        for chart in &file.helm_charts {
            let mut chart = chart.clone();
            if chart.namespace.is_empty() {
                let own =
                    if file.namespace.is_empty() { &self.chart_namespace } else { &file.namespace };
                chart.namespace.clone_from(own);
            }
            let config = chart.to_config(&globals);
            let chart =
                InflatableChart::new(&self.loader, &globals, chart, &self.build.options.helm);
            let chart = configuring(chart, "HelmChartInflationGenerator", &config)?;
            generators.push(ResourceGenerator::Chart(Box::new(chart)));
        }
        Ok(generators
            .into_iter()
            .map(|generator| {
                let origin = self.origin_of(generator.kind());
                (generator, origin)
            })
            .collect())
    }

    /// The transformers of fields, in kustomize's order.
    pub(super) fn builtin_transformers(
        &self,
        config: &TransformerConfig,
    ) -> Result<Vec<ValueWithOrigin<ResourceTransformer>>> {
        let mut all = Vec::new();
        let mut add = |kind: &str, transformers: Vec<ResourceTransformer>| {
            all.extend(transformers.into_iter().map(|one| (one, self.origin_of(kind))));
        };
        add("PatchStrategicMergeTransformer", self.strategic_merges()?);
        add("PatchTransformer", self.patches()?);
        let file = &self.kustomization;
        if !file.namespace.is_empty() {
            let namespace = NamespaceTransformer {
                namespace: file.namespace.clone(),
                specs: self.specs(&config.namespace)?,
                unset_only: false,
                subjects: RoleBindingSubjects::NamedDefault,
            };
            add("NamespaceTransformer", vec![ResourceTransformer::Namespace(namespace)]);
        }
        let affixes = [
            ("PrefixTransformer", AffixPosition::Prefix, &file.name_prefix, &config.name_prefix),
            ("SuffixTransformer", AffixPosition::Suffix, &file.name_suffix, &config.name_suffix),
        ];
        for (kind, side, text, specs) in affixes {
            if !text.is_empty() {
                let affix =
                    AffixTransformer { side, text: text.clone(), specs: self.specs(specs)? };
                add(kind, vec![ResourceTransformer::Affix(affix)]);
            }
        }
        add("LabelTransformer", self.labels(config)?);
        if !file.common_annotations.is_empty() {
            let strings = file.common_annotations.clone();
            let strings =
                LabelTransformer { strings, specs: self.specs(&config.common_annotations)? };
            add("AnnotationsTransformer", vec![ResourceTransformer::Labels(strings)]);
        }
        add("PatchJson6902Transformer", self.json6902()?);
        let replicas = file.replicas.iter().map(|replica| {
            let replica = replica.clone();
            let specs = self.specs(&config.replicas)?;
            Ok(ResourceTransformer::Replicas(ReplicaTransformer { replica, specs }))
        });
        add("ReplicaCountTransformer", replicas.collect::<Result<_>>()?);
        let images = file.images.iter().map(|image| {
            self.build.budget.steps(ImageTransformer::CONSTRUCTION_STEPS)?;
            ImageTransformer::new(image.clone(), self.specs(&config.images)?)
                .map(ResourceTransformer::Images)
        });
        add("ImageTagTransformer", images.collect::<Result<_>>()?);
        if !file.replacements.is_empty() {
            let paths: Vec<_> =
                file.replacements.iter().map(|entry| json!({ "path": entry.path })).collect();
            let replacements = builtin_plugin::replacements(&self.loader, &file.replacements);
            let shown = json!({ "Replacements": paths });
            let replacements = configuring(replacements, "ReplacementTransformer", &shown)?;
            add("ReplacementTransformer", vec![replacements]);
        }
        Ok(all)
    }

    /// A copy of field specifications for a transformer.
    fn specs(&self, specs: &[FieldSpec]) -> Result<Vec<FieldSpec>> {
        self.build.budget.bytes(size_of_val(specs))?;
        Ok(specs.to_vec())
    }

    fn strategic_merges(&self) -> Result<Vec<ResourceTransformer>> {
        let paths = &self.kustomization.patches_strategic_merge;
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let patches = patch::StrategicMergeTransformer::load(&self.loader, paths, "");
        let patches =
            configuring(patches, "PatchStrategicMergeTransformer", &json!({ "paths": paths }))?;
        Ok(vec![ResourceTransformer::StrategicMerge(patches)])
    }

    fn patches(&self) -> Result<Vec<ResourceTransformer>> {
        let entries = self.kustomization.patches.iter();
        let load = entries.map(|entry| {
            let patch = patch::PatchTransformer::load(&self.loader, entry);
            let patch = configuring(patch, "PatchTransformer", &entry.to_config("patch"));
            patch.map(ResourceTransformer::Patch)
        });
        load.collect()
    }

    fn json6902(&self) -> Result<Vec<ResourceTransformer>> {
        let entries = self.kustomization.patches_json6902.iter();
        let load = entries.map(|entry| {
            let patch = patch::Json6902Transformer::load(&self.loader, entry);
            let config = entry.to_config("jsonOp");
            configuring(patch, "PatchJson6902Transformer", &config)
                .map(ResourceTransformer::Json6902)
        });
        load.collect()
    }

    fn labels(&self, config: &TransformerConfig) -> Result<Vec<ResourceTransformer>> {
        let file = &self.kustomization;
        if file.labels.is_empty() && file.common_labels.is_empty() {
            return Ok(Vec::new());
        }
        let mut transformers = Vec::new();
        let budget = &self.build.budget;
        for label in &file.labels {
            let mut specs = self.specs(&label.fields)?;
            budget.bytes(size_of_val(config.labels.as_slice()))?;
            let failed = || "failed to merge labels";
            transformer_config::add_all(&mut specs, config.labels.iter().cloned(), budget)
                .within(failed)?;
            if label.include_selectors {
                let all = config.common_labels.iter().cloned();
                transformer_config::add_all(&mut specs, all, budget).within(failed)?;
            } else {
                if label.include_templates {
                    let templates = config.template_labels.iter().cloned();
                    transformer_config::add_all(&mut specs, templates, budget)
                        .within(|| "failed to merge template fieldSpec")?;
                }
                let own = FieldSpec {
                    path: "metadata/labels".into(),
                    create: true,
                    ..FieldSpec::default()
                };
                transformer_config::add(&mut specs, own, budget).within(failed)?;
            }
            transformers.push(ResourceTransformer::Labels(LabelTransformer {
                strings: label.pairs.clone(),
                specs,
            }));
        }
        let specs = self.specs(&config.common_labels)?;
        transformers.push(ResourceTransformer::Labels(LabelTransformer {
            strings: file.common_labels.clone(),
            specs,
        }));
        Ok(transformers)
    }
}
