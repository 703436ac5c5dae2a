//! `windlass crd restore`: creates a definition and its objects from the export that was made before they were deleted.
//!
//! It can be repeated: what exists is left as it is, and what is missing is created.
//! Elsewhere: making the export (`controllers::crd_guard::export`), reading it (engine `crdguard`).

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args as ClapArgs;
use crdguard::{Definition, Import, ImportError, Restored};
use futures::stream::{self, StreamExt as _};
use objects::{Gvk, Object};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Shown, definitions};
use crate::cluster::discovery::Resource;
use crate::cluster::{Cluster, ClusterError};
use crate::controllers::crd_guard::export::{
    DIGEST, EXPORT, KEY, NAME, OBJECTS, PARTS, secret_name,
};
use crate::controllers::crd_guard::survey;

/// The field manager of what is restored.
const MANAGER: &str = "windlass";

/// How many objects are created at once.
const AT_ONCE: usize = 8;

/// How many refusals are shown.
const SHOWN: usize = 50;

/// How often the new definition is read until it is established.
const POLL: Duration = Duration::from_millis(200);

/// What is restored.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct How {
    /// Export, by the uid of the deleted definition; by default the newest one
    #[arg(long, value_name = "UID")]
    export: Option<String>,
    /// Only say what would be created
    #[arg(long)]
    dry_run: bool,
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    name: String,
    /// The uid of the definition that was deleted.
    export: String,
    dry_run: bool,
    /// Whether the definition was created; otherwise it existed.
    definition_created: bool,
    created: u64,
    existing: u64,
    /// Of those that were created: how many had owner references, which are left out.
    without_owners: u64,
    not_restored: u64,
    /// Some of them.
    errors: Vec<String>,
}

