//! The project's own corpora: charts (`e2e/charts`) and overlays (`e2e/overlays`), each with commands, and what the
//! real program answered to them.
//!
//! A folder is a case:
//!
//! ```text
//! case.yaml       what it is about, and its runs: arguments after `template` or `build`
//! recorded/       answers.json: who answered, exit status of each run; <run>.stdout and <run>.stderr unless empty
//! others          what the arguments name, such as chart/, base/, overlay/
//! ```
//!
//! Every run has a copy of the folder to itself, so that nothing is written to the checkout.
//!
//! Here: reading cases and laying them out. Elsewhere: running a program (`answer`), what was recorded (`record`),
//! charts and overlays too large to be files (`generate`), comparing (`crate::compare`).

mod answer;
pub mod engine;
mod generate;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;
use testbed::oracle::OracleProgram;

use testbed::root;

pub use answer::{ProgramOutput, ask, prepare};
pub use record::{RecordedAnswer, RecordedText, read_recorded, write_recorded};

/// Which cases, and so which command and whose answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorpusKind {
    /// Charts: `windlass template` beside Helm.
    Charts,
    /// Overlays: `windlass build` beside Kustomize.
    Overlays,
}

impl CorpusKind {
    /// What its cases are called.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Charts => "charts",
            Self::Overlays => "overlays",
        }
    }

    /// The command of both programs.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Charts => "template",
            Self::Overlays => "build",
        }
    }

    /// Whose answers are right.
    pub const fn oracle(self) -> OracleProgram {
        match self {
            Self::Charts => OracleProgram::Helm,
            Self::Overlays => OracleProgram::Kustomize,
        }
    }

    /// Where the cases are.
    pub fn home(self) -> PathBuf {
        root().join("e2e").join(self.noun())
    }
}

/// A chart or an overlay of ours and what is asked about it.
#[derive(Debug)]
pub struct CorpusCase {
    /// What it is one of.
    pub corpus: CorpusKind,
    /// Name of its folder.
    pub name: String,
    folder: PathBuf,
    description: CaseDescription,
}

/// What `case.yaml` says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDescription {
    /// One sentence about the case, for its readers.
    about: String,
    /// Name of a run and its arguments after the command.
    runs: BTreeMap<String, Vec<String>>,
    /// Archives to make before a run: name, and the folder that goes into it.
    #[serde(default)]
    pack: BTreeMap<String, String>,
    /// Symbolic links to make before a run: path, and what it points at.
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// Runs whose errors windlass words in its own way, and why: standard error is not compared.
    #[serde(default)]
    worded_otherwise: BTreeMap<String, String>,
    /// The chart or overlay is made instead of read.
    generate: Option<generate::GeneratedSize>,
}

