//! Which fields each transformer changes: kustomize's built-in configuration, and additions to it.
//!
//! Below: the defaults (`transformer_config/defaults.rs`), additions from `crds` (`transformer_config/crds.rs`).

mod crds;
mod defaults;

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::budget::BuildBudget;
use crate::error::{Error, ErrorContext as _, Result};
use crate::fieldspec::FieldSpec;
use crate::json_struct_decode::{self, DecodeMode, decode_struct};
use crate::loader::KustomizationLoader;
use crate::resource_id::Gvk;
use crate::sort;

/// Steps that comparing two field specifications costs.
const STEPS_PER_COMPARISON: usize = 4;

/// The fields that refer to objects of a kind by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NameReference {
    /// The referenced kind. An empty part matches any.
    pub(crate) target: Gvk,
    pub(crate) referrers: Vec<FieldSpec>,
}

decode_struct!(NameReference, "builtinconfig", "NameBackReferences", {
    "Gvk.group" => target.group,
    "Gvk.version" => target.version,
    "Gvk.kind" => target.kind,
    "fieldSpecs" => referrers,
});

/// The fields of all transformers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TransformerConfig {
    /// Whether this is the built-in configuration. Then hundreds of fields need not be compared.
    is_builtin: bool,
    pub(crate) name_prefix: Vec<FieldSpec>,
    pub(crate) name_suffix: Vec<FieldSpec>,
    pub(crate) namespace: Vec<FieldSpec>,
    pub(crate) common_labels: Vec<FieldSpec>,
    pub(crate) labels: Vec<FieldSpec>,
    pub(crate) template_labels: Vec<FieldSpec>,
    pub(crate) common_annotations: Vec<FieldSpec>,
    pub(crate) name_reference: Vec<NameReference>,
    pub(crate) var_reference: Vec<FieldSpec>,
    pub(crate) images: Vec<FieldSpec>,
    pub(crate) replicas: Vec<FieldSpec>,
}

decode_struct!(TransformerConfig, "builtinconfig", "TransformerConfig", {
    "namePrefix" => name_prefix,
    "nameSuffix" => name_suffix,
    "namespace" => namespace,
    "commonLabels" => common_labels,
    "labels" => labels,
    "templateLabels" => template_labels,
    "commonAnnotations" => common_annotations,
    "nameReference" => name_reference,
    "varReference" => var_reference,
    "images" => images,
    "replicas" => replicas,
});

/// The built-in configuration. Every kustomization adds it to the configuration of the kustomizations that it includes.
static BUILTIN: LazyLock<TransformerConfig> = LazyLock::new(TransformerConfig::of_table);

fn specs(entries: &[defaults::DefaultFieldSpec]) -> Vec<FieldSpec> {
    let spec = |(kind, path, create): &defaults::DefaultFieldSpec| {
        let [group, version, kind] = parts(kind).map(Into::into);
        FieldSpec { group, version, kind, path: (*path).into(), create: *create }
    };
    entries.iter().map(spec).collect()
}

/// Splits `group/version/kind`. The group may contain a slash.
fn parts(text: &str) -> [&str; 3] {
    let (rest, kind) = text.rsplit_once('/').unwrap_or(("", text));
    let (group, version) = rest.rsplit_once('/').unwrap_or(("", rest));
    [group, version, kind]
}

fn gvk(text: &str) -> Gvk {
    let [group, version, kind] = parts(text).map(str::to_owned);
    Gvk { group, version, kind }
}

impl TransformerConfig {
    /// Reads the table of defaults, which are in order.
    fn of_table() -> Self {
        let references = defaults::NAME_REFERENCE.iter();
        let references = references.map(|(target, referrers)| NameReference {
            target: gvk(target),
            referrers: specs(referrers),
        });
        Self {
            is_builtin: true,
            name_prefix: specs(defaults::NAME_PREFIX),
            name_suffix: specs(defaults::NAME_SUFFIX),
            namespace: specs(defaults::NAMESPACE),
            common_labels: specs(defaults::COMMON_LABELS),
            labels: Vec::new(),
            template_labels: specs(defaults::TEMPLATE_LABELS),
            common_annotations: specs(defaults::COMMON_ANNOTATIONS),
            name_reference: references.collect(),
            var_reference: specs(defaults::VAR_REFERENCE),
            images: specs(defaults::IMAGES),
            replicas: specs(defaults::REPLICAS),
        }
    }

