//! Whole runs, as far as they are decided without a cluster.
//!
//! Compared are the inventory, the digest of the sources, `Ready`, ExternalArtifacts, events, stored files and errors.
//! Not compared are the other conditions and the time of the next run, which every kind derives in the same way. Cases with
//! sources that cannot be fetched, and with a generator that has no finalizer yet or is switched off, are not run: what
//! becomes of those is the program's.

use std::collections::{BTreeMap, BTreeSet};

use artifactgen::{
    ArtifactRequest, BuildInputs, ExternalArtifactState, GENERATOR_LABEL, GeneratorIdentity,
    GeneratorRunRequest, GeneratorSpec, InventoryEntry, LastGeneratorRun, ORIGIN_REVISION,
    ObservedSource, StoredArchiveFile, artifact_requests, build, changes_message, drift,
    external_artifact, orphans, reconciled_message, revisions, sources_digest, succeeded_message,
    up_to_date_message, validate,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tree::{MemoryTree, TreeLimits};

use super::build::archive;
use super::trees::{CaseTarballReader, LinkHandling, tree};
use super::{by_alias, meter, mismatch};
use crate::replay::case::{Case, CaseFailure, CaseJudgement, nil, same_value};

/// Who applies ExternalArtifacts.
const MANAGER: &str = "source-watcher";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReconcileInputs {
    runs: Vec<RecordedRun>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
    #[serde(rename = "since")]
    _since: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct RecordedRun {
    #[serde(deserialize_with = "nil")]
    contents: BTreeMap<String, Map<String, Value>>,
    #[serde(deserialize_with = "nil")]
    objects: Vec<Value>,
    #[serde(deserialize_with = "nil")]
    delete: Vec<String>,
    #[serde(deserialize_with = "nil")]
    corrupt: Vec<String>,
    #[serde(deserialize_with = "nil")]
    lost: Vec<String>,
}

pub(super) fn judge(case: Case) -> CaseJudgement {
    let ReconcileInputs { runs, no_cross_namespace_refs, .. } =
        case.inputs().map_err(|fault| match fault {
            CaseFailure::NotRun(reason) => mismatch("a form that is known", &reason),
            fault => fault,
        })?;
    let wanted: Vec<Value> = case.list()?;
    let is_named_as_source =
        runs.iter().flat_map(|run| &run.objects).any(has_artifact_named_as_source);
    let mut simulated_cluster =
        SimulatedCluster { is_confined: no_cross_namespace_refs, ..SimulatedCluster::default() };
    let mut got = Vec::new();
    for run in runs {
        simulated_cluster.change(run)?;
        got.push(simulated_cluster.run()?);
    }
    let wanted = numbered(&wanted.iter().map(compared).collect());
    let got = numbered(&Value::Array(got));
    if is_named_as_source {
        // Such an artifact has other files in Flux, so that its file has another number.
        return same_value(&with_file_labels(&wanted), &with_file_labels(&got));
    }
    same_value(&wanted, &got)
}

/// Whether an artifact of a generator is called as one of its sources.
fn has_artifact_named_as_source(object: &Value) -> bool {
    let sources = object["spec"]["sources"].as_array();
    let mut artifacts = object["spec"]["artifacts"].as_array().into_iter().flatten();
    artifacts.any(|artifact| {
        let mut sources = sources.into_iter().flatten();
        sources.any(|source| source["alias"] == artifact["name"])
    })
}

/// Names of files with archives as labels, numbered by their first appearance.
fn with_file_labels(value: &Value) -> Value {
    let text = value.to_string();
    let mut labels: Vec<&str> = Vec::new();
    let mut parts = text.split(".tar.gz").peekable();
    let mut labelled = String::new();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            labelled.push_str(part);
            break;
        }
        let before = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = part.get(before.len()..).unwrap_or_default();
        let label = labels.iter().position(|it| *it == number).unwrap_or_else(|| {
            labels.push(number);
            labels.len() - 1
        });
        labelled += &format!("{before}<file-{}>.tar.gz", label + 1);
    }
    serde_json::from_str(&labelled).unwrap_or_default()
}

