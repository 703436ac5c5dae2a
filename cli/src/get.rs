//! `windlass get`: prints one table with objects of any kinds.

use anyhow::{Context as _, bail};
use apply::dry_run_refusal;
use cause::condition;
use clap::Args as ClapArgs;
use futures::stream::{StreamExt as _, select_all};
use objects::Object;
use reconcile::Time;
use serde_json::Value;
use windlass_answers::frozen_objects::{FrozenObjects, is_freeze};
use windlass_answers::statusless_object_readiness;

use super::command_scope::{CommandScope, NamespaceScope, say_left_out};
use super::complete;
use super::incident_row;
use super::kind_argument::{self, ResourceArgument};
use super::object_row::{ObjectRow, is_silent, unsaid};
use super::output::{ListOutputFormat, ObjectStreamWriter, OutputShape};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen, TextColour, age, clean};
use windlass_cluster::watch::WatcherEvent;

/// The flags of `windlass get`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct GetArgs {
    /// KIND, KIND/NAME, KIND NAME, several KINDs with commas, or all, sources, appliers
    #[arg(default_value = "all", value_name = "KIND[/NAME]", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    scope: NamespaceScope,
    /// Only objects with a condition of this status, such as ready=false; with != without it
    #[arg(long, value_name = "CONDITION=STATUS")]
    status_selector: Option<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ListOutputFormat::Table, value_name = "FORMAT")]
    output: ListOutputFormat,
    /// Leave out the titles of the table
    #[arg(long)]
    no_header: bool,
    /// List objects, then watch for changes
    #[arg(short, long)]
    watch: bool,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass get -A                               everything, in all namespaces
  windlass get ks -n apps                       the Kustomizations of a namespace
  windlass get hr/web -o yaml                   one HelmRelease as YAML
  windlass get all -A --status-selector ready=false
                                                what reports that it is not ready; windlass why -A says why
  windlass get sources --watch
  windlass get deployments -n apps              of other kinds: whether they are healthy

SINCE is how long it has been as ready as it is, AGE how long it exists. READY of a kind that neither windlass nor Flux
reconciles, such as a Deployment, is whether its status tells that it is healthy. An Alert or a Provider, which has no status,
is not ready if windlass why finds that something is missing, or that a service does not accept what is sent. The message of a
Freeze that denies names objects that it holds.

Exit status: 0, also if something is not ready; 2 if something could not be read; 3 if the cluster cannot be reached.";

/// Prints objects.
///
/// # Errors
/// Something cannot be read.
pub(super) fn run(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let selector = args.status_selector.as_deref().map(StatusSelector::parse).transpose()?;
    let work = async |site: CommandScope| {
        let site = site.everywhere(args.scope.all_namespaces);
        let targets = kind_argument::targets(&site.cluster, &args.what).await?;
        args.scope.check(&targets)?;
        if args.watch {
            return watch(&site, args, &targets, selector.as_ref()).await;
        }
        list(&site, args, &targets, selector.as_ref()).await
    };
    match args.watch {
        true => args.scope.place.follow(work),
        false => args.scope.place.run(work),
    }
}

/// The status selector. `ready=false` selects a status of a condition, and `ready!=true` selects any other status or a missing
/// condition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StatusSelector {
    condition: String,
    status: String,
    is_negated: bool,
}

impl StatusSelector {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let (condition, status) =
            text.split_once('=').context("--status-selector is CONDITION=STATUS")?;
        let negated = condition.strip_suffix('!');
        let is_negated = negated.is_some();
        let condition = negated.unwrap_or(condition);
        let status = status.to_lowercase();
        if !matches!(status.as_str(), "true" | "false" | "unknown") {
            bail!("--status-selector: a status is true, false or unknown, not `{status}`");
        }
        Ok(Self { condition: condition.to_lowercase(), status, is_negated })
    }

    /// Whether an object lacks the condition although a controller should have set it.
    fn has_no_status(&self, object: &Object) -> bool {
        !self.is_negated && self.condition == "ready" && is_silent(object)
    }

    fn selects(&self, object: &Object) -> bool {
        let conditions = object.get("status").and_then(|it| it["conditions"].as_array());
        let text = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_lowercase();
        let has = conditions
            .into_iter()
            .flatten()
            .any(|it| text(it, "type") == self.condition && text(it, "status") == self.status);
        has != self.is_negated
    }
}

