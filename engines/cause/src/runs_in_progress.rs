//! Runs that are in progress. Such a run is not a cause, and neither is an object that waits for it.
//!
//! A run that exceeds its limit is a cause again, so that a run without progress is reported.

use jiff::SignedDuration;
use objects::{Object, ObjectId};

use crate::cause_result::CauseKind;
use crate::cause_walk::{CauseWalk, MAX_PATH_OBJECTS, ObjectLookup, ResultOrFactQueries};
use crate::condition::{ConditionView, condition, text, time};
use crate::condition_reason;
use crate::object_references;

/// How many minutes a run may last if the spec does not allow more.
const LONGEST_RUN_MINUTES: i64 = 5;

impl CauseWalk<'_> {
    /// Whether a run of the object began recently and has not ended, or the object is new and had no run yet.
    pub(crate) fn is_in_progress(&self, object: &Object) -> bool {
        let since = match condition(object, "Ready") {
            Some(said) if said.status == "Unknown" && is_of_run(said.reason) => said.since,
            Some(_) => None,
            None if object_references::has_no_runs(object) => None,
            None => object.fields().get("metadata").and_then(|it| time(it, "creationTimestamp")),
        };
        since.is_some_and(|since| self.now().duration_since(since) <= longest_run(object))
    }

    /// Whether an object that is not ready waits for a source or a dependency that is in progress.
    pub(crate) fn waits(
        &mut self,
        object: &Object,
        said: ConditionView<'_>,
    ) -> ResultOrFactQueries<bool> {
        let mut pending = awaited(object, said.reason);
        for _ in 0..MAX_PATH_OBJECTS {
            let Some(id) = pending.pop() else { break };
            let ObjectLookup::There(found) = self.object(&id)? else { continue };
            if self.is_in_progress(found) {
                return Ok(true);
            }
            if let Some(said) = condition(found, "Ready").filter(|said| said.status == "False") {
                pending.extend(awaited(found, said.reason));
            }
        }
        Ok(false)
    }
}

/// Whether the reason of a condition means a reconciliation in progress, and not a wait for a lifecycle or a user.
fn is_of_run(of: &str) -> bool {
    matches!(condition_reason::problem(of), None | Some(CauseKind::Health))
}

/// The objects for which an object waits, according to the reason of its condition.
fn awaited(object: &Object, of: &str) -> Vec<ObjectId> {
    if condition_reason::is_about_source(of) {
        return object_references::sources(object);
    }
    if of == reconcile::condition_reason::DEPENDENCY_NOT_READY.as_str() {
        // A dependency that only has to exist is not awaited.
        let awaited = object_references::dependencies(object).into_iter();
        return awaited.filter(|it| !it.may_be_unready).map(|it| it.object).collect();
    }
    Vec::new()
}

/// How long a run may last: as long as the spec allows, but at least some minutes.
fn longest_run(object: &Object) -> SignedDuration {
    let spec = object.get("spec");
    let asked = spec.and_then(|spec| reconcile::parse_duration(text(spec, "timeout")).ok());
    let asked = asked.and_then(|it| SignedDuration::try_from(it).ok()).unwrap_or_default();
    asked.max(SignedDuration::from_mins(LONGEST_RUN_MINUTES))
}
