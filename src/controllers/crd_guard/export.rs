//! Exports the objects of a definition that is about to be deleted with them, to Secrets in windlass's namespace.
//!
//! The objects are read and stored, and compared with the cluster once more, before the definition is deleted. A definition
//! whose objects cannot be exported is not deleted.
//! Elsewhere: what an export is made of (engine `crdguard`), creating its objects again (`cli::crd`).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crdguard::{Definition, Export, Exporter, TooLarge};
use objects::{Gvk, Object};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use super::claims::Mark;
use super::policy::REMOVAL;
use super::survey;
use crate::cluster::discovery::Resource;
use crate::cluster::item::Verbatim;
use crate::cluster::objects::Mode;
use crate::cluster::pages::Part;
use crate::cluster::{Cluster, ClusterError};

/// Label of a Secret that is part of an export: the uid of the definition.
pub(crate) const EXPORT: &str = "windlass.dev/crd-export";

/// Annotation: the name of the definition.
pub(crate) const NAME: &str = "windlass.dev/crd-name";

/// Annotation: how many parts the export has.
pub(crate) const PARTS: &str = "windlass.dev/crd-export-parts";

/// Annotation: how many objects it has.
pub(crate) const OBJECTS: &str = "windlass.dev/crd-export-objects";

/// Annotation: the digest of all parts.
pub(crate) const DIGEST: &str = "windlass.dev/crd-export-digest";

/// The key in its data.
pub(crate) const KEY: &str = "export.jsonl.gz";

/// The field manager of these Secrets.
const MANAGER: &str = "windlass";

/// Most Secrets of exports in a cluster: the API server keeps them until a person deletes them.
const MOST_SECRETS: usize = 64;

/// How many exports are made at once: each is in memory until it is stored.
static EXPORTING: Semaphore = Semaphore::const_new(4);

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(600);

/// How often an export is begun again because objects changed.
const ATTEMPTS: u32 = 3;

/// The name of the Secret with a part of an export.
pub(crate) fn secret_name(uid: &str, part: usize) -> String {
    format!("crd-export-{uid}-{part}")
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exported {
    /// There is nothing to be exported: no object, or the definition is gone or being deleted.
    Nothing,
    /// So many objects.
    Objects(u64),
    /// They are not exported, and why.
    Not(String),
}

/// Which objects there are, and in which state.
#[derive(PartialEq, Eq)]
struct Seen(Vec<u8>);

/// Where an export comes from and where it is stored.
pub(super) struct Job<'a> {
    /// In windlass's own name.
    pub(super) cluster: &'a Cluster,
    /// The definition as it was read.
    pub(super) live: &'a Object,
    /// The marks of its owner, which the export does not have.
    pub(super) mine: &'a [Mark],
    /// windlass's namespace.
    pub(super) namespace: &'a str,
}

