//! Fetches the remote files that a helmfile names, and puts them beside its source: charts, files of addresses, or the entries
//! of its bundle.
//!
//! This blocks. Here: requesting each file once, and the limits on their size; a command has servers of its own
//! ([`HelmfileServerAccess`]). Elsewhere: repositories and registries (`chart_repositories.rs`, `chart_fetch.rs`), addresses
//! (`helmfile_source.rs`), the lock of a bundle (`helmfile::bundle_lock_file`).

use std::collections::BTreeMap;
use std::sync::Arc;

use helm::chart::{ChartFile, load};
use helmfile::bundle_lock_file::{self, HelmfileBundleLock};
use helmfile::helmfile_files::HelmfileFiles;
use helmfile::{ChartFetchError, ChartVersionRequest, RemoteAddress, RemoteFetcher};
use parking_lot::{Mutex, MutexGuard};
use sources::go_getter::{GoGetterRequest, HelmfileGetter};
use tokio::runtime::Handle;
use tree::{FileTree as _, MemoryTree, RelPath};

use super::chart_repositories::HelmfileRepositories;
use super::helmfile_source;
use windlass_runtime::shared_build_parts::remote_base_access::SharedBuildPermits;
use windlass_runtime::time_limit::TimeLimit;

/// The most addresses that a helmfile may name.
const MOST_ADDRESSES: usize = 128;

/// The most bytes that may be beside a source: charts, files of addresses, and entries of its bundle, unpacked.
const MOST_BYTES: u64 = 256 << 20;

/// The reason why nothing is fetched if only verified sources may be used.
pub(super) const NOT_VERIFIED: &str =
    "it is not verified, and the namespace requires verified sources; copy it into the source";

/// Sends the requests for the remote files that a helmfile names. Calls block.
pub trait HelmfileServerAccess: Send {
    /// The archive of a chart.
    ///
    /// # Errors
    /// As [`RemoteFetcher::chart`].
    fn chart(&mut self, chart: &ChartVersionRequest) -> Result<Vec<u8>, ChartFetchError>;

    /// The files that an address names.
    ///
    /// # Errors
    /// The files cannot be fetched. The text is for people.
    fn address(&mut self, request: &GoGetterRequest) -> Result<MemoryTree, String>;
}

/// The servers that a run may send requests to.
struct RunServers {
    repositories: HelmfileRepositories,
    permits: SharedBuildPermits,
    /// The getter, or the reason why addresses are not fetched.
    getter: Result<HelmfileGetter, &'static str>,
    runtime: Handle,
    /// Whether only files of the source may be used, because only the source is verified.
    is_verified_only: bool,
}

impl HelmfileServerAccess for RunServers {
    fn chart(&mut self, chart: &ChartVersionRequest) -> Result<Vec<u8>, ChartFetchError> {
        if self.is_verified_only {
            let why = format!("chart `{}` of {}: {NOT_VERIFIED}", chart.name, chart.url);
            return Err(ChartFetchError::Refused(why));
        }
        let Self { repositories, permits, runtime, .. } = self;
        permits.while_asking(|| runtime.block_on(repositories.archive(chart)))
    }

    fn address(&mut self, request: &GoGetterRequest) -> Result<MemoryTree, String> {
        let getter = self.getter.as_ref().map_err(|why| (*why).to_owned())?;
        let got = self.permits.while_asking(|| getter.get(request, None))?;
        Ok(got.ok_or(helmfile_source::NO_CONTENT)?.files)
    }
}

/// Everything that fetches a chart or an address that a helmfile names.
pub struct HelmfileFetchContext {
    servers: Box<dyn HelmfileServerAccess>,
    /// The place of the files of each fetched address.
    fetched: BTreeMap<String, String>,
}

impl HelmfileFetchContext {
    /// A context for these servers, before anything is fetched.
    pub fn of(servers: Box<dyn HelmfileServerAccess>) -> Self {
        Self { servers, fetched: BTreeMap::new() }
    }

    /// A context for a run of the operator, before anything is fetched.
    pub(super) fn new(
        repositories: HelmfileRepositories,
        permits: SharedBuildPermits,
        getter: Result<HelmfileGetter, &'static str>,
        runtime: Handle,
        is_verified_only: bool,
    ) -> Self {
        Self::of(Box::new(RunServers { repositories, permits, getter, runtime, is_verified_only }))
    }
}

