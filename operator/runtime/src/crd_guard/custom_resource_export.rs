//! Exports the custom resources of a CRD to Secrets in windlass's namespace, before both are deleted.
//!
//! The custom resources are read, stored, and compared with the cluster once more before the CRD is deleted. If they cannot be
//! exported or the CRD could not be created again, nothing is deleted. The names of the Secrets depend on their content, so an
//! export never overwrites another one. In the folder: the limit of Secrets (`quota`). Elsewhere: the format (engine
//! `crdguard`), restoring (`windlass_cli::crd`), and deleting the CRD (`crd_prune`).

mod quota;

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crdguard::{CrdExport, CrdExporter, ExportTooLargeError};
use objects::{Gvk, Object};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::crd_owners;
use super::custom_resource_check;
use super::error::CrdGuardError;
use super::guard_policy::REMOVAL;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::list_pager::ObjectProjection;
use windlass_cluster::object_decode::{DepthPrunedObject, RawObject};
use windlass_cluster::run_permits::RunPermits;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The label of a Secret that is a part of an export. Its value is the uid of the CRD.
pub const EXPORT: &str = "windlass.dev/crd-export";

/// The annotation with the name of the CRD.
pub const NAME: &str = "windlass.dev/crd-name";

/// The annotation with the number of parts of the export.
pub const PARTS: &str = "windlass.dev/crd-export-parts";

/// The annotation with the number of exported custom resources.
pub const OBJECTS: &str = "windlass.dev/crd-export-objects";

/// The annotation with the digest of all parts.
pub const DIGEST: &str = "windlass.dev/crd-export-digest";

/// The annotation with the time of the export. A copy of the Secret in another cluster has another creation time.
pub const TIME: &str = "windlass.dev/crd-export-time";

/// The annotation with the namespace of the ServiceAccount that deletes the CRD, if one does.
const TENANT: &str = "windlass.dev/crd-export-tenant";

/// The key of the export in the data of the Secret.
pub const KEY: &str = "export.jsonl.gz";

/// The field manager of the export Secrets.
const MANAGER: &str = "windlass";

/// How many digits of the digest the name of an export has.
const NAME_DIGEST_CHARACTERS: usize = 16;

/// The permits for exports: two at once, and one per namespace. An export is in memory until it is stored.
static EXPORTING: LazyLock<RunPermits> = LazyLock::new(|| RunPermits::shared(2, 1));

/// Permits only one export of a CRD at a time. A second caller waits and then finds nothing left to do.
static IN_WORK: LazyLock<RunPermits> = LazyLock::new(|| RunPermits::shared(usize::MAX, 1));

/// The time limit of one export.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(600);

/// How often an export starts again because custom resources changed.
const MAX_EXPORT_ATTEMPTS: u32 = 3;

/// The name of an export, made of the uid of the CRD and the first digits of the digest.
pub fn export_name(uid: &str, digest: &str) -> String {
    let digits = digest.trim_start_matches("sha256:");
    format!("{uid}-{}", digits.get(..NAME_DIGEST_CHARACTERS).unwrap_or(digits))
}

/// The name of the Secret with one part of an export.
pub fn secret_name(export: &str, part: usize) -> String {
    format!("crd-export-{export}-{part}")
}

fn secrets() -> ApiResourceLocation {
    let gvk = Gvk::new("v1", "Secret");
    let plural = "secrets".to_owned();
    ApiResourceLocation { gvk, plural, namespaced: true, watchable: true }
}

/// The result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CustomResourceExportOutcome {
    /// There are no custom resources.
    Nothing,
    /// This many custom resources are in the export of this name.
    Objects(u64, String),
    /// The CRD is gone or has changed since it was read.
    Changed,
    /// The custom resources could not be exported, for this reason.
    Not(String),
}

/// The digest of the uids and versions of all custom resources. It is equal if none of them changed.
#[derive(PartialEq, Eq)]
struct ObjectsFingerprint(Vec<u8>);

