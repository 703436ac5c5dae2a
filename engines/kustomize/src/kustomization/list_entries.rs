//! The entries of the lists in a kustomization.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::fieldspec::FieldSpec;
use crate::json_struct_decode::{GoInt, decode_struct};
use crate::resource_id::{Gvk, ResourceId};
use crate::selector::ResourceSelector;

decode_struct!(FieldSpec, "types", "FieldSpec", {
    "Gvk.group" => group,
    "Gvk.version" => version,
    "Gvk.kind" => kind,
    "path" => path,
    "create" => create,
});

decode_struct!(ResourceSelector, "types", "Selector", {
    "ResId.Gvk.group" => group,
    "ResId.Gvk.version" => version,
    "ResId.Gvk.kind" => kind,
    "ResId.name" => name,
    "ResId.namespace" => namespace,
    "annotationSelector" => annotation_selector,
    "labelSelector" => label_selector,
});

/// The field `metadata`. It is ignored, except in plugins.
#[derive(Debug, Clone, Default)]
pub(crate) struct KustomizationMetadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

decode_struct!(KustomizationMetadata, "types", "ObjectMeta", {
    "name" => name,
    "namespace" => namespace,
    "labels" => labels,
    "annotations" => annotations,
});

/// An entry of `labels` in a kustomization file: labels that objects get.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelEntry {
    pub(crate) pairs: BTreeMap<String, String>,
    pub(crate) include_selectors: bool,
    pub(crate) include_templates: bool,
    pub(crate) fields: Vec<FieldSpec>,
}

decode_struct!(LabelEntry, "types", "Label", {
    "pairs" => pairs,
    "includeSelectors" => include_selectors,
    "includeTemplates" => include_templates,
    "fields" => fields,
});

/// An entry of `images` in a kustomization file: an image and what replaces its name or tag.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageEntry {
    pub(crate) name: String,
    pub(crate) new_name: String,
    pub(crate) tag_suffix: String,
    pub(crate) new_tag: String,
    pub(crate) digest: String,
}

decode_struct!(ImageEntry, "types", "Image", {
    "name" => name,
    "newName" => new_name,
    "tagSuffix" => tag_suffix,
    "newTag" => new_tag,
    "digest" => digest,
});

/// An entry of `replicas` in a kustomization file: the number of replicas of a workload.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaEntry {
    pub(crate) name: String,
    pub(crate) count: i64,
}

decode_struct!(ReplicaEntry, "types", "Replica", { "name" => name, "count" => count });

/// Which identity fields of its target a patch may change.
#[derive(Debug, Clone, Default)]
pub(crate) struct PatchOptions {
    pub(crate) allow_name_change: bool,
    pub(crate) allow_kind_change: bool,
}

decode_struct!(PatchOptions, "types", "PatchArgs", {
    "allowNameChange" => allow_name_change,
    "allowKindChange" => allow_kind_change,
});

/// An entry of `patches` and `patchesJson6902`.
#[derive(Debug, Clone, Default)]
pub(crate) struct PatchEntry {
    pub(crate) path: String,
    pub(crate) patch: String,
    pub(crate) target: Option<ResourceSelector>,
    pub(crate) options: Option<PatchOptions>,
}

decode_struct!(PatchEntry, "types", "Patch", {
    "path" => path,
    "patch" => patch,
    "target" => target,
    "options" => options,
});

/// Adds a string unless it is empty, like Go's `omitempty`.
pub(crate) fn add_text(map: &mut Map<String, Value>, name: &str, text: &str) {
    if !text.is_empty() {
        map.insert(name.to_owned(), text.into());
    }
}

impl PatchEntry {
    /// The configuration that kustomize passes to its own transformer. Errors show it.
    pub(crate) fn to_config(&self, patch_name: &str) -> Value {
        let mut config = Map::new();
        add_text(&mut config, "path", &self.path);
        add_text(&mut config, patch_name, &self.patch);
        if let Some(target) = &self.target {
            let mut map = Map::new();
            add_text(&mut map, "group", &target.group);
            add_text(&mut map, "version", &target.version);
            add_text(&mut map, "kind", &target.kind);
            add_text(&mut map, "name", &target.name);
            add_text(&mut map, "namespace", &target.namespace);
            add_text(&mut map, "annotationSelector", &target.annotation_selector);
            add_text(&mut map, "labelSelector", &target.label_selector);
            config.insert("target".to_owned(), map.into());
        }
        if let Some(options) = &self.options {
            let mut map = Map::new();
            if options.allow_name_change {
                map.insert("allowNameChange".to_owned(), json!(true));
            }
            if options.allow_kind_change {
                map.insert("allowKindChange".to_owned(), json!(true));
            }
            config.insert("options".to_owned(), map.into());
        }
        config.into()
    }
}

