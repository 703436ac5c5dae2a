//! Writes of an applier that the API server did not answer. The API server may have carried them out all the same.
//!
//! If a later run finds an object as an unanswered write would have left it, it counts the write as its own change. The
//! change is thus reported and audited once. Here: the memory of these writes, which a restart loses. Elsewhere: which
//! errors leave the result open (`ClusterError::may_be_done`), and sending, observing and auditing writes (the
//! executors of each applier).

use std::collections::BTreeMap;

use objects::ObjectId;
use reconcile::Time;

use crate::Action;

/// A write without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredWrite {
    /// What the write does to the object.
    pub action: Action,
    /// The digest of the manifest that was applied, or the uid of the object that was deleted.
    pub subject: String,
    /// When the write was sent.
    pub sent: Time,
}

/// Writes without an answer, at most one for each object. [`Self::retain`] drops those of other objects.
#[derive(Debug, Default)]
pub struct UnansweredWrites(BTreeMap<ObjectId, UnansweredWrite>);

impl UnansweredWrites {
    /// Remembers a write of the object `id` that the API server has not answered. A later one replaces it.
    pub fn put(&mut self, id: &ObjectId, write: UnansweredWrite) {
        self.0.insert(id.clone(), write);
    }

    /// Takes the write that applied the manifest with this digest. The caller has found the object as that manifest
    /// describes it. Every write to the object is forgotten. `None` means that no such write was unanswered.
    pub fn take_applied(&mut self, id: &ObjectId, digest: &str) -> Option<UnansweredWrite> {
        let write = self.0.remove(id)?;
        (write.action != Action::Deleted && write.subject == digest).then_some(write)
    }

    /// Takes the deletion that removed an object. The caller has found the object gone, or the one with this `uid`
    /// being deleted. Every write to the object is forgotten. `None` means that no such deletion was unanswered.
    pub fn take_deleted(&mut self, id: &ObjectId, uid: Option<&str>) -> Option<UnansweredWrite> {
        let write = self.0.remove(id)?;
        let is_of_it = uid.is_none_or(|uid| uid == write.subject);
        (write.action == Action::Deleted && is_of_it).then_some(write)
    }

    /// Forgets the write to an object, because the object is not as that write would have left it, or because it was
    /// written again.
    pub fn forget(&mut self, id: &ObjectId) {
        self.0.remove(id);
    }

    /// Keeps only the writes to objects that `is_kept` selects.
    pub fn retain(&mut self, is_kept: impl Fn(&ObjectId) -> bool) {
        self.0.retain(|id, _| is_kept(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    fn write(action: Action, subject: &str) -> UnansweredWrite {
        UnansweredWrite { action, subject: subject.to_owned(), sent: Time::UNIX_EPOCH }
    }

    #[test]
    fn a_write_without_an_answer_is_found_once_where_its_object_is_as_it_was_to_become() {
        let mut writes = UnansweredWrites::default();
        let created = write(Action::Created, "sha256:1");
        writes.put(&id("a"), created.clone());
        assert_eq!(writes.take_applied(&id("b"), "sha256:1"), None);
        assert_eq!(writes.take_applied(&id("a"), "sha256:1"), Some(created.clone()));
        assert_eq!(writes.take_applied(&id("a"), "sha256:1"), None, "it was counted");
        // As an earlier manifest says: the write was not carried out, and never will be.
        writes.put(&id("a"), created.clone());
        assert_eq!(writes.take_applied(&id("a"), "sha256:0"), None);
        assert_eq!(writes.take_applied(&id("a"), "sha256:1"), None);
        // It was not there, or was written again.
        writes.put(&id("a"), created);
        writes.forget(&id("a"));
        assert_eq!(writes.take_applied(&id("a"), "sha256:1"), None);
    }

    #[test]
    fn a_deletion_without_an_answer_is_found_where_the_object_is_gone_or_going() {
        let mut writes = UnansweredWrites::default();
        let deleted = write(Action::Deleted, "uid-1");
        for uid in [None, Some("uid-1")] {
            writes.put(&id("a"), deleted.clone());
            assert_eq!(writes.take_deleted(&id("a"), uid), Some(deleted.clone()));
            assert_eq!(writes.take_deleted(&id("a"), uid), None);
        }
        writes.put(&id("a"), deleted.clone());
        assert_eq!(writes.take_deleted(&id("a"), Some("uid-2")), None, "another client deletes it");
        writes.put(&id("a"), deleted);
        assert_eq!(writes.take_applied(&id("a"), "uid-1"), None, "it is in the manifests again");
        writes.put(&id("a"), write(Action::Configured, "sha256:1"));
        assert_eq!(writes.take_deleted(&id("a"), None), None, "another client deleted it");
    }

    #[test]
    fn no_write_is_remembered_of_an_object_that_left() {
        let mut writes = UnansweredWrites::default();
        writes.put(&id("left"), write(Action::Configured, "sha256:1"));
        writes.put(&id("kept"), write(Action::Configured, "sha256:1"));
        writes.retain(|it| *it == id("kept"));
        assert_eq!(writes.take_applied(&id("left"), "sha256:1"), None);
        assert!(writes.take_applied(&id("kept"), "sha256:1").is_some());
    }
}
