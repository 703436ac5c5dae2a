//! A whole build: the steps that are done once, around the accumulation of the requested kustomization.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use serde_json::Value;

use crate::budget::{self, BuildBudget};
use crate::edit;
use crate::error::{Error, Result, Within as _};
use crate::fieldspec::FieldSpec;
use crate::files::BuildFiles;
use crate::inflate::HelmOptions;
use crate::kustomization::SortOptions;
use crate::loader::{Loader, Restriction};
use crate::origin::{ORIGIN, TRANSFORMATIONS};
use crate::output;
use crate::reference;
use crate::resource::{self, Resource};
use crate::resources::Resources;
use crate::schema::{ReadError, Schema};
use crate::sort;
use crate::target::{Accumulation, KustomizationTarget};
use crate::transform::Transformer;
use crate::transform::label::Strings;
use crate::variable;

/// Steps that every kustomization costs.
const STEPS_PER_KUSTOMIZATION: usize = 2_000_000;

/// The order of objects where the kustomization has no `sortOptions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they come.
    #[default]
    AsRead,
    /// By kind, as `kustomize build` sorts.
    Legacy,
}

/// What a build may do, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Which files a kustomization may read.
    pub restriction: Restriction,
    /// The order of objects.
    pub order: Order,
    /// Whether the order was asked for, which is worth a warning where it does not count.
    pub is_order_explicit: bool,
    /// Whether all objects get the label `app.kubernetes.io/managed-by`.
    pub managed_by_label: bool,
    /// Whether plugins of other kinds than the builtin ones are asked for; they are rejected with an error of their
    /// own then.
    pub plugins: bool,
    /// How charts are rendered.
    pub helm: HelmOptions,
    /// Whether `openapi.path` adds to the built-in schemas of Kubernetes' own kinds.
    ///
    /// `kustomize build` drops the built-in schemas, unless it has merged a patch by that time; Flux always adds.
    pub keeps_builtin_schema: bool,
}

/// Something that a person should know although the build went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Advice, printed as it is.
    Advice(String),
    /// A line that kustomize logs, with a time in front.
    Log(String),
    /// Something that is not built although a kustomization names it. Differs(kustomize 5.8): it is silent (kustomize#5979).
    Lost(String),
}

/// An object of a finished build.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// Group, version and kind, name and namespace.
    pub id: crate::id::Id,
    /// Its value.
    pub value: Value,
}

/// What a build gives.
#[derive(Debug)]
pub struct KustomizeBuildOutput {
    resources: Vec<Resource>,
    schema: Schema,
    budget: BuildBudget,
}

impl KustomizeBuildOutput {
    /// The text that `kustomize build` prints; empty without objects.
    ///
    /// # Errors
    /// An object cannot be written, or the text is too long.
    pub fn yaml(&self) -> Result<String> {
        output::stream(&self.resources, &self.budget)
    }

    /// The objects one by one.
    ///
    /// # Errors
    /// An object cannot be written, or they take too much memory.
    pub fn into_objects(self) -> Result<Vec<Object>> {
        let Self { resources, schema, budget } = self;
        let object = |resource: Resource| {
            let named = || format!("object {}", resource::id(&resource.node));
            let value = output::value(&resource.node)?;
            let kept = budget.bytes(budget::weight_of_value(&value));
            kept.map_err(Error::from).if_exhausted(named)?;
            let id = resource.id(&schema);
            budget.free(budget::weight(&resource.node));
            Ok(Object { id, value })
        };
        resources.into_iter().map(object).collect()
    }
}

/// What all parts of a build share.
pub(crate) struct Build<'b> {
    pub(crate) options: &'b Options,
    schema: RefCell<Schema>,
    is_schema_set: Cell<bool>,
    /// Whether a document adds to the schemas so far.
    is_schema_kept: Cell<bool>,
    warnings: RefCell<Vec<Warning>>,
    pub(crate) budget: BuildBudget,
}

/// Builds the kustomization at a path.
///
/// Warnings are added as they come up, also if the build fails in the end.
///
/// # Errors
/// With kustomize's message; or that the budget is used up, where, and by what.
pub fn build(
    files: &dyn BuildFiles,
    path: &str,
    options: &Options,
    budget: &BuildBudget,
    warnings: &mut Vec<Warning>,
) -> Result<KustomizeBuildOutput> {
    let build = Build {
        options,
        schema: RefCell::new(Schema::builtin()),
        is_schema_set: Cell::new(false),
        is_schema_kept: Cell::new(options.keeps_builtin_schema),
        warnings: RefCell::default(),
        budget: budget.clone(),
    };
    let built = build.run(files, path);
    warnings.append(&mut build.warnings.borrow_mut());
    Ok(KustomizeBuildOutput { resources: built?, schema: build.schema(), budget: budget.clone() })
}