/// The part of a field that is replaced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldOptions {
    pub(crate) delimiter: String,
    pub(crate) index: GoInt,
    pub(crate) encoding: String,
    pub(crate) create: bool,
}

decode_struct!(FieldOptions, "types", "FieldOptions", {
    "delimiter" => delimiter,
    "index" => index,
    "encoding" => encoding,
    "create" => create,
});

/// The source of a replacement's value.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplacementSource {
    pub(crate) id: ResourceId,
    pub(crate) field_path: String,
    pub(crate) options: Option<FieldOptions>,
}

decode_struct!(ReplacementSource, "types", "SourceSelector", {
    "ResId.Gvk.group" => id.gvk.group,
    "ResId.Gvk.version" => id.gvk.version,
    "ResId.Gvk.kind" => id.gvk.kind,
    "ResId.name" => id.name,
    "ResId.namespace" => id.namespace,
    "fieldPath" => field_path,
    "options" => options,
});

impl std::fmt::Display for ReplacementSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.id)?;
        if !self.field_path.is_empty() {
            write!(f, ":{}", self.field_path)?;
        }
        match &self.options {
            Some(options) if !options.delimiter.is_empty() || options.create => {
                let FieldOptions { delimiter, index, create, .. } = options;
                write!(f, ":{delimiter}({}), create={create}", index.0)
            }
            _ => Ok(()),
        }
    }
}

/// The target of a replacement's value.
#[derive(Debug, Clone, Default)]
pub(crate) struct TargetSelector {
    pub(crate) select: Option<ResourceSelector>,
    pub(crate) reject: Vec<ResourceSelector>,
    pub(crate) field_paths: Vec<String>,
    pub(crate) options: Option<FieldOptions>,
}

decode_struct!(TargetSelector, "types", "TargetSelector", {
    "select" => select,
    "reject" => reject,
    "fieldPaths" => field_paths,
    "options" => options,
});

/// A value, and the fields to set to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replacement {
    pub(crate) source: Option<ReplacementSource>,
    pub(crate) source_value: Option<String>,
    /// The targets. `None` means that the field is absent, which is an error. An empty list is allowed.
    pub(crate) targets: Option<Vec<TargetSelector>>,
}

decode_struct!(Replacement, "types", "Replacement", {
    "source" => source,
    "targets" => targets,
    "sourceValue" => source_value,
});

/// An entry of `replacements` in a kustomization file, given there or in the file at `path`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplacementField {
    pub(crate) replacement: Replacement,
    pub(crate) path: String,
}

decode_struct!(ReplacementField, "types", "ReplacementField", {
    "Replacement.source" => replacement.source,
    "Replacement.targets" => replacement.targets,
    "Replacement.sourceValue" => replacement.source_value,
    "path" => path,
});

/// An entry of `vars` in a kustomization file: a variable and the field that has its value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct VariableEntry {
    pub(crate) name: String,
    pub(crate) object: ObjectReference,
    pub(crate) field: FieldReference,
}

decode_struct!(VariableEntry, "types", "Var", {
    "name" => name,
    "objref" => object,
    "fieldref" => field,
});

impl std::fmt::Display for VariableEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} {{{}}}}}", self.name, self.object.gvk, self.field.path)
    }
}

/// The object of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ObjectReference {
    api_version: String,
    pub(crate) gvk: Gvk,
    pub(crate) name: String,
    pub(crate) namespace: String,
}

decode_struct!(ObjectReference, "types", "Target", {
    "apiVersion" => api_version,
    "Gvk.group" => gvk.group,
    "Gvk.version" => gvk.version,
    "Gvk.kind" => gvk.kind,
    "name" => name,
    "namespace" => namespace,
});

/// The field of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldReference {
    pub(crate) path: String,
}

