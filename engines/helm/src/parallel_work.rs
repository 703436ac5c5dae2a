//! Runs the same work for many independent items on several threads.
//!
//! The results are in the order of the items, as with one thread. Elsewhere: the work itself (`render`: parsing
//! templates; `manifests`: reading manifests).

use std::num::NonZero;
use std::panic::resume_unwind;

/// With fewer bytes to read, a second thread costs more than it saves.
const MIN_PARALLEL_BYTES: usize = 64 << 10;

/// How many threads work on one chart. Many charts may be rendered at the same time.
const MAX_THREADS_PER_CHART: usize = 4;

/// The results of `work` for all items, in their order. `bytes` is the total size of the items.
///
/// Each thread has a stack of [`crate::render::REQUIRED_STACK_BYTES`]. A panic of the work is passed on.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    bytes: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    on_threads(items, threads(items.len(), bytes), &|| (), &|(), item| work(item))
}

/// How many threads are useful for these items and their total size, including the caller's thread.
pub(crate) fn threads(items: usize, bytes: usize) -> usize {
    let most = match bytes {
        ..MIN_PARALLEL_BYTES => 1,
        _ => {
            std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS_PER_CHART)
        }
    };
    most.min(items)
}

/// The results of `work` for all items, in their order, on this number of threads. `begin` makes the state of each
/// thread.
pub(crate) fn on_threads<T: Sync, R: Send, W>(
    items: &[T],
    threads: usize,
    begin: &(impl Fn() -> W + Sync),
    work: &(impl Fn(&mut W, &T) -> R + Sync),
) -> Vec<R> {
    let threads = threads.max(1);
    let share = |first: usize| {
        let mut with = begin();
        items.iter().skip(first).step_by(threads).map(|item| work(&mut with, item)).collect()
    };
    if threads == 1 {
        return share(0);
    }
    std::thread::scope(|scope| {
        let others = (1..threads).map(|first| {
            let builder =
                std::thread::Builder::new().stack_size(crate::render::REQUIRED_STACK_BYTES);
            (first, builder.spawn_scoped(scope, move || -> Vec<R> { share(first) }))
        });
        let others: Vec<_> = others.collect();
        let own: Vec<R> = share(0);
        let others = others.into_iter().map(|(first, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system has no more threads, so the caller's thread does this part.
            Err(_) => share(first),
        });
        let shares: Vec<Vec<R>> = std::iter::once(own).chain(others).collect();
        let mut shares: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
        (0..items.len()).filter_map(|index| shares[index % threads].next()).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::on_threads;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for threads in 0..6 {
            for length in [0, 1, 2, 3, 7, 100] {
                let items: Vec<usize> = (0..length).collect();
                let found = on_threads(&items, threads, &|| 2, &|by, item| item * *by);
                assert_eq!(found, items.iter().map(|item| item * 2).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_panic_is_passed_on() {
        let work = |(): &mut (), item: &usize| assert_ne!(*item, 5);
        let ended = catch_unwind(|| on_threads(&[1, 2, 3, 4, 5, 6], 3, &|| (), &work));
        assert!(ended.is_err());
    }
}
