//! `windlass crd restore`: creates a CRD and its objects from the export that was made before their deletion.
//!
//! The command can be repeated. It leaves existing objects unchanged, and creates the missing ones.
//! Elsewhere: making the export (`windlass_runtime::crd_guard::export`), finding it (`stored_exports`), reading it (engine
//! `crdguard`).

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args as ClapArgs;
use crdguard::{CrdDefinition, CrdImportError, RestoredObject};
use futures::stream::{self, StreamExt as _};
use objects::Object;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::stored_exports::StoredCrdExport;
use super::{CrdCommonArgs, definitions};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::crd_owners::UNOWNED;
use windlass_runtime::crd_guard::{custom_resource_check, is_definition};

/// The maximum number of objects that are created in parallel.
const AT_ONCE: usize = 8;

/// The maximum number of errors that are shown.
const MAX_SHOWN_ERRORS: usize = 50;

/// How often the new CRD is read until it is established.
const ESTABLISHED_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How many times a write is tried if others write the same object at the same moment.
const MAX_WRITE_ATTEMPTS: u32 = 4;

/// The maximum number of named fields in which a CRD differs from the exported one.
const MAX_NAMED_FIELDS: usize = 8;

/// What `windlass crd restore` restores: the selected export and how it is used.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct CrdRestoreOptions {
    /// Export, by its name or by the uid of the deleted definition; needed if there are several
    #[arg(long, value_name = "EXPORT")]
    export: Option<String>,
    /// Create the objects even though the definition that exists differs from the exported one
    #[arg(long)]
    accept_definition: bool,
    /// Only say what would be created
    #[arg(long)]
    dry_run: bool,
}

/// The result of a restore.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct CrdRestoreReport {
    name: String,
    export: String,
    /// When the export was made.
    exported_at: String,
    dry_run: bool,
    /// Whether the CRD was created. Otherwise it existed.
    definition_created: bool,
    /// The fields in which the existing CRD differs from the exported one.
    definition_differs: Vec<String>,
    created: u64,
    existing: u64,
    /// How many existing objects had no status and received the exported one.
    statuses: u64,
    /// How many of the created objects had owner references, which are left out.
    without_owners: u64,
    not_restored: u64,
    /// Some of the errors.
    errors: Vec<String>,
}

/// Restores the objects and prints the result.
///
/// # Errors
/// There is no such export, or the CRD cannot be created.
pub(super) async fn run(
    shown: &CrdCommonArgs,
    how: &CrdRestoreOptions,
) -> anyhow::Result<ExitCode> {
    let (cluster, _) = shown.connection.open().await?;
    let namespace = &shown.connection.namespace;
    let name = shown.name();
    let found = StoredCrdExport::find(&cluster, namespace, name, how.export.as_deref()).await;
    let stored = found.with_context(|| format!("no export of {name} can be restored"))?;
    let mut import = stored.read(&cluster, namespace).await?;
    let definition = import.next().context("the export is empty")??.manifest;
    let definition = Object::new(definition).context("the export has no definition")?;
    // Everyone who may create Secrets in the namespace could have written the export.
    ensure!(
        is_definition(&definition) && definition.name() == name,
        "export {} is not of CustomResourceDefinition {name}, but of {}",
        stored.name,
        definition.id().subject()
    );
    let site =
        CrdRestoreDestination::prepare(&cluster, definition, how, shown.connection.timeout).await?;
    let mut outcome = CrdRestoreReport {
        name: name.to_owned(),
        export: stored.name.clone(),
        exported_at: stored.time.clone(),
        dry_run: how.dry_run,
        definition_created: site.is_new,
        definition_differs: site.differs.clone(),
        ..CrdRestoreReport::default()
    };
    let writes = import.map(|object| site.restore(object));
    let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
    while let Some(one) = writes.next().await {
        outcome.count(one);
    }
    shown.print(&outcome, || outcome.text())?;
    let total = outcome.created + outcome.existing + outcome.not_restored;
    ensure!(
        total == stored.objects,
        "the export has {total} objects instead of {}",
        stored.objects
    );
    Ok(if outcome.not_restored == 0 { ExitCode::Success } else { ExitCode::ProblemsFound })
}

