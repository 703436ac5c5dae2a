//! The result of judging a changed definition: findings that are gathered from many objects.
//!
//! Here: findings and their messages, and the collector of findings while one object is judged within a budget.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use serde::Serialize;

use crate::field_path::FieldPath;

/// How much work judging all objects of a kind may take: some seconds of a processor.
const JUDGING: WorkAllowance = WorkAllowance { steps: 400_000_000, bytes: 8 << 30 };

/// How much work evaluating the rules of a definition may take, after they were read.
const EVALUATING: WorkAllowance = WorkAllowance { steps: 500_000_000, bytes: 4 << 30 };

/// How many findings are kept.
const MAX_FINDINGS: usize = 100;

/// How many objects a finding names.
const MAX_EXAMPLES: usize = 3;

/// How many findings a message shows.
const MAX_SHOWN_FINDINGS: usize = 12;

/// What a changed definition would break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CrdChangeProblem {
    /// Group, kind, plural or scope changes. The API server refuses such a change.
    Identity,
    /// A version is dropped in which objects may be stored.
    Stored,
    /// A version that clients still use is removed or not served any more.
    Unserved,
    /// The Service of the conversion webhook does not exist.
    Webhook,
    /// Objects are not valid under the new schema.
    Invalid,
    /// Fields of objects would be dropped.
    Lost,
    /// A default changes, and objects have the old default as their value.
    Default,
    /// A part of the change cannot be judged.
    Unjudged,
}

/// The namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GuardedObjectKey {
    /// The namespace. It is empty for a cluster-scoped object.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Display for GuardedObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// One problem of a changed definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CrdChangeFinding {
    /// The kind of problem.
    pub problem: CrdChangeProblem,
    /// The version of the kind. It is empty if the finding is about all versions.
    pub version: String,
    /// The field, as schemas name it. It is empty if the finding is about whole objects.
    pub path: String,
    /// What is wrong. The text has no values of objects.
    pub why: String,
    /// How many objects have the problem. For [`CrdChangeProblem::Unserved`], it is the number of field managers.
    pub objects: u64,
    /// Some of these objects. A field manager has a name only.
    pub examples: Vec<GuardedObjectKey>,
}

impl CrdChangeFinding {
    /// The finding as one line. `is_named` says whether the line may name objects.
    pub fn text(&self, is_named: bool) -> String {
        let mut text = String::new();
        for part in [&self.version, &self.path].into_iter().filter(|it| !it.is_empty()) {
            text.push_str(part);
            text.push(' ');
        }
        let is_unjudged = self.problem == CrdChangeProblem::Unjudged;
        text.push_str(if is_unjudged { "cannot be judged: " } else { "" });
        text.push_str(&self.why);
        if self.objects > 0 {
            let noun = match self.problem {
                CrdChangeProblem::Unserved => "field manager",
                _ => "object",
            };
            let plural = if self.objects == 1 { "" } else { "s" };
            text.push_str(&format!(" ({} {noun}{plural}", self.objects));
            if is_named && !self.examples.is_empty() {
                let names: Vec<String> =
                    self.examples.iter().map(GuardedObjectKey::to_string).collect();
                let such_as = if names.len() as u64 == self.objects { "" } else { "such as " };
                text.push_str(&format!(": {such_as}{}", names.join(", ")));
            }
            text.push(')');
        }
        text
    }
}

/// Whether a changed definition fits the objects that exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CrdChangeVerdict {
    /// The problems. The list is empty if the definition fits.
    pub findings: Vec<CrdChangeFinding>,
    /// How many further findings were not kept.
    pub omitted: u64,
    /// How many objects were judged.
    pub judged: u64,
    /// How many objects exist.
    pub total: u64,
}

impl CrdChangeVerdict {
    /// Whether the definition fits all objects.
    pub fn is_compatible(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings as lines. `is_named` says whether they may name objects.
    pub fn lines(&self, is_named: bool) -> Vec<String> {
        let shown = self.findings.iter().take(MAX_SHOWN_FINDINGS);
        let mut lines: Vec<String> = shown.map(|it| it.text(is_named)).collect();
        let more = (self.findings.len().saturating_sub(MAX_SHOWN_FINDINGS) as u64)
            .saturating_add(self.omitted);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }
}

/// Collects the findings about one object. It lives as long as the judge, because all objects share one budget.
#[derive(Debug)]
pub(crate) struct ObjectFindingSink {
    meter: WorkMeter,
    reading: WorkMeter,
    evaluating: WorkMeter,
    is_aside: bool,
    is_over: bool,
    /// Whether parts of the schema that did not change are judged, too.
    pub(crate) is_whole: bool,
    found: BTreeSet<(CrdChangeProblem, String, String)>,
}

impl ObjectFindingSink {
    pub(crate) fn new(stop: &StopSignal) -> Self {
        Self {
            meter: WorkMeter::new(JUDGING, stop.clone()),
            reading: WorkMeter::new(gocel::READING, stop.clone()),
            evaluating: WorkMeter::new(EVALUATING, stop.clone()),
            is_aside: false,
            is_over: false,
            is_whole: false,
            found: BTreeSet::new(),
        }
    }

