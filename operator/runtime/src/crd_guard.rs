//! The guard of CustomResourceDefinitions: every write and every removal of one is judged by the objects that exist.
//!
//! Here: what may be done with a definition ([`CrdGuardian`]). In the folder: what a manifest says about it
//! (`guard_policy`), reading the objects (`custom_resource_check`), moving them out of versions that go
//! (`storage_version_migration`), exporting them (`custom_resource_export`) before their definition is deleted (`crd_prune`).
//! Elsewhere: what breaks (engine `crdguard`), who has a definition ([`crd_owners`]), what follows (each applier).
//!
//! Objects are read in windlass's own name, since a tenant who applies a definition may not see those of others. They are
//! named only if the applying identity may list them.

mod crd_prune;
pub mod custom_resource_check;
pub mod custom_resource_export;
pub mod error;
mod guard_policy;
mod storage_version_migration;

use std::borrow::Cow;

use apply::drift_ignore_rules::IgnoreRules;
pub use cause::crd_owners;
pub use cause::crd_owners::is_definition;
use crdguard::ChangeVerdict;
use objects::{Gvk, Object};
use reconcile::RemovalPermit;
use serde_json::Value;

use self::crd_owners::OwnerMark;
use self::crd_prune::CrdPruneRequest;
use self::error::CrdGuardError;
use self::guard_policy::{CrdGuardAnnotation, POLICY};
use self::storage_version_migration::StopCheck;
use crate::cluster_target::ClusterTarget;
use crate::run_context::RunContext;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::CrdGuardMode;

/// The most attempts to write a definition that other clients write at the same time.
const UNMARK_ATTEMPTS: u32 = 4;

/// What may be done with a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdWritePermission {
    /// It may be written.
    Allowed,
    /// It may be written after [`CrdGuardian::migrate`]; before, the API server refuses it.
    Migrates,
    /// Its author does not want it to be written.
    Skipped,
    /// It may not be written, and why.
    Refused(String),
}

/// The result of removing a live definition that the manifests no longer contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdPruneOutcome {
    /// It was deleted, and had no objects.
    Deleted,
    /// It was deleted with its objects, which are exported; the text says how to restore them.
    Exported(String),
    /// It stays without its owner; the text says why.
    Released(String),
}

/// Judges definitions at a target.
pub struct CrdGuardian<'a> {
    context: &'a RunContext,
    target: &'a ClusterTarget,
    /// Where the object is that applies there.
    namespace: &'a str,
    /// Which fields of manifests others may change, if there are such rules.
    ignore: Option<&'a IgnoreRules>,
}

impl<'a> CrdGuardian<'a> {
    /// The guard at a target, for an object in `namespace` that applies definitions there.
    pub fn new(context: &'a RunContext, target: &'a ClusterTarget, namespace: &'a str) -> Self {
        Self { context, target, namespace, ignore: None }
    }

    /// This guard for manifests that are written by rules about fields which others may change.
    #[must_use]
    pub fn ignoring(self, rules: &'a IgnoreRules) -> Self {
        Self { ignore: Some(rules), ..self }
    }

    fn is_off(&self) -> bool {
        self.context.settings.crd_guard == CrdGuardMode::Off
    }

    /// Whether a manifest is a definition that is never written, by its policy annotation.
    pub fn skips(&self, manifest: &Object) -> bool {
        !self.is_off()
            && is_definition(manifest)
            && CrdGuardAnnotation::of(manifest) == Ok(CrdGuardAnnotation::Skip)
    }

    /// Whether the annotations count that permit what the guard would refuse.
    fn is_trusted(&self) -> bool {
        !self.target.is_impersonated() || self.context.settings.tenant_crd_force
    }

