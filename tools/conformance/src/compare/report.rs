//! Finds the differences between two answers, and prints the table of a comparison.
//!
//! It finds the first line that differs, and shows it with its context. `crate::corpus` has the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::corpus::{CorpusCase, ProgramOutput, RecordedAnswer, RecordedText};
use testbed::progress::{bold, dim, green, red};

/// How many differences of a case are shown.
const MAX_DIFFERENCES_SHOWN: usize = 3;

/// How many lines are shown before the first one that differs.
const LINES_BEFORE: usize = 3;

/// How many lines are shown from the first one that differs on.
const LINES_AFTER: usize = 3;

/// How many characters of a line are shown.
const MAX_LINE_CHARACTERS: usize = 240;

/// The difference between the two answers of one run.
#[derive(Debug)]
pub(super) struct AnswerDifference {
    run: String,
    command: String,
    /// The difference as text for people, with line ends.
    shown: String,
}

/// The results of a comparison. Each case has a row.
#[derive(Debug, Default)]
pub(super) struct ComparisonTable {
    rows: Vec<CaseRow>,
    /// How many errors windlass words in its own way on purpose.
    worded_otherwise: usize,
}

#[derive(Debug)]
struct CaseRow {
    case: String,
    runs: usize,
    differences: Vec<AnswerDifference>,
}

impl AnswerDifference {
    /// The difference between two answers. `None` if they are equal.
    pub(super) fn between(
        run: &str,
        arguments: &[String],
        wanted: &ProgramOutput,
        got: &ProgramOutput,
    ) -> Option<Self> {
        if wanted == got {
            return None;
        }
        let mut shown = String::new();
        status(&mut shown, wanted.status, got.status);
        text(&mut shown, "stdout", &wanted.stdout, &got.stdout);
        text(&mut shown, "stderr", &wanted.stderr, &got.stderr);
        let paths: BTreeSet<&String> = wanted.written.keys().chain(got.written.keys()).collect();
        for path in paths {
            match (wanted.written.get(path), got.written.get(path)) {
                (Some(wanted), Some(got)) => text(&mut shown, path, wanted, got),
                (Some(_), None) => line(&mut shown, &format!("{path}: is not written")),
                _ => line(&mut shown, &format!("{path}: is written, and should not be")),
            }
        }
        Some(Self { run: run.to_owned(), command: arguments.join(" "), shown })
    }

    /// The difference between an answer and the recorded one. `None` if they are equal.
    pub(super) fn from_recorded(
        run: &str,
        arguments: &[String],
        wanted: &RecordedAnswer,
        got: &ProgramOutput,
    ) -> Option<Self> {
        let kept = RecordedAnswer::of(got);
        if *wanted == kept {
            return None;
        }
        let mut shown = String::new();
        status(&mut shown, Some(wanted.status), got.status);
        let nothing = RecordedText::Whole(Vec::new());
        let names: BTreeSet<&String> = wanted.strings.keys().chain(kept.strings.keys()).collect();
        let of =
            |strings: &'_ BTreeMap<String, RecordedText>, name: &String| strings.contains_key(name);
        for name in names {
            let is_in = (of(&wanted.strings, name), of(&kept.strings, name));
            let pair = [&wanted.strings, &kept.strings].map(|it| it.get(name).unwrap_or(&nothing));
            match pair {
                [RecordedText::Whole(wanted), RecordedText::Whole(got)]
                    if !name.starts_with("written/") =>
                {
                    text(&mut shown, name, wanted, got);
                }
                [RecordedText::Whole(wanted), RecordedText::Whole(got)]
                    if is_in == (true, true) =>
                {
                    text(&mut shown, name, wanted, got);
                }
                [a, b] if a != b || is_in.0 != is_in.1 => {
                    line(&mut shown, &format!("{name}: wanted {}, got {}", spell(a), spell(b)));
                }
                _ => {}
            }
        }
        Some(Self { run: run.to_owned(), command: arguments.join(" "), shown })
    }
}

impl AnswerDifference {
    /// The difference as lines of text.
    pub(super) fn into_text(self) -> String {
        self.shown
    }
}

fn spell(text: &RecordedText) -> String {
    match text {
        RecordedText::Whole(text) => format!("{} bytes", text.len()),
        RecordedText::Digest(digest) => digest.clone(),
    }
}

fn line(shown: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(shown, "{text}");
}

