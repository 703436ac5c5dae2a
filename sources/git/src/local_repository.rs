//! A repository on this disk: finds the commits of revisions, and lists the remotes. It fetches and writes nothing.
//!
//! It reads only the repository's own configuration, and runs no program that the configuration names. Elsewhere: the files of
//! a commit ([`GitSnapshot`]), fetching (`lib.rs`).

use std::path::{Path, PathBuf};

use gix::bstr::ByteSlice as _;
use gix::hash::ObjectId;

use super::commit_snapshot::{self, GitSnapshot};
use super::{Error, GitLimits};

/// The reason why a repository on this disk cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LocalRepositoryError {
    /// There is no repository, or its folder cannot be read.
    #[error("cannot open the Git repository in {}: {cause}", path.display())]
    Open {
        /// The folder.
        path: PathBuf,
        /// The message of the library.
        cause: String,
    },
    /// The repository has no such commit. A shallow clone has only a few commits.
    #[error(
        "revision `{revision}` is not a commit of the repository: {cause}; fetch it if the clone does not have it"
    )]
    NoSuchRevision {
        /// The revision as it was given.
        revision: String,
        /// The message of the library.
        cause: String,
    },
    /// A commit cannot be read.
    #[error(transparent)]
    Commit(#[from] Error),
}

/// A repository on this disk.
pub struct ReadOnlyLocalRepository {
    repository: gix::Repository,
    /// The path of the repository.
    path: PathBuf,
}

impl ReadOnlyLocalRepository {
    /// Opens the repository of a work tree, which is the folder that has `.git`, or a bare repository.
    ///
    /// # Errors
    /// [`LocalRepositoryError::Open`].
    pub fn open(folder: &Path) -> Result<Self, LocalRepositoryError> {
        let path = folder.to_owned();
        // A checkout of CI often belongs to another user. No program that the configuration names is run.
        let options = gix::open::Options::isolated().with(gix::sec::Trust::Full);
        match gix::open_opts(path.clone(), options) {
            Ok(repository) => Ok(Self { repository, path }),
            Err(error) => {
                let cause = error.probable_cause().to_string();
                Err(LocalRepositoryError::Open { path, cause })
            }
        }
    }

    /// The commit that a revision names, such as a branch, a tag, `HEAD~1` or a part of a hash: forty hexadecimal digits.
    ///
    /// # Errors
    /// [`LocalRepositoryError::NoSuchRevision`].
    pub fn commit(&self, revision: &str) -> Result<String, LocalRepositoryError> {
        Ok(self.commit_id(revision)?.to_string())
    }

    fn commit_id(&self, revision: &str) -> Result<ObjectId, LocalRepositoryError> {
        let missing = |error: gix::Error| LocalRepositoryError::NoSuchRevision {
            revision: revision.to_owned(),
            cause: error.probable_cause().to_string(),
        };
        let named = self.repository.rev_parse_single(revision.as_bytes().as_bstr());
        let object = named.and_then(|named| named.object()).map_err(missing)?;
        Ok(object.peel_to_commit().map_err(missing)?.id)
    }

    /// The commit that a revision names, with its files. The files are read from the repository within limits.
    ///
    /// # Errors
    /// There is no such commit, or its objects cannot be read.
    pub fn snapshot(
        &self,
        revision: &str,
        limits: GitLimits,
    ) -> Result<GitSnapshot, LocalRepositoryError> {
        let id = self.commit_id(revision)?;
        let place = self.repository.common_dir().join("objects");
        let objects = commit_snapshot::objects_in(&place, &limits)?;
        Ok(GitSnapshot::of_repository(id, objects, limits, self.path.display().to_string())?)
    }

    /// The URLs of all remotes in the configuration. They may contain credentials.
    pub fn remote_urls(&self) -> Vec<String> {
        let mut urls = Vec::new();
        for name in self.repository.remote_names() {
            let remote = self.repository.try_find_remote_without_url_rewrite(name.as_bstr());
            let Some(Ok(remote)) = remote else { continue };
            let url = remote.url(gix::remote::Direction::Fetch);
            urls.extend(url.map(|url| url.to_bstring().to_string()));
        }
        urls
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn git(folder: &Path, arguments: &[&str]) {
        let output = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
            .args(arguments)
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    #[test]
    fn a_revision_is_read_out_of_the_repository_whatever_is_checked_out() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q", "-b", "main"]);
        git(folder.path(), &["remote", "add", "origin", "git@example.com:org/fleet.git"]);
        for text in ["first", "second"] {
            std::fs::write(folder.path().join("a.yaml"), text).unwrap();
            git(folder.path(), &["add", "-A"]);
            git(folder.path(), &["commit", "-qm", text]);
        }
        git(folder.path(), &["tag", "-a", "-m", "v1", "v1", "HEAD~1"]);
        let repository = ReadOnlyLocalRepository::open(folder.path()).unwrap();
        let read = |revision: &str| {
            let snapshot = repository.snapshot(revision, GitLimits::default()).unwrap();
            let entries = snapshot.entries().unwrap().entries;
            String::from_utf8(snapshot.read(&entries[0]).unwrap()).unwrap()
        };
        assert_eq!(read("v1"), "first");
        assert_eq!(read("main"), "second");
        assert_eq!(repository.commit("v1").unwrap(), repository.commit("HEAD~1").unwrap());
        assert_eq!(repository.remote_urls(), ["git@example.com:org/fleet.git"]);
        let error = repository.commit("gone").unwrap_err().to_string();
        assert!(error.starts_with("revision `gone` is not a commit of the repository"), "{error}");
    }

    #[test]
    fn a_bare_repository_is_read_like_one_that_is_checked_out() {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "-q", "-b", "main"]);
        std::fs::write(folder.path().join("a.yaml"), "text").unwrap();
        git(folder.path(), &["add", "-A"]);
        git(folder.path(), &["commit", "-qm", "first"]);
        let bare = tempfile::tempdir().unwrap();
        git(folder.path(), &["clone", "-q", "--bare", ".", bare.path().to_str().unwrap()]);
        let repository = ReadOnlyLocalRepository::open(bare.path()).unwrap();
        let snapshot = repository.snapshot("main", GitLimits::default()).unwrap();
        let entries = snapshot.entries().unwrap().entries;
        assert_eq!(snapshot.read(&entries[0]).unwrap(), b"text");
        assert_eq!(repository.remote_urls().len(), 1);
    }

    #[test]
    fn a_folder_without_a_repository_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let error =
            ReadOnlyLocalRepository::open(folder.path()).err().map(|error| error.to_string());
        assert!(error.is_some_and(|error| error.starts_with("cannot open the Git repository in ")));
    }
}