/// Fetches charts of repositories and registries, and files of addresses, and puts them beside the source.
pub(super) struct HelmfileFetcher {
    files: Arc<HelmfileFiles>,
    reaching: Mutex<HelmfileFetchContext>,
    limit: Arc<TimeLimit>,
    budget: Mutex<DownloadBudget>,
    /// The bundle with all remote files, if the source is a bundle. No server is asked then.
    bundle: Option<SourceBundle>,
}

impl HelmfileFetcher {
    /// A fetcher for the helmfile in a directory, before anything is fetched.
    ///
    /// # Errors
    /// The lock file of a bundle cannot be read.
    pub(super) fn new(
        files: Arc<HelmfileFiles>,
        directory: &str,
        reaching: HelmfileFetchContext,
        limit: Arc<TimeLimit>,
    ) -> Result<Self, String> {
        let bundle = bundle_of(&files, directory)?;
        let reaching = Mutex::new(reaching);
        let budget = Mutex::new(DownloadBudget::of(MOST_BYTES));
        Ok(Self { files, reaching, limit, budget, bundle })
    }

    fn reaching(&self) -> MutexGuard<'_, HelmfileFetchContext> {
        self.reaching.lock()
    }
}

/// A bundle in a source.
struct SourceBundle {
    /// The directory of the bundle.
    top: RelPath,
    lock: HelmfileBundleLock,
}

/// The bundle beside the helmfile, or else the bundle at the top of the source. `None` if there is none.
fn bundle_of(files: &HelmfileFiles, directory: &str) -> Result<Option<SourceBundle>, String> {
    let own = RelPath::parse(directory.trim_start_matches('/')).map_err(|it| it.to_string())?;
    for top in [own, RelPath::root()] {
        let at = top.join(bundle_lock_file::FOLDER).map_err(|error| error.to_string())?;
        let lock = at.join(bundle_lock_file::LOCK).map_err(|error| error.to_string())?;
        if files.entry(&lock).is_some() {
            let text = files.read(&lock).map_err(|error| error.to_string())?;
            return Ok(Some(SourceBundle { top: at, lock: HelmfileBundleLock::parse(&text)? }));
        }
    }
    Ok(None)
}

/// The directory of an entry of a bundle, unpacked beside the source. `of` names the entry for people.
fn bundled(
    files: &HelmfileFiles,
    bundle: &SourceBundle,
    id: &str,
    of: &str,
    budget: &mut DownloadBudget,
) -> Result<String, String> {
    let at = RelPath::parse(&format!(".windlass/{id}")).map_err(|error| error.to_string())?;
    if files.entry(&at).is_some() {
        return Ok(format!("/{}", at.as_str()));
    }
    let missing = || format!("{of} is not in the bundle: rebuild it with `windlass bundle`");
    let entry = bundle.lock.find(id).ok_or_else(missing)?;
    let file = bundle.top.join(&entry.file).map_err(|error| error.to_string())?;
    let archive = files.read(&file).map_err(|error| error.to_string())?;
    entry.check(&archive)?;
    // The remaining budget limits the unpacking itself.
    let tree = sources::go_getter::unpack(&archive, budget.left);
    let tree =
        tree.map_err(|error| format!("{}/{}: {error}", bundle_lock_file::FOLDER, entry.file))?;
    budget.charge(tree.bytes())?;
    Ok(files.put_tree(id, tree))
}

/// The number of bytes that may still be put beside a source.
#[derive(Debug)]
struct DownloadBudget {
    left: u64,
}

impl DownloadBudget {
    fn of(left: u64) -> Self {
        Self { left }
    }

    /// Takes bytes from the budget, before they are stored.
    fn charge(&mut self, bytes: u64) -> Result<(), String> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| {
            format!(
                "the charts and addresses of the helmfile are larger than {MOST_BYTES} bytes: divide it into several \
                 Helmfiles with spec.selectors"
            )
        })?;
        Ok(())
    }
}

