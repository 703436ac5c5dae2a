//! The threads on which expressions of specs are read and evaluated.
//!
//! Here: who is next. An expression needs more stack than an async worker has, and may take a processor for a while, so
//! runs wait for these threads instead of doing it themselves; they hold no permit for other work meanwhile.
//! Elsewhere: how much the expressions of one run may use up (`super`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// How many threads there are: one long expression does not delay all others.
const MAX_WORKER_THREADS: usize = 2;

type EvaluationJob = Box<dyn FnOnce() + Send>;

/// There was no thread, or the work panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot evaluate expressions: {0}")]
pub struct ExpressionThreadError(String);

#[derive(Default)]
struct ThreadJobQueue {
    waiting: BTreeMap<String, VecDeque<EvaluationJob>>,
    /// The namespace that had its turn last.
    served: String,
    started: usize,
}

impl ThreadJobQueue {
    /// Namespaces take turns, however much one of them asks for.
    fn next(&mut self) -> Option<EvaluationJob> {
        let behind = (Bound::Excluded(self.served.as_str()), Bound::Unbounded);
        let turn =
            self.waiting.range::<str, _>(behind).next().or_else(|| self.waiting.iter().next());
        let namespace = turn.map(|(namespace, _)| namespace.clone())?;
        let queue = self.waiting.get_mut(&namespace)?;
        let work = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.served = namespace;
        work
    }
}

#[derive(Default)]
struct EvaluationThreads {
    queue: Mutex<ThreadJobQueue>,
    more: Condvar,
}

static SHARED: LazyLock<EvaluationThreads> = LazyLock::new(EvaluationThreads::default);

impl EvaluationThreads {
    fn queue(&self) -> MutexGuard<'_, ThreadJobQueue> {
        self.queue.lock()
    }

    fn put(
        &'static self,
        namespace: &str,
        work: EvaluationJob,
    ) -> Result<(), ExpressionThreadError> {
        let mut queue = self.queue();
        if queue.started < MAX_WORKER_THREADS {
            let thread = std::thread::Builder::new()
                .name("cel".to_owned())
                .stack_size(gocel::REQUIRED_STACK_BYTES);
            match thread.spawn(|| self.serve()) {
                Ok(_) => queue.started += 1,
                // One is enough.
                Err(_) if queue.started > 0 => {}
                Err(error) => {
                    return Err(ExpressionThreadError(format!(
                        "failed to start a thread: {error}"
                    )));
                }
            }
        }
        queue.waiting.entry(namespace.to_owned()).or_default().push_back(work);
        drop(queue);
        self.more.notify_one();
        Ok(())
    }

    fn serve(&self) {
        loop {
            let mut queue = self.queue();
            let work = loop {
                match queue.next() {
                    Some(work) => break work,
                    None => self.more.wait(&mut queue),
                }
            };
            drop(queue);
            // A panic drops the sender of the work, and so ends the wait of its caller.
            drop(std::panic::catch_unwind(AssertUnwindSafe(work)));
        }
    }
}

/// Does work for a namespace on one of the threads. Nothing is done for a run that ended meanwhile.
///
/// # Errors
/// When there is no thread, or the work panics.
pub async fn run<T: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ExpressionThreadError> {
    let (done, outcome) = oneshot::channel();
    let work = Box::new(move || {
        if !done.is_closed() {
            drop(done.send(work()));
        }
    });
    SHARED.put(namespace, work)?;
    let broke_off = "evaluation panicked; this is a bug in windlass, please report it with the log of that time";
    outcome.await.map_err(|_| ExpressionThreadError(broke_off.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn namespaces_take_turns() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut queue = ThreadJobQueue::default();
        for (namespace, name) in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")] {
            let order = order.clone();
            let work: EvaluationJob = Box::new(move || order.lock().push(name));
            queue.waiting.entry(namespace.to_owned()).or_default().push_back(work);
        }
        while let Some(work) = queue.next() {
            work();
        }
        assert_eq!(*order.lock(), ["a1", "b1", "c1", "a2", "a3"]);
        assert!(queue.waiting.is_empty());
    }

    #[tokio::test]
    async fn work_that_panics_is_reported_and_others_continue() {
        for _ in 0..2 * MAX_WORKER_THREADS {
            let broken = run("a", || -> u8 { panic!("on purpose") }).await.unwrap_err();
            assert!(broken.to_string().contains("evaluation panicked"), "{broken}");
        }
        assert_eq!(run("a", || 7).await, Ok(7));
    }
}
