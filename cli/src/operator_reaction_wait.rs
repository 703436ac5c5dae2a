//! Waits for a reaction of the operator. After some seconds without a reaction, it prints a hint about the state of the
//! operator.
//!
//! Elsewhere: whether an operator holds its Leases (`windlass_cli_installation::cluster_operators`), the checks of `windlass
//! check` (`windlass_cli_installation::check`).

use std::time::{Duration, Instant};

use cause::condition;
use jiff::Timestamp;
use objects::Object;
use reconcile::condition_reason::PROGRESSING_WITH_RETRY;
use serde_json::Value;

use super::kind_argument;
use windlass_cli_installation::cluster_operators::{self, OperatorPresence};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::table::clean;
use windlass_cluster::ClusterConnection;

/// How long the command waits without a reaction before it prints a hint.
const UNRESPONSIVE_HINT_DELAY: Duration = Duration::from_secs(8);

/// The state of waiting for a reaction to a change.
#[derive(Debug)]
pub(super) struct OperatorReactionWait {
    since: Instant,
    /// The status before the reaction.
    before: Value,
    is_over: bool,
}

impl OperatorReactionWait {
    /// Starts to wait. `object` is the object after the change of the command.
    pub(super) fn with(object: &Object) -> Self {
        let before = object.get("status").cloned().unwrap_or_default();
        Self { since: Instant::now(), before, is_over: false }
    }

    /// Looks for a reaction in the changed object. If there is none for some time, prints the hint once.
    pub(super) async fn look(&mut self, cluster: &ClusterConnection, object: &Object) {
        let waited = self.since.elapsed();
        if self.is_due(object, waited) {
            let presence = cluster_operators::presence(cluster, Timestamp::now()).await;
            let mark = match presence {
                OperatorPresence::Held(_) => ProgressGlyph::Waiting,
                OperatorPresence::Vacant(_) | OperatorPresence::Unknown => ProgressGlyph::Warning,
            };
            say(mark, &message(object, waited, &presence));
        }
    }

    /// Whether the hint has to be printed after this waiting time.
    fn is_due(&mut self, object: &Object, waited: Duration) -> bool {
        if self.is_over {
            return false;
        }
        // An operator that has reacted once may need more time.
        let has_reacted = object.get("status").unwrap_or(&Value::Null) != &self.before;
        let is_due = !has_reacted && waited >= UNRESPONSIVE_HINT_DELAY;
        self.is_over = has_reacted || is_due;
        is_due
    }
}

/// The hint for an object whose status has not changed for this time. A reconciliation may change the status only at its end.
/// So the hint can only say whether a process holds the Lease, and since when.
fn message(object: &Object, waited: Duration, presence: &OperatorPresence) -> String {
    let subject = clean(&object.id().subject());
    let seconds = waited.as_secs();
    let check = "`windlass check` shows whether it runs";
    match (presence, run(object)) {
        (OperatorPresence::Held(holder), Some(run)) => format!(
            "{subject}: windlass is {run}, as the status says, and {holder} ({})",
            holder.term()
        ),
        (OperatorPresence::Held(holder), None) => format!(
            "{subject}: the status has not changed for {seconds} s, and {holder} ({}): {check}, `{}` what it does",
            holder.term(),
            logs(object)
        ),
        (OperatorPresence::Vacant(text), _) => {
            format!("{subject}: windlass has not reacted for {seconds} s, and {text}: {check}")
        }
        (OperatorPresence::Unknown, Some(run)) => format!(
            "{subject}: windlass is {run}, as the status says, which has not changed for {seconds} s: {check}"
        ),
        (OperatorPresence::Unknown, None) => {
            format!("{subject}: windlass has not reacted for {seconds} s: {check}")
        }
    }
}

/// The command that prints windlass's log lines about an object.
fn logs(object: &Object) -> String {
    let kind = kind_argument::qualified(&object.gvk()).to_lowercase();
    clean(&format!("windlass logs {kind}/{} -n {}", object.name(), object.namespace()))
}

