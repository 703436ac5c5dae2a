//! A folder of an artifact becomes objects: plain manifests, or a `kustomization.yaml` that only lists resources.
//!
//! Everything else that a `kustomization.yaml` may say is refused by name. Pure: files come through `tree::Files`.

use std::collections::BTreeSet;

use objects::{Located, ManifestError};
use serde_json::Value;
use tree::{Files, Kind, PathError, RelPath, TreeError};

/// Names of the file that makes a folder a kustomization, in kustomize's order.
const KUSTOMIZATION_FILES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Entries of such a file that are understood.
const UNDERSTOOD: [&str; 4] = ["apiVersion", "kind", "metadata", "resources"];

/// How many folders a build may visit.
const MAX_FOLDERS: usize = 10_000;

/// How many objects a build may have.
const MAX_OBJECTS: usize = 50_000;

/// Why a folder did not become objects. `Display` names the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "kustomization path not found: `{0}` is not in the artifact; correct spec.path or commit the folder"
    )]
    NoSuchFolder(String),
    #[error("kustomization path `{0}` is a file; spec.path must name a folder")]
    NotAFolder(String),
    #[error("spec.path: {0}")]
    Path(PathError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{file}: {cause}")]
    Resource { file: String, cause: String },
    #[error("{file}: {fields} is not supported by this version of windlass; only `resources` is")]
    Unsupported { file: String, fields: String },
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("{0}")]
    TooMuch(String),
}

/// What is still to be visited.
struct Task {
    path: RelPath,
    /// The file that names it, with which an error is told.
    named_in: String,
    way: Way,
}

#[derive(PartialEq, Eq)]
enum Way {
    /// A folder whose manifests are found by looking.
    Scan,
    /// A folder that must be a kustomization.
    Kustomization,
    /// A file of manifests.
    File,
}

/// Reads every object of a folder.
///
/// Parity(flux): without a kustomization file the folder is searched for `*.yaml` and `*.yml`, and folders in it that
/// have one are read by it.
pub(super) fn load(files: &dyn Files, path: &str) -> Result<Vec<Located>, Error> {
    let root = RelPath::parse(path.trim_start_matches('/')).map_err(Error::Path)?;
    match files.entry(&root) {
        None => return Err(Error::NoSuchFolder(root.to_string())),
        Some(entry) if entry.kind() != Kind::Dir => {
            return Err(Error::NotAFolder(root.to_string()));
        }
        Some(_) => {}
    }
    let mut found = Vec::new();
    let mut visited = BTreeSet::new();
    // The last one is taken first, so children are pushed in reverse.
    let mut tasks = vec![Task { path: root, named_in: "spec.path".to_owned(), way: Way::Scan }];
    while let Some(task) = tasks.pop() {
        if task.way == Way::File {
            let text = files.read(&task.path).map_err(|cause| Error::Resource {
                file: task.named_in,
                cause: cause.to_string(),
            })?;
            found.extend(objects::manifest::read(
                task.path.as_str(),
                &text,
                &goyaml::Limits::default(),
            )?);
            if found.len() > MAX_OBJECTS {
                return Err(Error::TooMuch(format!(
                    "more than {MAX_OBJECTS} objects; divide the folder"
                )));
            }
            continue;
        }
        if !visited.insert(task.path.clone()) {
            let cause = format!("`{}` is listed twice, or contains itself", task.path);
            return Err(Error::Resource { file: task.named_in, cause });
        }
        if visited.len() > MAX_FOLDERS {
            return Err(Error::TooMuch(format!("more than {MAX_FOLDERS} folders; divide them")));
        }
        let mut children = match kustomization_file(files, &task.path)? {
            Some(file) => listed(files, &task.path, &file)?,
            None if task.way == Way::Kustomization => {
                let cause = format!("`{}` has no {}", task.path, KUSTOMIZATION_FILES[0]);
                return Err(Error::Resource { file: task.named_in, cause });
            }
            None => scanned(files, &task.path)?,
        };
        children.reverse();
        tasks.extend(children);
    }
    Ok(found)
}

/// The kustomization file of a folder; two of them are an error, as they are for kustomize.
fn kustomization_file(files: &dyn Files, folder: &RelPath) -> Result<Option<RelPath>, Error> {
    let mut found = None;
    for name in KUSTOMIZATION_FILES {
        let Ok(path) = folder.join(name) else { continue };
        if files.entry(&path).is_some_and(|entry| entry.kind() == Kind::File) {
            if let Some(first) = &found {
                let cause = format!("`{first}` is there as well; a folder may have one");
                return Err(Error::Resource { file: path.to_string(), cause });
            }
            found = Some(path);
        }
    }
    Ok(found)
}

/// What a folder without a kustomization file holds.
fn scanned(files: &dyn Files, folder: &RelPath) -> Result<Vec<Task>, Error> {
    let mut tasks = Vec::new();
    for (name, kind) in files.list(folder)? {
        let Ok(path) = folder.join(&name) else { continue };
        let way = match kind {
            Kind::Dir => Way::Scan,
            Kind::File if matches!(path.extension(), Some("yaml" | "yml")) => Way::File,
            Kind::File => continue,
        };
        tasks.push(Task { named_in: path.to_string(), path, way });
    }
    Ok(tasks)
}

/// What a kustomization file lists.
fn listed(files: &dyn Files, folder: &RelPath, file: &RelPath) -> Result<Vec<Task>, Error> {
    let text = files.read(file)?;
    let wrong = |cause: String| Error::Resource { file: file.to_string(), cause };
    // Parity(kustomize): fields are read strictly, so one that is there twice is an error.
    let value = goyaml::to_json_strict(&text).map_err(|error| {
        let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
        wrong(format!("{line}{}", error.problem()))
    })?;
    let Value::Object(fields) = value else {
        return Err(wrong("a kustomization must be a mapping".to_owned()));
    };
    let unknown: Vec<String> = fields
        .keys()
        .filter(|key| !UNDERSTOOD.contains(&key.as_str()))
        .map(|key| format!("`{key}`"))
        .collect();
    if !unknown.is_empty() {
        return Err(Error::Unsupported { file: file.to_string(), fields: unknown.join(", ") });
    }
    if let Some(kind) =
        fields.get("kind").and_then(Value::as_str).filter(|kind| *kind != "Kustomization")
    {
        return Err(Error::Unsupported {
            file: file.to_string(),
            fields: format!("kind `{kind}`"),
        });
    }
    let resources = match fields.get("resources") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(resources)) => resources,
        Some(_) => return Err(wrong("`resources` must be a list of paths".to_owned())),
    };
    let mut tasks = Vec::new();
    for resource in resources {
        let Some(name) = resource.as_str() else {
            return Err(wrong(format!("`resources` holds {resource}, which is not a path")));
        };
        let path = folder.join(name).map_err(|e| wrong(format!("`resources`: {e}")))?;
        let way = match files.entry(&path).map(tree::Entry::kind) {
            Some(Kind::File) => Way::File,
            Some(Kind::Dir) => Way::Kustomization,
            None if name.contains("://") || name.contains("?ref=") || name.starts_with("git@") => {
                return Err(Error::Unsupported {
                    file: file.to_string(),
                    fields: format!("the remote resource `{name}`"),
                });
            }
            None => {
                return Err(wrong(format!(
                    "`resources` names `{name}`, which is not in the artifact"
                )));
            }
        };
        tasks.push(Task { path, named_in: file.to_string(), way });
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests;
