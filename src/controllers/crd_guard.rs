//! The guard of CustomResourceDefinitions: every write and every removal of one is judged by the objects that exist.
//!
//! Here: what may be done with a definition ([`Guard`]). In the folder: what a manifest says about it (`policy`), who
//! else has a definition (`claims`), reading the objects (`survey`), moving them out of
//! versions that go (`migrate`), exporting them before they are deleted (`export`). Elsewhere: what breaks (engine `crdguard`), what
//! follows (each applier).
//!
//! Objects are read in windlass's own name, since a tenant who applies a definition may not see those of others. They are
//! named only if the applying identity may list them.

pub(crate) mod claims;
pub(crate) mod export;
mod migrate;
mod policy;
pub(crate) mod survey;

use crdguard::Verdict;
use objects::Object;
use serde_json::Value;

use self::claims::Mark;
use self::export::{Exported, Job};
use self::policy::{POLICY, Policy, REMOVAL};
use super::context::Context;
use super::target::Target;
use crate::cluster::ClusterError;
use crate::cluster::objects::Mode;
use crate::settings::CrdGuard;

/// Attempts at the release of a definition that others write at the same time.
const RELEASE_ATTEMPTS: u32 = 4;

/// Whether an object is a definition.
pub(crate) fn is_definition(object: &Object) -> bool {
    object.kind() == "CustomResourceDefinition" && object.gvk().group == "apiextensions.k8s.io"
}

/// What may be done with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It may be written.
    Allowed,
    /// It may be written after [`Guard::migrate`]; before, the API server refuses it.
    Migrates,
    /// Its author does not want it to be written.
    Skipped,
    /// It may not be written, and why.
    Refused(String),
}

/// What may be done with a live definition that is not wanted any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It may be deleted.
    Allowed,
    /// It may be deleted with its objects, which are exported; the text says how to restore them.
    Exported(String),
    /// It stays without an owner; the text names its users.
    Released(String),
}

/// Judges definitions at a target.
pub(crate) struct Guard<'a> {
    context: &'a Context,
    target: &'a Target,
}

impl<'a> Guard<'a> {
    /// At a target, for the identity that applies there.
    pub(crate) fn new(context: &'a Context, target: &'a Target) -> Self {
        Self { context, target }
    }

    fn is_off(&self) -> bool {
        self.context.settings.crd_guard == CrdGuard::Off
    }

    /// Whether a manifest is of a definition that is not written whatever it says.
    pub(crate) fn skips(&self, manifest: &Object) -> bool {
        !self.is_off() && is_definition(manifest) && Policy::of(manifest) == Ok(Policy::Skip)
    }

    /// Whether annotations that loosen the guard count.
    fn is_trusted(&self) -> bool {
        !self.target.is_impersonated() || self.context.settings.tenant_crd_force
    }

