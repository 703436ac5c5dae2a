//! Reads a rule file: a list of entries, each with kinds and the rules that these kinds share.
//!
//! ```yaml
//! - kinds: [example.com/Widget]
//!   rules:
//!   - Progressing: stale
//!   - Healthy: Ready=True and .status.phase=Running
//!   - Progressing
//! ```
//!
//! The first rule whose tests hold counts. The last rule has no tests. `Failed` means `Degraded` for good: the
//! controller does not retry, and only a change of the object helps. A rule may say `Failed` of an object that runs
//! once. It may also say so if a generation shows that the failure is not one of an earlier spec. Elsewhere: the tests
//! (`status_predicate`).

use serde_json::Value;

use crate::status_predicate::StatusPredicate;
use crate::{HealthRule, HealthRules, HealthState};

/// The word in rules for a Degraded state that is final.
const FINAL_FAILURE: &str = "Failed";

/// A file with health rules: its name and its text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RuleFile {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// A problem of a rule file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub(crate) struct RuleFileError {
    file: &'static str,
    problem: String,
}

/// An entry: kinds, and the rules that they share.
#[derive(Debug)]
pub(crate) struct RuleEntry {
    pub(crate) kinds: Vec<String>,
    pub(crate) rules: HealthRules,
}

impl RuleFile {
    /// The entries of the file.
    ///
    /// # Errors
    /// The first invalid entry.
    pub(crate) fn entries(&self) -> Result<Vec<RuleEntry>, RuleFileError> {
        let read = goyaml::to_json(self.text.as_bytes());
        let value = read.map_err(|error| self.error(error.problem().to_owned()))?;
        let entries = value.as_array().ok_or_else(|| self.error("not a list".to_owned()))?;
        entries.iter().map(|entry| self.entry(entry)).collect()
    }

    pub(crate) fn error(&self, problem: String) -> RuleFileError {
        RuleFileError { file: self.name, problem }
    }

    fn entry(&self, entry: &Value) -> Result<RuleEntry, RuleFileError> {
        let list = |field: &str| {
            let list = entry.get(field).and_then(Value::as_array).filter(|it| !it.is_empty());
            list.ok_or_else(|| self.error(format!("an entry without `{field}`: {entry}")))
        };
        let kinds: Option<Vec<String>> =
            list("kinds")?.iter().map(|it| it.as_str().map(str::to_owned)).collect();
        let kinds = kinds.ok_or_else(|| self.error(format!("kinds that are no text: {entry}")))?;
        let mut rules = Vec::new();
        for rule in list("rules")? {
            rules.push(parse_rule(rule).ok_or_else(|| self.error(format!("no rule: {rule}")))?);
        }
        let ends = rules.iter().position(|rule| rule.tests.is_empty());
        if ends != rules.len().checked_sub(1) {
            return Err(self.error(format!("the last rule, and no other, has no test: {entry}")));
        }
        Ok(RuleEntry { kinds, rules: rules.into() })
    }
}

/// Reads a health rule: a state, or a mapping of one state to its tests. `None` if the rule is not valid.
fn parse_rule(rule: &Value) -> Option<HealthRule> {
    if let Some(name) = rule.as_str() {
        return named_rule(name, Vec::new());
    }
    let mut fields = rule.as_object()?.iter();
    let (name, tests) = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    let tests: Option<Vec<_>> =
        tests.as_str()?.split(" and ").map(StatusPredicate::parse).collect();
    named_rule(name, tests?)
}

fn named_rule(name: &str, tests: Vec<StatusPredicate>) -> Option<HealthRule> {
    let is_final = name == FINAL_FAILURE;
    let state = if is_final { HealthState::Degraded } else { HealthState::parse(name)? };
    Some(HealthRule { state, is_final, tests })
}
