//! `windlass trace`: from any object of the cluster back to the commit that it comes from.

use std::collections::BTreeMap;

use cause::object_references;
use clap::Args as ClapArgs;
use objects::{Object, ObjectId};
use serde::Serialize;

use super::cluster_facts;
use super::command_scope::{ClusterScope, CommandScope};
use super::complete;
use super::kind_argument;
use super::object_row::ObjectRow;
use super::output::{ReportFormat, report};
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::print;
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, TextColour, clean};

/// The flags of `windlass trace`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct TraceArgs {
    /// The object, of any kind
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    /// Kind of the object, as `flux trace` has it
    #[arg(long, hide = true, value_name = "KIND")]
    kind: Option<String>,
    /// Group and version of the kind, as `flux trace` has it
    #[arg(long, hide = true, requires = "kind", value_name = "GROUP/VERSION")]
    api_version: Option<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass trace deployment/web -n apps         who applied it, from which revision of which source
  windlass trace pod/web-7f9c -n apps           the same of a Pod, through its controllers

Exit status: 0; 2 if the object cannot be read; 3 if the cluster cannot be reached.";

/// How far back a trace goes.
const MAX_TRACE_LENGTH: usize = 32;

/// One object of the way.
#[derive(Debug, Serialize)]
struct TraceStep {
    object: String,
    /// What it is to the one before.
    relation: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    ready: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    revision: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    url: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// What the source says of the revision, such as its author.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

/// Prints the way back to the source.
///
/// # Errors
/// The object cannot be read.
pub(super) fn run(args: &TraceArgs) -> anyhow::Result<ExitCode> {
    let stops = args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, &words(args)).await?;
        let object = kind_argument::read(&site, &target).await?;
        cluster_operators::say_doubt(&site.cluster).await;
        way(&site, object).await
    })?;
    if report(&stops, args.output)?.is_none() {
        print(&text(&stops, TerminalScreen::of_stdout()))?;
    }
    Ok(ExitCode::Success)
}

/// The kind and the name: `KIND/NAME`, or the flags of `flux trace`.
fn words(args: &TraceArgs) -> Vec<String> {
    let Some(kind) = &args.kind else { return args.what.clone() };
    let group = args.api_version.as_deref().and_then(|it| it.split_once('/'));
    let kind = group.map_or_else(|| kind.clone(), |(group, _)| format!("{kind}.{group}"));
    [vec![kind], args.what.clone()].concat()
}

async fn way(site: &CommandScope, object: Object) -> anyhow::Result<Vec<TraceStep>> {
    let mut stops = vec![stop(&object, "the object")];
    let mut seen = vec![object.id()];
    let mut at = object;
    while stops.len() < MAX_TRACE_LENGTH {
        let Some((id, relation)) = above(&at).filter(|(id, _)| !seen.contains(id)) else { break };
        seen.push(id.clone());
        match cluster_facts::read(&site.cluster, &id).await {
            Ok(Some(object)) => {
                stops.push(stop(&object, relation));
                at = object;
            }
            Ok(None) => {
                stops.push(nothing(&id, relation, "does not exist"));
                break;
            }
            Err(error) => {
                stops.push(nothing(&id, relation, &error));
                break;
            }
        }
    }
    if stops.len() == 1 && !object_references::is_reconciled(&at.id()) {
        let text =
            "not applied by windlass or Flux: it has neither their labels nor an owner reference";
        let stop = nothing(&at.id(), "applied by", text);
        stops.push(TraceStep { object: "unknown".to_owned(), ..stop });
    }
    Ok(stops)
}

/// What an object comes from: its controller, what applied it, its source.
fn above(object: &Object) -> Option<(ObjectId, &'static str)> {
    let source = || object_references::sources(object).into_iter().next().map(|id| (id, "from"));
    if object_references::is_reconciled(&object.id())
        && let Some(source) = source()
    {
        return Some(source);
    }
    object_references::controller(object)
        .map(|id| (id, "controlled by"))
        .or_else(|| object_references::applier(object).map(|id| (id, "applied by")))
}

fn nothing(id: &ObjectId, relation: &'static str, message: &str) -> TraceStep {
    TraceStep {
        object: id.subject(),
        relation,
        ready: String::new(),
        revision: String::new(),
        url: String::new(),
        path: String::new(),
        message: message.to_owned(),
        metadata: BTreeMap::new(),
    }
}