fn status(shown: &mut String, wanted: Option<i32>, got: Option<i32>) {
    let spell = |it: Option<i32>| it.map_or("a signal".to_owned(), |status| status.to_string());
    if wanted != got {
        line(shown, &format!("exit status: wanted {}, got {}", spell(wanted), spell(got)));
    }
}

/// Shows the lines around the first one that differs.
fn text(shown: &mut String, name: &str, wanted: &[u8], got: &[u8]) {
    if wanted == got {
        return;
    }
    let [wanted, got] = [wanted, got].map(lines);
    let alike = wanted.iter().zip(&got).take_while(|(a, b)| a == b).count();
    line(shown, &format!("{name}, line {}:", alike + 1));
    for same in wanted.iter().take(alike).skip(alike.saturating_sub(LINES_BEFORE)) {
        line(shown, &dim(&format!("          {}", clip(same, 0))));
    }
    let column = match (wanted.get(alike), got.get(alike)) {
        (Some(a), Some(b)) => a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count(),
        _ => 0,
    };
    for (label, side, paint) in
        [("wanted", &wanted, green as fn(&str) -> String), ("got", &got, red)]
    {
        for (number, text) in side.iter().skip(alike).take(LINES_AFTER).enumerate() {
            let label = if number == 0 { label } else { "" };
            let column = if number == 0 { column } else { 0 };
            line(shown, &paint(&format!("  {label:<6}  {}", clip(text, column))));
        }
        if side.len() <= alike {
            line(shown, &paint(&format!("  {label:<6}  (ends here)")));
        }
    }
}

/// Splits a text into lines with their ends, so that a missing line end is shown.
fn lines(text: &[u8]) -> Vec<String> {
    let split = text.split_inclusive(|byte| *byte == b'\n');
    split.map(visible).collect()
}

/// A line in which all invisible characters are shown.
fn visible(line: &[u8]) -> String {
    let mut shown = String::new();
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\u{feff}' || (c.is_whitespace() && c != ' ') {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
        }
        shown.push_str(&chunk.invalid().escape_ascii().to_string());
    }
    shown
}

/// The part of a line around a column. The escaped line end, which most lines have, is left out.
fn clip(line: &str, column: usize) -> String {
    let text = match line.strip_suffix("\\n") {
        Some(text) => text.to_owned(),
        None => format!("{line} (no line end)"),
    };
    let skipped =
        if column > MAX_LINE_CHARACTERS / 2 { column - MAX_LINE_CHARACTERS / 4 } else { 0 };
    let shown: String = text.chars().skip(skipped).take(MAX_LINE_CHARACTERS).collect();
    let before = if skipped > 0 { "… " } else { "" };
    let after = if text.chars().count() > skipped + MAX_LINE_CHARACTERS { " …" } else { "" };
    format!("{before}{shown}{after}")
}

impl ComparisonTable {
    /// Adds the results of a chart or an overlay.
    pub(super) fn add(&mut self, case: &str, runs: usize, differences: Vec<AnswerDifference>) {
        self.rows.push(CaseRow { case: case.to_owned(), runs, differences });
    }

    /// Adds the results of one of the project's cases.
    pub(super) fn add_case(&mut self, case: &CorpusCase, differences: Vec<AnswerDifference>) {
        self.worded_otherwise += case.worded_otherwise();
        self.add(&case.name, case.runs().len(), differences);
    }

    /// How many runs have differences.
    pub(super) fn differing(&self) -> usize {
        self.rows.iter().map(|row| row.differences.len()).sum()
    }

    /// Prints the table, and then the differences.
    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    pub(super) fn print(&self, all: bool) {
        print!("{}", self.text(all));
    }