/// The cluster in which objects are created, with its CRD.
struct CrdRestoreDestination<'a> {
    cluster: &'a ClusterConnection,
    definition: CrdDefinition,
    /// The manifest of the CRD, which describes each version.
    manifest: Value,
    is_new: bool,
    dry_run: bool,
    /// The fields in which the CRD differs from the exported one.
    differs: Vec<String>,
}

/// The result for one object.
enum ObjectRestoreResult {
    Created { had_owners: bool },
    Existed { was_given_status: bool },
    Failed(String),
}

impl<'a> CrdRestoreDestination<'a> {
    /// Finds the existing CRD, or creates it from the export.
    async fn prepare(
        cluster: &'a ClusterConnection,
        manifest: Object,
        how: &CrdRestoreOptions,
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
        let differs = live.as_ref().map(|live| differing(&manifest, live)).unwrap_or_default();
        ensure!(
            differs.is_empty() || how.accept_definition || how.dry_run,
            "CustomResourceDefinition {name} exists and is not the exported one: {} differ; with --accept-definition the \
             objects are created in it as far as they fit",
            differs.join(", ")
        );
        let is_new = live.is_none();
        let used = match live {
            Some(live) => live,
            None if how.dry_run => manifest,
            None => {
                cluster.create_object(&crds, &manifest, UNOWNED, false).await?;
                established(cluster, &crds, &name, timeout).await?
            }
        };
        let manifest = used.into_value();
        let definition = CrdDefinition::read(&manifest)?;
        Ok(Self { cluster, definition, manifest, is_new, dry_run: how.dry_run, differs })
    }

    async fn restore(&self, object: Result<RestoredObject, CrdImportError>) -> ObjectRestoreResult {
        let restored = match object {
            Ok(restored) => restored,
            Err(error) => return ObjectRestoreResult::Failed(error.to_string()),
        };
        let RestoredObject { manifest, status, had_owners } = restored;
        let object = match Object::new(manifest) {
            Ok(object) => object,
            Err(error) => return ObjectRestoreResult::Failed(error.to_string()),
        };
        let at = if object.namespace().is_empty() { "" } else { "/" };
        let place = format!("{}{at}{}", object.namespace(), object.name());
        match self.create(object, status).await {
            Ok(None) => ObjectRestoreResult::Created { had_owners },
            Ok(Some(was_given_status)) => ObjectRestoreResult::Existed { was_given_status },
            Err(error) => ObjectRestoreResult::Failed(format!("{place}: {error:#}")),
        }
    }

    /// Creates an object with its status. If the object exists, returns whether its status was restored.
    async fn create(&self, object: Object, status: Option<Value>) -> anyhow::Result<Option<bool>> {
        let version = object.gvk().version;
        ensure!(
            self.definition.serves(&version),
            "the definition does not serve version {version}"
        );
        let resource = custom_resource_check::resource(&self.definition, &version);
        let place = (object.namespace(), object.name());
        if self.dry_run {
            let is_there =
                !self.is_new && self.cluster.get(&resource, place.0, place.1).await?.is_some();
            return Ok(is_there.then_some(false));
        }
        let is_apart = self.has_status(&version);
        let mut whole = object.clone();
        if let Some(status) = status.as_ref().filter(|_| !is_apart) {
            whole.fields_mut().insert("status".to_owned(), status.clone());
        }
        // Strict validation is on. Otherwise the API server would silently drop fields that the CRD does not have.
        let created = match self.cluster.create_object(&resource, &whole, UNOWNED, true).await {
            Ok(_) => true,
            Err(error) if is_there(&error) => false,
            Err(error) => return Err(error.into()),
        };
        let Some(status) = status.filter(|_| is_apart) else {
            return Ok((!created).then_some(false));
        };
        let lacks_it = created || {
            let live = self.cluster.get(&resource, place.0, place.1).await?;
            live.is_some_and(|live| lacks_status(&live, &object))
        };
        if lacks_it {
            let written = self.write_status(&resource, place.0, place.1, &status).await;
            written.context("it exists, but its status cannot be written")?;
        }
        Ok((!created).then_some(lacks_it))
    }

