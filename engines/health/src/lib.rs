//! The health of objects of many third-party kinds, judged by what their controllers write into the status.
//!
//! Here: finding the rules of a kind and trying them in order. Below: the rules, one file for a group of projects
//! (`rules/*.yaml`), reading these files (`rule_file`), the tests of a rule (`status_predicate`), paths into objects
//! (`field_path`), and the reason of a judgement (`reason_text`). Elsewhere: kstatus, and when this library is used
//! (engine `apply`, `health`).
//!
//! Rules are data, so that rules of a cluster could be read in the same form. Source of the semantics: the API types of
//! the kinds. The rules are tested with the test data of Argo CD's health library (`cargo xtask health`). Deliberate
//! differences from it are in `rules/argo-cd-differences.yaml`.

mod field_path;
mod reason_text;
mod rule_file;
mod status_predicate;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use objects::Object;

use rule_file::{RuleFile, RuleFileError};
use status_predicate::StatusPredicate;

/// The health of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthState {
    /// The object has the state that its spec asks for, and works.
    Healthy,
    /// The object is on its way to that state.
    Progressing,
    /// The object failed, or does not work.
    Degraded,
    /// The object was stopped on purpose, or waits for a user.
    Suspended,
    /// The resource that the object stands for does not exist.
    Missing,
    /// The status does not say how the object is.
    Unknown,
}

impl HealthState {
    /// All states.
    const ALL_STATES: [Self; 6] = [
        Self::Healthy,
        Self::Progressing,
        Self::Degraded,
        Self::Suspended,
        Self::Missing,
        Self::Unknown,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::Suspended => "Suspended",
            Self::Missing => "Missing",
            Self::Unknown => "Unknown",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL_STATES.into_iter().find(|it| it.name() == name)
    }
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The health of an object, with a reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The state of the object.
    pub state: HealthState,
    /// Whether a Degraded object stays Degraded without a change, because its controller does not retry.
    pub is_final: bool,
    /// The reason for users, of at most 1 024 characters. Words are not cut. It may quote the status.
    pub reason: String,
}

/// One rule: the state of an object if all tests hold.
#[derive(Debug, Clone)]
struct HealthRule {
    state: HealthState,
    /// As in [`Health`].
    is_final: bool,
    /// The tests. The last rule of a kind has none, so that it holds for all remaining objects.
    tests: Vec<StatusPredicate>,
}

/// The rules of a kind, in the order in which they are tried. Kinds of one project may share them.
type HealthRules = Arc<[HealthRule]>;

/// The rules of an API group.
#[derive(Debug, Default)]
struct ApiGroupHealthRules {
    kinds: BTreeMap<String, HealthRules>,
    /// The rules for kinds of the group that have no rules of their own.
    other_kinds: Option<HealthRules>,
}

impl ApiGroupHealthRules {
    fn of(&self, kind: &str) -> Option<&HealthRules> {
        self.kinds.get(kind).or(self.other_kinds.as_ref())
    }
}

/// Rules for the health of kinds.
#[derive(Debug, Default)]
pub struct HealthLibrary {
    groups: BTreeMap<String, ApiGroupHealthRules>,
    /// The rules of groups that end in a dot and this suffix. The longest suffix counts.
    group_suffixes: BTreeMap<String, ApiGroupHealthRules>,
}

/// The rule files of the built-in library.
const RULE_FILES: [RuleFile; 11] = [
    RuleFile { name: "argo.yaml", text: include_str!("rules/argo.yaml") },
    RuleFile { name: "cloud.yaml", text: include_str!("rules/cloud.yaml") },
    RuleFile { name: "clusters.yaml", text: include_str!("rules/clusters.yaml") },
    RuleFile { name: "databases.yaml", text: include_str!("rules/databases.yaml") },
    RuleFile { name: "delivery.yaml", text: include_str!("rules/delivery.yaml") },
    RuleFile { name: "networking.yaml", text: include_str!("rules/networking.yaml") },
    RuleFile { name: "observability.yaml", text: include_str!("rules/observability.yaml") },
    RuleFile { name: "secrets.yaml", text: include_str!("rules/secrets.yaml") },
    RuleFile { name: "storage.yaml", text: include_str!("rules/storage.yaml") },
    RuleFile { name: "threescale.yaml", text: include_str!("rules/threescale.yaml") },
    RuleFile { name: "workloads.yaml", text: include_str!("rules/workloads.yaml") },
];

