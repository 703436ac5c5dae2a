//! The board: a short row for each reconciled object. Lists and counts on pages are made from these rows.
//!
//! A row contains no spec, no full status and no value.
//! Below: rows that follow the objects by watches (`reconciled_object_rows/reconciled_objects_watcher.rs`), the rows of one
//! kind (`reconciled_object_rows/watched_kind_rows.rs`). Elsewhere: the content of a row (`windlass_answers::object_row`).

pub(crate) mod reconciled_objects_watcher;
#[cfg(test)]
pub(crate) mod samples;
mod watched_kind_rows;

use std::rc::Rc;

use jiff::Timestamp;
use objects::Object;
use reconcile::{ChangeWindowState, Time, condition_reason};
use windlass_answers::object_row::ObjectRow;
use windlass_cli_runtime::table::cut;

use super::page_elements::ObjectState;
use super::page_query::PageQuery;
use super::route::ObjectAddress;

/// The longest text in a row, in characters. The page of the object shows the whole text.
const MAX_TEXT_CHARACTERS: usize = 160;

/// The condition reasons of objects that wait. They have not failed, and they start by themselves or after a user approves.
const WAITING: [&str; 11] = [
    condition_reason::DEPENDENCY_NOT_READY.as_str(),
    condition_reason::WINDOW_CLOSED.as_str(),
    condition_reason::FROZEN.as_str(),
    condition_reason::FREEZES_UNKNOWN.as_str(),
    condition_reason::WAITING_FOR_WAVE.as_str(),
    "RolloutsUnknown",
    "LifecyclePending",
    "LifecyclesUnknown",
    "PlanPending",
    "PlanPoliciesUnknown",
    "DeletionBudgetExceeded",
];

/// The row of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReconciledObjectRow {
    pub(crate) place: ObjectAddress,
    pub(crate) kind: String,
    pub(crate) state: ObjectState,
    pub(crate) message: String,
    pub(crate) revision: String,
    pub(crate) since: Option<Time>,
    /// Who suspended the object, and until when. Empty if the object is not suspended.
    pub(crate) suspended: String,
    /// When the suspension ends, if it ends by itself.
    pub(crate) hold_ends: Option<Time>,
    /// When windlass may change the object, if a change window limits that.
    pub(crate) window: Option<RowChangeWindow>,
    /// When this row becomes outdated although the object does not change, because a suspension ends or a change window opens
    /// or closes.
    pub(crate) next_change: Option<Time>,
}

/// When windlass may change an object. The row does not keep the rest of the annotation, which may be up to 256 KiB long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowChangeWindow {
    /// Changes are allowed, until this time if the end is known.
    Open(Option<Time>),
    /// Changes are not allowed, until this time if the end is known.
    Closed(Option<Time>),
    /// Changes are not allowed, because the change windows cannot be read for this reason.
    Invalid(String),
}

impl RowChangeWindow {
    fn of(state: ChangeWindowState) -> Self {
        match state {
            ChangeWindowState::Open { until, .. } => Self::Open(until),
            ChangeWindowState::Closed { next, .. } => Self::Closed(next),
            ChangeWindowState::Invalid { text } => Self::Invalid(cut(&text, MAX_TEXT_CHARACTERS)),
        }
    }

    fn next_change(&self) -> Option<Time> {
        match self {
            Self::Open(at) | Self::Closed(at) => *at,
            Self::Invalid(_) => None,
        }
    }
}

/// The rows of all objects.
#[derive(Debug, Default)]
pub(crate) struct ReconciledObjectRows {
    /// Sorted by [`ReconciledObjectRow::key`].
    pub(crate) rows: Rc<Vec<Rc<ReconciledObjectRow>>>,
    /// Remarks about missing rows: kinds that this user may not list, unreadable objects, and objects beyond the maximum.
    pub(crate) left_out: Vec<String>,
    pub(crate) read_at: Timestamp,
}

/// How many objects of a kind are in each state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KindCounts {
    pub(crate) kind: String,
    /// In the order of [`ObjectState::ALL`].
    pub(crate) counts: [usize; 6],
}

