//! The index of a chart repository: the versions of its charts, and their URLs.
//!
//! It keeps only the fields for choosing and fetching a chart, in one text for all versions. Descriptions, icons and
//! dependencies are most of an index, and are skipped while it is parsed.
//! Here: reading YAML and JSON, choosing a version. Elsewhere: fetching it ([`super::repository`]), ranges
//! ([`golang::highest_version_selection`]).

mod json;

use std::collections::BTreeMap;
use std::ops::Range as Span;

use golang::highest_version_selection::VersionRange;
use golang::semver::{SemverVersion as Semver, VersionConstraintError};
use goyaml::{DecodeTarget, IncrementalYamlReader, YamlLimits};
use serde::Deserialize;

/// Most versions in one index.
pub const MAX_VERSIONS: usize = 500_000;

/// The most nodes of one version.
const MAX_NODES: usize = 100_000;

/// The versions of charts that an index lists, at a fraction of its length.
#[derive(Debug, Default)]
pub struct ChartIndex {
    text: String,
    charts: BTreeMap<String, Span<u32>>,
    versions: Vec<ChartIndexEntry>,
}

/// Places in the text of an index.
#[derive(Debug, Clone)]
struct ChartIndexEntry {
    name: Span<u32>,
    version: Span<u32>,
    url: Span<u32>,
    digest: Span<u32>,
    /// Milliseconds since 1970.
    created: i64,
}

/// One version of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChartVersion<'i> {
    /// The name of the chart.
    pub name: &'i str,
    /// The version as the index has it, which semver can parse.
    pub version: &'i str,
    /// The first URL of the archive, absolute or relative to the repository. `None` if the index has none.
    pub url: Option<&'i str>,
    /// The SHA-256 of the archive in hexadecimal digits. `None` if the index has none, or one of another form.
    pub digest: Option<&'i str>,
}

/// The reason why an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The index is empty.
    #[error("the index is empty")]
    Empty,
    /// The index has no `apiVersion`.
    #[error("the index has no `apiVersion`; it is not the index of a chart repository")]
    NoApiVersion,
    /// The index is not YAML.
    #[error("the index cannot be read: {0}")]
    Yaml(#[from] goyaml::Error),
    /// The index is JSON of another shape.
    #[error("the index cannot be read: {0}")]
    Shape(#[from] serde_json::Error),
    /// A chart is listed twice.
    #[error("the index lists the chart `{0}` twice")]
    Twice(String),
    /// The index lists more than [`MAX_VERSIONS`].
    #[error("the index lists more than {MAX_VERSIONS} versions")]
    TooMany,
}

/// The reason why no version is chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoChartVersionError {
    /// The chart is not listed.
    #[error("chart `{0}` not found in the repository")]
    NoChart(String),
    /// The chart is in the index, but has no usable version.
    #[error("no version of chart `{0}` found in the repository")]
    NoVersions(String),
    /// None of its versions is in the range.
    #[error("no '{chart}' chart with version matching '{range}' found")]
    NoMatch {
        /// The chart.
        chart: String,
        /// The requested version or range.
        range: String,
    },
    /// The requested text is not a range.
    #[error("'{range}' is neither a version of the chart nor a version range: {problem}")]
    BadRange {
        /// The requested text.
        range: String,
        /// Why.
        problem: VersionConstraintError,
    },
}

/// The fields of a version that are parsed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawChartVersion {
    name: Option<String>,
    version: Option<String>,
    urls: Option<Vec<Option<String>>>,
    digest: Option<String>,
    created: Option<serde_json::Value>,
}

const VERSION: DecodeTarget = DecodeTarget::Struct(&[
    ("name", DecodeTarget::Text),
    ("version", DecodeTarget::Text),
    ("urls", DecodeTarget::List(&DecodeTarget::Text)),
    ("digest", DecodeTarget::Text),
]);

