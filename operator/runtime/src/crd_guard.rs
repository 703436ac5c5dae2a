//! The guard of CustomResourceDefinitions. It judges every write and every deletion of a CRD by the custom resources that
//! exist.
//!
//! Here: which writes and deletions are allowed ([`CrdGuardian`]). In the folder: the annotations (`guard_policy`), reading
//! custom resources (`custom_resource_check`), moving them out of dropped versions (`storage_version_migration`), exporting
//! them (`custom_resource_export`), and deleting the CRD (`crd_prune`). Elsewhere: incompatible changes (engine `crdguard`),
//! owners of a CRD ([`crd_owners`]), and what follows (each applier).
//!
//! Custom resources are read with windlass's own identity, since a tenant who applies a CRD may not see those of other
//! tenants. Messages name them only if the applying identity may list them.

mod crd_prune;
pub mod custom_resource_check;
pub mod custom_resource_export;
pub mod error;
mod guard_policy;
mod storage_version_migration;

use std::borrow::Cow;

use apply::drift_ignore_rules::DriftIgnoreRules;
pub use cause::crd_owners;
pub use cause::crd_owners::is_definition;
use crdguard::CrdChangeVerdict;
use objects::{Gvk, Object};
use reconcile::RemovalPermit;
use serde_json::Value;

use self::crd_owners::OwnerLabelOrAnnotation;
use self::crd_prune::CrdPruneRequest;
use self::error::CrdGuardError;
use self::guard_policy::{CrdGuardAnnotation, POLICY};
use self::storage_version_migration::ApplierStopCheck;
use crate::cluster_target::ClusterTarget;
use crate::run_context::RunContext;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_serve::settings::CrdGuardMode;

/// How often windlass tries to write a CRD that other clients write at the same time.
const UNMARK_ATTEMPTS: u32 = 4;

/// Whether the manifest of a CRD may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdWritePermission {
    /// The manifest may be written.
    Allowed,
    /// The manifest may be written after [`CrdGuardian::migrate`]. Before that, the API server refuses it.
    Migrates,
    /// The author of the manifest does not want it to be written.
    Skipped,
    /// The manifest may not be written, for this reason.
    Refused(String),
}

/// The result of removing a live CRD that the manifests no longer contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrdPruneOutcome {
    /// The CRD was deleted, and had no custom resources.
    Deleted,
    /// The CRD was deleted with its custom resources, which were exported. The text says how to restore them.
    Exported(String),
    /// The CRD stays in the cluster without its owner. The text says why.
    Released(String),
}

/// The guard of the CRDs in one target cluster.
pub struct CrdGuardian<'a> {
    context: &'a RunContext,
    target: &'a ClusterTarget,
    /// The namespace of the object that applies the CRDs.
    namespace: &'a str,
    /// The rules about fields that other clients may change, if there are any.
    ignore: Option<&'a DriftIgnoreRules>,
}

impl<'a> CrdGuardian<'a> {
    /// The guard of a target, for an object in `namespace` that applies CRDs there.
    pub fn new(context: &'a RunContext, target: &'a ClusterTarget, namespace: &'a str) -> Self {
        Self { context, target, namespace, ignore: None }
    }

    /// This guard for manifests with rules about fields that other clients may change.
    #[must_use]
    pub fn ignoring(self, rules: &'a DriftIgnoreRules) -> Self {
        Self { ignore: Some(rules), ..self }
    }

    fn is_off(&self) -> bool {
        self.context.settings.crd_guard == CrdGuardMode::Off
    }

    /// Whether a manifest is a CRD that is never written, because of its policy annotation.
    pub fn skips(&self, manifest: &Object) -> bool {
        !self.is_off()
            && is_definition(manifest)
            && CrdGuardAnnotation::of(manifest) == Ok(CrdGuardAnnotation::Skip)
    }

    /// Whether the annotations count that permit writes against the guard.
    fn is_trusted(&self) -> bool {
        !self.target.is_impersonated() || self.context.settings.tenant_crd_force
    }