impl ReconciledObjectRow {
    /// Makes the row of an object.
    pub(crate) fn of(object: &Object, now: Time) -> Self {
        let row = ObjectRow::of(object, now);
        let hold = cause::suspension(object, now).flatten();
        let hold_ends = hold.and_then(|hold| hold.expires_at());
        let window =
            ChangeWindowState::of(now, |key| object.annotation(key)).map(RowChangeWindow::of);
        let of_window = window.as_ref().and_then(RowChangeWindow::next_change);
        let next_change = [hold_ends, of_window].into_iter().flatten().filter(|at| *at > now).min();
        Self {
            place: ObjectAddress::of(&object.id()),
            kind: object.kind().to_owned(),
            state: state_of(&row),
            message: cut(&row.message, MAX_TEXT_CHARACTERS),
            revision: cut(&row.revision, MAX_TEXT_CHARACTERS),
            since: row.since,
            suspended: cut(&row.suspended, MAX_TEXT_CHARACTERS),
            hold_ends,
            window,
            next_change,
        }
    }

    /// The sort key of rows. Objects that need a person come first.
    fn key(&self) -> (ObjectState, &str, &str, &str) {
        (self.state, &self.kind, &self.place.namespace, &self.place.name)
    }
}

/// The state of an object, derived from its conditions.
pub(crate) fn state_of(row: &ObjectRow) -> ObjectState {
    match row.ready.as_str() {
        _ if row.is_suspended() => ObjectState::Suspended,
        "True" => ObjectState::Ready,
        "False" | "Unknown" if WAITING.contains(&row.reason.as_str()) => ObjectState::Waiting,
        "False" => ObjectState::Failing,
        "Unknown" => ObjectState::Progressing,
        _ => ObjectState::Unknown,
    }
}

impl ReconciledObjectRows {
    /// Makes a board of rows, which may come in any order.
    pub(crate) fn of(
        mut rows: Vec<Rc<ReconciledObjectRow>>,
        left_out: Vec<String>,
        read_at: Timestamp,
    ) -> Self {
        rows.sort_by(|one, other| one.key().cmp(&other.key()));
        Self { rows: Rc::new(rows), left_out, read_at }
    }

    /// The rows in sorted order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReconciledObjectRow> {
        self.rows.iter().map(Rc::as_ref)
    }

    /// How many objects are in each state, in the order of [`ObjectState::ALL`].
    pub(crate) fn counts(&self) -> [usize; 6] {
        counted(self.iter())
    }

    /// How many objects of each kind are in each state, sorted by the name of the kind.
    pub(crate) fn by_kind(&self) -> Vec<KindCounts> {
        let all = self.kinds().into_iter().map(|kind| KindCounts {
            kind: kind.to_owned(),
            counts: counted(self.iter().filter(|row| row.kind == kind)),
        });
        all.collect()
    }

    /// The kinds that have at least one object.
    pub(crate) fn kinds(&self) -> Vec<&str> {
        distinct(self.iter().map(|row| row.kind.as_str()))
    }

    /// The namespaces that have at least one object.
    pub(crate) fn namespaces(&self) -> Vec<&str> {
        distinct(self.iter().map(|row| row.place.namespace.as_str()))
    }

    /// The rows that match the filters of a query, in the order that the query asks for.
    pub(crate) fn selected(&self, query: &PageQuery) -> Vec<&ReconciledObjectRow> {
        let filters = ObjectFilters::of(query);
        let mut rows: Vec<&ReconciledObjectRow> =
            self.iter().filter(|row| filters.admits(row)).collect();
        match query.get("sort") {
            "name" => rows.sort_by(|one, other| one.place.name.cmp(&other.place.name)),
            // A row with an unknown time comes last.
            "since" => rows.sort_by_key(|row| (row.since.is_none(), std::cmp::Reverse(row.since))),
            _ => {}
        }
        rows
    }
}

/// The filters of a query, which select objects.
pub(crate) struct ObjectFilters<'q> {
    kind: &'q str,
    namespace: &'q str,
    state: &'q str,
    words: String,
}

impl<'q> ObjectFilters<'q> {
    pub(crate) fn of(query: &'q PageQuery) -> Self {
        Self {
            kind: query.get("kind"),
            namespace: query.get("ns"),
            state: query.get("state"),
            words: query.get("q").to_lowercase(),
        }
    }

