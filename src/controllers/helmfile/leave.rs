//! Releases that leave: those that are no longer in the helmfile, all of a Helmfile that is deleted, and operations that stop
//! because the Helmfile is suspended.
//!
//! Elsewhere: releases that stay (`keep.rs`), the end of a Helmfile (`finalize.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crds::helmfile::{ReleaseRow, ReleaseState};
use kube::core::ResourceExt as _;
use objects::Gvk;
use reconcile::{Rest, Wake};
use release::storage::secret_name;

use super::keep::{Outcome, Outcomes, Run, Slots};
use super::model::Model;
use super::places::Id;
use super::plan::{Key, Planned};
use super::report::{self, is_under_way};
use super::{Session, finalize, request};
use crate::cluster::ClusterError;
use crate::controllers::lifecycle;
use crate::controllers::target::Target;

impl<K: Model> Session<K> {
    /// Uninstalls releases that are no longer in the helmfile, or gives them up: those of a cluster when all others of it are
    /// as the helmfile says, as `kept` has it. Nothing where the Helmfile changed meanwhile.
    pub(super) async fn prune(
        &self,
        planned: &Planned,
        kept: &Outcomes,
        run: &Run<'_, K>,
    ) -> Option<Outcomes> {
        let rows = run.book.rows();
        let is_left = |key: &Key| !planned.releases.iter().any(|it| it.key == *key);
        let left: Vec<Key> = rows.iter().map(Key::of).filter(is_left).collect();
        let unsettled: BTreeSet<Id<'_>> = kept
            .iter()
            .filter(|(_, it)| !it.is_kept())
            .map(|(key, _)| run.places.id(key))
            .collect();
        let (mut leaving, mut outcomes) = (Vec::new(), Outcomes::new());
        for key in left {
            let target = match run.places.of(&key) {
                Ok(target) => Some(target),
                Err(rest) if run.places.names(&key) => {
                    outcomes.insert(key.clone(), self.rests(run, &key, rest));
                    continue;
                }
                Err(_) => None,
            };
            let waits = match target {
                Some(_) => unsettled.contains(&run.places.id(&key)),
                None => !unsettled.is_empty(),
            };
            if waits {
                continue;
            }
            let goes = run.spec.prune || planned.unwanted.contains(&key);
            let elsewhere = match target.filter(|_| goes) {
                Some(target) => self.kept_elsewhere(&key, target, planned, run).await,
                None => Ok(None),
            };
            match elsewhere {
                Err(rest) => drop(outcomes.insert(key.clone(), self.rests(run, &key, rest))),
                Ok(None) if target.is_some() && goes => leaving.push(key),
                Ok(elsewhere) => {
                    run.book.remove(&key);
                    self.forget(&key);
                    let uid = run.object.uid().unwrap_or_default();
                    let release = (&*key.name, &*key.namespace, &*key.context);
                    lifecycle::dismiss_all(&self.context, &self.node.namespace, &uid, release)
                        .await;
                    let event = finalize::given_up(&key, elsewhere.as_ref(), target.is_some());
                    run.book.tell(event);
                }
            }
        }
        if !leaving.is_empty() {
            outcomes.extend(self.uninstall(&leaving, run).await?);
        }
        Some(outcomes)
    }

