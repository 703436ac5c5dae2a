//! Fetches remote addresses in helmfiles into temporary folders. It fetches Git repositories with the program `git` and the
//! user's credentials, files and archives over HTTP, and objects from S3.
//!
//! Elsewhere: parsing addresses (engine `helmfile`), fetching and its limits (`sources`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use helmfile::bundle_lock_file;
use helmfile::{ChartFetchError, ChartVersionRequest, RemoteAddress, RemoteFetcher, RemoteSource};
use http_client::TlsConfig;
use kustomize::{BuildFiles as _, RepositoryAddress};
use parking_lot::Mutex;
use sources::bucket::{
    self, BucketCredentialSource, BucketEndpoint, BucketServerSettings, RemoteBucket,
};
use sources::go_getter;
use sources::workstation_build_files::WorkstationBuildFiles;
use tempfile::TempDir;
use tree::{FileKind, FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::registry_logins;
use helmfile_controller::helmfile::chart_fetch::ChartRepositoryCache;
use windlass_cli_runtime::connection::block_on;

/// How long fetching a repository may take if the command has no time limit.
const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_secs(600);

/// Fetches for one run of the command. Nothing is kept after the run.
pub(crate) struct HelmfileRemoteFetcher {
    disk: WorkstationBuildFiles,
    folder: TempDir,
    limit: Duration,
    /// The local directories of the fetched addresses and charts.
    known: Mutex<BTreeMap<String, Result<String, String>>>,
    charts: Mutex<ChartRepositoryCache>,
}

impl HelmfileRemoteFetcher {
    /// Makes a fetcher. Each fetch may take `limit`, or ten minutes if it is zero.
    ///
    /// # Errors
    /// There is no folder for temporary files.
    pub(crate) fn within(limit: Duration) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("helmfile-").tempdir();
        let folder = folder.map_err(|error| format!("cannot create a directory: {error}"))?;
        let limit = if limit.is_zero() { DEFAULT_FETCH_TIMEOUT } else { limit };
        Ok(Self {
            disk: WorkstationBuildFiles::default(),
            folder,
            limit,
            known: Mutex::default(),
            charts: Mutex::new(registry_logins::charts()),
        })
    }
}

impl RemoteFetcher for HelmfileRemoteFetcher {
    fn fetch(&self, address: &RemoteAddress) -> Result<String, String> {
        let key =
            [&bundle_lock_file::address_id(address), &address.user].map(String::as_str).join("\n");
        let mut known = self.known.lock();
        if let Some(done) = known.get(&key) {
            return done.clone();
        }
        let place = self.folder.path().join(known.len().to_string());
        let done = self.fetch_into(&place, address);
        known.insert(key, done.clone());
        done
    }

    fn chart(&self, chart: &ChartVersionRequest) -> Result<String, ChartFetchError> {
        let ChartVersionRequest { url, name, range, .. } = chart;
        let key = ["chart", url, name, range].join("\n");
        let mut known = self.known.lock();
        if let Some(done) = known.get(&key) {
            return Ok(done.clone()?);
        }
        let place = self.folder.path().join(known.len().to_string());
        let done = self.chart_into(&place, chart);
        known.insert(key, done.clone());
        Ok(done?)
    }
}

impl HelmfileRemoteFetcher {
    fn chart_into(&self, place: &Path, chart: &ChartVersionRequest) -> Result<String, String> {
        let mut charts = self.charts.lock();
        let archive = block_on(async {
            let limit = self.limit;
            let work = charts.archive(chart);
            let within = tokio::time::timeout(limit, work).await;
            within.unwrap_or_else(|_elapsed| Err(anyhow::anyhow!("timed out after {limit:?}")))
        });
        unpack(&archive.map_err(|error| format!("{error:#}"))?, place)?;
        // The archive of a chart contains one directory with the name of the chart.
        within(place, &chart.name)
    }

    fn fetch_into(&self, place: &Path, address: &RemoteAddress) -> Result<String, String> {
        match address.source()? {
            RemoteSource::Git { host, path, folder, reference } => {
                let timeout = u64::try_from(self.limit.as_nanos()).unwrap_or(u64::MAX);
                let repository = RepositoryAddress {
                    address: address.to_string(),
                    host,
                    path,
                    dir: String::new(),
                    reference,
                    submodules: true,
                    timeout,
                };
                let clone = self.disk.checkout(&repository).map_err(|error| error.to_string())?;
                within(Path::new(&clone), &folder)
            }
            RemoteSource::File { url } => {
                let data = self.disk.fetch(&url).map_err(|error| error.to_string())?;
                write_file(place, &address.file, &data)?;
                within(place, "")
            }
            RemoteSource::Archive { url, folder } => {
                let data = self.disk.fetch(&url).map_err(|error| error.to_string())?;
                unpack(&data, place)?;
                within(place, &folder)
            }
            RemoteSource::S3 { region, bucket, key } => {
                let data = self.object(&region, bucket, &key)?;
                let name = key.rsplit('/').next().unwrap_or_default();
                if go_getter::is_archive(name) {
                    unpack(&data, place)?;
                } else {
                    write_file(place, name, &data)?;
                }
                within(place, "")
            }
        }
    }
}

