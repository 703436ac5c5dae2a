//! Builds the objects of a folder of the artifact, from its kustomization and the additions of the spec.
//!
//! Elsewhere: the file that a build starts from (`kustomization_file.rs`), encrypted files and bases on other servers
//! (`windlass_runtime::shared_build_parts`), the meaning of kustomizations (`kustomize`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crds::kustomize::KustomizationSpec;
use golang::work_meter::{StopSignal, WorkMeter};
use kustomize::{
    BuildBudget, KustomizeBuildOptions, KustomizeBuildWarning, LoadRestriction, TreeBuildFiles,
};
use objects::{Object, SecretMasking};
use sources::remote_bases::without_credentials;
use tree::{FileKind, FileMetadata, FileTree, RelPath, TreeError};

use super::kustomization_file;
use windlass_runtime::shared_build_parts::decryption::BuildDecryption;
use windlass_runtime::shared_build_parts::remote_base_access::RemoteBaseAccess;
use windlass_runtime::time_limit::TimeLimit;

/// The most objects of a build.
const MAX_OBJECTS: usize = 50_000;

/// The reason why a folder could not be built. `Display` names the file or the object.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Generated(#[from] kustomization_file::Error),
    /// The error of kustomize, without the passwords in addresses.
    #[error("kustomize build failed: {0}")]
    Build(String),
    #[error("{0}")]
    Decryption(String),
    #[error("{what}: {problem}")]
    NotAnObject { what: String, problem: objects::ObjectError },
    #[error("more than {MAX_OBJECTS} objects; split the directory")]
    TooMuch,
}

impl From<kustomize::Error> for Error {
    fn from(error: kustomize::Error) -> Self {
        Self::Build(without_credentials(&error.to_string()))
    }
}

/// The objects of a build, and its warnings.
#[derive(Debug)]
pub(super) struct LoadedManifests {
    pub(super) objects: Vec<Object>,
    /// Whether the build used files of another server, so that the artifact's files do not determine the result.
    pub(super) is_remote: bool,
    /// Names in kustomizations that are not built, at most [`MAX_WARNINGS`].
    pub(super) warnings: Vec<String>,
}

/// The most warnings of a build that the Ready condition reports.
pub(super) const MAX_WARNINGS: usize = 3;

/// The limits of one build: memory, and time without waiting for servers.
pub(super) struct BuildWorkLimits {
    pub(super) budget: BuildBudget,
    pub(super) limit: TimeLimit,
    /// Set when the time is over.
    pub(super) stop: StopSignal,
}

impl BuildWorkLimits {
    /// The limits of a build that may take this time, which begins now.
    pub(super) fn new(time: Duration) -> Self {
        let stop = StopSignal::default();
        let limit = TimeLimit::start(time, &stop);
        let budget = BuildBudget::new(WorkMeter::new(kustomize::ALLOWED, stop.clone()));
        Self { budget, limit, stop }
    }
}

/// Builds the objects of a spec from an artifact's files. This blocks and may not be called from within a future.
pub(super) fn load(
    files: &dyn FileTree,
    spec: &KustomizationSpec,
    decrypting: Option<BuildDecryption<'_>>,
    bases: RemoteBaseAccess,
    account: &BuildWorkLimits,
    secrets: &mut SecretMasking,
) -> Result<LoadedManifests, Error> {
    let generated = kustomization_file::generate(files, spec)?;
    let root = format!("/{}", generated.folder);
    let mut files =
        ArtifactOverlayFiles { files, over: BTreeMap::from([(generated.path, generated.content)]) };
    if let Some(decrypting) = decrypting {
        let decrypted = decrypting.files(&files, &generated.folder);
        let (plain, hidden) = decrypted.map_err(Error::Decryption)?;
        *secrets = std::mem::take(secrets).with(hidden);
        files.over.extend(plain.into_iter().map(|(path, text)| (path, Arc::from(&**text))));
    }
    let within = TreeBuildFiles(files);
    // Parity(flux): files may come from everywhere in the artifact, and `openapi` adds to what is built in.
    let options = KustomizeBuildOptions {
        restriction: LoadRestriction::None,
        keeps_builtin_schema: true,
        ..KustomizeBuildOptions::default()
    };
    let mut warnings = Vec::new();
    let (built, is_remote) = bases.beside(within, &account.limit, |files| {
        warnings.clear();
        kustomize::build(files, &root, &options, &account.budget, &mut warnings)
    });
    let objects = built?.into_objects()?;
    if objects.len() > MAX_OBJECTS {
        return Err(Error::TooMuch);
    }
    let object = |found: kustomize::BuiltObject| {
        let what = found.id.to_string();
        Object::new(found.value).map_err(|problem| Error::NotAnObject { what, problem })
    };
    let objects = objects.into_iter().map(object).collect::<Result<_, _>>()?;
    let lost = warnings.into_iter().filter_map(|warning| match warning {
        KustomizeBuildWarning::Lost(text) => Some(text),
        KustomizeBuildWarning::Advice(_) | KustomizeBuildWarning::Log(_) => None,
    });
    Ok(LoadedManifests { objects, is_remote, warnings: lost.take(MAX_WARNINGS).collect() })
}

/// The artifact's files with others in the places of some, or added.
struct ArtifactOverlayFiles<'f> {
    files: &'f dyn FileTree,
    over: BTreeMap<RelPath, Arc<[u8]>>,
}

impl FileTree for ArtifactOverlayFiles<'_> {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        match self.over.get(path) {
            Some(content) => Ok(content.clone()),
            None => self.files.read(path),
        }
    }

    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        let mut found = self.files.list(dir)?;
        for path in self.over.keys().filter(|path| path.parent().as_ref() == Some(dir)) {
            if let Some(name) = path.name()
                && let Err(at) = found.binary_search_by(|(known, _)| known.as_str().cmp(name))
            {
                found.insert(at, (name.to_owned(), FileKind::File));
            }
        }
        Ok(found)
    }

    fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        match self.over.get(path) {
            Some(content) => {
                let len = u64::try_from(content.len()).unwrap_or(u64::MAX);
                Some(FileMetadata::File { len, executable: false })
            }
            None => self.files.entry(path),
        }
    }
}

#[cfg(test)]
mod tests;