impl Build<'_> {
    /// The schemas of kinds; cheap to copy.
    pub(crate) fn schema(&self) -> Schema {
        self.schema.borrow().clone()
    }

    /// Adds a warning of something that is not built.
    pub(crate) fn warn_of_loss(&self, text: String) {
        self.warnings.borrow_mut().push(Warning::Lost(text));
    }

    pub(crate) fn warn(&self, advice: String) {
        self.warnings.borrow_mut().push(Warning::Advice(advice));
    }

    fn log(&self, line: impl Into<String>) {
        self.warnings.borrow_mut().push(Warning::Log(line.into()));
    }

    /// Notes that patches were merged with the built-in schemas.
    ///
    /// Parity(kustomize): from then on these stay, because they are read when they are first needed.
    pub(crate) fn keep_schema(&self) {
        self.is_schema_kept.set(true);
    }

    /// Takes notice of objects that were read or generated.
    ///
    /// Parity(kustomize): one of a kind that is not built in makes it read what is.
    pub(crate) fn notice(&self, resources: &[Resource]) {
        let schema = self.schema.borrow();
        let is_unknown = |resource: &Resource| {
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

    /// Uses an OpenAPI document: that of the kustomization that is built, or else the first.
    ///
    /// # Errors
    /// Both a document and a version are named, or a version that is not known, or the document is not valid.
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
            let invalid =
                |error: ReadError| Error::new(error.to_string()).within("invalid schema file");
            let document = goyaml::to_json_within(text.as_bytes(), &limits)
                .map_err(|error| invalid(error.into()))?;
            // What is made of a document is about as large as the document.
            self.budget.bytes(budget::weight_of_value(&document))?;
            let added = if self.is_schema_kept.get() {
                let mut schema = self.schema();
                schema.add_openapi(&document).map(|()| schema)
            } else {
                Schema::with_openapi(&document)
            };
            let schema = added.map_err(invalid)?;
            self.schema.replace(schema);
            self.is_schema_set.set(true);
            return Ok(());
        }
        match version.map(String::as_str) {
            None | Some("") => Ok(()),
            Some("v1.21.2") => {
                self.schema.replace(Schema::builtin());
                self.is_schema_set.set(true);
                Ok(())
            }
            Some(_) => Err(Error::new("the specified OpenAPI version is not built in")),
        }
    }

    fn run(&self, files: &dyn BuildFiles, path: &str) -> Result<Vec<Resource>> {
        let loader = Loader::new(files, self.options.restriction, path, &self.budget)?;
        // The target borrows this build for as long as it lives, which is until its parts have come together.
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
            let strings = Strings { strings: BTreeMap::from([label]), specs: vec![spec] };
            Transformer::Labels(strings).transform(&mut resources, &schema)?;
        }
        for resource in resources.list_mut() {
            resource.forget_notes(&forgotten)?;
        }
        Ok(resources.into_list())
    }

    /// The steps that are done once, after all objects were accumulated.
    fn finish(&self, so_far: Accumulation) -> Result<Resources> {
        let Accumulation { mut resources, config, variables } = so_far;
        let schema = self.schema();
        Transformer::Hash.transform(&mut resources, &schema)?;
        self.budget.steps(resources.list().len())?;
        reference::update(&mut resources, &config.name_reference, &schema)?;
        let mut logs = Vec::new();
        variable::resolve(&mut resources, &variables, &config.var_reference, &mut logs)?;
        logs.into_iter().for_each(|line| self.log(line));
        for resource in resources.list() {
            if !resource.is_gone() {
                resource::check_metadata(&resource.node)?;
            }
        }
        let is_local = |resource: &Resource| {
            let path = ["metadata", "annotations", "config.kubernetes.io/local-config"];
            edit::at(&resource.node, &path).is_some_and(|local| edit::text(local) != "false")
        };
        if resources.list().iter().any(|resource| resource.is_gone() || is_local(resource)) {
            resources.list_mut().retain(|resource| !resource.is_gone() && !is_local(resource));
        }
        Ok(resources)
    }

    fn sort(&self, resources: &mut Resources, options: Option<SortOptions>) -> Result<()> {
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
        if self.options.order == Order::AsRead {
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