impl Job<'_> {
    /// Exports the objects.
    ///
    /// # Errors
    /// The API server could not be asked.
    pub(super) async fn run(&self) -> Result<Exported, ClusterError> {
        let _one = EXPORTING.acquire().await;
        match tokio::time::timeout(LIMIT, self.exported()).await {
            Ok(Err(error)) if !error.is_of_server() => Ok(Exported::Not(error.to_string())),
            Ok(exported) => exported,
            Err(_) => Ok(Exported::Not(format!("it took more than {} s", LIMIT.as_secs()))),
        }
    }

    async fn exported(&self) -> Result<Exported, ClusterError> {
        let fields = Value::Object(self.live.fields().clone());
        let definition = match Definition::read(&fields) {
            Ok(definition) => definition,
            Err(fault) => return Ok(Exported::Not(fault.to_string())),
        };
        let Some(version) = definition.readable() else {
            return Ok(Exported::Not("no version is served".to_owned()));
        };
        let resource = survey::resource(&definition, &version.name);
        let crds = self.cluster.resource(&self.live.gvk()).await?;
        for _ in 0..ATTEMPTS {
            let Some(now) = self.current(&crds).await? else { return Ok(Exported::Nothing) };
            let read = match self.read(&resource, &now).await {
                // Whose names were never accepted has no objects.
                Err(error) if error.code() == Some(404) && !survey::is_established(&fields) => {
                    return Ok(Exported::Nothing);
                }
                read => read?,
            };
            let (export, seen) = match read {
                Ok((export, _)) if export.objects == 0 => return Ok(Exported::Nothing),
                Ok(read) => read,
                Err(error) => return Ok(Exported::Not(error.to_string())),
            };
            // Where another client deletes it, what was read may be less than an earlier export has.
            let Some(still) = self.current(&crds).await? else { return Ok(Exported::Nothing) };
            if still.generation() != now.generation() {
                continue;
            }
            if let Err(text) = self.store(&export).await? {
                return Ok(Exported::Not(text));
            }
            if self.seen(&resource).await? == seen {
                return Ok(Exported::Objects(export.objects));
            }
        }
        let text = "they change while they are exported; stop what writes them";
        Ok(Exported::Not(text.to_owned()))
    }

    /// The definition as it is now; none if it is gone, another or being deleted.
    async fn current(&self, crds: &Resource) -> Result<Option<Object>, ClusterError> {
        let now = self.cluster.get(crds, "", self.live.name()).await?;
        Ok(now.filter(|it| it.uid() == self.live.uid() && !is_leaving(it)))
    }

    /// All objects that are not being deleted.
    async fn read(
        &self,
        resource: &Resource,
        definition: &Object,
    ) -> Result<Result<(Export, Seen), TooLarge>, ClusterError> {
        let mut exporter = match Exporter::new(&self.manifest(definition)) {
            Ok(exporter) => exporter,
            Err(error) => return Ok(Err(error)),
        };
        let (mut seen, mut from) = (Sha256::new(), None);
        loop {
            let (mut items, next) = self.cluster.verbatim_page(resource, from.as_deref()).await?;
            items.retain(|it| it.meta.deletion_timestamp.is_none());
            items.iter().for_each(|it| see(&mut seen, &it.meta.uid, &it.meta.resource_version));
            exporter = match packed(exporter, items).await? {
                Ok(exporter) => exporter,
                Err(error) => return Ok(Err(error)),
            };
            from = next;
            if from.is_none() {
                let seen = Seen(seen.finalize().to_vec());
                return Ok(exporter.finish().map(|export| (export, seen)));
            }
        }
    }

    /// The definition as it is created again: without what an API server sets, and without its owner.
    fn manifest(&self, definition: &Object) -> Value {
        let mut manifest = definition.clone();
        manifest.fields_mut().remove("status");
        let metadata = manifest.metadata_mut();
        metadata.retain(|field, _| ["name", "labels", "annotations"].contains(&field.as_str()));
        for (field, is_label) in [("labels", true), ("annotations", false)] {
            let Some(all) = metadata.get_mut(field).and_then(Value::as_object_mut) else {
                continue;
            };
            let is_mine =
                |key: &String| self.mine.iter().any(|it| it.is_label == is_label && it.key == key);
            all.retain(|key, _| key != REMOVAL && !is_mine(key));
        }
        manifest.into_value()
    }

    /// What there is now, without its contents.
    async fn seen(&self, resource: &Resource) -> Result<Seen, ClusterError> {
        let (mut seen, mut from) = (Sha256::new(), None);
        loop {
            let page = self.cluster.page(resource, "", Part::Metadata, from.as_deref()).await?;
            for item in &page.items {
                let meta = &item["metadata"];
                let text = |key: &str| meta[key].as_str().unwrap_or_default();
                if meta["deletionTimestamp"].is_null() {
                    see(&mut seen, text("uid"), text("resourceVersion"));
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(Seen(seen.finalize().to_vec()));
            }
        }
    }

    /// Stores an export; an earlier one of the same definition is replaced. The inner error says why it cannot be stored.
    async fn store(&self, export: &Export) -> Result<Result<(), String>, ClusterError> {
        let (uid, count) = (self.live.uid(), export.parts.len());
        let secrets = self.cluster.resource(&Gvk::new("v1", "Secret")).await?;
        let others = format!("{EXPORT},{EXPORT}!={uid}");
        let (others, is_more) = self.cluster.labelled(&secrets, self.namespace, &others).await?;
        if is_more || others.len() + count > MOST_SECRETS {
            return Ok(Err(format!(
                "the export needs {count} Secrets, and namespace {} may have {MOST_SECRETS} of exports and has {}; delete \
                 those that are no longer needed: `kubectl delete secret -n {} -l {EXPORT}=<uid>`",
                self.namespace,
                others.len(),
                self.namespace
            )));
        }
        for (at, part) in export.parts.iter().enumerate() {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": EXPORT,
                "metadata": {"name": secret_name(uid, at), "namespace": self.namespace,
                    "labels": {EXPORT: uid},
                    "annotations": {NAME: self.live.name(), PARTS: count.to_string(),
                        OBJECTS: export.objects.to_string(), DIGEST: export.digest}},
                "data": {KEY: STANDARD.encode(part)}});
            let secret =
                Object::new(secret).map_err(|error| ClusterError::NoAnswer(error.to_string()))?;
            self.cluster.apply(&secrets, &secret, MANAGER, Mode::Write).await?;
        }
        Ok(Ok(()))
    }
}

/// Whether an object is being deleted.
fn is_leaving(object: &Object) -> bool {
    object.meta("deletionTimestamp").is_some_and(|it| !it.is_null())
}

fn see(seen: &mut Sha256, uid: &str, version: &str) {
    seen.update(format!("{uid} {version}\n"));
}

/// Adds objects; packing takes a processor.
async fn packed(
    mut exporter: Exporter,
    items: Vec<Verbatim>,
) -> Result<Result<Exporter, TooLarge>, ClusterError> {
    let work = move || {
        items.iter().try_for_each(|it| exporter.add(&it.json))?;
        Ok(exporter)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| ClusterError::NoAnswer("packing panicked; this is a bug in windlass".into()))
}
