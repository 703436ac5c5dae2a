//! Objects that depend on each other in a cycle are one incident, whose subject is the first of them.

use std::collections::{BTreeMap, BTreeSet};

use objects::ObjectId;

use super::{ObjectFailureVerdict, RootFailure, RootFailureSearchScope};
use crate::cause_result::CauseKind;

/// For each object of a cycle: the objects on which it depends and that are in a cycle, too.
type DependencyCycleEdges<'v> = BTreeMap<&'v ObjectId, Vec<&'v ObjectId>>;

/// Gives all failures of a cycle the same subject: the first object of the cycle. This includes the failures of objects
/// that wait for the cycle.
///
/// If objects are judged within their namespace, a cycle is found within one namespace only.
pub fn join_cycles(
    verdicts: &mut BTreeMap<ObjectId, ObjectFailureVerdict>,
    reach: RootFailureSearchScope,
) {
    let of_cycle = |verdict: &ObjectFailureVerdict| {
        verdict.failure.clone().filter(|failure| failure.problem == CauseKind::Cycle)
    };
    let own: BTreeMap<ObjectId, RootFailure> = verdicts
        .iter()
        .filter_map(|(id, verdict)| Some((id.clone(), of_cycle(verdict)?)))
        .filter(|(id, failure)| failure.subject == *id)
        .collect();
    let edges: DependencyCycleEdges<'_> = own
        .iter()
        .map(|(id, failure)| {
            let is_near = |to: &&ObjectId| {
                reach == RootFailureSearchScope::All || to.namespace == id.namespace
            };
            let to = failure.cycle.iter().filter(|to| own.contains_key(*to)).filter(is_near);
            (id, to.collect())
        })
        .collect();
    let first = firsts(&edges);
    for verdict in verdicts.values_mut() {
        let Some(failure) = verdict.failure.as_mut().filter(|it| it.problem == CauseKind::Cycle)
        else {
            continue;
        };
        let joined = first.get(&failure.subject).and_then(|first| own.get(*first));
        if let Some(joined) = joined {
            failure.clone_from(joined);
        }
    }
}

/// For each object in a cycle: the first object of its cycle. `depends` has the dependencies of each object.
pub fn first_of_cycles(
    depends: &BTreeMap<ObjectId, Vec<ObjectId>>,
) -> BTreeMap<ObjectId, ObjectId> {
    let edges: DependencyCycleEdges<'_> = depends
        .iter()
        .map(|(id, to)| (id, to.iter().filter(|to| depends.contains_key(*to)).collect()))
        .collect();
    firsts(&edges).into_iter().map(|(id, first)| (id.clone(), first.clone())).collect()
}

/// For each object in a cycle: the first of the objects that it reaches and that reach it (Tarjan's algorithm, without
/// recursion).
fn firsts<'v>(edges: &DependencyCycleEdges<'v>) -> BTreeMap<&'v ObjectId, &'v ObjectId> {
    let mut first = BTreeMap::new();
    // For each object, its place in the order of visits, and the least place that it can reach.
    let mut order: BTreeMap<&ObjectId, (usize, usize)> = BTreeMap::new();
    let mut open = Vec::new();
    let mut is_open = BTreeSet::new();
    for start in edges.keys() {
        let mut way: Vec<(&ObjectId, usize)> = vec![(start, 0)];
        while let Some((at, next)) = way.pop() {
            if next == 0 {
                if order.contains_key(at) {
                    continue;
                }
                order.insert(at, (order.len(), order.len()));
                open.push(at);
                is_open.insert(at);
            }
            let to = edges.get(at).map(Vec::as_slice).unwrap_or_default();
            if let Some(reached) = next.checked_sub(1).and_then(|it| to.get(it))
                && is_open.contains(reached)
            {
                let least = order.get(reached).map_or(usize::MAX, |it| it.1);
                order.entry(at).and_modify(|it| it.1 = it.1.min(least));
            }
            if let Some(to) = to.get(next) {
                way.push((at, next + 1));
                way.push((to, 0));
                continue;
            }
            if order.get(at).is_some_and(|(own, least)| own == least) {
                let begin = open.iter().rposition(|it| *it == at).unwrap_or(open.len());
                let members: Vec<&ObjectId> = open.drain(begin..).collect();
                let least = members.iter().min().copied().unwrap_or(at);
                for member in members {
                    is_open.remove(member);
                    first.insert(member, least);
                }
            }
        }
    }
    first
}
