//! Accumulates one kustomization: loads and transforms all its content in kustomize's order.
//!
//! Here: resources, components, generators, transformers, validators. Below: the transformers that its fields stand for
//! (`kustomization_target/builtin_generators_and_transformers.rs`). Elsewhere: the steps that happen once in a build
//! (`build.rs`).

mod builtin_generators_and_transformers;

use std::borrow::Cow;

use goyaml::v3::YamlNode;

use crate::budget::{self, BudgetReservation, BuildBudget};
use crate::build::KustomizeBuildContext;
use crate::builtin_plugin;
use crate::error::{BuildErrorCause, Error, ErrorContext as _, Result};
use crate::file_path::{self, JoinedPathLines};
use crate::kustomization::{COMPONENT, FILE_NAMES, Kustomization};
use crate::loader::KustomizationLoader;
use crate::manifest;
use crate::origin::{ORIGIN, ResourceOrigin};
use crate::resource::{self, BuildResource};
use crate::resources::BuildResources;
use crate::transform::ResourceTransformer;
use crate::transformer_config::TransformerConfig;
use crate::variable::{self, KustomizeVariables};

/// Steps that every transformer costs.
const STEPS_PER_TRANSFORMER: usize = 10_000;

/// The objects and settings accumulated so far.
#[derive(Debug)]
pub(crate) struct AccumulatedResources {
    pub(crate) resources: BuildResources,
    /// The configuration of transformers. Most of it is built in.
    pub(crate) config: Cow<'static, TransformerConfig>,
    pub(crate) variables: KustomizeVariables,
}

impl AccumulatedResources {
    fn new(budget: &BuildBudget) -> Self {
        let resources = BuildResources::new(budget);
        Self { resources, config: Cow::default(), variables: KustomizeVariables::default() }
    }
}

/// A kustomization that is being built.
pub(crate) struct KustomizationTarget<'b> {
    build: &'b KustomizeBuildContext<'b>,
    loader: KustomizationLoader<'b>,
    /// On the heap, as kustomizations lie within each other on the stack.
    pub(crate) kustomization: Box<Kustomization>,
    file: &'static str,
    origin: Option<ResourceOrigin>,
    /// The namespace of charts that do not set one.
    chart_namespace: String,
    /// The part of the budget that its file uses.
    _held: BudgetReservation,
}

impl<'b> KustomizationTarget<'b> {
    /// Reads the file of a kustomization.
    ///
    /// # Errors
    /// The folder has no kustomization or several, or the file cannot be read.
    pub(crate) fn load(
        build: &'b KustomizeBuildContext<'b>,
        loader: KustomizationLoader<'b>,
    ) -> Result<Self> {
        build.count_kustomization()?;
        let mut found = Vec::new();
        for name in FILE_NAMES {
            found.extend(loader.find(name)?.map(|text| (name, text)));
        }
        let dir = loader.root();
        let mut found = found.into_iter();
        let (file, text) = match (found.next(), found.next()) {
            (Some(found), None) => found,
            (Some(_), Some(_)) => {
                let text = format!("Found multiple kustomization files under: {dir}\n");
                return Err(Error::new(text));
            }
            (None, _) => {
                return Err(Error::new(format!(
                    "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory \
                     '{dir}'"
                )));
            }
        };
        let mut warnings = Vec::new();
        let parsed = Kustomization::parse(&text, dir, &build.budget, &mut warnings);
        warnings.into_iter().for_each(|warning| build.warn(warning));
        let (kustomization, held) = parsed.if_exhausted(|| golang::path::join(dir, file))?;
        Ok(Self {
            build,
            loader,
            kustomization: Box::new(kustomization),
            file,
            origin: None,
            chart_namespace: String::new(),
            _held: held,
        })
    }

