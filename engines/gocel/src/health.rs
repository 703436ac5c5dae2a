//! The health of objects by expressions in a spec: `healthCheckExprs`.
//!
//! Here: the expressions for an object, and their results. Elsewhere: kinds without expressions, and objects that are
//! being deleted or do not exist (`apply`).
//!
//! Source of the semantics: fluxcd/pkg/runtime 0.110 `cel` (RFC 0009).

use std::collections::BTreeMap;

use golang::work_meter::WorkMeter;
use serde_json::{Map, Value as Json};

use crate::{CelExpression, Error};

/// The health check of one kind in a spec.
#[derive(Debug, Clone, Copy, Default)]
pub struct KindHealthCheck<'a> {
    /// The API version, such as `acme.io/v1`. Only its group counts.
    pub api_version: &'a str,
    /// The kind. If it is empty, the check is for all kinds of the group without a check of their own.
    pub kind: &'a str,
    /// The expression that is true for a healthy object. It is required.
    pub current: &'a str,
    /// The expression that is true for an object in progress.
    pub in_progress: Option<&'a str>,
    /// The expression that is true for a failed object.
    pub failed: Option<&'a str>,
}

/// Why health checks are not valid. The messages are Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthCheckError {
    /// Two checks are for the same kind.
    #[error("duplicate custom health check for GroupKind {group_kind} at healthchecks[{index}]")]
    Duplicate {
        /// The kind and the group, separated by a dot.
        group_kind: String,
        /// The index of the second check, counted from 0.
        index: usize,
    },
    /// A check has no expression `current`.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: expression Current not specified"
    )]
    NoCurrent {
        /// The index of the check, counted from 0.
        index: usize,
    },
    /// A text is not an expression.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: failed to parse the expression {field}: {error}"
    )]
    Invalid {
        /// The index of the check, counted from 0.
        index: usize,
        /// The name of the field: `Current`, `InProgress` or `Failed`.
        field: &'static str,
        /// What is wrong with the expression.
        error: Error,
    },
}

/// The result of the expressions for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthJudgement {
    /// The object has the state that its spec asks for.
    Current,
    /// The object is on its way to that state.
    InProgress,
    /// The object has failed.
    Failed,
}

#[derive(Debug)]
struct HealthEvaluator {
    current: CelExpression,
    in_progress: Option<CelExpression>,
    failed: Option<CelExpression>,
}

/// The health expressions of a spec, by group and kind.
#[derive(Debug, Default)]
pub struct SpecHealthChecks(BTreeMap<(String, String), HealthEvaluator>);

impl SpecHealthChecks {
    /// Reads the expressions of all checks, within the budget of a run.
    ///
    /// # Errors
    /// The error names the invalid check and the reason.
    pub fn new(
        checks: &[KindHealthCheck<'_>],
        run: &mut WorkMeter,
    ) -> Result<Self, HealthCheckError> {
        let mut evaluators = BTreeMap::new();
        for (index, check) in checks.iter().enumerate() {
            let group = group_of(check.api_version);
            let key = (group.to_owned(), check.kind.to_owned());
            if evaluators.contains_key(&key) {
                let group_kind = match (check.kind, group) {
                    (kind, "") => kind.to_owned(),
                    (kind, group) => format!("{kind}.{group}"),
                };
                return Err(HealthCheckError::Duplicate { group_kind, index });
            }
            evaluators.insert(key, evaluator(index, check, run)?);
        }
        Ok(Self(evaluators))
    }

    /// Whether there are no health checks.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether objects of a kind are judged by expressions.
    pub fn supports(&self, group: &str, kind: &str) -> bool {
        self.evaluator(group, kind).is_some()
    }

    fn evaluator(&self, group: &str, kind: &str) -> Option<&HealthEvaluator> {
        let of = |kind: &str| self.0.get(&(group.to_owned(), kind.to_owned()));
        of(kind).or_else(|| of(""))
    }

    /// Judges an object, whose fields are the variables. `None` if no expressions are for its kind.
    ///
    /// If `status.observedGeneration` is not the object's generation, the object is in progress and the expressions are
    /// not evaluated. Otherwise they are evaluated in this order: in progress, failed, current. If none is true, the
    /// object is in progress. The run pays for the evaluations.
    ///
    /// # Errors
    /// The value of an expression is not a boolean.
    pub fn judge(
        &self,
        object: &Map<String, Json>,
        run: &mut WorkMeter,
    ) -> Option<Result<HealthJudgement, Error>> {
        let text = |field: &str| object.get(field).and_then(Json::as_str).unwrap_or_default();
        let evaluator = self.evaluator(group_of(text("apiVersion")), text("kind"))?;
        Some(evaluator.judge(object, run))
    }
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn evaluator(
    index: usize,
    check: &KindHealthCheck<'_>,
    run: &mut WorkMeter,
) -> Result<HealthEvaluator, HealthCheckError> {
    let mut read = |field: &'static str, text: &str| {
        CelExpression::parse_within(text, run).map_err(|error| HealthCheckError::Invalid {
            index,
            field,
            error,
        })
    };
    if check.current.is_empty() {
        return Err(HealthCheckError::NoCurrent { index });
    }
    let current = read("Current", check.current)?;
    let mut optional = |field: &'static str, text: Option<&str>| {
        text.filter(|text| !text.is_empty()).map(|text| read(field, text)).transpose()
    };
    Ok(HealthEvaluator {
        current,
        failed: optional("Failed", check.failed)?,
        in_progress: optional("InProgress", check.in_progress)?,
    })
}

impl HealthEvaluator {
    fn judge(
        &self,
        object: &Map<String, Json>,
        run: &mut WorkMeter,
    ) -> Result<HealthJudgement, Error> {
        let integer = |map: &str, field: &str| object.get(map)?.get(field)?.as_i64();
        if let Some(observed) = integer("status", "observedGeneration")
            && let Some(generation) = integer("metadata", "generation")
            && observed != generation
        {
            return Ok(HealthJudgement::InProgress);
        }
        let asked = [
            (self.in_progress.as_ref(), HealthJudgement::InProgress),
            (self.failed.as_ref(), HealthJudgement::Failed),
            (Some(&self.current), HealthJudgement::Current),
        ];
        for (expression, judgement) in asked {
            if let Some(expression) = expression
                && expression.evaluate_bool_over_within(object, run)?
            {
                return Ok(judgement);
            }
        }
        Ok(HealthJudgement::InProgress)
    }
}

#[cfg(test)]
mod tests;
