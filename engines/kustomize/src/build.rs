//! Builds a kustomization. This file has the steps that happen once, before and after the requested kustomization is
//! accumulated.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde_json::Value;

use crate::budget::{self, BuildBudget};
use crate::build_files::BuildFiles;
use crate::chart_inflation::HelmOptions;
use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::fieldspec::FieldSpec;
use crate::kustomization::SortOptions;
use crate::kustomization_target::{AccumulatedResources, KustomizationTarget};
use crate::loader::{KustomizationLoader, LoadRestriction};
use crate::name_reference_update;
use crate::openapi_schema::{OpenApiReadError, OpenApiSchemas};
use crate::origin::{ORIGIN, TRANSFORMATIONS};
use crate::resource::{self, BuildResource};
use crate::resources::BuildResources;
use crate::sort;
use crate::transform::ResourceTransformer;
use crate::transform::label::LabelTransformer;
use crate::variable;
use crate::yaml_output;

/// Steps that every kustomization costs.
const STEPS_PER_KUSTOMIZATION: usize = 2_000_000;

/// The order of objects where the kustomization has no `sortOptions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectOrder {
    /// In the order in which objects were read.
    #[default]
    AsRead,
    /// Sorted by kind, like `kustomize build`.
    Legacy,
}

/// The options of a build.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KustomizeBuildOptions {
    /// Which files a kustomization may read.
    pub restriction: LoadRestriction,
    /// The order of objects.
    pub order: ObjectOrder,
    /// Whether the user set the order. If the order has no effect, this causes a warning.
    pub is_order_explicit: bool,
    /// Whether all objects get the label `app.kubernetes.io/managed-by`.
    pub managed_by_label: bool,
    /// Whether plugins other than the built-in ones are enabled. If so, their use is rejected with a separate error.
    pub plugins: bool,
    /// The settings for rendering charts.
    pub helm: HelmOptions,
    /// Whether a document in `openapi.path` is added to the built-in schemas of Kubernetes' kinds, instead of replacing them.
    ///
    /// `kustomize build` replaces the built-in schemas, unless it has merged a patch before. Flux always adds the document.
    pub keeps_builtin_schema: bool,
}

/// A warning about a build that did not stop the build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KustomizeBuildWarning {
    /// Advice for the user, which is printed unchanged.
    Advice(String),
    /// A line that kustomize logs, with a time in front.
    Log(String),
    /// A kustomization names this file, but it is not part of the build. Differs(kustomize 5.8): it is silent (kustomize#5979).
    Lost(String),
}

/// An object of a finished build.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltObject {
    /// Group, version and kind, name and namespace.
    pub id: crate::resource_id::ResourceId,
    /// The content of the object.
    pub value: Value,
}

/// The result of a build.
#[derive(Debug)]
pub struct KustomizeBuildOutput {
    resources: Vec<BuildResource>,
    schema: OpenApiSchemas,
    budget: BuildBudget,
}

impl KustomizeBuildOutput {
    /// The objects as `kustomize build` prints them; an empty text if there are none.
    ///
    /// # Errors
    /// An object cannot be written, or the text is too long.
    pub fn yaml(&self) -> Result<String> {
        yaml_output::stream(&self.resources, &self.budget)
    }

    /// The objects as single values.
    ///
    /// # Errors
    /// An object cannot be written, or the objects take too much memory.
    pub fn into_objects(self) -> Result<Vec<BuiltObject>> {
        let Self { resources, schema, budget } = self;
        let object = |resource: BuildResource| {
            let named = || format!("object {}", resource::id(&resource.node));
            let value = yaml_output::value(&resource.node)?;
            let kept = budget.bytes(budget::weight_of_value(&value));
            kept.map_err(Error::from).if_exhausted(named)?;
            let id = resource.id(&schema);
            budget.free(budget::weight(&resource.node));
            Ok(BuiltObject { id, value })
        };
        resources.into_iter().map(object).collect()
    }
}

/// The state that all parts of a build share.
pub(crate) struct KustomizeBuildContext<'b> {
    pub(crate) options: &'b KustomizeBuildOptions,
    schema: RefCell<OpenApiSchemas>,
    is_schema_set: Cell<bool>,
    /// Whether a document adds to the schemas so far.
    is_schema_kept: Cell<bool>,
    warnings: RefCell<Vec<KustomizeBuildWarning>>,
    pub(crate) budget: BuildBudget,
}