    /// Whether a manifest may be written by a field manager.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(crate) async fn change(
        &self,
        manifest: &Object,
        manager: &str,
    ) -> Result<Change, ClusterError> {
        if self.is_off() || !is_definition(manifest) {
            return Ok(Change::Allowed);
        }
        match self.changed(manifest, manager).await {
            // Such as a version of the API that is not served: the same would be said again.
            Err(error) if !error.is_of_server() => {
                let name = manifest.name();
                let text = format!("CustomResourceDefinition {name} cannot be judged: {error}");
                Ok(Change::Refused(text))
            }
            change => change,
        }
    }

    async fn changed(&self, manifest: &Object, manager: &str) -> Result<Change, ClusterError> {
        let name = manifest.name();
        let policy = match Policy::of(manifest) {
            Ok(Policy::Skip) => return Ok(Change::Skipped),
            Ok(policy) => policy,
            Err(text) => {
                let text = format!("CustomResourceDefinition {name}: {text}");
                return Ok(Change::Refused(text));
            }
        };
        let ours = self.target.as_ourselves();
        let resource = ours.resource(&manifest.gvk()).await?;
        let Some(live) = ours.get(&resource, "", name).await? else { return Ok(Change::Allowed) };
        if self.is_trusted() && policy.forces(&live) {
            return Ok(Change::Allowed);
        }
        let dry = self.target.cluster.apply(&resource, manifest, manager, Mode::DryRun).await;
        let new = match dry {
            Ok(dry) => self.without_what_goes(dry, &live, manifest, manager),
            Err(error) if error.is_of_server() => return Err(error),
            // Who may not write it learns nothing of its objects; the write is refused all the same.
            Err(error) if error.code() == Some(403) => return Ok(Change::Allowed),
            // The API server rejects it; the guard judges the manifest as it is.
            Err(_) => manifest.clone(),
        };
        Ok(match self.judged(&live, &new).await? {
            None if migrate::is_needed(&live, &new).unwrap_or(false) => Change::Migrates,
            None => Change::Allowed,
            Some(lines) => Change::Refused(refused(&live, &lines, self.is_trusted())),
        })
    }

    /// A dry-run does not know of fields of other tools that are taken over before the write, and are removed by it if the
    /// manifest lacks them.
    fn without_what_goes(
        &self,
        mut dry: Object,
        live: &Object,
        manifest: &Object,
        manager: &str,
    ) -> Object {
        let overrides = &self.context.settings.override_manager;
        if apply::take_over(live, manager, overrides).is_none() {
            return dry;
        }
        let has = |field: &str| manifest.get("spec").is_some_and(|it| !it[field].is_null());
        let spec = dry.fields_mut().get_mut("spec").and_then(Value::as_object_mut);
        if let Some(spec) = spec {
            for field in ["conversion", "preserveUnknownFields"].iter().filter(|it| !has(it)) {
                spec.remove(*field);
            }
        }
        dry
    }

    /// What would break if the definition were the new one; none if nothing would.
    async fn judged(
        &self,
        live: &Object,
        new: &Object,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let fields = |it: &Object| Value::Object(it.fields().clone());
        let surveyed =
            survey::survey(self.target.as_ourselves(), fields(live), fields(new)).await?;
        let verdict: Verdict = match surveyed {
            Ok(verdict) if verdict.is_compatible() => return Ok(None),
            Ok(verdict) => verdict,
            Err(why) => return Ok(Some(vec![format!("it cannot be judged: {why}")])),
        };
        let is_named = self.may_list(live).await;
        Ok(Some(verdict.lines(is_named)))
    }

    /// Moves objects out of the versions that a manifest drops, to be called before it is written. Nothing is done
    /// where none is dropped. The inner error says why they cannot be moved.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub(crate) async fn migrate(
        &self,
        manifest: &Object,
        manager: &str,
    ) -> Result<Result<(), String>, ClusterError> {
        if self.is_off() || !is_definition(manifest) {
            return Ok(Ok(()));
        }
        let told = |error: &dyn std::fmt::Display| {
            format!("CustomResourceDefinition {}: {error}", manifest.name())
        };
        match self.migrated(manifest, manager).await {
            Ok(migrated) => Ok(migrated.map_err(|error| told(&error))),
            Err(error) if !error.is_of_server() => Ok(Err(told(&error))),
            Err(error) => Err(error),
        }
    }

    async fn migrated(
        &self,
        manifest: &Object,
        manager: &str,
    ) -> Result<Result<(), String>, ClusterError> {
        let cluster = &self.target.cluster;
        let resource = cluster.resource(&manifest.gvk()).await?;
        let Some(live) = cluster.get(&resource, "", manifest.name()).await? else {
            return Ok(Ok(()));
        };
        let is_named = self.may_list(&live).await;
        migrate::migrate(self.target, (&resource, live), manifest, (manager, is_named)).await
    }

    /// Whether a live definition that left the manifests may be deleted; `mine` are the marks of its owner.
    ///
    /// # Errors
    /// The API server could not be asked; [`ClusterError::Withheld`] where the end is confirmed and the objects cannot be
    /// exported.
    pub(crate) async fn removal(
        &self,
        live: &Object,
        manager: &str,
        mine: &[Mark],
    ) -> Result<Removal, ClusterError> {
        if self.is_off() || !is_definition(live) {
            return Ok(Removal::Allowed);
        }
        if self.is_trusted() && live.annotation(REMOVAL) == Some(live.uid()) {
            return self.confirmed(live, mine).await;
        }
        let mut users = claims::of(live, manager, mine);
        let objects = survey::users(self.target.as_ourselves(), live).await?;
        let is_named = !objects.is_none() && self.may_list(live).await;
        users.extend(objects.text(is_named));
        if users.is_empty() {
            return Ok(Removal::Allowed);
        }
        let (name, uid) = (live.name(), live.uid());
        let text = format!(
            "CustomResourceDefinition {name} is released instead of deleted, because it is used by {}; to delete it \
             with all its objects, delete it with `kubectl delete crd {name}`, or annotate it with {REMOVAL}={uid} \
             before it leaves",
            users.join(" and ")
        );
        Ok(Removal::Released(text))
    }

    /// Exports the objects of a definition that is deleted with them.
    async fn confirmed(&self, live: &Object, mine: &[Mark]) -> Result<Removal, ClusterError> {
        let (name, uid) = (live.name(), live.uid());
        let cluster = &self.target.cluster;
        if self.target.is_impersonated() {
            // Who may not delete it has nothing exported.
            let resource = cluster.resource(&live.gvk()).await?;
            match cluster.try_delete(&resource, live.namespace(), name, uid).await {
                Err(error) if error.code() == Some(403) => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let namespace = self.context.settings.runtime_namespace.as_str();
        let job = Job { cluster: self.target.as_ourselves(), live, mine, namespace };
        match job.run().await? {
            Exported::Nothing => Ok(Removal::Allowed),
            Exported::Objects(count) => {
                let noun = if count == 1 { "object" } else { "objects" };
                Ok(Removal::Exported(format!(
                    "CustomResourceDefinition {name} is deleted with {count} {noun}, which are exported to Secrets in \
                     namespace {namespace}; to restore them, run `windlass crd restore {name} --export {uid}`"
                )))
            }
            Exported::Not(why) => Err(ClusterError::Withheld(format!(
                "it is not deleted, because its objects cannot be exported: {why}; remove that cause, or the annotation \
                 {REMOVAL}, or delete it without an export: `kubectl delete crd {name}`"
            ))),
        }
    }

    /// Removes the marks of its owner from a definition, so that no later prune deletes it, and what says that this field
    /// manager applied it, so that it is no claim against the next owner.
    ///
    /// # Errors
    /// The API server's refusal, such as that of a definition that is another by now.
    pub(crate) async fn release(
        &self,
        live: &Object,
        manager: &str,
        mine: &[Mark],
    ) -> Result<(), ClusterError> {
        self.stripped(live, Some(manager), (manager, mine)).await
    }

    /// Removes some marks from a definition that its owner keeps.
    ///
    /// # Errors
    /// As those of [`Guard::release`].
    pub(crate) async fn unmark(
        &self,
        live: &Object,
        manager: &str,
        mine: &[Mark],
    ) -> Result<(), ClusterError> {
        self.stripped(live, None, (manager, mine)).await
    }

    async fn stripped(
        &self,
        live: &Object,
        gone: Option<&str>,
        (manager, mine): (&str, &[Mark]),
    ) -> Result<(), ClusterError> {
        let cluster = &self.target.cluster;
        let resource = cluster.resource(&live.gvk()).await?;
        let (uid, mut live) = (live.uid().to_owned(), live.clone());
        for attempt in 1.. {
            let patch = claims::without(&live, &uid, gone, mine);
            match cluster.merge_patch(&resource, ("", live.name()), &patch, manager).await {
                Err(error) if error.is_conflict() && attempt < RELEASE_ATTEMPTS => {}
                written => return written.map(drop),
            }
            // It was written since it was read.
            let Some(now) = cluster.get(&resource, "", live.name()).await? else { break };
            live = now;
        }
        Ok(())
    }

    /// Whether the applying identity may list the objects of a definition.
    async fn may_list(&self, live: &Object) -> bool {
        let spec = live.get("spec");
        let text = |path: &str| spec.and_then(|it| it.pointer(path)).and_then(Value::as_str);
        let (Some(group), Some(plural)) = (text("/group"), text("/names/plural")) else {
            return false;
        };
        // Names are left out where that is not known.
        self.target.cluster.may("list", group, plural).await.unwrap_or(false)
    }
}

/// Why a definition is not written, and how to go on.
fn refused(live: &Object, lines: &[String], is_trusted: bool) -> String {
    let (name, uid, generation) = (live.name(), live.uid(), live.generation());
    let list: String = lines.iter().map(|line| format!("\n  - {line}")).collect();
    let force = match is_trusted {
        true => format!(
            "to write it in spite of that, annotate the manifest with {POLICY}: Force={uid}@{generation}, \
             and to leave it as it is, with {POLICY}: Skip"
        ),
        false => format!("to leave it as it is, annotate the manifest with {POLICY}: Skip"),
    };
    format!(
        "CustomResourceDefinition {name} is not written, because it does not fit the objects that exist:{list}\n\
         change the objects or the definition; {force}"
    )
}
