//! The files of a chart. They are read from a tree or an archive, changed if a source asks for it, and packed.
//!
//! Here: the version, values and dependencies of a chart that is packed. Elsewhere: the meaning of the files (`helm`), finding
//! dependencies ([`super::dependency`]), merging values files ([`super::values_merge`]).

use std::io::Write;

use artifacts::archive::{self, TarballWriter};
use golang::semver::SemverVersion;
use helm::chart::load::{self, ChartLoadError};
use helm::chart::{Chart, ChartDependency, ChartFile, MAX_ENTRIES, MAX_UNPACKED};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

const CHART_YAML: &str = "Chart.yaml";
const VALUES: &str = "values.yaml";

/// The files of a chart, and their parsed content.
#[derive(Debug, Clone)]
pub struct LoadedChartFiles {
    files: Vec<ChartFile>,
    chart: Chart,
}

/// The reason why files are not a chart, or cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No chart exists at the path.
    #[error("no chart found at path '{0}'")]
    NotFound(String),
    /// The message is Helm's.
    #[error(transparent)]
    Load(#[from] ChartLoadError),
    /// The chart is too large.
    #[error("the chart has more than {MAX_ENTRIES} files, or is larger than {MAX_UNPACKED} bytes")]
    TooLarge,
    /// A version that cannot carry metadata.
    #[error("the chart's version '{version}' cannot be given the metadata '{metadata}': {why}")]
    Metadata {
        /// The version.
        version: String,
        /// The metadata for the part behind the `+`.
        metadata: String,
        /// The reason why it is not valid.
        why: String,
    },
    /// `Chart.yaml` cannot be written again.
    #[error("Chart.yaml cannot be written with another version: {0}")]
    ChartYaml(String),
    /// A name of a file that cannot be in an archive.
    #[error("the chart's file {name:?} cannot be archived: {why}")]
    Name {
        /// The name of the file.
        name: String,
        /// Why.
        why: String,
    },
    /// The archive cannot be written.
    #[error(transparent)]
    Archive(#[from] archive::Error),
}

/// Sets the metadata behind the `+` of a version, and replaces former metadata.
///
/// # Errors
/// [`Error::Metadata`].
pub fn with_metadata(version: &str, metadata: &str) -> Result<String, Error> {
    let refused = |why: String| Error::Metadata {
        version: version.to_owned(),
        metadata: metadata.to_owned(),
        why,
    };
    let parsed = SemverVersion::parse(version).map_err(|error| refused(error.to_string()))?;
    let normal = parsed.to_string();
    let bare = normal.split('+').next().unwrap_or_default();
    let with = format!("{bare}+{metadata}");
    SemverVersion::parse(&with).map_err(|error| refused(error.to_string()))?;
    Ok(with)
}

impl LoadedChartFiles {
    /// Reads the chart in a folder of a tree, without the files that its `.helmignore` leaves out. The path may also name an
    /// archive.
    ///
    /// # Errors
    /// [`Error`].
    pub fn in_tree(tree: &MemoryTree, path: &RelPath) -> Result<Self, Error> {
        let unread = |_| Error::NotFound(path.to_string());
        match tree.entry(path) {
            None => Err(Error::NotFound(path.to_string())),
            Some(FileMetadata::File { .. }) => Self::in_archive(&tree.read(path).map_err(unread)?),
            Some(FileMetadata::Dir) => {
                let mut files = Vec::new();
                let mut bytes = 0;
                for (inside, entry) in tree.walk() {
                    let (Some(name), FileMetadata::File { len, .. }) =
                        (inside.strip_prefix(path), entry)
                    else {
                        continue;
                    };
                    bytes += len;
                    if bytes > MAX_UNPACKED || files.len() >= MAX_ENTRIES {
                        return Err(Error::TooLarge);
                    }
                    let data = tree.read(inside).map_err(unread)?;
                    files.push(ChartFile { name: name.to_string(), data });
                }
                let loaded = load::folder(&format!("/{path}"), files.clone())?;
                Ok(Self { files: load::kept(files)?, chart: loaded.chart })
            }
        }
    }

    /// The chart in an archive.
    ///
    /// # Errors
    /// [`Error`].
    pub fn in_archive(bytes: &[u8]) -> Result<Self, Error> {
        let files = load::archive_entries(bytes)?;
        Self::of(files)
    }

    fn of(files: Vec<ChartFile>) -> Result<Self, Error> {
        let chart = load::entries(files.clone())?.chart;
        Ok(Self { files, chart })
    }

    /// The chart with its parsed content.
    pub fn chart(&self) -> &Chart {
        &self.chart
    }

    /// The bytes of a file. `None` if the chart has no such file.
    pub fn read(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|file| file.name == name).map(|file| &*file.data)
    }

    /// The dependencies that are listed and not there: those of `Chart.lock`, if it is there, else of `Chart.yaml`.
    ///
    /// Differs(flux): a chart stays under its own name where it is listed with an alias, as after
    /// `helm dependency build`, and is packed once however many aliases it has.
    pub fn missing(&self) -> Vec<ChartDependency> {
        let listed = self.chart.metadata.dependencies.iter().flatten();
        let locked = self.chart.lock.as_ref().map(|lock| lock.dependencies.iter());
        let wanted: Vec<&ChartDependency> =
            locked.map_or_else(|| listed.collect(), Iterator::collect);
        let mut missing: Vec<ChartDependency> = Vec::new();
        for dependency in &wanted {
            let namesakes = wanted.iter().filter(|other| other.name == dependency.name).count();
            let is_there = self.chart.charts.iter().any(|chart| {
                let name = &chart.metadata.name;
                let is_alias = !dependency.alias.is_empty() && *name == dependency.alias;
                let is_named = *name == dependency.name && namesakes == 1;
                is_alias || is_named || dependency.is_met_by(chart)
            });
            let is_known = missing.iter().any(|known| {
                known.name == dependency.name
                    && known.version == dependency.version
                    && known.repository == dependency.repository
            });
            if !is_there && !is_known {
                missing.push((*dependency).clone());
            }
        }
        missing
    }

    /// Adds another chart to the folder `charts/` of this chart.
    ///
    /// # Errors
    /// The charts together are too large.
    pub fn add(&mut self, other: Self) -> Result<(), Error> {
        let metadata = &other.chart.metadata;
        let is_taken = |folder: &str| self.files.iter().any(|file| file.name.starts_with(folder));
        let mut folder = format!("charts/{}/", metadata.name);
        if is_taken(&folder) {
            // Two versions of one chart, which their aliases distinguish.
            folder = format!("charts/{}-{}/", metadata.name, metadata.version);
        }
        let added = other
            .files
            .into_iter()
            .map(|file| ChartFile { name: format!("{folder}{}", file.name), data: file.data });
        self.files.extend(added);
        let bytes: usize = self.files.iter().map(|file| file.data.len()).sum();
        if self.files.len() > MAX_ENTRIES || bytes as u64 > MAX_UNPACKED {
            return Err(Error::TooLarge);
        }
        self.chart.charts.push(other.chart);
        Ok(())
    }

    /// Sets the version of the chart. Comments in `Chart.yaml` are lost, as with Helm.
    ///
    /// # Errors
    /// [`Error::ChartYaml`].
    pub fn set_version(&mut self, version: &str) -> Result<(), Error> {
        if self.chart.metadata.version == version {
            return Ok(());
        }
        let failed = |why: String| Error::ChartYaml(why);
        let file = self.files.iter_mut().find(|file| file.name == CHART_YAML);
        let file = file.ok_or_else(|| failed("it does not exist".to_owned()))?;
        let mut json = goyaml::to_json(&file.data).map_err(|error| failed(error.to_string()))?;
        let Some(table) = json.as_object_mut() else {
            return Err(failed("it is not a map".to_owned()));
        };
        // Go matches keys with fields regardless of case, and uses the last of several in the order of bytes.
        table.retain(|key, _| !goyaml::is_field(key, "version"));
        table.insert("version".to_owned(), version.into());
        let text = goyaml::emit(&json).map_err(|error| failed(error.to_string()))?;
        file.data = text.into_bytes().into();
        version.clone_into(&mut self.chart.metadata.version);
        Ok(())
    }

    /// Gives the chart other default values.
    ///
    /// Parity(flux): a chart without `values.yaml` is given none.
    ///
    /// # Errors
    /// [`super::values_merge::Error::NoDefaults`].
    pub fn set_values(&mut self, text: String) -> Result<(), super::values_merge::Error> {
        let file = self.files.iter_mut().find(|file| file.name == VALUES);
        let file = file.ok_or(super::values_merge::Error::NoDefaults)?;
        file.data = text.into_bytes().into();
        Ok(())
    }

    /// Writes the archive. The same files in any order give the same bytes.
    ///
    /// # Errors
    /// A name cannot be in an archive, or `out` refuses a write.
    pub fn write(&self, out: impl Write) -> Result<(), Error> {
        let root = RelPath::parse(&self.chart.metadata.name);
        let refused = |name: &str, why: String| Error::Name { name: name.to_owned(), why };
        let root = root.map_err(|error| refused(&self.chart.metadata.name, error.to_string()))?;
        let mut files = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let path = root.join(&file.name);
            files.push((path.map_err(|error| refused(&file.name, error.to_string()))?, &file.data));
        }
        files.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut writer = TarballWriter::new(out);
        for (path, data) in files {
            writer.file(&path, false, data.len() as u64, &mut &**data)?;
        }
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
