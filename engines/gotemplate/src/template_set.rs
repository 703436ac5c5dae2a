//! Templates that know each other by name.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use golang::GoRuntimeValue;

use crate::error::{TemplateFunctionError, TemplateParseError};
use crate::exec;
use crate::function::TemplateFunctions;
use crate::limits::{TemplateBudget, TemplateLimits};
use crate::parse::{self, ParseSettings, TemplateTree};

/// What a map without the key of a field gives; Go's option `missingkey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingKeyPolicy {
    /// No value: prints as `<no value>`, and its fields are no value either.
    #[default]
    Default,
    /// The zero value of the map's type: for `interface {}` a nil, of which a field is an error.
    Zero,
    /// An error.
    Error,
}

/// Templates by name, the functions they may call, and how they are read and run.
///
/// A clone shares the templates that exist; templates that are parsed into the clone later are not seen in the original.
#[derive(Debug, Clone)]
pub struct TemplateSet {
    name: Arc<str>,
    functions: Arc<TemplateFunctions>,
    missing_key: MissingKeyPolicy,
    limits: TemplateLimits,
    layer: Arc<TemplateLayer>,
}

/// A template that was parsed from a text, which may be hidden in its set by another of its name.
#[derive(Debug, Clone)]
pub struct Template(pub(crate) TemplateTree);

impl Template {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// A text that was parsed and is in no set yet.
#[derive(Debug)]
pub struct ParsedTemplate {
    own: TemplateTree,
    all: BTreeMap<Arc<str>, TemplateTree>,
}

/// Templates that hide those of the same name below.
#[derive(Debug, Default)]
struct TemplateLayer {
    templates: BTreeMap<Arc<str>, TemplateTree>,
    below: Option<Arc<Self>>,
}

impl TemplateSet {
    /// An empty set; the name is used in messages only.
    pub fn new(name: &str, functions: TemplateFunctions) -> Self {
        Self {
            name: name.into(),
            functions: Arc::new(functions),
            missing_key: MissingKeyPolicy::default(),
            limits: TemplateLimits::default(),
            layer: Arc::default(),
        }
    }

    /// With another answer to missing keys.
    #[must_use]
    pub fn with_missing_key(mut self, missing_key: MissingKeyPolicy) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// With other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: TemplateLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Parses a text as the template of that name, and those that it defines.
    ///
    /// A template replaces one of the same name, unless it is empty but for white space and comments; the returned one
    /// is always that of the text. Nothing changes when there is an error.
    ///
    /// # Errors
    /// When the text is not a template: Go's message.
    pub fn parse(&mut self, name: &str, text: &[u8]) -> Result<Template, TemplateParseError> {
        let parsed = self.read(name, text)?;
        Ok(self.add(parsed))
    }

    /// The first half of [`TemplateSet::parse`], which depends on nothing that was parsed before: strings can be read
    /// at the same time.
    ///
    /// # Errors
    /// As [`TemplateSet::parse`].
    pub fn read(&self, name: &str, text: &[u8]) -> Result<ParsedTemplate, TemplateParseError> {
        if u32::try_from(text.len()).is_err() {
            let message = "the text is longer than 4 GiB".to_owned();
            return Err(TemplateParseError { template: name.to_owned(), line: 1, message });
        }
        let settings = ParseSettings {
            left: "{{",
            right: "}}",
            nesting: self.limits.nesting,
            functions: &self.functions,
        };
        let (own, all) = parse::parse(name, text, &settings)?;
        Ok(ParsedTemplate { own, all })
    }

    /// The second half of [`TemplateSet::parse`]: what [`TemplateSet::read`] gave becomes part of the set.
    pub fn add(&mut self, parsed: ParsedTemplate) -> Template {
        let ParsedTemplate { own, all } = parsed;
        if Arc::get_mut(&mut self.layer).is_none() {
            let below = Some(Arc::clone(&self.layer));
            self.layer = Arc::new(TemplateLayer { templates: BTreeMap::new(), below });
        }
        for (name, tree) in all {
            if tree.source.is_empty(tree.root) && self.get(&name).is_some() {
                continue;
            }
            if let Some(layer) = Arc::get_mut(&mut self.layer) {
                layer.templates.insert(name, tree);
            }
        }
        Template(own)
    }

    /// Whether there is a template of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The name of the set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a template and gives its output.
    ///
    /// # Errors
    /// When there is no such template, it fails, or a limit is reached.
    pub fn run(&self, name: &str, data: GoRuntimeValue) -> Result<Vec<u8>, TemplateFunctionError> {
        self.run_with(name, data, &())
    }

    /// [`TemplateSet::run`] with something for the functions, which [`crate::FunctionCallContext::host`] gives them.
    ///
    /// # Errors
    /// As [`TemplateSet::run`].
    pub fn run_with(
        &self,
        name: &str,
        data: GoRuntimeValue,
        host: &dyn Any,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run(self, name, data, host, &mut TemplateBudget::new(self.limits))
    }

    /// [`TemplateSet::run_with`] within what earlier runs have left of their limits, in place of the set's own.
    ///
    /// # Errors
    /// As [`TemplateSet::run`].
    pub fn run_within(
        &self,
        name: &str,
        data: GoRuntimeValue,
        host: &dyn Any,
        budget: &mut TemplateBudget,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run(self, name, data, host, budget)
    }

    /// Whether both hold the same templates because one is a clone of the other, and nothing was parsed into either
    /// since.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.layer, &other.layer)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TemplateTree> {
        let mut layer = Some(&*self.layer);
        while let Some(known) = layer {
            if let Some(tree) = known.templates.get(name) {
                return Some(tree);
            }
            layer = known.below.as_deref();
        }
        None
    }

    pub(crate) fn functions(&self) -> &TemplateFunctions {
        &self.functions
    }

    pub(crate) fn missing_key(&self) -> MissingKeyPolicy {
        self.missing_key
    }
}
