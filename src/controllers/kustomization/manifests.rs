//! The objects of an artifact's folder: its kustomization with what the spec adds, built.
//!
//! Elsewhere: the file that a build starts from (`generated.rs`), what kustomizations mean (`kustomize`).

use std::sync::Arc;

use crds::kustomize::KustomizationSpec;
use kustomize::{InTree, Options, Restriction};
use objects::Object;
use tree::{Entry, Files, Kind, RelPath, TreeError};

use super::generated::{self, Generated};

/// How many objects a build may have.
const MAX_OBJECTS: usize = 50_000;

/// Why a folder did not become objects. `Display` names the file or the object.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Generated(#[from] generated::Error),
    #[error("kustomize build failed: {0}")]
    Build(#[from] kustomize::Error),
    #[error("{what}: {problem}")]
    NotAnObject { what: String, problem: objects::ObjectError },
    #[error("more than {MAX_OBJECTS} objects; divide the folder")]
    TooMuch,
}

/// Builds the objects of a spec from an artifact's files.
pub(super) fn load(files: &dyn Files, spec: &KustomizationSpec) -> Result<Vec<Object>, Error> {
    let generated = generated::generate(files, spec)?;
    let root = format!("/{}", generated.folder);
    let within = InTree(WithGenerated { files, generated });
    // Parity(flux): files may come from everywhere in the artifact, and `openapi` adds to what is built in.
    let options = Options {
        restriction: Restriction::None,
        keeps_builtin_schema: true,
        ..Options::default()
    };
    let mut warnings = Vec::new();
    let built = kustomize::build(&within, &root, &options, &mut warnings)?;
    let objects = built.objects()?;
    if objects.len() > MAX_OBJECTS {
        return Err(Error::TooMuch);
    }
    let object = |found: kustomize::Object| {
        let what = found.id.to_string();
        Object::new(found.value).map_err(|problem| Error::NotAnObject { what, problem })
    };
    objects.into_iter().map(object).collect()
}

/// The artifact's files with one in the place of another, or added.
struct WithGenerated<'f> {
    files: &'f dyn Files,
    generated: Generated,
}

impl Files for WithGenerated<'_> {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        if *path == self.generated.path {
            return Ok(self.generated.content.clone());
        }
        self.files.read(path)
    }

    fn list(&self, dir: &RelPath) -> Result<Vec<(String, Kind)>, TreeError> {
        let mut found = self.files.list(dir)?;
        if let Some(name) = self.generated.path.name().filter(|_| *dir == self.generated.folder)
            && let Err(at) = found.binary_search_by(|(known, _)| known.as_str().cmp(name))
        {
            found.insert(at, (name.to_owned(), Kind::File));
        }
        Ok(found)
    }

    fn entry(&self, path: &RelPath) -> Option<Entry> {
        if *path == self.generated.path {
            let len = u64::try_from(self.generated.content.len()).unwrap_or(u64::MAX);
            return Some(Entry::File { len, executable: false });
        }
        self.files.entry(path)
    }
}

#[cfg(test)]
mod tests;
