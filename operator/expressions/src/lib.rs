//! CEL expressions in specs, and the outcome of a run if one of them is invalid.
//!
//! Here: compiling `healthCheckExprs` and every `readyExpr`, and evaluating them within the limits of a run. Below: the
//! threads for that work (`threads`). Elsewhere: the language (engine `gocel`), whose health a run waits for (each kind's
//! `validated_spec`), and the consequences of a `readyExpr` (`dependency_gate`).

mod threads;

use std::sync::Arc;

use apply::{HealthStatus, ObjectHealth};
use crds::{CustomHealthCheck, DependencyReference};
use gocel::{CelExpression, HealthJudgement, KindHealthCheck, READING, SpecHealthChecks};
use golang::work_meter::{StopSignal, WorkAllowance, WorkLimitExceeded, WorkMeter};
use objects::Object;
use parking_lot::{Mutex, MutexGuard};
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use serde::Serialize;
use serde_json::Value;

pub use threads::{ExpressionThreadError, run as on_thread};

/// The most work that all evaluations of one run may cost. It is about half a second of processor time. Compiling does not
/// count.
const EVALUATING: WorkAllowance = WorkAllowance { steps: 5_000_000, bytes: 256 << 20 };

/// The compiled expressions, or the outcome if one is invalid. They belong to an object with this uid and generation.
type CompileResult = (String, i64, Result<Arc<CompiledExpressions>, RunOutcome>);

/// The compiled expressions of an object's spec, kept between runs.
#[derive(Default, Clone)]
pub struct ExpressionCache(Arc<Mutex<Option<CompileResult>>>);

/// The compiled expressions of a spec.
#[derive(Debug, Default)]
struct CompiledExpressions {
    checks: SpecHealthChecks,
    /// The expression of each entry of `dependsOn`, if it has one.
    ready: Vec<Option<CelExpression>>,
}

/// The expressions of one run, with the work that it may still spend on them.
pub struct RunExpressions {
    namespace: String,
    kept: ExpressionCache,
    compiled: Mutex<Arc<CompiledExpressions>>,
    used: Mutex<WorkMeter>,
}

/// The result of a `readyExpr`. `None` without an expression or without its object.
pub type ReadinessResult = Option<Result<bool, String>>;

impl RunExpressions {
    /// The expressions for a run of an object in a namespace. [`Self::read`] compiles them.
    pub fn new(namespace: &str, kept: ExpressionCache) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kept,
            compiled: Mutex::default(),
            used: Mutex::new(WorkMeter::new(EVALUATING, StopSignal::default())),
        }
    }

    fn compiled(&self) -> Arc<CompiledExpressions> {
        self.compiled.lock().clone()
    }

    fn used(&self) -> MutexGuard<'_, WorkMeter> {
        self.used.lock()
    }

    /// Compiles the expressions of a spec, unless an earlier run of the same generation did.
    ///
    /// # Errors
    /// An expression is invalid.
    pub async fn read(
        &self,
        meta: &kube_core::ObjectMeta,
        exprs: &[CustomHealthCheck],
        depends_on: &[DependencyReference],
    ) -> Result<(), RunOutcome> {
        if exprs.is_empty() && depends_on.iter().all(|it| ready_expr(it).is_none()) {
            return Ok(());
        }
        let uid = meta.uid.clone().unwrap_or_default();
        let generation = meta.generation.unwrap_or_default();
        let kept = || self.kept.0.lock();
        let known = kept().clone().filter(|known| (&known.0, known.1) == (&uid, generation));
        let outcome = match known {
            Some((_, _, outcome)) => outcome,
            None => {
                let exprs = exprs.to_vec();
                let depends_on = depends_on.to_vec();
                let read = move || CompiledExpressions::read(&exprs, &depends_on).map(Arc::new);
                let outcome = threads::run(&self.namespace, read).await.map_err(|broken| {
                    RunOutcome::Failed(
                        condition_reason::INVALID_CEL_EXPRESSION,
                        broken.to_string(),
                        NextRunTrigger::default(),
                    )
                })?;
                *kept() = Some((uid, generation, outcome.clone()));
                outcome
            }
        };
        *self.compiled.lock() = outcome?;
        Ok(())
    }

    /// Whether the spec has expressions for the kind of an object.
    pub fn judges(&self, object: &Object) -> bool {
        let kind = object.gvk();
        self.compiled().checks.supports(&kind.group, &kind.kind)
    }

    /// The health of an object by the expressions for its kind. `None` if there are none.
    ///
    /// Parity(flux): an expression without a value makes the health unknown, and the wait goes on.
    pub async fn report(&self, live: &Object) -> Option<ObjectHealth> {
        if !self.judges(live) {
            return None;
        }
        let compiled = self.compiled();
        // Objects of one run may be judged at the same time. Each gets the remaining work as its limit, and all work is
        // counted.
        let mut run = self.used().within(EVALUATING);
        let live = live.clone();
        let judge = move || {
            let judged = compiled.checks.judge(live.fields(), &mut run);
            (judged.map(|it| it.map_err(|error| error.to_string())), run)
        };
        let judged = match threads::run(&self.namespace, judge).await {
            Ok((judged, run)) => {
                self.used().join(&run);
                judged?
            }
            Err(broken) => Err(broken.to_string()),
        };
        let status = match judged {
            Ok(HealthJudgement::Current) => HealthStatus::Current,
            Ok(HealthJudgement::InProgress) => HealthStatus::InProgress,
            Ok(HealthJudgement::Failed) => HealthStatus::Failed,
            Err(error) => HealthStatus::Unknown(error),
        };
        Some(ObjectHealth { status, message: String::new(), conditions: Vec::new() })
    }

    /// The result of each `readyExpr` for its dependency, in the order of `dependsOn`.
    pub async fn readiness<K, D>(
        &self,
        own: &Arc<K>,
        dependencies: &[Option<Arc<D>>],
    ) -> Vec<ReadinessResult>
    where
        K: Serialize + Send + Sync + 'static,
        D: Serialize + Send + Sync + 'static,
    {
        let compiled = self.compiled();
        if compiled.ready.iter().all(Option::is_none) {
            return vec![None; dependencies.len()];
        }
        let own = own.clone();
        let dependencies = dependencies.to_vec();
        let count = dependencies.len();
        let mut run = self.used().within(EVALUATING);
        let ask = move || {
            let said = compiled.readiness(&*own, &dependencies, &mut run);
            (said, run)
        };
        match threads::run(&self.namespace, ask).await {
            Ok((said, run)) => {
                self.used().join(&run);
                said
            }
            Err(broken) => vec![Some(Err(broken.to_string())); count],
        }
    }

    /// The result of the `readyExpr` at one position of `dependsOn`.
    pub async fn readiness_of<K, D>(
        &self,
        own: &Arc<K>,
        at: usize,
        dependency: D,
    ) -> ReadinessResult
    where
        K: Serialize + Send + Sync + 'static,
        D: Serialize + Send + Sync + 'static,
    {
        let mut dependencies: Vec<Option<Arc<D>>> = vec![None; at];
        dependencies.push(Some(Arc::new(dependency)));
        self.readiness(own, &dependencies).await.pop().flatten()
    }
}

