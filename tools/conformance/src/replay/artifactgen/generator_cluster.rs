//! The cluster of a recorded case, in which windlass's controller runs an ArtifactGenerator.
//!
//! This module prepares a run, performs it, and reads the state of the cluster and the storage. `controller_environment.rs`
//! has the environment of the controller, `served_archives` the archives of sources, and `reconcile` compares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use crds::source::ExternalArtifact;
use crds::source_extensions::ArtifactGenerator;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use source_controller::artifact_generator::ArtifactGeneratorController;

use super::served_archives::ServedArchives;
use crate::replay::case::nil;
use crate::replay::controller_environment::ControllerEnvironment;

/// The flags of the source-watcher during the recording.
const FLAGS: [&str; 2] = ["--interval-jitter-percentage=0", "--requeue-dependency=5s"];

/// The folder of the storage with the artifacts of ExternalArtifacts.
const STORED_FOLDER: &str = "externalartifact";

/// The namespace of an ExternalArtifact whose only purpose is that the API server has the kind.
const UNRELATED: &str = "unrelated";

/// The content of a stored file that the case damages.
const DAMAGE: &str = "overwritten";

/// How often the controller gets the present ExternalArtifacts.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);

/// The changes before a run.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GeneratorRunInputs {
    #[serde(deserialize_with = "nil")]
    contents: BTreeMap<String, Map<String, Value>>,
    #[serde(deserialize_with = "nil")]
    pub(super) objects: Vec<Value>,
    #[serde(deserialize_with = "nil")]
    delete: Vec<String>,
    #[serde(deserialize_with = "nil")]
    corrupt: Vec<String>,
    #[serde(deserialize_with = "nil")]
    lost: Vec<String>,
}

/// The state of the cluster and the storage after a run.
#[derive(Default)]
pub(super) struct GeneratorState {
    /// The generator as the API server has it. It is null if the generator is deleted.
    pub(super) generator: Value,
    pub(super) external_artifacts: Vec<Value>,
    pub(super) stored: Vec<String>,
}

/// A simulated cluster for one recorded case: the ArtifactGenerator controller with what it runs in, and the server of the
/// sources' archives.
pub(super) struct GeneratorCluster {
    operator: ControllerEnvironment,
    served: ServedArchives,
    /// The first generator of the case. The replay runs this one.
    generator: Value,
}

impl GeneratorCluster {
    /// # Errors
    /// No port or no folder can be had.
    pub(super) async fn start(is_confined: bool) -> anyhow::Result<Self> {
        let confined: &[&str] = if is_confined { &["--no-cross-namespace-refs"] } else { &[] };
        let flags = [&FLAGS[..], confined].concat();
        let unrelated = json!({"apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "ExternalArtifact", "metadata": {"namespace": UNRELATED, "name": UNRELATED},
            "spec": {}});
        // The definition of the kind has to exist. Without it, the controller would keep the objects of a deleted
        // generator.
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "artifactgenerators.source.extensions.fluxcd.io"}});
        let operator = ControllerEnvironment::start(&flags, vec![unrelated, definition]).await?;
        let served = ServedArchives::start().await?;
        Ok(Self { operator, served, generator: Value::Null })
    }

    /// Replaces the placeholders of addresses and digests in a value.
    ///
    /// # Errors
    /// The name of a source is not valid as a folder.
    pub(super) fn filled(&self, value: &Value) -> anyhow::Result<Value> {
        self.served.filled(value)
    }

    /// The events since the last call.
    ///
    /// # Errors
    /// The events do not arrive in time.
    pub(super) async fn events(&self) -> anyhow::Result<Vec<Value>> {
        self.operator.events().await
    }

    /// Makes the changes before a run.
    ///
    /// # Errors
    /// The inputs have an unknown form, or a file cannot be written.
    pub(super) fn change(&mut self, inputs: GeneratorRunInputs) -> anyhow::Result<()> {
        for (name, content) in &inputs.contents {
            self.served.serve(name, content)?;
        }
        for object in &inputs.objects {
            let object = self.served.filled(object)?;
            if self.generator.is_null() && object["kind"] == "ArtifactGenerator" {
                self.generator = object.clone();
            }
            let keeps_status = object["status"].is_null();
            self.operator.put(object, keeps_status);
        }
        for deleted in &inputs.delete {
            let parts: Vec<&str> = deleted.split('/').collect();
            let [kind, namespace, name] = parts[..] else {
                bail!("`{deleted}` is not a kind, a namespace and a name");
            };
            self.operator.delete(kind, namespace, name);
        }
        for object in self.operator.objects() {
            self.served.store(&self.operator.context.artifacts, &object)?;
        }
        for place in &inputs.corrupt {
            for file in self.stored_files_of(place)? {
                std::fs::write(file, DAMAGE)?;
            }
        }
        for place in &inputs.lost {
            for file in self.stored_files_of(place)? {
                std::fs::remove_file(file)?;
            }
        }
        Ok(())
    }

    /// Runs the generator once, unless it is deleted. It returns when the generator has to run again.
    ///
    /// # Errors
    /// An object does not match its kind.
    pub(super) async fn run(&self) -> anyhow::Result<Option<Duration>> {
        if self.operator.object(&self.generator).is_null() {
            return Ok(None);
        }
        self.operator.list::<ArtifactGenerator>("ArtifactGenerator")?;
        self.operator.list_sources()?;
        tokio::select! {
            again = self.operator.run::<ArtifactGeneratorController>(&self.generator) => Ok(again?),
            error = self.watch() => Err(error.into()),
        }
    }

    /// Gives the controller the present ExternalArtifacts again and again, like a watch. It returns only an error.
    async fn watch(&self) -> serde_json::Error {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            if let Err(error) = self.operator.list::<ExternalArtifact>("ExternalArtifact") {
                return error;
            }
        }
    }

    /// Reads the state of the cluster and the storage.
    ///
    /// # Errors
    /// The storage cannot be read.
    pub(super) fn state(&self) -> anyhow::Result<GeneratorState> {
        let is_its = |object: &Value| {
            object["kind"] == "ExternalArtifact" && object["metadata"]["namespace"] != UNRELATED
        };
        let objects = self.operator.objects();
        let root = self.stored_folder();
        let mut stored = Vec::new();
        for namespace in names(&root)? {
            for name in names(&root.join(&namespace))? {
                let files = names(&root.join(&namespace).join(&name))?;
                stored.extend(files.into_iter().map(|file| format!("{namespace}/{name}/{file}")));
            }
        }
        Ok(GeneratorState {
            generator: self.operator.object(&self.generator),
            external_artifacts: objects.into_iter().filter(is_its).collect(),
            stored,
        })
    }

    fn stored_folder(&self) -> PathBuf {
        self.operator.folder.path().join(STORED_FOLDER)
    }

    /// The stored files of an ExternalArtifact, by its namespace and name.
    fn stored_files_of(&self, place: &str) -> anyhow::Result<Vec<PathBuf>> {
        let folder = self.stored_folder().join(place);
        Ok(names(&folder)?.into_iter().map(|name| folder.join(name)).collect())
    }
}

/// The sorted names in a folder. There are none without the folder.
fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in folder.read_dir()? {
        let name = entry?.file_name();
        names.push(name.to_str().context("the name of a file is no text")?.to_owned());
    }
    names.sort();
    Ok(names)
}
