//! Resolves releases: the settings that they inherit from templates, and the templates in their own fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::go_struct_field::{HelmfileField, StructMergeMode};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::spec::{Inherit, InheritedTemplates, Release, State};
use crate::template::{
    ReleaseOverrides, ReleaseTemplateData, TemplateStringRenderer, release_data, release_fields,
};
use crate::yaml;

/// How many times the fields of a release are rendered until references between them must be resolved.
const MAX_RENDER_PASSES: usize = 6;

/// The deepest inheritance of templates from each other.
const MAX_INHERITANCE_DEPTH: usize = 100;

/// The most templates that one release may inherit.
const MAX_INHERITED_TEMPLATES: usize = 10_000;

impl Helmfile {
    /// The settings that override those of all releases.
    pub(crate) fn overrides(&self) -> ReleaseOverrides<'_> {
        ReleaseOverrides {
            kube_context: &self.spec.kube_context,
            namespace: &self.spec.namespace,
            chart: &self.spec.chart,
        }
    }

    /// The data for templates of a release.
    pub(crate) fn release_data(
        &self,
        release: &Release,
        values: &crate::state_values_merge::ValuesMap,
    ) -> golang::GoRuntimeValue {
        release_data(self.release_fields(release, values))
    }

    /// The data for templates of a release, as the fields of a struct.
    pub(crate) fn release_fields(
        &self,
        release: &Release,
        values: &crate::state_values_merge::ValuesMap,
    ) -> Vec<(&'static str, golang::GoRuntimeValue)> {
        let seen = ReleaseTemplateData {
            name: &release.name,
            namespace: &release.namespace,
            labels: Some(&release.labels),
            chart: &release.chart,
            version: &release.version,
            kube_context: &release.kube_context,
        };
        release_fields(&self.environment, values, &seen, &self.overrides())
    }

    /// Replaces each release by its resolved form, with inherited settings and rendered templates.
    pub(crate) fn execute_templates(
        &mut self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
    ) -> Result<()> {
        for index in 0..self.spec.releases.len() {
            let Some(release) = self.spec.releases.get(index) else { break };
            let release = self.inherited(release)?;
            let rendered = self.settled(helmfile_environment, release)?;
            if rendered.chart.is_empty() {
                return Err(format!(
                    "encountered empty chart while reading release {:?}",
                    rendered.name
                )
                .into());
            }
            if let Some(place) = self.spec.releases.get_mut(index) {
                *place = rendered;
            }
        }
        Ok(())
    }

    /// Adds the settings that a release inherits from templates and from the helmfile.
    fn inherited(&self, release: &Release) -> Result<Release> {
        let mut release = release.clone();
        release.inherit = with_defaults(&self.spec, &release.inherit);
        let mut left = MAX_INHERITED_TEMPLATES;
        let mut release =
            merged(&self.spec, &release, &mut Vec::new(), &mut left).map_err(|error| {
                error.at(&format!("unable to load release {:?} with template", release.name))
            })?;
        release.kube_context.merge(&self.spec.helm_defaults.kube_context, StructMergeMode::Fill);
        for (key, value) in &self.spec.common_labels {
            release.labels.insert(key.clone(), value.clone());
        }
        release.api_versions.merge(&self.spec.api_versions, StructMergeMode::Fill);
        release.kube_version.merge(&self.spec.kube_version, StructMergeMode::Fill);
        Ok(release)
    }

    /// Renders the fields of a release repeatedly until they no longer change.
    fn settled(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: Release,
    ) -> Result<Release> {
        let failed = |error: Error| {
            Error::from(format!(
                "failed executing templates in release \"{}\".\"{}\": {error}",
                self.path, release.name
            ))
        };
        let mut seen = release.clone();
        for pass in 0..MAX_RENDER_PASSES {
            let data = self.release_data(&seen, &self.values);
            let renderer =
                TemplateStringRenderer::new(helmfile_environment, &self.place, &self.base, data);
            let rendered = render(&renderer, &release).map_err(failed)?;
            // Parity(helmfile 1.8): the first pass never counts as settled.
            if pass > 0 && rendered == seen {
                return take_booleans(rendered).map_err(failed);
            }
            seen = rendered;
        }
        Err(failed("recursive references can't be resolved".into()))
    }
}

