//! Files of one chart rendered on several threads, with the same result as on one.
//!
//! Files of a chart share its values, which templates may change for those that come after them, and the randomness,
//! warnings and lookups of a render have an order. So a file that would change what is shared, or asks for one of those,
//! gives up, and so does one that fails: then all are rendered again, one by one, and that is what counts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use golang::GoRuntimeValue;
use golang::value::{GoMap, GoType};
use gotemplate::{TemplateBudget, TemplateFunctionError, TemplateLimitError, TemplateSet};
use parking_lot::Mutex;

use super::render_function_context::RenderFunctionContext;
use super::scope::RenderScope;
use super::{ChartTemplateFile, rendered_file};
use crate::parallel_work;

/// What files that are rendered at the same time share.
#[derive(Debug)]
pub(super) struct ParallelRenderState {
    /// Addresses of maps that are alive as long as this is.
    maps: BTreeSet<usize>,
    is_given_up: AtomicBool,
    /// Because of what a template does, and not because it failed.
    is_ordered: AtomicBool,
}

impl ParallelRenderState {
    /// Everything that templates see.
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

    /// A template does something that has its place in the order of files.
    pub(super) fn is_ordered(&self) {
        self.is_ordered.store(true, Ordering::Relaxed);
        self.give_up();
    }
}

/// A thread's part of a render.
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

/// The file in which a render was stopped, and where.
pub(super) type FileRenderFailure<'f> = (&'f ChartTemplateFile, TemplateFunctionError);

/// Renders files of the chart at `scopes[files[0].chart]`; `None` if they have to be rendered one by one.
///
/// An error is returned if the time is over; after any other error the caller renders the files again, one by one.
/// Unless the files were rendered, `budget` is unchanged. `is_ordered` remembers that templates of the chart use
/// functions whose order matters, so that parallel rendering is not tried again.
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
                // Then no file is rendered again, so this names the file.
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
