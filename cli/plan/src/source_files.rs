//! The files of sources, including the ExternalArtifacts that ArtifactGenerators of the repository make.
//!
//! Here: the files of a source, and the generator and files of an artifact. Elsewhere: copying and merging (engine
//! `artifactgen`), sources that are this repository (`repository_sources.rs`), facts about an artifact (`source_artifact.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use artifactgen::{
    ArtifactRequest, BUILD_ALLOWANCE, BuildInputs, GeneratorSpec, SourceReference, SourceTrees,
    TarballReader, artifact_requests, build, validate,
};
use golang::work_meter::{StopSignal, WorkMeter};
use objects::{Object, ObjectId};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tree::{FileTree, MemoryTree, TreeLimits};

use super::applier_discovery::{RepositoryDeclarations, Revision};
use super::cluster_facts_file::{ReferenceFromApplier, references_of};
use super::render_failure::RenderFailure;
use super::repository_sources::{SOURCE_GROUP, SourceOrigin, spec_of};
use super::source_artifact::SourceArtifact;
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};

/// The API group of ArtifactGenerators.
const GENERATOR_GROUP: &str = "source.extensions.fluxcd.io";

/// The kind of generated artifacts.
const ARTIFACT_KIND: &str = "ExternalArtifact";

/// The ArtifactGenerators that a revision declares.
pub(crate) type DeclaredGenerators = BTreeMap<ObjectId, Object>;

/// Whether an object is an ArtifactGenerator.
pub(crate) fn is_generator(object: &Object) -> bool {
    let id = object.id();
    id.group == GENERATOR_GROUP && id.kind == "ArtifactGenerator"
}

/// The first generator that may make an artifact, with its spec. A generator with a path pattern may make an artifact of any
/// name.
fn generator_of<'d>(
    artifact: &ObjectId,
    generators: &'d DeclaredGenerators,
) -> Option<(&'d ObjectId, Result<GeneratorSpec, String>)> {
    if artifact.kind != ARTIFACT_KIND || artifact.group != SOURCE_GROUP {
        return None;
    }
    let own = generators.iter().filter(|(id, _)| id.namespace == artifact.namespace);
    let mut specs = own.map(|(id, object)| {
        let spec = object.get("spec").cloned().unwrap_or_default();
        let spec: Result<GeneratorSpec, _> = serde_json::from_value(spec);
        (id, spec.map_err(|error| format!("{} cannot be read: {error}", id.subject())))
    });
    let makes = |spec: &GeneratorSpec| {
        !spec.path_pattern.is_empty() || spec.artifacts.iter().any(|it| it.name == artifact.name)
    };
    specs.find(|(_, spec)| spec.as_ref().map_or(true, makes))
}

/// The source that a generator names.
fn source_id(reference: &SourceReference, generator: &ObjectId) -> ObjectId {
    let namespace = match reference.namespace.as_str() {
        "" => generator.namespace.as_str(),
        named => named,
    };
    ObjectId::new(namespace, &reference.name, SOURCE_GROUP, &reference.kind)
}

/// The sources of an artifact. `None` if no generator of the repository makes it.
pub(crate) fn generator_sources(
    artifact: &ObjectId,
    generators: &DeclaredGenerators,
) -> Option<Vec<ObjectId>> {
    let (generator, spec) = generator_of(artifact, generators)?;
    let sources = spec.unwrap_or_default().sources;
    Some(sources.iter().map(|reference| source_id(reference, generator)).collect())
}

/// The spec of the generator that makes an artifact. Null if no generator of the repository makes it.
fn generator_spec(artifact: &ObjectId, generators: &DeclaredGenerators) -> Value {
    let generator = generator_of(artifact, generators).and_then(|(id, _)| generators.get(id));
    generator.and_then(|it| it.get("spec")).cloned().unwrap_or_default()
}

/// The files of a generated artifact. `None` if no generator of the repository makes it.
///
/// # Errors
/// The artifact contains files from other places, or it cannot be made.
fn generated_artifact(
    artifact: &ObjectId,
    declarations: &RepositoryDeclarations,
    revision: &Revision<'_>,
) -> Option<Result<Arc<SourceArtifact>, RenderFailure>> {
    let (generator, spec) = generator_of(artifact, &declarations.generators)?;
    Some(spec.map_err(RenderFailure::Failed).and_then(|spec| {
        let mut sources = BTreeMap::new();
        let mut ignored = Vec::new();
        for reference in &spec.sources {
            let id = source_id(reference, generator);
            let SourceOrigin::ThisRepository { ignore } = revision.origin(&id, declarations) else {
                return Err(RenderFailure::NotFetched(format!(
                    "{} makes {} of {}, which is not this repository",
                    generator.subject(),
                    artifact.subject(),
                    id.subject()
                )));
            };
            let files = revision.files.artifact(ignore.as_deref());
            let files = files.map_err(|error| format!("{error:#}"))?;
            ignored.push(json!([reference.alias, ignore]));
            sources.insert(reference.alias.clone(), files);
        }
        let spec_text = declarations.generators.get(generator).and_then(|it| it.get("spec"));
        let key = json!([generator.subject(), spec_text, ignored, artifact.name]).to_string();
        let generated = revision.files.generated(key, || {
            files_of(&spec, &artifact.name, &generator.namespace, &sources).map_err(|why| {
                format!("{} makes no {}: {why}", generator.subject(), artifact.subject())
            })
        });
        generated.map_err(RenderFailure::Failed)
    }))
}

