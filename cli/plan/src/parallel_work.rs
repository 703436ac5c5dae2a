//! Runs work on several threads. Each thread has the large stack that builds and renders need.

use std::collections::BTreeMap;
use std::thread::{Builder, available_parallelism};

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;

/// The stack of a thread. Nested Kustomizations and templates need a large stack.
const BUILD_STACK_BYTES: usize = 64 << 20;

/// The maximum number of threads. Each may use as much memory as a build is allowed to use.
const MAX_THREADS: usize = 8;

/// Runs work for each item, and returns the results in the order of the items.
///
/// # Errors
/// A thread cannot be started, or panicked.
pub(crate) fn in_parallel<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> anyhow::Result<Vec<R>> {
    let cores = available_parallelism().map_or(1, usize::from);
    let threads = cores.min(MAX_THREADS).min(items.len());
    let queue = Mutex::new(items.into_iter().enumerate());
    let results = Mutex::new(BTreeMap::new());
    let run = || {
        loop {
            let next = queue.lock().next();
            let Some((at, item)) = next else { break };
            let result = work(item);
            results.lock().insert(at, result);
        }
    };
    let stack = BUILD_STACK_BYTES.max(helm::render::REQUIRED_STACK_BYTES);
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for _ in 0..threads {
            let thread = Builder::new().stack_size(stack).spawn_scoped(scope, run);
            started.push(thread.context("cannot start a thread")?);
        }
        let mut has_panicked = false;
        for thread in started {
            has_panicked |= thread.join().is_err();
        }
        ensure!(!has_panicked, "a build panicked; this is a bug in windlass, please report it");
        anyhow::Ok(())
    })?;
    Ok(results.into_inner().into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let doubled = in_parallel(items, |item| item * 2).unwrap();
        assert!(doubled.into_iter().eq((0..100).map(|item| item * 2)));
        assert!(in_parallel(Vec::new(), |item: usize| item).unwrap().is_empty());
    }

    #[test]
    fn work_that_panics_is_an_error() {
        let error = in_parallel(vec![0], |_| -> usize { panic!("expected by this test") });
        assert!(error.unwrap_err().to_string().contains("bug in windlass"));
    }
}
