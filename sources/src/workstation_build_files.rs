//! The folders of this machine as a build of kustomizations reads them.
//!
//! Here: following symbolic links, and Go's errors for missing files. Elsewhere: which files may be read
//! ([`kustomize::build`] decides), fetching remote files ([`crate::remote_bases`]), charts, which are refused.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use http_client::{EgressRules, HostBudgets, TlsConfig};
use kustomize::{BuildFiles, Error, RepositoryAddress, ResolvedPath};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::remote_bases::{git_program, web_files};

/// This machine's disk, and what a person can reach from it: web servers, and Git repositories by the `git` program.
///
/// It is meant for builds that a person starts, since it reads all files that this person may read. It blocks and may not be
/// used from within a future.
///
/// # Guarantees
/// Repositories are in folders for temporary files, which are removed when this is dropped.
#[derive(Debug, Default)]
pub struct WorkstationBuildFiles {
    clones: Mutex<Vec<TempDir>>,
}

impl BuildFiles for WorkstationBuildFiles {
    fn resolve(&self, path: &str) -> Result<ResolvedPath, Error> {
        let absolute = std::path::absolute(path)
            .map_err(|error| Error::new(format!("{path}: {}", reason(&error))))?;
        let real = fs::canonicalize(&absolute)
            .map_err(|error| Error::new(first_missing(&absolute, &error)))?;
        let text = text(&real)?;
        if real.is_dir() {
            return Ok(ResolvedPath::Dir(text.to_owned()));
        }
        let (dir, name) = text.rsplit_once('/').unwrap_or(("", text));
        let dir = if dir.is_empty() { "/" } else { dir };
        Ok(ResolvedPath::File { dir: dir.to_owned(), name: name.to_owned() })
    }

    fn is_missing(&self, path: &str) -> bool {
        !Path::new(path).exists()
    }

    fn read(&self, path: &str) -> Result<Arc<[u8]>, Error> {
        read(path).map(Into::into).map_err(|error| {
            // Go opens a folder as any file, and fails when it reads it.
            let doing = if error.kind() == io::ErrorKind::IsADirectory { "read" } else { "open" };
            Error::new(format!("{doing} {path}: {}", reason(&error)))
        })
    }

    fn fetch(&self, url: &str) -> Result<Arc<[u8]>, Error> {
        let setup = |why: String| Error::new(format!("cannot create an HTTP client: {why}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| setup(error.to_string()))?;
        let client = http_client::client(&TlsConfig::default(), None);
        let client = client.map_err(|error| Error::new(error.to_string()))?;
        let budgets = HostBudgets::default();
        let limits = web_files::WebFileLimits::default();
        runtime.block_on(web_files::get(&client, &budgets, &EgressRules::Anywhere, url, limits))
    }

    fn checkout(&self, repository: &RepositoryAddress) -> Result<String, Error> {
        let clone = git_program::checkout(repository)?;
        let path = fs::canonicalize(clone.path())
            .map_err(|error| Error::new(format!("{}: {}", clone.path().display(), reason(&error))));
        let path = text(&path?)?.to_owned();
        self.clones.lock().push(clone);
        Ok(path)
    }
}

/// The longest file that is read. Differs(kustomize): it has no limit.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The bytes of a file, also of one without a length or an end.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let too_long = || io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes"));
    if length > MAX_FILE_BYTES {
        return Err(too_long());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES { Err(too_long()) } else { Ok(bytes) }
}

fn text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::new(format!("`{}` is not UTF-8", path.display())))
}

/// The error message of the operating system, as Go prints it. It lacks the error number that Rust adds.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text[..1].to_lowercase() + &text[1..]
}

/// Names the part of a path that cannot be examined.
fn first_missing(path: &Path, error: &io::Error) -> String {
    let clean = golang::path::clean(&path.to_string_lossy());
    let parts: Vec<&str> = clean.split('/').collect();
    let heads = || (1..=parts.len()).map(|length| parts[..length].join("/"));
    let missing = heads().find(|head| !head.is_empty() && fs::symlink_metadata(head).is_err());
    if let Some(missing) = missing {
        return format!("lstat {missing}: {}", reason(error));
    }
    // All parts of the path exist, so a link leads nowhere, or in a circle.
    if error.kind() != io::ErrorKind::NotFound {
        return "EvalSymlinks: too many links".to_owned();
    }
    let link = heads().find(|head| !head.is_empty() && fs::metadata(head).is_err());
    let link = link.unwrap_or_else(|| clean.clone());
    let target = fs::read_link(&link).unwrap_or_default();
    let target = Path::new(&link).parent().unwrap_or(Path::new("/")).join(target);
    let target = target.join(clean.strip_prefix(&link).unwrap_or_default().trim_start_matches('/'));
    // A link that leads to itself does not count as missing, so this ends.
    first_missing(&target, error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use kustomize::{BuildBudget, BuildFiles as _, KustomizeBuildOptions, ResolvedPath, build};

    use super::WorkstationBuildFiles;

    #[test]
    fn links_lead_where_they_point_and_what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        fs::create_dir(at("real")).unwrap();
        fs::write(at("real/file"), "text").unwrap();
        symlink("real", at("link")).unwrap();
        assert_eq!(
            WorkstationBuildFiles::default().resolve(&at("link")),
            Ok(ResolvedPath::Dir(at("real")))
        );
        let file = ResolvedPath::File { dir: at("real"), name: "file".to_owned() };
        assert_eq!(WorkstationBuildFiles::default().resolve(&at("link/file")), Ok(file));
        assert_eq!(
            WorkstationBuildFiles::default().read(&at("link/file")).unwrap()[..],
            b"text"[..]
        );
        let missing =
            WorkstationBuildFiles::default().resolve(&at("none/below")).unwrap_err().to_string();
        assert_eq!(missing, format!("lstat {}: no such file or directory", at("none")));
        let missing = WorkstationBuildFiles::default().read(&at("none")).unwrap_err().to_string();
        assert_eq!(missing, format!("open {}: no such file or directory", at("none")));
        let dir = WorkstationBuildFiles::default().read(&at("real")).unwrap_err().to_string();
        assert_eq!(dir, format!("read {}: is a directory", at("real")));
    }

    #[test]
    fn a_link_out_of_the_root_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let app = root.join("app");
        fs::create_dir(&app).unwrap();
        fs::write(root.join("secret.yaml"), "{apiVersion: v1, kind: Secret, metadata: {name: s}}")
            .unwrap();
        symlink("../secret.yaml", app.join("s.yaml")).unwrap();
        fs::write(app.join("kustomization.yaml"), "resources: [s.yaml]").unwrap();
        let app = app.to_str().unwrap();
        let error = build(
            &WorkstationBuildFiles::default(),
            app,
            &KustomizeBuildOptions::default(),
            &BuildBudget::default(),
            &mut Vec::new(),
        )
        .unwrap_err();
        let wanted = format!("security; file '{app}/s.yaml' is not in or below '{app}'");
        assert!(error.to_string().contains(&wanted), "{error}");
    }
}
