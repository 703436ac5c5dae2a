//! What functions share during one render: the environment, and what was included and parsed so far.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use golang::time::{Time, Zone};
use golang::value::{Map, Str};
use gotemplate::{Set, Template};
use parking_lot::{Mutex, MutexGuard};

use super::Mode;
use super::parallel_files::ParallelRenderState;
use crate::env::Env;
use crate::warning::Warning;

/// How often a template may be included within itself; Helm's own number.
const MAX_NESTED: usize = 1000;

/// How many strings given to `tpl` stay parsed within a render.
const MAX_KEPT: usize = 512;

/// How many bytes those strings may have together.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// What functions share during one render.
pub(super) struct Host {
    pub(super) env: Env,
    pub(super) mode: Mode,
    beside: Option<Beside>,
    state: Mutex<State>,
}

/// Other threads render other files at the same time.
struct Beside {
    shared: Arc<ParallelRenderState>,
    /// The address of what the file sees, which is its own, but would be seen by the next file.
    top: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// How often each name is being included at the moment.
    included: BTreeMap<Str, usize>,
    parsed: BTreeMap<Str, ParsedTemplateText>,
    parsed_bytes: usize,
    warnings: Vec<Warning>,
}

/// A text that was parsed on top of a set.
#[derive(Clone)]
pub(super) struct ParsedTemplateText {
    /// The set in which it was to be parsed.
    below: Set,
    /// That set with the text's own definitions.
    pub(super) set: Set,
    pub(super) template: Template,
}

impl Host {
    pub(super) fn new(env: Env, mode: Mode) -> Self {
        Self { env, mode, beside: None, state: Mutex::default() }
    }

    /// A host of one of several threads.
    pub(super) fn beside(&self, shared: &Arc<ParallelRenderState>) -> Self {
        let beside = Some(Beside { shared: Arc::clone(shared), top: AtomicUsize::new(0) });
        Self { env: self.env.clone(), mode: self.mode, beside, state: Mutex::default() }
    }

    /// Sets the values that the next file sees.
    pub(super) fn sees(&self, top: &Map) {
        if let Some(beside) = &self.beside {
            beside.top.store(top.address(), Ordering::Relaxed);
        }
    }

    /// Whether a function may be called whose result depends on what was rendered before. Where files are rendered side
    /// by side it may not, and they are rendered one by one instead.
    pub(super) fn is_alone(&self) -> bool {
        if let Some(beside) = &self.beside {
            beside.shared.is_ordered();
        }
        self.beside.is_none()
    }

    pub(super) fn into_warnings(self) -> Vec<Warning> {
        self.state.into_inner().warnings
    }

    /// Counts one more template of this name that is under way; false if there are too many.
    pub(super) fn enter(&self, name: &Str) -> bool {
        let mut state = self.state();
        match state.included.get_mut(name) {
            Some(count) if *count > MAX_NESTED => return false,
            Some(count) => *count += 1,
            None => {
                state.included.insert(name.clone(), 1);
            }
        }
        true
    }

    pub(super) fn leave(&self, name: &Str) {
        if let Some(count) = self.state().included.get_mut(name) {
            *count -= 1;
        }
    }

    /// A text that was parsed on top of this set before.
    pub(super) fn parsed(&self, set: &Set, text: &Str) -> Option<ParsedTemplateText> {
        self.state().parsed.get(text).filter(|parsed| parsed.below.is_same(set)).cloned()
    }

    /// Keeps a text that was parsed on top of a set, as long as there is room for it.
    pub(super) fn keep(
        &self,
        below: &Set,
        text: &Str,
        set: Set,
        template: Template,
    ) -> ParsedTemplateText {
        let parsed = ParsedTemplateText { below: below.clone(), set, template };
        let mut state = self.state();
        let bytes = state.parsed_bytes + text.len();
        if state.parsed.len() < MAX_KEPT && bytes <= MAX_KEPT_BYTES {
            state.parsed_bytes = bytes;
            state.parsed.insert(text.clone(), parsed.clone());
        }
        parsed
    }

    pub(super) fn warn(&self, warning: Warning) {
        // Warnings have an order; those of a render that is given up are not reported.
        self.is_alone();
        self.state().warnings.push(warning);
    }

    // Nothing panics while the state is held.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl sprig::TemplateEnvironment for Host {
    fn now(&self) -> Time {
        self.env.now.clone()
    }

    fn local(&self) -> &Zone {
        &self.env.local
    }

    fn randomness(&self) -> Option<&sprig::Fill> {
        self.is_alone().then_some(&*self.env.random)
    }

    fn address_of(&self, host: &str) -> Result<String, String> {
        self.env.names.as_ref().map_or_else(|| Ok(String::new()), |names| names.address_of(host))
    }

    fn may_change(&self, map: &Map) -> bool {
        let is_shared = |beside: &Beside| {
            beside.shared.has(map) || beside.top.load(Ordering::Relaxed) == map.address()
        };
        !self.beside.as_ref().is_some_and(is_shared) || self.is_alone()
    }
}
