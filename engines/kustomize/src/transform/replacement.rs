//! `replacements`: copies a value of one object to fields of other objects.
//!
//! Elsewhere: fields in YAML or JSON that is itself the text of a field (`structured_replacement.rs`).

use goyaml::v3::{YamlNode, YamlNodeKind};

use super::structured_replacement;
use crate::budget::{self, BuildBudget};
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::kustomization::{FieldOptions, Replacement, ReplacementSource, TargetSelector};
use crate::manifest::MAX_DEPTH;
use crate::resource::{self, BuildResource};
use crate::resource_id::ResourceId;
use crate::resources::BuildResources;
use crate::transform::named;
use crate::yaml_path::{self, PathMatch};

/// The steps for examining one id of an object, or one place at a path.
const LOOKED_AT: usize = 64;

const DEFAULT_PATH: &str = "metadata.name";

/// Values and the fields to set to them.
#[derive(Debug, Clone)]
pub(crate) struct ReplacementTransformer(pub(crate) Vec<Replacement>);

impl ReplacementTransformer {
    pub(super) fn transform(&self, resources: &mut BuildResources) -> Result<()> {
        let budget = resources.budget();
        for replacement in &self.0 {
            let list = resources.list_mut();
            let (value, targets) = match replacement {
                Replacement { source: Some(_), source_value: Some(_), targets: Some(_) } => {
                    let text = "value and resource selectors are mutually exclusive";
                    return Err(Error::new(text));
                }
                Replacement { source_value: Some(value), targets: Some(targets), .. } => {
                    (field_edit::untyped(value.as_str()), targets)
                }
                Replacement { source: Some(source), targets: Some(targets), .. } => {
                    (value(list, source, &budget)?, targets)
                }
                _ => {
                    let text = "replacements must specify a source and at least one target";
                    return Err(Error::new(text));
                }
            };
            let _value = budget.hold(budget::weight(&value))?;
            for target in targets {
                apply(list, &value, target, &budget)?;
            }
        }
        resources.drop_gone();
        Ok(())
    }
}

/// All ids of an object for replacements. Here every kind counts as namespaced.
fn ids(resource: &BuildResource) -> Vec<ResourceId> {
    std::iter::once(resource::id(&resource.node)).chain(resource.past_ids()).collect()
}

/// The value that a source means.
fn value(
    resources: &[BuildResource],
    source: &ReplacementSource,
    budget: &BuildBudget,
) -> Result<YamlNode> {
    let ids = |resource: &BuildResource| 1 + resource.past.len();
    budget.steps(LOOKED_AT * resources.iter().map(ids).sum::<usize>())?;
    let mut found = resources
        .iter()
        .filter(|resource| self::ids(resource).iter().any(|id| id.is_selected_by(&source.id)));
    let shown = || source.to_string();
    let resource = match (found.next(), found.next()) {
        (Some(resource), None) => resource,
        (Some(_), Some(_)) => {
            let text = format!("multiple matches for selector {}", shown());
            return Err(Error::new(text));
        }
        (None, _) => return Err(Error::new(format!("nothing selected by {}", shown()))),
    };
    let path = if source.field_path.is_empty() { DEFAULT_PATH } else { &source.field_path };
    let parts = yaml_path::split_brackets(path, '.');
    let node = yaml_path::lookup(&resource.node, &parts)
        .map_err(Error::from)
        .within(|| "error looking up replacement source")?;
    let Some(node) = node.filter(|node| !field_edit::is_empty(node)) else {
        let id = &source.id;
        let text = format!("fieldPath `{path}` is missing for replacement source {id}");
        return Err(Error::new(text));
    };
    drop(budget.hold(budget::weight(node))?);
    let mut value = node.clone();
    let Some(options) = source.options.as_ref().filter(|options| !options.delimiter.is_empty())
    else {
        return Ok(value);
    };
    if value.kind != YamlNodeKind::Scalar {
        return Err(Error::new("delimiter option can only be used with scalar nodes"));
    }
    let text = field_edit::text(&value).to_owned();
    let parts: Vec<&str> = text.split(&options.delimiter).collect();
    let index = options.index.0;
    let part = usize::try_from(index).ok().and_then(|index| parts.get(index));
    let Some(part) = part else {
        let text = format!("options.index {index} is out of bounds for value {text}");
        return Err(Error::new(text));
    };
    (*part).clone_into(&mut value.value);
    Ok(value)
}

