//! Objects in the inventory of one applier that another one has taken over or applies, too. The applier is ready, but
//! the objects are not as it applied them.
//!
//! Elsewhere: the owners that an object names (`object_owners.rs`), the health of applied objects
//! (`applied_objects.rs`), and advice (`advice/ownership.rs`).

use std::collections::BTreeSet;

use apply::dry_run_refusal;
use objects::{Object, ObjectId};

use crate::cause_result::{CauseKind, RootCause};
use crate::cause_walk::{
    CausePath, CauseWalk, ObjectLookup, ResultOrFactQueries, below, cause, step_of,
};
use crate::condition::condition;
use crate::fact_query::{FactAnswer, FactQuery};
use crate::object_owners::{ExpectedOwnerMetadata, OtherOwner};
use crate::object_references;
use crate::object_suspension::suspension;

/// How many objects that a refusal may name are read.
const MOST_NAMED: usize = 32;

/// An object of an inventory, with the other owner that it names.
struct TakenOverObject {
    id: ObjectId,
    other: OtherOwner,
}

impl CauseWalk<'_> {
    /// The first object of an inventory that belongs to another owner, among the objects that were read. A suspended
    /// applier has no such object, because its objects may be on their way to another owner.
    pub(crate) fn taken(&mut self, object: &Object) -> ResultOrFactQueries<Option<CausePath>> {
        if !self.is_explaining || suspension(object, self.now()).is_some() {
            return Ok(None);
        }
        let Some(marks) = ExpectedOwnerMetadata::of(object) else { return Ok(None) };
        let mut named = Vec::new();
        for id in object_references::inventory(object) {
            let Some(live) = self.read_already(&id) else { continue };
            let others = marks.others(live).into_iter();
            named.extend(others.map(|other| TakenOverObject { id: id.clone(), other }));
        }
        let owners: BTreeSet<ObjectId> =
            named.iter().filter_map(|it| it.other.applier().cloned()).collect();
        self.ask(owners.into_iter().map(FactQuery::Object))?;
        let mut taken: Vec<TakenOverObject> = Vec::new();
        for it in named {
            if self.is_confirmed(&it)? {
                taken.push(it);
            }
        }
        let Some(TakenOverObject { id, other }) = taken.first() else { return Ok(None) };
        let is_same = |it: &&TakenOverObject| it.other.owner == other.owner && it.id != *id;
        let more = match taken.iter().filter(is_same).count() {
            0 => String::new(),
            1 => ", and so does 1 more object".to_owned(),
            more => format!(", and so do {more} more objects"),
        };
        let text = format!("{} {}{more}", id.subject(), other.words());
        let cause = cause(id, CauseKind::Ownership, &text, None);
        Ok(Some(CausePath { steps: Vec::new(), cause }))
    }

    /// Returns the second cause, if there is one. Otherwise it is an applied object that another owner has, with the
    /// applier as a step of the path.
    pub(crate) fn or_taken(
        &mut self,
        object: &Object,
        first: &RootCause,
        second: Option<CausePath>,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        if second.is_some() {
            return Ok(second);
        }
        let Some(said) = condition(object, "Ready") else { return Ok(None) };
        let taken = self.taken(object)?.filter(|it| it.cause.object != first.object);
        Ok(taken.map(|found| below(Some(step_of(object, said)), found)))
    }

    /// Adds to a refusal the owner of the object that it names, so that the explanation points to both. No decision
    /// depends on it.
    pub(crate) fn with_owner(
        &mut self,
        object: &Object,
        refusal: RootCause,
    ) -> ResultOrFactQueries<RootCause> {
        if !self.is_explaining || refusal.problem != CauseKind::Apply {
            return Ok(refusal);
        }
        let Some(marks) = ExpectedOwnerMetadata::of(object) else { return Ok(refusal) };
        let inventory = object_references::inventory(object).into_iter();
        let named = inventory.filter(|id| is_named(&refusal.text, id)).take(MOST_NAMED);
        let named: Vec<ObjectId> = named.chain(refused_object(&refusal.text)).collect();
        self.ask(named.iter().cloned().map(FactQuery::Object))?;
        for id in named {
            let ObjectLookup::There(live) = self.object(&id)? else { continue };
            for other in marks.others(live).into_iter().filter(|it| !it.is_beside) {
                let taken = TakenOverObject { id: id.clone(), other };
                if self.is_confirmed(&taken)? {
                    let owner = taken.other.owner;
                    let text = format!("{}; {} belongs to {owner}", refusal.text, id.subject());
                    return Ok(RootCause { object: id, text, ..refusal });
                }
            }
        }
        Ok(refusal)
    }

    /// The object, if an earlier query has read it. `None` if it was not read or not found.
    fn read_already(&self, id: &ObjectId) -> Option<&Object> {
        match self.known.get(&FactQuery::Object(id.clone())) {
            Some(FactAnswer::Objects(found)) => found.first(),
            Some(FactAnswer::Lines(_) | FactAnswer::Refused(_)) | None => None,
        }
    }

    /// Whether the owner that an object names exists. An owner that may not be read counts as existing.
    fn is_confirmed(&mut self, taken: &TakenOverObject) -> ResultOrFactQueries<bool> {
        let TakenOverObject { id, other } = taken;
        let Some(owner) = other.applier() else { return Ok(true) };
        Ok(match self.object(owner)? {
            ObjectLookup::There(owner) => other.is_confirmed_by(owner, id),
            ObjectLookup::Absent => false,
            ObjectLookup::Hidden => !other.needs_inventory,
        })
    }
}

/// Whether a refusal names an object, in the words of Helm or Kubernetes.
fn is_named(refusal: &str, id: &ObjectId) -> bool {
    refusal.contains(&id.subject()) || (refusal.contains(&id.name) && refusal.contains(&id.kind))
}

/// The object that the message of a refused dry-run names first. `None` if it names none or if its kind has no
/// immutable fields. The inventory may lack the object, because it has objects only once they were applied.
fn refused_object(refusal: &str) -> Option<ObjectId> {
    let mut parts = dry_run_refusal::subject(refusal)?.split('/');
    let kind = parts.next()?;
    let namespace = parts.next()?;
    let name = parts.next()?;
    let group = match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" => "apps",
        "Job" => "batch",
        "Service" | "ConfigMap" | "Secret" | "PersistentVolumeClaim" => "",
        _ => return None,
    };
    Some(ObjectId::new(namespace, name, group, kind))
}