    pub(crate) fn admits(&self, row: &ReconciledObjectRow) -> bool {
        let is = |wanted: &str, have: &str| wanted.is_empty() || wanted == have;
        is(self.kind, &row.kind)
            && is(self.namespace, &row.place.namespace)
            && is(self.state, row.state.word())
            && (self.words.is_empty() || self.has_words(row))
    }

    /// Whether the name, the revision or the message contains the search text. Upper and lower case do not matter.
    fn has_words(&self, row: &ReconciledObjectRow) -> bool {
        let ReconciledObjectRow { place, kind, message, revision, .. } = row;
        let named = format!("{kind}/{}/{}", place.namespace, place.name);
        [named.as_str(), message, revision]
            .into_iter()
            .any(|text| text.to_lowercase().contains(&self.words))
    }
}

fn counted<'r>(rows: impl Iterator<Item = &'r ReconciledObjectRow>) -> [usize; 6] {
    let states: Vec<ObjectState> = rows.map(|row| row.state).collect();
    ObjectState::ALL.map(|state| states.iter().filter(|it| **it == state).count())
}

fn distinct<'t>(names: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut all: Vec<&str> = names.collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::samples::{board, object};
    use super::*;

    fn all() -> ReconciledObjectRows {
        board(&[
            object("ready", "True", "ReconciliationSucceeded", false),
            object("failing", "False", "BuildFailed", false),
            object("waiting", "False", "DependencyNotReady", false),
            object("closed", "Unknown", "WindowClosed", false),
            object("running", "Unknown", "Progressing", false),
            object("held", "False", "BuildFailed", true),
        ])
    }

    fn names(rows: &[&ReconciledObjectRow]) -> Vec<String> {
        rows.iter().map(|row| row.place.name.clone()).collect()
    }

    #[test]
    fn what_waits_has_not_failed_and_what_is_suspended_neither() {
        let board = all();
        assert_eq!(board.counts(), [1, 2, 1, 1, 0, 1]);
        let expected = ["failing", "closed", "waiting", "running", "held", "ready"];
        assert_eq!(names(&board.selected(&PageQuery::default())), expected);
        let counts = KindCounts { kind: "Kustomization".to_owned(), counts: board.counts() };
        assert_eq!(board.by_kind(), [counts]);
    }

    #[test]
    fn filters_select_by_kind_namespace_state_and_words() {
        let board = all();
        let selected = |query: &str| names(&board.selected(&PageQuery::parse(query)));
        assert_eq!(selected("state=waiting"), ["closed", "waiting"]);
        assert_eq!(selected("q=MESSAGE+of+fail"), ["failing"]);
        assert_eq!(selected("q=kustomization/apps/held"), ["held"]);
        assert_eq!(selected("q=.*"), Vec::<String>::new(), "words are no expressions");
        assert_eq!(selected("kind=HelmRelease"), Vec::<String>::new());
        assert_eq!(selected("ns=apps&kind=Kustomization&sort=name").first().unwrap(), "closed");
    }

    #[test]
    fn a_row_has_no_long_message_and_no_spec() {
        let mut long = object("long", "False", "BuildFailed", false);
        long.fields_mut()["status"]["conditions"][0]["message"] = json!("x".repeat(5000));
        long.fields_mut()["spec"]["secret"] = json!("hunter2");
        let row = ReconciledObjectRow::of(&long, "2026-11-24T12:00:00Z".parse().unwrap());
        assert_eq!(row.message.chars().count(), MAX_TEXT_CHARACTERS);
        assert!(!format!("{row:?}").contains("hunter2"));
    }

    #[test]
    fn a_row_is_short_whatever_a_tenant_writes() {
        let mut long = object("long", "False", "BuildFailed", true);
        long.set_annotation("windlass.dev/window", &"x".repeat(200_000));
        long.set_annotation("windlass.dev/suspended-by", &"y".repeat(50_000));
        long.fields_mut()["status"]["lastAppliedRevision"] = json!("z".repeat(50_000));
        let row = ReconciledObjectRow::of(&long, "2026-11-24T12:00:00Z".parse().unwrap());
        assert!(
            matches!(&row.window, Some(RowChangeWindow::Invalid(_))),
            "{:?}",
            row.window.is_some()
        );
        assert!(format!("{row:?}").len() < 2_000, "{}", format!("{row:?}").len());
    }
}
