//! `windlass bundle`: packs a directory with a helmfile, and everything that the helmfile fetches from other servers, into one
//! archive.
//!
//! Elsewhere: the lock file (`helmfile::bundle_lock_file`), reading a bundle (`helmfile_controller::helmfile`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use artifacts::archive::{ArchiveContents, write};
use clap::Args as ClapArgs;
use helmfile::bundle_lock_file::{self, HelmfileBundleLock, HelmfileBundleLockEntry};
use helmfile::{
    ChartFetchError, ChartVersionRequest, HelmfilePlanSettings, RemoteAddress, RemoteFetcher,
};
use parking_lot::Mutex;
use sources::remote_bases::without_credentials;
use tree::RelPath;

use super::helmfile::{HelmfileRemoteFetcher, below, fetch_all};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cli_runtime::time_limit::parse_of_fetch;

/// The maximum depth of nested directories.
const MAX_DIRECTORY_DEPTH: usize = 64;

/// The directory of Git, which is not packed.
const OF_GIT: &str = ".git";

/// The flags of the command.
#[derive(Debug, Clone, ClapArgs)]
pub struct BundleArgs {
    /// Directory with the helmfile
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Archive to write (.tar.gz)
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Environment to include; may be repeated
    #[arg(short, long, value_name = "NAME")]
    environment: Vec<String>,
    /// Helmfile in the directory [default: as `windlass helmfile`]
    #[arg(short, long, default_value = "", hide_default_value = true, value_name = "FILE")]
    file: String,
    /// Selector of releases to include; may be repeated
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Vec<String>,
    /// State value (`a.b=c`), if charts depend on it; may be repeated
    #[arg(long, value_name = "VALUE")]
    state_values_set: Vec<String>,
    /// File of state values; may be repeated
    #[arg(long, value_name = "FILE")]
    state_values_file: Vec<String>,
    /// How long fetching one chart or address may take, such as 2m; 0 stands for ten minutes
    #[arg(
        long,
        default_value = "5m",
        value_name = "DURATION",
        value_parser = parse_of_fetch
    )]
    time_limit: Duration,
}

/// Examples and exit codes at the end of the command's help.
pub const EXAMPLES: &str = "Examples:
  windlass bundle ./shop -o shop.tar.gz         a helmfile, with the charts of its environment default
  windlass bundle ./shop -o shop.tar.gz -e staging -e production
  windlass bundle ./shop -o shop.tar.gz -l tier=web

Exit status: 0; 2 if something cannot be read or fetched.";

/// Writes the archive.
///
/// # Errors
/// Something cannot be read or fetched.
pub fn run(args: &BundleArgs) -> anyhow::Result<()> {
    let folder = std::fs::canonicalize(&args.folder)
        .with_context(|| format!("cannot read {}", args.folder.display()))?;
    let recording = Arc::new(BundlingRemoteFetcher {
        remotes: HelmfileRemoteFetcher::within(args.time_limit).map_err(anyhow::Error::msg)?,
        found: Mutex::default(),
    });
    let environments = match args.environment.as_slice() {
        [] => vec!["default".to_owned()],
        given => given.to_vec(),
    };
    let mut count = 0;
    for environment in environments {
        let settings = HelmfilePlanSettings {
            file: args.file.clone(),
            environment: environment.clone(),
            selectors: args.selector.clone(),
            state_values_set: args.state_values_set.clone(),
            state_values_files: args.state_values_file.clone(),
            ..HelmfilePlanSettings::default()
        };
        let fetched = fetch_all(&folder, settings, recording.clone());
        let (releases, warnings) = fetched.map_err(|error| {
            anyhow::Error::msg(error).context(format!("environment {environment}"))
        })?;
        for warning in warnings {
            say(ProgressGlyph::Warning, &warning);
        }
        count += releases;
    }
    if count == 0 {
        bail!("the helmfile has no release");
    }
    let found = std::mem::take(&mut *recording.found());
    let mut contents = own(&folder, &args.output)?;
    let parts = found.len();
    let mut lock = HelmfileBundleLock::default();
    for (id, BundledHelmfileRemote { of, archive }) in found {
        let file = format!("{}.tgz", id.get(..16).unwrap_or(&id));
        put(&mut contents, &format!("{}/{file}", bundle_lock_file::FOLDER), archive.clone())?;
        lock.entries.push(HelmfileBundleLockEntry {
            id,
            of,
            file,
            digest: bundle_lock_file::digest(&archive),
        });
    }
    let text = lock.text().map_err(anyhow::Error::msg)?;
    put(
        &mut contents,
        &format!("{}/{}", bundle_lock_file::FOLDER, bundle_lock_file::LOCK),
        text.into_bytes(),
    )?;
    let archive = packed(&contents)?;
    std::fs::write(&args.output, &archive)
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    say(
        ProgressGlyph::Success,
        &format!(
            "{}: {} files; {parts} fetched charts and addresses; {}",
            args.output.display(),
            contents.files().count(),
            bundle_lock_file::digest(&archive)
        ),
    );
    Ok(())
}

fn packed(contents: &ArchiveContents<Vec<u8>>) -> anyhow::Result<Vec<u8>> {
    Ok(write(Vec::new(), contents, |_, data| Ok::<_, std::io::Error>(data.clone()))?)
}