impl CorpusCase {
    /// All cases, or those with certain names.
    ///
    /// # Errors
    /// Names the case that is not there or cannot be read.
    pub fn load(corpus: CorpusKind, names: &[String]) -> anyhow::Result<Vec<Self>> {
        let home = corpus.home();
        let cannot_list = || format!("cannot list {}", home.display());
        let mut found = names.to_vec();
        if names.is_empty() {
            let entries = std::fs::read_dir(&home).with_context(cannot_list)?;
            for entry in entries {
                let entry = entry.with_context(cannot_list)?;
                if entry.path().is_dir() {
                    found.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
            found.sort();
            ensure!(!found.is_empty(), "there are no {} in {}", corpus.noun(), home.display());
        }
        found.iter().map(|name| Self::read(corpus, &home, name)).collect()
    }

    fn read(corpus: CorpusKind, home: &Path, name: &str) -> anyhow::Result<Self> {
        let folder = home.join(name);
        let path = folder.join("case.yaml");
        let text =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let value = goyaml::to_json(&text).map_err(|e| anyhow::anyhow!("{name}/case.yaml: {e}"))?;
        let description: CaseDescription =
            serde_json::from_value(value).with_context(|| format!("{name}/case.yaml"))?;
        let is_name = |it: &str| it.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if let Some(bad) = description.runs.keys().find(|run| !is_name(run) || run.is_empty()) {
            bail!(
                "{name}/case.yaml: a run may be called by letters, digits and dashes, not `{bad}`"
            );
        }
        ensure!(!description.runs.is_empty(), "{name}/case.yaml has no runs");
        if let Some(run) =
            description.worded_otherwise.keys().find(|run| !description.runs.contains_key(*run))
        {
            bail!("{name}/case.yaml: `{run}` is worded otherwise, but no run");
        }
        ensure!(
            !description.about.trim().is_empty(),
            "{name}/case.yaml does not say what it is about"
        );
        Ok(Self { corpus, name: name.to_owned(), folder, description })
    }

    /// Its runs: names and arguments after the command.
    pub fn runs(&self) -> &BTreeMap<String, Vec<String>> {
        &self.description.runs
    }

    /// Whether windlass has to say the same on standard error.
    pub fn is_same_wording(&self, run: &str) -> bool {
        !self.description.worded_otherwise.contains_key(run)
    }

    /// How many runs have errors that windlass words in its own way.
    pub fn worded_otherwise(&self) -> usize {
        self.description.worded_otherwise.len()
    }

    /// Lays out a copy of everything that its runs need.
    ///
    /// # Errors
    /// What cannot be read or written.
    pub fn lay_out(&self) -> anyhow::Result<TempDir> {
        let copy = TempDir::with_prefix("windlass-case-").context("cannot make a folder")?;
        for (path, content) in self.files()? {
            write(&copy.path().join(path), &content)?;
        }
        for (archive, folder) in &self.description.pack {
            let bytes = pack(&copy.path().join(folder))?;
            write(&copy.path().join(archive), &bytes)?;
        }
        for (link, target) in &self.description.links {
            link_to(&copy.path().join(link), target)?;
        }
        Ok(copy)
    }

    /// Its files by path, without description, answers, archives and links.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn files(&self) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        let mut files = read_folder(&self.folder)?;
        files.retain(|path, _| path != "case.yaml" && !path.starts_with("recorded/"));
        if let Some(size) = self.description.generate {
            files.extend(generate::files(size));
        }
        Ok(files)
    }

    /// Whether it is made, and so a large one.
    pub fn is_generated(&self) -> bool {
        self.description.generate.is_some()
    }

    fn recorded(&self) -> PathBuf {
        self.folder.join("recorded")
    }
}

/// A chart of the size that the promises are about, as files below `chart/`.
pub fn large_chart() -> BTreeMap<String, Vec<u8>> {
    generate::files(generate::GeneratedSize::Chart { templates: 200, objects: 3 })
}

/// An overlay of many objects, as files below `overlay/` and `base/`.
pub fn overlay(objects: u16, is_plain: bool) -> BTreeMap<String, Vec<u8>> {
    generate::files(generate::GeneratedSize::Overlay { objects, plain: is_plain })
}

/// The files below a folder by their paths, with slashes. Symbolic links are left out.
pub fn read_folder(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(below) = waiting.pop() {
        let place = folder.join(&below);
        let entries = std::fs::read_dir(&place);
        let entries = entries.with_context(|| format!("cannot list {}", place.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", place.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            let place = entry.path();
            if place.is_symlink() {
                continue;
            }
            if place.is_dir() {
                waiting.push(path);
            } else {
                let content = std::fs::read(&place);
                let content =
                    content.with_context(|| format!("cannot read {}", place.display()))?;
                files.insert(path, content);
            }
        }
    }
    Ok(files)
}

/// Writes a file and the folders above it.
pub fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)
            .with_context(|| format!("cannot create {}", above.display()))?;
    }
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Makes a symbolic link and the folders above it.
fn link_to(link: &Path, target: &str) -> anyhow::Result<()> {
    if let Some(above) = link.parent() {
        std::fs::create_dir_all(above)
            .with_context(|| format!("cannot create {}", above.display()))?;
    }
    std::os::unix::fs::symlink(target, link)
        .with_context(|| format!("cannot link {}", link.display()))
}

/// A chart's archive, the same bytes for the same files.
fn pack(folder: &Path) -> anyhow::Result<Vec<u8>> {
    let top = folder.file_name().context("an archive needs a folder with a name")?;
    let zip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut archive = tar::Builder::new(zip);
    for (path, content) in read_folder(folder)? {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, Path::new(top).join(path), &*content)?;
    }
    Ok(archive.into_inner()?.finish()?)
}