    /// The release of a plan that is one with a release that left it, because two contexts name one cluster.
    ///
    /// # Errors
    /// A cluster could not be asked.
    async fn kept_elsewhere(
        &self,
        key: &Key,
        target: &Target,
        planned: &Planned,
        run: &Run<'_, K>,
    ) -> Result<Option<Key>, Rest> {
        for other in planned.namesakes(key) {
            // One that cannot be used may be this very cluster, so it is waited for.
            let place = run.places.of(other)?;
            if place.place() == target.place() {
                return Ok(Some(other.clone()));
            }
            let revisions = [other, key].map(|key| run.book.row(key).and_then(|row| row.revision));
            for revision in revisions.into_iter().flatten() {
                let record = secret_name(&other.name, revision);
                let failed = |error: ClusterError| {
                    let text = format!("release {key}: unable to compare it with {other}: {error}");
                    let again = Wake::at(self.in_future(run.timeouts.retry));
                    Rest::Failed(report::RELEASE_FAILED, run.secrets.mask(&text), again)
                };
                let here = uid_of(place, &other.namespace, &record).await;
                let there = uid_of(target, &other.namespace, &record).await;
                let (here, there) = (here.map_err(failed)?, there.map_err(failed)?);
                if here.is_some() && here == there {
                    return Ok(Some(other.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Has operations that are under way come to the next place at which nothing is half done; what is not there yet is
    /// in the answer.
    pub(super) async fn stop_all(&self, run: &Run<'_, K>) -> Option<Outcomes> {
        let rows = run.book.rows();
        let open: Vec<Key> = rows.iter().filter(|row| is_under_way(row)).map(Key::of).collect();
        let mut outcomes = Outcomes::new();
        for key in open {
            // Nothing goes on where nobody can reach.
            let Ok(target) = run.places.of(&key) else { continue };
            let spec = request::spec(run.spec, &key, &request::unplanned(), run.timeouts);
            let row = run.book.row(&key);
            let made = self.wish(run, &key, spec, None, row.as_ref(), (true, false));
            let (wish, asks) = match made {
                Ok(made) => made,
                Err(rest) => {
                    outcomes.insert(key, Outcome::Rests(rest));
                    continue;
                }
            };
            let remembered = self.remembered(&key, target);
            let owner = Arc::new(self.owner(run, &key, asks));
            let rest = self.drive(run, &owner, &wish, &remembered).await?;
            if !matches!(&rest, Rest::Blocked(why, ..) if *why == reconcile::reason::SUSPENDED) {
                outcomes.insert(key, Outcome::Rests(rest));
            }
        }
        Some(outcomes)
    }

    /// Uninstalls releases, those that others need after these; nothing where the Helmfile changed meanwhile. What is not
    /// gone yet is in the answer.
    pub(super) async fn uninstall(&self, leaving: &[Key], run: &Run<'_, K>) -> Option<Outcomes> {
        for key in leaving {
            run.book.update(key, |row| row.state = ReleaseState::Uninstalling);
        }
        let mut outcomes = Outcomes::new();
        let mut left: BTreeSet<Key> = leaving.iter().cloned().collect();
        loop {
            let rows = run.book.rows();
            let needed = |key: &Key| {
                let id = key.to_string();
                let needs = |row: &&ReleaseRow| row.needs.contains(&id);
                rows.iter().filter(needs).any(|row| leaving.iter().any(|it| it.is_of(row)))
            };
            let mut slots = Slots::default();
            let ready = left.iter().filter(|key| !needed(key));
            let ready = ready.filter(|&key| slots.take(run.places.id(key)));
            let ready: Vec<Key> = ready.cloned().collect();
            if ready.is_empty() {
                let waits = |key: Key| (key, Outcome::Waits(Vec::new()));
                outcomes.extend(left.into_iter().map(waits));
                return Some(outcomes);
            }
            let gone =
                ready.iter().map(|key| async move { (key, self.uninstall_one(key, run).await) });
            for (key, rest) in futures::future::join_all(gone).await {
                left.remove(key);
                match rest? {
                    Rest::Settled(..) => {
                        run.book.remove(key);
                        self.forget(key);
                    }
                    rest => drop(outcomes.insert(key.clone(), Outcome::Rests(rest))),
                }
            }
        }
    }

    async fn uninstall_one(&self, key: &Key, run: &Run<'_, K>) -> Option<Rest> {
        let found = run.places.of(key);
        let silent = found.as_ref().ok().and_then(|target| run.silent.at(target));
        let target = match (found, silent) {
            (Ok(target), None) => target,
            (Err(rest), _) | (_, Some(rest)) => {
                self.rests(run, key, rest.clone());
                return Some(rest);
            }
        };
        let spec = request::spec(run.spec, key, &request::unplanned(), run.timeouts);
        let row = run.book.row(key);
        let made = self.wish(run, key, spec, None, row.as_ref(), (false, true));
        let (wish, asks) = match made {
            Ok(made) => made,
            Err(rest) => {
                self.rests(run, key, rest.clone());
                return Some(rest);
            }
        };
        let remembered = self.remembered(key, target);
        let owner = Arc::new(self.owner(run, key, asks));
        self.drive(run, &owner, &wish, &remembered).await
    }
}

/// The uid of the record of a revision; nothing if there is none.
async fn uid_of(
    target: &Target,
    namespace: &str,
    record: &str,
) -> Result<Option<String>, ClusterError> {
    let secrets = target.cluster.resource(&Gvk::new("v1", "Secret")).await?;
    let found = target.cluster.get(&secrets, namespace, record).await?;
    Ok(found.map(|it| it.uid().to_owned()))
}