/// The running reconciliation, according to the status. `None` if the status says nothing, or if the next reconciliation has
/// not begun.
fn run(object: &Object) -> Option<String> {
    let reconciling = condition(object, reconcile::RECONCILING)?;
    let is_run =
        reconciling.status == "True" && reconciling.reason != PROGRESSING_WITH_RETRY.as_str();
    let since = reconciling.since.map(|at| format!(" that began at {at:.0}")).unwrap_or_default();
    is_run.then(|| format!("on a run{since}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use fake_cluster::operator_objects;
    use windlass_cli_installation::cluster_operators::LeaseHolder;

    fn object(message: &str) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "b"},
            "status": {"message": message}}),
        )
        .unwrap()
    }

    fn running(reason: &str) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "b"},
            "status": {"conditions": [{"type": "Reconciling", "status": "True", "reason": reason,
                "lastTransitionTime": "2026-11-24T11:55:00Z"}]}}),
        )
        .unwrap()
    }

    #[test]
    fn a_message_says_once_that_nothing_reacts() {
        let mut patience = OperatorReactionWait::with(&object("before"));
        assert!(!patience.is_due(&object("before"), Duration::ZERO));
        assert!(patience.is_due(&object("before"), UNRESPONSIVE_HINT_DELAY));
        assert!(!patience.is_due(&object("before"), UNRESPONSIVE_HINT_DELAY));
        let text = message(&object("before"), UNRESPONSIVE_HINT_DELAY, &OperatorPresence::Unknown);
        assert_eq!(
            text,
            "X/b/a: windlass has not reacted for 8 s: `windlass check` shows whether it runs"
        );
    }

    #[test]
    fn an_operator_that_holds_its_lease_may_be_at_work() {
        let lease = "windlass-leader-election";
        let lease = operator_objects::lease(lease, "windlass-1", "2026-11-24T11:59:50Z");
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let holder = LeaseHolder::of(&Object::new(lease).unwrap(), now).unwrap();
        let held = OperatorPresence::Held(holder);
        let message =
            |object: &Object, presence| message(object, UNRESPONSIVE_HINT_DELAY, presence);
        assert_eq!(
            message(&running("Progressing"), &held),
            "X/b/a: windlass is on a run that began at 2026-11-24T11:55:00Z, as the status says, and 'windlass-1' holds Lease \
             flux-system/windlass-leader-election (renewed at 2026-11-24T11:59:50Z, counts until 2026-11-24T12:00:25Z)"
        );
        // The status does not show whether a reconciliation is running, and neither does the Lease.
        let silent = "X/b/a: the status has not changed for 8 s, and 'windlass-1' holds Lease \
                      flux-system/windlass-leader-election (renewed at 2026-11-24T11:59:50Z, counts until \
                      2026-11-24T12:00:25Z): `windlass check` shows whether it runs, `windlass logs x/a -n b` what it does";
        assert_eq!(message(&object("before"), &held), silent);
        assert_eq!(message(&running("ProgressingWithRetry"), &held), silent);
    }

    #[test]
    fn a_status_that_may_be_old_does_not_say_that_an_operator_is_at_work() {
        let message = |presence: OperatorPresence| {
            message(&running("Progressing"), UNRESPONSIVE_HINT_DELAY, &presence)
        };
        assert_eq!(
            message(OperatorPresence::Vacant("no operator holds Lease a/b".to_owned())),
            "X/b/a: windlass has not reacted for 8 s, and no operator holds Lease a/b: `windlass check` shows whether it runs"
        );
        assert_eq!(
            message(OperatorPresence::Unknown),
            "X/b/a: windlass is on a run that began at 2026-11-24T11:55:00Z, as the status says, which has not \
             changed for 8 s: `windlass check` shows whether it runs"
        );
    }

    #[test]
    fn who_has_reacted_may_take_its_time() {
        let mut patience = OperatorReactionWait::with(&object("before"));
        assert!(!patience.is_due(&object("before"), Duration::ZERO));
        assert!(!patience.is_due(&object("in progress"), Duration::ZERO));
        assert!(!patience.is_due(&object("in progress"), UNRESPONSIVE_HINT_DELAY * 2));
    }
}