/// Prints objects as the rows of a table, or in another output format.
struct RowPrinter {
    table: PagedTable,
    writer: ObjectStreamWriter,
    format: ListOutputFormat,
    has_namespaces: bool,
    has_kinds: bool,
    /// Whether all objects are Incidents, which have their own columns.
    is_of_incidents: bool,
    /// The objects that Freezes hold, for a table of Freezes.
    frozen: Option<FrozenObjects>,
    /// Rows that are not printed yet. Rows that are printed together have the same column widths.
    rows: Vec<Vec<TableCell>>,
    printed: usize,
}

/// How many rows are printed together. A kind with more rows is printed page by page.
const ROWS_PER_PAGE: usize = 50;

impl RowPrinter {
    fn new(args: &GetArgs, targets: &[ResourceArgument], screen: TerminalScreen) -> Self {
        let is_wide = args.output == ListOutputFormat::Wide;
        let has_namespaces = args.scope.all_namespaces;
        let kinds = targets.first().map(|first| &first.resource.gvk);
        let has_kinds = targets.iter().any(|it| Some(&it.resource.gvk) != kinds);
        let mut titles = if has_namespaces { vec!["NAMESPACE"] } else { Vec::new() };
        let is_of_incidents = !has_kinds && kinds.is_some_and(incident_row::is_incident);
        titles.push("NAME");
        if is_of_incidents {
            titles.extend(incident_row::INCIDENT_TITLES);
        } else {
            titles.extend(["READY", "REVISION", "SINCE", "AGE", "SUSPENDED"]);
            if is_wide {
                titles.extend(["APPLIED BY", "REASON"]);
            }
            titles.push("MESSAGE");
        }
        // A wide table is not shortened, so the user may have to scroll.
        let screen = if is_wide { TerminalScreen { width: None, ..screen } } else { screen };
        let table = PagedTable::new(&titles, screen);
        let table = if args.no_header { table.headless() } else { table };
        let shape = match targets {
            _ if args.watch => OutputShape::Stream,
            [target] if target.name.is_some() => OutputShape::One,
            _ => OutputShape::List,
        };
        let writer = ObjectStreamWriter::new(args.output, shape);
        let format = args.output;
        let rows = Vec::new();
        let printed = 0;
        Self {
            table,
            writer,
            format,
            has_namespaces,
            has_kinds,
            is_of_incidents,
            frozen: None,
            rows,
            printed,
        }
    }

    fn print(&mut self, objects: Vec<Object>, now: Time) -> anyhow::Result<()> {
        self.printed += objects.len();
        match self.format {
            ListOutputFormat::Table | ListOutputFormat::Wide => {
                let rows: Vec<_> = objects.iter().map(|object| self.row(object, now)).collect();
                self.rows.extend(rows);
                if self.rows.len() >= ROWS_PER_PAGE { self.flush() } else { Ok(()) }
            }
            ListOutputFormat::Json | ListOutputFormat::Yaml | ListOutputFormat::Name => {
                objects.into_iter().try_for_each(|object| self.writer.object(object))
            }
        }
    }

    /// Prints the rows that are not printed yet.
    fn flush(&mut self) -> anyhow::Result<()> {
        print(&self.table.page(&std::mem::take(&mut self.rows)))
    }

    fn row(&self, object: &Object, now: Time) -> Vec<TableCell> {
        let row = ObjectRow::of_any(object, now);
        let mut cells = Vec::new();
        if self.has_namespaces {
            cells.push(TableCell::new(object.namespace()));
        }
        let name = match self.has_kinds {
            true => format!(
                "{}/{}",
                kind_argument::qualified(&object.gvk()).to_lowercase(),
                object.name()
            ),
            false => object.name().to_owned(),
        };
        cells.push(TableCell::new(&name));
        if self.is_of_incidents {
            cells.extend(incident_row::cells(object, now));
            return cells;
        }
        cells.push(TableCell::coloured(&row.ready, TextColour::of_ready(&row.ready)));
        cells.push(TableCell::new(&row.revision));
        cells.push(TableCell::new(&age(row.since, now)));
        cells.push(TableCell::new(&age(row.created, now)));
        cells.push(match row.is_suspended() {
            true => TableCell::coloured(&row.suspended, Some(TextColour::Busy)).vital(),
            false => TableCell::new(""),
        });
        if self.format == ListOutputFormat::Wide {
            let applier = cause::object_references::applier(object).map(|id| id.subject());
            cells.push(TableCell::new(&applier.unwrap_or_default()));
            cells.push(TableCell::new(&row.reason));
        }
        let held = self.frozen.as_ref().and_then(|it| it.row_message(object, now));
        let held = held.map(|held| format!("; {held}")).unwrap_or_default();
        let message = dry_run_refusal::first_with_count(&row.message);
        let message = TableCell::new(&format!("{message}{held}"));
        cells.push(if row.ready == "True" { message } else { message.vital() });
        cells
    }
}