    /// Whether a manifest may be written by a field manager.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub async fn change(
        &self,
        manifest: &Object,
        manager: &str,
    ) -> Result<CrdWritePermission, ClusterError> {
        if self.is_off() || !is_definition(manifest) {
            return Ok(CrdWritePermission::Allowed);
        }
        match self.changed(manifest, manager).await {
            // Such as a version of the API that is not served: the same would be said again.
            Err(error) if !error.is_of_server() => {
                let name = manifest.name();
                let text = format!("CustomResourceDefinition {name} cannot be judged: {error}");
                Ok(CrdWritePermission::Refused(text))
            }
            change => change,
        }
    }

    async fn changed(
        &self,
        manifest: &Object,
        manager: &str,
    ) -> Result<CrdWritePermission, ClusterError> {
        let name = manifest.name();
        let policy = match CrdGuardAnnotation::of(manifest) {
            Ok(CrdGuardAnnotation::Skip) => return Ok(CrdWritePermission::Skipped),
            Ok(policy) => policy,
            Err(text) => {
                let text = format!("CustomResourceDefinition {name}: {text}");
                return Ok(CrdWritePermission::Refused(text));
            }
        };
        let ours = self.target.as_ourselves();
        let resource = ours.resource(&manifest.gvk()).await?;
        let Some(live) = ours.get(&resource, "", name).await? else {
            return Ok(CrdWritePermission::Allowed);
        };
        if self.is_trusted() && policy.forces(&live) {
            return Ok(CrdWritePermission::Allowed);
        }
        let none = IgnoreRules::default();
        let rules = self.ignore.unwrap_or(&none);
        let payload = match rules.leave_alone(manifest) {
            true => Cow::Borrowed(manifest),
            false => Cow::Owned(rules.payload(manifest, &live, manager)),
        };
        let dry = self.target.cluster.apply(&resource, &payload, manager, DryRunMode::DryRun).await;
        let overrides = &self.context.settings.override_manager;
        let new = match dry {
            // Which fields are taken over is decided by the manifest, and what they become by what is written.
            Ok(dry) if rules.take_over(manifest, &live, manager, overrides).is_some() => {
                without_what_goes(dry, &payload, rules)
            }
            Ok(dry) => dry,
            Err(error) if error.is_of_server() => return Err(error),
            // A user who may not write it learns nothing of its objects; the write is refused all the same.
            Err(error) if error.code() == Some(403) => return Ok(CrdWritePermission::Allowed),
            // The API server rejects it; the guard judges what would be written as it is.
            Err(_) => payload.into_owned(),
        };
        Ok(match self.judged(&live, &new).await? {
            None if storage_version_migration::is_needed(&live, &new).unwrap_or(false) => {
                CrdWritePermission::Migrates
            }
            None => CrdWritePermission::Allowed,
            Some(lines) => CrdWritePermission::Refused(refused(&live, &lines, self.is_trusted())),
        })
    }

    /// Why the new definition must not replace the live one, as lines of a message; `None` if it may.
    async fn judged(
        &self,
        live: &Object,
        new: &Object,
    ) -> Result<Option<Vec<String>>, ClusterError> {
        let fields = |it: &Object| Value::Object(it.fields().clone());
        let old = fields(live);
        let new = fields(new);
        let surveyed =
            custom_resource_check::survey(self.target.as_ourselves(), self.namespace, old, new)
                .await;
        let verdict: ChangeVerdict = match surveyed {
            Ok(verdict) if verdict.is_compatible() => return Ok(None),
            Ok(verdict) => verdict,
            Err(error) => {
                return Ok(Some(vec![format!("it cannot be judged: {}", error.refusal()?)]));
            }
        };
        let is_named = may_list(&self.target.cluster, live).await;
        Ok(Some(verdict.lines(is_named)))
    }

    /// Moves objects out of the versions that a manifest drops. Call it before the manifest is written. The move ends
    /// early when `is_stopped` returns true.
    ///
    /// # Errors
    /// Why they cannot be moved, or that it was stopped.
    pub async fn migrate(
        &self,
        manifest: &Object,
        manager: &str,
        is_stopped: StopCheck<'_>,
    ) -> Result<(), CrdGuardError> {
        if self.is_off() || !is_definition(manifest) {
            return Ok(());
        }
        self.migrated(manifest, manager, is_stopped).await.map_err(|error| match error {
            CrdGuardError::Cluster(error) if error.is_of_server() => CrdGuardError::Cluster(error),
            refused => {
                let name = manifest.name();
                CrdGuardError::Refused(format!("CustomResourceDefinition {name}: {refused}"))
            }
        })
    }

    async fn migrated(
        &self,
        manifest: &Object,
        manager: &str,
        is_stopped: StopCheck<'_>,
    ) -> Result<(), CrdGuardError> {
        let cluster = &self.target.cluster;
        let resource = cluster.resource(&manifest.gvk()).await?;
        let Some(live) = cluster.get(&resource, "", manifest.name()).await? else {
            return Ok(());
        };
        storage_version_migration::migrate(
            self.target,
            &resource,
            live,
            manifest,
            manager,
            is_stopped,
        )
        .await
    }

    /// Removes a live definition that the manifests no longer contain. `mine` are the marks of its owner, and
    /// `propagation` is as in `DeleteOptions`. The caller waits for the whole removal, because the guard decides
    /// directly before it deletes.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond; [`ClusterError::Withheld`] where the removal is confirmed
    /// and the objects cannot be exported.
    pub async fn remove(
        &self,
        permit: RemovalPermit,
        live: &Object,
        manager: &str,
        mine: &[OwnerMark],
        propagation: &str,
    ) -> Result<CrdPruneOutcome, ClusterError> {
        let theirs = &self.target.cluster;
        if self.is_off() || !is_definition(live) {
            let resource = theirs.resource(&live.gvk()).await?;
            theirs.delete_managed(permit, &resource, live, propagation).await?;
            return Ok(CrdPruneOutcome::Deleted);
        }
        let site = custom_resource_export::CustomResourceExportDestination {
            namespace: self.context.settings.runtime_namespace.as_str(),
            place: self.target.place(),
            owner: self.namespace,
            is_tenant: self.target.is_impersonated(),
        };
        let ours = self.target.as_ourselves();
        let is_trusted = self.is_trusted();
        let removing = CrdPruneRequest {
            ours,
            theirs,
            live,
            manager,
            mine,
            propagation,
            is_trusted,
            permit,
            site,
        };
        removing.run().await
    }

    /// Removes some marks from a definition that its owner keeps.
    ///
    /// # Errors
    /// The API server refuses the request, for example because the definition is another one by now, or does not respond.
    pub async fn unmark(
        &self,
        live: &Object,
        manager: &str,
        mine: &[OwnerMark],
    ) -> Result<(), ClusterError> {
        let cluster = &self.target.cluster;
        let resource = cluster.resource(&live.gvk()).await?;
        let uid = live.uid().to_owned();
        let mut live = live.clone();
        for attempt in 1.. {
            let patch = crd_owners::without(&live, &uid, None, mine);
            match cluster.merge_patch(&resource, "", live.name(), &patch, manager).await {
                Err(error) if error.is_conflict() && attempt < UNMARK_ATTEMPTS => {}
                written => return written.map(drop),
            }
            // It was written since it was read.
            let Some(now) = cluster.get(&resource, "", live.name()).await? else { break };
            live = now;
        }
        Ok(())
    }
}

