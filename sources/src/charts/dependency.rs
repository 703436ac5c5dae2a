//! Finds the dependencies of a chart. They are beside it, in a repository, in a registry, or in Git.
//!
//! Helm itself does not support Git. `git+https://host/repository@folder?ref=v1` names a folder of a repository, in the
//! notation of the `helm-git` plugin. The folder is the chart, or has a folder with the chart's name that is.
//! Here: reading the notation, the chart of a Git repository. Elsewhere: chart repositories ([`super::repository`]).

use std::time::Duration;

use git::{
    GitCredentials, GitReference, GitRemote, RemoteUrl, RequestedCommitContent, TreeEntryKind,
};
use golang::semver::{SemverVersion, VersionConstraint};
use helm::chart::ChartDependency;
use tree::{FileTree as _, MemoryTree, RelPath, TreeLimits};
use url::Url;

use super::chart_files::{self, LoadedChartFiles};

/// The place of a dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartDependencyLocation {
    /// The dependency is in the tree of the chart itself.
    Folder(RelPath),
    /// The dependency is in the chart repository at this address.
    Repository(String),
    /// The dependency is in a registry, below this address.
    Registry(String),
    /// The dependency is in a Git repository.
    Git(GitDependencyFolder),
}

/// A folder of a Git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitDependencyFolder {
    url: RemoteUrl,
    path: RelPath,
    reference: String,
}

/// The reason why a dependency cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address has a form that is not supported.
    #[error("invalid repository '{repository}': {why}")]
    BadPlace {
        /// The address as it was given.
        repository: String,
        /// The reason why it is not supported.
        why: String,
    },
    /// The chart is there in another version.
    #[error(
        "can't get a valid version for constraint '{range}': the chart at '{place}' has version '{found}'"
    )]
    OtherVersion {
        /// The requested version or range.
        range: String,
        /// The place of the chart.
        place: String,
        /// The version of the chart.
        found: String,
    },
    /// The folder has another chart.
    #[error("the name of the chart at '{place}' is '{found}'")]
    OtherName {
        /// The place of the chart.
        place: String,
        /// The name of the chart.
        found: String,
    },
    /// The Git repository cannot be fetched.
    #[error(transparent)]
    Git(#[from] git::Error),
    /// The files of the Git repository do not fit into a tree.
    #[error(transparent)]
    Tree(#[from] tree::TreeBuildError),
    /// There is no chart, or none that can be used.
    #[error("failed to load chart from '{place}': {problem}")]
    Chart {
        /// The expected place of the chart.
        place: String,
        /// Why.
        problem: Box<chart_files::Error>,
    },
}

/// Finds the place of a dependency of the chart at `chart`.
///
/// # Errors
/// [`Error::BadPlace`]: the address is a name in Helm's configuration, a path that leaves the tree, or invalid.
pub fn place(
    dependency: &ChartDependency,
    chart: &RelPath,
) -> Result<ChartDependencyLocation, Error> {
    let repository = &dependency.repository;
    let bad = |why: &str| Error::BadPlace { repository: shown(repository), why: why.to_owned() };
    let inside = |path: &str| {
        chart.join(path).map(ChartDependencyLocation::Folder).map_err(|e| bad(&e.to_string()))
    };
    if repository.is_empty() {
        return inside(&format!("charts/{}", dependency.name));
    }
    if let Some(path) = repository.strip_prefix("file://") {
        return inside(path.trim_start_matches('/'));
    }
    if ["http://", "https://", "s3://"].iter().any(|scheme| repository.starts_with(scheme)) {
        return Ok(ChartDependencyLocation::Repository(repository.clone()));
    }
    if repository.starts_with("oci://") {
        return Ok(ChartDependencyLocation::Registry(repository.clone()));
    }
    if let Some(url) = repository.strip_prefix("git+") {
        return git_folder(url).map(ChartDependencyLocation::Git).map_err(|why| bad(&why));
    }
    // Parity(flux): such aliases are in the configuration of a user's `helm`, and are not known to Flux.
    Err(bad(if repository.starts_with('@') || repository.starts_with("alias:") {
        "aliased repository dependency is not supported; use the URL that `helm repo list` shows for the alias"
    } else {
        "it must start with http://, https://, oci://, s3://, file:// or git+https://"
    }))
}

/// A URL as text, without credentials.
fn shown(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return text.to_owned() };
    // Both calls only fail for URLs without a host, which have no credentials.
    let _: Result<(), ()> = url.set_password(None);
    let _: Result<(), ()> = url.set_username("");
    url.to_string()
}

fn git_folder(text: &str) -> Result<GitDependencyFolder, String> {
    let mut url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only https:// and http:// are supported for dependencies in Git".to_owned());
    }
    let mut reference = None;
    for (key, value) in url.query_pairs() {
        match &*key {
            "ref" => reference = Some(value.into_owned()),
            // The parameter asks for a smaller fetch, which windlass makes anyway.
            "sparse" => {}
            other => return Err(format!("the option `{other}` is not supported")),
        }
    }
    let reference = reference.filter(|reference| !reference.is_empty());
    let reference = reference.ok_or("it requires `?ref=` with a tag, branch or commit")?;
    let whole = http_client::percent_decoded(url.path());
    let (repository, path) = whole.split_once('@').unwrap_or((&whole, ""));
    let path = RelPath::parse(path.trim_start_matches('/')).map_err(|error| error.to_string())?;
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(repository);
    let url = RemoteUrl::parse(url.as_str()).map_err(|error| error.to_string())?;
    Ok(GitDependencyFolder { url, path, reference })
}

