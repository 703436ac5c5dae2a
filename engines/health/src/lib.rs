//! The health of kinds that people run: how an object stands according to what its kind writes into its status.
//!
//! Here: finding the rules of a kind, and asking them in turn. Below: the rules, one file a group of projects (`rules/*.yaml`),
//! how they are read (`rule_file`), what a test of a rule is (`status_test`), paths into objects (`field_path`), the words of
//! a judgement (`reason_text`). Elsewhere: kstatus, and when this library is asked at all (engine `apply`, `health`).
//!
//! Rules are data, so that rules of a cluster can be read in the same form.
//! Source of the semantics: the API types of the kinds. Deliberate differences from the health library of Argo CD,
//! on whose test data the rules are judged (`cargo xtask health`), are in `rules/argo-cd-differences.yaml`.

mod field_path;
mod reason_text;
mod rule_file;
mod status_test;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use objects::Object;

use rule_file::{RuleFile, RuleFileError};
use status_test::StatusTest;

/// How an object stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthState {
    /// It is what its spec asks for, and works.
    Healthy,
    /// It is on its way.
    Progressing,
    /// It failed, or does not work.
    Degraded,
    /// It was stopped on purpose, or waits for a user.
    Suspended,
    /// What it stands for does not exist.
    Missing,
    /// Its status does not say.
    Unknown,
}

impl HealthState {
    /// All of them.
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

/// A judgement about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The judgement.
    pub state: HealthState,
    /// Whether a Degraded object stays so without a change: its controller does not try again.
    pub is_final: bool,
    /// Why, for people; at most 1 024 characters, in which no word is cut. It may quote the status.
    pub reason: String,
}

/// What an object with a status that all tests of a rule accept is.
#[derive(Debug, Clone)]
struct HealthRule {
    state: HealthState,
    /// See [`Health`].
    is_final: bool,
    /// None in the last rule of a kind, which holds for what is left.
    tests: Vec<StatusTest>,
}

/// The rules of a kind, asked in turn; kinds of one project share them.
type HealthRules = Arc<[HealthRule]>;

/// The rules of an API group.
#[derive(Debug, Default)]
struct GroupRules {
    kinds: BTreeMap<String, HealthRules>,
    /// For kinds that are not named.
    other_kinds: Option<HealthRules>,
}

impl GroupRules {
    fn of(&self, kind: &str) -> Option<&HealthRules> {
        self.kinds.get(kind).or(self.other_kinds.as_ref())
    }
}

/// Rules for the health of kinds.
#[derive(Debug, Default)]
pub struct HealthLibrary {
    groups: BTreeMap<String, GroupRules>,
    /// For groups that end in a dot and this; the longest one counts.
    group_suffixes: BTreeMap<String, GroupRules>,
}

/// The files of the library that is built in.
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

/// A test reads every file, so that none is missing here.
static BUILTIN_LIBRARY: LazyLock<HealthLibrary> =
    LazyLock::new(|| HealthLibrary::read(&RULE_FILES).unwrap_or_default());

impl HealthLibrary {
    /// The library that is built in; it is read at the first call.
    pub fn builtin() -> &'static Self {
        &BUILTIN_LIBRARY
    }

    /// Reads rules.
    ///
    /// # Errors
    /// The first thing in a file that is no rule, and kinds that have rules already.
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

    /// Adds a kind as files name it: `group/Kind`, `*.suffix.of.groups/Kind`, and `*` for all other kinds.
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

    /// The names of all kinds with rules, in the order of groups; `*` stands for all kinds of a group that are not named, and
    /// for the beginning of groups.
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

    /// How an object stands; `None` if there is no rule for its kind, which costs no allocation.
    ///
    /// The work is bounded by the tests of the kind and the size of the object. An object with more values at a path than are
    /// compared is Unknown.
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
