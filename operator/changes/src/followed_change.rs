//! One change that is followed: its members with their last known states, and the status of its ChangeSet.
//!
//! Elsewhere: writing the status (`change_set_writer`), and finding the changes (the root of the crate).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use changes::build_change::{BuildChange, NewestAndPreviousBuild};
use changes::change_set_member_lines::{self, ChangeSetMember, MemberKind};
use changes::change_verdict::{self, ChangeVerdict, ChangeVerdictFacts, MemberCounts};
use changes::member_state::MemberState;
use crds::Time as When;
use crds::windlass_release::{
    ChangeSet, ChangeSetCounts, ChangeSetSpec, ChangeSetStatus, ChangeSetVerdict,
};
use kube_core::ResourceExt as _;
use reconcile::{ObjectKey, Time};
use serde_json::{Value, json};

use windlass_runtime::run_context::RunContext;

use super::applied_changes_from_audits::{AppliedChanges, has_appliers};
use super::first_failure::seen_cause;
use super::observed_members::{EarlierMemberState, child_state};
use super::observed_sources::SourceConsumer;

/// How long windlass looks for an audit after the attempt has ended.
const AUDIT_PATIENCE: Duration = Duration::from_secs(5);

/// How long windlass retries a read that the API server refuses.
const READ_PATIENCE: Duration = Duration::from_secs(60);

/// How long the watch may take to see an object that exists.
const WATCH_PATIENCE: Duration = Duration::from_secs(60);

/// The most members of a change that are followed. Further members are counted as omitted.
const MAX_MEMBERS: usize = 20_000;

/// How many failures are read in one pass.
const MAX_FAILURES_READ: usize = 32;

/// The longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1_000;

/// A member of a change: an applier that the change affects.
#[derive(Debug, Clone)]
struct Member {
    state: MemberState,
    /// The generation of the spec that another member applied. `None` if the member itself uses the source.
    child: Option<i64>,
    /// When the member was found.
    known: Instant,
    /// Why the member failed or went back. `None` for a member of another namespace, which is not named.
    failure: Option<String>,
}

/// Whether a member failed or went back.
const fn is_unwell(state: MemberState) -> bool {
    matches!(state, MemberState::Failed | MemberState::RolledBack)
}

/// The state of the search for a Kustomization's audit.
#[derive(Debug, Clone)]
enum AuditLookup {
    /// The audit has been searched for since this time.
    Pending(Instant),
    /// The audit was found, or there is none.
    Done {
        /// Whether the revision changed any object.
        has_changed: bool,
    },
    /// The audit could not be read.
    Unreadable,
}

/// A change that is followed.
pub(crate) struct FollowedChange {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) spec: ChangeSetSpec,
    /// When the source got the revision.
    pub(crate) since: Time,
    members: BTreeMap<ObjectKey, Member>,
    unchanged: BTreeSet<ObjectKey>,
    /// Kustomizations that are known to have another build because of the revision.
    changed: BTreeSet<ObjectKey>,
    audits: BTreeMap<ObjectKey, AuditLookup>,
    /// Children whose generation was not read yet, with the time of the first try.
    unread: BTreeMap<ObjectKey, Instant>,
    /// Whether some children may be missing.
    is_incomplete: bool,
    closed: Option<Time>,
    /// Whether all members in the namespace of the source are known.
    is_own_namespace_closed: bool,
    progressed: Time,
    verdict: ChangeVerdict,
    pub(crate) is_superseded: bool,
    /// The members that a requested rollback left as they are. `None` if it was not carried out.
    pub(crate) left_by_rollback: Option<Vec<String>>,
    /// When the rollback was carried out.
    rolled_back_at: Option<Time>,
    /// The states of members before this process started, from the lines in the ChangeSet.
    earlier: BTreeMap<String, MemberState>,
    /// How many members are not followed.
    dropped: usize,
    /// Whether the ChangeSet has the current verdict.
    pub(crate) is_written: bool,
    /// Whether the API server rejected the last write.
    pub(crate) is_rejected: bool,
}

fn of_status(verdict: ChangeSetVerdict) -> ChangeVerdict {
    match verdict {
        ChangeSetVerdict::Progressing => ChangeVerdict::Progressing,
        ChangeSetVerdict::Succeeded => ChangeVerdict::Succeeded,
        ChangeSetVerdict::Failed => ChangeVerdict::Failed,
        ChangeSetVerdict::Superseded => ChangeVerdict::Superseded,
        ChangeSetVerdict::RolledBack => ChangeVerdict::RolledBack,
        ChangeSetVerdict::Stalled => ChangeVerdict::Stalled,
    }
}

