//! The cluster of a recorded case, in which the controller of ArtifactGenerators runs one of them.
//!
//! Here: what happens before a run, the run, and what the cluster and the storage have then. Elsewhere: what the controller runs
//! with (`fake_operator.rs`), the archives of sources (`served_archives`), what is compared (`reconcile`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use crds::extensions::ArtifactGenerator;
use crds::source::ExternalArtifact;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use source_controller::artifact_generator::ArtifactGeneratorController;

use super::served_archives::ServedArchives;
use crate::replay::case::nil;
use crate::replay::fake_operator::FakeOperator;

/// The flags with which the source-watcher was recorded.
const FLAGS: [&str; 2] = ["--interval-jitter-percentage=0", "--requeue-dependency=5s"];

/// Where the artifacts of ExternalArtifacts are in the storage.
const STORED_FOLDER: &str = "externalartifact";

/// The namespace of an ExternalArtifact that is there so that the API server has the kind.
const UNRELATED: &str = "unrelated";

/// What stands in a stored file that is overwritten.
const DAMAGE: &str = "overwritten";

/// How often the controller sees the ExternalArtifacts as they are.
const WATCH_INTERVAL: Duration = Duration::from_millis(5);

/// What happens before a run.
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

/// The cluster and the storage of a generator.
#[derive(Default)]
pub(super) struct GeneratorState {
    /// As the API server has it; null if it is gone.
    pub(super) generator: Value,
    pub(super) external_artifacts: Vec<Value>,
    pub(super) stored: Vec<String>,
}

/// The cluster of a case, with what runs its generator.
pub(super) struct GeneratorCluster {
    operator: FakeOperator,
    served: ServedArchives,
    /// The first generator of the case, which is run.
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
        // Its kind is there, so that what a generator made goes with the generator.
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "artifactgenerators.source.extensions.fluxcd.io"}});
        let operator = FakeOperator::start(&flags, vec![unrelated, definition]).await?;
        let served = ServedArchives::start().await?;
        Ok(Self { operator, served, generator: Value::Null })
    }

    /// A value with addresses and digests instead of what stands for them.
    ///
    /// # Errors
    /// A source has a name that no folder can have.
    pub(super) fn filled(&self, value: &Value) -> anyhow::Result<Value> {
        self.served.filled(value)
    }

    /// The events since the last call.
    ///
    /// # Errors
    /// They do not come.
    pub(super) async fn events(&self) -> anyhow::Result<Vec<Value>> {
        self.operator.events().await
    }

    /// Does what happens before a run.
    ///
    /// # Errors
    /// The inputs have a form that is not known, or the disk refuses.
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

    /// Runs the generator once, unless it is gone; returns when it is to run again.
    ///
    /// # Errors
    /// An object is none of its kind.
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

    /// Has the controller see what is written of ExternalArtifacts, as a watch does; returns why it cannot.
    async fn watch(&self) -> serde_json::Error {
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            if let Err(error) = self.operator.list::<ExternalArtifact>("ExternalArtifact") {
                return error;
            }
        }
    }

    /// What the cluster and the storage have now.
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

/// The names in a folder, in order; none if there is no such folder.
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