/// Builds the kustomization at a path.
///
/// Warnings are added to `warnings` as they occur, even if the build fails later.
///
/// # Errors
/// kustomize's message, or which limit of the budget was exceeded at which point.
pub fn build(
    files: &dyn BuildFiles,
    path: &str,
    options: &KustomizeBuildOptions,
    budget: &BuildBudget,
    warnings: &mut Vec<KustomizeBuildWarning>,
) -> Result<KustomizeBuildOutput> {
    let build = KustomizeBuildContext {
        options,
        schema: RefCell::new(OpenApiSchemas::builtin()),
        is_schema_set: Cell::new(false),
        is_schema_kept: Cell::new(options.keeps_builtin_schema),
        warnings: RefCell::default(),
        budget: budget.clone(),
    };
    let built = build.run(files, path);
    warnings.append(&mut build.warnings.borrow_mut());
    Ok(KustomizeBuildOutput { resources: built?, schema: build.schema(), budget: budget.clone() })
}

impl KustomizeBuildContext<'_> {
    /// The schemas of kinds. The copy is cheap.
    pub(crate) fn schema(&self) -> OpenApiSchemas {
        self.schema.borrow().clone()
    }

    /// Adds a warning of something that is not built.
    pub(crate) fn warn_of_loss(&self, text: String) {
        self.warnings.borrow_mut().push(KustomizeBuildWarning::Lost(text));
    }

    pub(crate) fn warn(&self, advice: String) {
        self.warnings.borrow_mut().push(KustomizeBuildWarning::Advice(advice));
    }

    fn log(&self, line: impl Into<String>) {
        self.warnings.borrow_mut().push(KustomizeBuildWarning::Log(line.into()));
    }

    /// Notes that patches were merged with the built-in schemas.
    ///
    /// Parity(kustomize): from then on these stay, because they are read when they are first needed.
    pub(crate) fn keep_schema(&self) {
        self.is_schema_kept.set(true);
    }

    /// Must be called for objects that were read or generated, because they can cause the built-in schemas to be kept.
    ///
    /// Parity(kustomize): one of a kind that is not built in makes it read what is.
    pub(crate) fn notice(&self, resources: &[BuildResource]) {
        let schema = self.schema.borrow();
        let is_unknown = |resource: &BuildResource| {
            schema.is_namespaced(resource.api_version(), resource.kind()).is_none()
        };
        if !self.is_schema_kept.get()
            && !self.is_schema_set.get()
            && resources.iter().any(is_unknown)
        {
            self.keep_schema();
        }
    }

    /// # Errors
    /// There are too many.
    pub(crate) fn count_kustomization(&self) -> Result<()> {
        Ok(self.budget.steps(STEPS_PER_KUSTOMIZATION)?)
    }

    /// Uses an OpenAPI document. The document of the top kustomization takes precedence, otherwise the first one is used.
    ///
    /// # Errors
    /// The kustomization names both a document and a version, the version is unknown, or the document is not valid.
    pub(crate) fn use_openapi(
        &self,
        openapi: &BTreeMap<String, String>,
        document: Option<&[u8]>,
        is_top: bool,
    ) -> Result<()> {
        if self.is_schema_set.get() && !is_top {
            return Ok(());
        }
        let version = openapi.get("version");
        if let Some(document) = document {
            if version.is_some() {
                let text = "builtin version and custom schema provided, cannot use both";
                return Err(Error::new(text));
            }
            let text = String::from_utf8_lossy(document);
            let limits = self.budget.reading(text.len())?;
            let invalid = |error: OpenApiReadError| {
                Error::new(error.to_string()).within("invalid schema file")
            };
            let document = goyaml::to_json_within(text.as_bytes(), &limits)
                .map_err(|error| invalid(error.into()))?;
            // The schemas made from a document take about as much memory as the document.
            self.budget.bytes(budget::weight_of_value(&document))?;
            let added = if self.is_schema_kept.get() {
                let mut schema = self.schema();
                schema.add_openapi(&document).map(|()| schema)
            } else {
                OpenApiSchemas::with_openapi(&document)
            };
            let schema = added.map_err(invalid)?;
            self.schema.replace(schema);
            self.is_schema_set.set(true);
            return Ok(());
        }
        match version.map(String::as_str) {
            None | Some("") => Ok(()),
            Some("v1.21.2") => {
                self.schema.replace(OpenApiSchemas::builtin());
                self.is_schema_set.set(true);
                Ok(())
            }
            Some(_) => Err(Error::new("the specified OpenAPI version is not built in")),
        }
    }

    fn run(&self, files: &dyn BuildFiles, path: &str) -> Result<Vec<BuildResource>> {
        let loader = KustomizationLoader::new(files, self.options.restriction, path, &self.budget)?;
        // The target borrows this build until all parts of the target are accumulated.
        let target = KustomizationTarget::load(self, loader)?;
        target.use_openapi(true)?;
        let sort_options = target.kustomization.sort_options.clone();
        let wants = |metadata| target.kustomization.wants(metadata);
        let managed_by_label = self.options.managed_by_label || wants("managedByLabel");
        let forgotten: Vec<&str> =
            [("originAnnotations", ORIGIN), ("transformerAnnotations", TRANSFORMATIONS)]
                .into_iter()
                .filter(|(option, _)| !wants(option))
                .map(|(_, annotation)| annotation)
                .collect();
        let so_far = target.accumulate_top()?;
        let mut resources = self.finish(so_far)?;
        self.sort(&mut resources, sort_options)?;
        let schema = self.schema();
        if managed_by_label {
            let spec =
                FieldSpec { path: "metadata/labels".into(), create: true, ..FieldSpec::default() };
            let label = ("app.kubernetes.io/managed-by".to_owned(), MANAGED_BY.to_owned());
            let strings = LabelTransformer { strings: BTreeMap::from([label]), specs: vec![spec] };
            ResourceTransformer::Labels(strings).transform(&mut resources, &schema)?;
        }
        for resource in resources.list_mut() {
            resource.forget_notes(&forgotten)?;
        }
        Ok(resources.into_list())
    }

    /// The steps that are done once, after all objects were accumulated.
    fn finish(&self, so_far: AccumulatedResources) -> Result<BuildResources> {
        let AccumulatedResources { mut resources, config, variables } = so_far;
        let schema = self.schema();
        ResourceTransformer::Hash.transform(&mut resources, &schema)?;
        self.budget.steps(resources.list().len())?;
        name_reference_update::update(&mut resources, &config.name_reference, &schema)?;
        let mut logs = Vec::new();
        variable::resolve(&mut resources, &variables, &config.var_reference, &mut logs)?;
        logs.into_iter().for_each(|line| self.log(line));
        for resource in resources.list() {
            if !resource.is_gone() {
                resource::check_metadata(&resource.node)?;
            }
        }
        let is_local = |resource: &BuildResource| {
            let path = ["metadata", "annotations", "config.kubernetes.io/local-config"];
            field_edit::at(&resource.node, &path)
                .is_some_and(|local| field_edit::text(local) != "false")
        };
        if resources.list().iter().any(|resource| resource.is_gone() || is_local(resource)) {
            resources.list_mut().retain(|resource| !resource.is_gone() && !is_local(resource));
        }
        Ok(resources)
    }

    fn sort(&self, resources: &mut BuildResources, options: Option<SortOptions>) -> Result<()> {
        let schema = self.schema();
        if let Some(options) = options {
            if self.options.is_order_explicit {
                self.log(
                    "Warning: Sorting order is set both in 'kustomization.yaml' ('sortOptions') and in a CLI flag \
                     ('--reorder'). Using the kustomization file over the CLI flag.",
                );
            }
            return sort::sort(resources, &options, &schema);
        }
        if self.options.order == ObjectOrder::AsRead {
            return Ok(());
        }
        let legacy = SortOptions { order: "legacy".to_owned(), legacy: None };
        sort::sort(resources, &legacy, &schema).within(|| "legacy order")
    }
}

/// The value of the label `app.kubernetes.io/managed-by`.
const MANAGED_BY: &str = "kustomize-v5.8.1";

#[cfg(test)]
mod tests;
