//! The threads that compile and evaluate the expressions of specs.
//!
//! An expression needs more stack than an async worker has, and may use a processor for a while. So runs wait for these
//! threads, and hold no other permit meanwhile. Here: which run is next. Elsewhere: the work limit of one run (`super`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::LazyLock;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// How many threads there are, so that one long expression does not delay all others.
const MAX_WORKER_THREADS: usize = 2;

type EvaluationJob = Box<dyn FnOnce() + Send>;

/// The error if no thread could be started, or the work panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot evaluate expressions: {0}")]
pub struct ExpressionThreadError(String);

#[derive(Default)]
struct ThreadJobQueue {
    waiting: BTreeMap<String, VecDeque<EvaluationJob>>,
    /// The namespace whose work was done last.
    served: String,
    started: usize,
}

impl ThreadJobQueue {
    /// Takes the next evaluation from the queue. The namespaces take turns, however many evaluations wait for each of them.
    /// `None` if no evaluation waits.
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
                // One thread is enough.
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
            // A panic drops the sender of the result, which ends the wait of the caller.
            drop(std::panic::catch_unwind(AssertUnwindSafe(work)));
        }
    }
}

/// Runs work for a namespace on one of the threads. The work is skipped if its run has ended meanwhile.
///
/// # Errors
/// No thread could be started, or the work panicked.
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