fn ready_expr(dependency: &DependencyReference) -> Option<&str> {
    dependency.ready_expr.as_deref().filter(|text| !text.is_empty())
}

impl CompiledExpressions {
    /// # Assumes
    /// The caller is on one of the [`threads`] for expressions.
    fn read(
        exprs: &[CustomHealthCheck],
        depends_on: &[DependencyReference],
    ) -> Result<Self, RunOutcome> {
        let run = &mut WorkMeter::new(READING, StopSignal::default());
        let checks: Vec<KindHealthCheck<'_>> = exprs
            .iter()
            .map(|check| KindHealthCheck {
                api_version: &check.api_version,
                kind: check.kind.as_deref().unwrap_or_default(),
                current: &check.current,
                in_progress: check.in_progress.as_deref(),
                failed: check.failed.as_deref(),
            })
            .collect();
        let checks =
            SpecHealthChecks::new(&checks, run).map_err(|error| refused(&error.to_string()))?;
        let mut ready = Vec::with_capacity(depends_on.len());
        for dependency in depends_on {
            let Some(text) = ready_expr(dependency) else {
                ready.push(None);
                continue;
            };
            let read = CelExpression::compile_within(text, &["self", "dep"], run);
            ready.push(Some(read.map_err(|error| {
                let name = &dependency.name;
                refused(&format!("terminal error: failed to evaluate dependency {name}: {error}"))
            })?));
        }
        Ok(Self { checks, ready })
    }

    fn readiness<K: Serialize, D: Serialize>(
        &self,
        own: &K,
        dependencies: &[Option<Arc<D>>],
        run: &mut WorkMeter,
    ) -> Vec<ReadinessResult> {
        let own = data(own, run);
        let mut said = Vec::with_capacity(dependencies.len());
        for (index, dependency) in dependencies.iter().enumerate() {
            let expression = self.ready.get(index).and_then(Option::as_ref);
            said.push(expression.zip(dependency.as_deref()).map(|(expression, dependency)| {
                let own = own.as_ref().map_err(Clone::clone)?;
                let dependency = data(dependency, run)?;
                let variables = [("self", own), ("dep", &dependency)];
                let holds = expression.evaluate_bool_within(&variables, run);
                holds.map_err(|error| error.to_string())
            }));
        }
        said
    }
}

/// An object as JSON for expressions. Its size counts as work of the run.
fn data<K: Serialize>(object: &K, run: &mut WorkMeter) -> Result<Value, String> {
    let too_much = |_: WorkLimitExceeded| {
        "the objects that readyExpr reads are too large in total; use fewer dependencies with readyExpr"
            .to_owned()
    };
    // If no work is left, nothing begins.
    run.steps(1).map_err(too_much)?;
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    let (nodes, bytes) = size(&value);
    run.steps(nodes).and_then(|()| run.bytes(bytes)).map_err(too_much)?;
    Ok(value)
}

/// The number of values inside a JSON value, and about how many bytes it takes.
fn size(value: &Value) -> (u64, u64) {
    let mut pending = vec![value];
    let mut nodes = 0;
    let mut bytes = 0;
    while let Some(value) = pending.pop() {
        nodes += 1;
        bytes += size_of::<Value>() as u64;
        match value {
            Value::String(text) => bytes += text.len() as u64,
            Value::Array(items) => pending.extend(items),
            Value::Object(fields) => {
                bytes += fields.keys().map(|key| key.len() as u64).sum::<u64>();
                pending.extend(fields.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    (nodes, bytes)
}

/// Parity(flux): only a change of the spec helps, and the text says so.
fn refused(error: &str) -> RunOutcome {
    let text = format!("Reconciliation failed terminally due to configuration error: {error}");
    RunOutcome::Stalled(condition_reason::INVALID_CEL_EXPRESSION, text)
}

#[cfg(test)]
mod tests;
