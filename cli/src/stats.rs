//! `windlass stats`: prints how many objects of each kind are ready, failing and suspended, and the size of stored artifacts.

use clap::Args as ClapArgs;
use objects::Object;
use serde::Serialize;
use windlass_answers::statusless_object_readiness;

use super::command_scope::{NamespaceScope, say_left_out};
use super::kind_argument;
use super::object_row::{ObjectRow, is_silent, unsaid};
use super::output::{ReportFormat, report};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour};

/// The flags of `windlass stats`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct StatsArgs {
    #[command(flatten)]
    scope: NamespaceScope,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass stats -A
  windlass stats -A -o json

An Alert or a Provider, which has no status, counts as failing if windlass why finds that something is missing, or that a
service does not accept what is sent.

Exit status: 0, also if something is not ready; 2 if something could not be read; 3 if the cluster cannot be reached.";

/// The counts of one kind.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindCount {
    kind: String,
    total: usize,
    ready: usize,
    failing: usize,
    progressing: usize,
    suspended: usize,
    /// The size of artifacts, in bytes.
    stored: u64,
}

/// The counts, and messages about objects that were not counted.
#[derive(Debug, Default)]
struct ObjectStatistics {
    counts: Vec<KindCount>,
    /// How many objects do not report whether they are ready.
    silent: usize,
    /// Messages about objects that this user may not list.
    left_out: Vec<String>,
    /// Why it is doubtful that an operator is running.
    doubt: Option<String>,
}

/// Prints the counts.
///
/// # Errors
/// Something cannot be read.
pub(super) fn run(args: &StatsArgs) -> anyhow::Result<ExitCode> {
    let numbers = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        let mut numbers = ObjectStatistics::default();
        for target in kind_argument::targets(&site.cluster, &["all".to_owned()]).await? {
            let mut count = KindCount {
                kind: kind_argument::qualified(&target.resource.gvk),
                ..KindCount::default()
            };
            let now = jiff::Timestamp::now();
            let is_mute = statusless_object_readiness::is_mute(&target);
            let mut mute = Vec::new();
            let refused = site.list(&target, &args.scope.labels, |objects| {
                for object in objects {
                    let row = ObjectRow::of(&object, now);
                    count.total += 1;
                    count.suspended += usize::from(row.is_suspended());
                    numbers.silent += usize::from(is_silent(&object) && !row.is_suspended());
                    match row.ready.as_str() {
                        "True" => count.ready += 1,
                        "False" => count.failing += 1,
                        "Unknown" => count.progressing += 1,
                        _ => {}
                    }
                    let size = object.get("status").and_then(|it| it["artifact"]["size"].as_u64());
                    count.stored = count.stored.saturating_add(size.unwrap_or_default());
                    mute.extend(Some(object).filter(|_| is_mute && row.ready.is_empty()));
                }
                Ok(())
            });
            let refused = refused.await?;
            let judged = statusless_object_readiness::judged(&site, &target, mute).await?;
            let is_failing = |object: &&Object| ObjectRow::of(object, now).ready == "False";
            count.failing += judged.iter().filter(is_failing).count();
            // If the user may not list a kind, the number of its objects is unknown.
            if refused.is_empty() || count.total > 0 {
                numbers.counts.push(count);
            }
            numbers.left_out.extend(refused);
        }
        numbers.doubt = cluster_operators::remark(&site.cluster, jiff::Timestamp::now()).await;
        let is_reported = |it: &KindCount| it.ready + it.failing + it.progressing > 0;
        let is_untouched = numbers.silent > 0 && !numbers.counts.iter().any(is_reported);
        if is_untouched && numbers.doubt.is_none() {
            numbers.doubt = cluster_operators::unseen(&site.cluster).await;
        }
        anyhow::Ok(numbers)
    })?;
    let ObjectStatistics { counts, silent, left_out, doubt } = numbers;
    if report(&counts, args.output)?.is_none() {
        print(&table(&counts, TerminalScreen::of_stdout()))?;
        if counts.iter().all(|it| it.total == 0) && left_out.is_empty() {
            say(ProgressGlyph::Action, &args.scope.nothing());
        }
    }
    for text in unsaid(silent).iter().chain(&doubt) {
        say(ProgressGlyph::Warning, text);
    }
    say_left_out(&left_out);
    Ok(if left_out.is_empty() { ExitCode::Success } else { ExitCode::Failed })
}

fn table(counts: &[KindCount], on: TerminalScreen) -> String {
    let titles = ["KIND", "TOTAL", "READY", "FAILING", "PROGRESSING", "SUSPENDED", "STORED"];
    PagedTable::new(&titles, on).page(&counts.iter().map(row).collect::<Vec<_>>())
}

fn row(count: &KindCount) -> Vec<TableCell> {
    let number = |number: usize| TableCell::new(&number.to_string());
    let some = |number: usize, colour| {
        TableCell::coloured(&number.to_string(), Some(colour).filter(|_| number > 0))
    };
    vec![
        TableCell::new(&count.kind),
        number(count.total),
        number(count.ready),
        some(count.failing, TextColour::Bad),
        some(count.progressing, TextColour::Busy),
        some(count.suspended, TextColour::Busy),
        TableCell::new(&bytes(count.stored)),
    ]
}

/// A size in the largest fitting unit.
fn bytes(size: u64) -> String {
    match size {
        0 => String::new(),
        size if size >= 1 << 30 => format!("{:.1} GiB", size as f64 / f64::from(1 << 30)),
        size if size >= 1 << 20 => format!("{:.1} MiB", size as f64 / f64::from(1 << 20)),
        size if size >= 1 << 10 => format!("{:.1} KiB", size as f64 / f64::from(1 << 10)),
        size => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;
    use crate::golden_file_comparison::at_both_widths;

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let count = |kind: &str, failing, stored| KindCount {
            kind: kind.to_owned(),
            total: 12,
            ready: 12 - failing,
            failing,
            stored,
            ..KindCount::default()
        };
        let counts =
            [count("GitRepository", 0, 5 << 20), count("Helmfile.apps.mumoshu.github.io", 3, 0)];
        expect_file!["goldens/stats.txt"].assert_eq(&at_both_widths(|on| table(&counts, on)));
    }

    #[test]
    fn sizes_are_in_the_largest_unit() {
        let sizes = [0, 12, 2048, 3 << 20, 5 << 30].map(bytes);
        assert_eq!(sizes, ["", "12 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]);
    }
}