impl ChartIndex {
    /// Parses an index. It is JSON if it begins like JSON and is valid JSON, otherwise YAML.
    ///
    /// Versions that Helm would refuse (without a name or with an invalid version) are left out, as Flux does.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Empty);
        }
        let is_json = text.trim_ascii_start().first() == Some(&b'{');
        let (index, api_version) = match is_json.then(|| json::read(text)) {
            Some(Err(Error::Shape(error))) if !error.is_data() => yaml(text)?,
            Some(read) => read?,
            None => yaml(text)?,
        };
        if api_version.is_none_or(|version| version.is_empty()) {
            return Err(Error::NoApiVersion);
        }
        Ok(index.finished())
    }

    /// The number of bytes of memory that the index holds, about.
    pub fn size(&self) -> u64 {
        let names: usize = self.charts.keys().map(|name| name.len() + 64).sum();
        (self.text.capacity() + self.versions.capacity() * size_of::<ChartIndexEntry>() + names)
            as u64
    }

    /// The number of versions that the index lists.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether the index lists no versions.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Chooses the version with exactly the text of `range`, or else the highest version in that range. If several differ only
    /// by build metadata, the youngest is chosen. No range, or `*`, stands for any release.
    ///
    /// # Errors
    /// [`NoChartVersionError`].
    pub fn choose(
        &self,
        chart: &str,
        range: &str,
    ) -> Result<ChartVersion<'_>, NoChartVersionError> {
        let owned = chart.to_owned();
        let Some(span) = self.charts.get(chart) else {
            return Err(NoChartVersionError::NoChart(owned));
        };
        let entries = &self.versions[span.start as usize..span.end as usize];
        if entries.is_empty() {
            return Err(NoChartVersionError::NoVersions(owned));
        }
        let exact = entries.iter().find(|entry| self.at(&entry.version) == range);
        if let Some(exact) = exact {
            return Ok(self.version(exact));
        }
        let parsed =
            VersionRange::parse(if range.is_empty() { "*" } else { range }).map_err(|problem| {
                NoChartVersionError::BadRange { range: range.to_owned(), problem }
            })?;
        let highest = parsed.highest(entries.iter().map(|entry| self.at(&entry.version)));
        let best = entries
            .iter()
            .filter(|entry| highest.contains(&self.at(&entry.version)))
            // Of equal versions, the first one in the index is chosen.
            .min_by_key(|entry| std::cmp::Reverse(entry.created));
        best.map(|entry| self.version(entry))
            .ok_or_else(|| NoChartVersionError::NoMatch { chart: owned, range: range.to_owned() })
    }

    fn at(&self, span: &Span<u32>) -> &str {
        &self.text[span.start as usize..span.end as usize]
    }

    fn version(&self, entry: &ChartIndexEntry) -> ChartVersion<'_> {
        let given = |span| Some(self.at(span)).filter(|text| !text.is_empty());
        ChartVersion {
            name: self.at(&entry.name),
            version: self.at(&entry.version),
            url: given(&entry.url),
            digest: given(&entry.digest),
        }
    }

    /// Begins a chart. Versions that are added afterwards belong to it.
    fn begin(&mut self, chart: String) -> Result<(), Error> {
        let at = self.versions.len().try_into().map_err(|_| Error::TooMany)?;
        match self.charts.insert(chart.clone(), at..at) {
            Some(_) => Err(Error::Twice(chart)),
            None => Ok(()),
        }
    }

    /// Adds a version to the chart, unless it is not valid.
    fn add(&mut self, chart: &str, raw: RawChartVersion) -> Result<(), Error> {
        let RawChartVersion { name, version, urls, digest, created } = raw;
        let name = name.unwrap_or_default();
        let version = version.unwrap_or_default();
        let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
        if !is_name || Semver::parse(&version).is_err() {
            return Ok(());
        }
        if self.versions.len() >= MAX_VERSIONS {
            return Err(Error::TooMany);
        }
        let url = urls.unwrap_or_default().into_iter().next().flatten().unwrap_or_default();
        let digest = digest.unwrap_or_default();
        let digest = digest.strip_prefix("sha256:").unwrap_or(&digest);
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let created = created.as_ref().and_then(serde_json::Value::as_str);
        let created = created.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let entry = ChartIndexEntry {
            name: self.put(&name)?,
            version: self.put(&version)?,
            url: self.put(&url)?,
            digest: self.put(if is_digest { digest } else { "" })?,
            created: created.map_or(i64::MIN, jiff::Timestamp::as_millisecond),
        };
        self.versions.push(entry);
        let end = self.versions.len().try_into().map_err(|_| Error::TooMany)?;
        if let Some(span) = self.charts.get_mut(chart) {
            span.end = end;
        }
        Ok(())
    }

    fn put(&mut self, text: &str) -> Result<Span<u32>, Error> {
        // Most versions of a chart have the same name, so the name of the previous version is reused.
        let before = self.versions.last().map(|entry| entry.name.clone());
        if let Some(name) = before.filter(|name| !text.is_empty() && self.at(name) == text) {
            return Ok(name);
        }
        let start = self.text.len().try_into().map_err(|_| Error::TooMany)?;
        self.text.push_str(text);
        let end = self.text.len().try_into().map_err(|_| Error::TooMany)?;
        Ok(start..end)
    }

    fn finished(mut self) -> Self {
        self.text.shrink_to_fit();
        self.versions.shrink_to_fit();
        self
    }
}

fn yaml(text: &[u8]) -> Result<(ChartIndex, Option<String>), Error> {
    let limits = YamlLimits { nodes: MAX_NODES, ..YamlLimits::default() };
    let mut index = ChartIndex::default();
    let mut api_version = None;
    let Some(mut walk) = IncrementalYamlReader::new(text, limits)? else {
        return Err(Error::Empty);
    };
    if !walk.map()? {
        return Ok((index, api_version));
    }
    while let Some(key) = walk.key()? {
        match key.as_str() {
            "apiVersion" => {
                let value = walk.value(&DecodeTarget::Text)?;
                api_version = value.as_str().map(str::to_owned);
            }
            "entries" if walk.map()? => {
                while let Some(chart) = walk.key()? {
                    index.begin(chart.clone())?;
                    if !walk.list()? {
                        continue;
                    }
                    while walk.item()? {
                        let value = walk.value(&VERSION)?;
                        let raw: Option<RawChartVersion> = serde_json::from_value(value)?;
                        index.add(&chart, raw.unwrap_or_default())?;
                    }
                }
            }
            "entries" => {}
            _ => walk.skip()?,
        }
    }
    Ok((index, api_version))
}

#[cfg(test)]
mod tests;
