//! `windlass incidents`: prints which failures are open and since when, which objects are affected, and who was notified.
//!
//! Elsewhere: finding Incidents, and failures without an Incident (`windlass_answers::incidents`).

use clap::{Args as ClapArgs, ValueEnum};
use crds::windlass_notification::{Incident, IncidentState};
use reconcile::Time;
use windlass_answers::incidents::{
    IncidentGroup, ListedIncidents, find, first_line, groups, message, sent, silenced_until,
    silences, since, to_list,
};

use super::command_scope::{NamespaceScope, say_left_out};
use windlass_cli_runtime::connection::{print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour, age, clean};

/// The flags of `windlass incidents`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct IncidentsArgs {
    #[command(flatten)]
    scope: NamespaceScope,
    /// List those that are resolved, too
    #[arg(long)]
    all: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t = IncidentFormat::Table, hide_default_value = true)]
    output: IncidentFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass incidents -n apps                    what is open in a namespace
  windlass incidents -A --all                   in all namespaces, and what is resolved
  windlass incidents -A -o json                 for machines

Incidents of a namespace that say the same are one row: `(+4)` behind a subject counts the others, AFFECTED counts for all of
them, and SINCE is that of the oldest. `-o json` lists each. Below the table is who silenced which incident and why.

Incidents are kept for Alerts with the annotation windlass.dev/incidents: \"true\", or for all Alerts with the flag
--incidents of `windlass serve`; and for each Provider whose service does not accept notifications. Warnings count objects that
are not ready without an incident, and those that are ready while something that they applied does not exist or is not healthy.

Exit status: 0; 2 if something could not be read; 3 if the cluster cannot be reached.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IncidentFormat {
    /// A table for people
    Table,
    /// A list as JSON
    Json,
    /// A list as YAML
    Yaml,
}

/// Prints Incidents.
///
/// # Errors
/// The cluster cannot be reached, or the kind is not installed.
pub(super) fn run(args: &IncidentsArgs) -> anyhow::Result<ExitCode> {
    let ListedIncidents { incidents, summary: context } = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        let mut found = find(&site, &args.scope.labels, args.all).await?;
        if args.output == IncidentFormat::Table {
            found.summary.read(&site).await?;
        }
        anyhow::Ok(found)
    })?;
    if !incidents.is_empty() || args.output != IncidentFormat::Table {
        print(&shown(&incidents, args)?)?;
    }
    if args.output == IncidentFormat::Table {
        let silences = silences(&incidents, jiff::Timestamp::now());
        for line in silences.into_iter().chain(context.lines(&incidents, args.all)) {
            say(line.mark, &clean(&line.text));
        }
    }
    say_left_out(&context.left_out);
    let is_complete = context.left_out.is_empty();
    Ok(if is_complete { ExitCode::Success } else { ExitCode::Failed })
}

fn shown(incidents: &[Incident], args: &IncidentsArgs) -> anyhow::Result<String> {
    Ok(match args.output {
        IncidentFormat::Table => {
            let now = jiff::Timestamp::now();
            table(incidents, args.scope.all_namespaces, now, TerminalScreen::of_stdout())
        }
        IncidentFormat::Json => {
            format!("{}\n", serde_json::to_string_pretty(&to_list(incidents)?)?)
        }
        IncidentFormat::Yaml => goyaml::emit_with_escapes(&to_list(incidents)?)?,
    })
}

fn table(incidents: &[Incident], with_namespace: bool, now: Time, on: TerminalScreen) -> String {
    let titles =
        ["NAMESPACE", "STATE", "SINCE", "SUBJECT", "REASON", "AFFECTED", "SENT TO", "MESSAGE"];
    let skipped = usize::from(!with_namespace);
    let groups = groups(incidents);
    let rows: Vec<Vec<TableCell>> =
        groups.iter().map(|it| row(it, now, on).into_iter().skip(skipped).collect()).collect();
    PagedTable::new(&titles[skipped..], on).page(&rows)
}

