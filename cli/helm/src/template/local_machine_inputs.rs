//! Reads the local machine for `windlass template`: the files of a chart, files with values, the time zone and host names.
//!
//! Elsewhere: the meaning of the files (`helm::chart::load`).

use std::io::{self, Read as _};
use std::net::ToSocketAddrs as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use golang::time::GoTimeZone;
use helm::chart::{
    Chart, ChartFile, ChartLoadError, MAX_ENTRIES, MAX_FILE_SIZE, MAX_UNPACKED, load as from,
};
use helm::ignore::HelmIgnoreRules;
use helm::render_environment::HostNameLookup;
use helm::warning::{HelmWarning, WarningLevel};

use super::flags::HelmTemplateFlags;

/// The maximum depth of nested folders in a chart. It also ends circular links.
const MAX_DEPTH: usize = 128;

/// An error of the file system in the words of Go.
pub(super) fn go_error(act: &str, path: &str, error: &io::Error) -> String {
    let text = error.to_string();
    // Rust's text is `No such file or directory (os error 2)`.
    let text = text.rsplit_once(" (os error").map_or(text.as_str(), |(text, _)| text);
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    let text: String = first.into_iter().chain(chars).collect();
    format!("{act} {path}: {text}")
}

/// Reads a file that a flag names. `-` is standard input.
///
/// # Errors
/// The error text of Helm.
pub(super) fn read(path: &str) -> Result<Vec<u8>, String> {
    if path.trim() == "-" {
        let mut text = Vec::new();
        let read = io::stdin().lock().read_to_end(&mut text);
        return read.map(|_| text).map_err(|error| go_error("read", "/dev/stdin", &error));
    }
    if ["http://", "https://", "oci://"].iter().any(|scheme| path.starts_with(scheme)) {
        return Err(format!(
            "`{path}` is a URL, which is not supported; download it to a file first"
        ));
    }
    let act = if Path::new(path).is_dir() { "read" } else { "open" };
    std::fs::read(path).map_err(|error| go_error(act, path, &error))
}

/// Finds the folder or archive that the command line names.
///
/// # Errors
/// The chart does not exist. The error text is Helm's, if Helm would not search repositories either.
pub(super) fn locate(reference: &str) -> Result<PathBuf, String> {
    let name = reference.trim();
    if Path::new(name).exists() {
        let path = std::path::absolute(name).map_err(|error| go_error("open", name, &error))?;
        return Ok(cleaned(&path));
    }
    if name.starts_with(['/', '.']) {
        return Err(format!("path {name:?} not found"));
    }
    if name.contains("://") {
        return Err(format!(
            "`{name}` is a URL, which is not supported; use a directory or an archive"
        ));
    }
    Err(match name.split_once('/') {
        Some((repository, _)) => format!("repo {repository} not found"),
        None => {
            format!("non-absolute URLs should be in form of repo_name/path_to_chart, got: {name}")
        }
    })
}

/// A path without `.` and `..`, as Go cleans it. It does not read links.
fn cleaned(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                cleaned.pop();
            }
            other => cleaned.push(other),
        }
    }
    cleaned
}

/// The first missing part of a link's target, which Go names in its error.
fn missing(link: &Path) -> PathBuf {
    /// The limit also ends circular links.
    const MAX_LINKS: usize = 255;
    let mut target = link.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(next) = std::fs::read_link(&target) else { break };
        target = cleaned(&target.parent().unwrap_or(Path::new("/")).join(next));
    }
    let missing = target.ancestors().filter(|part| part.symlink_metadata().is_err()).last();
    missing.unwrap_or(&target).to_owned()
}

/// Loads a chart from a folder or an archive.
///
/// # Errors
/// The error text of Helm.
pub(super) fn load(path: &Path, warnings: &mut Vec<HelmWarning>) -> Result<Chart, String> {
    let place = path.to_string_lossy();
    let loaded = if path.is_dir() {
        from::folder(&place, in_folder(path, warnings)?)
    } else {
        let bytes = std::fs::read(path).map_err(|error| go_error("open", &place, &error))?;
        from::archive_file(&place, &bytes)
    };
    let loaded = loaded.map_err(|error: ChartLoadError| error.to_string())?;
    warnings
        .extend(loaded.warnings.into_iter().map(|text| HelmWarning::new(WarningLevel::Info, text)));
    Ok(loaded.chart)
}

