//! The project's own charts (`e2e/charts`) and overlays (`e2e/overlays`). Each has commands, and the original
//! program's answers to them.
//!
//! Each folder is a case:
//!
//! ```text
//! case.yaml       what it is about, and its runs: arguments after `template` or `build`
//! recorded/       answers.json: who answered, exit status of each run; <run>.stdout and <run>.stderr unless empty
//! others          what the arguments name, such as chart/, base/, overlay/
//! ```
//!
//! Every run has its own copy of the folder, so that nothing is written to the checkout.
//!
//! This module reads cases and copies their files. `answer` runs programs, `record` reads recorded answers,
//! `generate` makes large cases, and `crate::compare` compares.

mod answer;
mod generate;
pub mod helm_engine;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;
use testbed::upstream_programs::UpstreamProgram;

use testbed::root;

pub use answer::{ProgramOutput, ask, prepare};
pub use record::{RecordedAnswer, RecordedText, read_recorded, write_recorded};

/// The sort of a case, which decides the command and the original program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorpusKind {
    /// Charts, with `windlass template` and Helm.
    Charts,
    /// Overlays, with `windlass build` and Kustomize.
    Overlays,
}

impl CorpusKind {
    /// The word for a case of this sort.
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

    /// The program whose answers are right.
    pub const fn oracle(self) -> UpstreamProgram {
        match self {
            Self::Charts => UpstreamProgram::Helm,
            Self::Overlays => UpstreamProgram::Kustomize,
        }
    }

    /// The folder with the cases.
    pub fn home(self) -> PathBuf {
        root().join("e2e").join(self.noun())
    }
}

/// One of the project's charts or overlays, with the commands to run.
#[derive(Debug)]
pub struct CorpusCase {
    /// The sort of the case.
    pub corpus: CorpusKind,
    /// The name of the case's folder.
    pub name: String,
    folder: PathBuf,
    description: CaseDescription,
}

/// The content of `case.yaml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseDescription {
    /// One sentence about the case, for its readers.
    about: String,
    /// The name of each run, and its arguments after the command.
    runs: BTreeMap<String, Vec<String>>,
    /// Archives to make before a run: the name, and the folder to pack.
    #[serde(default)]
    pack: BTreeMap<String, String>,
    /// Symbolic links to make before a run: the path and the target.
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// Runs whose errors windlass words in its own way, and the reason. Their standard error is not compared.
    #[serde(default)]
    worded_otherwise: BTreeMap<String, String>,
    /// The size of a generated chart or overlay. Generated cases have no files of their own.
    generate: Option<generate::GeneratedSize>,
}

impl CorpusCase {
    /// All cases, or those with certain names.
    ///
    /// # Errors
    /// A case does not exist, or cannot be read.
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

    /// The runs of the case: names, and arguments after the command.
    pub fn runs(&self) -> &BTreeMap<String, Vec<String>> {
        &self.description.runs
    }

    /// Whether windlass has to print the same text on standard error.
    pub fn is_same_wording(&self, run: &str) -> bool {
        !self.description.worded_otherwise.contains_key(run)
    }

    /// How many runs have errors that windlass words in its own way.
    pub fn worded_otherwise(&self) -> usize {
        self.description.worded_otherwise.len()
    }

    /// Makes a copy of all files that the runs need.
    ///
    /// # Errors
    /// A file cannot be read or written.
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

    /// The files of the case by path, without its description, answers, archives and links.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn files(&self) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        let mut files = read_folder(&self.folder)?;
        files.retain(|path, _| path != "case.yaml" && !path.starts_with("recorded/"));
        if let Some(size) = self.description.generate {
            files.extend(generate::files(size));
        }
        Ok(files)
    }

    /// Whether the case is generated, and therefore large.
    pub fn is_generated(&self) -> bool {
        self.description.generate.is_some()
    }

    fn recorded(&self) -> PathBuf {
        self.folder.join("recorded")
    }
}

/// The files of a large chart below `chart/`. It has the size for which windlass promises limits.
pub fn large_chart() -> BTreeMap<String, Vec<u8>> {
    generate::files(generate::GeneratedSize::Chart { templates: 200, objects: 3 })
}

/// The files of an overlay with many objects, below `overlay/` and `base/`.
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

/// The archive of a chart. The same files give the same bytes.
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
