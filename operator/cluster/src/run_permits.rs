//! Permits for work that many namespaces share: builds, fetches, and applies to a cluster. There are few of them.
//!
//! A run waits for a permit in the queue of its namespace. The next permit goes to the waiting namespace that holds the fewest
//! permits, and equal namespaces take turns. So a tenant with many or slow objects delays only its own runs. Where work mostly
//! waits for servers, each namespace also has a limit of its own, because a server may never respond.
//!
//! A run gives its permit back while it waits for another server ([`RunPermit::aside`]). Each namespace has two queues, one
//! for new runs and one for runs that continue earlier work, and they take turns.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// A pool of permits with the queues of waiting runs. Clones share it.
#[derive(Debug, Clone)]
pub struct RunPermits(Arc<Mutex<PermitQueues>>);

#[derive(Debug)]
struct PermitQueues {
    /// How many permits there are.
    all: usize,
    /// How many of them are granted. After the pool shrank, these may be more than `all`.
    granted: usize,
    /// The most permits that one namespace may hold.
    each: usize,
    /// The waiting runs of each namespace.
    waiting: BTreeMap<String, NamespacePermitQueues>,
    /// The namespaces with waiting runs, in the order of their turns.
    turns: VecDeque<String>,
    held: BTreeMap<String, usize>,
}

/// In which queue of its namespace a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PermitPriority {
    /// For a run that begins new work.
    New,
    /// For a run that continues the work of an earlier run. Little of that work is left, and other objects may wait for its
    /// end.
    Resume,
}

/// The waiting runs of a namespace.
#[derive(Debug, Default)]
struct NamespacePermitQueues {
    begin: VecDeque<oneshot::Sender<GrantedPermit>>,
    go_on: VecDeque<oneshot::Sender<GrantedPermit>>,
    /// Whether the last permit went to a run of [`PermitPriority::Resume`].
    went_on: bool,
}

impl NamespacePermitQueues {
    fn is_empty(&self) -> bool {
        self.begin.is_empty() && self.go_on.is_empty()
    }

    /// Whether any run in these queues still waits.
    fn is_awaited(&self) -> bool {
        self.begin.iter().chain(&self.go_on).any(|waiting| !waiting.is_closed())
    }

    fn push(&mut self, priority: PermitPriority, waiting: oneshot::Sender<GrantedPermit>) {
        match priority {
            PermitPriority::New => self.begin.push_back(waiting),
            PermitPriority::Resume => self.go_on.push_back(waiting),
        }
    }

    /// The next run that still waits. The two queues take turns while both have waiting runs.
    fn pop(&mut self) -> Option<oneshot::Sender<GrantedPermit>> {
        let order = if self.went_on {
            [PermitPriority::New, PermitPriority::Resume]
        } else {
            [PermitPriority::Resume, PermitPriority::New]
        };
        order.into_iter().find_map(|priority| {
            let queue = match priority {
                PermitPriority::New => &mut self.begin,
                PermitPriority::Resume => &mut self.go_on,
            };
            let next = std::iter::from_fn(|| queue.pop_front()).find(|it| !it.is_closed())?;
            self.went_on = priority == PermitPriority::Resume;
            Some(next)
        })
    }
}

/// A permit. Dropping it gives it back.
#[derive(Debug)]
pub struct GrantedPermit {
    permits: RunPermits,
    namespace: String,
}

impl Drop for GrantedPermit {
    fn drop(&mut self) {
        let mut queues = self.permits.lock();
        queues.granted -= 1;
        if let Some(held) = queues.held.get_mut(&self.namespace) {
            *held -= 1;
            if *held == 0 {
                queues.held.remove(&self.namespace);
            }
        }
        let granted = self.permits.grant(&mut queues);
        drop(queues);
        hand_out(granted);
    }
}

/// Sends each permit to the run that waited for it. If that run has stopped waiting, the permit is dropped and goes to the
/// next run.
fn hand_out(granted: Vec<(oneshot::Sender<GrantedPermit>, GrantedPermit)>) {
    for (waiting, permit) in granted {
        drop(waiting.send(permit));
    }
}

impl RunPermits {
    /// A pool of `all` permits. One namespace may hold all of them while no other one waits.
    pub fn new(all: usize) -> Self {
        Self::shared(all, all)
    }