/// Where an export is stored, and for which owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct CustomResourceExportDestination<'a> {
    /// The namespace of windlass.
    pub(super) namespace: &'a str,
    /// An identifier of the cluster. Empty for windlass's own cluster.
    pub(super) place: &'a str,
    /// The namespace of the Kustomization or release that gives the CRD up.
    pub(super) owner: &'a str,
    /// Whether that Kustomization or release uses a ServiceAccount.
    pub(super) is_tenant: bool,
}

/// The export of the custom resources of a CRD.
pub(super) struct CustomResourceExport<'a> {
    /// The cluster, with windlass's own identity.
    pub(super) cluster: &'a ClusterConnection,
    /// The cluster, with the identity of the user that applied the CRD. This user must be allowed to create the CRD again.
    pub(super) theirs: &'a ClusterConnection,
    /// The CRD as it was read.
    pub(super) live: &'a Object,
    pub(super) site: CustomResourceExportDestination<'a>,
}

/// The Secrets that an attempt has created.
type CreatedSecrets = Mutex<Vec<Object>>;

impl CustomResourceExport<'_> {
    /// Exports the custom resources. A failed export leaves no Secret behind.
    ///
    /// # Errors
    /// A request to the API server failed.
    pub(super) async fn run(&self) -> Result<CustomResourceExportOutcome, ClusterError> {
        let definition = format!("{} {}", self.site.place, self.live.uid());
        let _this = IN_WORK.acquire(&definition).await;
        let _one = EXPORTING.acquire(self.site.owner).await;
        let made = CreatedSecrets::default();
        let exported = tokio::time::timeout(EXPORT_TIMEOUT, self.exported(&made)).await;
        let is_kept = matches!(exported, Ok(Ok(CustomResourceExportOutcome::Objects(..))));
        if !is_kept {
            self.discard(&made).await;
        }
        match exported {
            Ok(Err(error)) if !error.is_of_server() => {
                Ok(CustomResourceExportOutcome::Not(error.to_string()))
            }
            Ok(exported) => exported,
            Err(_) => Ok(CustomResourceExportOutcome::Not(format!(
                "it took more than {} s",
                EXPORT_TIMEOUT.as_secs()
            ))),
        }
    }

    async fn exported(
        &self,
        made: &CreatedSecrets,
    ) -> Result<CustomResourceExportOutcome, ClusterError> {
        let fields = Value::Object(self.live.fields().clone());
        let (definition, version) = match crdguard::whole(&fields) {
            Ok(found) => found,
            Err(why) => return Ok(CustomResourceExportOutcome::Not(why.to_string())),
        };
        let resource = custom_resource_check::resource(&definition, &version);
        let crds = super::definitions();
        if let Some(why) = self.refusal(&crds).await? {
            let text = format!("the definition could not be created again: {why}");
            return Ok(CustomResourceExportOutcome::Not(text));
        }
        let mut why = "they change while they are exported; stop what writes them";
        for _ in 0..MAX_EXPORT_ATTEMPTS {
            let (export, seen) = match self.read(&resource).await {
                // If the API server never accepted the names of a CRD, the CRD has no custom resources.
                Err(CrdGuardError::Cluster(error))
                    if error.code() == Some(404)
                        && !custom_resource_check::is_established(&fields) =>
                {
                    return Ok(CustomResourceExportOutcome::Nothing);
                }
                Err(CrdGuardError::Cluster(error)) if error.code() == Some(410) => {
                    why = "the list of them expires before it is read, mostly because a conversion webhook is slow";
                    continue;
                }
                Err(error) => return error.refusal().map(CustomResourceExportOutcome::Not),
                Ok((export, _)) if export.objects == 0 => {
                    return Ok(CustomResourceExportOutcome::Nothing);
                }
                Ok(read) => read,
            };
            // If another client is deleting the CRD, some custom resources may be gone already.
            if !self.is_current(&crds).await? {
                return Ok(CustomResourceExportOutcome::Changed);
            }
            if let Err(error) = self.store(&export, made).await {
                return error.refusal().map(CustomResourceExportOutcome::Not);
            }
            match self.seen(&resource).await {
                Ok(now) if now == seen => {
                    let name = export_name(self.live.uid(), &export.digest);
                    return Ok(CustomResourceExportOutcome::Objects(export.objects, name));
                }
                Err(error) if error.code() != Some(410) => return Err(error),
                Ok(_) | Err(_) => self.discard(made).await,
            }
        }
        Ok(CustomResourceExportOutcome::Not(why.to_owned()))
    }

    /// The reason why the CRD could not be created again. `None` if it could.
    async fn refusal(&self, crds: &ApiResourceLocation) -> Result<Option<String>, ClusterError> {
        let Ok(manifest) = Object::new(self.manifest()) else {
            return Ok(Some("it is not an object".to_owned()));
        };
        // A valid CRD is refused only because it exists.
        match self.theirs.try_create(crds, &manifest, MANAGER).await {
            Ok(()) => Ok(None),
            Err(error) if error.code() == Some(409) => Ok(None),
            Err(error) if error.is_of_server() => Err(error),
            // The applying user may have the right to update the CRD but not to create it.
            Err(error) if error.code() == Some(403) => {
                let spec = self.live.get("spec");
                let is_old = spec.is_some_and(|it| it["preserveUnknownFields"] == true);
                Ok(is_old.then(|| "`spec.preserveUnknownFields` is true".to_owned()))
            }
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// Whether the CRD has not changed since it was read.
    async fn is_current(&self, crds: &ApiResourceLocation) -> Result<bool, ClusterError> {
        let now = self.cluster.get(crds, "", self.live.name()).await?;
        let of = |it: &Object| (it.uid().to_owned(), it.meta("resourceVersion").cloned());
        Ok(now.is_some_and(|now| of(&now) == of(self.live)))
    }

    /// All custom resources that are not being deleted.
    async fn read(
        &self,
        resource: &ApiResourceLocation,
    ) -> Result<(CrdExport, ObjectsFingerprint), CrdGuardError> {
        let mut exporter = CrdExporter::new(&self.manifest()).map_err(too_large)?;
        let mut seen = Sha256::new();
        let mut pages = self.cluster.verbatim_pages(resource)?;
        while let Some(mut items) = pages.next().await? {
            items.retain(|it| it.meta.deletion_timestamp.is_none());
            items.iter().for_each(|it| see(&mut seen, &it.meta.uid, &it.meta.resource_version));
            exporter = packed(exporter, items).await?;
        }
        let seen = ObjectsFingerprint(seen.finalize().to_vec());
        Ok((exporter.finish().map_err(too_large)?, seen))
    }

    /// The manifest that creates the CRD again, without owners and without the fields that the API server sets.
    fn manifest(&self) -> Value {
        let mut manifest = self.live.clone();
        manifest.fields_mut().remove("status");
        let metadata = manifest.metadata_mut();
        metadata.retain(|field, _| ["name", "labels", "annotations"].contains(&field.as_str()));
        for field in ["labels", "annotations"] {
            if let Some(all) = metadata.get_mut(field).and_then(Value::as_object_mut) {
                all.retain(|key, value| key != REMOVAL && !crd_owners::is_of_owner(key, value));
            }
        }
        manifest.into_value()
    }

    /// The current fingerprint of the custom resources. Only their metadata is read.
    async fn seen(
        &self,
        resource: &ApiResourceLocation,
    ) -> Result<ObjectsFingerprint, ClusterError> {
        let mut seen = Sha256::new();
        let mut pages = self.cluster.pages(resource, "", ObjectProjection::Metadata)?;
        while let Some(page) = pages.next().await? {
            for DepthPrunedObject(item) in &page {
                let meta = &item["metadata"];
                let text = |key: &str| meta[key].as_str().unwrap_or_default();
                if meta["deletionTimestamp"].is_null() {
                    see(&mut seen, text("uid"), text("resourceVersion"));
                }
            }
        }
        Ok(ObjectsFingerprint(seen.finalize().to_vec()))
    }

    /// Stores an export, and checks that all of it is stored.
    async fn store(&self, export: &CrdExport, made: &CreatedSecrets) -> Result<(), CrdGuardError> {
        let (secrets, CustomResourceExportDestination { namespace, .. }) = (secrets(), self.site);
        let wanted = self.secrets_of(export)?;
        let names: BTreeSet<&str> = wanted.iter().map(Object::name).collect();
        let (listed, is_more) = self.cluster.labelled(&secrets, namespace, EXPORT).await?;
        if let Some(text) = quota::lacking(&listed, is_more, &names, &self.site) {
            return Err(CrdGuardError::Refused(text));
        }
        for secret in &wanted {
            let is_right = |it: &Object| {
                it.get("data").map(|it| &it[KEY]) == secret.get("data").map(|it| &it[KEY])
            };
            let stored = match self.cluster.create_object(&secrets, secret, MANAGER, false).await {
                Ok(stored) => {
                    made.lock().push(stored.clone());
                    Some(stored)
                }
                // The Secret itself names its content. An earlier attempt was interrupted.
                Err(error) if error.code() == Some(409) => {
                    self.cluster.get(&secrets, namespace, secret.name()).await?
                }
                Err(error) => return Err(error.into()),
            };
            if !stored.as_ref().is_some_and(is_right) {
                let name = secret.name();
                return Err(CrdGuardError::Refused(format!(
                    "Secret {namespace}/{name} does not have what was written to it, for example because of an admission webhook; delete it"
                )));
            }
        }
        let (listed, _) = self.cluster.labelled(&secrets, namespace, EXPORT).await?;
        let is_listed = |name: &str| listed.iter().any(|it| it["metadata"]["name"] == name);
        match names.into_iter().find(|it| !is_listed(it)) {
            Some(name) => Err(CrdGuardError::Refused(format!(
                "Secret {namespace}/{name} was written and is not there"
            ))),
            None => Ok(()),
        }
    }

    fn secrets_of(&self, export: &CrdExport) -> Result<Vec<Object>, ClusterError> {
        let (uid, CustomResourceExportDestination { namespace, owner, is_tenant, .. }) =
            (self.live.uid(), self.site);
        let name = export_name(uid, &export.digest);
        let mut notes = json!({NAME: self.live.name(), PARTS: export.parts.len().to_string(),
            OBJECTS: export.objects.to_string(), DIGEST: export.digest,
            TIME: jiff::Timestamp::now().to_string()});
        if is_tenant {
            notes[TENANT] = owner.into();
        }
        let secret = |(at, part): (usize, &Vec<u8>)| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": EXPORT,
                "metadata": {"name": secret_name(&name, at), "namespace": namespace,
                    "labels": {EXPORT: uid}, "annotations": notes},
                "data": {KEY: STANDARD.encode(part)}});
            Object::new(secret).map_err(|error| ClusterError::NoAnswer(error.to_string()))
        };
        export.parts.iter().enumerate().map(secret).collect()
    }

    /// Deletes the Secrets that an attempt created. Secrets that existed before stay.
    async fn discard(&self, made: &CreatedSecrets) {
        let made = std::mem::take(&mut *made.lock());
        for secret in made {
            let namespace = secret.namespace();
            let name = secret.name();
            let uid = secret.uid();
            if let Err(error) =
                self.cluster.delete_unmanaged(&secrets(), namespace, name, uid).await
            {
                tracing::warn!(namespace, name, error = %error, "failed to delete part of an export that was given up");
            }
        }
    }
}

fn see(seen: &mut Sha256, uid: &str, version: &str) {
    seen.update(format!("{uid} {version}\n"));
}

fn too_large(error: ExportTooLargeError) -> CrdGuardError {
    CrdGuardError::Refused(error.to_string())
}

/// Adds custom resources to the export. Compressing them takes computing time.
async fn packed(
    mut exporter: CrdExporter,
    items: Vec<RawObject>,
) -> Result<CrdExporter, CrdGuardError> {
    let work = move || {
        items.iter().try_for_each(|it| exporter.add(&it.json))?;
        Ok(exporter)
    };
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|_| {
        ClusterError::NoAnswer("packing panicked; this is a bug in windlass".to_owned())
    })?;
    done.map_err(too_large)
}
