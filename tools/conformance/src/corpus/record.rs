//! Recorded answers of the real program, in the folder `recorded` of a case.
//!
//! Here: reading and writing them. Elsewhere: getting them (`answer`).

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{CorpusCase, ProgramOutput};

/// Strings longer than this are kept as their digest.
const MAX_STRING_BYTES: usize = 64 << 10;

const INDEX: &str = "answers.json";

/// What is kept of an answer: the whole of it, or digests of what is long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAnswer {
    /// Exit status.
    pub status: i32,
    /// By name of the stream, or path of a file that was written.
    pub strings: BTreeMap<String, RecordedText>,
}

/// A text that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedText {
    /// All of it.
    Whole(Vec<u8>),
    /// `sha256:` and its length.
    Digest(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRunIndex {
    /// Who answered.
    tool: String,
    runs: BTreeMap<String, RunEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunEntry {
    status: i32,
    /// Digests of strings that are too long to be kept, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    digests: BTreeMap<String, String>,
}

impl RecordedAnswer {
    /// What is kept of an answer. Empty streams are not.
    pub fn of(answer: &ProgramOutput) -> Self {
        let streams = [("stdout", &answer.stdout), ("stderr", &answer.stderr)];
        let streams = streams.into_iter().map(|(name, text)| (name.to_owned(), text));
        let files = answer.written.iter().map(|(path, text)| (format!("written/{path}"), text));
        let strings = streams.chain(files).filter(|(_, text)| !text.is_empty());
        let strings = strings.map(|(name, text)| (name, RecordedText::of(text))).collect();
        // A signal is nothing that a real program is recorded with.
        Self { status: answer.status.unwrap_or(-1), strings }
    }
}

impl RecordedText {
    fn of(text: &[u8]) -> Self {
        if text.len() <= MAX_STRING_BYTES {
            return Self::Whole(text.to_owned());
        }
        let digest: String =
            Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
        Self::Digest(format!("sha256:{digest}, {} bytes", text.len()))
    }
}

/// The recorded answers of a case, by name of the run.
///
/// # Errors
/// What cannot be read.
pub fn read_recorded(case: &CorpusCase) -> anyhow::Result<BTreeMap<String, RecordedAnswer>> {
    let folder = case.recorded();
    let of = || format!("what is recorded of `{}`", case.name);
    let index = fs::read(folder.join(INDEX)).with_context(of)?;
    let index: RecordedRunIndex = serde_json::from_slice(&index).with_context(of)?;
    let mut all = BTreeMap::new();
    for (run, entry) in index.runs {
        let mut strings: BTreeMap<String, RecordedText> = BTreeMap::new();
        for stream in ["stdout", "stderr"] {
            if let Ok(text) = fs::read(folder.join(format!("{run}.{stream}"))) {
                strings.insert(stream.to_owned(), RecordedText::Whole(text));
            }
        }
        let written = folder.join(format!("{run}.written"));
        if written.is_dir() {
            let files = super::read_folder(&written)?.into_iter();
            strings.extend(
                files.map(|(path, text)| (format!("written/{path}"), RecordedText::Whole(text))),
            );
        }
        strings.extend(
            entry.digests.into_iter().map(|(name, digest)| (name, RecordedText::Digest(digest))),
        );
        all.insert(run, RecordedAnswer { status: entry.status, strings });
    }
    Ok(all)
}

/// Replaces the recorded answers of a case.
///
/// # Errors
/// What cannot be written.
pub fn write_recorded(
    case: &CorpusCase,
    answers: &BTreeMap<String, RecordedAnswer>,
) -> anyhow::Result<()> {
    let folder = case.recorded();
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    let mut index =
        RecordedRunIndex { tool: case.corpus.oracle().version().to_owned(), runs: BTreeMap::new() };
    for (run, recorded) in answers {
        let mut digests = BTreeMap::new();
        for (name, text) in &recorded.strings {
            match text {
                RecordedText::Whole(text) => {
                    let file = match name.strip_prefix("written/") {
                        Some(path) => format!("{run}.written/{path}"),
                        None => format!("{run}.{name}"),
                    };
                    super::write(&folder.join(file), text)?;
                }
                RecordedText::Digest(digest) => {
                    digests.insert(name.clone(), digest.clone());
                }
            }
        }
        index.runs.insert(run.clone(), RunEntry { status: recorded.status, digests });
    }
    let mut text = serde_json::to_vec_pretty(&index).context("the index is no JSON")?;
    text.push(b'\n');
    super::write(&folder.join(INDEX), &text)
}
