//! The Secrets in which the revisions of a release are stored. A run reads them once. It writes them with the resource
//! versions that it read, so that no write of another client is lost.
//!
//! Elsewhere: the content of a Secret (engine `release`, `storage`), which Secret is written when (its `plan`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use objects::{Gvk, Object};
use parking_lot::{Mutex, MutexGuard};
use reconcile::Time;
use release::operation::RecordAndJournalWrite;
use release::record::{RecordContentChange, ReleaseRecord, RevisionStatus as Life};
use release::storage::{
    self, DATA_KEY, DIGEST, PART_OF, PART_OWNER, PARTS, PackedRecord, RecordPackError,
    RecordWriteMode,
};
use release::{
    BrokenReleaseRevision, OperationJournal, ReleaseRevision, ReleaseRevisions, journal,
};
use serde_json::{Map, Value, json};

use super::{MANAGER, record_versions};
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The reason why a record was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another client wrote it since it was read.
    #[error("release {0} was modified by another client, retrying")]
    Conflict(String),
    /// The API server's refusal.
    #[error("cannot access the release records in namespace {1}: {0}")]
    Cluster(ClusterError, String),
    /// The record cannot be packed.
    #[error(transparent)]
    Pack(#[from] RecordPackError),
}

impl StorageError {
    /// Converts this error to an error of the cluster, for callers that only read records.
    pub fn into_cluster(self) -> ClusterError {
        match self {
            Self::Cluster(error, _) => error,
            other => ClusterError::NoAnswer(other.to_string()),
        }
    }
}

/// A revision and its Secret.
#[derive(Clone)]
struct StoredRevision {
    record: Arc<ReleaseRecord>,
    journal: Option<OperationJournal>,
    secret: String,
    uid: String,
    version: String,
    /// The creation time of the Secret, by the clock of the API server.
    created: Option<Time>,
    labels: BTreeMap<String, String>,
    layout: RecordLayout,
}

/// Whether a record takes several Secrets, and how large it is.
#[derive(Clone)]
struct RecordLayout {
    /// The digest of all parts, if the record is stored in several Secrets.
    parts: Option<String>,
    /// The bytes of the record in its Secrets.
    size: usize,
}

impl RecordLayout {
    fn of(packed: &PackedRecord) -> Self {
        Self {
            parts: (packed.parts.len() > 1).then(|| packed.digest.clone()),
            size: packed.parts.iter().map(Vec::len).sum(),
        }
    }
}

impl StoredRevision {
    /// The revision that a Secret stores.
    fn of(
        secret: &Object,
        record: Arc<ReleaseRecord>,
        journal: Option<OperationJournal>,
        labels: BTreeMap<String, String>,
        layout: RecordLayout,
    ) -> Self {
        let version = secret.meta("resourceVersion").and_then(Value::as_str).unwrap_or_default();
        Self {
            record,
            journal,
            secret: secret.name().to_owned(),
            uid: secret.uid().to_owned(),
            version: version.to_owned(),
            created: creation_time(secret),
            labels,
            layout,
        }
    }
}

/// The time at which the API server created an object. `None` if the object contains no such time.
pub(super) fn creation_time(object: &Object) -> Option<Time> {
    object.meta("creationTimestamp")?.as_str()?.parse().ok()
}

/// The Secrets that store the revisions of a Helm release, read once for each run and written only
/// at the versions that were read.
pub struct ReleaseStorage {
    cluster: ClusterConnection,
    secrets: ApiResourceLocation,
    /// The namespace of the Secrets.
    pub(super) namespace: String,
    /// The release.
    pub(super) name: String,
    /// The uid of the HelmRelease.
    owner: String,
    known: Mutex<Option<RevisionCache>>,
}

struct RevisionCache {
    stored: BTreeMap<i64, StoredRevision>,
    broken: Vec<BrokenReleaseRevision>,
    /// Names and uids of the Secrets that cannot be read, by the revisions that their labels name.
    unreadable: Vec<(i64, String, String)>,
    read_at: Instant,
}