fn as_status(verdict: ChangeVerdict) -> ChangeSetVerdict {
    match verdict {
        ChangeVerdict::Progressing => ChangeSetVerdict::Progressing,
        ChangeVerdict::Succeeded => ChangeSetVerdict::Succeeded,
        ChangeVerdict::Failed => ChangeSetVerdict::Failed,
        ChangeVerdict::Superseded => ChangeSetVerdict::Superseded,
        ChangeVerdict::RolledBack => ChangeSetVerdict::RolledBack,
        ChangeVerdict::Stalled => ChangeSetVerdict::Stalled,
    }
}

impl FollowedChange {
    /// A new change, or one that an earlier process began. In the second case, `status` has its progress.
    pub(crate) fn new(
        namespace: &str,
        name: &str,
        spec: ChangeSetSpec,
        status: Option<&ChangeSetStatus>,
        since: Time,
    ) -> Self {
        let lines = status.into_iter().flat_map(|it| &it.members);
        let read = lines.filter_map(|line| change_set_member_lines::read(line));
        let earlier = read.map(|it| (it.subject.to_owned(), it.state)).collect();
        let progressed = status.and_then(|it| it.progressed_at.as_ref()).map(|it| it.0);
        // The verdict does not show that. A member may have rolled back by itself before the user's request.
        let rolled_back_at = status.and_then(|it| it.rolled_back_at.as_ref()).map(|it| it.0);
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            spec,
            since,
            members: BTreeMap::new(),
            unchanged: BTreeSet::new(),
            changed: BTreeSet::new(),
            audits: BTreeMap::new(),
            unread: BTreeMap::new(),
            is_incomplete: false,
            closed: None,
            is_own_namespace_closed: false,
            progressed: progressed.unwrap_or(since),
            verdict: status.map_or(ChangeVerdict::Progressing, |it| of_status(it.verdict)),
            is_superseded: false,
            left_by_rollback: status
                .filter(|_| rolled_back_at.is_some())
                .map(|it| it.not_rolled_back.clone()),
            rolled_back_at,
            earlier,
            dropped: 0,
            is_written: status.is_some(),
            is_rejected: false,
        }
    }

    /// The verdict of the last judgement.
    pub(crate) fn verdict(&self) -> ChangeVerdict {
        self.verdict
    }

    /// Whether nothing will change any more without a user or another revision.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_written
            && matches!(self.verdict, ChangeVerdict::Succeeded | ChangeVerdict::Superseded)
    }

    /// Whether all members in the namespace of the source are known. Those of other namespaces need not be.
    pub(crate) fn is_own_namespace_closed(&self) -> bool {
        self.is_own_namespace_closed
    }

    /// Ends a member that has the earlier result, because it did not begin and cannot.
    pub(crate) fn end_without_attempt(&mut self, key: ObjectKey, now: Time) {
        self.put(key, MemberState::RolledBack, None, now);
    }

    /// Notes that a requested rollback was carried out, and that these members stay as they are.
    pub(crate) fn rolled_back(&mut self, left: Vec<String>, now: Time) {
        self.left_by_rollback = Some(left);
        self.rolled_back_at = Some(now);
    }

    /// Whether a Kustomization is known to have another build because of the revision. For the first change of a source, that
    /// is not known of all members, nor after a restart without audits.
    pub(crate) fn is_known_to_change(&self, key: &ObjectKey) -> bool {
        self.changed.contains(key)
    }

    /// The state of an applier in this change. `None` if it is no member.
    pub(crate) fn state_of(&self, key: &ObjectKey) -> Option<MemberState> {
        self.members.get(key).map(|it| it.state)
    }

    /// The members that are still under way, as `[kind, namespace, name]`.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = [String; 3]> {
        let under_way = self.members.iter().filter(|(_, it)| !it.state.has_ended());
        under_way.map(|(key, _)| [key.kind.clone(), key.namespace.clone(), key.name.clone()])
    }

    /// Updates the states of members. Returns the Kustomizations whose audits must be read.
    pub(crate) fn observe(
        &mut self,
        context: &RunContext,
        consumers: &[SourceConsumer],
        builds: &BTreeMap<String, NewestAndPreviousBuild>,
        now: Time,
    ) -> Vec<SourceConsumer> {
        let mut asked = Vec::new();
        let mut seen = BTreeSet::new();
        self.dropped = 0;
        for consumer in consumers {
            let key = consumer.key();
            let is_known = self.members.contains_key(&key) || self.unchanged.contains(&key);
            if self.closed.is_some() && !is_known {
                continue;
            }
            if !is_known && self.members.len() >= MAX_MEMBERS {
                self.dropped += 1;
                continue;
            }
            seen.insert(key.clone());
            let earlier = self.earlier_state(&key);
            let state = consumer.state(context, &self.spec.revision, earlier, now);
            let (is_asked, has_changed) = self.change(context, consumer, &key, builds, state);
            if is_asked {
                asked.push(consumer.clone());
            }
            if has_changed {
                self.unchanged.remove(&key);
                self.put(key, state, None, now);
            } else {
                self.members.remove(&key);
                self.unchanged.insert(key);
            }
        }
        // An applier that was deleted or uses another source now is no longer a member.
        self.members.retain(|key, it| it.child.is_some() || seen.contains(key));
        self.unchanged.retain(|key| seen.contains(key));
        self.observe_children(context, now);
        self.remember_failures(context);
        self.close(asked.is_empty(), now);
        asked
    }

    /// Notes whether all members are known. `are_audits_read` says whether no audit is awaited.
    fn close(&mut self, are_audits_read: bool, now: Time) {
        let is_read = are_audits_read && self.unread.is_empty();
        if self.closed.is_none() && is_read && self.has_ended(|_| true) {
            self.closed = Some(now);
        }
        self.is_own_namespace_closed = self.closed.is_some()
            || is_read && self.has_ended(|key| key.namespace == self.namespace);
    }

    /// Whether those of these members that use the source themselves have ended.
    fn has_ended(&self, of: impl Fn(&ObjectKey) -> bool) -> bool {
        let mut members = self.members.iter().filter(|(key, _)| of(key));
        members.all(|(_, it)| it.child.is_some() || it.state.has_ended())
    }

    /// The earlier state of a member of the change, also from the lines that an earlier process wrote. `None` if it has none.
    fn before(&self, key: &ObjectKey) -> Option<MemberState> {
        let earlier = || {
            let subject = change_set_member_lines::subject_of(&key.group, &key.kind, &key.name)?;
            self.earlier.get(&subject).filter(|_| key.namespace == self.namespace).copied()
        };
        self.members.get(key).map(|it| it.state).or_else(earlier)
    }

    fn earlier_state(&self, key: &ObjectKey) -> EarlierMemberState {
        let age = self.members.get(key).map_or(Duration::ZERO, |it| it.known.elapsed());
        EarlierMemberState { state: self.before(key), age }
    }

    fn put(&mut self, key: ObjectKey, state: MemberState, child: Option<i64>, now: Time) {
        let before = self.members.remove(&key);
        if state.has_ended() && before.as_ref().is_some_and(|it| !it.state.has_ended()) {
            self.progressed = now;
        }
        let known = before.as_ref().map_or_else(Instant::now, |it| it.known);
        let failure = before.and_then(|it| it.failure).filter(|_| is_unwell(state));
        self.members.insert(key, Member { state, child, known, failure });
    }

    /// Remembers why members failed. While a member is retried, its status does not show that, and the verdict may come then.
    fn remember_failures(&mut self, context: &RunContext) {
        let Self { members, namespace, spec, .. } = self;
        let unknown = members.iter_mut().filter(|(key, it)| {
            key.namespace == *namespace && is_unwell(it.state) && it.failure.is_none()
        });
        for (key, member) in unknown.take(MAX_FAILURES_READ) {
            member.failure = seen_cause(context, key, &spec.revision);
        }
    }

    /// Why a member failed, as it was first seen. `None` if that was not seen.
    pub(crate) fn remembered_failure(&self, key: &ObjectKey) -> Option<&str> {
        self.members.get(key)?.failure.as_deref()
    }

    /// Two facts about an applier of the source: whether its audits must be read, and whether it counts as a member. It counts
    /// as long as it has not ended.
    fn change(
        &mut self,
        context: &RunContext,
        consumer: &SourceConsumer,
        key: &ObjectKey,
        builds: &BTreeMap<String, NewestAndPreviousBuild>,
        state: MemberState,
    ) -> (bool, bool) {
        let SourceConsumer::Kustomization(object) = consumer else { return (false, true) };
        if !state.has_ended() || state == MemberState::Skipped {
            return (false, true);
        }
        let followed = object.uid().and_then(|uid| builds.get(&uid));
        let change = followed.map_or(BuildChange::Unknown, |it| it.change(&self.spec.revision));
        // Before the first recorded change, the earlier build is not known.
        let is_first = self.spec.sequence <= 1;
        let is_unknown = change == BuildChange::Unknown && !is_first;
        if change == BuildChange::Unchanged {
            return (false, false);
        }
        let is_audited =
            matches!(self.audits.get(key), Some(AuditLookup::Done { has_changed: true }));
        if change == BuildChange::Changed || is_audited {
            self.changed.insert(key.clone());
        }
        if !context.settings.release_audits || !(is_unknown || has_appliers(object)) {
            return (false, true);
        }
        match self.audits.get(key) {
            Some(AuditLookup::Done { has_changed }) => {
                (false, !is_unknown || *has_changed || state != MemberState::Succeeded)
            }
            Some(AuditLookup::Pending(_)) => (true, true),
            Some(AuditLookup::Unreadable) => (false, true),
            None => {
                self.audits.insert(key.clone(), AuditLookup::Pending(Instant::now()));
                (true, true)
            }
        }
    }

    /// Adds the result of reading a Kustomization's audits.
    pub(crate) fn audited(&mut self, key: &ObjectKey, found: &AppliedChanges) {
        let Some(AuditLookup::Pending(since)) = self.audits.get(key) else { return };
        // Without an audit, the attempt may have changed nothing. Or the API server has not stored the audit yet.
        if !found.is_audited && since.elapsed() < AUDIT_PATIENCE {
            return;
        }
        self.is_incomplete |= found.is_incomplete;
        let has_changed = found.is_audited;
        self.audits.insert(key.clone(), AuditLookup::Done { has_changed });
        for child in &found.children {
            let is_known = self.members.contains_key(child) || self.unchanged.contains(child);
            if !is_known && self.members.len() + self.unread.len() < MAX_MEMBERS {
                self.unread.entry(child.clone()).or_insert_with(Instant::now);
            }
        }
    }

    /// Notes that audits could not be read. After a while the change continues without them and is marked as incomplete,
    /// because it would otherwise never have a verdict.
    pub(crate) fn audit_failed(&mut self, key: &ObjectKey) {
        let Some(AuditLookup::Pending(since)) = self.audits.get(key) else { return };
        if since.elapsed() >= READ_PATIENCE {
            self.is_incomplete = true;
            self.audits.insert(key.clone(), AuditLookup::Unreadable);
        }
    }

    /// Notes that the generation of a child could not be read. After a while the change continues without it.
    pub(crate) fn generation_failed(&mut self, key: &ObjectKey) {
        if self.unread.get(key).is_some_and(|since| since.elapsed() >= READ_PATIENCE) {
            self.is_incomplete = true;
            self.unread.remove(key);
        }
    }

    /// The children whose generation must be read.
    pub(crate) fn unread(&self) -> Vec<ObjectKey> {
        self.unread.keys().cloned().collect()
    }

    /// Adds a child with its generation. `None` if the child no longer exists.
    pub(crate) fn generation_read(&mut self, key: &ObjectKey, generation: Option<i64>, now: Time) {
        self.unread.remove(key);
        if let Some(generation) = generation {
            let state = self.before(key).unwrap_or(MemberState::Progressing);
            self.put(key.clone(), state, Some(generation), now);
        }
    }

    fn observe_children(&mut self, context: &RunContext, now: Time) {
        let children: Vec<(ObjectKey, i64)> =
            self.members.iter().filter_map(|(key, it)| Some((key.clone(), it.child?))).collect();
        for (key, generation) in children {
            let Some(member) = self.members.get(&key) else { continue };
            match child_state(context, &key, generation, now) {
                Some(observed) => {
                    let state = member.state.after(observed);
                    self.put(key, state, Some(generation), now);
                }
                None if member.known.elapsed() >= WATCH_PATIENCE => {
                    self.members.remove(&key);
                }
                None => {}
            }
        }
    }

    /// The member counts for the namespace of the source, and for all other namespaces.
    fn counts(&self) -> [MemberCounts; 2] {
        let mut counts = [MemberCounts::default(); 2];
        let [own, others] = &mut counts;
        for (key, member) in &self.members {
            let count = if key.namespace == self.namespace { &mut *own } else { &mut *others };
            count.add(member.state);
        }
        counts
    }

    /// The members in the namespace of the source.
    fn listed(&self) -> Vec<ChangeSetMember> {
        let own = self.members.iter().filter(|(key, _)| key.namespace == self.namespace);
        own.filter_map(|(key, member)| listed_member(key, member)).collect()
    }

    /// The members in the namespace of the source that failed or went back, in the order in which they are listed.
    pub(crate) fn unwell(&self) -> Vec<&ObjectKey> {
        let own = self.members.iter().filter(|(key, _)| key.namespace == self.namespace);
        let mut unwell: Vec<_> = own.filter(|(_, member)| is_unwell(member.state)).collect();
        unwell.sort_by_cached_key(|(key, member)| listed_member(key, member));
        unwell.into_iter().map(|(key, _)| key).collect()
    }

    /// Judges the change, and returns its verdict.
    pub(crate) fn judge(&mut self, now: Time) -> ChangeVerdict {
        let [own, others] = self.counts();
        let change = ChangeVerdictFacts {
            counts: own.and(&others),
            is_closed: self.closed.is_some(),
            is_superseded: self.is_superseded,
            is_rolled_back: self.left_by_rollback.is_some(),
            progressed: self.progressed,
            before: self.verdict,
        };
        self.verdict = change_verdict::verdict(&change, now);
        self.verdict
    }

    /// The command that rolls the change back. `None` if no member failed or stalled, or a user has already requested the
    /// rollback.
    pub(crate) fn way_back(&self) -> Option<String> {
        let [own, others] = self.counts();
        let is_unwell = match self.verdict {
            ChangeVerdict::Failed | ChangeVerdict::Stalled => true,
            // Some members rolled back by themselves, and others failed.
            ChangeVerdict::RolledBack => own.and(&others).failed > 0,
            ChangeVerdict::Progressing | ChangeVerdict::Succeeded | ChangeVerdict::Superseded => {
                false
            }
        };
        if !is_unwell || self.rolled_back_at.is_some() {
            return None;
        }
        changes::rollback_command(&self.name, &self.namespace, self.spec.sequence)
    }

    /// The verdict as a sentence for users.
    pub(crate) fn message(&self) -> String {
        let [own, others] = self.counts();
        let mut unwell = self.listed();
        unwell.retain(|it| {
            is_unwell(it.state) || self.verdict == ChangeVerdict::Stalled && !it.state.has_ended()
        });
        unwell.sort();
        let named: Vec<String> = unwell.iter().map(ChangeSetMember::subject).collect();
        let mut said = change_verdict::sentence(&own.and(&others), self.unchanged.len(), &named);
        if self.is_incomplete {
            said.push_str(
                "; an audit could not be read, or does not list all objects, so that members may be missing",
            );
        }
        let left = self.left_by_rollback.as_ref().map_or(0, Vec::len);
        if left > 0 {
            said.push_str(&format!("; {left} not rolled back, see status.notRolledBack"));
        }
        said.truncate(said.floor_char_boundary(MAX_MESSAGE_BYTES));
        said
    }

    /// The status as a patch. It has all fields except those that users write.
    pub(crate) fn status(&self) -> Value {
        let [own, others] = self.counts();
        let (lines, omitted) = change_set_member_lines::lines(self.listed());
        let others = (others.total() > 0).then(|| counts_of(&others));
        json!({
            "verdict": as_status(self.verdict),
            "message": self.message(),
            "members": lines,
            "omitted": omitted + self.dropped,
            "counts": written(&counts_of(&own)),
            "otherNamespaces": others.as_ref().map(written),
            "unchanged": self.unchanged.len(),
            "closedAt": self.closed.map(When),
            "progressedAt": When(self.progressed),
            "rolledBackAt": self.rolled_back_at.map(When),
            "notRolledBack": self.left_by_rollback.clone().unwrap_or_default(),
        })
    }

    /// Whether a ChangeSet is about this change.
    pub(crate) fn is(&self, object: &ChangeSet) -> bool {
        object.spec == self.spec && object.name_any() == self.name
    }
}

