//! The plans of branches that users start on pages: their limits, and the plans of one user while they are made and after that.
//!
//! A plan is made on a thread of its own, so neither its request nor a place for pages waits for it. Its page shows how far it is.
//! Elsewhere: the plan itself (`windlass_answers::branch_plan`), its page (`pages/branch_plan.rs`), the check of the right to
//! start one (`actions/perform.rs`).

mod branch_plan_limits;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_client::EgressRules;
use jiff::Timestamp;
use parking_lot::Mutex;
use plan::ChangePlan;
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use windlass_answers::branch_plan::{BranchPlanRequest, PlannedBranch};
use windlass_cli_runtime::trailing_serve_flags;
use windlass_cluster::ClusterConnection;

use self::branch_plan_limits::{BranchPlanLimits, BranchPlanPermit};

/// How long a plan may take in all. The parts of the work have shorter limits.
const PLAN_TIME_LIMIT: Duration = Duration::from_secs(420);

/// How many plans of one reader are kept.
const MAX_KEPT_PLANS: usize = 2;

/// The largest plan that is kept, in bytes as JSON.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// What a server needs to plan branches for its users. Its limits are those of the process.
#[derive(Clone)]
pub(crate) struct BranchPlanService {
    limits: Arc<Mutex<BranchPlanLimits>>,
    egress: EgressRules,
    /// The connection with which the server reads the Secrets of sources, if a user may not read them.
    server: Option<ClusterConnection>,
}

impl BranchPlanService {
    /// Sources are fetched from servers that `egress` admits.
    pub(crate) fn new(egress: EgressRules, server: Option<ClusterConnection>) -> Self {
        Self { limits: Arc::default(), egress, server }
    }
}

/// How far the plan of a branch is.
#[derive(Clone)]
pub(crate) enum BranchPlanProgress {
    /// It is being made.
    Running {
        /// What is done at the moment.
        step: Arc<str>,
    },
    /// It was made.
    Made(Rc<ChangePlan>),
    /// It could not be made, for this reason.
    Failed(Rc<str>),
}

/// The plan of a branch that a user started.
#[derive(Clone)]
pub(crate) struct StartedBranchPlan {
    pub(crate) started_at: Timestamp,
    pub(crate) progress: BranchPlanProgress,
}

/// The plans that the pages of one reader show.
struct StartedBranchPlans {
    known: RefCell<BTreeMap<PlannedBranch, StartedBranchPlan>>,
    changes: watch::Sender<u64>,
}

impl StartedBranchPlans {
    /// Sets how far a plan is. Does nothing if the plan was forgotten.
    fn set(&self, planned: &PlannedBranch, progress: BranchPlanProgress) {
        if let Some(started) = self.known.borrow_mut().get_mut(planned) {
            started.progress = progress;
        }
        self.changes.send_modify(|count| *count += 1);
    }

    /// Adds a plan that begins, and forgets the oldest ones.
    fn begin(&self, planned: &PlannedBranch, now: Timestamp) {
        let step = Arc::from("waiting for a thread");
        let progress = BranchPlanProgress::Running { step };
        let started = StartedBranchPlan { started_at: now, progress };
        let mut known = self.known.borrow_mut();
        known.insert(planned.clone(), started);
        while known.len() > MAX_KEPT_PLANS {
            let others = known.iter().filter(|(other, _)| *other != planned);
            let oldest = others.min_by_key(|(_, started)| started.started_at);
            let Some(oldest) = oldest.map(|(other, _)| other.clone()) else { break };
            known.remove(&oldest);
        }
        drop(known);
        self.changes.send_modify(|count| *count += 1);
    }
}

/// The plans of the user of a reader.
pub(crate) struct BranchPlans {
    service: BranchPlanService,
    /// The name of the user. Empty if the API server does not say it to `windlass ui`, which has one user.
    user: String,
    started: Rc<StartedBranchPlans>,
}

impl BranchPlans {
    pub(crate) fn new(service: BranchPlanService, user: &str) -> Self {
        let started =
            StartedBranchPlans { known: RefCell::default(), changes: watch::Sender::new(0) };
        Self { service, user: user.to_owned(), started: Rc::new(started) }
    }

    /// How far the plan of a branch is. `None` if it was not started, or was forgotten.
    pub(crate) fn find(&self, planned: &PlannedBranch) -> Option<StartedBranchPlan> {
        self.started.known.borrow().get(planned).cloned()
    }

    /// Whether a plan is being made. Its reader must not end before.
    pub(crate) fn is_running(&self) -> bool {
        let known = self.started.known.borrow();
        known.values().any(|it| matches!(it.progress, BranchPlanProgress::Running { .. }))
    }