/// The built-in library. A test reads every file, so that no rule can be missing here.
static BUILTIN_LIBRARY: LazyLock<HealthLibrary> =
    LazyLock::new(|| HealthLibrary::read(&RULE_FILES).unwrap_or_default());

impl HealthLibrary {
    /// The built-in library. It is read at the first call.
    pub fn builtin() -> &'static Self {
        &BUILTIN_LIBRARY
    }

    /// Reads rule files.
    ///
    /// # Errors
    /// The first invalid entry of a file, or a kind that has rules already.
    fn read(files: &[RuleFile]) -> Result<Self, RuleFileError> {
        let mut library = Self::default();
        for file in files {
            for entry in file.entries()? {
                for kind in &entry.kinds {
                    if !library.insert(kind, &entry.rules) {
                        return Err(file.error(format!("`{kind}` is no kind, or is there twice")));
                    }
                }
            }
        }
        Ok(library)
    }

    /// Adds the rules of a kind. Files name kinds as `group/Kind` or `*.suffix.of.groups/Kind`. The kind `*` stands for
    /// all other kinds.
    fn insert(&mut self, name: &str, rules: &HealthRules) -> bool {
        let Some((group, kind)) = name.split_once('/') else { return false };
        let groups = match group.strip_prefix("*.") {
            Some(suffix) => self.group_suffixes.entry(suffix.to_owned()),
            None => self.groups.entry(group.to_owned()),
        };
        let group = groups.or_default();
        match kind {
            "" => false,
            "*" => group.other_kinds.replace(rules.clone()).is_none(),
            kind => group.kinds.insert(kind.to_owned(), rules.clone()).is_none(),
        }
    }

    /// The names of all kinds with rules, in the order of groups. As a kind, `*` stands for all kinds of a group
    /// without rules of their own. At the beginning of a group, it stands for any prefix.
    pub fn kinds(&self) -> Vec<String> {
        let whole = self.groups.iter().map(|(group, rules)| (group.clone(), rules));
        let ends = self.group_suffixes.iter().map(|(end, rules)| (format!("*.{end}"), rules));
        let mut names = Vec::new();
        for (group, rules) in whole.chain(ends) {
            names.extend(rules.kinds.keys().map(|kind| format!("{group}/{kind}")));
            names.extend(rules.other_kinds.iter().map(|_| format!("{group}/*")));
        }
        names
    }

    /// The health of an object. `None` if no rule is for its kind; that costs no allocation.
    ///
    /// The number of tests and the size of the object bound the work. An object with too many values at a path is
    /// Unknown.
    pub fn assess(&self, object: &Object) -> Option<Health> {
        for rule in self.rules(object)?.iter() {
            match rule.holds(object) {
                Ok(true) => {
                    return Some(Health {
                        state: rule.state,
                        is_final: rule.is_final,
                        reason: reason_text::reason(rule, object),
                    });
                }
                Ok(false) => {}
                Err(error) => {
                    return Some(Health {
                        state: HealthState::Unknown,
                        is_final: false,
                        reason: error.to_string(),
                    });
                }
            }
        }
        None
    }

    fn rules(&self, object: &Object) -> Option<&HealthRules> {
        let (group, _) = object.api_version().split_once('/').unwrap_or_default();
        let kind = object.kind();
        if let Some(rules) = self.groups.get(group).and_then(|it| it.of(kind)) {
            return Some(rules);
        }
        let mut rest = group;
        while let Some((_, suffix)) = rest.split_once('.') {
            if let Some(rules) = self.group_suffixes.get(suffix).and_then(|it| it.of(kind)) {
                return Some(rules);
            }
            rest = suffix;
        }
        None
    }
}

impl HealthRule {
    fn holds(&self, object: &Object) -> Result<bool, field_path::TooManyValues> {
        for test in &self.tests {
            if !test.holds(object)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
