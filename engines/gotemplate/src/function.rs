//! Functions that the caller gives to templates.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use golang::Value;
use golang::value::Signature;

use crate::error::Failure;
use crate::exec;
use crate::limits::Budget;
use crate::set::{Set, Template};

type Body = dyn Fn(&mut Call<'_>, &[Value]) -> Result<Value, Failure> + Send + Sync;

/// A function and what it takes.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) signature: Arc<Signature>,
    pub(crate) body: Arc<Body>,
}

/// How many lists the functions are divided into; there are some two hundred functions.
const LISTS: usize = 512;

/// Functions by name. One with the name of a function of Go's replaces it.
#[derive(Clone)]
pub struct Functions {
    /// Each function is in the list that [`place`] says of its name, as each call looks for one.
    lists: Vec<Vec<(Box<str>, Entry)>>,
}

impl Default for Functions {
    fn default() -> Self {
        Self { lists: vec![Vec::new(); LISTS] }
    }
}

fn place(name: &str) -> usize {
    let add = |sum: usize, byte: u8| sum.wrapping_mul(31).wrapping_add(usize::from(byte));
    name.bytes().fold(name.len(), add) % LISTS
}

impl Functions {
    /// Adds a function, or replaces the one of that name.
    ///
    /// Its body gets arguments of its signature only; what it says of an error becomes `error calling <name>: …`.
    pub fn insert(
        &mut self,
        name: &str,
        signature: Signature,
        body: impl Fn(&mut Call<'_>, &[Value]) -> Result<Value, Failure> + Send + Sync + 'static,
    ) {
        let entry = Entry { signature: Arc::new(signature), body: Arc::new(body) };
        let list = &mut self.lists[place(name)];
        match list.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, known)) => *known = entry,
            None => list.push((name.into(), entry)),
        }
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.lists.iter().flatten().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// What a function takes and gives.
    pub fn signature(&self, name: &str) -> Option<&Signature> {
        self.get(name).map(|entry| &*entry.signature)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Entry> {
        let mut list = self.lists[place(name)].iter();
        list.find(|(known, _)| **known == *name).map(|(_, entry)| entry)
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The run in which a function is called.
pub struct Call<'r> {
    pub(crate) set: &'r Set,
    pub(crate) host: &'r dyn Any,
    pub(crate) budget: &'r mut Budget,
}

impl<'r> Call<'r> {
    /// The templates that are being run. A clone of them is cheap and can get templates of its own.
    pub fn set(&self) -> &Set {
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
    pub fn run(&mut self, name: &str, data: Value) -> Result<Vec<u8>, Failure> {
        exec::run(self.set, name, data, self.host, self.budget)
    }

    /// Runs a template as part of another set, within the limits of this run: what Go's `Execute` of a parsed
    /// template does, where [`Call::run`] is `ExecuteTemplate`.
    ///
    /// # Errors
    /// When it fails.
    pub fn run_template(
        &mut self,
        set: &Set,
        template: &Template,
        data: Value,
    ) -> Result<Vec<u8>, Failure> {
        exec::run_tree(set, &template.0, data, self.host, self.budget)
    }

    /// Says that a text of so many bytes is about to be made.
    ///
    /// # Errors
    /// When the run has made too much text.
    pub fn produce(&mut self, bytes: usize) -> Result<(), Failure> {
        Ok(self.budget.produce(bytes)?)
    }

    /// Says that work for so many items is about to be done.
    ///
    /// # Errors
    /// When the run has taken too many steps.
    pub fn work(&mut self, items: usize) -> Result<(), Failure> {
        for _ in 0..items {
            self.budget.step()?;
        }
        Ok(())
    }

    /// How long a text may be that `golang::fmt` makes next.
    pub fn text_limits(&self) -> golang::fmt::Limits {
        self.budget.text()
    }
}