    /// The number of changes so far.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.started.changes.subscribe()
    }

    /// Starts a plan. Must be called in a `LocalSet`. The caller has checked that the user may plan the source.
    ///
    /// # Errors
    /// A limit is reached. The error is a text for the user.
    pub(crate) fn start(
        &self,
        cluster: &ClusterConnection,
        planned: PlannedBranch,
    ) -> Result<(), &'static str> {
        let permit = self.service.limits.lock().begin(&self.user, Instant::now())?;
        self.started.begin(&planned, Timestamp::now());
        let (steps, seen) = watch::channel(Arc::<str>::from(""));
        drop(spawn_local(follow_steps(self.started.clone(), planned.clone(), seen)));
        let service = self.service.clone();
        let work = make(service, cluster.clone(), planned.clone(), permit, steps);
        let started = self.started.clone();
        drop(spawn_local(async move {
            let progress = match work.await {
                Ok(plan) => BranchPlanProgress::Made(Rc::new(plan)),
                Err(error) => BranchPlanProgress::Failed(format!("{error:#}").into()),
            };
            started.set(&planned, progress);
        }));
        Ok(())
    }
}

/// Makes a plan.
async fn make(
    service: BranchPlanService,
    cluster: ClusterConnection,
    planned: PlannedBranch,
    permit: BranchPlanPermit,
    steps: watch::Sender<Arc<str>>,
) -> anyhow::Result<ChangePlan> {
    let BranchPlanService { egress, server, .. } = service;
    let settings = trailing_serve_flags::settings(&[])?;
    // Nothing reads the step after the page was forgotten.
    let progress = Arc::new(move |step: &str| drop(steps.send(Arc::from(step))));
    let request = BranchPlanRequest { planned, cluster, server, egress, settings, progress };
    let made = timeout(PLAN_TIME_LIMIT, request.make(permit)).await;
    let made = made.unwrap_or_else(|_elapsed| {
        let seconds = PLAN_TIME_LIMIT.as_secs();
        Err(anyhow::anyhow!("the plan took longer than {seconds} s"))
    });
    within_size(made?)
}

/// Refuses a plan that is too large to be kept.
fn within_size(plan: ChangePlan) -> anyhow::Result<ChangePlan> {
    let bytes = serde_json::to_vec(&plan)?.len();
    anyhow::ensure!(
        bytes <= MAX_KEPT_BYTES,
        "the plan has {bytes} bytes, and a page shows at most {MAX_KEPT_BYTES}; the command prints all of it"
    );
    Ok(plan)
}

/// Shows the steps of a plan until its thread has ended.
async fn follow_steps(
    started: Rc<StartedBranchPlans>,
    planned: PlannedBranch,
    mut steps: watch::Receiver<Arc<str>>,
) {
    while steps.changed().await.is_ok() {
        let step = steps.borrow_and_update().clone();
        let is_running = started
            .known
            .borrow()
            .get(&planned)
            .is_some_and(|it| matches!(it.progress, BranchPlanProgress::Running { .. }));
        if is_running {
            started.set(&planned, BranchPlanProgress::Running { step });
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;
    use tokio::task::LocalSet;

    use super::*;

    fn planned(branch: &str) -> PlannedBranch {
        PlannedBranch::new("apps", "web", branch).unwrap()
    }

    #[test]
    fn a_reader_keeps_the_last_plans() {
        let plans =
            BranchPlans::new(BranchPlanService::new(EgressRules::with_loopback(), None), "alice");
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        for (second, branch) in [(3, "b"), (1, "a"), (2, "c")] {
            plans.started.begin(&planned(branch), at(second));
        }
        assert!(plans.find(&planned("b")).is_none() || plans.find(&planned("a")).is_none());
        assert!(plans.find(&planned("c")).is_some(), "the one that begins is kept");
        assert_eq!(plans.started.known.borrow().len(), MAX_KEPT_PLANS);
        let failed = || BranchPlanProgress::Failed("x".into());
        plans.started.set(&planned("c"), failed());
        plans.started.set(&planned("forgotten"), failed());
        let found = plans.find(&planned("c")).unwrap().progress;
        assert!(matches!(found, BranchPlanProgress::Failed(text) if &*text == "x"));
        assert!(plans.find(&planned("forgotten")).is_none());
    }

    #[tokio::test]
    async fn a_plan_that_fails_says_why_and_the_next_one_waits() {
        LocalSet::new()
            .run_until(async {
                let cluster = fake_cluster::answering(|_| {
                    let refused = json!({"kind": "Status", "apiVersion": "v1",
                        "status": "Failure", "code": 403, "reason": "Forbidden",
                        "message": "no <b>sources"});
                    (403, Body::from(refused.to_string()))
                });
                let cluster = cluster.await;
                let service = BranchPlanService::new(EgressRules::with_loopback(), None);
                let plans = BranchPlans::new(service, "alice");
                let mut changes = plans.changes();
                plans.start(&cluster, planned("new")).unwrap();
                assert!(plans.is_running());
                let again = plans.start(&cluster, planned("other")).unwrap_err();
                assert!(again.contains("one plan at a time"), "{again}");
                loop {
                    let found = plans.find(&planned("new")).unwrap().progress;
                    if let BranchPlanProgress::Failed(text) = found {
                        assert!(text.contains("no <b>sources"), "{text}");
                        break;
                    }
                    changes.changed().await.unwrap();
                }
                assert!(!plans.is_running());
                let soon = plans.start(&cluster, planned("other")).unwrap_err();
                assert!(soon.contains("10 s"), "{soon}");
            })
            .await;
    }
}