/// Puts a value into the fields of all objects that a target means.
fn apply(
    resources: &mut [BuildResource],
    value: &YamlNode,
    target: &TargetSelector,
    budget: &BuildBudget,
) -> Result<()> {
    let Some(select) = &target.select else {
        return Err(Error::new("target must specify resources to select"));
    };
    let compiled = |selector: &crate::selector::ResourceSelector| {
        budget.steps(selector.steps())?;
        let matcher = selector.compile().map_err(|error| Error::new(error.to_string()));
        matcher.within(|| "error creating target selector")
    };
    let selects = compiled(select)?;
    let rejects: Vec<_> = target.reject.iter().map(compiled).collect::<Result<_>>()?;
    for resource in resources {
        let steps = rejects.iter().chain([&selects]).map(|matcher| resource.steps_of(matcher));
        budget.steps(steps.sum::<usize>() * (1 + resource.past.len()))?;
        if !selects_marks(resource, &selects, target, &rejects)? {
            continue;
        }
        let ids = ids(resource);
        let is_meant = |matcher: &crate::selector::ResourceMatcher, id: &ResourceId| {
            let gvk = &id.gvk;
            matcher.matches_kind(&gvk.group, &gvk.version, &gvk.kind)
                && matcher.matches_name(&id.name)
                && matcher.matches_namespace(&id.namespace)
        };
        let names_nothing = |selector: &crate::selector::ResourceSelector| {
            let crate::selector::ResourceSelector { group, version, kind, name, namespace, .. } =
                selector;
            [group, version, kind, name, namespace].iter().all(|text| text.is_empty())
        };
        let is_rejected = target.reject.iter().zip(&rejects).any(|(selector, matcher)| {
            !names_nothing(selector) && ids.iter().any(|id| is_meant(matcher, id))
        });
        if !is_rejected && ids.iter().any(|id| is_meant(&selects, id)) {
            copy(&mut resource.node, value, target, budget).if_exhausted(|| named(resource))?;
        }
    }
    Ok(())
}

/// Whether labels and annotations match a target.
fn selects_marks(
    resource: &BuildResource,
    selects: &crate::selector::ResourceMatcher,
    target: &TargetSelector,
    rejects: &[crate::selector::ResourceMatcher],
) -> Result<bool> {
    if !resource.has_marks_of(selects)? {
        return Ok(false);
    }
    for (selector, matcher) in target.reject.iter().zip(rejects) {
        let has_marks =
            !selector.annotation_selector.is_empty() || !selector.label_selector.is_empty();
        if has_marks && resource.has_marks_of(matcher)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn copy(
    object: &mut YamlNode,
    value: &YamlNode,
    target: &TargetSelector,
    budget: &BuildBudget,
) -> Result<()> {
    let default = [DEFAULT_PATH.to_owned()];
    let paths = if target.field_paths.is_empty() { &default[..] } else { &target.field_paths };
    let options = target.options.as_ref();
    let create = options.filter(|options| options.create).map(|_| value.kind);
    for path in paths {
        let parts = yaml_path::split_brackets(path, '.');
        budget.steps(LOOKED_AT)?;
        if structured_replacement::set(object, value, &parts, create, budget)? {
            continue;
        }
        let failed = || {
            let verb = if create.is_some() { "find or create" } else { "find" };
            format!("unable to {verb} field {path:?} in replacement target")
        };
        let found = yaml_path::matches(object, &parts, create, budget)
            .map_err(Error::from)
            .within(failed)?;
        if found.is_empty() {
            return Err(Error::new(failed()));
        }
        for place in found {
            match place {
                PathMatch::Node(place) => {
                    if let Some(node) = yaml_path::at_mut(object, &place) {
                        set(node, value, options, budget)?;
                    }
                }
                // Parity(kustomize): what stands within a text has been tried; here a copy would be changed.
                PathMatch::InText(mut node) => set(&mut node, value, options, budget)?,
            }
        }
        if value.kind != YamlNodeKind::Scalar {
            budget.steps(budget::weight(object))?;
        }
        check_depth(object, value)?;
    }
    Ok(())
}

/// Sets a field. Of a scalar only the text changes; with a delimiter, only a part of the text.
fn set(
    node: &mut YamlNode,
    value: &YamlNode,
    options: Option<&FieldOptions>,
    budget: &BuildBudget,
) -> Result<()> {
    let before = budget::weight(node);
    // A part of a text is replaced by a text. The whole text may also be replaced by a node.
    let taken = node.value.len() + budget::weight(value);
    budget.grown(before, taken)?;
    let mut text = value.value.clone();
    if let Some(options) = options.filter(|options| !options.delimiter.is_empty()) {
        if node.kind != YamlNodeKind::Scalar {
            return Err(Error::new("delimiter option can only be used with scalar nodes"));
        }
        let delimiter = options.delimiter.as_str();
        let mut parts: Vec<&str> = node.value.split(delimiter).collect();
        let new = field_edit::text(value);
        match usize::try_from(options.index.0) {
            Err(_) => parts.insert(0, new),
            Ok(index) if index >= parts.len() => parts.push(new),
            Ok(index) => parts[index] = new,
        }
        text = parts.join(delimiter);
    }
    if node.kind == YamlNodeKind::Scalar {
        node.value = text;
    } else {
        *node = value.clone();
        node.value = text;
    }
    let taken = before.max(taken);
    budget.free(taken.saturating_sub(before.max(budget::weight(node))));
    Ok(())
}

/// Values may be put into each other again and again, so that their depth has to be bounded.
fn check_depth(object: &YamlNode, value: &YamlNode) -> Result<()> {
    if value.kind != YamlNodeKind::Scalar && object.walk().any(|(depth, _)| depth > MAX_DEPTH) {
        return Err(Error::new(format!("exceeded max depth of {MAX_DEPTH}")));
    }
    Ok(())
}
