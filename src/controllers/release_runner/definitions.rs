//! CustomResourceDefinitions of a release: those of `crds/` and those among its objects, as the guard lets them be.
//!
//! Here, too: waiting until a kind is served. Elsewhere: the guard itself (`crd_guard`), writing (`prepare`, `write`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use objects::{Object, ObjectId};
use reconcile::{RemovalPermit, Rest, Wake, reason};
use release::{Action, Record};
use serde_json::Value;
use tokio::time::Instant;

use super::executor::ReleaseExecutor;
use super::manifest_objects::{self, Member};
use super::{MANAGER, Owner};
use crate::controllers::crd_guard::claims::Mark;
use crate::controllers::crd_guard::{self, Guard, ManifestPermission, Removal};
use windlass_cluster::events::{Event, Severity};
use windlass_cluster::{Cluster, ClusterError};

/// How often it is observed whether a kind is served.
const DISCOVERY_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Why a kind is not served.
#[derive(Debug)]
pub(crate) enum EstablishError {
    /// It takes too long; says of which definition.
    TimedOut(String),
    /// The API server's refusal, or no answer.
    Cluster(ClusterError),
}

impl From<ClusterError> for EstablishError {
    fn from(error: ClusterError) -> Self {
        Self::Cluster(error)
    }
}

/// Waits until the kind of a definition is served.
///
/// # Errors
/// It is not by then, or the API server could not be asked.
pub(crate) async fn established(
    cluster: &Cluster,
    definition: &Object,
    until: Instant,
) -> Result<(), EstablishError> {
    let name = definition.name();
    let began = Instant::now();
    let group = name.split_once('.').map_or("", |(_, group)| group);
    loop {
        let resource = cluster.resource(&definition.gvk()).await?;
        let live = cluster.get(&resource, "", name).await?;
        let conditions = live.as_ref().and_then(|it| it.get("status")?.get("conditions"));
        let is_established = conditions.and_then(Value::as_array).is_some_and(|all| {
            all.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
        });
        if is_established {
            cluster.forget_group(group);
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(EstablishError::TimedOut(format!(
                "CustomResourceDefinition {name} is not established after {} s",
                began.elapsed().as_secs()
            )));
        }
        tokio::time::sleep(DISCOVERY_POLL_INTERVAL).await;
    }
}

