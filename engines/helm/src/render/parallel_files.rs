//! Renders the files of one chart on several threads, with the same result as on one thread.
//!
//! The files of a chart share its values, and a template may change them for later files. Randomness, warnings and
//! lookups of a render have an order, too. If a file would change shared values or needs one of these, or if it fails,
//! the parallel render is given up. All files are then rendered again, one after the other, and only that result
//! counts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoType};
use gotemplate::{TemplateBudget, TemplateFunctionError, TemplateLimitError, TemplateSet};
use parking_lot::Mutex;

use super::render_function_context::RenderFunctionContext;
use super::root_template_data::RenderScope;
use super::{ChartTemplateFile, rendered_file};
use crate::parallel_work;

/// The state that files share which are rendered at the same time.
#[derive(Debug)]
pub(super) struct ParallelRenderState {
    /// The addresses of the shared maps. The maps live as long as this state.
    maps: BTreeSet<usize>,
    is_given_up: AtomicBool,
    /// Whether a template needs the order of files. A failure of a template does not count.
    is_ordered: AtomicBool,
}

impl ParallelRenderState {
    /// Collects the maps that templates see in these scopes.
    fn of(scopes: &[RenderScope]) -> Self {
        let mut maps = BTreeSet::new();
        let mut pending: Vec<GoRuntimeValue> =
            scopes.iter().map(|scope| GoRuntimeValue::Map(scope.top.clone())).collect();
        while let Some(value) = pending.pop() {
            match value.underlying() {
                GoRuntimeValue::Map(map) if maps.insert(map.address()) => {
                    pending.extend(map.entries().into_iter().map(|(_, value)| value));
                }
                GoRuntimeValue::List(list) => pending.extend_from_slice(list.items()),
                _ => {}
            }
        }
        Self { maps, is_given_up: AtomicBool::new(false), is_ordered: AtomicBool::new(false) }
    }

    pub(super) fn has(&self, map: &GoMap) -> bool {
        self.maps.contains(&map.address())
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Notes that a template does something that depends on the order of files.
    pub(super) fn is_ordered(&self) {
        self.is_ordered.store(true, Ordering::Relaxed);
        self.give_up();
    }
}

/// The part of one thread in a render.
struct RenderWorker<'r> {
    host: RenderFunctionContext,
    budget: TemplateBudget,
    total: &'r Mutex<TemplateBudget>,
}

impl Drop for RenderWorker<'_> {
    fn drop(&mut self) {
        self.total.lock().join(&self.budget);
    }
}

/// The file in which a render was stopped, and the error.
pub(super) type FileRenderFailure<'f> = (&'f ChartTemplateFile, TemplateFunctionError);

/// Renders files of the chart at `scopes[files[0].chart]`. `None` if they have to be rendered one by one.
///
/// It returns an error only if the time is over. After any other error, the caller renders the files again, one by one.
/// `budget` only changes if the files were rendered. `is_ordered` remembers that templates of the chart use functions
/// whose order matters, so that parallel rendering is not tried again.
pub(super) fn render<'f>(
    set: &TemplateSet,
    files: &[&'f ChartTemplateFile],
    scopes: &[RenderScope],
    host: &RenderFunctionContext,
    budget: &mut TemplateBudget,
    is_ordered: &AtomicBool,
) -> Option<Result<Vec<Vec<u8>>, FileRenderFailure<'f>>> {
    let bytes = files.iter().map(|file| file.text.len()).sum();
    let threads = parallel_work::threads(files.len(), bytes);
    if threads < 2 || is_ordered.load(Ordering::Relaxed) {
        return None;
    }
    let scope = scopes.get(files.first()?.chart)?;
    let shared = Arc::new(ParallelRenderState::of(scopes));
    let total = Mutex::new(budget.part(1));
    let begin = || {
        let host = host.beside(&shared);
        RenderWorker { host, budget: budget.part(threads), total: &total }
    };
    let stopped = Mutex::new(None);
    let work = |worker: &mut RenderWorker<'_>, file: &&'f ChartTemplateFile| {
        if shared.is_given_up.load(Ordering::Relaxed) {
            return None;
        }
        let top = GoMap::new(GoType::Any, scope.top.entries());
        worker.host.sees(&top);
        let shown = scope.shown_to(&file.name, &top);
        match rendered_file(set, file, shown, &worker.host, &mut worker.budget) {
            Ok(text) => Some(text),
            Err(failure) => {
                shared.give_up();
                // The time is over, so no file is rendered again, and the error has to name this file.
                if failure.limit() == Some(TemplateLimitError::Time) {
                    let mut stopped = stopped.lock();
                    stopped.get_or_insert((*file, failure));
                }
                None
            }
        }
    };
    let strings = parallel_work::on_threads(files, threads, &begin, &work);
    if shared.is_ordered.load(Ordering::Relaxed) {
        is_ordered.store(true, Ordering::Relaxed);
    }
    if let Some(stopped) = stopped.into_inner() {
        return Some(Err(stopped));
    }
    if shared.is_given_up.load(Ordering::Relaxed) {
        return None;
    }
    budget.join(&total.into_inner());
    if let Some(last) = files.last() {
        scope.shown_to(&last.name, &scope.top);
    }
    strings.into_iter().collect::<Option<_>>().map(Ok)
}