/// A member as its line lists it. `None` for a kind that is never a member.
fn listed_member(key: &ObjectKey, member: &Member) -> Option<ChangeSetMember> {
    Some(ChangeSetMember {
        state: member.state,
        is_child: member.child.is_some(),
        kind: MemberKind::of(&key.group, &key.kind)?,
        name: key.name.clone(),
    })
}

/// The counts with every field, because a patch leaves omitted fields unchanged.
fn written(counts: &ChangeSetCounts) -> Value {
    json!({
        "members": counts.members,
        "progressing": counts.progressing,
        "waiting": counts.waiting,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "skipped": counts.skipped,
        "rolledBack": counts.rolled_back,
    })
}

fn counts_of(counts: &MemberCounts) -> ChangeSetCounts {
    let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    ChangeSetCounts {
        members: number(counts.total()),
        progressing: number(counts.progressing),
        waiting: number(counts.waiting),
        succeeded: number(counts.succeeded),
        failed: number(counts.failed),
        skipped: number(counts.skipped),
        rolled_back: number(counts.rolled_back),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_failed_come_before_those_that_went_back_and_other_namespaces_are_not_named() {
        let spec = ChangeSetSpec::default();
        let mut change = FollowedChange::new("shop", "fleet-2-x", spec, None, Time::UNIX_EPOCH);
        let group = "kustomize.toolkit.fluxcd.io";
        for (namespace, name, state, child) in [
            ("shop", "a-child", MemberState::Failed, Some(2)),
            ("shop", "a-good-one", MemberState::Succeeded, None),
            ("shop", "a-pinned-one", MemberState::RolledBack, None),
            ("shop", "web", MemberState::Failed, None),
            ("another", "a", MemberState::Failed, None),
        ] {
            let key = ObjectKey::new(group, "Kustomization", namespace, name);
            change.put(key, state, child, Time::UNIX_EPOCH);
        }
        let unwell: Vec<&str> = change.unwell().into_iter().map(|it| it.name.as_str()).collect();
        assert_eq!(unwell, ["web", "a-child", "a-pinned-one"]);
    }

    #[test]
    fn members_of_other_namespaces_do_not_keep_the_own_namespace_open() {
        let spec = ChangeSetSpec::default();
        let mut change = FollowedChange::new("shop", "fleet-2-x", spec, None, Time::UNIX_EPOCH);
        let key = |namespace: &str, name: &str| {
            ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", namespace, name)
        };
        change.put(key("shop", "web"), MemberState::Failed, None, Time::UNIX_EPOCH);
        change.put(key("another", "a"), MemberState::Waiting, None, Time::UNIX_EPOCH);
        change.close(false, Time::UNIX_EPOCH);
        assert!(!change.is_own_namespace_closed(), "an audit may name children");
        change.close(true, Time::UNIX_EPOCH);
        assert!(change.is_own_namespace_closed() && change.closed.is_none());
        change.put(key("shop", "api"), MemberState::Waiting, None, Time::UNIX_EPOCH);
        change.close(true, Time::UNIX_EPOCH);
        assert!(!change.is_own_namespace_closed());
        change.end_without_attempt(key("shop", "api"), Time::UNIX_EPOCH);
        change.put(key("another", "a"), MemberState::Succeeded, None, Time::UNIX_EPOCH);
        change.close(true, Time::UNIX_EPOCH);
        assert!(change.closed.is_some());
    }

    #[test]
    fn a_failure_is_remembered_while_the_member_is_retried_and_until_it_succeeds() {
        let spec = ChangeSetSpec::default();
        let mut change = FollowedChange::new("shop", "fleet-2-x", spec, None, Time::UNIX_EPOCH);
        let key = ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "web");
        change.put(key.clone(), MemberState::Failed, None, Time::UNIX_EPOCH);
        assert_eq!(change.remembered_failure(&key), None);
        change.members.get_mut(&key).unwrap().failure = Some("it crashes".to_owned());
        for state in [MemberState::Failed, MemberState::RolledBack] {
            change.put(key.clone(), state, None, Time::UNIX_EPOCH);
            assert_eq!(change.remembered_failure(&key), Some("it crashes"), "{state:?}");
        }
        change.put(key.clone(), MemberState::Succeeded, None, Time::UNIX_EPOCH);
        assert_eq!(change.remembered_failure(&key), None);
    }
}