    /// A pool of `all` permits. One namespace may hold at most `each` of them.
    pub fn shared(all: usize, each: usize) -> Self {
        Self(Arc::new(Mutex::new(PermitQueues {
            all,
            granted: 0,
            each,
            waiting: BTreeMap::new(),
            turns: VecDeque::new(),
            held: BTreeMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, PermitQueues> {
        self.0.lock()
    }

    /// Waits for a permit until it is the namespace's turn.
    pub async fn acquire(&self, namespace: &str) -> GrantedPermit {
        self.acquire_in(PermitPriority::New, namespace).await
    }

    async fn acquire_in(&self, priority: PermitPriority, namespace: &str) -> GrantedPermit {
        loop {
            let (sender, receiver) = oneshot::channel();
            let granted = {
                let mut queues = self.lock();
                queues.enqueue(priority, namespace, sender);
                self.grant(&mut queues)
            };
            hand_out(granted);
            // The sender stays in the queue until it sends a permit.
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    /// Waits for the permit of a run. The run can give it back while it waits for other servers.
    pub async fn run_permit(&self, namespace: &str) -> RunPermit {
        self.run_permit_in(PermitPriority::New, namespace).await
    }

    /// As [`Self::run_permit`], with a priority.
    pub async fn run_permit_in(&self, priority: PermitPriority, namespace: &str) -> RunPermit {
        let permit = self.acquire_in(priority, namespace).await;
        let permits = self.clone();
        let namespace = namespace.to_owned();
        let held = Mutex::new(HeldPermit { permit: Some(permit), aside: 0 });
        RunPermit(Arc::new(RunPermitState { permits, namespace, held }))
    }

    /// Assigns the free permits to the runs whose turn it is.
    fn grant(
        &self,
        queues: &mut PermitQueues,
    ) -> Vec<(oneshot::Sender<GrantedPermit>, GrantedPermit)> {
        let mut granted = Vec::new();
        while queues.granted < queues.all {
            let Some((namespace, waiting)) = queues.next() else { break };
            queues.granted += 1;
            *queues.held.entry(namespace.clone()).or_default() += 1;
            granted.push((waiting, GrantedPermit { permits: self.clone(), namespace }));
        }
        granted
    }

    /// Whether a run waits for a permit.
    pub fn is_awaited(&self) -> bool {
        let queues = self.lock();
        queues.waiting.values().any(NamespacePermitQueues::is_awaited)
    }

    /// How many permits are free.
    pub fn free(&self) -> usize {
        let queues = self.lock();
        queues.all.saturating_sub(queues.granted)
    }

    /// Changes the number of permits, and how many of them one namespace may hold. Permits that are held stay valid. If they
    /// are more than there may be now, the next one is granted when enough were given back.
    pub(crate) fn resize(&self, all: usize, each: usize) {
        let granted = {
            let mut queues = self.lock();
            queues.all = all;
            queues.each = each;
            self.grant(&mut queues)
        };
        hand_out(granted);
    }
}

impl PermitQueues {
    fn enqueue(
        &mut self,
        priority: PermitPriority,
        namespace: &str,
        waiting: oneshot::Sender<GrantedPermit>,
    ) {
        let queues = self.waiting.entry(namespace.to_owned()).or_default();
        if queues.is_empty() {
            self.turns.push_back(namespace.to_owned());
        }
        queues.push(priority, waiting);
    }

    /// The next waiting run of a namespace that may hold one more permit.
    fn next(&mut self) -> Option<(String, oneshot::Sender<GrantedPermit>)> {
        while let Some(place) = self.turn() {
            let namespace = self.turns.remove(place)?;
            let Some(queues) = self.waiting.get_mut(&namespace) else { continue };
            let next = queues.pop();
            if queues.is_empty() {
                self.waiting.remove(&namespace);
            } else {
                self.turns.push_back(namespace.clone());
            }
            if let Some(next) = next {
                return Some((namespace, next));
            }
        }
        None
    }

    /// The position in `turns` of the namespace with the fewest permits. `None` if every waiting namespace is at its limit.
    fn turn(&self) -> Option<usize> {
        let mut fewest: Option<NamespaceTurn> = None;
        for (place, namespace) in self.turns.iter().enumerate() {
            let held = self.held.get(namespace).copied().unwrap_or_default();
            if held < self.each && fewest.as_ref().is_none_or(|it| held < it.held) {
                fewest = Some(NamespaceTurn { place, held });
            }
            // No namespace can hold fewer. The namespaces that hold a permit are at most as many as the permits.
            if held == 0 {
                break;
            }
        }
        fewest.map(|it| it.place)
    }
}

/// A namespace whose turn it may be.
struct NamespaceTurn {
    /// Its position in `turns`.
    place: usize,
    /// How many permits it holds.
    held: usize,
}

/// The permit of one run. All parts of the run that work at the same time share it.
#[derive(Debug, Clone)]
pub struct RunPermit(Arc<RunPermitState>);

#[derive(Debug)]
struct RunPermitState {
    permits: RunPermits,
    namespace: String,
    held: Mutex<HeldPermit>,
}

#[derive(Debug)]
struct HeldPermit {
    permit: Option<GrantedPermit>,
    /// How many parts of the run wait for other servers.
    aside: usize,
}

impl RunPermit {
    fn held(&self) -> MutexGuard<'_, HeldPermit> {
        self.0.held.lock()
    }

    /// The namespace that holds this permit.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// Gives the permit back while `wait` runs, and takes one again before it returns.
    ///
    /// While one part of a run waits, the other parts continue without a permit.
    pub async fn aside<T>(&self, wait: impl Future<Output = T>) -> T {
        let given_back = {
            let mut held = self.held();
            held.aside += 1;
            held.permit.take()
        };
        drop(given_back);
        let done = wait.await;
        let is_last = {
            let mut held = self.held();
            held.aside -= 1;
            held.aside == 0
        };
        if is_last {
            let permit = self.0.permits.acquire_in(PermitPriority::Resume, &self.0.namespace).await;
            let mut held = self.held();
            // Another part of the run may be waiting by now.
            if held.aside == 0 && held.permit.is_none() {
                held.permit = Some(permit);
            } else {
                drop(held);
                drop(permit);
            }
        }
        done
    }
}

#[cfg(test)]
mod tests;