fn put(contents: &mut ArchiveContents<Vec<u8>>, path: &str, data: Vec<u8>) -> anyhow::Result<()> {
    Ok(contents.file(RelPath::parse(path)?, false, data)?)
}

/// The files of the directory, without those of Git, those of an earlier bundle, and the archive itself.
fn own(folder: &Path, output: &Path) -> anyhow::Result<ArchiveContents<Vec<u8>>> {
    let output = resolved(output)?;
    let mut contents = ArchiveContents::new();
    let mut left = vec![(folder.to_owned(), String::new(), MAX_DIRECTORY_DEPTH)];
    while let Some((at, shown, depth)) = left.pop() {
        let entries = std::fs::read_dir(&at).with_context(|| at.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let name = entry.file_name();
            let name = name.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            let is_top = shown.is_empty();
            if name == OF_GIT || (is_top && name == bundle_lock_file::FOLDER) || path == output {
                continue;
            }
            let place = if is_top { name.to_owned() } else { format!("{shown}/{name}") };
            if kind.is_dir() {
                if depth == 0 {
                    bail!("{} is nested too deeply", path.display());
                }
                left.push((path, place, depth - 1));
            } else if kind.is_file() {
                let data = std::fs::read(&path).with_context(|| path.display().to_string())?;
                put(&mut contents, &place, data)?;
            } else {
                say(ProgressGlyph::Warning, &format!("{place} is a link, and is left out"));
            }
        }
    }
    Ok(contents)
}

/// The target of a path after all links. The file need not exist.
fn resolved(path: &Path) -> anyhow::Result<PathBuf> {
    if let Ok(path) = std::fs::canonicalize(path) {
        return Ok(path);
    }
    let parent = path.parent();
    let name = path.file_name();
    let name = name.with_context(|| format!("{} is not the name of a file", path.display()))?;
    let parent = parent.filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = std::fs::canonicalize(parent)
        .with_context(|| format!("cannot read {}", parent.display()))?;
    Ok(found.join(name))
}

/// The fetched files of one address or chart, packed.
struct BundledHelmfileRemote {
    of: String,
    archive: Vec<u8>,
}

/// Fetches, and keeps the results for the bundle.
struct BundlingRemoteFetcher {
    remotes: HelmfileRemoteFetcher,
    found: Mutex<BTreeMap<String, BundledHelmfileRemote>>,
}

impl BundlingRemoteFetcher {
    fn found(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, BundledHelmfileRemote>> {
        self.found.lock()
    }

    /// Keeps the files of a directory. In the archive, they are below `name`, unless it is empty.
    fn keep(&self, id: String, of: String, name: &str, place: &str) -> Result<(), String> {
        if self.found().contains_key(&id) {
            return Ok(());
        }
        let failed = |error: String| format!("{of}: {error}");
        let files = below(Path::new(place)).map_err(|error| failed(error.to_string()))?;
        let mut contents = ArchiveContents::new();
        for (path, data) in files.into_iter().filter(|(path, _)| !path.starts_with(".git/")) {
            let path = if name.is_empty() { path } else { format!("{name}/{path}") };
            put(&mut contents, &path, data).map_err(|error| failed(error.to_string()))?;
        }
        let archive = packed(&contents).map_err(|error| failed(error.to_string()))?;
        self.found().insert(id, BundledHelmfileRemote { of, archive });
        Ok(())
    }
}

impl RemoteFetcher for BundlingRemoteFetcher {
    fn fetch(&self, address: &RemoteAddress) -> Result<String, String> {
        let place = self.remotes.fetch(address)?;
        self.keep(bundle_lock_file::address_id(address), address.to_string(), "", &place)?;
        Ok(place)
    }

    fn chart(&self, chart: &ChartVersionRequest) -> Result<String, ChartFetchError> {
        let place = self.remotes.chart(chart)?;
        let ChartVersionRequest { name, range, url, .. } = chart;
        let of = format!("chart {name} {range} of {}", without_credentials(url));
        self.keep(bundle_lock_file::chart_id(chart), of, name, &place)?;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_directory_are_taken_but_for_those_of_git_and_of_earlier_bundles() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "text").unwrap();
        };
        for path in [
            "helmfile.yaml",
            "app/Chart.yaml",
            ".git/HEAD",
            "windlass-bundle/lock.yaml",
            "out.tar.gz",
        ] {
            write(path);
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        // The archive must also be recognized through links.
        let elsewhere = tempfile::tempdir().unwrap();
        let to_folder = elsewhere.path().join("d");
        let to_file = elsewhere.path().join("f");
        std::os::unix::fs::symlink(folder.path(), &to_folder).unwrap();
        std::os::unix::fs::symlink(folder.path().join("out.tar.gz"), &to_file).unwrap();
        let top = std::fs::canonicalize(folder.path()).unwrap();
        for output in [top.join("out.tar.gz"), to_folder.join("out.tar.gz"), to_file] {
            let contents = own(&top, &output).unwrap();
            let paths: Vec<&str> = contents.files().map(|(path, _)| path.as_str()).collect();
            assert_eq!(paths, ["app/Chart.yaml", "helmfile.yaml"], "{}", output.display());
        }
    }
}