impl RemoteFetcher for HelmfileFetcher {
    fn fetch(&self, address: &RemoteAddress) -> Result<String, String> {
        let key = bundle_lock_file::address_id(address);
        let mut budget = self.budget.lock();
        if let Some(bundle) = &self.bundle {
            return bundled(&self.files, bundle, &key, &address.to_string(), &mut budget);
        }
        let wanted = helmfile_source::wanted(address)?;
        let mut reaching = self.reaching();
        let HelmfileFetchContext { servers, fetched } = &mut *reaching;
        if let Some(place) = fetched.get(&key) {
            return Ok(place.clone());
        }
        if fetched.len() >= MOST_ADDRESSES {
            return Err(format!("a helmfile may name at most {MOST_ADDRESSES} addresses"));
        }
        let files = self.limit.pause(|| servers.address(&wanted))?;
        budget.charge(files.bytes())?;
        let place = self.files.put_tree(&format!("address-{}", fetched.len()), files);
        fetched.insert(key, place.clone());
        Ok(place)
    }

    fn chart(&self, chart: &ChartVersionRequest) -> Result<String, ChartFetchError> {
        let id = bundle_lock_file::chart_id(chart);
        let name = &chart.name;
        let mut budget = self.budget.lock();
        if let Some(bundle) = &self.bundle {
            let of = format!("the chart {name} {}", chart.range);
            let place = bundled(&self.files, bundle, &id, &of, &mut budget)?;
            return Ok(format!("{place}/{name}"));
        }
        let place = format!("/.windlass/{id}/{name}");
        let at =
            RelPath::parse(place.trim_start_matches('/')).map_err(|error| error.to_string())?;
        let mut reaching = self.reaching();
        if self.files.entry(&at).is_some() {
            return Ok(place);
        }
        let archive = self.limit.pause(|| reaching.servers.chart(chart))?;
        let parts = load::archive_entries(&archive).map_err(|error| error.to_string())?;
        let bytes = parts.iter().map(|file| (file.name.len() + file.data.len()) as u64);
        budget.charge(bytes.fold(0, u64::saturating_add))?;
        let parts: Vec<(String, ChartFile)> =
            parts.into_iter().map(|file| (format!("{name}/{}", file.name), file)).collect();
        self.files.put(&id, parts.iter().map(|(path, file)| (path.as_str(), &*file.data)))?;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use artifacts::archive::{ArchiveContents, write};
    use helmfile::bundle_lock_file::HelmfileBundleLockEntry;

    use super::*;

    /// A bundle with so many entries of a kilobyte each.
    fn bundle(entries: usize) -> (HelmfileFiles, HelmfileBundleLock) {
        let mut files = Vec::new();
        let mut lock = HelmfileBundleLock::default();
        for number in 0..entries {
            let mut contents = ArchiveContents::new();
            contents.file(RelPath::parse("f").unwrap(), false, vec![b'x'; 1_000]).unwrap();
            let read = |_: &RelPath, data: &Vec<u8>| Ok::<_, std::io::Error>(data.clone());
            let archive = write(Vec::new(), &contents, read).unwrap();
            let id = number.to_string();
            let file = format!("{number}.tgz");
            let digest = bundle_lock_file::digest(&archive);
            lock.entries.push(HelmfileBundleLockEntry {
                id: id.clone(),
                of: id,
                file: file.clone(),
                digest,
            });
            files.push((format!("{}/{file}", bundle_lock_file::FOLDER), archive));
        }
        (HelmfileFiles::new(Arc::new(MemoryTree::from_files(files).unwrap())), lock)
    }

    #[test]
    fn the_entries_of_a_bundle_have_one_budget() {
        let (files, lock) = bundle(3);
        let bundle = SourceBundle { top: RelPath::parse(bundle_lock_file::FOLDER).unwrap(), lock };
        let mut budget = DownloadBudget::of(2_500);
        let mut unpacked = |id: &str| bundled(&files, &bundle, id, id, &mut budget);
        assert_eq!(unpacked("0").unwrap(), "/.windlass/0");
        assert_eq!(unpacked("1").unwrap(), "/.windlass/1");
        // One that is there costs nothing more.
        assert_eq!(unpacked("0").unwrap(), "/.windlass/0");
        let error = unpacked("2").unwrap_err();
        assert!(
            error.starts_with("windlass-bundle/2.tgz: ") && error.contains("larger than"),
            "{error}"
        );
        assert!(files.entry(&RelPath::parse(".windlass/2").unwrap()).is_none());
        assert!(unpacked("3").unwrap_err().contains("rebuild it with"));
    }

    #[test]
    fn a_budget_is_charged_before_anything_is_put() {
        let mut budget = DownloadBudget::of(10);
        assert_eq!(budget.charge(10), Ok(()));
        assert!(budget.charge(1).unwrap_err().contains("spec.selectors"));
    }
}
