//! `windlass crd`: shows who uses a CustomResourceDefinition, and how a new version of it would affect its objects.
//!
//! In the folder: creating a CRD and its objects (`restore`) from an export (`stored_exports`). Elsewhere: the rules
//! (`windlass_runtime::crd_guard`, engine `crdguard`).

mod restore;
mod stored_exports;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, Subcommand};
use crdguard::{CrdChangeVerdict, CrdDefinition};
use objects::{Gvk, Object, manifest};
use serde::Serialize;
use serde_json::Value;

use super::version::VersionFormat;
use windlass_cli_runtime::connection::{WindlassConnectionFlags, block_on, print};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{PagedTable, TableCell, TerminalScreen};
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::list_pager::ObjectProjection;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::{ClusterConnection, ClusterError};
use windlass_runtime::crd_guard::{crd_owners, custom_resource_check};

/// The maximum number of counted objects.
const MAX_COUNTED_OBJECTS: u64 = 100_000;

/// The flags of `windlass crd`.
#[derive(Debug, Clone, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct CrdArgs {
    #[command(subcommand)]
    command: Option<CrdCommand>,
    #[command(flatten)]
    shown: CrdCommonArgs,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass crd widgets.example.com              who uses it, and how many objects there are
  windlass crd diff widgets.example.com new.yaml
                                                whether the objects fit another definition
  windlass crd restore widgets.example.com --dry-run
                                                what would be created from an export

Exit status: 0; 1 if objects do not fit the definition, or cannot be created; 2 if there is no such definition or export, or
it cannot be read; 3 if the cluster cannot be reached.";

#[derive(Debug, Clone, Subcommand)]
enum CrdCommand {
    /// Judge a definition in a file by the objects that exist; the status is 1 if it does not fit them
    Diff {
        #[command(flatten)]
        shown: CrdCommonArgs,
        /// File with the new definition, `-` for stdin; other objects in it are ignored
        #[arg(required = true)]
        file: PathBuf,
    },
    /// Create a definition and its objects from the export that windlass made before it deleted them
    ///
    /// What exists stays as it is. Objects have other uids than before, no owner references and no managed fields; their
    /// finalizers and statuses are restored. The status is 1 if an object cannot be created.
    Restore {
        #[command(flatten)]
        shown: CrdCommonArgs,
        #[command(flatten)]
        how: restore::CrdRestoreOptions,
    },
}

#[derive(Debug, Clone, ClapArgs)]
struct CrdCommonArgs {
    /// Name, such as widgets.example.com
    #[arg(required = true)]
    name: Option<String>,
    /// Format
    #[arg(short, long, value_enum, default_value_t = VersionFormat::Text, hide_default_value = true)]
    output: VersionFormat,
    #[command(flatten)]
    connection: WindlassConnectionFlags,
}

/// Prints who uses a CRD, or how a new version of it would affect its objects.
///
/// # Errors
/// There is no such CRD, or the cluster cannot be read.
pub(super) fn run(args: &CrdArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => block_on(async {
            let (cluster, live) = args.shown.open().await?;
            let usage = CrdUsage::of(&cluster, &live).await?;
            args.shown.print(&usage, || usage.text(TerminalScreen::of_stdout()))?;
            Ok(ExitCode::Success)
        }),
        Some(CrdCommand::Diff { file, shown }) => block_on(async {
            let (cluster, live) = shown.open().await?;
            let new = read(file, live.name())?;
            let old = live.into_value();
            let new = new.into_value();
            let verdict = custom_resource_check::survey(&cluster, "", old, new).await?;
            shown.print(&verdict, || text(&verdict, TerminalScreen::of_stdout()))?;
            let is_compatible = verdict.is_compatible();
            Ok(if is_compatible { ExitCode::Success } else { ExitCode::ProblemsFound })
        }),
        Some(CrdCommand::Restore { shown, how }) => block_on(restore::run(shown, how)),
    }
}