    fn text(&self, all: bool) -> String {
        let width = self.rows.iter().map(|row| row.case.chars().count()).max();
        let width = width.unwrap_or_default().max("total".len());
        let mut text =
            format!("{}\n", bold(&format!("{:width$}  {:>5} / {:<5}", "case", "same", "runs")));
        for row in &self.rows {
            let same = row.runs - row.differences.len();
            let verdict = if row.differences.is_empty() { green("same") } else { red("DIFFERS") };
            line(&mut text, &format!("{:width$}  {same:>5} / {:<5} {verdict}", row.case, row.runs));
            let shown = if all { usize::MAX } else { MAX_DIFFERENCES_SHOWN };
            for difference in row.differences.iter().take(shown) {
                let AnswerDifference { run, command, shown } = difference;
                line(&mut text, &format!("    {} {run}  {}", red("✘"), dim(command)));
                shown.lines().for_each(|shown| line(&mut text, &format!("        {shown}")));
            }
            if row.differences.len() > shown {
                let more = row.differences.len() - shown;
                line(&mut text, &format!("    … and {more} more (`--all` shows them)"));
            }
        }
        let runs: usize = self.rows.iter().map(|row| row.runs).sum();
        let same = runs - self.differing();
        let verdict = if same == runs { green("same") } else { red("DIFFERS") };
        let cases = self.rows.len();
        line(
            &mut text,
            &format!("{:width$}  {same:>5} / {runs:<5} {verdict} ({cases} cases)", "total"),
        );
        if self.worded_otherwise > 0 {
            let many = self.worded_otherwise;
            line(
                &mut text,
                &dim(&format!(
                    "{many} errors are worded otherwise by intention; case.yaml says why"
                )),
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: i32, stdout: &str, stderr: &str) -> ProgramOutput {
        let [stdout, stderr] = [stdout, stderr].map(|text| text.as_bytes().to_owned());
        ProgramOutput { status: Some(status), stdout, stderr, ..ProgramOutput::default() }
    }

    fn shown(wanted: &ProgramOutput, got: &ProgramOutput) -> Option<String> {
        AnswerDifference::between("run", &[], wanted, got).map(|it| it.shown)
    }

    #[test]
    fn the_first_line_that_differs_is_shown_with_those_before_it() {
        let wanted = answer(0, "a\nb\nc\nd\nsame: 1\nmore\n", "");
        assert_eq!(shown(&wanted, &wanted), None);
        let got = answer(1, "a\nb\nc\nd\nsame: 2\n", "Error: no\n");
        let shown = shown(&wanted, &got).unwrap();
        assert_eq!(
            shown,
            "exit status: wanted 0, got 1\nstdout, line 5:\n          b\n          c\n          d\n  wanted  \
             same: 1\n          more\n  got     same: 2\nstderr, line 1:\n  wanted  (ends here)\n  got     \
             Error: no\n"
        );
    }

    #[test]
    fn a_missing_line_end_and_a_byte_that_is_no_text_are_seen() {
        let wanted = answer(0, "a\r\n", "");
        let got = ProgramOutput { stdout: b"a\xff".to_vec(), ..answer(0, "", "") };
        let shown = shown(&wanted, &got).unwrap();
        assert!(shown.contains("wanted  a\\r\n"), "{shown}");
        assert!(shown.contains("got     a\\xff (no line end)"), "{shown}");
    }

    #[test]
    fn a_file_that_is_missing_or_too_much_differs() {
        let file = |name: &str| BTreeMap::from([(name.to_owned(), b"x".to_vec())]);
        let wanted = ProgramOutput { written: file("a"), ..answer(0, "", "") };
        let got = ProgramOutput { written: file("b"), ..answer(0, "", "") };
        let shown = shown(&wanted, &got).unwrap();
        assert_eq!(shown, "a: is not written\nb: is written, and should not be\n");
    }

    #[test]
    fn an_answer_is_compared_with_what_is_kept_of_it() {
        let long = "line\n".repeat(20_000);
        let wanted = answer(0, &long, "w");
        let got = answer(0, &format!("{long}x"), "");
        let kept = RecordedAnswer::of(&wanted);
        assert!(AnswerDifference::from_recorded("run", &[], &kept, &wanted).is_none());
        let shown = AnswerDifference::from_recorded("run", &[], &kept, &got).unwrap().shown;
        assert!(shown.contains("stdout: wanted sha256:"), "{shown}");
        assert!(shown.contains("stderr, line 1:\n  wanted  w (no line end)"), "{shown}");
    }

    #[test]
    fn the_table_says_in_words_what_is_the_same() {
        let mut table = ComparisonTable::default();
        let different = AnswerDifference::between("r", &[], &answer(0, "", ""), &answer(1, "", ""));
        table.add("web", 2, different.into_iter().collect());
        table.add("small", 1, Vec::new());
        assert_eq!(table.differing(), 1);
        let text = table.text(false);
        for wanted in [
            "web        1 / 2     DIFFERS",
            "small      1 / 1     same",
            "total      2 / 3     DIFFERS (2 cases)",
        ] {
            assert!(text.contains(wanted), "{text}");
        }
    }
}
