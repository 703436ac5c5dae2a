//! Functions that the caller gives to templates.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::value::FunctionSignature;
use golang::work_meter::WorkMeter;

use crate::builtin::{self, BuiltinFunction};
use crate::error::{TemplateFunctionError, TemplateLimitError};
use crate::exec;
use crate::limits::TemplateBudget;
use crate::template_set::{Template, TemplateSet};

type TemplateFunctionBody = dyn Fn(
        &mut FunctionCallContext<'_>,
        &[GoRuntimeValue],
    ) -> Result<GoRuntimeValue, TemplateFunctionError>
    + Send
    + Sync;

/// A function and what it takes.
#[derive(Clone)]
pub(crate) struct TemplateFunctionEntry {
    pub(crate) signature: Arc<FunctionSignature>,
    pub(crate) body: Arc<TemplateFunctionBody>,
}

/// How many lists the functions are divided into; there are some two hundred functions.
const FUNCTION_BUCKET_COUNT: usize = 512;

/// Functions by name. One with the name of a function of Go's replaces it.
#[derive(Clone)]
pub struct TemplateFunctions {
    all: Vec<(Box<str>, TemplateFunctionEntry)>,
    /// The places of functions in `all`; each is in the list that [`list_of`] returns for its name.
    lists: Vec<Vec<u32>>,
}

impl Default for TemplateFunctions {
    fn default() -> Self {
        Self { all: Vec::new(), lists: vec![Vec::new(); FUNCTION_BUCKET_COUNT] }
    }
}

fn list_of(name: &str) -> usize {
    let add = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
    name.bytes().fold(name.len(), add) % FUNCTION_BUCKET_COUNT
}

/// What a name in a template was found to mean when it was parsed, so that a call has not to look for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TemplateCallee {
    /// The place of a function of the caller's.
    Given(u32),
    /// One of Go's own.
    Go(BuiltinFunction),
}

impl TemplateFunctions {
    /// Adds a function, or replaces the one of that name.
    ///
    /// Its body gets arguments of its signature only; its errors become `error calling <name>: …`.
    pub fn insert(
        &mut self,
        name: &str,
        signature: FunctionSignature,
        body: impl Fn(
            &mut FunctionCallContext<'_>,
            &[GoRuntimeValue],
        ) -> Result<GoRuntimeValue, TemplateFunctionError>
        + Send
        + Sync
        + 'static,
    ) {
        let entry = TemplateFunctionEntry { signature: Arc::new(signature), body: Arc::new(body) };
        let known = self.place(name).and_then(|place| self.all.get_mut(place as usize));
        match known {
            Some((_, known)) => *known = entry,
            None => {
                // There are only as many as are registered in the source code.
                let place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
                self.lists[list_of(name)].push(place);
                self.all.push((name.into(), entry));
            }
        }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.all.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// What a function takes and gives.
    pub fn signature(&self, name: &str) -> Option<&FunctionSignature> {
        self.get(name).map(|entry| &*entry.signature)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TemplateFunctionEntry> {
        self.at(self.place(name)?, name.as_bytes())
    }

    /// The function at a place, if it is still the one of that name.
    pub(crate) fn at(&self, place: u32, name: &[u8]) -> Option<&TemplateFunctionEntry> {
        let (known, entry) = self.all.get(place as usize)?;
        (known.as_bytes() == name).then_some(entry)
    }

    /// What a name means.
    pub(crate) fn callee(&self, name: &str) -> Option<TemplateCallee> {
        let given = self.place(name).map(TemplateCallee::Given);
        given.or_else(|| builtin::find(name).map(TemplateCallee::Go))
    }

    fn place(&self, name: &str) -> Option<u32> {
        let mut list = self.lists[list_of(name)].iter().copied();
        list.find(|place| self.at(*place, name.as_bytes()).is_some())
    }
}

impl fmt::Debug for TemplateFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The run in which a function is called.
pub struct FunctionCallContext<'r> {
    pub(crate) set: &'r TemplateSet,
    pub(crate) host: &'r dyn Any,
    pub(crate) budget: &'r mut TemplateBudget,
}

impl<'r> FunctionCallContext<'r> {
    /// The templates that are being run. A clone of them is cheap and can get templates of its own.
    pub fn set(&self) -> &TemplateSet {
        self.set
    }

    /// What the run was given for its functions, if it is of this type.
    pub fn host<T: 'static>(&self) -> Option<&'r T> {
        self.host.downcast_ref()
    }

    /// Runs a template of the set that is being run, within the limits of this run.
    ///
    /// # Errors
    /// When there is no such template, or it fails.
    pub fn run(
        &mut self,
        name: &str,
        data: GoRuntimeValue,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run(self.set, name, data, self.host, self.budget)
    }

    /// Runs a template as part of another set, within the limits of this run: what Go's `Execute` of a parsed
    /// template does, where [`FunctionCallContext::run`] is `ExecuteTemplate`.
    ///
    /// # Errors
    /// When it fails.
    pub fn run_template(
        &mut self,
        set: &TemplateSet,
        template: &Template,
        data: GoRuntimeValue,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run_tree(set, &template.0, data, self.host, self.budget)
    }

    /// Counts bytes that are about to be made, of a text or of another value.
    ///
    /// # Errors
    /// When the run has made too much text.
    pub fn produce(&mut self, bytes: usize) -> Result<(), TemplateFunctionError> {
        Ok(self.budget.produce(bytes)?)
    }

    /// Counts work for so many items, before it is done.
    ///
    /// # Errors
    /// When the run has taken too many steps.
    pub fn work(&mut self, items: usize) -> Result<(), TemplateFunctionError> {
        Ok(self.budget.steps(items)?)
    }

    /// Looks whether the time is over: for work that takes long for the steps that it counts for.
    ///
    /// # Errors
    /// When it is.
    pub fn look(&mut self) -> Result<(), TemplateFunctionError> {
        Ok(self.budget.meter().look()?)
    }

    /// Refuses work whose result may be that long, where it is counted once it is there.
    ///
    /// # Errors
    /// When the run may not make so many bytes.
    pub fn has_room(&self, bytes: usize) -> Result<(), TemplateFunctionError> {
        if bytes > self.budget.room() {
            return Err(TemplateLimitError::Output(self.budget.limits.output).into());
        }
        Ok(())
    }

    /// The meter of the run, for functions that count their own cost.
    pub fn meter(&mut self) -> &mut WorkMeter {
        self.budget.meter()
    }

    /// How many of so many bytes an error may quote: templates that run each other quote each other's errors.
    pub fn words(&self, wanted: usize) -> usize {
        self.budget.words(wanted)
    }

    /// How many bytes may still be made.
    pub fn room(&self) -> usize {
        self.budget.room()
    }

    /// How long a text may be that `golang::fmt` makes next.
    pub fn text_limits(&self) -> golang::fmt::FormatLimits {
        self.budget.text()
    }
}