/// The part of a recorded answer that is compared.
fn compared(answer: &Value) -> Value {
    let generator = &answer["generator"];
    let status = &generator["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|it| it["type"] == "Ready");
    let external = answer["externalArtifacts"].as_array().cloned().unwrap_or_default();
    json!({
        "gone": generator.get("gone").is_some(),
        "inventory": status.get("inventory").cloned().unwrap_or_else(|| json!([])),
        "sourcesDigest": status.get("observedSourcesDigest").cloned().unwrap_or_else(|| json!("")),
        "ready": ready,
        "externalArtifacts": external,
        "events": answer["events"].as_array().cloned().unwrap_or_default(),
        "stored": answer["stored"],
        "error": answer["error"],
    })
}

/// Digests as labels, numbered by their first appearance.
fn numbered(value: &Value) -> Value {
    let text = value.to_string();
    let mut labels: Vec<&str> = Vec::new();
    let mut numbered = String::new();
    let mut rest = text.as_str();
    while let Some(at) = [rest.find("<sha256-"), rest.find("sha256:")].into_iter().flatten().min() {
        let (before, digest) = rest.split_at(at);
        let length = match digest.starts_with('<') {
            true => digest.find('>').map_or(digest.len(), |end| end + 1),
            false => "sha256:".len() + 64,
        };
        let (digest, behind) = digest.split_at(length.min(digest.len()));
        let label = labels.iter().position(|it| *it == digest).unwrap_or_else(|| {
            labels.push(digest);
            labels.len() - 1
        });
        numbered += &format!("{before}<sha256-{}>", label + 1);
        rest = behind;
    }
    numbered += rest;
    serde_json::from_str(&numbered).unwrap_or_default()
}

/// A file that a source serves.
struct ServedArchive {
    tree: MemoryTree,
    digest: String,
}

/// The cluster, the storage, and what the generator's status says.
#[derive(Default)]
struct SimulatedCluster {
    is_confined: bool,
    served: BTreeMap<String, ServedArchive>,
    /// Sources by kind, namespace and name.
    sources: BTreeMap<String, Value>,
    generator: Option<Value>,
    ready: Option<Value>,
    inventory: Vec<InventoryEntry>,
    observed: String,
    /// ExternalArtifacts by namespace and name.
    external: BTreeMap<String, Value>,
    /// Digests of archives by namespace, name and file.
    stored: BTreeMap<String, String>,
    events: Vec<Value>,
    error: Option<String>,
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn place(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

fn not_run(what: &str) -> CaseFailure {
    CaseFailure::NotRun(format!("{what}: the program's"))
}

impl SimulatedCluster {
    /// Does what was done before a run.
    fn change(&mut self, run: RecordedRun) -> Result<(), CaseFailure> {
        for (name, content) in run.contents {
            let tree = tree(&content, LinkHandling::Left)?;
            let content = Value::Object(content).to_string();
            let digest = format!("sha256:{}", hex(&Sha256::digest(content)));
            self.served.insert(name, ServedArchive { tree, digest });
        }
        for object in run.objects {
            let mut text_of = object.to_string();
            for (name, served) in &self.served {
                text_of = text_of
                    .replace(&format!("${{URL:{name}}}"), &format!("served:{name}"))
                    .replace(&format!("${{DIGEST:{name}}}"), &served.digest);
            }
            let object: Value = serde_json::from_str(&text_of)
                .map_err(|error| mismatch("an object", &error.to_string()))?;
            match text(&object, "/kind") {
                "ArtifactGenerator" => self.generator = Some(object),
                kind => drop(self.sources.insert(format!("{kind}/{}", place(&object)), object)),
            }
        }
        for deleted in run.delete {
            match deleted.split_once('/') {
                Some(("ArtifactGenerator", _)) => self.generator = None,
                Some(("ExternalArtifact", place)) => drop(self.external.remove(place)),
                _ => drop(self.sources.remove(&deleted)),
            }
        }
        let of = |place: &str, file: &str| file.starts_with(&format!("{place}/"));
        for place in run.corrupt {
            let damaged = self.stored.iter_mut().filter(|(file, _)| of(&place, file));
            damaged.for_each(|(_, digest)| digest.clear());
        }
        for place in run.lost {
            self.stored.retain(|file, _| !of(&place, file));
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Value, CaseFailure> {
        self.events.clear();
        self.error = None;
        match self.generator.clone() {
            Some(generator) => self.reconcile(&generator)?,
            None => {
                let inventory = std::mem::take(&mut self.inventory);
                self.remove(&orphans(&inventory, &[]));
                self.ready = None;
                self.observed.clear();
            }
        }
        Ok(json!({
            "gone": self.generator.is_none(),
            "inventory": self.inventory,
            "sourcesDigest": self.observed,
            "ready": self.ready,
            "externalArtifacts": self.external.values().collect::<Vec<_>>(),
            "events": self.events,
            "stored": self.stored.keys().collect::<Vec<_>>(),
            "error": self.error,
        }))
    }

    fn tell(&mut self, r#type: &str, reason: &str, message: &str) {
        self.events.push(json!({"type": r#type, "reason": reason, "message": message}));
    }

    fn set_ready(&mut self, generator: &Value, status: &str, reason: &str, message: &str) {
        self.ready = Some(json!({
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": generator["metadata"]["generation"],
        }));
    }

    fn fail(&mut self, generator: &Value, reason: &str, message: &str, error: String) {
        self.set_ready(generator, "False", reason, message);
        self.tell("Warning", reason, message);
        self.error = Some(error);
    }

    fn reconcile(&mut self, generator: &Value) -> Result<(), CaseFailure> {
        let metadata = &generator["metadata"];
        if metadata.get("finalizers").is_none() {
            return Err(not_run("a generator without a finalizer"));
        }
        let annotation = "/metadata/annotations/source.extensions.fluxcd.io~1reconcile";
        if text(generator, annotation).eq_ignore_ascii_case("disabled") {
            return Err(not_run("a generator that is switched off"));
        }
        let spec = GeneratorSpec::deserialize(&generator["spec"])
            .map_err(|error| mismatch("a spec", &error.to_string()))?;
        if let Err(error) = validate(&spec, text(metadata, "/namespace"), self.is_confined) {
            let message = error.to_string();
            let reason = error.reason().as_str();
            self.fail(generator, reason, &message, format!("terminal error: {message}"));
            return Ok(());
        }
        let observed = self.observe(&spec, text(metadata, "/namespace"))?;
        let digest = sources_digest(&observed);
        if !self.has_drifted(generator, &spec, &digest) {
            let message = up_to_date_message(self.inventory.len());
            self.tell("Trace", "Ready", &message);
            return Ok(());
        }
        self.make(generator, &spec, &observed, digest)
    }

    /// The artifacts of all sources.
    fn observe(
        &self,
        spec: &GeneratorSpec,
        namespace: &str,
    ) -> Result<BTreeMap<String, ObservedSource>, CaseFailure> {
        let mut observed = BTreeMap::new();
        for source in &spec.sources {
            let namespace = match source.namespace.as_str() {
                "" => namespace,
                other => other,
            };
            let key = format!("{}/{namespace}/{}", source.kind, source.name);
            let artifact = self.sources.get(&key).and_then(|it| it.pointer("/status/artifact"));
            let artifact = artifact.ok_or_else(|| not_run("a source without an artifact"))?;
            let origin = artifact.pointer(&format!("/metadata/{ORIGIN_REVISION}"));
            let state = ObservedSource {
                digest: text(artifact, "/digest").to_owned(),
                revision: text(artifact, "/revision").to_owned(),
                url: text(artifact, "/url").to_owned(),
                origin_revision: origin.and_then(Value::as_str).unwrap_or_default().to_owned(),
            };
            observed.insert(source.alias.clone(), state);
        }
        Ok(observed)
    }

    fn has_drifted(&self, generator: &Value, spec: &GeneratorSpec, digest: &str) -> bool {
        let ready = self.ready.clone().unwrap_or_default();
        let last = LastGeneratorRun {
            is_failed: ready["status"] == "False",
            observed_generation: ready["observedGeneration"].as_i64().unwrap_or_default(),
            sources_digest: &self.observed,
            inventory: &self.inventory,
        };
        let uid = text(generator, "/metadata/uid");
        let label = |object: &Value| object["metadata"]["labels"][GENERATOR_LABEL] == uid;
        let state = |object: &Value| ExternalArtifactState {
            name: text(object, "/metadata/name").to_owned(),
            digest: text(object, "/status/artifact/digest").to_owned(),
        };
        let external: BTreeSet<_> =
            self.external.values().filter(|it| label(it)).map(state).collect();
        let stored = |entry: &InventoryEntry| match self.stored.get(&file_key(entry)) {
            None => StoredArchiveFile::Missing,
            Some(digest) if *digest == entry.digest => StoredArchiveFile::Intact,
            Some(_) => StoredArchiveFile::Corrupt,
        };
        let generation = generator["metadata"]["generation"].as_i64().unwrap_or_default();
        let requested = GeneratorRunRequest { spec, generation, sources_digest: digest };
        drift(requested, last, stored, &external).is_some()
    }

    fn make(
        &mut self,
        generator: &Value,
        spec: &GeneratorSpec,
        observed: &BTreeMap<String, ObservedSource>,
        digest: String,
    ) -> Result<(), CaseFailure> {
        let mut trees = BTreeMap::new();
        for (alias, source) in observed {
            let served = source.url.strip_prefix("served:").and_then(|it| self.served.get(it));
            let served = served.filter(|it| it.digest == source.digest);
            let served = served.ok_or_else(|| not_run("a source that cannot be fetched"))?;
            trees.insert(alias.clone(), served.tree.clone());
        }
        let sources = by_alias(&trees);
        let mut meter = meter();
        let requests = match artifact_requests(spec, &sources, &mut meter) {
            Ok(requests) => requests,
            Err(error) => {
                let message = format!("failed to expand path pattern: {error}");
                let error = format!("terminal error: {message}");
                self.fail(generator, "BuildFailed", &message, error);
                return Ok(());
            }
        };
        let inputs = BuildInputs {
            sources: &sources,
            tarballs: &CaseTarballReader,
            limits: TreeLimits::default(),
        };
        let mut made = Vec::new();
        for request in &requests {
            let built = match build(&request.artifact, &inputs, &mut meter) {
                Ok(built) => built,
                Err(error) => {
                    let message = format!("{} build failed: {error}", request.artifact.name);
                    self.fail(generator, "BuildFailed", &message, error.to_string());
                    return Ok(());
                }
            };
            let digest = archive(&built)?.digest;
            let entry = InventoryEntry {
                digest,
                filename: built.file_name(),
                name: request.artifact.name.clone(),
                namespace: text(generator, "/metadata/namespace").to_owned(),
            };
            self.offer(generator, spec, request, observed, &entry);
            made.push(entry);
        }
        let before = std::mem::replace(&mut self.inventory, made.clone());
        self.remove(&orphans(&before, &made));
        self.observed = digest;
        let message = succeeded_message(made.len());
        self.set_ready(generator, "True", "Succeeded", &message);
        self.tell("Trace", "Ready", &message);
        if let Some(message) = changes_message(&before, &made) {
            self.tell("Normal", "Ready", &message);
        }
        Ok(())
    }

    /// Keeps an archive, and applies its ExternalArtifact.
    fn offer(
        &mut self,
        generator: &Value,
        spec: &GeneratorSpec,
        request: &ArtifactRequest,
        observed: &BTreeMap<String, ObservedSource>,
        entry: &InventoryEntry,
    ) {
        self.stored.insert(file_key(entry), entry.digest.clone());
        let identity = GeneratorIdentity {
            name: text(generator, "/metadata/name"),
            namespace: text(generator, "/metadata/namespace"),
            uid: text(generator, "/metadata/uid"),
            manager: MANAGER,
        };
        let applied = external_artifact(identity, spec.common_metadata.as_ref(), request);
        let revisions = revisions(&request.artifact, &entry.digest, observed);
        let path = format!("externalartifact/{}", file_key(entry));
        let mut artifact = json!({
            "digest": entry.digest,
            "path": path,
            "revision": revisions.revision,
            "url": format!("http://store.example/{path}"),
        });
        if let Some(origin) = &revisions.origin {
            artifact["metadata"] = json!({ORIGIN_REVISION: origin});
        }
        let metadata = &applied["metadata"];
        let object = json!({
            "metadata": {
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "labels": metadata["labels"],
                "annotations": metadata["annotations"],
                "finalizers": null,
            },
            "spec": applied["spec"],
            "status": {
                "artifact": artifact,
                "conditions": [{
                    "type": "Ready",
                    "status": "True",
                    "reason": "Succeeded",
                    "message": "Artifact is ready",
                }],
            },
        });
        self.external.insert(place(&object), object);
        if !self.inventory.iter().any(|it| it.name == entry.name && it.digest == entry.digest) {
            let message = reconciled_message(entry, &revisions.revision);
            self.tell("Trace", "Ready", &message);
        }
    }

    fn remove(&mut self, entries: &[&InventoryEntry]) {
        for entry in entries {
            let place = format!("{}/{}", entry.namespace, entry.name);
            self.external.remove(&place);
            self.stored.retain(|file, _| !file.starts_with(&format!("{place}/")));
        }
    }
}

fn file_key(entry: &InventoryEntry) -> String {
    let InventoryEntry { namespace, name, filename, .. } = entry;
    format!("{namespace}/{name}/{filename}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