async fn list(
    site: &CommandScope,
    args: &GetArgs,
    targets: &[ResourceArgument],
    selector: Option<&StatusSelector>,
) -> anyhow::Result<ExitCode> {
    let mut printer = RowPrinter::new(args, targets, TerminalScreen::of_stdout());
    let silent = std::cell::Cell::new(0_usize);
    let has_reports = std::cell::Cell::new(false);
    let is_wanted = |object: &Object| {
        has_reports.set(has_reports.get() || condition(object, "Ready").is_some());
        let is_unsaid = match selector {
            Some(selector) => selector.has_no_status(object),
            None => is_silent(object) && !is_suspended(object),
        };
        silent.set(silent.get() + usize::from(is_unsaid));
        selector.is_none_or(|selector| selector.selects(object))
    };
    let is_table = matches!(args.output, ListOutputFormat::Table | ListOutputFormat::Wide);
    let mut left_out = Vec::new();
    if is_table && targets.iter().any(|it| is_freeze(&it.resource.gvk)) {
        printer.frozen = Some(FrozenObjects::read(site).await?);
    }
    for target in targets {
        let now = jiff::Timestamp::now();
        let is_judged = is_table && statusless_object_readiness::is_mute(target);
        let mut mute = Vec::new();
        if target.name.is_some() {
            let object = kind_argument::read(site, target).await?;
            match is_judged {
                true => mute.push(object),
                false => {
                    printer.print(Some(object).into_iter().filter(is_wanted).collect(), now)?;
                }
            }
        } else {
            let refused = site.list(target, &args.scope.labels, |mut objects| {
                if is_judged {
                    mute.extend(objects);
                    return Ok(());
                }
                objects.retain(is_wanted);
                printer.print(objects, now)
            });
            left_out.extend(refused.await?);
        }
        let judged = statusless_object_readiness::judged(site, target, mute).await?;
        printer.print(judged.into_iter().filter(is_wanted).collect(), now)?;
    }
    printer.flush()?;
    printer.writer.end()?;
    say_left_out(&left_out);
    if !left_out.is_empty() {
        return Ok(ExitCode::Failed);
    }
    if is_table {
        if printer.printed == 0 {
            say(ProgressGlyph::Action, &format!("no such objects {}", site.in_words()));
        }
        if let Some(text) = unsaid(silent.get()).filter(|_| selector.is_some()) {
            say(ProgressGlyph::Warning, &text);
        }
        cluster_operators::say_doubt(&site.cluster).await;
        if silent.get() > 0
            && !has_reports.get()
            && let Some(text) = cluster_operators::unseen(&site.cluster).await
        {
            say(ProgressGlyph::Warning, &text);
        }
    }
    Ok(ExitCode::Success)
}

/// Whether an object is suspended, so it is not expected to report anything.
fn is_suspended(object: &Object) -> bool {
    cause::suspension(object, jiff::Timestamp::now()).is_some()
}

