//! The rows of one kind, which follow the events of a watch.
//!
//! Rows stay while the watch is interrupted or lists the kind again, and the page says that they may be old.
//! A row is removed only after a deletion event, or after a complete list without the object.
//! Elsewhere: the watches themselves (`reconciled_objects_watcher.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use jiff::{SignedDuration, Timestamp};
use objects::Object;
use windlass_answers::kind_argument::ResourceArgument;
use windlass_cluster::ClusterError;
use windlass_cluster::object_decode::FullObject;
use windlass_cluster::watch::WatcherEvent;

use super::ReconciledObjectRow;

/// How long a watch may be interrupted before a page mentions it. Each watch is renewed every few minutes, and that is normal.
const UNMENTIONED_INTERRUPTION: SignedDuration = SignedDuration::from_secs(5);

/// The namespace and name of an object of this kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowName {
    namespace: String,
    name: String,
}

impl RowName {
    fn of(row: &ReconciledObjectRow) -> Self {
        Self { namespace: row.place.namespace.clone(), name: row.place.name.clone() }
    }
}

/// The state of the watch of a kind.
#[derive(Debug, Clone)]
enum KindWatchPhase {
    /// The first list has not ended. Contains the last error, if there was one.
    Unlisted(Option<ClusterError>),
    /// windlass sees every change.
    Live,
    /// windlass may have missed changes since this time.
    Interrupted { since: Timestamp, why: Option<String> },
    /// This user may not watch or list the kind in all namespaces, or the kind does not support watches.
    Refused,
}

/// A kind, and the rows of its objects.
#[derive(Debug)]
pub(super) struct WatchedKindRows {
    pub(super) target: ResourceArgument,
    rows: BTreeMap<RowName, Rc<ReconciledObjectRow>>,
    /// The names that the list in progress has returned so far.
    listing: Option<BTreeSet<RowName>>,
    phase: KindWatchPhase,
    /// Whether an object has no row because it cannot be read.
    has_unreadable: bool,
    /// Whether an object has no row because there are too many objects.
    is_cut: bool,
}

impl WatchedKindRows {
    pub(super) fn new(target: ResourceArgument) -> Self {
        Self {
            target,
            rows: BTreeMap::new(),
            listing: None,
            phase: KindWatchPhase::Unlisted(None),
            has_unreadable: false,
            is_cut: false,
        }
    }