decode_struct!(FieldReference, "types", "FieldSelector", { "fieldPath" => path });

impl VariableEntry {
    /// The variable with its default values.
    pub(crate) fn with_defaults(mut self) -> Self {
        if self.field.path.is_empty() {
            "metadata.name".clone_into(&mut self.field.path);
        }
        self.object.gvk = self.object.resolved();
        self
    }
}

impl ObjectReference {
    /// Group, version and kind. The values in `apiVersion` take precedence.
    pub(crate) fn resolved(&self) -> Gvk {
        let mut gvk = self.gvk.clone();
        let parts: Vec<&str> = self.api_version.split('/').collect();
        match parts.as_slice() {
            [""] => {}
            [version] => (*version).clone_into(&mut gvk.version),
            [group, version] => {
                (*group).clone_into(&mut gvk.group);
                (*version).clone_into(&mut gvk.version);
            }
            _ => {}
        }
        gvk
    }
}

/// The field `sortOptions` of a kustomization file, which says how objects are ordered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SortOptions {
    pub(crate) order: String,
    pub(crate) legacy: Option<LegacySort>,
}

decode_struct!(SortOptions, "types", "SortOptions", {
    "order" => order,
    "legacySortOptions" => legacy,
});

/// Kinds that come first and last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LegacySort {
    pub(crate) first: Vec<String>,
    pub(crate) last: Vec<String>,
}

decode_struct!(LegacySort, "types", "LegacySortOptions", {
    "orderFirst" => first,
    "orderLast" => last,
});

/// `generatorOptions` and the `options` of a generator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct GeneratorOptions {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) disable_name_suffix_hash: bool,
    pub(crate) immutable: bool,
}

decode_struct!(GeneratorOptions, "types", "GeneratorOptions", {
    "labels" => labels,
    "annotations" => annotations,
    "disableNameSuffixHash" => disable_name_suffix_hash,
    "immutable" => immutable,
});

impl GeneratorOptions {
    /// Adds the options for all generators. Options of this generator take precedence, except that a flag set for all stays
    /// set.
    pub(crate) fn add(&mut self, global: &Self) {
        for (own, others) in
            [(&mut self.labels, &global.labels), (&mut self.annotations, &global.annotations)]
        {
            for (key, value) in others {
                own.entry(key.clone()).or_insert_with(|| value.clone());
            }
        }
        self.disable_name_suffix_hash |= global.disable_name_suffix_hash;
        self.immutable |= global.immutable;
    }
}

/// An entry of `configMapGenerator` in a kustomization file: a ConfigMap to generate.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeneratorArgs {
    pub(crate) metadata: KustomizationMetadata,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) behavior: String,
    pub(crate) literals: Vec<String>,
    pub(crate) files: Vec<String>,
    pub(crate) envs: Vec<String>,
    pub(crate) env: String,
    pub(crate) options: Option<GeneratorOptions>,
}

decode_struct!(GeneratorArgs, "types", "ConfigMapArgs", {
    "GeneratorArgs.namespace" => namespace,
    "GeneratorArgs.name" => name,
    "GeneratorArgs.behavior" => behavior,
    "GeneratorArgs.KvPairSources.literals" => literals,
    "GeneratorArgs.KvPairSources.files" => files,
    "GeneratorArgs.KvPairSources.envs" => envs,
    "GeneratorArgs.KvPairSources.env" => env,
    "GeneratorArgs.options" => options,
});

/// An entry of `secretGenerator` in a kustomization file: a Secret to generate.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecretArgs {
    pub(crate) generator: GeneratorArgs,
    /// The type of the Secret.
    pub(crate) type_: String,
}

decode_struct!(SecretArgs, "types", "SecretArgs", {
    "GeneratorArgs.namespace" => generator.namespace,
    "GeneratorArgs.name" => generator.name,
    "GeneratorArgs.behavior" => generator.behavior,
    "GeneratorArgs.KvPairSources.literals" => generator.literals,
    "GeneratorArgs.KvPairSources.files" => generator.files,
    "GeneratorArgs.KvPairSources.envs" => generator.envs,
    "GeneratorArgs.KvPairSources.env" => generator.env,
    "GeneratorArgs.options" => generator.options,
    "type" => type_,
});
