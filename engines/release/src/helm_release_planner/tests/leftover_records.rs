//! Records that another client left behind: each status × its writer × what the status of the HelmRelease has of it.

use super::*;
use crate::release_snapshot::{ReleaseSnapshot, SnapshotAction};

/// The writer of the record.
#[derive(Debug, Clone, Copy)]
enum RecordWriter {
    /// Helm or helm-controller, which write no journal.
    Helm,
    /// windlass for this HelmRelease; another client changed the record afterwards.
    Own,
    /// windlass for a HelmRelease that is gone.
    Gone,
}

/// What the HelmRelease knows of the record.
#[derive(Debug, Clone, Copy)]
enum RecordInStatus {
    /// Nothing: it is new.
    New,
    /// The record as it is.
    AsItIs,
    /// The record as it was when it was deployed.
    AsItWas,
}

fn cluster(life: &str, writer: RecordWriter, known: RecordInStatus) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    let (record, journal) = cluster.records.get_mut(&1).unwrap();
    record.info.status = Life::parse(life);
    match writer {
        RecordWriter::Helm => *journal = None,
        RecordWriter::Own => {}
        RecordWriter::Gone => journal.as_mut().unwrap().owner = "gone".to_owned(),
    }
    let snapshot = ReleaseSnapshot::of(record, Some(SnapshotAction::Install), "").unwrap();
    match known {
        RecordInStatus::New => cluster.status = HelmReleaseStatusFields::default(),
        RecordInStatus::AsItIs => cluster.status.history = vec![snapshot],
        RecordInStatus::AsItWas => {}
    }
    (cluster.log, cluster.events) = (Vec::new(), Vec::new());
    cluster
}

/// The steps of some runs, and the outcome of the last.
fn outcome(mut cluster: SimulatedCluster) -> String {
    let mut outcome = None;
    for _ in 0..8 {
        let SimulatedRunEnd::Outcome(now) = cluster.run() else { panic!() };
        let wake = now.wake().and_then(reconcile::NextRunTrigger::earliest);
        cluster.now = wake.unwrap_or(cluster.now).max(cluster.now);
        outcome = Some(now);
    }
    let is_begun = |line: &&String| line.starts_with("open") || line.starts_with("unlock");
    let mut lines: Vec<String> = cluster.log.iter().filter(is_begun).cloned().collect();
    // An event that is sent with each attempt is listed once here.
    let reason = |event: &String| event.split(' ').next().unwrap_or_default().to_owned();
    let mut events: Vec<String> = cluster.events.iter().map(reason).collect();
    events.dedup();
    lines.extend(events);
    let outcome = outcome.unwrap();
    let text = match outcome.is_settled() {
        true => "Ready".to_owned(),
        false => outcome.text().rsplit(": ").next().unwrap_or_default().to_owned(),
    };
    lines.push(text);
    lines.join(", ")
}

/// What helm-controller 1.6.3 does about the same (`internal/reconcile/state.go`, `atomic_release.go` and Helm's
/// refusals in `pkg/action`), where that is another thing.
type FluxBehavior = Option<&'static str>;

const UPGRADED: &str = "open v2, UpgradeSucceeded, Ready";
const UNLOCKED: &str = "unlock v1, open v2, PendingRelease, UpgradeSucceeded, Ready";
const INSTALLED: &str = "open v2, InstallSucceeded, Ready";
const NONE_DEPLOYED: &str = "UpgradeFailed, \"web\" has no deployed releases";
const NAME_IN_USE: &str = "InstallFailed, cannot reuse a name that is still in use";
const NOT_ACTED_ON: &str = "unable to determine state for release";

