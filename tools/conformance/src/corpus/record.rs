//! Recorded answers of the original program, in the folder `recorded` of a case.
//!
//! This module reads and writes them, and `answer` gets them.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{CorpusCase, ProgramOutput};

/// A longer string is recorded as its digest.
const MAX_STRING_BYTES: usize = 64 << 10;

const INDEX: &str = "answers.json";

/// The recorded form of an answer. Long strings are only digests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAnswer {
    /// The exit status of the program.
    pub status: i32,
    /// The strings by the name of the stream, or by the path of a written file.
    pub strings: BTreeMap<String, RecordedText>,
}

/// A text that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedText {
    /// The whole text.
    Whole(Vec<u8>),
    /// The text `sha256:`, the digest and the length.
    Digest(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRunIndex {
    /// The program that gave the answers, with its version.
    tool: String,
    runs: BTreeMap<String, RunEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunEntry {
    status: i32,
    /// The digests of strings that are too long, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    digests: BTreeMap<String, String>,
}

impl RecordedAnswer {
    /// The recorded form of an answer. Empty streams are left out.
    pub fn of(answer: &ProgramOutput) -> Self {
        let streams = [("stdout", &answer.stdout), ("stderr", &answer.stderr)];
        let streams = streams.into_iter().map(|(name, text)| (name.to_owned(), text));
        let files = answer.written.iter().map(|(path, text)| (format!("written/{path}"), text));
        let strings = streams.chain(files).filter(|(_, text)| !text.is_empty());
        let strings = strings.map(|(name, text)| (name, RecordedText::of(text))).collect();
        // No recorded program was ended by a signal, so -1 equals no recorded status.
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
/// A file cannot be read.
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
/// A file cannot be written.
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
