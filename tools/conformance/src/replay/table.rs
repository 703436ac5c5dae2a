//! Prints the table of a replay: passed cases, failures with their reasons, and cases that were not run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::ReplayTally;
use super::case::CaseFailure;
use testbed::progress::{bold, dim, green, red};

/// How many failures of a topic are printed.
const MAX_FAILURES_SHOWN: usize = 5;

/// How many characters of an answer are printed.
const MAX_ANSWER_CHARACTERS: usize = 600;

/// How many equal characters of two long answers are printed before their first difference.
const COMMON_CHARACTERS_SHOWN: usize = 100;

/// The table of topics with the counts of their cases, as text.
pub(super) fn table(tallies: &BTreeMap<&str, ReplayTally>) -> String {
    let width = tallies.keys().map(|name| name.len()).max().unwrap_or_default().max("topic".len());
    let mut table =
        format!("{}\n", bold(&format!("{:width$}  {:>6} / {:<6}", "topic", "passed", "all")));
    for (name, tally) in tallies {
        let verdict = match tally {
            ReplayTally { failures, .. } if !failures.is_empty() => red("FAILED"),
            tally if tally.run() == 0 => dim("not run"),
            _ => green("ok"),
        };
        line(
            &mut table,
            &format!("{name:width$}  {:>6} / {:<6} {verdict}", tally.passed, tally.run()),
        );
        details(&mut table, tally);
    }
    table
}

fn line(table: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(table, "{text}");
}

fn details(table: &mut String, tally: &ReplayTally) {
    for (case, reason) in &tally.excepted {
        line(table, &format!("    {} {case}: {reason}", dim("exception")));
    }
    for (reason, count) in &tally.not_run {
        line(table, &format!("    {} {count}: {reason}", dim("not run")));
    }
    for (case, fault) in tally.failures.iter().take(MAX_FAILURES_SHOWN) {
        line(table, &format!("    {} {case}", red("✘")));
        match fault {
            CaseFailure::Mismatch { wanted, got } => {
                let alike = alike(wanted, got);
                line(table, &format!("        wanted {}", clip(wanted, alike)));
                line(table, &format!("        got    {}", clip(got, alike)));
            }
            CaseFailure::NotRun(reason) => line(table, &format!("        {reason}")),
            CaseFailure::OtherTopic => {}
        }
    }
    if tally.failures.len() > MAX_FAILURES_SHOWN {
        line(table, &format!("    … and {} more", tally.failures.len() - MAX_FAILURES_SHOWN));
    }
}

/// How many characters at the beginning of two strings are equal.
fn alike(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

/// The part of a text around its first difference, on one line. Invisible characters are made visible.
fn clip(text: &str, alike: usize) -> String {
    let skipped =
        if alike > MAX_ANSWER_CHARACTERS / 2 { alike - COMMON_CHARACTERS_SHOWN } else { 0 };
    let shown: String = text.chars().skip(skipped).take(MAX_ANSWER_CHARACTERS).collect();
    let before = if skipped > 0 { "… " } else { "" };
    let after =
        if text.chars().nth(skipped + MAX_ANSWER_CHARACTERS).is_some() { " …" } else { "" };
    format!("{before}{shown:?}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_answers_are_shown_where_they_differ() {
        let wanted = "a".repeat(5000) + "x";
        let got = "a".repeat(5000) + "y\n";
        let alike = alike(&wanted, &got);
        assert_eq!(clip(&wanted, alike), format!("… \"{}x\"", "a".repeat(COMMON_CHARACTERS_SHOWN)));
        assert_eq!(clip(&got, alike), format!("… \"{}y\\n\"", "a".repeat(COMMON_CHARACTERS_SHOWN)));
        assert_eq!(clip(&"é".repeat(601), 0), format!("\"{}\" …", "é".repeat(600)));
        assert_eq!(clip("short", 0), "\"short\"");
    }
}