impl RepositoryDeclarations {
    /// The files of a source that is this repository.
    ///
    /// # Errors
    /// The source is another place, or it has no artifact.
    pub(crate) fn artifact(
        &self,
        source: &ObjectId,
        revision: &Revision<'_>,
    ) -> Result<Arc<SourceArtifact>, RenderFailure> {
        match revision.origin(source, self) {
            SourceOrigin::ThisRepository { ignore } => {
                let files = revision.files.artifact(ignore.as_deref());
                files.map_err(|error| RenderFailure::Failed(format!("{error:#}")))
            }
            SourceOrigin::Elsewhere(reason) => generated_artifact(source, self, revision)
                .unwrap_or(Err(RenderFailure::NotFetched(reason))),
        }
    }

    /// The specs of sources that are not read, for comparing them.
    pub(crate) fn source_specs(&self, sources: &[ObjectId]) -> Value {
        let made_by = |id: &ObjectId| generator_spec(id, &self.generators);
        let specs = self.with_generated(sources).into_iter();
        specs.flat_map(|id| [spec_of(&id, &self.sources), made_by(&id)]).collect()
    }

    /// A key of an applier that is not rendered. It covers the spec, the sources, the ConfigMaps and Secrets that the applier
    /// names, and `read`.
    pub(crate) fn unread_key(&self, applier: &Object, sources: &[ObjectId], read: &str) -> String {
        let spec = applier.get("spec").unwrap_or(&Value::Null);
        let mut hash = Sha256::new();
        for ReferenceFromApplier { id, .. } in references_of(spec, applier.namespace()) {
            let subject = id.subject();
            let data = self.references.data(&id.kind, &id.namespace, &id.name);
            let data = data.into_iter().flatten();
            let fields = data.flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]);
            for part in [subject.as_bytes()].into_iter().chain(fields) {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
        }
        let named = hex::encode(hash.finalize());
        json!([spec, self.source_specs(sources), named, read]).to_string()
    }

    /// Selects the sources that are this repository. Sources of generated artifacts are included.
    pub(crate) fn own_sources_of(
        &self,
        sources: &[ObjectId],
        revision: &Revision<'_>,
    ) -> Vec<ObjectId> {
        let mut all = self.with_generated(sources);
        all.retain(|id| !matches!(revision.origin(id, self), SourceOrigin::Elsewhere(_)));
        all
    }

    /// The given sources, and the sources from which generators make them.
    fn with_generated(&self, sources: &[ObjectId]) -> Vec<ObjectId> {
        let mut all = sources.to_vec();
        for id in sources {
            all.extend(generator_sources(id, &self.generators).unwrap_or_default());
        }
        all
    }
}

/// Makes the files of an artifact.
fn files_of(
    spec: &GeneratorSpec,
    name: &str,
    namespace: &str,
    sources: &BTreeMap<String, Arc<SourceArtifact>>,
) -> Result<MemoryTree, String> {
    validate(spec, namespace, false).map_err(|error| error.to_string())?;
    let trees: SourceTrees<'_> = sources
        .iter()
        .map(|(alias, source)| (alias.as_str(), &source.files as &dyn FileTree))
        .collect();
    let stop = StopSignal::default();
    let _limit = TimeLimit::start(TIME_LIMIT, &stop);
    let mut meter = WorkMeter::new(BUILD_ALLOWANCE, stop);
    let requests = artifact_requests(spec, &trees, &mut meter);
    let requests = requests.map_err(|error| format!("failed to expand path pattern: {error}"))?;
    let is_named = |request: &&ArtifactRequest| request.artifact.name == name;
    let request = requests.iter().find(is_named).ok_or("its path pattern fits no such folder")?;
    let limits = TreeLimits::default();
    let inputs = BuildInputs { sources: &trees, tarballs: &TarballRefusingReader, limits };
    let built = build(&request.artifact, &inputs, &mut meter);
    Ok(built.map_err(|error| error.to_string())?.files)
}

/// Refuses to unpack archives.
struct TarballRefusingReader;

impl TarballReader for TarballRefusingReader {
    fn read(&self, _tarball: &[u8], _limits: &TreeLimits) -> Result<MemoryTree, String> {
        Err("this command does not extract archives".to_owned())
    }
}