/// Reads all files of a chart's folder.
///
/// # Errors
/// The error text of Helm.
pub(super) fn all(path: &Path) -> Result<Vec<ChartFile>, String> {
    in_folder(path, &mut Vec::new())
}

fn in_folder(path: &Path, warnings: &mut Vec<HelmWarning>) -> Result<Vec<ChartFile>, String> {
    let mut walk = ChartFolderWalk::new(path, warnings)?;
    let walked = walk.folder(path, 0);
    // A file that cannot be read is reported before the error that ended the walk.
    let files = read_all(&walk.places)?;
    walked?;
    Ok(files)
}

/// A file of a chart that has to be read.
struct ChartFileEntry {
    path: PathBuf,
    /// The path of the file in the chart.
    name: String,
    length: u64,
}

/// Walks through the folder of a chart, and sorts each folder by name.
struct ChartFolderWalk<'w> {
    top: PathBuf,
    rules: HelmIgnoreRules,
    places: Vec<ChartFileEntry>,
    bytes: u64,
    warnings: &'w mut Vec<HelmWarning>,
}

impl<'w> ChartFolderWalk<'w> {
    fn new(top: &Path, warnings: &'w mut Vec<HelmWarning>) -> Result<Self, String> {
        let rules = std::fs::read(top.join(from::IGNORE_FILE)).unwrap_or_default();
        let rules = HelmIgnoreRules::parse(&String::from_utf8_lossy(&rules));
        let rules = rules.map_err(|error| error.to_string())?;
        Ok(Self { top: top.to_owned(), rules, places: Vec::new(), bytes: 0, warnings })
    }

    fn folder(&mut self, folder: &Path, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("directories of the chart are nested deeper than {MAX_DEPTH}"));
        }
        let shown = folder.to_string_lossy();
        let entries = std::fs::read_dir(folder)
            .and_then(Iterator::collect::<io::Result<Vec<_>>>)
            .map_err(|error| go_error("open", &shown, &error))?;
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            self.entry(&folder.join(name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, depth: usize) -> Result<(), String> {
        let shown = path.to_string_lossy();
        let known = std::fs::symlink_metadata(path);
        let mut known = known.map_err(|error| go_error("lstat", &shown, &error))?;
        if known.is_symlink() {
            let resolved = std::fs::canonicalize(path).map_err(|error| {
                let missing = missing(path);
                let error = go_error("lstat", &missing.to_string_lossy(), &error);
                format!("error evaluating symlink {shown}: {error}")
            })?;
            let text = "found symbolic link in path. Contents of linked file included and used";
            let warning = HelmWarning::new(WarningLevel::Info, text).with("path", &*shown);
            self.warnings.push(warning.with("resolved", resolved.to_string_lossy()));
            known = std::fs::metadata(path).map_err(|error| go_error("lstat", &shown, &error))?;
        }
        let relative = path.strip_prefix(&self.top).unwrap_or(path);
        let name = relative.to_string_lossy().into_owned();
        // Errors about the chart need these two files.
        let is_needed = name == "Chart.yaml" || name == from::IGNORE_FILE;
        if self.rules.is_ignored(&name, known.is_dir()) && !is_needed {
            return Ok(());
        }
        if known.is_dir() {
            return self.folder(path, depth + 1);
        }
        if !known.is_file() {
            let problem = "it has file mode type bits set";
            return Err(format!("cannot load irregular file {shown} as {problem}"));
        }
        if known.len() > MAX_FILE_SIZE {
            let base = path.file_name().unwrap_or_default().to_string_lossy();
            return Err(ChartLoadError::FileTooLarge(format!("{base:?}")).to_string());
        }
        self.bytes += known.len();
        if self.bytes > MAX_UNPACKED || self.places.len() >= MAX_ENTRIES {
            return Err(format!(
                "the chart has more than {MAX_ENTRIES} files or is larger than {MAX_UNPACKED} bytes"
            ));
        }
        self.places.push(ChartFileEntry { path: path.to_owned(), name, length: known.len() });
        Ok(())
    }
}

/// With fewer files, a second thread costs more than it saves.
const MIN_PARALLEL_FILES: usize = 32;