impl<O: Owner> ReleaseExecutor<O> {
    pub(super) fn guard(&self) -> Guard<'_> {
        Guard::new(&self.context, &self.target, &self.node.namespace)
    }

    /// What may be done with each definition among some objects, in their order.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn guarded<'m>(
        &self,
        objects: impl Iterator<Item = &'m Object>,
    ) -> Result<Vec<(ObjectId, ManifestPermission)>, Rest> {
        let mut all = Vec::new();
        for object in objects.filter(|it| crd_guard::is_definition(it)) {
            let guard = self.guard();
            let change = self.permit.aside(guard.change(object, MANAGER)).await;
            all.push((object.id(), change.map_err(|error| self.no_answer(&error))?));
        }
        Ok(all)
    }

    /// Why a hook that is a definition is not created.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn refused_hook(&self, hook: &Object) -> Result<Option<String>, Rest> {
        let change = self.guarded([hook].into_iter()).await?.pop();
        Ok(change.and_then(|(id, change)| match change {
            ManifestPermission::Allowed | ManifestPermission::Migrates => None,
            ManifestPermission::Skipped => {
                let subject = id.subject();
                Some(format!(
                    "{subject} is a hook, which `windlass.dev/crd-policy: Skip` does not exclude"
                ))
            }
            ManifestPermission::Refused(text) => Some(text),
        }))
    }

    /// Lets a release be made only if all of its definitions may be; the names of those that are to stay as they are.
    ///
    /// # Errors
    /// That one may not be written: then nothing of the release is.
    pub(super) async fn admitted<'m>(
        &self,
        objects: impl Iterator<Item = &'m Object>,
    ) -> Result<BTreeSet<ObjectId>, Rest> {
        let mut skipped = BTreeSet::new();
        let mut refused = Vec::new();
        for (id, change) in self.guarded(objects).await? {
            match change {
                ManifestPermission::Allowed | ManifestPermission::Migrates => {}
                ManifestPermission::Skipped => {
                    skipped.insert(id);
                }
                ManifestPermission::Refused(text) => refused.push(self.wish.masked(&text)),
            }
        }
        if refused.is_empty() {
            return Ok(skipped);
        }
        let wake = Wake::at(self.soon_again());
        Err(Rest::Failed(reason::CRD_INCOMPATIBLE, refused.join("\n"), wake))
    }

    /// The definitions of a revision that are to stay as they are, and why an operation fails that makes a new revision.
    ///
    /// A rollback applies the rest of the old revision all the same: a definition that would break objects stays, and an
    /// event says so.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn left_alone(
        &self,
        members: &[Member],
        action: Action,
    ) -> Result<(BTreeSet<ObjectId>, Option<String>), Rest> {
        let mut all = BTreeSet::new();
        for (id, change) in self.guarded(members.iter().map(|it| &it.object)).await? {
            let refused = match change {
                // One that is forced may drop a version, too.
                ManifestPermission::Allowed | ManifestPermission::Migrates => {
                    self.moved(members, &id).await?
                }
                ManifestPermission::Skipped => {
                    all.insert(id);
                    continue;
                }
                ManifestPermission::Refused(text) => Some(text),
            };
            let Some(text) = refused else { continue };
            if matches!(action, Action::Install | Action::Upgrade) {
                return Ok((all, Some(self.wish.masked(&text))));
            }
            self.tell_of(reason::CRD_INCOMPATIBLE, Severity::Error, &text);
            all.insert(id);
        }
        Ok((all, None))
    }

    /// Whether a definition is to stay as it is, because it would not fit the objects that exist: a rollback has left it, which
    /// is no drift.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn is_left_alone(&self, manifest: &Object) -> Result<bool, ClusterError> {
        let guard = self.guard();
        let change = self.permit.aside(guard.change(manifest, MANAGER)).await?;
        Ok(matches!(change, ManifestPermission::Refused(_)))
    }

    /// Moves the objects of a definition out of versions that go; why that cannot be done.
    async fn moved(&self, members: &[Member], id: &ObjectId) -> Result<Option<String>, Rest> {
        let Some(member) = members.iter().find(|it| it.id == *id) else { return Ok(None) };
        self.migrated(&member.object).await
    }

    /// The same for a manifest.
    pub(super) async fn migrated(&self, manifest: &Object) -> Result<Option<String>, Rest> {
        let guard = self.guard();
        match self.permit.aside(guard.migrate(manifest, MANAGER)).await {
            Ok(()) => Ok(None),
            Err(error) => error.refusal().map(Some).map_err(|error| self.no_answer(&error)),
        }
    }

    /// Deletes a definition that left the release, or releases it if it is still used.
    ///
    /// # Errors
    /// The API server's refusal.
    pub(super) async fn remove_definition(
        &self,
        permit: RemovalPermit,
        live: &Object,
        record: &Record,
        propagation: &str,
    ) -> Result<(), ClusterError> {
        let whole = self.node.whole();
        let mine = [
            Mark::label(O::OWNERSHIP.name, &whole.name),
            Mark::label(O::OWNERSHIP.namespace, &self.node.namespace),
            Mark::label(manifest_objects::MANAGED_BY.0, manifest_objects::MANAGED_BY.1),
            Mark::annotation(manifest_objects::RELEASE_NAME, &record.name),
            Mark::annotation(manifest_objects::RELEASE_NAMESPACE, &record.namespace),
        ];
        let guard = self.guard();
        if self.comes_with_the_chart(live.name()) {
            // It is no object of the release any more, and the owner keeps it.
            return guard.unmark(live, MANAGER, &mine[2..]).await;
        }
        let removal = guard.remove(permit, live, MANAGER, &mine, propagation);
        let (why, text) = match self.permit.aside(removal).await? {
            Removal::Deleted => return Ok(()),
            Removal::Exported(text) => (reason::CRD_EXPORTED, text),
            Removal::Released(text) => (reason::CRD_RELEASED, text),
        };
        self.tell_of(why, Severity::Info, &text);
        Ok(())
    }

    /// Whether a definition is one of `crds/` now: a chart that moved it there has not given it up.
    fn comes_with_the_chart(&self, name: &str) -> bool {
        let chart = self.wish.chart.as_ref().map(|loaded| &loaded.chart);
        chart.map(helm::chart::crds).unwrap_or_default().iter().any(|file| {
            let text = String::from_utf8_lossy(&file.file.data);
            let all = manifest_objects::read(&text).unwrap_or_default();
            all.iter().any(|it| crd_guard::is_definition(it) && it.name() == name)
        })
    }

    fn tell_of(&self, why: reconcile::Reason, severity: Severity, text: &str) {
        self.owner.announce(Event {
            severity,
            reason: why.as_str().to_owned(),
            message: self.wish.masked(text),
            metadata: BTreeMap::new(),
        });
    }
}