/// Prints objects whenever they change.
async fn watch(
    site: &CommandScope,
    args: &GetArgs,
    targets: &[ResourceArgument],
    selector: Option<&StatusSelector>,
) -> anyhow::Result<ExitCode> {
    let mut printer = RowPrinter::new(args, targets, TerminalScreen::of_stdout());
    let streams = targets.iter().map(|target| {
        let namespace = site.namespace_of(target);
        let stream = match &target.name {
            Some(name) => site.cluster.watch_object(&target.resource, namespace, name).boxed(),
            None => {
                site.cluster.watch_objects(&target.resource, namespace, &args.scope.labels).boxed()
            }
        };
        let gvk = target.resource.gvk.clone();
        stream.map(move |seen| (gvk.clone(), seen)).boxed()
    });
    let mut changes = select_all(streams);
    while let Some((gvk, seen)) = changes.next().await {
        let (whole, is_gone) = match seen {
            Ok(WatcherEvent::Listed(whole) | WatcherEvent::Applied(whole)) => (whole, false),
            Ok(WatcherEvent::Deleted(whole)) => (whole, true),
            Ok(
                WatcherEvent::Listing
                | WatcherEvent::ListEnded
                | WatcherEvent::Live
                | WatcherEvent::Interrupted,
            ) => continue,
            Err(error) if error.is_permanent() => return Err(error.into()),
            Err(error) => {
                say(
                    ProgressGlyph::Warning,
                    &format!("the watch of {} was interrupted: {error}", gvk.kind),
                );
                continue;
            }
        };
        let Some(mut value) = whole.value else { continue };
        value["apiVersion"] = gvk.api_version().into();
        value["kind"] = gvk.kind.clone().into();
        let object = Object::new(value)?;
        if is_gone {
            say(ProgressGlyph::Action, &format!("{} was deleted", clean(&object.id().subject())));
        } else if selector.is_none_or(|it| it.selects(&object)) {
            printer.print(vec![object], jiff::Timestamp::now())?;
            printer.flush()?;
        }
    }
    Ok(ExitCode::Success)
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};
    use expect_test::expect_file;
    use serde_json::json;

    use super::*;
    use crate::golden_file_comparison::at_both_widths;

    fn target(version: &str, kind: &str) -> ResourceArgument {
        let resource = fake_cluster::answer_examples::resource(version, kind);
        ResourceArgument { resource, namespace: None, name: None }
    }

    #[test]
    fn the_table_fits_terminals_of_both_widths() {
        let command = GetArgs::augment_args(Command::new("get").no_binary_name(true));
        let args = GetArgs::from_arg_matches(&command.get_matches_from(["-A"])).unwrap();
        let kustomize = "kustomize.toolkit.fluxcd.io/v1";
        let source = "source.toolkit.fluxcd.io/v1";
        let targets = [target(kustomize, "Kustomization"), target(source, "GitRepository")];
        let ready = |status: &str, message: &str| json!([{"type": "Ready", "status": status, "reason": "X", "message": message}]);
        let revision = "main@sha1:0123456789abcdef0123456789abcdef01234567";
        let fields = json!({"f:spec": {"f:suspend": {}},
            "f:metadata": {"f:annotations": {"f:windlass.dev/suspended-until": {}}}});
        let managed =
            json!([{"manager": "windlass-cli", "operation": "Update", "fieldsV1": fields}]);
        let rows = [
            json!({"apiVersion": source, "kind": "GitRepository",
                "metadata": {"name": "shop", "namespace": "apps"},
                "status": {"artifact": {"revision": revision, "lastUpdateTime": "2026-11-24T11:00:00Z"},
                    "conditions": ready("True", "stored artifact for revision 'main@sha1:01234567'")}}),
            json!({"apiVersion": kustomize, "kind": "Kustomization",
                "metadata": {"name": "shop-with-a-long-name", "namespace": "apps", "managedFields": managed, "annotations": {
                    "windlass.dev/suspended-by": "alice", "windlass.dev/suspended-until": "2026-11-24T21:00:00Z"}},
                "spec": {"suspend": true},
                "status": {"lastAppliedRevision": revision, "conditions": ready("False",
                    "timeout waiting for Deployment/apps/web: container 'app' CrashLoopBackOff \u{1b}[2J")}}),
        ];
        let rows = rows.map(|it| Object::new(it).unwrap());
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let text = at_both_widths(|on| {
            let mut printer = RowPrinter::new(&args, &targets, on);
            let cells: Vec<_> = rows.iter().map(|it| printer.row(it, now)).collect();
            printer.table.page(&cells)
        });
        expect_file!["goldens/get.txt"].assert_eq(&text);
    }

    #[test]
    fn a_status_selects_objects_with_it() {
        let object =
            Object::new(json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]}}))
            .unwrap();
        let selects = |text| StatusSelector::parse(text).unwrap().selects(&object);
        assert!(selects("ready=false") && selects("Ready=False"));
        assert!(!selects("ready=true") && !selects("stalled=false"));
        assert!(selects("ready!=true") && selects("stalled!=true") && !selects("ready!=false"));
        let selector = StatusSelector::parse("ready=false").unwrap();
        let silent = |kind: &str| {
            let value = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1", "kind": kind,
                "metadata": {"name": "a"}});
            selector.has_no_status(&Object::new(value).unwrap())
        };
        assert!(silent("Receiver") && !silent("Alert") && !selector.has_no_status(&object));
        assert!(
            StatusSelector::parse("ready").is_err()
                && StatusSelector::parse("ready=maybe").is_err()
        );
    }
}