    /// Uses the OpenAPI document that the kustomization names.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn use_openapi(&self, is_top: bool) -> Result<()> {
        let openapi = &self.kustomization.openapi;
        let document = match openapi.get("path") {
            Some(path) => Some(self.loader.load(path)?),
            None => None,
        };
        self.build.use_openapi(openapi, document.as_deref(), is_top)
    }

    /// Accumulates the top kustomization of a build. If it sets `buildMetadata`, the origins of objects are recorded.
    ///
    /// # Errors
    /// Any error of its parts.
    pub(crate) fn accumulate_top(mut self) -> Result<AccumulatedResources> {
        if !self.kustomization.build_metadata.is_empty() {
            self.origin = Some(ResourceOrigin::default());
        }
        self.accumulate(AccumulatedResources::new(&self.build.budget))
    }

    fn accumulate(&self, mut so_far: AccumulatedResources) -> Result<AccumulatedResources> {
        let file = &self.kustomization;
        so_far = self.add_resources(so_far, &file.resources).within(|| "accumulating resources")?;
        let budget = &self.build.budget;
        let config = TransformerConfig::with_files(&self.loader, &file.configurations)?;
        so_far.config =
            TransformerConfig::joined(so_far.config, config, budget).within(|| "merging config")?;
        let list = |paths: &[String]| format!("[{}]", paths.join(" "));
        let config = TransformerConfig::of_crds(&self.loader, &file.crds)
            .within(|| format!("loading CRDs {}", list(&file.crds)))?;
        so_far.config = TransformerConfig::joined(so_far.config, Cow::Owned(config), budget)
            .within(|| "merging CRDs")?;
        self.generate(&mut so_far)?;
        so_far =
            self.add_components(so_far, &file.components).within(|| "accumulating components")?;
        self.transform(&mut so_far)?;
        self.validate(&mut so_far)?;
        let schema = self.build.schema();
        let variables = file.vars.clone();
        variable::mark(&mut so_far.resources, &variables, &schema)
            .and_then(|()| so_far.variables.add(variables))
            .within(|| {
                let shown: Vec<String> = file.vars.iter().map(ToString::to_string).collect();
                format!("merging vars {}", list(&shown))
            })?;
        Ok(so_far)
    }

    /// Adds the entries of `resources`. Each is a file or, failing that, another kustomization.
    fn add_resources(
        &self,
        mut so_far: AccumulatedResources,
        paths: &[String],
    ) -> Result<AccumulatedResources> {
        for path in paths {
            let Err(of_file) = self.add_file(&mut so_far, path) else { continue };
            if matches!(of_file.cause(), BuildErrorCause::Http | BuildErrorCause::Exhausted) {
                return Err(of_file);
            }
            let loader = match self.loader.at(path) {
                Ok(loader) => loader,
                Err(_) if of_file.cause() == BuildErrorCause::MalformedYaml => return Err(of_file),
                Err(error) => {
                    return Err(error.within(format_args!("accumulation err='{of_file}'")));
                }
            };
            so_far = self
                .add_kustomization(so_far, loader, path, false)
                .within(|| format!("accumulation err='{of_file}'"))?;
        }
        Ok(so_far)
    }

    fn add_file(&self, so_far: &mut AccumulatedResources, path: &str) -> Result<()> {
        let accumulating = || format!("accumulating resources from '{path}'");
        let schema = self.build.schema();
        let content = self.loader.load(path).within(accumulating)?;
        let budget = &self.build.budget;
        let read = manifest::parse(&content, budget)
            .and_then(|list| BuildResources::of(list, &schema, budget));
        let read = manifest::in_file(read, path).within(accumulating)?;
        let mut list = read.into_list();
        if let Some(origin) = &self.origin {
            let origin = origin.at(path);
            list.iter_mut().try_for_each(|resource| origin.put_on(resource, budget))?;
        }
        self.build.notice(&list);
        let merging = || format!("merging resources from '{path}'");
        so_far.resources.append_all(list, &schema).within(merging)
    }

    fn add_components(
        &self,
        mut so_far: AccumulatedResources,
        paths: &[String],
    ) -> Result<AccumulatedResources> {
        let quoted = |doing: &str, error: Error| {
            let text = error.to_string();
            let quoted =
                golang::strconv::quote(text.as_bytes(), golang::strconv::QuotingStyle::Printable);
            let text = format!("{doing} {}", String::from_utf8_lossy(&quoted));
            Error::caused(text, error.cause())
        };
        for path in paths {
            let loader = self.loader.at(path);
            let loader = loader.map_err(|error| quoted("loader.New", error))?;
            let added = self.add_kustomization(so_far, loader, path, true);
            so_far = added.map_err(|error| quoted("accumulateDirectory:", error))?;
        }
        Ok(so_far)
    }

    /// Adds another kustomization. A component changes the objects that were accumulated before; any other kustomization adds
    /// its own objects.
    fn add_kustomization(
        &self,
        so_far: AccumulatedResources,
        loader: KustomizationLoader<'b>,
        path: &str,
        is_component: bool,
    ) -> Result<AccumulatedResources> {
        self.warn_of_joined_lines(path);
        let dir = loader.root().to_owned();
        let mut other = Self::load(self.build, loader)
            .within(|| format!("couldn't make target for path '{dir}'"))?;
        let file = &mut other.kustomization;
        file.build_metadata.clone_from(&self.kustomization.build_metadata);
        other.origin = self.origin.as_ref().map(|origin| origin.at(path));
        other.chart_namespace = match self.kustomization.namespace.as_str() {
            "" => self.chart_namespace.clone(),
            namespace => namespace.to_owned(),
        };
        other.use_openapi(false)?;
        let kind = &other.kustomization.kind;
        if is_component && kind != COMPONENT {
            let text = format!("expected kind '{COMPONENT}' for path '{dir}' but got '{kind}'");
            return Err(Error::new(text));
        }
        if !is_component && kind == COMPONENT {
            let text = format!("expected kind != '{COMPONENT}' for path '{dir}'");
            return Err(Error::new(text));
        }
        let (base, mut so_far) = match is_component {
            true => (so_far, AccumulatedResources::new(&self.build.budget)),
            false => (AccumulatedResources::new(&self.build.budget), so_far),
        };
        let added =
            other.accumulate(base).within(|| format!("recursed accumulation of path '{dir}'"))?;
        let schema = self.build.schema();
        let merging = || format!("recursed merging from path '{dir}'");
        so_far.resources.append_all(added.resources.into_list(), &schema).within(merging)?;
        so_far.config = TransformerConfig::joined(so_far.config, added.config, &self.build.budget)
            .within(merging)?;
        so_far.variables.merge(added.variables).within(merging)?;
        Ok(so_far)
    }

    /// Warns of a path that two lines became.
    fn warn_of_joined_lines(&self, path: &str) {
        /// How many characters of a path are shown.
        const MAX_PATH_CHARACTERS: usize = 200;
        let Some(JoinedPathLines { lost, kept }) = file_path::joined_lines(path) else { return };
        let shown = |path: &str| path.chars().take(MAX_PATH_CHARACTERS).collect::<String>();
        self.build.warn_of_loss(format!(
            "{}: `{}` is not built, because the line `- {}` is indented deeper than the one before it, which makes \
             both one path",
            golang::path::join(self.loader.root(), self.file),
            shown(lost),
            shown(kept)
        ));
    }

    fn generate(&self, so_far: &mut AccumulatedResources) -> Result<()> {
        let mut generators = self.builtin_generators()?;
        let configs = self
            .plugins(&self.kustomization.generators, "configuring external generator")
            .within(|| "loading generator plugins");
        for config in configs? {
            let generator = builtin_plugin::generator(&self.loader, self.build, &config)
                .within(|| "loading generator plugins")?;
            let id = config.id(&self.build.schema());
            generators.push((generator, ResourceOrigin::of_plugin(&config, &id)));
        }
        let schema = self.build.schema();
        for (generator, origin) in generators {
            let list = generator.generate(&self.loader, self.build);
            let mut list = list.if_exhausted(|| self.doing(generator.kind()))?;
            if let Some(origin) = origin {
                let unknown =
                    list.iter_mut().filter(|resource| !resource.annotations().contains_key(ORIGIN));
                let budget = &self.build.budget;
                unknown.into_iter().try_for_each(|resource| origin.put_on(resource, budget))?;
            }
            self.build.notice(&list);
            for resource in list {
                so_far
                    .resources
                    .absorb(resource, &schema)
                    .within(|| format!("merging from generator {}", generator.kind()))?;
            }
        }
        Ok(())
    }

    /// Loads the configurations of plugins. An entry is YAML, or the path of a file.
    fn plugins(&self, entries: &[String], doing: &str) -> Result<Vec<BuildResource>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let schema = self.build.schema();
        let budget = &self.build.budget;
        let mut so_far = AccumulatedResources::new(budget);
        let mut paths = Vec::new();
        for entry in entries {
            let inline = manifest::parse(entry.as_bytes(), budget)
                .and_then(|list| BuildResources::of(list, &schema, budget));
            let inline = match inline {
                Ok(inline) => inline,
                Err(error) if error.cause() == BuildErrorCause::Exhausted => {
                    return Err(error.within(doing));
                }
                Err(_) => {
                    paths.push(entry.clone());
                    continue;
                }
            };
            let mut list = inline.into_list();
            self.build.notice(&list);
            if let Some(origin) = &self.origin {
                let origin = origin.at(self.file);
                list.iter_mut().try_for_each(|resource| origin.put_on(resource, budget))?;
            }
            so_far.resources.append_all(list, &schema).within(|| doing)?;
        }
        Ok(self.add_resources(so_far, &paths)?.resources.into_list())
    }

    fn transform(&self, so_far: &mut AccumulatedResources) -> Result<()> {
        let budget = &self.build.budget;
        let left = budget.bytes_left();
        let mut transformers = self.builtin_transformers(&so_far.config)?;
        transformers.extend(self.plugin_transformers(&self.kustomization.transformers)?);
        let held = left.saturating_sub(budget.bytes_left());
        for (transformer, origin) in transformers {
            self.run(&transformer, &mut so_far.resources)
                .if_exhausted(|| self.doing(transformer.kind()))?;
            if let Some(origin) = origin {
                let list = so_far.resources.list_mut();
                list.iter_mut().try_for_each(|resource| origin.note_on(resource, budget))?;
            }
            so_far.resources.drop_gone();
        }
        // The transformers are dropped by now.
        budget.free(usize::try_from(held).unwrap_or_default());
        Ok(())
    }

    fn run(&self, transformer: &ResourceTransformer, resources: &mut BuildResources) -> Result<()> {
        self.build.budget.steps(STEPS_PER_TRANSFORMER)?;
        let schema = self.build.schema();
        if transformer.merges(resources, &schema)? {
            self.build.keep_schema();
        }
        transformer.transform(resources, &schema)
    }

    /// Describes the current action and its file, for errors.
    fn doing(&self, kind: &str) -> String {
        format!("{kind} of {}", golang::path::join(self.loader.root(), self.file))
    }

    fn plugin_transformers(
        &self,
        entries: &[String],
    ) -> Result<Vec<(ResourceTransformer, Option<ResourceOrigin>)>> {
        let configs = self.plugins(entries, "configuring external transformer")?;
        let mut transformers = Vec::new();
        for config in configs {
            let transformer = builtin_plugin::transformer(&self.loader, self.build, &config)?;
            let id = config.id(&self.build.schema());
            transformers.push((transformer, ResourceOrigin::of_plugin(&config, &id)));
        }
        Ok(transformers)
    }

    /// Runs validators. They may change only one label.
    fn validate(&self, so_far: &mut AccumulatedResources) -> Result<()> {
        let validators = self.plugin_transformers(&self.kustomization.validators)?;
        let schema = self.build.schema();
        let budget = &self.build.budget;
        for (validator, _) in validators {
            let list = so_far.resources.list();
            let weight = list.iter().map(|resource| budget::weight(&resource.node)).sum();
            let _before = budget.hold(weight)?;
            let before = so_far.resources.clone();
            validator
                .transform(&mut so_far.resources, &schema)
                .if_exhausted(|| self.doing(validator.kind()))?;
            let after = so_far.resources.list();
            let is_same = before.list().len() == after.len()
                && before.list().iter().zip(after).all(|(before, after)| {
                    unmarked(after).is_some_and(|after| after == before.node)
                });
            if !is_same {
                let text = "validator shouldn't modify the resource map: nodes unequal";
                return Err(Error::new(text));
            }
        }
        Ok(())
    }
}

/// A copy of an object without the label `validated-by`, which validators may set. `None` if the labels cannot be set.
///
/// Parity(kustomize): to remove it all labels are set anew, so that it may only be set where there are no others.
fn unmarked(resource: &BuildResource) -> Option<YamlNode> {
    let mut node = resource.node.clone();
    let mut labels = resource::meta_map(&node, "labels");
    if labels.remove("validated-by").is_some() {
        resource::set_meta_map(&mut node, "labels", &labels).ok()?;
    }
    Some(node)
}
