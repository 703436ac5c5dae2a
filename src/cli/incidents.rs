//! `windlass incidents`: which failures are open, since when, what they affect, and to whom they were sent.
//!
//! Elsewhere: what an Incident says (`crds::incidents`), opening and resolving them (`controllers::incident`).

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args as ClapArgs, ValueEnum};
use crds::incidents::{Incident, IncidentNotification, IncidentState, IncidentStep};
use kube::core::Resource as _;
use reconcile::Time;
use serde_json::{Value, json};

use super::connection::{Mark, print, say};
use super::kind::Target;
use super::place::{Scope, say_left_out};
use super::table::{Cell, Colour, Screen, Table, age};
use crate::controllers::lifecycle::table::resource;

/// The flags of `windlass incidents`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    scope: Scope,
    /// List those that are resolved, too
    #[arg(long)]
    all: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t = Format::Table, hide_default_value = true)]
    output: Format,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass incidents -n apps                    what is open in a namespace
  windlass incidents -A --all                   in all namespaces, and what is resolved
  windlass incidents -A -o json                 for machines

Incidents are kept for Alerts with the annotation windlass.dev/incidents: \"true\", or for all Alerts with the flag
--incidents of `windlass serve`. What else is not ready: windlass get -A --status-selector ready=false

Exit status: 0; 2 if something could not be read; 3 if the cluster cannot be reached.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Table,
    /// A list as JSON
    Json,
    /// A list as YAML
    Yaml,
}

/// How long a message in the table may be, in characters.
const SHOWN: usize = 80;

/// Prints incidents.
///
/// # Errors
/// The cluster cannot be reached, or the kind is not installed.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (found, left_out) = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        let target = Target { resource: resource::<Incident>(), namespace: None, name: None };
        let mut found = Vec::new();
        let left_out = site
            .list(&target, &args.scope.labels, |objects| {
                found.extend(objects.into_iter().map(objects::Object::into_value));
                Ok(())
            })
            .await?;
        anyhow::Ok((found, left_out))
    })?;
    let incidents = selected(found, args.all)?;
    if incidents.is_empty() && args.output == Format::Table {
        say(Mark::Success, if args.all { "no incidents" } else { "no open incidents" });
    } else {
        print(&shown(&incidents, args)?)?;
    }
    say_left_out(&left_out);
    Ok(if left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(super::FAILED) })
}

fn state(incident: &Incident) -> Option<IncidentState> {
    incident.status.as_ref().and_then(|status| status.state)
}

fn opened(incident: &Incident) -> Option<Time> {
    incident.status.as_ref()?.opened_at.as_ref().map(|at| at.0)
}

/// Those that are open, the oldest first; with `all` those that are resolved before them.
fn selected(found: Vec<Value>, all: bool) -> anyhow::Result<Vec<Incident>> {
    let mut incidents = Vec::with_capacity(found.len());
    for value in found {
        let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let incident: Incident =
            serde_json::from_value(value).with_context(|| format!("Incident {name}"))?;
        if all || state(&incident) == Some(IncidentState::Open) {
            incidents.push(incident);
        }
    }
    let is_open = |it: &Incident| state(it) == Some(IncidentState::Open);
    incidents.sort_by_key(|it| (is_open(it), opened(it), it.metadata.name.clone()));
    Ok(incidents)
}

fn shown(incidents: &[Incident], args: &Args) -> anyhow::Result<String> {
    let list = || -> anyhow::Result<Value> {
        let items: Result<Vec<Value>, _> = incidents.iter().map(serde_json::to_value).collect();
        Ok(json!({
            "apiVersion": Incident::api_version(&()),
            "kind": "IncidentList",
            "items": items?,
        }))
    };
    Ok(match args.output {
        Format::Table => {
            let now = jiff::Timestamp::now();
            table(incidents, args.scope.all_namespaces, now, Screen::of_stdout())
        }
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&list()?)?),
        Format::Yaml => goyaml::emit(&list()?)?,
    })
}

fn table(incidents: &[Incident], with_namespace: bool, now: Time, on: Screen) -> String {
    let titles =
        ["NAMESPACE", "STATE", "SINCE", "SUBJECT", "REASON", "AFFECTED", "SENT TO", "MESSAGE"];
    let skipped = usize::from(!with_namespace);
    let rows: Vec<Vec<Cell>> =
        incidents.iter().map(|it| row(it, now).into_iter().skip(skipped).collect()).collect();
    Table::new(&titles[skipped..], on).page(&rows)
}

fn row(incident: &Incident, now: Time) -> [Cell; 8] {
    let spec = &incident.spec;
    let status = incident.status.clone().unwrap_or_default();
    let state = status.state.map(IncidentState::as_str).unwrap_or_default();
    let colour = match status.state {
        Some(IncidentState::Open) => Colour::Bad,
        Some(IncidentState::Resolved) => Colour::Good,
        None => Colour::Busy,
    };
    let sent: Vec<String> = status.notifications.iter().map(sent).collect();
    let message: String =
        status.message.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
    [
        Cell::new(incident.metadata.namespace.as_deref().unwrap_or_default()),
        Cell::coloured(state, Some(colour)),
        Cell::new(&age(opened(incident), now)),
        Cell::new(&format!("{}/{}", spec.subject.kind, spec.subject.name)),
        Cell::new(&spec.cause.reason),
        Cell::new(&status.affected.unwrap_or_default().count.to_string()),
        Cell::new(&sent.join(",")),
        Cell::new(&super::table::cut(&message, SHOWN)).vital(),
    ]
}

/// A Provider, and what it was sent if that is not the beginning.
fn sent(of: &IncidentNotification) -> String {
    match of.state {
        IncidentStep::Opened => of.provider.clone(),
        IncidentStep::Resolved => format!("{} (resolved)", of.provider),
        IncidentStep::Failed => format!("{} (failed)", of.provider),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(name: &str, state: &str, opened: &str) -> Value {
        json!({
            "metadata": {"name": format!("gitrepository-{name}-1"), "namespace": "apps"},
            "spec": {
                "subject": {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": name},
                "reason": "Credentials",
                "cause": {"object": format!("GitRepository/apps/{name}"), "reason": "AuthenticationFailed",
                    "message": "authentication failed"},
            },
            "status": {"state": state, "openedAt": opened,
                "message": "authentication failed: the server rejects\u{1b} the credentials\nmore",
                "affected": {"count": 200, "objects": ["Kustomization/apps/shop"]},
                "notifications": [
                    {"namespace": "apps", "alert": "a", "provider": "pagerduty", "state": "Opened"},
                    {"namespace": "apps", "alert": "b", "provider": "chat", "state": "Failed"},
                ]},
        })
    }

    fn all() -> Vec<Value> {
        vec![
            incident("shop", "Open", "2026-11-24T11:00:00Z"),
            incident("web", "Resolved", "2026-11-24T10:00:00Z"),
            incident("db", "Open", "2026-11-23T11:00:00Z"),
        ]
    }

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let incidents = selected(all(), true).unwrap();
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let text = crate::cli::table::at_both_widths(|on| table(&incidents, true, now, on));
        expect_test::expect_file!["goldens/incidents.txt"].assert_eq(&text);
    }

    #[test]
    fn what_is_open_is_listed_and_the_rest_on_request() {
        let names = |all_of: bool| -> Vec<String> {
            let found = selected(all(), all_of).unwrap();
            found.into_iter().map(|it| it.spec.subject.name).collect()
        };
        assert_eq!(names(false), ["db", "shop"]);
        assert_eq!(names(true), ["web", "db", "shop"]);
    }
}
