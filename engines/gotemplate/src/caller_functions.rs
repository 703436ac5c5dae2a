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

/// A function with its signature.
#[derive(Clone)]
pub(crate) struct TemplateFunctionEntry {
    pub(crate) signature: Arc<FunctionSignature>,
    pub(crate) body: Arc<TemplateFunctionBody>,
}

/// How many lists the functions are divided into. There are about two hundred functions.
const FUNCTION_BUCKET_COUNT: usize = 512;

/// Functions by name. A function with the name of a built-in one replaces it.
#[derive(Clone)]
pub struct TemplateFunctions {
    all: Vec<(Box<str>, TemplateFunctionEntry)>,
    /// The indices of functions in `all`. Each is in the list that [`list_of`] returns for its name.
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

/// The function that a name denotes. It is found when the template is parsed, so that a call need not search for it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TemplateCallee {
    /// A function of the caller, by its index.
    Given(u32),
    /// A built-in function of Go.
    Go(BuiltinFunction),
}

impl TemplateFunctions {
    /// Adds a function, or replaces the function of that name.
    ///
    /// Its body only gets arguments of its signature. Its errors become `error calling <name>: …`.
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
                // The number of functions is small, because the source code registers them.
                let place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
                self.lists[list_of(name)].push(place);
                self.all.push((name.into(), entry));
            }
        }
    }

    /// The names of all functions, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.all.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// The signature of the function with this name. `None` if the caller gave no such function.
    pub fn signature(&self, name: &str) -> Option<&FunctionSignature> {
        self.get(name).map(|entry| &*entry.signature)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TemplateFunctionEntry> {
        self.at(self.place(name)?, name.as_bytes())
    }

    /// The function at an index. `None` if that function has another name.
    pub(crate) fn at(&self, place: u32, name: &[u8]) -> Option<&TemplateFunctionEntry> {
        let (known, entry) = self.all.get(place as usize)?;
        (known.as_bytes() == name).then_some(entry)
    }

    /// The function that a name denotes: one of the caller's, or else a built-in one. `None` if there is no such
    /// function.
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
    /// The template set of the run. A clone is cheap, and can get templates of its own.
    pub fn set(&self) -> &TemplateSet {
        self.set
    }

    /// The data of type `T` that the caller of the run gave for its functions. `None` if the caller gave data of
    /// another type.
    pub fn host<T: 'static>(&self) -> Option<&'r T> {
        self.host.downcast_ref()
    }

    /// Runs another template of the same set, within the limits of this run.
    ///
    /// # Errors
    /// The template does not exist, or fails.
    pub fn run(
        &mut self,
        name: &str,
        data: GoRuntimeValue,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run(self.set, name, data, self.host, self.budget)
    }

    /// Runs a template as part of another set, within the limits of this run. It corresponds to Go's `Execute` of a
    /// parsed template. [`FunctionCallContext::run`] corresponds to `ExecuteTemplate`.
    ///
    /// # Errors
    /// The template fails.
    pub fn run_template(
        &mut self,
        set: &TemplateSet,
        template: &Template,
        data: GoRuntimeValue,
    ) -> Result<Vec<u8>, TemplateFunctionError> {
        exec::run_tree(set, &template.0, data, self.host, self.budget)
    }

    /// Charges for bytes of a text or another value. The function calls it before it makes them.
    ///
    /// # Errors
    /// The run has made too many bytes.
    pub fn produce(&mut self, bytes: usize) -> Result<(), TemplateFunctionError> {
        Ok(self.budget.produce(bytes)?)
    }

    /// Charges for the work on so many items. The function calls it before it does the work.
    ///
    /// # Errors
    /// The run has taken too many steps.
    pub fn work(&mut self, items: usize) -> Result<(), TemplateFunctionError> {
        Ok(self.budget.steps(items)?)
    }

    /// Checks whether the time of the caller is over. Functions call it during work that takes long compared with its
    /// steps.
    ///
    /// # Errors
    /// The time is over.
    pub fn look(&mut self) -> Result<(), TemplateFunctionError> {
        Ok(self.budget.meter().look()?)
    }

    /// Refuses work whose result may have this length. The result itself is charged later.
    ///
    /// # Errors
    /// The run may not make so many bytes.
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

    /// How many of these bytes an error may quote. Templates that run each other quote each other's errors, so the
    /// total is limited.
    pub fn words(&self, wanted: usize) -> usize {
        self.budget.words(wanted)
    }

    /// How many bytes the run may still make.
    pub fn room(&self) -> usize {
        self.budget.room()
    }

    /// The limits for the next text that `golang::fmt` makes.
    pub fn text_limits(&self) -> golang::fmt::FormatLimits {
        self.budget.text()
    }
}