impl HelmfileRemoteFetcher {
    /// Reads an object from S3 with the credentials of the environment. The server is `AWS_ENDPOINT_URL_S3` or
    /// `AWS_ENDPOINT_URL`, if one of them is set.
    fn object(&self, region: &str, bucket: String, key: &str) -> Result<Vec<u8>, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let of_variables = || variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let region = Some(region.to_owned()).filter(|region| !region.is_empty());
        let region = region.or_else(of_variables).unwrap_or_else(|| "us-east-1".to_owned());
        let own = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
        let (host, is_insecure) = match own.as_deref().and_then(|url| url.split_once("://")) {
            Some((scheme, host)) => (host.to_owned(), scheme == "http"),
            None => (format!("s3.{region}.amazonaws.com"), false),
        };
        let endpoint =
            BucketEndpoint::parse(&host, is_insecure).map_err(|error| error.to_string())?;
        let server = BucketServerSettings {
            endpoint,
            region: Some(region),
            identity: BucketCredentialSource::Environment { sts: None },
            tls: TlsConfig::default(),
            proxy: None,
        };
        let prefix = String::new();
        let timeout = self.limit;
        let remote =
            RemoteBucket { server, bucket, prefix, timeout, limits: tree::TreeLimits::default() };
        let known = bucket::BucketClientCache::default();
        let fetched = block_on(async { Ok(bucket::object(&remote, key, &known).await?) });
        fetched.map_err(|error| format!("{error:#}"))
    }
}

/// Writes a file into a new folder.
fn write_file(place: &Path, name: &str, data: &[u8]) -> Result<(), String> {
    let written = fs::create_dir(place).and_then(|()| fs::write(place.join(name), data));
    written.map_err(|error| error.to_string())
}

/// The absolute path of a folder below another one. The result must not lie outside.
fn within(top: &Path, folder: &str) -> Result<String, String> {
    let relative = Path::new(folder);
    let is_below =
        relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let path: PathBuf = top.join(relative);
    if !is_below || !path.is_dir() {
        return Err(format!("there is no directory `{folder}` in it"));
    }
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| format!("`{}` is not UTF-8", path.display()))
}

/// Unpacks a gzip-compressed tar archive, or a zip archive.
fn unpack(data: &[u8], place: &Path) -> Result<(), String> {
    write_below(&go_getter::unpack(data, tree::TreeLimits::default().total_bytes)?, place)
}

/// Writes the files of a tree into a folder. Their paths cannot lead out of the folder.
fn write_below(tree: &MemoryTree, place: &Path) -> Result<(), String> {
    let mut left = vec![RelPath::root()];
    while let Some(directory) = left.pop() {
        fs::create_dir_all(place.join(directory.as_str())).map_err(|error| error.to_string())?;
        for (name, kind) in tree.list(&directory).map_err(|error| error.to_string())? {
            let path = directory.join(&name).map_err(|error| error.to_string())?;
            if kind == FileKind::Dir {
                left.push(path);
            } else if !matches!(tree.entry(&path), Some(FileMetadata::Dir) | None) {
                let data = tree.read(&path).map_err(|error| error.to_string())?;
                fs::write(place.join(path.as_str()), &data).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A repository with a folder `d`. A file in the folder differs at the tag `v1`.
    fn repository() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let status = Command::new("git")
                .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
                .args(args)
                .current_dir(folder.path())
                .output()
                .unwrap();
            assert!(status.status.success(), "{args:?}: {status:?}");
        };
        git(&["init", "-q"]);
        fs::create_dir(folder.path().join("d")).unwrap();
        for (text, tag) in [("first", "v1"), ("second", "v2")] {
            fs::write(folder.path().join("d/f.yaml"), text).unwrap();
            git(&["add", "-A"]);
            git(&["commit", "-qm", text]);
            git(&["tag", tag]);
        }
        folder
    }

    fn fetched(remotes: &HelmfileRemoteFetcher, text: &str) -> Result<String, String> {
        let address = RemoteAddress::parse(text).unwrap();
        let directory = remotes.fetch(&address)?;
        Ok(fs::read_to_string(Path::new(&directory).join(&address.file)).unwrap())
    }

    #[test]
    fn repositories_are_checked_out_by_reference_and_folder() {
        let repository = repository();
        let url = format!("git::file://{}", repository.path().display());
        let remotes = HelmfileRemoteFetcher::within(Duration::from_secs(60)).unwrap();
        assert_eq!(fetched(&remotes, &format!("{url}@d/f.yaml")).unwrap(), "second");
        assert_eq!(fetched(&remotes, &format!("{url}@d/f.yaml?ref=v1")).unwrap(), "first");
        assert_eq!(fetched(&remotes, &format!("{url}//d@f.yaml?ref=v1")).unwrap(), "first");
        // A fetched repository stays available for the rest of the run.
        drop(repository);
        assert_eq!(fetched(&remotes, &format!("{url}@d/f.yaml?ref=v1")).unwrap(), "first");
        let error = |more: &str| fetched(&remotes, &format!("{url}{more}")).unwrap_err();
        assert!(error("//none@f.yaml").contains("failed to run"), "{}", error("//none@f.yaml"));
        assert!(error("@f.yaml?ref=--upload-pack=x").contains("is not a branch"));
    }

    #[test]
    fn archives_are_unpacked_and_folders_stay_within() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("0");
        assert!(unpack(b"text", &place).unwrap_err().contains("neither"));
        fs::create_dir_all(place.join("a")).unwrap();
        assert!(within(&place, "a").unwrap().ends_with("/0/a"));
        for path in ["../0", "none", "/"] {
            assert!(within(&place, path).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_not_fetched_is_named() {
        let remotes = HelmfileRemoteFetcher::within(Duration::ZERO).unwrap();
        let error = |text: &str| remotes.fetch(&RemoteAddress::parse(text).unwrap()).unwrap_err();
        assert!(error("s3://bucket").contains("a bucket and an object"));
        assert!(error("gcs::https://h/b@f").contains("not supported"));
        assert!(error("git::https://h/r.git").contains("`@`"));
    }
}