    /// Counts a step. It returns false if the budget is exhausted, which is also a finding.
    pub(crate) fn step(&mut self) -> bool {
        // A step looks up a few fields and compares them.
        if self.is_over || self.meter.steps(20).is_err() {
            self.is_over = true;
            let text = "judging it takes too long";
            self.found.insert((CrdChangeProblem::Unjudged, String::new(), text.to_owned()));
        }
        !self.is_over
    }

    pub(crate) fn find(&mut self, problem: CrdChangeProblem, place: &FieldPath, text: String) {
        if self.found.len() < MAX_FINDINGS {
            self.found.insert((problem, place.text(), text));
        }
    }

    pub(crate) fn invalid(&mut self, place: &FieldPath, text: String) {
        self.find(CrdChangeProblem::Invalid, place, text);
    }

    /// Takes the findings out of the collector.
    pub(crate) fn take(&mut self) -> BTreeSet<(CrdChangeProblem, String, String)> {
        std::mem::take(&mut self.found)
    }

    pub(crate) fn has(&self, problem: CrdChangeProblem) -> bool {
        self.found.iter().any(|it| it.0 == problem)
    }

    /// A collector for one alternative of several, such as of `anyOf`. Its findings only count together.
    pub(crate) fn aside(&mut self) -> Self {
        // A collector costs more than a field.
        self.is_over |= self.meter.steps(200).is_err();
        Self {
            meter: self.meter.within(self.meter.left()),
            reading: self.reading.within(self.reading.left()),
            evaluating: self.evaluating.within(self.evaluating.left()),
            is_aside: true,
            is_over: self.is_over,
            is_whole: true,
            found: BTreeSet::new(),
        }
    }

    pub(crate) fn is_aside(&self) -> bool {
        self.is_aside
    }

    /// Adds the work of an alternative to the budget.
    pub(crate) fn back(&mut self, inner: Self) {
        self.meter.join(&inner.meter);
        self.is_over |= inner.is_over;
    }

    pub(crate) fn reading(&self) -> WorkMeter {
        self.reading.within(gocel::READING)
    }

    pub(crate) fn has_read(&mut self, meter: &WorkMeter) {
        self.reading.join(meter);
    }

    pub(crate) fn evaluate<T>(&mut self, ask: impl FnOnce(&mut WorkMeter) -> T) -> T {
        ask(&mut self.evaluating)
    }
}

/// The subject of a finding: problem, version, path, and reason.
type FindingSubject = (CrdChangeProblem, String, String, String);

/// The findings about many objects.
#[derive(Debug, Default)]
pub(crate) struct CrdChangeFindings {
    all: BTreeMap<FindingSubject, (u64, Vec<GuardedObjectKey>)>,
    omitted: u64,
}

impl CrdChangeFindings {
    pub(crate) fn add(
        &mut self,
        problem: CrdChangeProblem,
        version: &str,
        path: String,
        why: String,
        object: Option<&GuardedObjectKey>,
    ) {
        let key = (problem, version.to_owned(), path, why);
        if !self.all.contains_key(&key) && self.all.len() >= MAX_FINDINGS {
            self.omitted += 1;
            return;
        }
        let (objects, examples) = self.all.entry(key).or_default();
        let Some(object) = object else { return };
        *objects += 1;
        if examples.len() < MAX_EXAMPLES {
            examples.push(object.clone());
        }
    }

    pub(crate) fn verdict(self, judged: u64, total: u64) -> CrdChangeVerdict {
        let findings = self.all.into_iter();
        let findings = findings.map(|((problem, version, path, why), (objects, examples))| {
            let path = if path == "." { String::new() } else { path };
            CrdChangeFinding { problem, version, path, why, objects, examples }
        });
        CrdChangeVerdict { findings: findings.collect(), omitted: self.omitted, judged, total }
    }
}