    /// Whether a field manager may write this manifest.
    ///
    /// # Errors
    /// A request to the API server failed.
    pub async fn change(
        &self,
        manifest: &Object,
        manager: &str,
    ) -> Result<CrdWritePermission, ClusterError> {
        if self.is_off() || !is_definition(manifest) {
            return Ok(CrdWritePermission::Allowed);
        }
        match self.changed(manifest, manager).await {
            // Some errors last, such as an API version that is not served. A repetition would bring the same error.
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
        let none = DriftIgnoreRules::default();
        let rules = self.ignore.unwrap_or(&none);
        let payload = match rules.leave_alone(manifest) {
            true => Cow::Borrowed(manifest),
            false => Cow::Owned(rules.payload(manifest, &live, manager)),
        };
        let dry = self.target.cluster.apply(&resource, &payload, manager, DryRunMode::DryRun).await;
        let overrides = &self.context.settings.override_manager;
        let new = match dry {
            // The manifest decides which fields are taken over. The written manifest decides what they become.
            Ok(dry) if rules.take_over(manifest, &live, manager, overrides).is_some() => {
                without_what_goes(dry, &payload, rules)
            }
            Ok(dry) => dry,
            Err(error) if error.is_of_server() => return Err(error),
            // A user who may not write the CRD learns nothing about its custom resources. The API server refuses the write
            // anyway.
            Err(error) if error.code() == Some(403) => return Ok(CrdWritePermission::Allowed),
            // The API server rejects the dry run, so the guard judges the manifest itself.
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

    /// The reasons why the new CRD must not replace the live one, as lines of a message. `None` if it may.
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
        let verdict: CrdChangeVerdict = match surveyed {
            Ok(verdict) if verdict.is_compatible() => return Ok(None),
            Ok(verdict) => verdict,
            Err(error) => {
                return Ok(Some(vec![format!("it cannot be judged: {}", error.refusal()?)]));
            }
        };
        let is_named = may_list(&self.target.cluster, live).await;
        Ok(Some(verdict.lines(is_named)))
    }

    /// Moves custom resources out of the versions that a manifest drops. Callers do this before they write the manifest. It
    /// stops early when `is_stopped` returns true.
    ///
    /// # Errors
    /// The reason why the custom resources cannot be moved, or that the move was stopped.
    pub async fn migrate(
        &self,
        manifest: &Object,
        manager: &str,
        is_stopped: ApplierStopCheck<'_>,
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
        is_stopped: ApplierStopCheck<'_>,
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

    /// Removes a live CRD that the manifests no longer contain. `mine` are the marks of its owner, and `propagation` is that
    /// of `DeleteOptions`. The caller waits for the whole removal, because the guard decides right before it deletes.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. [`ClusterError::Withheld`] if the deletion is confirmed but the
    /// custom resources cannot be exported.
    pub async fn remove(
        &self,
        permit: RemovalPermit,
        live: &Object,
        manager: &str,
        mine: &[OwnerLabelOrAnnotation],
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

    /// Removes some owner marks from a CRD that its owner keeps.
    ///
    /// # Errors
    /// The API server refuses the request, for example because the CRD was replaced by another one, or does not respond.
    pub async fn unmark(
        &self,
        live: &Object,
        manager: &str,
        mine: &[OwnerLabelOrAnnotation],
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
            // Another client wrote the CRD since it was read.
            let Some(now) = cluster.get(&resource, "", live.name()).await? else { break };
            live = now;
        }
        Ok(())
    }
}

/// Removes fields of other tools that the write will remove although the dry run kept them. The write takes such fields over
/// first, and the manifest lacks them. Fields that other clients may change stay.
fn without_what_goes(mut dry: Object, manifest: &Object, rules: &DriftIgnoreRules) -> Object {
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

/// The API resource of CustomResourceDefinitions.
pub(crate) fn definitions() -> ApiResourceLocation {
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let plural = "customresourcedefinitions".to_owned();
    ApiResourceLocation { gvk, plural, namespaced: false, watchable: true }
}

/// Whether an identity may list the custom resources of a CRD.
async fn may_list(cluster: &ClusterConnection, live: &Object) -> bool {
    let spec = live.get("spec");
    let text = |path: &str| spec.and_then(|it| it.pointer(path)).and_then(Value::as_str);
    let (Some(group), Some(plural)) = (text("/group"), text("/names/plural")) else {
        return false;
    };
    // If that is not known, the names are left out.
    cluster.may("list", group, plural).await.unwrap_or(false)
}

/// The message that a CRD is not written, with the reasons and what to do.
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
    use apply::drift_ignore_rules::DriftIgnoreTarget;
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
            let rules = DriftIgnoreRules::new(&[(DriftIgnoreTarget::default(), paths)]).unwrap();
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