    /// The rows of the kind. There are none while the watch is refused, because pages then list the kind.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Rc<ReconciledObjectRow>> {
        self.rows.values().filter(move |_| !self.is_refused())
    }

    /// How many rows the kind has.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Whether the rows are complete, or were complete when the watch was interrupted.
    pub(super) fn is_listed(&self) -> bool {
        matches!(self.phase, KindWatchPhase::Live | KindWatchPhase::Interrupted { .. })
    }

    /// Whether windlass sees every change of the kind.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, KindWatchPhase::Live)
    }

    /// Whether pages have to list the kind because the user may not watch it.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.phase, KindWatchPhase::Refused)
    }

    /// The error because of which the kind is not listed yet, if there is one.
    pub(super) fn failure(&self) -> Option<&ClusterError> {
        match &self.phase {
            KindWatchPhase::Unlisted(error) => error.as_ref(),
            _ => None,
        }
    }

    /// Whether a row is outdated by now although its object has not changed.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.rows.values().any(|row| row.next_change.is_some_and(|at| at <= now))
    }

    /// The remarks that a page shows beside the rows.
    pub(super) fn remarks(&self, now: Timestamp) -> Vec<String> {
        let plural = &self.target.resource.plural;
        let mut said = Vec::new();
        match &self.phase {
            KindWatchPhase::Unlisted(Some(error)) => {
                said.push(format!("{plural} are not known: {error}"));
            }
            KindWatchPhase::Interrupted { since, why }
                if now.duration_since(*since) > UNMENTIONED_INTERRUPTION =>
            {
                let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                let since = since.strftime("%H:%M:%S UTC");
                said.push(format!("{plural} are not live since {since}{why}"));
            }
            _ => {}
        }
        if self.has_unreadable {
            said.push(format!("{plural}: an object that cannot be read is left out"));
        }
        if self.is_cut {
            said.push(format!("{plural}: too many objects, some are left out; name a namespace"));
        }
        said
    }

    /// Notes that this user may not watch the kind, so pages have to list its objects.
    pub(super) fn refuse(&mut self) {
        self.rows.clear();
        self.listing = None;
        self.phase = KindWatchPhase::Refused;
    }

    /// Applies an event of the watch. `room` is how many more rows fit. Returns whether pages have to show something else now.
    pub(super) fn see(
        &mut self,
        seen: Result<WatcherEvent<FullObject>, ClusterError>,
        room: usize,
        now: Timestamp,
    ) -> bool {
        match seen {
            Ok(WatcherEvent::Listing) => {
                self.listing = Some(BTreeSet::new());
                self.has_unreadable = false;
                self.is_cut = false;
                false
            }
            Ok(WatcherEvent::Listed(whole) | WatcherEvent::Applied(whole)) => {
                self.set(whole, room, now)
            }
            Ok(WatcherEvent::ListEnded) => {
                let listed = self.listing.take().unwrap_or_default();
                self.rows.retain(|name, _| listed.contains(name));
                self.phase = KindWatchPhase::Interrupted { since: now, why: None };
                true
            }
            Ok(WatcherEvent::Live) => {
                let was_live = matches!(self.phase, KindWatchPhase::Live);
                self.phase = KindWatchPhase::Live;
                !was_live
            }
            Ok(WatcherEvent::Deleted(whole)) => self
                .row(whole, now)
                .is_some_and(|row| self.rows.remove(&RowName::of(&row)).is_some()),
            Ok(WatcherEvent::Interrupted) => self.interrupt(None, now),
            Err(error) => self.fail(error, now),
        }
    }

    fn fail(&mut self, error: ClusterError, now: Timestamp) -> bool {
        match error.code() {
            Some(403) => {
                self.refuse();
                true
            }
            // The watch is tried again. Meanwhile, pages list the kind.
            _ if self.is_refused() => false,
            _ if self.is_listed() => self.interrupt(Some(error.to_string()), now),
            _ => {
                self.phase = KindWatchPhase::Unlisted(Some(error));
                true
            }
        }
    }

    /// Notes that changes may be missed from now on, unless the watch is already interrupted.
    fn interrupt(&mut self, why: Option<String>, now: Timestamp) -> bool {
        match &mut self.phase {
            KindWatchPhase::Live => {
                self.phase = KindWatchPhase::Interrupted { since: now, why };
                true
            }
            KindWatchPhase::Interrupted { why: before, .. } if why.is_some() => {
                *before = why;
                true
            }
            _ => false,
        }
    }

    fn set(&mut self, whole: FullObject, room: usize, now: Timestamp) -> bool {
        let Some(row) = self.row(whole, now) else {
            self.has_unreadable = true;
            return true;
        };
        let name = RowName::of(&row);
        if let Some(listing) = &mut self.listing {
            listing.insert(name.clone());
        }
        match self.rows.get(&name) {
            Some(before) if **before == row => return false,
            None if room == 0 => {
                self.is_cut = true;
                return true;
            }
            _ => {}
        }
        self.rows.insert(name, Rc::new(row));
        true
    }

    /// Makes the row of an object. Returns `None` if the object cannot be read.
    fn row(&self, whole: FullObject, now: Timestamp) -> Option<ReconciledObjectRow> {
        let mut value = whole.value?;
        let gvk = &self.target.resource.gvk;
        let fields = value.as_object_mut()?;
        // The API server omits the kind of the objects in a list.
        fields.insert("apiVersion".to_owned(), gvk.api_version().into());
        fields.insert("kind".to_owned(), gvk.kind.clone().into());
        Some(ReconciledObjectRow::of(&Object::new(value).ok()?, now))
    }
}

#[cfg(test)]
mod tests {
    use windlass_cluster::discovery::ApiResourceLocation;

    use super::*;
    use crate::reconciled_object_rows::samples::object;

    const NOW: &str = "2026-11-24T12:00:00Z";

    fn kind() -> WatchedKindRows {
        let resource = ApiResourceLocation {
            gvk: objects::Gvk::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            plural: "kustomizations".to_owned(),
            namespaced: true,
            watchable: true,
        };
        WatchedKindRows::new(ResourceArgument { resource, namespace: None, name: None })
    }

    fn whole(name: &str, ready: &str) -> FullObject {
        FullObject::of(object(name, ready, "X", false).into_value())
    }

    fn see(
        kind: &mut WatchedKindRows,
        event: Result<WatcherEvent<FullObject>, ClusterError>,
    ) -> bool {
        kind.see(event, 10, NOW.parse().unwrap())
    }

    fn names(kind: &WatchedKindRows) -> Vec<&str> {
        kind.rows().map(|row| row.place.name.as_str()).collect()
    }

    fn listed(all: &[&str]) -> WatchedKindRows {
        let mut kind = kind();
        see(&mut kind, Ok(WatcherEvent::Listing));
        for name in all {
            see(&mut kind, Ok(WatcherEvent::Listed(whole(name, "True"))));
        }
        assert!(!kind.is_listed());
        see(&mut kind, Ok(WatcherEvent::ListEnded));
        see(&mut kind, Ok(WatcherEvent::Live));
        assert!(kind.is_listed());
        kind
    }

