//! `cargo xtask conformance`: recorded answers of the reference implementations, replayed through the engines.
//!
//! Here: finding the cases of a folder, running them, the table. Elsewhere: what a case of a topic means (one file
//! an engine, below this one). The layout and line formats are those of `e2e/conformance` and its READMEs.

mod apply;
mod objects;
mod sources;
mod yaml;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::progress::{bold, dim, green, red};
use crate::root;

/// How many failures of a topic are shown.
const SHOWN: usize = 5;

/// Longest part of an answer that is shown.
const LONGEST: usize = 600;

/// What one case came to: `None` when it is not of this topic, otherwise whether the answer was the recorded one.
type Judgement = Option<Result<(), Mismatch>>;

/// An answer that is not the recorded one.
#[derive(Debug)]
struct Mismatch {
    wanted: String,
    got: String,
}

/// Compares two texts.
fn same(wanted: &str, got: &str) -> Result<(), Mismatch> {
    if wanted == got { Ok(()) } else { Err(Mismatch { wanted: wanted.to_owned(), got: got.to_owned() }) }
}

/// Compares two values; whole floats equal integers, as Go's JSON has one kind of number.
fn same_value(wanted: &Value, got: &Value) -> Result<(), Mismatch> {
    if wanted == got { Ok(()) } else { Err(Mismatch { wanted: wanted.to_string(), got: got.to_string() }) }
}

/// A member of a case that is a text, whether plain or as base64 of bytes that are no UTF-8.
fn bytes_of(case: &Value, member: &str) -> Option<Vec<u8>> {
    if let Some(text) = case.get(member).and_then(Value::as_str) {
        return Some(text.as_bytes().to_vec());
    }
    let encoded = case.get(format!("{member}_base64")).and_then(Value::as_str)?;
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(encoded).ok()
}

/// One aspect of one recorded file, and the engine that has to give the same answers.
struct Topic {
    /// As the table calls it.
    name: &'static str,
    /// File below the folder.
    file: &'static str,
    /// Runs a case.
    judge: fn(&Value) -> Judgement,
    /// Cases that cannot be as recorded, each with the reason.
    exceptions: &'static [(&'static str, &'static str)],
}

fn topics() -> Vec<Topic> {
    let mut topics = Vec::new();
    topics.extend(yaml::TOPICS);
    topics.extend(objects::TOPICS);
    topics.extend(apply::TOPICS);
    topics.extend(sources::TOPICS);
    topics
}

/// Recorded topics whose engine has not landed.
const WITHOUT_ENGINE: [&str; 27] = [
    "gotemplate/snippets.jsonl",
    "kustomize/cases.jsonl",
    "misc/regexp.jsonl",
    "misc/semver.jsonl",
    "recorded/charts.jsonl",
    "recorded/coalesce.jsonl",
    "recorded/envsubst.jsonl",
    "recorded/globfiles.jsonl",
    "recorded/gotemplate2.jsonl",
    "recorded/gotime.jsonl",
    "recorded/helmignore.jsonl",
    "recorded/lifecycle.jsonl",
    "recorded/manifests.jsonl",
    "recorded/printf.jsonl",
    "recorded/releasename.jsonl",
    "recorded/revision.jsonl",
    "recorded/schema.jsonl",
    "recorded/sprig-duration.jsonl",
    "recorded/sprig.jsonl",
    "recorded/ssa-normalize.jsonl",
    "recorded/strvals.jsonl",
    "recorded/values-merge.jsonl",
    "yaml/read.jsonl (v3)",
    "recorded/yaml2-read.jsonl (v3)",
    "recorded/yaml2-emit.jsonl (pretty)",
    "helm/functions.tsv",
    "flux/crds",
];