/// Puts the templates that every release inherits first, unless the release lists such a template itself.
fn with_defaults(spec: &State, own: &InheritedTemplates) -> InheritedTemplates {
    if spec.default_inherit.0.is_empty() {
        return own.clone();
    }
    let own = own.0.iter().filter(|inherit| !inherit.template.trim().is_empty());
    let own: Vec<Inherit> = own.cloned().collect();
    let mut all: Vec<Inherit> = Vec::new();
    for name in &spec.default_inherit.0 {
        if !own.iter().chain(&all).any(|known| known.template.trim() == name) {
            all.push(Inherit { template: name.clone(), except: Vec::new() });
        }
    }
    all.extend(own);
    InheritedTemplates(all)
}

/// Merges a release over the templates that it inherits.
///
/// Differs(helmfile 1.8): templates stay what they are; helmfile writes booleans and numbers of a release into them, so that
/// later releases inherit those.
fn merged(
    spec: &State,
    release: &Release,
    path: &mut Vec<String>,
    left: &mut usize,
) -> Result<Release> {
    let mut merged_release = Release::default();
    for inherit in &release.inherit.0 {
        let name = &inherit.template;
        if name.is_empty() {
            return Ok(release.clone());
        }
        if path.contains(name) {
            path.push(name.clone());
            return Err(format!("cyclic inheritance detected: {}", path.join("->")).into());
        }
        let Some(template) = spec.templates.get(name) else {
            return Err(format!(
                "release {:?} tried to inherit inexistent release template {name:?}",
                release.name
            )
            .into());
        };
        *left = left
            .checked_sub(1)
            .filter(|_| path.len() < MAX_INHERITANCE_DEPTH)
            .ok_or_else(|| Error::from("too many release templates are inherited"))?;
        path.push(name.clone());
        let mut source = merged(spec, template, path, left)?;
        path.pop();
        for key in &inherit.except {
            match key.as_str() {
                "labels" => source.labels.clear(),
                "values" => source.values.clear(),
                "valuesTemplate" => source.values_template.clear(),
                "setTemplate" => source.set_template.clear(),
                "set" => source.set.clear(),
                "setString" => source.set_string.clear(),
                "secrets" => source.secrets.clear(),
                other => {
                    return Err(format!(
                        "{other:?} is not allowed under `inherit`. Allowed values are \"set\", \"setTemplate\", \
                         \"values\", \"valuesTemplate\", \"secrets\", and \"labels\""
                    )
                    .into());
                }
            }
        }
        merged_release.merge(&source, StructMergeMode::Append);
    }
    merged_release.merge(release, StructMergeMode::Append);
    merged_release.inherit = InheritedTemplates::default();
    Ok(merged_release)
}

/// Adds the field of a release to an error in its template.
fn in_field(release: &Release, field: &str, error: &Error) -> Error {
    format!(
        "failed executing template expressions in release \"{}\".{field}: {error}",
        release.name
    )
    .into()
}

/// Renders the fields of a release once.
fn render(renderer: &TemplateStringRenderer, release: &Release) -> Result<Release> {
    let mut out = release.clone();
    let text = |field: &str, text: &str| {
        renderer.render_text(text).map_err(|error| in_field(release, field, &error))
    };
    for (field, place) in [
        ("name", &mut out.name),
        ("chart", &mut out.chart),
        ("namespace", &mut out.namespace),
        ("version", &mut out.version),
    ] {
        *place = text(field, place)?.trim().to_owned();
    }
    for (field, place) in [
        ("waitTemplate", &mut out.wait_template),
        ("installedTemplate", &mut out.installed_template),
        ("conditionTemplate", &mut out.condition_template),
        ("verifyTemplate", &mut out.verify_template),
    ] {
        if let Some(template) = place {
            *template = text(field, template)?;
        }
    }
    for (key, value) in &mut out.labels {
        *value = text(&format!("labels[{key}]"), value)?;
    }
    for argument in &mut out.post_renderer_args {
        *argument = text("postRendererArgs", argument)?;
    }
    render_values(renderer, release, &mut out)?;
    render_set(renderer, release, &mut out)?;
    for (index, need) in out.needs.iter_mut().enumerate() {
        *need = text(&format!("needs[{index}]"), need)?;
    }
    Ok(out)
}

