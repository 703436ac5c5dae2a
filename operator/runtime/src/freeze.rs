//! Freezes: which of them hold an object, and the bypasses with which users let one operation begin anyway.
//!
//! Freezes and FreezeBypasses are watched. No operation begins before both were listed, or while the watch of Freezes is
//! interrupted, because an unknown Freeze could deny it. Below: bypasses (`bypass`), and the times of a Freeze
//! (`freeze_times`). Elsewhere: what a hold stops (engine `reconcile`), iCalendar files (crate `source-controller`), the
//! operations (the kinds), and the right to bypass (`deploy/policies/freezes.yaml`).

mod bypass;
mod freeze_times;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::ReconciledObject;
use crds::windlass_release::{
    AuditFreezeBypass, Freeze, FreezeBypass, FreezeCalendarStatus, FreezeDriftCorrection,
    FreezeSpec, ReleaseAuditSpec,
};
use kube_core::{Resource, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::{
    AnnotationCondition, FreezeCalendar, FreezeHold, ObjectKey, Time, WindowEnd, condition_reason,
    jittered, seed,
};
use tokio_util::sync::CancellationToken;

pub(crate) use self::bypass::REFUSED_BY_POLICY;
pub use self::freeze_times::{FreezeChangeSignal, calendar, calendar_name, times};
use super::lifecycle::selector;
use super::lifecycle::watched_object_cache::{
    self, CachedObjectChange, WATCH_PATIENCE, WatchedObjectCache, kind_node,
};
use super::run_context::RunContext;
use windlass_cluster::metrics::WakeReason;
use windlass_cluster::namespace_policies::{NamespacePolicies, labels_node_of};
use windlass_cluster::windlass_kind::WindlassKind;

/// How often a held object is checked without any change, because clocks and time zone rules may change. [`RECHECK_JITTER`]
/// spreads the checks of different objects. Each check comes within ten minutes.
const RECHECK_PERIOD: Duration = Duration::from_secs(540);

/// The spread of the checks of different objects, in percent.
const RECHECK_JITTER: u8 = 10;

/// The average delay of objects after the end of a Freeze. Without it, thousands of objects would begin in one second.
const END_SPREAD: Duration = Duration::from_secs(10);

/// After this many seconds, the judgement of a Freeze is forgotten.
const FORGOTTEN_AFTER: i64 = 3600;

/// When an object is checked again if Freezes are not known, or a bypass cannot be used.
const UNKNOWN_RECHECK_PERIOD: Duration = Duration::from_secs(30);

/// Watches Freezes until `stop`. A change wakes the held objects, and a changed spec wakes the reader of calendars.
pub async fn follow_freezes(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<Freeze>| {
        if says_something_else(&changed) {
            context.work_queue.changed(&kind_node::<Freeze>());
        }
        if has_another_spec(&changed) {
            context.shared::<FreezeChangeSignal>().changed();
        }
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Whether a change is about the spec. The reader of calendars writes the status, and two readers that disagree would
/// otherwise wake each other without end.
fn has_another_spec(changed: &CachedObjectChange<Freeze>) -> bool {
    match (&changed.before, &changed.after) {
        (Some(before), Some(after)) => before.uid() != after.uid() || before.spec != after.spec,
        _ => true,
    }
}

/// Whether a change may affect the held objects or their messages. Changes of other conditions do not.
fn says_something_else(changed: &CachedObjectChange<Freeze>) -> bool {
    fn calendar(freeze: Option<&Arc<Freeze>>) -> Option<&FreezeCalendarStatus> {
        freeze?.status.as_ref()?.calendar.as_ref()
    }
    let [before, after] = [&changed.before, &changed.after].map(|it| calendar(it.as_ref()));
    has_another_spec(changed) || after.is_none() || before != after
}

/// Watches FreezeBypasses until `stop`. A new one wakes its object.
pub async fn follow_bypasses(context: Arc<RunContext>, stop: CancellationToken) {
    let changed = |context: &RunContext, changed: CachedObjectChange<FreezeBypass>| {
        // The use of a bypass changes nothing for its object.
        if changed.before.is_some() {
            return;
        }
        let Some(bypass) = changed.after else { return };
        let subject = &bypass.spec.subject;
        let namespace = bypass.namespace().unwrap_or_default();
        let node = ObjectKey::new(&subject.group, &subject.kind, &namespace, &subject.name);
        context.work_queue.wake(&node, WakeReason::Waiting);
    };
    stop.run_until_cancelled(watched_object_cache::follow(context, changed)).await;
}

/// Waits until Freezes and bypasses were listed, or could not be listed.
pub async fn known(context: &RunContext) {
    let freezes = context.shared::<WatchedObjectCache<Freeze>>();
    freezes.known().await;
    freezes.current_within(WATCH_PATIENCE).await;
    context.shared::<WatchedObjectCache<FreezeBypass>>().known().await;
}

/// Assumes that there are no Freezes. This serves replayed runs, without a watch of Freezes.
pub fn assume_none(context: &RunContext) {
    context.shared::<WatchedObjectCache<Freeze>>().assume_none();
    context.shared::<WatchedObjectCache<FreezeBypass>>().assume_none();
}

/// The Freezes that hold an object since the begin of its run.
#[derive(Debug, Clone)]
pub struct ObjectFreeze {
    hold: Arc<FreezeHold>,
    /// The Freezes that deny. Empty if it is not known which Freezes deny.
    denying: Vec<DenyingFreeze>,
}

/// A Freeze that denies operations now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DenyingFreeze {
    name: String,
    uid: String,
    /// Its reason and end, as a text for users.
    text: String,
    /// When it ends, if that is known.
    until: Option<Time>,
    corrects_drift: bool,
}

impl ObjectFreeze {
    /// The hold that the gate of the object's run uses.
    pub fn hold(&self) -> &Arc<FreezeHold> {
        &self.hold
    }

    /// The dependency graph nodes whose change may end the hold. A bypass wakes the object itself.
    pub fn nodes(namespace: &str) -> [ObjectKey; 2] {
        [kind_node::<Freeze>(), labels_node_of(namespace)]
    }

    /// The time from `now` until the hold is checked again.
    pub(crate) fn recheck_in(&self, now: Time) -> Duration {
        Duration::try_from(self.hold.recheck_at.duration_since(now)).unwrap_or_default()
    }

    /// Whether a user has a bypass for an operation of this spec. [`ObjectFreeze::pass`] checks the revision and the proof of
    /// the user when the operation begins.
    pub(crate) fn has_bypass<K: WindlassKind + ReconciledObject>(
        &self,
        context: &RunContext,
        object: &K,
        now: Time,
    ) -> bool {
        bypass::of_all(context, object, None, &self.denying, now).is_some()
    }

    /// Lets an operation to `revision` begin if users have bypassed each Freeze for it. The use of the bypasses is recorded
    /// before anything is done.
    ///
    /// # Errors
    /// The hold that stops the operation.
    pub async fn pass<K: WindlassKind + ReconciledObject>(
        &self,
        context: &RunContext,
        object: &K,
        revision: &str,
        now: Time,
    ) -> Result<(), Arc<FreezeHold>> {
        let Some(found) = bypass::of_all(context, object, Some(revision), &self.denying, now)
        else {
            return Err(self.hold.clone());
        };
        bypass::spend(context, object, &found, now).await.map_err(|why| {
            let text = format!("{}; the FreezeBypass does not count: {why}", self.hold.text);
            // By then, the API server may respond, or the admission policy may be installed.
            let soon = now.saturating_add(UNKNOWN_RECHECK_PERIOD).unwrap_or(Time::MAX);
            let recheck_at = self.hold.recheck_at.min(soon);
            Arc::new(FreezeHold { text, recheck_at, ..(*self.hold).clone() })
        })
    }

    /// The condition of an object whose operation began before the Freeze. `None` while it is not known which Freezes deny.
    pub(crate) fn overrun(&self) -> Option<AnnotationCondition> {
        let text = format!("what has begun comes to its end; {}", said_by(&self.denying));
        let reason = condition_reason::FREEZE_OVERRUN;
        let is_known = !self.denying.is_empty();
        is_known.then(|| AnnotationCondition { reason, text, ..self.hold.mark() })
    }

    /// The condition of an object that a Freeze holds before any operation. `None` if no Freeze denies the operation.
    pub(crate) fn mark(&self) -> Option<AnnotationCondition> {
        (!self.denying.is_empty()).then(|| self.hold.mark())
    }
}

/// Records the end of bypassed operations if the object is ready. This runs at the end of a run while a Freeze denies.
pub async fn end_bypasses<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    object: &K,
    now: Time,
) {
    bypass::end(context, object, now).await;
}

/// The bypasses that let the operation of an audit begin.
pub(crate) fn audited_bypasses(
    context: &RunContext,
    namespace: &str,
    audit: &ReleaseAuditSpec,
) -> Vec<AuditFreezeBypass> {
    bypass::of_audit(&context.shared::<WatchedObjectCache<FreezeBypass>>().of(namespace), audit)
}

/// The Freezes that hold an object now. `None` if there are none.
pub fn holding<K: Resource<DynamicType = ()>>(
    context: &RunContext,
    object: &K,
    now: Time,
) -> Option<ObjectFreeze> {
    let kind = K::kind(&());
    let namespace = object.namespace().unwrap_or_default();
    let denying = match denying(context, &kind, &namespace, now) {
        Ok(denying) if denying.is_empty() => return None,
        Ok(denying) => denying,
        Err(why) => return Some(unknown(&why, now)),
    };
    let seed = seed(&object.uid().unwrap_or_default());
    let until = denying.iter().filter_map(|it| it.until).min();
    let recheck_at = recheck_at(until, seed, now);
    // The message names one bypass. For further Freezes, the user repeats the command.
    let name = denying.first().map(|it| it.name.as_str()).unwrap_or_default();
    let target = format!("{}/{} -n {namespace}", kind.to_lowercase(), object.name_any());
    let text = format!(
        "{}; wait for its end, or let this operation begin with `windlass bypass freeze/{name} {target} --reason TEXT`",
        said_by(&denying)
    );
    let corrects_drift = denying.iter().all(|it| it.corrects_drift);
    let hold = FreezeHold { reason: condition_reason::FROZEN, text, corrects_drift, recheck_at };
    Some(ObjectFreeze { hold: Arc::new(hold), denying })
}

/// When a held object is checked again. `until` is the end of the hold, if it is known.
fn recheck_at(until: Option<Time>, seed: u64, now: Time) -> Time {
    let after = |time: Time, delay: Duration| time.saturating_add(delay).unwrap_or(Time::MAX);
    let soon = after(now, jittered(RECHECK_PERIOD, RECHECK_JITTER, seed));
    until.map_or(soon, |until| soon.min(after(until, jittered(END_SPREAD, 99, seed))))
}

/// The texts of several Freezes, for users.
fn said_by(denying: &[DenyingFreeze]) -> String {
    let all: Vec<&str> = denying.iter().map(|it| it.text.as_str()).collect();
    all.join("; ")
}

/// The hold while it is not known which Freezes deny, so that nothing begins.
fn unknown(why: &str, now: Time) -> ObjectFreeze {
    let text = format!(
        "it is not known which Freezes deny: {why}; if that lasts, apply the ClusterRoles and CustomResourceDefinitions of \
         this version of windlass"
    );
    let recheck_at = now.saturating_add(UNKNOWN_RECHECK_PERIOD).unwrap_or(Time::MAX);
    let hold = FreezeHold {
        reason: condition_reason::FREEZES_UNKNOWN,
        text,
        corrects_drift: false,
        recheck_at,
    };
    ObjectFreeze { hold: Arc::new(hold), denying: Vec::new() }
}

/// The Freezes that deny now for objects of a kind in a namespace.
fn denying(
    context: &RunContext,
    kind: &str,
    namespace: &str,
    now: Time,
) -> Result<Vec<DenyingFreeze>, String> {
    let table = context.shared::<WatchedObjectCache<Freeze>>();
    table.current()?;
    let said = context.shared::<FreezeJudgements>();
    let mut freezes = table.listed("")?;
    freezes.retain(|freeze| is_of_kind(&freeze.spec, kind));
    freezes.retain(|freeze| said.of(freeze, now).is_some());
    if freezes.is_empty() {
        return Ok(Vec::new());
    }
    let facts = context.shared::<NamespacePolicies>().facts(namespace);
    let facts =
        facts.ok_or_else(|| format!("the labels of namespace {namespace} are not known"))?;
    Ok(denying_for(&freezes, &facts.labels, &said, now))
}

/// Whether a Freeze is about objects of a kind in a namespace with these labels, at any time.
pub fn selects(spec: &FreezeSpec, kind: &str, labels: &BTreeMap<String, String>) -> bool {
    is_of_kind(spec, kind) && selector(&spec.namespace_selector).selects(labels)
}

fn is_of_kind(spec: &FreezeSpec, kind: &str) -> bool {
    spec.kinds.is_empty() || spec.kinds.iter().any(|it| it.as_str() == kind)
}

/// The judgements of Freezes in the current second. They are cached, so that thousands of objects do not evaluate the same
/// calendars again.
#[derive(Default)]
struct FreezeJudgements(Mutex<BTreeMap<String, JudgedFreeze>>);

/// A Freeze, with its judgement if it denies.
struct JudgedFreeze {
    freeze: Arc<Freeze>,
    /// The times of the Freeze, or the reason why they cannot be read.
    calendar: Result<FreezeCalendar, String>,
    /// The second in which the times were read.
    read: i64,
    /// The second of the judgement.
    second: i64,
    denying: Option<DenyingFreeze>,
}

impl JudgedFreeze {
    fn of(freeze: &Arc<Freeze>, now: Time) -> Self {
        let calendar = calendar(&freeze.spec, freeze.status.as_ref(), now);
        let denying = judged(freeze, calendar.as_ref(), now);
        let second = now.as_second();
        Self { freeze: freeze.clone(), calendar, read: second, second, denying }
    }

    /// Whether the cached calendar is still valid for this Freeze and time.
    fn is_of(&self, freeze: &Arc<Freeze>, now: Time) -> bool {
        let is_current = match &self.calendar {
            Ok(calendar) => calendar.is_current(now),
            // The limit of calendar events depends on the time, and a wrong clock may be corrected.
            Err(_) => (now.as_second() - self.read).unsigned_abs() < RECHECK_PERIOD.as_secs(),
        };
        Arc::ptr_eq(&self.freeze, freeze) && is_current
    }
}

impl FreezeJudgements {
    /// The judgement of a Freeze now. `None` if it does not deny. All its times are whole seconds, so the judgement is cached
    /// for a second.
    fn of(&self, freeze: &Arc<Freeze>, now: Time) -> Option<DenyingFreeze> {
        let second = now.as_second();
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(&freeze.name_any()).filter(|it| it.is_of(freeze, now)) {
            if known.second != second {
                known.second = second;
                known.denying = judged(freeze, known.calendar.as_ref(), now);
            }
            return known.denying.clone();
        }
        // This removes deleted Freezes.
        all.retain(|_, it| second - it.second < FORGOTTEN_AFTER);
        let judged = JudgedFreeze::of(freeze, now);
        let denying = judged.denying.clone();
        all.insert(freeze.name_any(), judged);
        denying
    }
}

/// The Freezes that deny now for namespaces with these labels, sorted by name.
fn denying_for(
    freezes: &[Arc<Freeze>],
    labels: &BTreeMap<String, String>,
    said: &FreezeJudgements,
    now: Time,
) -> Vec<DenyingFreeze> {
    let selected =
        freezes.iter().filter(|it| selector(&it.spec.namespace_selector).selects(labels));
    let mut denying: Vec<DenyingFreeze> = selected.filter_map(|it| said.of(it, now)).collect();
    denying.sort_by(|a, b| a.name.cmp(&b.name));
    denying
}

/// Judges a Freeze with these times. `None` if it does not deny now. A Freeze that cannot be read denies.
fn judged(
    freeze: &Freeze,
    calendar: Result<&FreezeCalendar, &String>,
    now: Time,
) -> Option<DenyingFreeze> {
    let spec = &freeze.spec;
    let name = freeze.name_any();
    let reason = &spec.reason;
    let (until, text) = match calendar.map(|calendar| calendar.denies(now)) {
        Ok(None) => return None,
        Ok(Some(WindowEnd::Time(at))) => (
            Some(at),
            format!("Freeze {name} until {}: {reason}", at.strftime("%Y-%m-%dT%H:%M:%SZ")),
        ),
        Ok(Some(WindowEnd::Further)) => {
            (None, format!("Freeze {name} without a known end: {reason}"))
        }
        Err(error) => {
            let text = format!(
                "Freeze {name} ({reason}) cannot be read and denies until it is corrected: {error}"
            );
            (None, text)
        }
    };
    let drift = spec.drift_correction.unwrap_or_default();
    let corrects_drift = drift == FreezeDriftCorrection::Allow;
    Some(DenyingFreeze { uid: freeze.uid().unwrap_or_default(), name, text, until, corrects_drift })
}

#[cfg(test)]
mod tests;
