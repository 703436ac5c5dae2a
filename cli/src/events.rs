//! `windlass events`: what happened to objects of windlass and to their sources.

use std::collections::BTreeSet;

use cause::{last_seen, object_references};
use clap::Args as ClapArgs;
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::command_scope::{CommandScope, NamespaceScope, say_left_out, shown};
use super::complete;
use super::kind_argument::{self, ResourceArgument};
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

/// A type of events: of any other there are none, which would look as if nothing had happened.
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
        listed(&site, args).await
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

/// Events, the oldest first.
#[derive(Debug)]
struct ListedEvents {
    events: Vec<Object>,
    /// What could not be listed, in words.
    left_out: Vec<String>,
    /// The object that they are wanted of, if it does not exist.
    gone: Option<ObjectId>,
}

/// The events that are wanted. An object that was deleted may have some.
///
/// # Errors
/// Something cannot be read, or an object has no events and does not exist.
async fn listed(site: &CommandScope, args: &EventsArgs) -> anyhow::Result<ListedEvents> {
    let (about, mut left_out) = about(site, args).await?;
    let (events, more) = gather(site, args, about.as_ref()).await?;
    left_out.extend(more);
    let absent = about.and_then(|it| it.absent);
    match absent {
        Some(absent) if events.is_empty() => Err(kind_argument::absent(site, &absent).await),
        absent => {
            let gone = absent.map(|absent| id_of(site, &absent));
            Ok(ListedEvents { events, left_out, gone })
        }
    }
}

/// The object that a command names.
fn id_of(site: &CommandScope, target: &ResourceArgument) -> ObjectId {
    let Gvk { group, kind, .. } = &target.resource.gvk;
    let name = target.name.as_deref().unwrap_or_default();
    ObjectId::new(site.namespace_of(target), name, group, kind)
}

/// What events are wanted of.
struct EventFilter {
    objects: BTreeSet<ObjectId>,
    /// The object that the command names, if it does not exist.
    absent: Option<ResourceArgument>,
    /// Where their events are; that of the command if there is none.
    namespaces: Vec<Option<String>>,
}

/// The object that events are wanted of and its sources, or the objects that labels select; and what could not be listed.
async fn about(
    site: &CommandScope,
    args: &EventsArgs,
) -> anyhow::Result<(Option<EventFilter>, Vec<String>)> {
    let labels = args.scope.labels.as_str();
    let mut objects = BTreeSet::new();
    let words = args.about.as_ref().map_or_else(|| args.what.clone(), |word| vec![word.clone()]);
    if !words.is_empty() {
        let target = kind_argument::one(&site.cluster, &words).await?;
        args.scope.check(std::slice::from_ref(&target))?;
        let id = id_of(site, &target);
        let found =
            site.cluster.get(&target.resource, site.namespace_of(&target), &id.name).await?;
        objects.extend(found.iter().flat_map(object_references::sources));
        objects.insert(id);
        let absent = found.is_none().then_some(target);
        let namespaces: BTreeSet<String> = objects.iter().map(|id| id.namespace.clone()).collect();
        let namespaces = namespaces.into_iter().map(Some).collect();
        return Ok((Some(EventFilter { objects, absent, namespaces }), Vec::new()));
    }
    if labels.is_empty() {
        return Ok((None, Vec::new()));
    }
    let mut left_out = Vec::new();
    for target in kind_argument::targets(&site.cluster, &["all".to_owned()]).await? {
        let refused = site.list(&target, labels, |found| {
            objects.extend(found.iter().map(Object::id));
            Ok(())
        });
        left_out.extend(refused.await?);
    }
    Ok((Some(EventFilter { objects, absent: None, namespaces: vec![None] }), left_out))
}

async fn gather(
    site: &CommandScope,
    args: &EventsArgs,
    about: Option<&EventFilter>,
) -> anyhow::Result<(Vec<Object>, Vec<String>)> {
    let gvk = Gvk::new("v1", "Event");
    let resource = site.cluster.resource(&gvk).await?;
    let mut found: Vec<Object> = Vec::new();
    let mut left_out = Vec::new();
    let namespaces = about.map_or_else(|| vec![None], |it| it.namespaces.clone());
    for namespace in namespaces {
        let target = ResourceArgument { resource: resource.clone(), namespace, name: None };
        let refused = site.list(&target, "", |events| {
            let wanted = events.into_iter().filter(|it| {
                let is_it = |kind: &String| field(it, "type").eq_ignore_ascii_case(kind);
                let is_of_type = args.types.is_empty() || args.types.iter().any(is_it);
                let of = object_of(it);
                is_of_type
                    && about.map_or_else(
                        || object_references::is_reconciled(&of),
                        |about| about.objects.contains(&of),
                    )
            });
            found.extend(wanted);
            Ok(())
        });
        left_out.extend(refused.await?);
    }
    found.sort_by_key(last_seen);
    Ok((found, left_out))
}

fn field<'e>(event: &'e Object, key: &str) -> &'e str {
    event.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object_of(event: &Object) -> ObjectId {
    let of = event.get("involvedObject").cloned().unwrap_or_default();
    let text = |key: &str| of[key].as_str().unwrap_or_default().to_owned();
    let group = Gvk::new(&text("apiVersion"), "").group;
    ObjectId::new(&text("namespace"), &text("name"), &group, &text("kind"))
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
    use crate::goldens::at_both_widths;

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

    #[tokio::test]
    async fn an_object_that_was_deleted_has_events_and_one_that_never_was_there_has_none() {
        use clap::{Command, FromArgMatches as _};
        let api_version = "kustomize.toolkit.fluxcd.io/v1";
        let event = json!({"apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "shop.1", "namespace": "apps"}, "type": "Warning", "reason": "BuildFailed",
            "message": "missing file", "lastTimestamp": "2026-11-24T11:58:00Z",
            "involvedObject": {"apiVersion": api_version, "kind": "Kustomization", "namespace": "apps", "name": "shop"}});
        let other = json!({"apiVersion": api_version, "kind": "Kustomization",
            "metadata": {"name": "other", "namespace": "apps"}, "spec": {}});
        let (cluster, _) = fake_cluster::with_objects(vec![event, other]).await;
        let site = CommandScope { cluster, namespace: "apps".to_owned() };
        let command = EventsArgs::augment_args(Command::new("events").no_binary_name(true));
        let args = |word: &str| {
            let matches = command.clone().get_matches_from([word]);
            EventsArgs::from_arg_matches(&matches).unwrap()
        };
        let found = listed(&site, &args("kustomization/shop")).await.unwrap();
        assert_eq!(found.events.len(), 1);
        let subject = found.gone.map(|gone| gone.subject());
        assert_eq!(subject.as_deref(), Some("Kustomization/apps/shop"));
        let found = listed(&site, &args("kustomization/other")).await.unwrap();
        assert_eq!((found.events.len(), found.gone), (0, None));
        let error = listed(&site, &args("kustomization/never")).await.unwrap_err().to_string();
        assert!(error.starts_with("Kustomization/apps/never does not exist"), "{error}");
    }

    #[test]
    fn a_type_that_no_event_has_is_refused() {
        assert!(event_type("Warning").is_ok() && event_type("normal").is_ok());
        assert_eq!(event_type("Wraning").unwrap_err(), "an event is Normal or Warning");
    }
}
