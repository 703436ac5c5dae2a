//! The state that functions share during one render: the environment, and the templates that were included and parsed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use golang::time::{GoTime, GoTimeZone};
use golang::value::{GoMap, GoString};
use gotemplate::{Template, TemplateSet};
use parking_lot::{Mutex, MutexGuard};

use super::RenderMode;
use super::parallel_files::ParallelRenderState;
use crate::render_environment::RenderEnvironment;
use crate::warning::HelmWarning;

/// How often a template may include itself. The number is Helm's.
const MAX_NESTED: usize = 1000;

/// How many parsed strings of `tpl` are kept during a render.
const MAX_KEPT: usize = 512;

/// How many bytes the kept strings of `tpl` may have together.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// The state that functions share during one render.
pub(super) struct RenderFunctionContext {
    pub(super) env: RenderEnvironment,
    pub(super) mode: RenderMode,
    beside: Option<ParallelFileRender>,
    state: Mutex<RenderFunctionState>,
}

/// The state of a render in which other threads render other files.
struct ParallelFileRender {
    shared: Arc<ParallelRenderState>,
    /// The address of the map that the present file sees. The next file would see changes of it.
    top: AtomicUsize,
}

#[derive(Default)]
struct RenderFunctionState {
    /// How often each template is being included at the moment.
    included: BTreeMap<GoString, usize>,
    parsed: BTreeMap<GoString, ParsedTemplateText>,
    parsed_bytes: usize,
    warnings: Vec<HelmWarning>,
}

/// A text of `tpl` that was parsed into a template set.
#[derive(Clone)]
pub(super) struct ParsedTemplateText {
    /// The set before the text was parsed.
    below: TemplateSet,
    /// The set together with the definitions of the text.
    pub(super) set: TemplateSet,
    pub(super) template: Template,
}

impl RenderFunctionContext {
    pub(super) fn new(env: RenderEnvironment, mode: RenderMode) -> Self {
        Self { env, mode, beside: None, state: Mutex::default() }
    }

    /// The context for one of several threads.
    pub(super) fn beside(&self, shared: &Arc<ParallelRenderState>) -> Self {
        let beside =
            Some(ParallelFileRender { shared: Arc::clone(shared), top: AtomicUsize::new(0) });
        Self { env: self.env.clone(), mode: self.mode, beside, state: Mutex::default() }
    }

    /// Sets the map that the next file sees.
    pub(super) fn sees(&self, top: &GoMap) {
        if let Some(beside) = &self.beside {
            beside.top.store(top.address(), Ordering::Relaxed);
        }
    }

    /// Whether a function may be called whose result depends on earlier files. It may not if files are rendered in
    /// parallel. They are then rendered again, one by one.
    pub(super) fn is_alone(&self) -> bool {
        if let Some(beside) = &self.beside {
            beside.shared.is_ordered();
        }
        self.beside.is_none()
    }

    pub(super) fn into_warnings(self) -> Vec<HelmWarning> {
        self.state.into_inner().warnings
    }

    /// Counts one more running template of this name. It returns false if there are too many.
    pub(super) fn enter(&self, name: &GoString) -> bool {
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

    pub(super) fn leave(&self, name: &GoString) {
        if let Some(count) = self.state().included.get_mut(name) {
            *count -= 1;
        }
    }

    /// The templates of a text, if the text was parsed into this set before. `None` if it was not.
    pub(super) fn parsed(&self, set: &TemplateSet, text: &GoString) -> Option<ParsedTemplateText> {
        self.state().parsed.get(text).filter(|parsed| parsed.below.is_same(set)).cloned()
    }

    /// Keeps a parsed text as long as there is room for it.
    pub(super) fn keep(
        &self,
        below: &TemplateSet,
        text: &GoString,
        set: TemplateSet,
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

    pub(super) fn warn(&self, warning: HelmWarning) {
        // Warnings have an order. The warnings of a parallel render that is given up are not reported.
        self.is_alone();
        self.state().warnings.push(warning);
    }

    // Nothing panics while the state is held.
    fn state(&self) -> MutexGuard<'_, RenderFunctionState> {
        self.state.lock()
    }
}

impl sprig::TemplateEnvironment for RenderFunctionContext {
    fn now(&self) -> GoTime {
        self.env.now.clone()
    }

    fn local(&self) -> &GoTimeZone {
        &self.env.local
    }

    fn randomness(&self) -> Option<&sprig::RandomFill> {
        self.is_alone().then_some(&*self.env.random)
    }

    fn address_of(&self, host: &str) -> Result<String, String> {
        self.env.names.as_ref().map_or_else(|| Ok(String::new()), |names| names.address_of(host))
    }

    fn may_change(&self, map: &GoMap) -> bool {
        let is_shared = |beside: &ParallelFileRender| {
            beside.shared.has(map) || beside.top.load(Ordering::Relaxed) == map.address()
        };
        !self.beside.as_ref().is_some_and(is_shared) || self.is_alone()
    }
}