/// The API resource of CRDs.
async fn definitions(cluster: &ClusterConnection) -> Result<ApiResourceLocation, ClusterError> {
    cluster.resource(&Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition")).await
}

impl CrdCommonArgs {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    async fn open(&self) -> anyhow::Result<(ClusterConnection, Object)> {
        let name = self.name();
        let (cluster, _) = self.connection.open().await?;
        let resource = definitions(&cluster).await?;
        let live = cluster.get(&resource, "", name).await?;
        let live = live.with_context(|| {
            format!("CustomResourceDefinition {name} not found; names are <plural>.<group>")
        })?;
        Ok((cluster, live))
    }

    fn print(&self, shown: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        let text = match self.output {
            VersionFormat::Text => text(),
            VersionFormat::Json => format!("{}\n", serde_json::to_string_pretty(shown)?),
            VersionFormat::Yaml => goyaml::emit_with_escapes(&serde_json::to_value(shown)?)?,
        };
        print(&text)
    }
}

/// Reads the CRD with a name from a file.
fn read(path: &Path, name: &str) -> anyhow::Result<Object> {
    let shown = path.display().to_string();
    let data = match shown.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())?.into_bytes(),
        _ => std::fs::read(path).with_context(|| format!("reading {shown}"))?,
    };
    let all = manifest::read(&shown, &data, &goyaml::YamlLimits::default())?;
    let mut found = all.into_iter().map(|it| it.object);
    match found.find(|it| it.kind() == "CustomResourceDefinition" && it.name() == name) {
        Some(object) => Ok(object),
        None => bail!("{shown} has no CustomResourceDefinition {name}"),
    }
}

fn text(verdict: &CrdChangeVerdict, on: TerminalScreen) -> String {
    let mut text = String::new();
    for line in verdict.lines(true) {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        text.push_str(&format!("{:indent$}{}\n", "", on.wrapped(words, indent + 2)));
    }
    if verdict.is_compatible() {
        text.push_str("compatible with the objects that exist\n");
    }
    text
}

/// The users of a CRD.
#[derive(Debug, Serialize)]
struct CrdUsage {
    name: String,
    kind: String,
    scope: &'static str,
    /// The Kustomizations, releases and field managers that own the CRD.
    owners: Vec<String>,
    versions: Vec<CrdVersionUsage>,
    /// The number of objects, by namespace.
    objects: BTreeMap<String, u64>,
    /// Whether there are more objects, or some could not be counted.
    is_partial: bool,
}

#[derive(Debug, Serialize)]
struct CrdVersionUsage {
    name: String,
    served: bool,
    storage: bool,
    /// Whether objects may be stored in this version.
    stored: bool,
    /// The field managers that wrote objects in this version.
    managers: BTreeSet<String>,
}

impl CrdUsage {
    async fn of(cluster: &ClusterConnection, live: &Object) -> anyhow::Result<Self> {
        let definition = CrdDefinition::read(&Value::Object(live.fields().clone()))?;
        let versions = definition.versions.iter().map(|it| CrdVersionUsage {
            name: it.name.clone(),
            served: it.is_served,
            storage: it.is_storage,
            stored: definition.stored.contains(&it.name),
            managers: BTreeSet::new(),
        });
        let mut usage = Self {
            name: definition.name.clone(),
            kind: definition.kind.clone(),
            scope: if definition.is_namespaced { "Namespaced" } else { "Cluster" },
            owners: crd_owners::of(live, "", &[]),
            versions: versions.collect(),
            objects: BTreeMap::new(),
            is_partial: false,
        };
        usage.owners.dedup();
        let Some(version) = definition.readable() else {
            usage.is_partial = true;
            return Ok(usage);
        };
        let resource = custom_resource_check::resource(&definition, &version.name);
        let mut pages = cluster.pages(&resource, "", ObjectProjection::Metadata)?;
        let mut counted = 0;
        while let Some(page) = pages.next().await? {
            counted += page.len() as u64;
            page.iter().for_each(|DepthPrunedObject(it)| usage.add(&it["metadata"]));
            usage.is_partial = !pages.is_over() && counted >= MAX_COUNTED_OBJECTS;
            if usage.is_partial {
                break;
            }
        }
        Ok(usage)
    }

    fn add(&mut self, meta: &Value) {
        let namespace = meta["namespace"].as_str().unwrap_or_default();
        *self.objects.entry(namespace.to_owned()).or_default() += 1;
        for entry in meta["managedFields"].as_array().into_iter().flatten() {
            let version = entry["apiVersion"].as_str().and_then(|it| it.rsplit('/').next());
            let known = self.versions.iter_mut().find(|it| Some(it.name.as_str()) == version);
            if let Some((known, manager)) = known.zip(entry["manager"].as_str()) {
                known.managers.insert(manager.to_owned());
            }
        }
    }

