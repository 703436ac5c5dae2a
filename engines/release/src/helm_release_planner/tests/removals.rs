//! Every path on which objects of a release are deleted, or moved out of versions that go, and everything that may hold it.

use lifecycle::{HoldingLifecycle, LifecycleHoldPhase, LifecycleTimeoutPolicy};
use reconcile::RemovalCause;

use super::*;
use crate::lifecycle_hold::ReleaseLifecycles;

/// A path on which objects are deleted.
struct DeletionPath {
    name: &'static str,
    /// A release of which a run deletes something next.
    prepare: fn() -> SimulatedCluster,
    /// Whether a closed window holds it.
    waits_for_window: bool,
    /// Whether lifecycles hold it.
    asks_lifecycles: bool,
    /// Whether a line of the log is about taking it.
    is_taken: fn(&str) -> bool,
}

/// What may hold a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemovalObstacle {
    None,
    Suspended,
    WindowClosed,
    LifecyclesUnknown,
    LifecycleRequired,
}

const OBSTACLES: [RemovalObstacle; 5] = [
    RemovalObstacle::None,
    RemovalObstacle::Suspended,
    RemovalObstacle::WindowClosed,
    RemovalObstacle::LifecyclesUnknown,
    RemovalObstacle::LifecycleRequired,
];

impl RemovalObstacle {
    fn put(self, cluster: &mut SimulatedCluster) {
        let desired = &mut cluster.desired;
        match self {
            Self::None => {}
            Self::Suspended => desired.suspended = true,
            Self::WindowClosed => desired.gates.closes = Some(cluster.now),
            Self::LifecyclesUnknown => desired.lifecycles.unknown = Some("no list".to_owned()),
            Self::LifecycleRequired => {
                let hold = HoldingLifecycle {
                    lifecycle: "a".to_owned(),
                    key: "a".to_owned(),
                    phases: vec![
                        LifecycleHoldPhase::PreDelete,
                        LifecycleHoldPhase::PreUpgrade,
                        LifecycleHoldPhase::PreInstall,
                    ],
                    timeout_ms: 60_000,
                    on_timeout: LifecycleTimeoutPolicy::Fail,
                    approvals: 0,
                    parameters: Default::default(),
                    required: true,
                };
                desired.lifecycles =
                    ReleaseLifecycles { holds: vec![hold], ..ReleaseLifecycles::default() };
            }
        }
    }

    fn holds(self, path: &DeletionPath) -> bool {
        match self {
            Self::None => false,
            Self::Suspended => true,
            Self::WindowClosed => path.waits_for_window,
            Self::LifecyclesUnknown | Self::LifecycleRequired => path.asks_lifecycles,
        }
    }
}

/// An installed release whose desired state differs from what is installed.
fn changed(change: fn(&mut ReleaseDesiredState)) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    cluster.desired.generation = 2;
    change(&mut cluster.desired);
    cluster
}

/// A release whose installation has failed, as it is about to be removed.
fn failed_installation() -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.desired.spec.install.remediation.retries = 1;
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    cluster.fails("ready");
    cluster.slow.clear();
    cluster
}

/// A release whose upgrade is to fail, and leaves objects behind.
fn failing_upgrade() -> SimulatedCluster {
    let mut cluster = changed(|desired| {
        desired.chart_version = "2.0.0".to_owned();
        desired.inputs.push('x');
        desired.spec.upgrade.cleanup_on_fail = true;
    });
    cluster.fails("apply");
    cluster
}

fn paths() -> Vec<DeletionPath> {
    let held = |name, prepare: fn() -> SimulatedCluster| DeletionPath {
        name,
        prepare,
        waits_for_window: true,
        asks_lifecycles: true,
        is_taken: is_deletion,
    };
    let upgrade = || {
        changed(|desired| {
            desired.chart_version = "2.0.0".to_owned();
            desired.inputs.push('x');
        })
    };
    vec![
        DeletionPath {
            waits_for_window: false,
            ..held("the owner is deleted", || changed(|desired| desired.deleted = true))
        },
        held("it left the helmfile", || {
            changed(|desired| {
                desired.deleted = true;
                desired.gates.removal = RemovalCause::Pruned;
            })
        }),
        held("another release name", || {
            changed(|desired| desired.spec.target.name = "other".to_owned())
        }),
        held("another target namespace", || {
            changed(|desired| desired.spec.target.namespace = "other".to_owned())
        }),
        held("another storage namespace", || {
            changed(|desired| desired.spec.target.storage_namespace = "other".to_owned())
        }),
        held("another chart", || changed(|desired| desired.chart_name = "d".to_owned())),
        held("an upgrade without some objects", upgrade),
        DeletionPath {
            // The definitions of a chart are written when an upgrade is prepared, after the objects of dropped versions.
            is_taken: |line: &str| line.starts_with("prepare "),
            ..held("stored objects are migrated", upgrade)
        },
        held("what a failed upgrade created", failing_upgrade),
        DeletionPath {
            waits_for_window: false,
            asks_lifecycles: false,
            ..held("a failed installation is removed", failed_installation)
        },
    ]
}

/// Whether a line of the log is about deleting objects.
fn is_deletion(line: &str) -> bool {
    line.starts_with("delete objects of")
        || line.starts_with("clean up")
        || (line.starts_with("apply ") && line.contains(" over "))
}

#[test]
fn nothing_is_deleted_on_any_path_while_something_holds_it() {
    for path in paths() {
        for obstacle in OBSTACLES {
            let mut cluster = (path.prepare)();
            cluster.log.clear();
            obstacle.put(&mut cluster);
            let SimulatedRunEnd::Outcome(outcome) = cluster.run() else { panic!("crashed") };
            let name = path.name;
            let context = format!("{name}, {obstacle:?}: {} {:#?}", text(&outcome), cluster.log);
            let is_taken = cluster.log.iter().any(|line| (path.is_taken)(line));
            assert_eq!(is_taken, !obstacle.holds(&path), "{context}");
        }
    }
}
