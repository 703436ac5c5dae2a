//! The health of objects by expressions of their own: `healthCheckExprs`.
//!
//! Here: which expressions are for an object, and their results. Elsewhere: kinds without expressions, and an object
//! that is being deleted or not there (`apply`).
//!
//! Source of the semantics: fluxcd/pkg/runtime 0.110 `cel` (RFC 0009).

use std::collections::BTreeMap;

use golang::work_meter::WorkMeter;
use serde_json::{Map, Value as Json};

use crate::{CelExpression, Error};

/// The health check of one kind in a spec.
#[derive(Debug, Clone, Copy, Default)]
pub struct KindHealthCheck<'a> {
    /// As `acme.io/v1`. The version does not count.
    pub api_version: &'a str,
    /// Empty for all kinds of the group that have no check of their own.
    pub kind: &'a str,
    /// When an object is what its spec asks for; required.
    pub current: &'a str,
    /// When it is on its way.
    pub in_progress: Option<&'a str>,
    /// When the object has failed.
    pub failed: Option<&'a str>,
}

/// Why health checks are not valid. The messages are Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthCheckError {
    /// Two are for the same kind.
    #[error("duplicate custom health check for GroupKind {group_kind} at healthchecks[{index}]")]
    Duplicate {
        /// Kind and group, with a dot.
        group_kind: String,
        /// Which one, from 0.
        index: usize,
    },
    /// There is no expression for `current`.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: expression Current not specified"
    )]
    NoCurrent {
        /// Which one, from 0.
        index: usize,
    },
    /// One is not an expression.
    #[error(
        "failed to create custom status evaluator for healthchecks[{index}]: failed to parse the expression {field}: {error}"
    )]
    Invalid {
        /// Which one, from 0.
        index: usize,
        /// `Current`, `InProgress` or `Failed`.
        field: &'static str,
        /// What is wrong with it.
        error: Error,
    },
}

/// The result of the expressions for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthJudgement {
    /// It is what its spec asks for.
    Current,
    /// It is on its way.
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

/// The expressions of a spec, by group and kind.
#[derive(Debug, Default)]
pub struct SpecHealthChecks(BTreeMap<(String, String), HealthEvaluator>);

impl SpecHealthChecks {
    /// Reads the expressions of all checks, at the cost of a run.
    ///
    /// # Errors
    /// Names the invalid one and the reason.
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

    /// Judges an object, whose fields are the variables. None if there are no expressions for its kind.
    ///
    /// An object whose `status.observedGeneration` is not its generation is in progress; its expressions are not
    /// evaluated. Otherwise they are evaluated in the order in progress, failed, current; if none holds it is in
    /// progress. Their cost is counted against the limit of the run.
    ///
    /// # Errors
    /// If one has no boolean value.
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