    /// The default configuration with the files of `configurations`.
    ///
    /// # Errors
    /// A file cannot be read, or contradicts another file or the defaults.
    pub(crate) fn with_files(
        loader: &KustomizationLoader<'_>,
        paths: &[String],
    ) -> Result<Cow<'static, Self>> {
        let mut config = Cow::Borrowed(&*BUILTIN);
        if paths.is_empty() {
            return Ok(config);
        }
        let budget = loader.budget();
        let mut added = Self::default();
        for path in paths {
            let text = loader.load(path)?;
            let mut file: Self =
                json_struct_decode::from_yaml(&text, DecodeMode::StrictYaml, budget)?;
            file.sort();
            added.merge(file, budget)?;
        }
        config.to_mut().merge(added, budget)?;
        Ok(config)
    }

    /// The configuration in the files of `crds`.
    ///
    /// # Errors
    /// A file cannot be read, or contradicts another one.
    pub(crate) fn of_crds(loader: &KustomizationLoader<'_>, paths: &[String]) -> Result<Self> {
        let mut config = Self::default();
        for path in paths {
            let text = loader.load(path)?;
            config.merge(crds::config(&text, path, loader.budget())?, loader.budget())?;
        }
        Ok(config)
    }

    /// `known` and `added` together.
    ///
    /// # Errors
    /// As [`Self::merge`].
    pub(crate) fn joined(
        known: Cow<'static, Self>,
        added: Cow<'static, Self>,
        budget: &BuildBudget,
    ) -> Result<Cow<'static, Self>> {
        // Most kustomizations add nothing to the defaults.
        if known.is_builtin && added.is_builtin || known == added || *added == Self::default() {
            return Ok(known);
        }
        if *known == Self::default() && added.is_builtin {
            return Ok(added);
        }
        let mut joined = known.into_owned();
        joined.merge(added.into_owned(), budget)?;
        Ok(Cow::Owned(joined))
    }

    /// Adds the entries that are missing.
    ///
    /// # Errors
    /// Both have the same path, but only one of them creates missing fields.
    fn merge(&mut self, other: Self, budget: &BuildBudget) -> Result<()> {
        if *self == other || other == Self::default() {
            return Ok(());
        }
        self.is_builtin = false;
        let fields = [
            (&mut self.name_prefix, other.name_prefix, "NamePrefix"),
            (&mut self.name_suffix, other.name_suffix, "NameSuffix"),
            (&mut self.namespace, other.namespace, "NameSpace"),
            (&mut self.common_annotations, other.common_annotations, "CommonAnnotations"),
            (&mut self.common_labels, other.common_labels, "CommonLabels"),
            (&mut self.labels, other.labels, "Labels"),
            (&mut self.template_labels, other.template_labels, "TemplateLabels"),
            (&mut self.var_reference, other.var_reference, "VarReference"),
            (&mut self.images, other.images, "Images"),
            (&mut self.replicas, other.replicas, "Replicas"),
        ];
        for (own, others, name) in fields {
            add_all(own, others, budget).within(|| format!("failed to merge {name} fieldSpec"))?;
        }
        for reference in other.name_reference {
            self.add_reference(reference, budget)
                .within(|| "failed to merge NameReference fieldSpec")?;
        }
        self.sort();
        Ok(())
    }

    fn add_reference(&mut self, reference: NameReference, budget: &BuildBudget) -> Result<()> {
        budget.steps(STEPS_PER_COMPARISON * self.name_reference.len())?;
        let mut known = self.name_reference.iter_mut().filter(|own| own.target == reference.target);
        match known.next() {
            Some(own) => add_all(&mut own.referrers, reference.referrers, budget),
            None => {
                self.name_reference.push(reference);
                Ok(())
            }
        }
    }

    fn sort(&mut self) {
        let lists = [
            &mut self.name_prefix,
            &mut self.name_suffix,
            &mut self.namespace,
            &mut self.common_labels,
            &mut self.labels,
            &mut self.template_labels,
            &mut self.common_annotations,
            &mut self.var_reference,
            &mut self.images,
            &mut self.replicas,
        ];
        for list in lists {
            list.sort_by_cached_key(|spec| sort::default_key(&selection(spec)));
        }
        self.name_reference.sort_by_cached_key(|reference| sort::default_key(&reference.target));
    }
}

/// The kinds that a field specification is about.
pub(crate) fn selection(spec: &FieldSpec) -> Gvk {
    let [group, version, kind] =
        [&spec.group, &spec.version, &spec.kind].map(|part| part.clone().into_owned());
    Gvk { group, version, kind }
}

/// Adds field specs that are not there yet.
///
/// # Errors
/// An existing field spec differs only in whether it creates missing fields.
pub(crate) fn add_all(
    own: &mut Vec<FieldSpec>,
    others: impl IntoIterator<Item = FieldSpec>,
    budget: &BuildBudget,
) -> Result<()> {
    others.into_iter().try_for_each(|spec| add(own, spec, budget))
}

/// Like [`add_all`], for one field spec.
///
/// # Errors
/// As [`add_all`].
pub(crate) fn add(own: &mut Vec<FieldSpec>, spec: FieldSpec, budget: &BuildBudget) -> Result<()> {
    budget.steps(STEPS_PER_COMPARISON * (1 + own.len()))?;
    let any = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
    let known = own.iter().find(|known| {
        known.path == spec.path
            && any(&spec.group, &known.group)
            && any(&spec.version, &known.version)
            && any(&spec.kind, &known.kind)
    });
    match known {
        Some(known) if known.create != spec.create => Err(Error::new("conflicting fieldspecs")),
        Some(_) => Ok(()),
        None => {
            budget.bytes(size_of::<FieldSpec>() + spec.path.len() + spec.kind.len())?;
            own.push(spec);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_without_being_said_is_in_order() {
        let mut sorted = BUILTIN.clone();
        sorted.sort();
        assert!(
            *BUILTIN == sorted,
            "an entry of `defaults.rs` does not stand where kustomize sorts it"
        );
    }
}