/// Restores and prints what was done.
///
/// # Errors
/// There is no such export, or the definition cannot be created.
pub(super) async fn run(shown: &Shown, how: &How) -> anyhow::Result<ExitCode> {
    let (cluster, _) = shown.connection.open().await?;
    let stored = Stored::find(&cluster, &shown.connection.namespace, shown.name(), how).await?;
    let mut import = stored.read(&cluster, &shown.connection.namespace).await?;
    let definition = import.next().context("the export is empty")??.manifest;
    let definition = Object::new(definition).context("the export has no definition")?;
    let mut outcome = Outcome {
        name: shown.name().to_owned(),
        export: stored.uid.clone(),
        dry_run: how.dry_run,
        ..Outcome::default()
    };
    let site = Site::prepare(&cluster, definition, how.dry_run, shown.connection.timeout).await?;
    outcome.definition_created = site.is_new;
    let writes = import.map(|object| site.restore(object));
    let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
    while let Some(one) = writes.next().await {
        outcome.count(one);
    }
    let total = outcome.created + outcome.existing + outcome.not_restored;
    ensure!(
        total == stored.objects,
        "the export has {total} objects instead of {}",
        stored.objects
    );
    shown.print(&outcome, || outcome.text())?;
    Ok(if outcome.not_restored == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An export, as the annotations of its first Secret have it.
struct Stored {
    uid: String,
    parts: usize,
    objects: u64,
    digest: String,
    time: String,
}

impl Stored {
    async fn find(
        cluster: &Cluster,
        namespace: &str,
        name: &str,
        how: &How,
    ) -> anyhow::Result<Self> {
        let secrets = cluster.resource(&Gvk::new("v1", "Secret")).await?;
        let (all, _) = cluster.labelled(&secrets, namespace, EXPORT).await?;
        let all = all.iter().filter_map(|it| Self::of(&it["metadata"], name));
        let is_it = |it: &Self| how.export.as_ref().is_none_or(|uid| *uid == it.uid);
        let found = all.filter(is_it).max_by(|a, b| a.time.cmp(&b.time));
        found.with_context(|| match &how.export {
            Some(uid) => format!("namespace {namespace} has no export {uid} of {name}"),
            None => format!("namespace {namespace} has no export of {name}"),
        })
    }

    /// From the metadata of the first Secret of an export of a definition.
    fn of(meta: &Value, name: &str) -> Option<Self> {
        let note = |key: &str| meta["annotations"][key].as_str();
        let uid = meta["labels"][EXPORT].as_str()?.to_owned();
        if note(NAME) != Some(name) || meta["name"].as_str() != Some(&secret_name(&uid, 0)) {
            return None;
        }
        let parts = note(PARTS)?.parse().ok()?;
        let objects = note(OBJECTS)?.parse().ok()?;
        let time = meta["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        Some(Self { uid, parts, objects, digest: note(DIGEST)?.to_owned(), time })
    }

    async fn read(&self, cluster: &Cluster, namespace: &str) -> anyhow::Result<Import> {
        let mut parts = Vec::new();
        for at in 0..self.parts {
            let name = secret_name(&self.uid, at);
            let found = cluster.secret(namespace, &name).await?;
            let part = found.and_then(|(mut data, _)| data.remove(KEY));
            parts.push(part.with_context(|| {
                format!(
                    "Secret {namespace}/{name}, a part of the export, is missing or has no `{KEY}`"
                )
            })?);
        }
        let import = Import::of(&parts, &self.digest);
        import.with_context(|| format!("export {} in namespace {namespace}", self.uid))
    }
}

/// Where objects are created.
struct Site<'a> {
    cluster: &'a Cluster,
    definition: Definition,
    /// The manifest, for what each version has.
    manifest: Value,
    is_new: bool,
    dry_run: bool,
}

/// What came of one object.
enum One {
    Created { had_owners: bool },
    Existed,
    Failed(String),
}

impl<'a> Site<'a> {
    /// The definition that is there, or the one of the export, which is created.
    async fn prepare(
        cluster: &'a Cluster,
        manifest: Object,
        dry_run: bool,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let crds = definitions(cluster).await?;
        let name = manifest.name().to_owned();
        let live = cluster.get(&crds, "", &name).await?;
        let is_leaving = |it: &Object| it.meta("deletionTimestamp").is_some_and(|it| !it.is_null());
        if live.as_ref().is_some_and(is_leaving) {
            bail!(
                "CustomResourceDefinition {name} is still being deleted; run this again when it is gone"
            );
        }
        let is_new = live.is_none();
        let used = match live {
            Some(live) => live,
            None if dry_run => manifest,
            None => {
                cluster.create_object(&crds, &manifest, MANAGER, false).await?;
                established(cluster, &crds, &name, timeout).await?
            }
        };
        let manifest = used.into_value();
        let definition = Definition::read(&manifest)?;
        Ok(Self { cluster, definition, manifest, is_new, dry_run })
    }

    async fn restore(&self, object: Result<Restored, ImportError>) -> One {
        let restored = match object {
            Ok(restored) => restored,
            Err(error) => return One::Failed(error.to_string()),
        };
        let Restored { manifest, status, had_owners } = restored;
        let object = match Object::new(manifest) {
            Ok(object) => object,
            Err(error) => return One::Failed(error.to_string()),
        };
        let at = if object.namespace().is_empty() { "" } else { "/" };
        let place = format!("{}{at}{}", object.namespace(), object.name());
        match self.create(object, status).await {
            Ok(true) => One::Created { had_owners },
            Ok(false) => One::Existed,
            Err(error) => One::Failed(format!("{place}: {error}")),
        }
    }

    /// Creates an object with its status; `false` if it exists.
    async fn create(&self, mut object: Object, status: Option<Value>) -> anyhow::Result<bool> {
        let version = object.gvk().version;
        ensure!(
            self.definition.serves(&version),
            "the definition does not serve version {version}"
        );
        let resource = survey::resource(&self.definition, &version);
        let place = (object.namespace().to_owned(), object.name().to_owned());
        if self.dry_run {
            let is_there =
                !self.is_new && self.cluster.get(&resource, &place.0, &place.1).await?.is_some();
            return Ok(!is_there);
        }
        let is_apart = self.has_status(&version);
        if let Some(status) = status.as_ref().filter(|_| !is_apart) {
            object.fields_mut().insert("status".to_owned(), status.clone());
        }
        let created = match self.cluster.create_object(&resource, &object, MANAGER, false).await {
            Ok(_) => true,
            Err(error) if is_there(&error) => false,
            Err(error) => return Err(error.into()),
        };
        let Some(status) = status.filter(|_| is_apart) else { return Ok(created) };
        if created || self.lacks_status(&resource, &place).await? {
            let patch = json!({"status": status});
            let at = (place.0.as_str(), place.1.as_str());
            let written = self.cluster.merge_patch_status(&resource, at, &patch, MANAGER).await;
            written.context("it exists, but its status cannot be written")?;
        }
        Ok(created)
    }

    /// Whether an earlier restore was interrupted before it wrote the status.
    async fn lacks_status(
        &self,
        resource: &Resource,
        (namespace, name): &(String, String),
    ) -> Result<bool, ClusterError> {
        let live = self.cluster.get(resource, namespace, name).await?;
        Ok(live.is_some_and(|it| it.get("status").is_none()))
    }

    /// Whether the status of a version is written apart.
    fn has_status(&self, version: &str) -> bool {
        let versions = self.manifest["spec"]["versions"].as_array();
        let mut found = versions.into_iter().flatten().filter(|it| it["name"] == version);
        found.any(|it| it["subresources"]["status"].is_object())
    }
}

fn is_there(error: &ClusterError) -> bool {
    error.code() == Some(409) && !error.is_conflict()
}

/// Waits until the API server serves a definition.
async fn established(
    cluster: &Cluster,
    crds: &Resource,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<Object> {
    let deadline = Instant::now() + timeout;
    loop {
        let live = cluster.get(crds, "", name).await?.context("the definition was deleted")?;
        let value = live.into_value();
        if survey::is_established(&value) {
            let definition = Definition::read(&value)?;
            let version = definition.readable().context("no version of it is served")?;
            // Another API server may learn of it later.
            match cluster.count(&survey::resource(&definition, &version.name)).await {
                Ok(_) => return Ok(Object::new(value)?),
                Err(error) if error.is_unserved() => {}
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(
            Instant::now() < deadline,
            "CustomResourceDefinition {name} is not established in time"
        );
        tokio::time::sleep(POLL).await;
    }
}

impl Outcome {
    fn count(&mut self, one: One) {
        match one {
            One::Created { had_owners } => {
                self.created += 1;
                self.without_owners += u64::from(had_owners);
            }
            One::Existed => self.existing += 1,
            One::Failed(text) => {
                self.not_restored += 1;
                if self.errors.len() < SHOWN {
                    self.errors.push(text);
                }
            }
        }
    }

    fn text(&self) -> String {
        let (would, name) = (if self.dry_run { "would be " } else { "" }, &self.name);
        let mut text = match self.definition_created {
            true => format!("CustomResourceDefinition {name} {would}created\n"),
            false => format!("CustomResourceDefinition {name} exists\n"),
        };
        text.push_str(&format!("objects {would}created: {}\n", self.created));
        for (count, what) in [
            (self.existing, "objects that exist, and stay as they are"),
            (self.without_owners, "of the created, objects whose owner references are left out"),
            (self.not_restored, "objects that cannot be restored"),
        ] {
            if count > 0 {
                text.push_str(&format!("{what}: {count}\n"));
            }
        }
        for error in &self.errors {
            text.push_str(&format!("  {error}\n"));
        }
        let more = self.not_restored - self.errors.len() as u64;
        if more > 0 {
            text.push_str(&format!("  and {more} more\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_outcome_says_what_exists_what_is_left_out_and_what_fails() {
        let mut outcome = Outcome {
            name: "widgets.acme.io".to_owned(),
            definition_created: true,
            ..Outcome::default()
        };
        outcome.count(One::Created { had_owners: true });
        outcome.count(One::Created { had_owners: false });
        outcome.count(One::Existed);
        for at in 0..=SHOWN {
            outcome.count(One::Failed(format!("shop/{at}: namespaces \"shop\" not found")));
        }
        outcome.errors.truncate(1);
        outcome.not_restored = 2;
        expect![[r#"
            CustomResourceDefinition widgets.acme.io created
            objects created: 2
            objects that exist, and stay as they are: 1
            of the created, objects whose owner references are left out: 1
            objects that cannot be restored: 2
              shop/0: namespaces "shop" not found
              and 1 more
        "#]]
        .assert_eq(&outcome.text());
    }

    #[test]
    fn an_export_is_found_by_its_first_secret() {
        let meta = |part: usize, name: &str| {
            json!({"name": secret_name("u", part), "labels": {EXPORT: "u"},
                "annotations": {NAME: name, PARTS: "2", OBJECTS: "7", DIGEST: "sha256:x"}})
        };
        let found = Stored::of(&meta(0, "a.b"), "a.b").map(|it| (it.uid, it.parts, it.objects));
        assert_eq!(found, Some(("u".to_owned(), 2, 7)));
        assert!(Stored::of(&meta(1, "a.b"), "a.b").is_none());
        assert!(Stored::of(&meta(0, "a.c"), "a.b").is_none());
    }
}
