//! `windlass describe`: prints an object with its conditions, sources, dependencies, applied objects, and last events.

use cause::{StateExplanation, hold, last_seen, object_references};
use clap::Args as ClapArgs;
use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use super::command_scope::{ClusterScope, CommandScope};
use super::complete;
use super::kind_argument;
use super::object_row::{ObjectRow, time};
use windlass_answers::why;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::print;
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, TextColour, age, clean, cut};
use windlass_cluster::object_pages::ObjectQuery;

/// The flags of `windlass describe`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct DescribeArgs {
    /// The object
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass describe ks/app -n apps
  windlass describe hr web -n apps

`windlass get KIND/NAME -o yaml` prints the object itself.

Exit status: 0; 2 if the object cannot be read; 3 if the cluster cannot be reached.";

/// The maximum number of printed objects, and of printed events.
const MAX_SHOWN_ENTRIES: usize = 20;

/// Prints an object.
///
/// # Errors
/// The object cannot be read.
pub(super) fn run(args: &DescribeArgs) -> anyhow::Result<ExitCode> {
    let text = args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, &args.what).await?;
        let object = kind_argument::read(&site, &target).await?;
        let now = jiff::Timestamp::now();
        let mut why = why::of(&site, &object.id()).await?;
        if object_references::is_reconciled(&object.id()) {
            why.remarks.extend(cluster_operators::remark(&site.cluster, now).await);
        }
        let events = events(&site, &object.id()).await;
        anyhow::Ok(text(&object, &why, events, TerminalScreen::of_stdout(), now))
    })?;
    print(&text)?;
    Ok(ExitCode::Success)
}

async fn events(site: &CommandScope, id: &ObjectId) -> Result<Vec<Object>, String> {
    let found = async {
        let resource = site.cluster.resource(&Gvk::new("v1", "Event")).await?;
        let fields = format!("involvedObject.kind={},involvedObject.name={}", id.kind, id.name);
        let query = ObjectQuery {
            namespace: &id.namespace,
            field_selector: &fields,
            ..ObjectQuery::all(&resource)
        };
        site.cluster.list_part(query, None).await
    };
    found.await.map(|part| part.objects).map_err(|error| error.to_string())
}

fn text(
    object: &Object,
    why: &StateExplanation,
    events: Result<Vec<Object>, String>,
    on: TerminalScreen,
    now: reconcile::Time,
) -> String {
    let row = ObjectRow::of(object, now);
    let mut out = format!("{}\n", on.wrapped(&clean(&why.line()), 0));
    let mut line = |title: &str, text: &str| {
        if !text.is_empty() {
            out.push_str(&format!("{title:<13}{}\n", on.wrapped(&clean(text), 13)));
        }
    };
    line("created", &format!("{} ago", age(row.created, now)));
    line("revision", &row.revision);
    if let Some(hold) = hold(object).filter(|_| row.is_suspended()) {
        line("hold", &hold.to_string());
    } else if row.is_suspended() {
        line("hold", "suspended");
    }
    line(
        "applied by",
        &object_references::applier(object).map(|id| id.subject()).unwrap_or_default(),
    );
    line("source", &subjects(&object_references::sources(object)));
    let dependencies = object_references::dependencies(object).into_iter().map(|it| it.object);
    line("depends on", &subjects(&dependencies.collect::<Vec<_>>()));
    let interval = object.get("spec").and_then(|it| it["interval"].as_str()).unwrap_or_default();
    line("interval", interval);
    for remark in &why.remarks {
        line("note", remark);
    }
    out.push_str(&conditions(object, on, now));
    let applied = object_references::applied(object);
    if !applied.is_empty() {
        let noun = if applied.len() == 1 { "object" } else { "objects" };
        out.push_str(&format!("applied {} {noun}\n", applied.len()));
        for id in applied.iter().take(MAX_SHOWN_ENTRIES) {
            out.push_str(&format!("  {}\n", clean(&id.subject())));
        }
        if applied.len() > MAX_SHOWN_ENTRIES {
            out.push_str("  … `windlass tree` prints all of them\n");
        }
    }
    match events {
        Ok(mut events) => {
            events.sort_by_key(last_seen);
            let newest = events.iter().rev().take(MAX_SHOWN_ENTRIES);
            if !events.is_empty() {
                out.push_str("events\n");
            }
            for event in newest {
                let field = |key| event.get(key).and_then(Value::as_str).unwrap_or_default();
                let since = age(last_seen(event), now);
                let text =
                    format!("{since} {} {}: {}", field("type"), field("reason"), field("message"));
                out.push_str(&format!("  {}\n", on.wrapped(&cut(&clean(&text), 400), 4)));
            }
        }
        Err(error) => out.push_str(&format!("events cannot be listed: {}\n", clean(&error))),
    }
    out
}

fn conditions(object: &Object, on: TerminalScreen, now: reconcile::Time) -> String {
    let conditions = object.get("status").and_then(|it| it["conditions"].as_array());
    let mut out = String::new();
    for (at, condition) in conditions.into_iter().flatten().enumerate() {
        if at == 0 {
            out.push_str("conditions\n");
        }
        let text = |key: &str| clean(condition[key].as_str().unwrap_or_default());
        let status = text("status");
        let status =
            on.paint(&status, TextColour::of_ready(&status).filter(|_| text("type") == "Ready"));
        let since = age(time(condition.get("lastTransitionTime")), now);
        let line =
            format!("{}={status} {} ({since}): {}", text("type"), text("reason"), text("message"));
        out.push_str(&format!("  {}\n", on.wrapped(&cut(&line, 600), 4)));
    }
    out
}

fn subjects(ids: &[ObjectId]) -> String {
    ids.iter().map(ObjectId::subject).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use serde_json::json;

    use super::*;
    use crate::golden_file_comparison::at_both_widths;

    #[test]
    fn the_screen_fits_terminals_of_both_widths() {
        let object = Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "shop", "namespace": "apps", "creationTimestamp": "2026-11-01T12:00:00Z"},
            "spec": {"interval": "10m", "sourceRef": {"kind": "GitRepository", "name": "shop"},
                "dependsOn": [{"name": "database"}]},
            "status": {"lastAppliedRevision": "main@sha1:0123456789abcdef0123456789abcdef01234567",
                "conditions": [{"type": "Ready", "status": "False", "reason": "HealthCheckFailed",
                    "lastTransitionTime": "2026-11-24T11:00:00Z",
                    "message": "timeout waiting for Deployment/apps/web: container 'app' of Pod web-1 CrashLoopBackOff"}],
                "inventory": {"entries": [{"id": "apps_web_apps_Deployment", "v": "v1"}]}}}))
        .unwrap();
        let event = Object::new(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "a"},
            "type": "Warning", "reason": "HealthCheckFailed", "lastTimestamp": "2026-11-24T11:58:00Z",
            "message": "timeout waiting for Deployment/apps/web \u{1b}[2J"}))
        .unwrap();
        let why = StateExplanation {
            object: object.id(),
            state: cause::ExaminedObjectState::NotReady,
            message: "Pod/apps/web-1: container 'app' CrashLoopBackOff".to_owned(),
            cause: None,
            path: Vec::new(),
            next: None,
            advice: None,
            second: None,
            unread: Vec::new(),
            remarks: vec!["GitRepository/apps/shop cannot be read: forbidden".to_owned()],
        };
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let text = at_both_widths(|on| text(&object, &why, Ok(vec![event.clone()]), on, now));
        expect_file!["goldens/describe.txt"].assert_eq(&text);
    }
}