fn stop(object: &Object, relation: &'static str) -> TraceStep {
    let row = ObjectRow::of(object, jiff::Timestamp::now());
    let spec = |key: &str| {
        let field = object.get("spec").and_then(|it| it[key].as_str());
        field.unwrap_or_default().to_owned()
    };
    let status = object.get("status");
    let whole = status.and_then(|it| {
        it["artifact"]["revision"].as_str().or_else(|| it["lastAppliedRevision"].as_str())
    });
    let metadata = status.and_then(|it| it["artifact"]["metadata"].as_object());
    let metadata = metadata.into_iter().flatten();
    let metadata =
        metadata.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let is_ours = object_references::is_reconciled(&object.id());
    TraceStep {
        object: object.id().subject(),
        relation,
        ready: row.ready,
        revision: whole.map_or(row.revision, str::to_owned),
        url: if is_ours { address(&spec("url"), &spec("source")) } else { String::new() },
        path: if is_ours { spec("path") } else { String::new() },
        message: row.message,
        metadata: metadata.collect(),
    }
}

/// The URL of a source, or the address of a Helmfile, without what may be secret.
fn address(url: &str, source: &str) -> String {
    match helmfile::RemoteAddress::parse(source) {
        Some(address) if url.is_empty() => address.to_string(),
        _ => sources::remote_bases::without_credentials(url),
    }
}

fn text(stops: &[TraceStep], on: TerminalScreen) -> String {
    let mut out = String::new();
    for stop in stops {
        out.push_str(&format!("{}: {}\n", stop.relation, clean(&stop.object)));
        let ready = on.paint(&stop.ready, TextColour::of_ready(&stop.ready));
        let mut line = |title: &str, text: &str| {
            if !text.is_empty() {
                out.push_str(&format!("  {title:<10}{}\n", on.wrapped(text, 12)));
            }
        };
        line("ready", &ready);
        line("revision", &clean(&stop.revision));
        line("url", &clean(&stop.url));
        line("path", &clean(&stop.path));
        line("message", &clean(&stop.message));
        for (key, value) in &stop.metadata {
            let key = key.strip_prefix("org.opencontainers.image.").unwrap_or(key);
            line(&clean(key), &clean(value));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_way_fits_terminals_of_both_widths() {
        let of = |kind: &str, name: &str, relation, more: serde_json::Value| {
            let mut value = more;
            value["kind"] = kind.into();
            value["metadata"] = json!({"name": name, "namespace": "apps"});
            stop(&Object::new(value).unwrap(), relation)
        };
        let ready = json!([{"type": "Ready", "status": "False", "reason": "BuildFailed",
            "message": "kustomize build failed: a.yaml: line 3: did not find expected node content \u{1b}[2J"}]);
        let stops = [
            of("Deployment", "web", "the object", json!({"apiVersion": "apps/v1"})),
            of(
                "Kustomization",
                "shop",
                "applied by",
                json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
                "spec": {"path": "./deploy/shop"},
                "status": {"lastAppliedRevision": "main@sha1:0123456789abcdef0123456789abcdef01234567",
                    "conditions": ready}}),
            ),
            of(
                "GitRepository",
                "shop",
                "from",
                json!({"apiVersion": "source.toolkit.fluxcd.io/v1",
                "spec": {"url": "https://git.example.com/shop.git"},
                "status": {"artifact": {"revision": "main@sha1:0123456789abcdef0123456789abcdef01234567",
                    "metadata": {"org.opencontainers.image.authors": "Alice"}}}}),
            ),
        ];
        let text = crate::goldens::at_both_widths(|on| text(&stops, on));
        expect_test::expect_file!["goldens/trace.txt"].assert_eq(&text);
    }

    #[test]
    fn addresses_are_shown_without_credentials() {
        assert_eq!(address("https://u:pw@h/r", ""), "https://***@h/r");
        let source = "git::https://u:pw@h/r@deploy/helmfile.yaml?ref=v1";
        assert_eq!(address("", source), "git::https://h/r@deploy/helmfile.yaml");
        assert_eq!(address("", ""), "");
    }

    #[test]
    fn a_way_leads_through_controllers_and_appliers_to_the_source() {
        let object = |kind: &str,
                      version: &str,
                      metadata: serde_json::Value,
                      spec: serde_json::Value| {
            let mut metadata = metadata;
            metadata["name"] = "app".into();
            metadata["namespace"] = "apps".into();
            let value =
                json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
            above(&Object::new(value).unwrap())
                .map(|(id, relation)| format!("{relation} {}", id.subject()))
        };
        let owned = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-1",
            "controller": true}]});
        assert_eq!(
            object("Pod", "v1", owned, json!({})).unwrap(),
            "controlled by ReplicaSet/apps/app-1"
        );
        let labels = json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "all",
            "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}});
        let applied = object("Deployment", "apps/v1", labels.clone(), json!({})).unwrap();
        assert_eq!(applied, "applied by Kustomization/flux-system/all");
        let source = json!({"sourceRef": {"kind": "GitRepository", "name": "app"}});
        let version = "kustomize.toolkit.fluxcd.io/v1";
        let from = object("Kustomization", version, labels, source).unwrap();
        assert_eq!(from, "from GitRepository/apps/app");
        assert_eq!(object("ConfigMap", "v1", json!({}), json!({})), None);
    }
}