    /// Writes a status without keeping ownership of its fields, so that the next client can own them.
    async fn write_status(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
        status: &Value,
    ) -> Result<(), ClusterError> {
        // A merge patch would drop null values.
        let add = json!([{"op": "add", "path": "/status", "value": status}]);
        let cluster = &self.cluster;
        let mut live = cluster.json_patch_status(resource, namespace, name, &add, UNOWNED).await?;
        for attempt in 1.. {
            let Some(patch) = without_status_entry(&live) else { break };
            match cluster.merge_patch(resource, namespace, name, &patch, UNOWNED).await {
                Err(error) if error.is_conflict() && attempt < MAX_WRITE_ATTEMPTS => {}
                written => return written.map(drop),
            }
            let Some(now) = cluster.get(resource, namespace, name).await? else { break };
            live = now;
        }
        Ok(())
    }

    /// Whether a version has a status subresource.
    fn has_status(&self, version: &str) -> bool {
        let versions = self.manifest["spec"]["versions"].as_array();
        let mut found = versions.into_iter().flatten().filter(|it| it["name"] == version);
        found.any(|it| it["subresources"]["status"].is_object())
    }
}

/// The fields in which a CRD differs from the exported one.
fn differing(exported: &Object, live: &Object) -> Vec<String> {
    let spec = |it: &Object| {
        let spec = it.get("spec").cloned().unwrap_or_default();
        Object::new(
            json!({"apiVersion": "v1", "kind": "Spec", "metadata": {"name": "spec"}, "spec": spec}),
        )
    };
    match (spec(exported), spec(live)) {
        (Ok(exported), Ok(live)) => {
            apply::drift_comparison::diff_paths(&exported, &live, MAX_NAMED_FIELDS)
        }
        _ => vec!["/spec".to_owned()],
    }
}

/// Whether an interrupted restore created this object but did not write its status. An object that another client created has
/// another status.
fn lacks_status(live: &Object, exported: &Object) -> bool {
    let fields = |it: &Object| {
        let mut fields = it.fields().clone();
        fields.remove("metadata");
        fields
    };
    live.get("status").is_none() && fields(live) == fields(exported)
}

/// The patch that removes the entry for the status from the managed fields of an object. Otherwise, a controller that applies
/// the status could not remove fields from it. `None` if there is no such entry.
fn without_status_entry(live: &Object) -> Option<Value> {
    let entries = live.meta("managedFields")?.as_array()?;
    let is_ours = |it: &Value| it["manager"] == UNOWNED && it["subresource"] == "status";
    let kept: Vec<&Value> = entries.iter().filter(|it| !is_ours(it)).collect();
    (kept.len() < entries.len()).then(|| {
        json!({"metadata": {"uid": live.uid(), "resourceVersion": live.meta("resourceVersion"),
            "managedFields": kept}})
    })
}

fn is_there(error: &ClusterError) -> bool {
    error.code() == Some(409) && !error.is_conflict()
}

