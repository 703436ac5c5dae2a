//! The folder of one object's artifacts in the store.
//!
//! Here: which names can be part of a path, and parsing a path.
//! Elsewhere: the files on the disk ([`super::ArtifactStore`]).

use super::Error;

/// The end of the names of Flux's lock files. Garbage collection leaves such files alone, so no artifact may have such a name.
pub(super) const LOCK_FILE: &str = ".lock";

/// The longest name of a file or directory, as Linux has it.
const MAX_NAME: usize = 255;

/// The folder of one object's artifacts: `<kind>/<namespace>/<name>`.
///
/// # Guarantees
/// Joined onto a root, the path names a directory three levels below the root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectFolder {
    kind: String,
    namespace: String,
    name: String,
}

impl ObjectFolder {
    /// The slot of an object. The kind is in lower case (`gitrepository`).
    ///
    /// # Errors
    /// A part is not valid as a directory name, or leads elsewhere.
    pub fn new(kind: &str, namespace: &str, name: &str) -> Result<Self, Error> {
        check("kind", kind)?;
        check("namespace", namespace)?;
        check("name", name)?;
        let namespace = namespace.to_owned();
        let name = name.to_owned();
        Ok(Self { kind: kind.to_ascii_lowercase(), namespace, name })
    }

    /// The path below the root.
    #[must_use]
    pub fn path(&self) -> String {
        self.parts().join("/")
    }

    /// The namespace of the object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn parts(&self) -> [&str; 3] {
        [&self.kind, &self.namespace, &self.name]
    }
}

/// Checks the name of an artifact's file.
pub(super) fn check_file(file: &str) -> Result<(), Error> {
    check("file", file)?;
    if file.ends_with(LOCK_FILE) {
        return Err(Error::Name { what: "file", value: file.to_owned() });
    }
    Ok(())
}

/// Takes the path of an artifact apart, into its slot and its file.
pub(super) fn split_path(path: &str) -> Result<(&str, &str), Error> {
    let parts: Vec<&str> = path.split('/').collect();
    let is_good = parts.len() == 4 && parts.iter().all(|part| check("path", part).is_ok());
    match path.rsplit_once('/') {
        Some(split) if is_good => Ok(split),
        _ => Err(Error::Name { what: "path", value: path.to_owned() }),
    }
}

fn check(what: &'static str, value: &str) -> Result<(), Error> {
    // A leading dot is for unfinished files, and covers `.` and `..`.
    let is_bad = value.is_empty()
        || value.len() > MAX_NAME
        || value.starts_with('.')
        || value.contains(['/', '\\'])
        || value.chars().any(char::is_control);
    if is_bad {
        return Err(Error::Name { what, value: value.to_owned() });
    }
    Ok(())
}
