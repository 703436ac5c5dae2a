//! Waiting for the operator: a message says so after some seconds without a reaction.
//!
//! Elsewhere: whether an operator holds its Leases (`operator.rs`), what `windlass check` examines (`check.rs`).

use std::time::{Duration, Instant};

use objects::Object;
use serde_json::Value;

use super::connection::{Mark, say};
use super::table::clean;

/// After how long without a reaction a person is told.
const UNRESPONSIVE_HINT_DELAY: Duration = Duration::from_secs(8);

/// What is known of the reaction to a change.
#[derive(Debug)]
pub(super) struct Patience {
    since: Instant,
    /// The status before the reaction.
    before: Value,
    is_over: bool,
}

impl Patience {
    /// From now on; the object is as it was when it was changed.
    pub(super) fn with(object: &Object) -> Self {
        let before = object.get("status").cloned().unwrap_or_default();
        Self { since: Instant::now(), before, is_over: false }
    }

    /// Compares the object that was changed; says once that nothing reacts.
    pub(super) fn look(&mut self, object: &Object) {
        if let Some(text) = self.judge(object, self.since.elapsed()) {
            say(Mark::Warning, &text);
        }
    }

    /// What there is to say after so long.
    fn judge(&mut self, object: &Object, waited: Duration) -> Option<String> {
        if self.is_over {
            return None;
        }
        let status = object.get("status").cloned().unwrap_or_default();
        if self.before != status {
            // Who has reacted once may take its time.
            self.is_over = true;
            return None;
        }
        (waited >= UNRESPONSIVE_HINT_DELAY).then(|| {
            self.is_over = true;
            let subject = clean(&object.id().subject());
            let seconds = waited.as_secs();
            format!("{subject}: windlass has not reacted for {seconds} s: `windlass check` shows whether it runs")
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(message: &str) -> Object {
        Object::new(
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "b"},
            "status": {"message": message}}),
        )
        .unwrap()
    }

    #[test]
    fn a_person_is_told_once_that_nothing_reacts() {
        let mut patience = Patience::with(&object("before"));
        assert_eq!(patience.judge(&object("before"), Duration::ZERO), None);
        let text = patience.judge(&object("before"), UNRESPONSIVE_HINT_DELAY).unwrap();
        assert_eq!(
            text,
            "X/b/a: windlass has not reacted for 8 s: `windlass check` shows whether it runs"
        );
        assert_eq!(patience.judge(&object("before"), UNRESPONSIVE_HINT_DELAY), None);
    }

    #[test]
    fn who_has_reacted_may_take_its_time() {
        let mut patience = Patience::with(&object("before"));
        assert_eq!(patience.judge(&object("before"), Duration::ZERO), None);
        assert_eq!(patience.judge(&object("in progress"), Duration::ZERO), None);
        assert_eq!(patience.judge(&object("in progress"), UNRESPONSIVE_HINT_DELAY * 2), None);
    }
}