fn render_values(
    renderer: &TemplateStringRenderer,
    release: &Release,
    out: &mut Release,
) -> Result<()> {
    let failed =
        |index: usize, error: Error| in_field(release, &format!("values[{index}]"), &error);
    for (index, entry) in out.values_template.iter_mut().enumerate() {
        if let Value::Object(_) = entry {
            let text = yaml::write_plain(entry)?;
            let rendered =
                renderer.render(text.as_bytes()).map_err(|error| failed(index, error))?;
            let map = yaml::read_map(&rendered).map_err(|error| failed(index, error))?;
            *entry = Value::Object(map);
        }
    }
    if !out.values_template.is_empty() {
        let mut values = out.values_template.clone();
        values.append(&mut out.values);
        out.values = values;
    }
    for (index, entry) in out.values.iter_mut().enumerate() {
        if let Value::String(path) = entry {
            *path = renderer.render_text(path).map_err(|error| failed(index, error))?;
        }
    }
    for (index, entry) in out.secrets.iter_mut().enumerate() {
        if let Value::String(path) = entry {
            *path = renderer
                .render_text(path)
                .map_err(|error| in_field(release, &format!("secrets[{index}]"), &error))?;
        }
    }
    Ok(())
}

fn render_set(
    renderer: &TemplateStringRenderer,
    release: &Release,
    out: &mut Release,
) -> Result<()> {
    for (index, set) in out.set_template.iter_mut().enumerate() {
        let text = |field: &str, text: &str| {
            renderer
                .render_text(text)
                .map_err(|error| in_field(release, &format!("set[{index}].{field}"), &error))
        };
        set.name = text("name", &set.name)?;
        set.value = text("value", &set.value)?;
        set.file = text("file", &set.file)?;
        for value in &mut set.values {
            if let Value::String(item) = value {
                *item = text("values", item)?;
            }
        }
    }
    if !out.set_template.is_empty() {
        let mut set = out.set_template.clone();
        set.append(&mut out.set);
        out.set = set;
    }
    Ok(())
}

/// Reads the rendered values of `installedTemplate` and similar fields as booleans.
fn take_booleans(mut release: Release) -> Result<Release> {
    let read = |field: &str, text: &str| -> Result<bool> {
        let failed =
            |error: Error| error.at(&format!("{field}: failed deserialising string {text}"));
        match yaml::documents(text.as_bytes()).map_err(failed)?.first() {
            None => Ok(false),
            Some(node) => bool::decode(node).map_err(failed),
        }
    };
    if let Some(text) = release.installed_template.take() {
        release.installed = Some(read("installedTemplate", &text)?);
    }
    if let Some(text) = release.condition_template.take() {
        release.condition = read("conditionTemplate", &text)?.to_string();
    }
    if let Some(text) = release.wait_template.take() {
        release.wait = Some(read("waitTemplate", &text)?);
    }
    if let Some(text) = release.verify_template.take() {
        release.verify = Some(read("verifyTemplate", &text)?);
    }
    Ok(release)
}

impl Helmfile {
    /// Applies the overrides for all releases, completes `needs`, and adds the automatic labels.
    pub(crate) fn override_releases(&mut self) {
        let Self { spec, .. } = self;
        for release in &mut spec.releases {
            if !spec.kube_context.is_empty() {
                release.kube_context.clone_from(&spec.kube_context);
            }
            if !spec.namespace.is_empty() {
                release.namespace.clone_from(&spec.namespace);
            }
            release.needs = release.needs.iter().map(|need| complete(release, need)).collect();
            let mut labels: BTreeMap<String, String> = spec.common_labels.clone();
            labels.append(&mut release.labels);
            labels.insert("name".to_owned(), release.name.clone());
            labels.insert("namespace".to_owned(), release.namespace.clone());
            let chart = release.chart.rsplit('/').next().unwrap_or_default();
            labels.insert("chart".to_owned(), chart.to_owned());
            release.labels = labels;
        }
    }
}

/// Completes a need with the namespace and context of its release.
fn complete(release: &Release, need: &str) -> String {
    let parts: Vec<&str> = need.split('/').collect();
    let (context, namespace, name) = match parts.as_slice() {
        [] => (release.kube_context.clone(), release.namespace.as_str(), need),
        [name] => (release.kube_context.clone(), release.namespace.as_str(), *name),
        [namespace, name] => (release.kube_context.clone(), *namespace, *name),
        [context @ .., namespace, name] => (context.join("/"), *namespace, *name),
    };
    let mut id = String::new();
    if !context.is_empty() {
        id = format!("{context}/");
    }
    if !context.is_empty() || !namespace.is_empty() {
        id = format!("{id}{namespace}/");
    }
    format!("{id}{name}")
}