/// The content of the Secret of a revision.
enum RevisionSecretContent {
    Stored(Box<StoredRevision>),
    /// The revision cannot be read, for this reason.
    Broken(String),
}

impl Default for RevisionCache {
    fn default() -> Self {
        let stored = BTreeMap::new();
        let broken = Vec::new();
        let unreadable = Vec::new();
        Self { stored, broken, unreadable, read_at: Instant::now() }
    }
}

impl RevisionCache {
    fn add_unreadable(&mut self, namespace: &str, row: RecordMetadata, problem: String) {
        let RecordMetadata { name, uid, version, .. } = row;
        let secret = format!("{namespace}/{name}");
        self.broken.push(BrokenReleaseRevision { secret, version, problem });
        self.unreadable.push((version, name, uid));
    }
}

/// The metadata of a Secret that holds a record.
struct RecordMetadata {
    name: String,
    uid: String,
    version: i64,
    /// Whether the revision is deployed, or an operation on it has not ended.
    is_sought: bool,
}

impl RecordMetadata {
    fn of(DepthPrunedObject(secret): &DepthPrunedObject) -> Self {
        let metadata = &secret["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let label = |key: &str| metadata["labels"][key].as_str().unwrap_or_default();
        let status = label("status");
        Self {
            name: text("name"),
            uid: text("uid"),
            version: label("version").parse().unwrap_or_default(),
            is_sought: matches!(status, "deployed" | "uninstalling")
                || status.starts_with("pending-"),
        }
    }
}

/// The metadata of a Secret that holds a part of a record.
struct RecordPartMetadata<'a> {
    name: &'a str,
    uid: &'a str,
    /// The label with the release and the revision of the part.
    revision: Option<&'a str>,
}

impl<'a> RecordPartMetadata<'a> {
    fn of(DepthPrunedObject(secret): &'a DepthPrunedObject) -> Self {
        let metadata = &secret["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        Self {
            name: text("name"),
            uid: text("uid"),
            revision: metadata["labels"][PART_OF].as_str(),
        }
    }
}

/// How long records that were read are used for the runs of one wait. If another client deletes or changes them
/// meanwhile, the next write notices at the latest.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// The most bytes of records that are kept between the runs of a wait. Each run reads larger ones again, because
/// hundreds of releases may wait at once.
const KEPT_SIZE: usize = 32 << 10;

/// The most bytes of a release's records that are read.
const MOST_RECORD_BYTES: usize = 64 << 20;

/// Strings of a map in metadata.
fn strings(object: &Object, field: &str) -> BTreeMap<String, String> {
    let map = object.meta(field).and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    map.into_iter().flatten().filter_map(text).collect()
}

/// The decoded data of a release record in a Secret. `None` if the Secret has no such data, or if it cannot be decoded.
fn data_of(secret: &Object) -> Option<Vec<u8>> {
    let text = secret.get("data")?.get(DATA_KEY)?.as_str()?;
    BASE64.decode(text).ok()
}