fn row(
    IncidentGroup { first: incident, more, affected }: &IncidentGroup<'_>,
    now: Time,
    on: TerminalScreen,
) -> [TableCell; 8] {
    let spec = &incident.spec;
    // Only a terminal has too little room for the whole line.
    let message = if on.width.is_some() { message(incident) } else { first_line(incident) };
    let status = incident.status.clone().unwrap_or_default();
    let state = status.state.map(IncidentState::as_str).unwrap_or_default();
    let colour = match status.state {
        Some(IncidentState::Open) => TextColour::Bad,
        Some(IncidentState::Resolved) => TextColour::Good,
        None => TextColour::Busy,
    };
    let silenced = silenced_until(incident, now).map(|end| format!("silenced until {end}"));
    let sent = Some(sent(incident)).filter(|sent| !sent.is_empty());
    let sent: Vec<String> = sent.into_iter().chain(silenced).collect();
    let and_more = if *more > 0 { format!(" (+{more})") } else { String::new() };
    [
        TableCell::new(incident.metadata.namespace.as_deref().unwrap_or_default()),
        TableCell::coloured(state, Some(colour)),
        TableCell::new(&age(since(incident), now)),
        TableCell::new(&format!("{}/{}{and_more}", spec.subject.kind, spec.subject.name)),
        TableCell::new(&spec.cause.reason),
        TableCell::new(&affected.to_string()),
        TableCell::new(&sent.join(", ")),
        TableCell::new(&message).vital(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::answer_examples::incident;

    fn incidents(of: Vec<Value>) -> Vec<Incident> {
        of.into_iter().map(|it| serde_json::from_value(it).unwrap()).collect()
    }

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let incidents = incidents(vec![
            incident("web", "Resolved", "2026-11-24T10:00:00Z"),
            incident("db", "Open", "2026-11-23T11:00:00Z"),
            incident("shop", "Open", "2026-11-24T11:00:00Z"),
        ]);
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let text =
            crate::golden_file_comparison::at_both_widths(|on| table(&incidents, true, now, on));
        expect_test::expect_file!["goldens/incidents.txt"].assert_eq(&text);
    }

    #[test]
    fn a_silence_is_shown_until_it_ends_and_apart_from_incidents_that_are_sent() {
        let mut silenced = incident("shop", "Open", "2026-11-24T11:00:00Z");
        silenced["status"]["silence"] = json!({"user": "alice", "reason": "known",
            "at": "2026-11-24T11:30:00Z", "until": "2026-11-24T13:00:00Z"});
        let all = incidents(vec![silenced, incident("shop", "Open", "2026-11-24T11:00:00Z")]);
        let screen = TerminalScreen { width: None, is_coloured: false };
        let lines = |now: &str| {
            let text = table(&all, false, now.parse().unwrap(), screen);
            text.matches("silenced until 2026-11-24T13:00:00Z").count()
        };
        assert_eq!(lines("2026-11-24T12:00:00Z"), 1);
        assert_eq!(lines("2026-11-24T13:00:00Z"), 0);
        let below = |now: &str| silences(&all, now.parse().unwrap());
        let expected = "Incident/apps/gitrepository-shop-1 is silenced by alice until 2026-11-24T13:00:00Z, when the silence \
                        ends by itself: known";
        let texts: Vec<String> =
            below("2026-11-24T12:00:00Z").into_iter().map(|line| line.text).collect();
        assert_eq!(texts, [expected]);
        assert!(below("2026-11-24T13:00:00Z").is_empty());
        assert_eq!(groups(&all).len(), 2);
    }

    #[test]
    fn an_incident_is_as_old_as_the_failure() {
        let mut of = incident("shop", "Open", "2026-11-24T11:00:00Z");
        of["status"]["since"] = json!("2026-11-24T09:00:00Z");
        let of = incidents(vec![of]);
        let of = groups(&of);
        let screen = TerminalScreen { width: None, is_coloured: false };
        let row = row(&of[0], "2026-11-24T12:00:00Z".parse().unwrap(), screen);
        let shown = |cell: &TableCell| format!("{cell:?}");
        assert!(
            row.iter().map(shown).any(|it| it.contains("3h")),
            "{:?}",
            row.map(|it| shown(&it))
        );
    }
}