/// Reads files and keeps their order. Many files are read on two threads, because the work is in the kernel.
fn read_all(places: &[ChartFileEntry]) -> Result<Vec<ChartFile>, String> {
    let read =
        |places: &[ChartFileEntry]| places.iter().map(read_one).collect::<Result<Vec<_>, _>>();
    if places.len() < MIN_PARALLEL_FILES {
        return read(places);
    }
    let (first, second) = places.split_at(places.len() / 2);
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new();
        let others = builder.spawn_scoped(scope, || read(second));
        let mut files = read(first)?;
        let others = match others {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No further thread can be started.
            Err(_) => read(second),
        };
        files.append(&mut others?);
        Ok(files)
    })
}

fn read_one(ChartFileEntry { path, name, length }: &ChartFileEntry) -> Result<ChartFile, String> {
    let data = contents(path, *length).map_err(|error| {
        let error = go_error("open", &path.to_string_lossy(), &error);
        format!("error reading {name}: {error}")
    })?;
    Ok(ChartFile { name: name.clone(), data })
}

/// Reads a file whose length was read before. If the length is still right, the bytes are not copied.
fn contents(path: &Path, length: u64) -> io::Result<Arc<[u8]>> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut data: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
    let mut file = std::fs::File::open(path)?;
    if let Some(room) = Arc::get_mut(&mut data)
        && file.read_exact(room).is_ok()
        && matches!(file.read(&mut [0]), Ok(0))
    {
        return Ok(data);
    }
    std::fs::read(path).map(Into::into)
}

/// The namespace of the release: from the flag, from `HELM_NAMESPACE`, or from the kubeconfig context.
pub(super) fn namespace(flags: &HelmTemplateFlags) -> String {
    let given = flags.namespace.clone().filter(|name| !name.is_empty());
    let of_helm = || std::env::var("HELM_NAMESPACE").ok().filter(|name| !name.is_empty());
    let found = given.or_else(of_helm).or_else(|| namespace_of_context(flags));
    found.unwrap_or_else(|| "default".to_owned())
}

/// The namespace of the selected context in the kubeconfig. `None` if no kubeconfig with that context can be read, or if the
/// context has no namespace.
fn namespace_of_context(flags: &HelmTemplateFlags) -> Option<String> {
    let given = flags.kubeconfig.as_ref().filter(|path| !path.is_empty());
    let paths = std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
    let paths = match (given, paths) {
        (Some(path), _) => vec![PathBuf::from(path)],
        (None, Some(paths)) => std::env::split_paths(&paths).collect(),
        (None, None) => vec![Path::new(&std::env::var_os("HOME")?).join(".kube/config")],
    };
    let configs: Vec<serde_json::Value> = paths
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .filter_map(|text| goyaml::to_json(&text).ok())
        .collect();
    let of_helm = || std::env::var("HELM_KUBECONTEXT").ok();
    let given = flags.kube_context.clone().or_else(of_helm).filter(|name| !name.is_empty());
    let current = given.or_else(|| {
        let named = configs.iter().filter_map(|config| config["current-context"].as_str());
        named.map(str::to_owned).find(|name| !name.is_empty())
    })?;
    let contexts = configs.iter().filter_map(|config| config["contexts"].as_array()).flatten();
    let context = contexts.into_iter().find(|context| context["name"] == *current)?;
    let namespace = context["context"]["namespace"].as_str()?;
    (!namespace.is_empty()).then(|| namespace.to_owned())
}

/// The time zone of `/etc/localtime`. UTC if the file does not exist.
pub(super) fn zone_of_the_machine() -> GoTimeZone {
    let link = std::fs::read_link("/etc/localtime").unwrap_or_default();
    let name = link.to_string_lossy();
    let name = name.split_once("zoneinfo/").map_or("UTC", |(_, name)| name);
    GoTimeZone::load(name).unwrap_or_else(|_| GoTimeZone::fixed("UTC", 0))
}

/// Resolves host names as this machine does.
#[derive(Debug)]
pub(super) struct HostNameResolver;

impl HostNameLookup for HostNameResolver {
    fn address_of(&self, host: &str) -> Result<String, String> {
        let found = (host, 0).to_socket_addrs().map_err(|error| error.to_string())?;
        let address = found.into_iter().next().map(|address| address.ip().to_string());
        address.ok_or_else(|| format!("lookup {host}: no such host"))
    }
}
