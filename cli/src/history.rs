//! `windlass history`: prints what windlass applied or released for an object, when, how long it took, and how it ended.
//!
//! Elsewhere: reading the history (`windlass_answers::history`).

use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::Value;
use windlass_answers::history;

use super::command_scope::ClusterScope;
use super::complete;
use super::kind_argument;
use super::object_row::{short, time};
use super::output::{ReportFormat, report};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour, age, clean};

/// The flags of `windlass history`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct HistoryArgs {
    /// A Kustomization, a HelmRelease or a Helmfile
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Release of a Helmfile: NAME, NAMESPACE/NAME or KUBECONTEXT/NAMESPACE/NAME
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass history hr/web -n apps               revisions of a release, the newest first
  windlass history ks/app -n apps               what a Kustomization applied
  windlass history helmfile/all -n apps --release web

A revision is pending from the beginning of its operation, or since an operation that did not end. Revisions that the status
does not have are read from the records of Helm: the newest ten of them without action and tests, of older ones only what the
labels of their records say. `windlass rollback --to` reaches them, too.

Exit status: 0; 2 if the object cannot be read; 3 if the cluster cannot be reached.";

/// Prints a history, the newest entry first.
///
/// # Errors
/// The object cannot be read, or has no history.
pub(super) fn run(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let (object, entries) = args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, &args.what).await?;
        let object = kind_argument::read(&site, &target).await?;
        let history = history::read(&site, &object, args.release.as_deref()).await?;
        if let Some(text) = &history.left_out {
            say(ProgressGlyph::Warning, &clean(text));
        }
        cluster_operators::say_doubt(&site.cluster).await;
        anyhow::Ok((object, history.entries))
    })?;
    if report(&entries, args.output)?.is_some() {
        return Ok(ExitCode::Success);
    }
    if entries.is_empty() {
        let text = format!("the status of {} has no history yet", object.id().subject());
        say(ProgressGlyph::Action, &clean(&text));
        return Ok(ExitCode::Success);
    }
    print(&table(&entries, TerminalScreen::of_stdout(), jiff::Timestamp::now()))?;
    Ok(ExitCode::Success)
}

fn table(entries: &[Value], screen: TerminalScreen, now: reconcile::Time) -> String {
    match entries.iter().all(|it| it["version"].is_i64()) {
        true => {
            let titles = ["VERSION", "CHART", "APP", "STATUS", "ACTION", "DEPLOYED", "TESTS"];
            let rows: Vec<_> = entries.iter().map(|it| released(it, now)).collect();
            PagedTable::new(&titles, screen).page(&rows)
        }
        false => {
            let titles = ["REVISION", "STATUS", "TOOK", "FIRST", "LAST", "TIMES", "DIGEST"];
            let rows: Vec<_> = entries.iter().map(|it| applied(it, now)).collect();
            PagedTable::new(&titles, screen).page(&rows)
        }
    }
}

fn text<'v>(entry: &'v Value, key: &str) -> &'v str {
    entry[key].as_str().unwrap_or_default()
}

fn released(entry: &Value, now: reconcile::Time) -> Vec<TableCell> {
    let status = text(entry, "status");
    let colour = match status {
        "deployed" => Some(TextColour::Good),
        "failed" => Some(TextColour::Bad),
        _ if status.starts_with("pending-") => Some(TextColour::Busy),
        _ => None,
    };
    let hooks = entry["testHooks"].as_object();
    let tests: Vec<String> = hooks
        .into_iter()
        .flatten()
        .map(|(name, it)| format!("{name}: {}", text(it, "phase")))
        .collect();
    // The labels of a record do not contain the chart.
    let chart = match text(entry, "chartName") {
        "" => String::new(),
        name => format!("{name}@{}", text(entry, "chartVersion")),
    };
    vec![
        TableCell::new(&format!("v{}", entry["version"])),
        TableCell::new(&chart),
        TableCell::new(text(entry, "appVersion")),
        TableCell::coloured(status, colour),
        TableCell::new(text(entry, "action")),
        TableCell::new(&ago(entry, "lastDeployed", now)),
        TableCell::new(&tests.join(", ")),
    ]
}