    fn text(&self, on: TerminalScreen) -> String {
        let owners =
            if self.owners.is_empty() { "none".to_owned() } else { self.owners.join(", ") };
        let head = [
            format!("name: {}", self.name),
            format!("kind: {} ({})", self.kind, self.scope),
            format!("owners: {owners}"),
        ];
        let mut text: String = head.map(|line| format!("{}\n", on.wrapped(&line, 2))).concat();
        let yes = |is: bool| TableCell::new(if is { "yes" } else { "no" });
        let versions = self.versions.iter().map(|it| {
            let managers: Vec<&str> = it.managers.iter().map(String::as_str).collect();
            let managers = TableCell::new(&managers.join(", ")).vital();
            vec![
                TableCell::new(&it.name),
                yes(it.served),
                yes(it.storage),
                yes(it.stored),
                managers,
            ]
        });
        let titles = ["VERSION", "SERVED", "STORAGE", "STORED", "WRITTEN BY"];
        text.push('\n');
        text.push_str(&PagedTable::new(&titles, on).page(&versions.collect::<Vec<_>>()));
        let total: u64 = self.objects.values().sum();
        let is_served = self.versions.iter().any(|it| it.served);
        text.push_str(&match (is_served, self.is_partial) {
            (false, _) => "\nobjects: not counted, because no version is served\n".to_owned(),
            (true, true) => format!("\nobjects: at least {total}\n"),
            (true, false) => format!("\nobjects: {total}\n"),
        });
        let namespaces = self.objects.iter().filter(|it| !it.0.is_empty());
        let namespaces = namespaces.map(|(namespace, count)| {
            vec![TableCell::new(namespace), TableCell::new(&count.to_string())]
        });
        text.push_str(
            &PagedTable::new(&["NAMESPACE", "OBJECTS"], on).page(&namespaces.collect::<Vec<_>>()),
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden_file_comparison::at_both_widths;
    use crdguard::{CrdChangeFinding, GuardedObjectKey};
    use expect_test::expect_file;
    use serde_json::json;

    #[test]
    fn objects_of_which_no_version_is_served_are_not_said_to_be_none() {
        let usage = CrdUsage {
            name: "widgets.acme.io".to_owned(),
            kind: "Widget".to_owned(),
            scope: "Cluster",
            owners: Vec::new(),
            versions: Vec::new(),
            objects: BTreeMap::new(),
            is_partial: true,
        };
        let text = usage.text(TerminalScreen { width: None, is_coloured: false });
        assert!(text.contains("not counted") && !text.contains("objects: 0"), "{text}");
    }

    #[test]
    fn usage_says_who_writes_which_version_and_where_objects_are() {
        let version = |name: &str, storage: bool| CrdVersionUsage {
            name: name.to_owned(),
            served: true,
            storage,
            stored: true,
            managers: BTreeSet::new(),
        };
        let mut usage = CrdUsage {
            name: "widgets.acme.io".to_owned(),
            kind: "Widget".to_owned(),
            scope: "Namespaced",
            owners: vec!["Kustomization infra/crds".to_owned()],
            versions: vec![version("v1", true), version("v1alpha1", false)],
            objects: BTreeMap::new(),
            is_partial: false,
        };
        let by = |manager: &str, version: &str| json!({"manager": manager, "apiVersion": format!("acme.io/{version}")});
        usage.add(&json!({"namespace": "shop", "managedFields": [by("kubectl", "v1alpha1")]}));
        usage.add(&json!({"namespace": "shop", "managedFields": [by("helm", "v1")]}));
        let finding = CrdChangeFinding {
            problem: crdguard::CrdChangeProblem::Invalid,
            version: "v1".to_owned(),
            path: "spec.size".to_owned(),
            why: "must be at most 10".to_owned(),
            objects: 7,
            examples: ["a-long-name", "another-long-name", "b"]
                .map(|name| GuardedObjectKey {
                    namespace: "shop".to_owned(),
                    name: name.to_owned(),
                })
                .into(),
        };
        let findings = vec![finding];
        let verdict = CrdChangeVerdict { findings, omitted: 0, judged: 7, total: 7 };
        let text = at_both_widths(|on| format!("{}\n{}", usage.text(on), text(&verdict, on)));
        expect_file!["goldens/crd.txt"].assert_eq(&text);
    }
}