impl ReleaseStorage {
    /// The storage of a release whose Secrets are in a namespace; `owner` is the uid of the object that owns the
    /// release.
    ///
    /// # Errors
    /// The API server does not say what it serves.
    pub async fn new(
        cluster: &ClusterConnection,
        namespace: &str,
        name: &str,
        owner: &str,
    ) -> Result<Self, StorageError> {
        let secrets = cluster.resource(&Gvk::new("v1", "Secret")).await;
        let secrets =
            secrets.map_err(|error| StorageError::Cluster(error, namespace.to_owned()))?;
        Ok(Self {
            cluster: cluster.clone(),
            secrets,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owner: owner.to_owned(),
            known: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Option<RevisionCache>> {
        self.known.lock()
    }

    fn refused(&self, version: i64, error: ClusterError) -> StorageError {
        match error.code() {
            Some(409) => StorageError::Conflict(format!("{}.v{version}", self.name)),
            _ => StorageError::Cluster(error, self.namespace.clone()),
        }
    }

    /// The revisions in the cluster, with the writes of this run.
    ///
    /// # Errors
    /// The Secrets cannot be read.
    pub async fn revisions(&self) -> Result<ReleaseRevisions, StorageError> {
        if self.known().is_none() {
            let read = self.read().await?;
            *self.known() = Some(read);
        }
        let known = self.known();
        let known = known.as_ref();
        let stored = known.into_iter().flat_map(|known| known.stored.values());
        let revisions = stored
            .map(|it| ReleaseRevision { record: it.record.clone(), journal: it.journal.clone() })
            .collect();
        Ok(ReleaseRevisions::new(revisions, known.map(|it| it.broken.clone()).unwrap_or_default()))
    }

    /// Whether the next run of a wait may reuse these records instead of reading them again.
    pub(super) fn is_kept(&self) -> bool {
        let known = self.known();
        known.as_ref().is_some_and(|known| {
            let size: usize = known.stored.values().map(|it| it.layout.size).sum();
            size <= KEPT_SIZE && known.read_at.elapsed() < KEPT_FOR
        })
    }

    /// The digest of the versions of the Secrets. `None` if nothing was read, or a record is not known by its Secret alone.
    pub(super) fn versions_digest(&self) -> Option<String> {
        let known = self.known();
        let known = known.as_ref()?;
        let is_whole = |it: &StoredRevision| it.layout.parts.is_none();
        if !known.broken.is_empty() || !known.stored.values().all(is_whole) {
            return None;
        }
        let secrets = known.stored.values();
        let versions = secrets.map(|it| (it.secret.clone(), it.version.clone())).collect();
        Some(record_versions::digest(&versions))
    }

    /// Drops the records, so that the next access reads them again.
    pub(super) fn forget(&self) {
        *self.known() = None;
    }

    async fn read(&self) -> Result<RevisionCache, StorageError> {
        let failed = |error| StorageError::Cluster(error, self.namespace.clone());
        let selector = storage::selector(&self.name);
        let query = ObjectQuery {
            resource: &self.secrets,
            namespace: &self.namespace,
            label_selector: &selector,
            field_selector: "",
        };
        let mut pages = self.cluster.object_pages(query);
        let mut known = RevisionCache::default();
        let mut bytes = 0;
        while let Some(page) = pages.next().await.map_err(failed)? {
            bytes += page.bytes;
            if bytes > MOST_RECORD_BYTES {
                drop(known);
                return self.read_what_fits(&selector, MOST_RECORD_BYTES).await;
            }
            for secret in page.objects {
                self.add(&mut known, &secret).await?;
            }
        }
        Ok(known)
    }

    /// Reads the records of a release that are too large together, for example because its history has no limit. It reads up
    /// to `most` bytes. The newest revision and the revisions with a status that an operation looks for come first, then the
    /// others from the newest on. The rest counts as unreadable: no operation compares with these revisions, and they are
    /// deleted like others.
    async fn read_what_fits(
        &self,
        selector: &str,
        most: usize,
    ) -> Result<RevisionCache, StorageError> {
        let failed = |error| StorageError::Cluster(error, self.namespace.clone());
        let mut rows = Vec::new();
        let pages = self.cluster.metadata_pages(&self.secrets, &self.namespace, selector);
        let mut pages = pages.map_err(failed)?;
        while let Some(page) = pages.next().await.map_err(failed)? {
            rows.extend(page.iter().map(RecordMetadata::of));
        }
        let newest = rows.iter().map(|it| it.version).max();
        rows.sort_by_key(|it| {
            let is_first = it.is_sought || Some(it.version) == newest;
            (Reverse(is_first), Reverse(it.version))
        });
        let mut known = RevisionCache::default();
        let mut bytes = 0;
        for row in rows {
            if bytes >= most {
                let problem =
                    format!("the records of the release are larger than {most} bytes together");
                known.add_unreadable(&self.namespace, row, problem);
                continue;
            }
            let secret = self.cluster.get(&self.secrets, &self.namespace, &row.name).await;
            let Some(secret) = secret.map_err(failed)? else { continue };
            bytes += self.add(&mut known, &secret).await?;
        }
        Ok(known)
    }

    /// Adds the revision that a Secret stores. Returns the number of bytes.
    async fn add(&self, known: &mut RevisionCache, secret: &Object) -> Result<usize, StorageError> {
        let labels = strings(secret, "labels");
        let version = labels.get("version").and_then(|it| it.parse().ok()).unwrap_or_default();
        match self.stored(secret, labels).await? {
            RevisionSecretContent::Stored(stored) => {
                let size = stored.layout.size;
                known.stored.insert(stored.record.version, *stored);
                Ok(size)
            }
            RevisionSecretContent::Broken(problem) => {
                let name = secret.name().to_owned();
                let uid = secret.uid().to_owned();
                let row = RecordMetadata { name, uid, version, is_sought: false };
                known.add_unreadable(&self.namespace, row, problem);
                Ok(0)
            }
        }
    }

    /// The name prefixes of the parts of all revisions. `None` if a revision cannot be read, because its parts are then
    /// unknown.
    fn parts_of(&self, known: &RevisionCache) -> Option<Vec<String>> {
        let parts = known.stored.iter().filter_map(|(version, stored)| {
            Some(storage::part_prefix(&self.name, *version, stored.layout.parts.as_ref()?))
        });
        known.broken.is_empty().then(|| parts.collect())
    }

    /// Deletes parts of our own that belong to no revision. A crash between two writes leaves such parts.
    ///
    /// It lists all parts in the namespace, so it is called only when such parts may exist: before parts are written,
    /// and after a release was uninstalled.
    pub(super) async fn sweep(&self) -> Result<(), StorageError> {
        let kept = self.known().as_ref().and_then(|known| self.parts_of(known));
        let Some(kept) = kept else { return Ok(()) };
        let is_garbage = |part: &RecordPartMetadata<'_>| {
            let is_ours = part.revision.is_some_and(|it| storage::is_part_of(&self.name, it));
            is_ours && !kept.iter().any(|prefix| part.name.starts_with(prefix))
        };
        self.delete_parts_where(&storage::parts_selector(&self.owner), is_garbage).await
    }

    /// Logs why parts without a revision stay. No revision depends on them. They are deleted before the next record in several
    /// parts is written, or with the release.
    fn log_left_parts(&self, error: &StorageError) {
        tracing::warn!(
            namespace = self.namespace,
            release = self.name,
            error = %error,
            "failed to delete parts of release records that belong to no revision; they are deleted later"
        );
    }

    /// Deletes parts that a label selector matches. Only their metadata is read, since parts are large.
    async fn delete_parts_where(
        &self,
        label_selector: &str,
        is_garbage: impl Fn(&RecordPartMetadata<'_>) -> bool,
    ) -> Result<(), StorageError> {
        let failed = |error| StorageError::Cluster(error, self.namespace.clone());
        let pages = self.cluster.metadata_pages(&self.secrets, &self.namespace, label_selector);
        let mut pages = pages.map_err(failed)?;
        while let Some(page) = pages.next().await.map_err(failed)? {
            for part in page.iter().map(RecordPartMetadata::of).filter(&is_garbage) {
                let deleted = self.cluster.delete_unmanaged(
                    &self.secrets,
                    &self.namespace,
                    part.name,
                    part.uid,
                );
                deleted.await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// A Secret as a revision.
    async fn stored(
        &self,
        secret: &Object,
        labels: BTreeMap<String, String>,
    ) -> Result<RevisionSecretContent, StorageError> {
        let annotations = strings(secret, "annotations");
        let Some(first) = data_of(secret) else {
            return Ok(RevisionSecretContent::Broken("it has no data in key `release`".to_owned()));
        };
        let mut parts = vec![first];
        let count = match storage::part_count(&annotations) {
            Ok(count) => count,
            Err(error) => return Ok(RevisionSecretContent::Broken(error.to_string())),
        };
        let version: i64 = labels.get("version").and_then(|it| it.parse().ok()).unwrap_or_default();
        let digest = annotations.get(DIGEST).map_or("", String::as_str);
        for part in 1..count {
            let name = storage::part_name(&self.name, version, digest, part);
            let found = self.cluster.get(&self.secrets, &self.namespace, &name).await;
            let found = found.map_err(|it| StorageError::Cluster(it, self.namespace.clone()))?;
            parts.extend(found.as_ref().and_then(data_of));
        }
        let read = tokio::task::spawn_blocking(move || {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let record = storage::unpack(&parts, &labels, &annotations);
            // windlass did not write a journal that cannot be read. The journal is about an unfinished operation of another
            // client.
            let journal = annotations
                .get(journal::ANNOTATION)
                .and_then(|it| OperationJournal::parse(it).ok());
            let layout = RecordLayout {
                parts: annotations.get(DIGEST).filter(|_| parts.len() > 1).cloned(),
                size: parts.iter().map(|it| it.len()).sum(),
            };
            (record, journal, labels, layout)
        });
        let Ok((record, journal, labels, layout)) = read.await else {
            return Ok(RevisionSecretContent::Broken("reading it was interrupted".to_owned()));
        };
        Ok(match record {
            Ok(record) => {
                let record = Arc::new(record);
                let stored = StoredRevision::of(secret, record, journal, labels, layout);
                RevisionSecretContent::Stored(Box::new(stored))
            }
            Err(error) => RevisionSecretContent::Broken(error.to_string()),
        })
    }

    /// When the API server created the record of a revision. `None` if that is unknown.
    pub(super) fn creation_time_of(&self, version: i64) -> Option<Time> {
        self.known().as_ref()?.stored.get(&version)?.created
    }

    /// Stores a new revision with its journal. If the record exists already, it is left unchanged, and the next run reads it.
    pub(super) async fn create(
        &self,
        record: ReleaseRecord,
        journal: &OperationJournal,
    ) -> Result<(), StorageError> {
        let version = record.version;
        let labels = storage::labels(&record, RecordWriteMode::New, jiff::Timestamp::now());
        let (record, packed) = packed(record).await?;
        if packed.parts.len() > 1
            && let Err(error) = self.sweep().await
        {
            self.log_left_parts(&error);
        }
        self.write_parts(version, &packed).await?;
        let mut annotations = packed.annotations();
        annotations.insert(journal::ANNOTATION.to_owned(), journal.text());
        let name = storage::secret_name(&self.name, version);
        let secret = self.secret(&name, &labels, &annotations, packed.parts.first())?;
        let created = self.cluster.create_object(&self.secrets, &secret, MANAGER, false).await;
        match created {
            Ok(created) => {
                let layout = RecordLayout::of(&packed);
                self.remember(record, Some(journal.clone()), &created, labels, layout);
                Ok(())
            }
            Err(error) if error.code() == Some(409) => {
                self.forget();
                Ok(())
            }
            Err(error) => Err(StorageError::Cluster(error, self.namespace.clone())),
        }
    }

    fn secret(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
        data: Option<&Vec<u8>>,
    ) -> Result<Object, StorageError> {
        let data = BASE64.encode(data.map_or(&[][..], Vec::as_slice));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": storage::SECRET_TYPE,
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels,
                "annotations": annotations},
            "data": {DATA_KEY: data}});
        let failed = |error: objects::ObjectError| {
            StorageError::Cluster(ClusterError::NoAnswer(error.to_string()), self.namespace.clone())
        };
        Object::new(secret).map_err(failed)
    }

    fn remember(
        &self,
        record: Arc<ReleaseRecord>,
        journal: Option<OperationJournal>,
        secret: &Object,
        labels: BTreeMap<String, String>,
        layout: RecordLayout,
    ) {
        let stored = StoredRevision::of(secret, record, journal, labels, layout);
        if let Some(known) = self.known().as_mut() {
            known.stored.insert(stored.record.version, stored);
        }
    }

    /// Stores all parts of a record except the first. The name of a part comes from its content, so an existing part is
    /// correct.
    async fn write_parts(&self, version: i64, packed: &PackedRecord) -> Result<(), StorageError> {
        let labels = BTreeMap::from([
            (PART_OF.to_owned(), storage::part_of(&self.name, version)),
            (PART_OWNER.to_owned(), self.owner.clone()),
        ]);
        for (at, part) in packed.parts.iter().enumerate().skip(1) {
            let name = storage::part_name(&self.name, version, &packed.digest, at);
            let secret = self.secret(&name, &labels, &BTreeMap::new(), Some(part))?;
            match self.cluster.create_object(&self.secrets, &secret, MANAGER, false).await {
                Err(error) if error.code() != Some(409) => {
                    return Err(StorageError::Cluster(error, self.namespace.clone()));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Deletes the parts of a revision that its Secret does not name.
    async fn delete_parts(&self, version: i64, digest: Option<&str>) -> Result<(), StorageError> {
        let selector = format!("{PART_OF}={}", storage::part_of(&self.name, version));
        let kept = digest.map(|digest| storage::part_prefix(&self.name, version, digest));
        let is_garbage = |part: &RecordPartMetadata<'_>| {
            kept.as_ref().is_none_or(|kept| !part.name.starts_with(kept))
        };
        self.delete_parts_where(&selector, is_garbage).await
    }

    /// Writes the records of a step: first the other records, then the record with its journal.
    pub(super) async fn write(&self, write: &RecordAndJournalWrite) -> Result<(), StorageError> {
        self.write_others(&write.others).await?;
        self.change(write.version, &write.changes, Some(&write.journal)).await
    }

    /// Changes records beside which no journal is written.
    pub(super) async fn write_others(
        &self,
        others: &[(i64, RecordContentChange)],
    ) -> Result<(), StorageError> {
        for (version, change) in others {
            self.change(*version, std::slice::from_ref(change), None).await?;
        }
        Ok(())
    }

    /// Marks the record of another client's unfinished operation as failed.
    pub(super) async fn unlock(&self, version: i64, text: &str) -> Result<(), StorageError> {
        let description = Some(text.to_owned());
        let change =
            RecordContentChange::Status { status: Life::Failed, description, deleted: None };
        self.change(version, &[change], None).await
    }

    async fn change(
        &self,
        version: i64,
        changes: &[RecordContentChange],
        journal: Option<&OperationJournal>,
    ) -> Result<(), StorageError> {
        let before = self.known().as_ref().and_then(|known| known.stored.get(&version).cloned());
        let Some(before) = before else {
            self.forget();
            return Err(StorageError::Conflict(format!("{}.v{version}", self.name)));
        };
        let mut annotations = Map::new();
        if let Some(journal) = journal {
            annotations.insert(journal::ANNOTATION.to_owned(), journal.text().into());
        }
        let mut patch = json!({"metadata": {"resourceVersion": before.version, "uid": before.uid}});
        let mut record = before.record.clone();
        let mut labels = before.labels.clone();
        let mut packed_now = None;
        if !changes.is_empty() {
            let mut changed = ReleaseRecord::clone(&before.record);
            for change in changes {
                changed.apply(change);
            }
            let now = jiff::Timestamp::now();
            let next = storage::labels(&changed, RecordWriteMode::Again, now);
            patch["metadata"]["labels"] = replaced(&labels, &next);
            labels = next;
            let (changed, packed) = packed(changed).await?;
            record = changed;
            self.write_parts(version, &packed).await?;
            let stand = packed.annotations();
            for key in [PARTS, DIGEST] {
                let value = stand.get(key).map(|it| Value::from(it.as_str()));
                if value.is_some() || before.layout.parts.is_some() {
                    annotations.insert(key.to_owned(), value.unwrap_or(Value::Null));
                }
            }
            let first = packed.parts.first().map_or(&[][..], Vec::as_slice);
            patch["data"] = json!({DATA_KEY: BASE64.encode(first)});
            packed_now = Some(packed);
        }
        patch["metadata"]["annotations"] = Value::Object(annotations);
        let name = &before.secret;
        let written =
            self.cluster.merge_patch(&self.secrets, &self.namespace, name, &patch, MANAGER).await;
        let written = match written {
            Ok(written) => written,
            Err(error) => {
                self.forget();
                let is_gone = error.is_not_found();
                return Err(match is_gone {
                    true => StorageError::Conflict(format!("{}.v{version}", self.name)),
                    false => self.refused(version, error),
                });
            }
        };
        let layout = packed_now.as_ref().map_or_else(|| before.layout.clone(), RecordLayout::of);
        let parts = layout.parts.clone();
        let had_parts = packed_now.is_some() && (before.layout.parts.is_some() || parts.is_some());
        let journal = journal.cloned().or(before.journal);
        self.remember(record, journal, &written, labels, layout);
        if had_parts && let Err(error) = self.delete_parts(version, parts.as_deref()).await {
            self.log_left_parts(&error);
        }
        Ok(())
    }

    /// Deletes records, in this order.
    pub(super) async fn purge(&self, versions: &[i64]) -> Result<(), StorageError> {
        for version in versions {
            self.purge_unreadable(*version).await?;
            let stored = self.known().as_ref().and_then(|known| known.stored.get(version).cloned());
            let Some(stored) = stored else { continue };
            let namespace = self.namespace.as_str();
            let name = stored.secret.as_str();
            let deleted =
                self.cluster.delete_unmanaged(&self.secrets, namespace, name, &stored.uid).await;
            deleted.map_err(|error| self.refused(*version, error))?;
            if stored.layout.parts.is_some() {
                self.delete_parts(*version, None).await?;
            }
            if let Some(known) = self.known().as_mut() {
                known.stored.remove(version);
            }
        }
        Ok(())
    }
}

impl ReleaseStorage {
    /// Deletes Secrets of a revision that cannot be read.
    async fn purge_unreadable(&self, version: i64) -> Result<(), StorageError> {
        let all = self.known().as_ref().map(|known| known.unreadable.clone()).unwrap_or_default();
        for (_, name, uid) in all.iter().filter(|(it, _, _)| *it == version) {
            let deleted =
                self.cluster.delete_unmanaged(&self.secrets, &self.namespace, name, uid).await;
            deleted.map_err(|error| self.refused(version, error))?;
            if let Some(known) = self.known().as_mut() {
                known.unreadable.retain(|(_, it, _)| it != name);
                let shown = format!("{}/{name}", self.namespace);
                known.broken.retain(|it| it.secret != shown);
            }
        }
        Ok(())
    }
}

/// Packing costs time that others on the thread would miss.
async fn packed(record: ReleaseRecord) -> Result<(Arc<ReleaseRecord>, PackedRecord), StorageError> {
    let record = Arc::new(record);
    let shared = record.clone();
    let packed = tokio::task::spawn_blocking(move || storage::pack(&shared)).await;
    let broken = |_| ClusterError::NoAnswer("packing the record was interrupted".to_owned());
    let packed = packed.map_err(|it| StorageError::Cluster(broken(it), String::new()))?;
    Ok((record, packed?))
}

/// The merge patch that replaces labels.
fn replaced(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Value {
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let gone = gone.map(|key| (key.clone(), Value::Null));
    let now = after.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    Value::Object(gone.chain(now).collect())
}

#[cfg(test)]
mod tests;