    #[test]
    fn rows_follow_the_objects_and_what_changes_no_row_is_no_change() {
        let mut kind = listed(&["a", "b"]);
        assert!(!see(&mut kind, Ok(WatcherEvent::Applied(whole("a", "True")))));
        assert!(see(&mut kind, Ok(WatcherEvent::Applied(whole("a", "False")))));
        assert!(see(&mut kind, Ok(WatcherEvent::Applied(whole("c", "True")))));
        assert!(see(&mut kind, Ok(WatcherEvent::Deleted(whole("b", "True")))));
        assert!(!see(&mut kind, Ok(WatcherEvent::Deleted(whole("b", "True")))));
        assert_eq!(names(&kind), ["a", "c"]);
    }

    #[test]
    fn an_object_is_gone_only_when_a_list_without_it_has_ended() {
        let mut kind = listed(&["a", "b"]);
        let lost = || Err(ClusterError::NoAnswer("connection lost".to_owned()));
        assert!(see(&mut kind, lost()));
        see(&mut kind, Ok(WatcherEvent::Listing));
        see(&mut kind, Ok(WatcherEvent::Listed(whole("b", "True"))));
        assert_eq!(names(&kind), ["a", "b"]);
        see(&mut kind, lost());
        see(&mut kind, Ok(WatcherEvent::Listing));
        see(&mut kind, Ok(WatcherEvent::Listed(whole("b", "True"))));
        see(&mut kind, Ok(WatcherEvent::ListEnded));
        assert_eq!(names(&kind), ["b"]);
    }

    #[test]
    fn an_interruption_is_said_when_it_lasts_and_rows_stay() {
        let mut kind = listed(&["a"]);
        see(&mut kind, Ok(WatcherEvent::Interrupted));
        let later =
            |seconds: i64| NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds);
        assert_eq!(kind.remarks(later(4)), Vec::<String>::new());
        see(&mut kind, Err(ClusterError::NoAnswer("timed out".to_owned())));
        let said = kind.remarks(later(6));
        let expected = "kustomizations are not live since 12:00:00 UTC: request to the API server failed: timed out";
        assert_eq!((said, names(&kind)), (vec![expected.to_owned()], vec!["a"]));
        see(&mut kind, Ok(WatcherEvent::Live));
        assert_eq!(kind.remarks(later(60)), Vec::<String>::new());
    }

    #[test]
    fn a_right_that_is_gone_takes_the_rows_with_it_and_an_error_does_not() {
        let status = serde_json::json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"});
        let refused = ClusterError::Refused(serde_json::from_value(status).unwrap());
        let mut kind = listed(&["a"]);
        assert!(see(&mut kind, Err(refused)));
        assert!(kind.is_refused() && kind.count() == 0);
        // The user has the right again. Pages keep listing the kind until the list of the watch has ended.
        see(&mut kind, Ok(WatcherEvent::Listing));
        see(&mut kind, Ok(WatcherEvent::Listed(whole("a", "True"))));
        see(&mut kind, Err(ClusterError::NoAnswer("timed out".to_owned())));
        assert!(kind.is_refused() && names(&kind).is_empty());
        see(&mut kind, Ok(WatcherEvent::ListEnded));
        assert_eq!(names(&kind), ["a"]);
        let mut first = self::kind();
        see(&mut first, Err(ClusterError::NoAnswer("timed out".to_owned())));
        assert!(first.failure().is_some() && !first.is_listed() && !first.is_refused());
    }

    #[test]
    fn what_has_no_room_and_what_cannot_be_read_is_named() {
        let mut kind = kind();
        kind.see(Ok(WatcherEvent::Listed(whole("a", "True"))), 0, NOW.parse().unwrap());
        see(&mut kind, Ok(WatcherEvent::Listed(FullObject::of(serde_json::json!("text")))));
        assert_eq!(kind.remarks(NOW.parse().unwrap()).len(), 2);
    }

    #[test]
    fn ten_thousand_rows_with_long_messages_take_less_than_sixteen_mebibytes() {
        let mut long = object("a-kustomization-with-a-long-name", "False", "BuildFailed", false);
        long.fields_mut()["status"]["conditions"][0]["message"] = "m".repeat(5000).into();
        long.fields_mut()["status"]["lastAppliedRevision"] = format!("main@sha1:{:040}", 1).into();
        let row = ReconciledObjectRow::of(&long, NOW.parse().unwrap());
        let texts = [&row.place.kind, &row.place.namespace, &row.place.name, &row.kind];
        let others = [&row.message, &row.revision, &row.suspended];
        // The length of each text in the row and in the name of the row, plus the overhead of the allocator.
        let heap: usize = texts.iter().chain(&others).map(|it| it.capacity() + 16).sum();
        let name = size_of::<RowName>() + row.place.namespace.len() + row.place.name.len() + 32;
        let each = heap + size_of::<ReconciledObjectRow>() + name + 64;
        assert!(each * 10_000 <= 16 << 20, "{each} bytes a row");
    }
}
