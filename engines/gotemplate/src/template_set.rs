//! Sets of templates that can run each other by name.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use golang::GoRuntimeValue;

use crate::caller_functions::TemplateFunctions;
use crate::error::{TemplateFunctionError, TemplateParseError};
use crate::exec;
use crate::limits::{TemplateBudget, TemplateLimits};
use crate::parse::{self, ParseSettings, TemplateTree};

/// The result of a field whose key a map does not have. It is Go's option `missingkey`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissingKeyPolicy {
    /// There is no value. It prints as `<no value>`, and its fields have no value either.
    #[default]
    Default,
    /// The zero value of the map's type. For `interface {}` it is nil, and a field of nil is an error.
    Zero,
    /// A missing key is an error.
    Error,
}

/// Templates by name, with the functions that they may call and the settings for parsing and running.
///
/// A clone shares the existing templates. If a template is parsed into the clone later, the original does not have it.
#[derive(Debug, Clone)]
pub struct TemplateSet {
    name: Arc<str>,
    functions: Arc<TemplateFunctions>,
    missing_key: MissingKeyPolicy,
    limits: TemplateLimits,
    layer: Arc<TemplateLayer>,
}

/// A template that was parsed from a text. Another template of the same name may replace it in its set.
#[derive(Debug, Clone)]
pub struct Template(pub(crate) TemplateTree);

impl Template {
    /// The name of the template.
    pub fn name(&self) -> &str {
        &self.0.name
    }
}

/// A parsed text that is in no set yet.
#[derive(Debug)]
pub struct ParsedTemplate {
    own: TemplateTree,
    all: BTreeMap<Arc<str>, TemplateTree>,
}

/// Templates that replace those of the same name in the layers below.
#[derive(Debug, Default)]
struct TemplateLayer {
    templates: BTreeMap<Arc<str>, TemplateTree>,
    below: Option<Arc<Self>>,
}

impl TemplateSet {
    /// An empty set. Its name only appears in messages.
    pub fn new(name: &str, functions: TemplateFunctions) -> Self {
        Self {
            name: name.into(),
            functions: Arc::new(functions),
            missing_key: MissingKeyPolicy::default(),
            limits: TemplateLimits::default(),
            layer: Arc::default(),
        }
    }

    /// Sets the policy for missing keys.
    #[must_use]
    pub fn with_missing_key(mut self, missing_key: MissingKeyPolicy) -> Self {
        self.missing_key = missing_key;
        self
    }

    /// Sets the limits of each run of these templates.
    #[must_use]
    pub fn with_limits(mut self, limits: TemplateLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Parses a text as the template with this name, and the templates that it defines.
    ///
    /// A template replaces one of the same name, unless it only has white space and comments. The returned template is
    /// always the one of the text. If there is an error, the set does not change.
    ///
    /// # Errors
    /// The text is not a template. The message is Go's.
    pub fn parse(&mut self, name: &str, text: &[u8]) -> Result<Template, TemplateParseError> {
        let parsed = self.read(name, text)?;
        Ok(self.add(parsed))
    }

    /// The first half of [`TemplateSet::parse`]. It does not depend on earlier texts, so several texts can be read at
    /// the same time.
    ///
    /// # Errors
    /// As for [`TemplateSet::parse`].
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

    /// The second half of [`TemplateSet::parse`]. It adds the result of [`TemplateSet::read`] to the set.
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

    /// Whether the set has a template with this name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The name of the set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a template and returns its output.
    ///
    /// # Errors
    /// The template does not exist or fails, or a limit is reached.
    pub fn run(&self, name: &str, data: GoRuntimeValue) -> Result<Vec<u8>, TemplateFunctionError> {
        self.run_with(name, data, &())
    }

    /// Like [`TemplateSet::run`], with data for the functions. [`crate::FunctionCallContext::host`] gives it to them.
    ///
    /// # Errors
    /// As for [`TemplateSet::run`].
    pub fn run_with(
        &self,
        name: &str,
        data: GoRuntimeValue,
        host: &dyn Any,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run(self, name, data, host, &mut TemplateBudget::new(self.limits))
    }

    /// Like [`TemplateSet::run_with`], within the rest of a budget that earlier runs have used, instead of the set's
    /// own limits.
    ///
    /// # Errors
    /// As for [`TemplateSet::run`].
    pub fn run_within(
        &self,
        name: &str,
        data: GoRuntimeValue,
        host: &dyn Any,
        budget: &mut TemplateBudget,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run(self, name, data, host, budget)
    }

    /// Whether two sets have the same templates: one is a clone of the other, and no text was parsed into either since.
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