/// Waits until the API server serves a CRD.
async fn established(
    cluster: &ClusterConnection,
    crds: &ApiResourceLocation,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<Object> {
    let deadline = Instant::now() + timeout;
    loop {
        let live = cluster.get(crds, "", name).await?.context("the definition was deleted")?;
        let value = live.into_value();
        if custom_resource_check::is_established(&value) {
            let definition = CrdDefinition::read(&value)?;
            let version = definition.readable().context("no version of it is served")?;
            // Other API servers may notice the CRD later.
            match cluster.count(&custom_resource_check::resource(&definition, &version.name)).await
            {
                Ok(_) => return Ok(Object::new(value)?),
                Err(error) if error.is_unserved() => {}
                Err(error) => return Err(error.into()),
            }
        }
        ensure!(
            Instant::now() < deadline,
            "CustomResourceDefinition {name} is not established in time"
        );
        tokio::time::sleep(ESTABLISHED_POLL_INTERVAL).await;
    }
}

impl CrdRestoreReport {
    fn count(&mut self, one: ObjectRestoreResult) {
        match one {
            ObjectRestoreResult::Created { had_owners } => {
                self.created += 1;
                self.without_owners += u64::from(had_owners);
            }
            ObjectRestoreResult::Existed { was_given_status } => {
                self.existing += 1;
                self.statuses += u64::from(was_given_status);
            }
            ObjectRestoreResult::Failed(text) => {
                self.not_restored += 1;
                if self.errors.len() < MAX_SHOWN_ERRORS {
                    self.errors.push(text);
                }
            }
        }
    }

    fn text(&self) -> String {
        let would = if self.dry_run { "would be " } else { "" };
        let name = &self.name;
        let mut text = format!("export {}, made at {}\n", self.export, self.exported_at);
        text.push_str(&match (self.definition_created, self.definition_differs.is_empty()) {
            (true, _) => format!("CustomResourceDefinition {name} {would}created\n"),
            (false, true) => format!("CustomResourceDefinition {name} exists\n"),
            (false, false) => format!(
                "CustomResourceDefinition {name} exists, and differs from the exported one: {}\n",
                self.definition_differs.join(", ")
            ),
        });
        text.push_str(&format!("objects {would}created: {}\n", self.created));
        for (count, what) in [
            (self.existing, "objects that exist, and stay as they are"),
            (self.statuses, "of these, objects without a status, which are given it"),
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
        let mut outcome = CrdRestoreReport {
            name: "widgets.acme.io".to_owned(),
            export: "u-0123456789abcdef".to_owned(),
            exported_at: "2026-11-24T10:00:00Z".to_owned(),
            definition_created: true,
            ..CrdRestoreReport::default()
        };
        outcome.count(ObjectRestoreResult::Created { had_owners: true });
        outcome.count(ObjectRestoreResult::Created { had_owners: false });
        outcome.count(ObjectRestoreResult::Existed { was_given_status: false });
        outcome.count(ObjectRestoreResult::Existed { was_given_status: true });
        for at in 0..=MAX_SHOWN_ERRORS {
            outcome.count(ObjectRestoreResult::Failed(format!(
                "shop/{at}: namespaces \"shop\" not found"
            )));
        }
        outcome.errors.truncate(1);
        outcome.not_restored = 2;
        expect![[r#"
            export u-0123456789abcdef, made at 2026-11-24T10:00:00Z
            CustomResourceDefinition widgets.acme.io created
            objects created: 2
            objects that exist, and stay as they are: 2
            of these, objects without a status, which are given it: 1
            of the created, objects whose owner references are left out: 1
            objects that cannot be restored: 2
              shop/0: namespaces "shop" not found
              and 1 more
        "#]]
        .assert_eq(&outcome.text());
    }

    fn object(fields: Value) -> Object {
        let mut value = json!({"apiVersion": "acme.io/v1", "kind": "Widget",
            "metadata": {"name": "a", "resourceVersion": "7", "uid": "u"}});
        for (key, field) in fields.as_object().into_iter().flatten() {
            value[key] = field.clone();
        }
        Object::new(value).unwrap()
    }

    #[test]
    fn an_object_that_another_client_created_keeps_its_empty_status() {
        let exported = object(json!({"spec": {"size": 1}}));
        assert!(lacks_status(&object(json!({"spec": {"size": 1}})), &exported));
        assert!(!lacks_status(&object(json!({"spec": {"size": 2}})), &exported));
        assert!(!lacks_status(&object(json!({"spec": {"size": 1}, "status": {}})), &exported));
    }

    #[test]
    fn a_restored_status_has_no_field_manager() {
        let entry = |subresource: Value| json!({"manager": UNOWNED, "operation": "Update", "subresource": subresource});
        let mut live = object(json!({}));
        let entries = json!([entry(Value::Null), entry(json!("status"))]);
        live.metadata_mut().insert("managedFields".to_owned(), entries);
        let patch = without_status_entry(&live).unwrap();
        assert_eq!(patch["metadata"]["managedFields"], json!([entry(Value::Null)]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        live.metadata_mut().insert("managedFields".to_owned(), json!([entry(Value::Null)]));
        assert_eq!(without_status_entry(&live), None);
    }

    #[test]
    fn a_definition_that_differs_is_reported_by_its_fields() {
        let of =
            |kind: &str| object(json!({"spec": {"names": {"kind": kind}}, "status": {"a": kind}}));
        assert_eq!(differing(&of("A"), &of("A")), Vec::<String>::new());
        assert_eq!(differing(&of("A"), &of("B")), ["/spec/names/kind"]);
    }
}