/// What a topic came to.
#[derive(Default)]
struct Tally {
    all: usize,
    passed: usize,
    excepted: Vec<(String, &'static str)>,
    failures: Vec<(String, Mismatch)>,
}

/// Replays the cases of some folders and prints a table.
///
/// # Errors
/// When a case fails, a file cannot be read, or there is nothing to replay.
pub(crate) fn run(folders: &[PathBuf]) -> anyhow::Result<()> {
    let own = vec![root().join("e2e/conformance")];
    let folders = if folders.is_empty() { &own } else { folders };
    let tallies = replay(folders)?;
    print(&tallies, folders);
    let failed: usize = tallies.values().map(|t| t.failures.len()).sum();
    if tallies.values().all(|t| t.all == 0) {
        bail!("no recorded cases of a known topic were found");
    }
    if failed > 0 {
        bail!("{failed} cases are not as recorded");
    }
    Ok(())
}

/// Runs every topic over every folder.
///
/// # Errors
/// When a file cannot be read or is no JSON.
fn replay(folders: &[PathBuf]) -> anyhow::Result<BTreeMap<&'static str, Tally>> {
    let mut tallies = BTreeMap::new();
    for folder in folders {
        if !folder.is_dir() {
            bail!("{} is not a folder", folder.display());
        }
        for topic in topics() {
            let path = folder.join(topic.file);
            if path.exists() {
                replay_file(&topic, &path, tallies.entry(topic.name).or_default())?;
            }
        }
    }
    Ok(tallies)
}

fn replay_file(topic: &Topic, path: &Path, tally: &mut Tally) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let case: Value =
            serde_json::from_str(line).with_context(|| format!("{}:{}", path.display(), number + 1))?;
        let name = case.get("name").and_then(Value::as_str).map_or_else(|| format!("line {}", number + 1), str::to_owned);
        let judged = catch_unwind(AssertUnwindSafe(|| (topic.judge)(&case))).unwrap_or_else(|_| {
            Some(Err(Mismatch { wanted: "an answer".to_owned(), got: "a panic".to_owned() }))
        });
        let Some(outcome) = judged else { continue };
        tally.all += 1;
        let exception = topic.exceptions.iter().find(|(known, _)| *known == name);
        match (outcome, exception) {
            (Ok(()), _) => tally.passed += 1,
            (Err(_), Some((_, reason))) => tally.excepted.push((name, reason)),
            (Err(mismatch), None) => tally.failures.push((name, mismatch)),
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(tallies: &BTreeMap<&'static str, Tally>, folders: &[PathBuf]) {
    let width = tallies.keys().map(|name| name.len()).max().unwrap_or_default().max(40);
    println!("{}", bold(&format!("{:width$}  {:>6} / {:<6}", "topic", "passed", "all")));
    for (name, tally) in tallies {
        let counts = format!("{name:width$}  {:>6} / {:<6}", tally.passed, tally.all);
        let verdict = if tally.failures.is_empty() { green("ok") } else { red("FAILED") };
        println!("{counts} {verdict}");
        for (case, reason) in &tally.excepted {
            println!("    {} {case}: {reason}", dim("exception"));
        }
        for (case, mismatch) in tally.failures.iter().take(SHOWN) {
            println!("    {} {case}", red("✘"));
            println!("        wanted {}", clip(&mismatch.wanted));
            println!("        got    {}", clip(&mismatch.got));
        }
        if tally.failures.len() > SHOWN {
            println!("    … and {} more", tally.failures.len() - SHOWN);
        }
    }
    for topic in WITHOUT_ENGINE {
        let file = topic.split(' ').next().unwrap_or(topic);
        if folders.iter().any(|folder| folder.join(file).exists()) {
            println!("{topic:width$}  {}", dim("not run: no engine yet"));
        }
    }
}

/// One line, not too long, with what cannot be seen made visible.
fn clip(text: &str) -> String {
    let shown: String = text.chars().take(LONGEST).collect();
    let rest = if shown.len() < text.len() { " …" } else { "" };
    format!("{shown:?}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_case_is_answered_as_recorded() {
        let tallies = replay(&[root().join("e2e/conformance")]).unwrap();
        print(&tallies, &[]);
        let failed: Vec<&str> =
            tallies.iter().filter(|(_, t)| !t.failures.is_empty()).map(|(name, _)| *name).collect();
        assert_eq!(failed, Vec::<&str>::new(), "see the table above");
        for topic in topics() {
            assert!(tallies.get(topic.name).is_some_and(|t| t.all > 0), "no case of {} was run", topic.name);
        }
    }

    #[test]
    fn an_answer_that_is_not_the_recorded_one_fails_its_topic() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("yaml")).unwrap();
        let cases = "{\"name\":\"wrong\",\"yaml\":\"a: 1\\n\",\"v2_json\":\"{\\\"a\\\":2}\"}\n";
        std::fs::write(folder.path().join("yaml/read.jsonl"), cases).unwrap();
        let tallies = replay(&[folder.path().to_owned()]).unwrap();
        assert_eq!(tallies["yaml/read v2 values"].failures.len(), 1);
        assert!(run(&[folder.path().to_owned()]).is_err());
    }
}