#[rustfmt::skip]
const OUTCOMES: [(&str, RecordInStatus, &str, FluxBehavior); 27] = [
    // It is as desired, so it is taken over as it is.
    ("deployed", RecordInStatus::New, "InstallSucceeded, Ready", Some(UPGRADED)),
    ("deployed", RecordInStatus::AsItIs, "Ready", None),
    ("deployed", RecordInStatus::AsItWas, "Ready", None),
    ("superseded", RecordInStatus::New, UPGRADED, None),
    ("superseded", RecordInStatus::AsItIs, UPGRADED, Some(NOT_ACTED_ON)),
    ("superseded", RecordInStatus::AsItWas, UPGRADED, None),
    ("failed", RecordInStatus::New, UPGRADED, None),
    ("failed", RecordInStatus::AsItIs, UPGRADED, None),
    ("failed", RecordInStatus::AsItWas, UPGRADED, None),
    ("uninstalled", RecordInStatus::New, INSTALLED, Some(NAME_IN_USE)),
    ("uninstalled", RecordInStatus::AsItIs, INSTALLED, Some(NAME_IN_USE)),
    ("uninstalled", RecordInStatus::AsItWas, INSTALLED, Some(NONE_DEPLOYED)),
    ("uninstalling", RecordInStatus::New, UNLOCKED, Some(NONE_DEPLOYED)),
    ("uninstalling", RecordInStatus::AsItIs, UNLOCKED, Some(NOT_ACTED_ON)),
    ("uninstalling", RecordInStatus::AsItWas, UNLOCKED, Some(NONE_DEPLOYED)),
    ("pending-install", RecordInStatus::New, UNLOCKED, None),
    ("pending-install", RecordInStatus::AsItIs, UNLOCKED, None),
    ("pending-install", RecordInStatus::AsItWas, UNLOCKED, None),
    ("pending-upgrade", RecordInStatus::New, UNLOCKED, None),
    ("pending-upgrade", RecordInStatus::AsItIs, UNLOCKED, None),
    ("pending-upgrade", RecordInStatus::AsItWas, UNLOCKED, None),
    ("pending-rollback", RecordInStatus::New, UNLOCKED, None),
    ("pending-rollback", RecordInStatus::AsItIs, UNLOCKED, None),
    ("pending-rollback", RecordInStatus::AsItWas, UNLOCKED, None),
    // The meaning of this status is not known.
    ("unknown", RecordInStatus::New, NONE_DEPLOYED, None),
    ("unknown", RecordInStatus::AsItIs, "unable to determine state for release with status 'unknown'", None),
    ("unknown", RecordInStatus::AsItWas, NONE_DEPLOYED, None),
];

#[test]
fn a_record_of_any_client_is_taken_over_or_the_status_says_why_not() {
    for (life, known, wanted, flux) in OUTCOMES {
        for writer in [RecordWriter::Helm, RecordWriter::Own, RecordWriter::Gone] {
            let text = outcome(cluster(life, writer, known));
            assert_eq!(text, wanted, "{life} {writer:?} {known:?}");
        }
        // The outcome differs from Flux's only where Flux cannot go on, and where nothing is changed.
        let is_better =
            |flux| [NONE_DEPLOYED, NAME_IN_USE, NOT_ACTED_ON].contains(&flux) || life == "deployed";
        assert!(flux.is_none_or(is_better), "{life} {known:?}");
    }
}

/// A HelmRelease that is deleted removes the release that it knows, in every state of its record, and nothing else.
#[test]
fn a_record_of_another_client_keeps_no_helm_release_from_going() {
    for (life, known, _, _) in OUTCOMES {
        for writer in [RecordWriter::Helm, RecordWriter::Own] {
            let mut cluster = cluster(life, writer, known);
            cluster.desired.deleted = true;
            let outcome = cluster.settle();
            assert!(outcome.is_settled(), "{life} {writer:?} {known:?}: {outcome:?}");
            let is_left = matches!(known, RecordInStatus::New);
            assert_eq!(!cluster.records.is_empty(), is_left, "{life} {writer:?} {known:?}");
        }
    }
}

#[test]
fn another_client_has_as_long_to_uninstall_as_an_uninstallation_takes() {
    let mut cluster = cluster("uninstalling", RecordWriter::Helm, RecordInStatus::AsItWas);
    let began = cluster.now - 60 * SECOND;
    cluster.records.get_mut(&1).unwrap().0.info.deleted = Some(began.into());
    let SimulatedRunEnd::Outcome(RunOutcome::Blocked(why, text, wake)) = cluster.run() else {
        panic!()
    };
    assert_eq!(why, status::PENDING_RELEASE);
    assert!(
        text.starts_with("another client began to uninstall release apps/web.v1 at "),
        "{text}"
    );
    assert_eq!(wake.earliest(), Some(began + 300 * SECOND));
    assert!(cluster.log.is_empty());
    cluster.now = began + 300 * SECOND;
    assert!(cluster.settle().is_settled());
    assert_eq!(cluster.log[0], "unlock v1");
    // The client that did it is gone, and a clock that runs ahead is not waited for.
    for (writer, ago) in [(RecordWriter::Gone, 60), (RecordWriter::Helm, -60)] {
        let mut cluster =
            super::leftover_records::cluster("uninstalling", writer, RecordInStatus::AsItWas);
        let began = cluster.now - SECOND * 60;
        let began = if ago > 0 { began } else { began + 120 * SECOND };
        cluster.records.get_mut(&1).unwrap().0.info.deleted = Some(began.into());
        assert!(cluster.settle().is_settled());
    }
}