fn applied(entry: &Value, now: reconcile::Time) -> Vec<TableCell> {
    let status = text(entry, "lastReconciledStatus");
    let colour =
        if status == "ReconciliationSucceeded" { TextColour::Good } else { TextColour::Bad };
    vec![
        TableCell::new(&short(text(&entry["metadata"], "revision"))),
        TableCell::coloured(status, Some(colour)),
        TableCell::new(&rounded(text(entry, "lastReconciledDuration"))),
        TableCell::new(&ago(entry, "firstReconciled", now)),
        TableCell::new(&ago(entry, "lastReconciled", now)),
        TableCell::new(&entry["totalReconciliations"].to_string()),
        TableCell::new(&short(text(entry, "digest"))),
    ]
}

/// Shortens a duration to a few digits: `37ms`, `1.2s`, `2m5s`. A text that is not a duration stays unchanged.
fn rounded(text: &str) -> String {
    const SECOND_NANOSECONDS: u64 = 1_000_000_000;
    let Ok(duration) = reconcile::parse_duration(text) else { return text.to_owned() };
    let Ok(nanoseconds) = u64::try_from(duration.as_nanos()) else { return text.to_owned() };
    let unit = match nanoseconds {
        ..1_000 => 1,
        1_000..1_000_000 => 1_000,
        1_000_000..SECOND_NANOSECONDS => 1_000_000,
        _ => SECOND_NANOSECONDS,
    };
    let step = match nanoseconds / unit {
        ..10 => (unit / 10).max(1),
        10..3600 => unit,
        // Only a number of seconds can be so large.
        3600.. => 60 * unit,
    };
    let steps = nanoseconds.saturating_add(step / 2) / step;
    reconcile::format_duration(Duration::from_nanos(steps.saturating_mul(step)))
}

fn ago(entry: &Value, key: &str, now: reconcile::Time) -> String {
    match time(entry.get(key)) {
        Some(at) => format!("{} ago", age(Some(at), now)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use serde_json::json;

    use super::*;
    use crate::golden_file_comparison::at_both_widths;

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let release = |version: u32, status: &str| {
            json!({"version": version, "chartName": "shop", "chartVersion": "1.4.0", "appVersion": "2026.11",
                "status": status, "action": "upgrade", "lastDeployed": "2026-11-24T11:00:00Z",
                "testHooks": {"shop-smoke": {"phase": "Failed"}}})
        };
        let applied = json!({"metadata": {"revision": "main@sha1:0123456789abcdef0123456789abcdef01234567"},
            "lastReconciledStatus": "ReconciliationSucceeded", "lastReconciledDuration": "37.143744ms",
            "firstReconciled": "2026-11-20T12:00:00Z", "lastReconciled": "2026-11-24T11:58:00Z",
            "totalReconciliations": 42,
            "digest": "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"});
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let pending = json!({"version": 4, "status": "pending-upgrade", "action": "upgrade",
            "lastDeployed": "2026-11-24T11:59:00Z"});
        let releases = [pending, release(3, "failed"), release(2, "deployed")];
        let text = at_both_widths(|on| {
            let of_release = table(&releases, on, now);
            format!("{of_release}\n{}", table(std::slice::from_ref(&applied), on, now))
        });
        expect_file!["goldens/history.txt"].assert_eq(&text);
    }

    #[test]
    fn a_duration_has_no_more_digits_than_people_read() {
        for (text, expected) in [
            ("37.143744ms", "37ms"),
            ("1.234567s", "1.2s"),
            ("9.96ms", "10ms"),
            ("999.9ms", "1s"),
            ("850ns", "850ns"),
            ("4.25µs", "4.3µs"),
            ("12.7s", "13s"),
            ("2m5.9s", "2m6s"),
            ("1h2m40s", "1h3m0s"),
            ("0s", "0s"),
            ("", ""),
            ("soon", "soon"),
        ] {
            assert_eq!(rounded(text), expected, "{text}");
        }
    }
}