/// Checks that a chart is the requested one.
///
/// # Errors
/// [`Error::OtherName`], [`Error::OtherVersion`].
pub fn check(
    files: LoadedChartFiles,
    dependency: &ChartDependency,
    place: &str,
) -> Result<LoadedChartFiles, Error> {
    let metadata = &files.chart().metadata;
    let place = place.to_owned();
    if metadata.name != dependency.name {
        return Err(Error::OtherName { place, found: metadata.name.clone() });
    }
    let in_range = || {
        let version = SemverVersion::parse(&metadata.version).ok()?;
        Some(VersionConstraint::parse(&dependency.version).ok()?.matches(&version))
    };
    if in_range() != Some(true) {
        let range = dependency.version.clone();
        let found = metadata.version.clone();
        return Err(Error::OtherVersion { range, place, found });
    }
    Ok(files)
}

/// The chart in a folder of the tree that the dependent chart is in.
///
/// # Errors
/// It is not there, no chart, or another one.
pub fn from_tree(
    tree: &MemoryTree,
    path: &RelPath,
    dependency: &ChartDependency,
) -> Result<LoadedChartFiles, Error> {
    let place = path.to_string();
    let files = LoadedChartFiles::in_tree(tree, path);
    let files =
        files.map_err(|error| Error::Chart { place: place.clone(), problem: Box::new(error) })?;
    check(files, dependency, &place)
}

/// The chart in a Git repository that everybody may read. Blocks.
///
/// # Errors
/// [`Error`].
pub fn from_git(
    folder: &GitDependencyFolder,
    dependency: &ChartDependency,
    timeout: Duration,
    context: &git::GitOperationContext,
) -> Result<LoadedChartFiles, Error> {
    let GitDependencyFolder { url, path, reference } = folder;
    let remote = GitRemote {
        url: url.clone(),
        credentials: GitCredentials::default(),
        proxy: None,
        timeout,
        limits: git::GitLimits::default(),
    };
    let checkout = |reference: &GitReference| {
        git::checkout(&remote, reference, &RequestedCommitContent::default(), context)
    };
    let is_commit = reference.len() == 40 && reference.bytes().all(|b| b.is_ascii_hexdigit());
    let checkout = if is_commit {
        let sha = reference.to_ascii_lowercase();
        checkout(&GitReference::Commit { sha, branch: None, name: None })?
    } else if reference.starts_with("refs/") {
        checkout(&GitReference::Name(reference.clone()))?
    } else {
        match checkout(&GitReference::Tag(reference.clone())) {
            Err(git::Error::NoSuchRef { .. }) => {
                checkout(&GitReference::Branch(reference.clone()))?
            }
            found => found?,
        }
    };
    let mut tree = MemoryTree::builder(TreeLimits::default());
    for item in checkout.items() {
        let (TreeEntryKind::File { is_executable }, Ok(place)) =
            (item.kind, RelPath::parse(&item.path))
        else {
            continue;
        };
        if place.starts_with(path) {
            tree.file(&place, checkout.read(item)?.as_slice(), is_executable)?;
        }
    }
    let tree = tree.build();
    let has_chart =
        |path: &RelPath| path.join("Chart.yaml").is_ok_and(|it| tree.entry(&it).is_some());
    let inner = path.join(&dependency.name).ok().filter(has_chart);
    let path = if has_chart(path) { path.clone() } else { inner.unwrap_or_else(|| path.clone()) };
    from_tree(&tree, &path, dependency)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(repository: &str) -> String {
        let dependency = ChartDependency {
            name: "lib".to_owned(),
            repository: repository.to_owned(),
            ..ChartDependency::default()
        };
        match place(&dependency, &RelPath::parse("charts/app").unwrap()) {
            Ok(ChartDependencyLocation::Folder(path)) => format!("folder {path}"),
            Ok(ChartDependencyLocation::Repository(url)) => format!("repository {url}"),
            Ok(ChartDependencyLocation::Registry(url)) => format!("registry {url}"),
            Ok(ChartDependencyLocation::Git(GitDependencyFolder { url, path, reference })) => {
                format!("git {url} {path} {reference}")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn places_are_read_as_helm_and_its_git_plugin_write_them() {
        for (repository, expected) in [
            ("", "folder charts/app/charts/lib"),
            ("file://../lib", "folder charts/lib"),
            ("file://./sub/lib", "folder charts/app/sub/lib"),
            ("https://charts.example.com", "repository https://charts.example.com"),
            ("s3://charts/stable", "repository s3://charts/stable"),
            ("oci://example.com/charts", "registry oci://example.com/charts"),
            (
                "git+https://example.com/org/repo@deploy/charts?ref=v1&sparse=0",
                "git https://example.com/org/repo deploy/charts v1",
            ),
            (
                "git+https://example.com/repo.git?ref=main",
                "git https://example.com/repo.git . main",
            ),
        ] {
            assert_eq!(at(repository), expected, "{repository}");
        }
    }

    #[test]
    fn what_leaves_the_tree_or_is_not_understood_is_refused() {
        for (repository, expected) in [
            ("file://../../../etc", "leads out"),
            ("@stable", "aliased repository dependency is not supported"),
            ("alias:stable", "use the URL that `helm repo list` shows"),
            ("ftp://example.com", "it must start with"),
            ("git+ssh://git@example.com/repo?ref=v1", "only https:// and http://"),
            ("git+https://example.com/repo", "it requires `?ref=`"),
            ("git+https://example.com/repo@x?ref=v1&depupdate=1", "the option `depupdate`"),
            ("git+https://example.com/repo@../x?ref=v1", "leads out"),
        ] {
            let message = at(repository);
            assert!(message.starts_with("invalid repository '"), "{message}");
            let is_path = expected == "leads out";
            assert!(is_path || message.contains(expected), "{message}");
        }
        assert!(!at("git+ftp://me:hunter2@example.com").contains("hunter2"));
    }
}