/// A dry-run does not know of fields of other tools that are taken over before the write, and are removed by it if the
/// manifest lacks them. Those that others may change by the rules are not taken over.
fn without_what_goes(mut dry: Object, manifest: &Object, rules: &IgnoreRules) -> Object {
    let has = |field: &str| manifest.get("spec").is_some_and(|it| !it[field].is_null());
    let stays = |field: &str| has(field) || rules.ignores(manifest, &["spec", field]);
    let spec = dry.fields_mut().get_mut("spec").and_then(Value::as_object_mut);
    if let Some(spec) = spec {
        for field in ["conversion", "preserveUnknownFields"].iter().filter(|it| !stays(it)) {
            spec.remove(*field);
        }
    }
    dry
}

/// The resource of definitions.
pub(crate) fn definitions() -> ApiResourceLocation {
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let plural = "customresourcedefinitions".to_owned();
    ApiResourceLocation { gvk, plural, namespaced: false, watchable: true }
}

/// Whether an identity may list the objects of a definition.
async fn may_list(cluster: &ClusterConnection, live: &Object) -> bool {
    let spec = live.get("spec");
    let text = |path: &str| spec.and_then(|it| it.pointer(path)).and_then(Value::as_str);
    let (Some(group), Some(plural)) = (text("/group"), text("/names/plural")) else {
        return false;
    };
    // Names are left out where that is not known.
    cluster.may("list", group, plural).await.unwrap_or(false)
}

/// Why a definition is not written, and how to go on.
fn refused(live: &Object, lines: &[String], is_trusted: bool) -> String {
    let name = live.name();
    let uid = live.uid();
    let generation = live.generation();
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

#[cfg(test)]
mod tests {
    use apply::drift_ignore_rules::IgnoreTarget;
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_others_may_change_are_not_judged_as_if_the_write_removed_them() {
        let definition = |spec: Value| {
            let text = "apiextensions.k8s.io/v1";
            let metadata = json!({"name": "widgets.acme.io"});
            Object::new(json!({"apiVersion": text, "kind": "CustomResourceDefinition",
                "metadata": metadata, "spec": spec}))
            .unwrap()
        };
        let manifest = definition(json!({"group": "acme.io"}));
        let dry = definition(json!({"group": "acme.io", "conversion": {"strategy": "Webhook"},
            "preserveUnknownFields": true}));
        let left = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|it| (*it).to_owned()).collect();
            let rules = IgnoreRules::new(&[(IgnoreTarget::default(), paths)]).unwrap();
            let left = without_what_goes(dry.clone(), &manifest, &rules);
            let spec = left.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
            spec.keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(left(&[]), "group");
        assert_eq!(left(&["/spec/conversion"]), "conversion group");
        assert_eq!(left(&["/spec/conversion/webhook/clientConfig/caBundle"]), "group");
        assert_eq!(left(&["/spec"]), "conversion group preserveUnknownFields");
    }
}
