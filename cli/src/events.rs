//! `windlass events`: prints the events of windlass's objects and of their sources.
//!
//! Elsewhere: finding events (`windlass_answers::events`).

use cause::last_seen;
use clap::Args as ClapArgs;
use objects::Object;
use serde_json::Value;
use windlass_answers::events::{EventQuery, ListedEvents, field, listed, object_of};

use super::command_scope::{NamespaceScope, say_left_out, shown};
use super::complete;
use super::output::{ReportFormat, report};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour, age, clean};

/// The flags of `windlass events`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct EventsArgs {
    /// An object, with its sources; all objects of windlass if there is none
    #[arg(num_args = 0..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    /// The same as `flux events` has it
    #[arg(long = "for", hide = true, value_name = "KIND/NAME", conflicts_with = "what")]
    about: Option<String>,
    #[command(flatten)]
    scope: NamespaceScope,
    /// Only events of this type: Normal or Warning
    #[arg(long = "types", value_name = "TYPE", value_delimiter = ',', value_parser = event_type)]
    types: Vec<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass events -n apps                       of all objects of windlass in a namespace
  windlass events ks/app -n apps                of a Kustomization and its source
  windlass events -A --types Warning
  windlass events -A -l team=web                of the objects with a label

Exit status: 0; 2 if something could not be read; 3 if the cluster cannot be reached.";

/// Parses the type of events. An unknown type is an error, because its empty result would look as if nothing had happened.
fn event_type(text: &str) -> Result<String, String> {
    match text.to_lowercase().as_str() {
        "normal" | "warning" => Ok(text.to_owned()),
        _ => Err("an event is Normal or Warning".to_owned()),
    }
}

/// Prints events, the oldest first.
///
/// # Errors
/// Something cannot be read.
pub(super) fn run(args: &EventsArgs) -> anyhow::Result<ExitCode> {
    let ListedEvents { events, left_out, gone } = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        let about = args.about.as_ref().map(|word| vec![word.clone()]);
        let query = EventQuery {
            words: about.as_deref().unwrap_or(&args.what),
            labels: &args.scope.labels,
            types: &args.types,
        };
        listed(&site, &query).await
    })?;
    let values: Vec<Value> = events.iter().map(|it| shown(it.clone()).into_value()).collect();
    if report(&values, args.output)?.is_none() {
        print(&table(&events, TerminalScreen::of_stdout(), jiff::Timestamp::now()))?;
        if events.is_empty() && left_out.is_empty() {
            say(
                ProgressGlyph::Action,
                "no events; the API server keeps them for an hour by default",
            );
        }
    }
    if let Some(gone) = gone {
        let text =
            format!("{} does not exist any more; its events are kept for a while", gone.subject());
        say(ProgressGlyph::Warning, &clean(&text));
    }
    say_left_out(&left_out);
    Ok(if left_out.is_empty() { ExitCode::Success } else { ExitCode::Failed })
}

fn table(events: &[Object], on: TerminalScreen, now: reconcile::Time) -> String {
    let mut table = PagedTable::new(&["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"], on);
    table.page(&events.iter().map(|it| row(it, now)).collect::<Vec<_>>())
}

fn row(event: &Object, now: reconcile::Time) -> Vec<TableCell> {
    let kind = field(event, "type");
    let is_warning = kind == "Warning";
    let colour = is_warning.then_some(TextColour::Bad);
    let message = TableCell::new(field(event, "message"));
    vec![
        TableCell::new(&age(last_seen(event), now)),
        TableCell::coloured(kind, colour),
        TableCell::new(field(event, "reason")),
        TableCell::new(&object_of(event).subject()),
        if is_warning { message.vital() } else { message },
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use serde_json::json;

    use super::*;
    use crate::golden_file_comparison::at_both_widths;

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let event = |kind: &str, reason: &str, message: &str| {
            Object::new(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"},
                "type": kind, "reason": reason, "message": message, "lastTimestamp": "2026-11-24T11:58:00Z",
                "involvedObject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                    "kind": "Kustomization", "namespace": "apps", "name": "shop"}}))
            .unwrap()
        };
        let events = [
            event(
                "Normal",
                "ReconciliationSucceeded",
                "Reconciliation finished in 1.2s, next run in 10m",
            ),
            event(
                "Warning",
                "HealthCheckFailed",
                "timeout waiting for Deployment/apps/web: container 'app' of Pod web-1 CrashLoopBackOff \u{1b}[2J",
            ),
        ];
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        expect_file!["goldens/events.txt"].assert_eq(&at_both_widths(|on| table(&events, on, now)));
    }

    #[test]
    fn a_type_that_no_event_has_is_refused() {
        assert!(event_type("Warning").is_ok() && event_type("normal").is_ok());
        assert_eq!(event_type("Wraning").unwrap_err(), "an event is Normal or Warning");
    }
}
