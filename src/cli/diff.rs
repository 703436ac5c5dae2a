//! `windlass diff`: what the next reconciliation of a Kustomization or HelmRelease would change, from a local folder or chart.
//!
//! Here: the command and its end. Below: a folder as the artifact of a source (`diff/checkout.rs`), comparing what each
//! kind builds (`diff/kustomization.rs`, `diff/helm_release.rs`), changes by field (`diff/change.rs`), the output
//! (`diff/shown.rs`). Elsewhere: building and rendering (`controllers`).

mod change;
mod checkout;
mod helm_release;
mod kustomization;
mod shown;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::{Args as ClapArgs, Command, FromArgMatches as _};
use objects::Object;
use reconcile::Rest;
use serde::de::DeserializeOwned;

use self::change::Difference;
use super::connection::{Mark, print, say};
use super::kind;
use super::output::{ReportFormat, report};
use super::place::{Place, Site};
use super::table::{Screen, clean};
use crate::cluster::Cluster;
use crate::controllers::hub::Hub;
use crate::controllers::object_watcher::ObjectWatcher;
use crate::controllers::reference::References;
use crate::metrics::Metrics;
use crate::settings::Settings;

/// The flags of `windlass diff`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Args {
    /// The Kustomization or HelmRelease
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME")]
    what: Vec<String>,
    /// Of a Kustomization: the local folder that is at spec.path of its source
    #[arg(long, value_name = "DIR", conflicts_with = "chart")]
    path: Option<PathBuf>,
    /// Of a HelmRelease: folder or archive of the chart
    #[arg(long, value_name = "PATH")]
    chart: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
    /// Flags with which `windlass serve` runs in the cluster; by default none
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<String>,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass diff ks/app -n apps --path ./deploy/app      what a push of this folder would change
  windlass diff hr/web -n apps --chart ./charts/web     what this chart would change
  windlass diff ks/app --path . -o json                 changes, objects and fields for machines
  windlass diff ks/app --path . -- --feature-gates=StrictPostBuildSubstitutions=true

The spec is that of the cluster, and so are the ConfigMaps and Secrets that it names. Everything is built or rendered as
windlass does it, and each object is compared by a dry-run of the API server in the name of the field manager of windlass.
Nothing is written. Values of Secrets are printed as ****.

Where the end of DIR is spec.path, files beside DIR, such as ../base, are those of the checkout. Files that .sourceignore
excludes are not read, nor are symbolic links.

Not covered: remote bases, spec.kubeConfig, `spec.ignore` of the source, and what the guard of CustomResourceDefinitions
decides (see `windlass crd diff`). Of a HelmRelease: hooks, the CRDs in crds/, valuesFiles, the digest in the version of a
chart from a registry, and a release that is installed again because its name or namespace changed. An upgrade is
compared, which windlass does only if chart, values or post-renderers changed. Requests are made as the user of the
kubeconfig, whatever spec.serviceAccountName says. Fields that are taken over from other tools are noted, not predicted.

Exit status: 0 if nothing would change; 1 if something would; 2 if something could not be read, built or compared; 3 if the
cluster cannot be reached.";

/// How many objects that cannot be compared are named.
const PROBLEMS: usize = 20;

/// Prints what would change.
///
/// # Errors
/// It cannot be built or compared.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = settings(&args.flags)?;
    let difference = args.place.run(async |site| compare(&site, args, settings).await)?;
    for problem in difference.problems.iter().take(PROBLEMS) {
        say(Mark::Failure, &clean(problem));
    }
    if let Some(more) = difference.problems.len().checked_sub(PROBLEMS).filter(|more| *more > 0) {
        say(Mark::Failure, &format!("{more} more objects cannot be compared"));
    }
    if report(&difference.changes, args.output)?.is_none() {
        print(&shown::text(&difference, Screen::of_stdout()))?;
    }
    Ok(match (difference.problems.is_empty(), difference.changes.is_empty()) {
        (false, _) => ExitCode::from(super::FAILED),
        (true, false) => ExitCode::from(super::FOUND),
        (true, true) => ExitCode::SUCCESS,
    })
}

/// The flags of the operator, which decide about builds, too.
fn settings(flags: &[String]) -> anyhow::Result<Settings> {
    let command = Settings::augment_args(Command::new("serve").no_binary_name(true));
    let flags = flags.iter().filter(|flag| *flag != "serve");
    let matches = command.try_get_matches_from(flags);
    let settings = matches.and_then(|matches| Settings::from_arg_matches(&matches));
    Ok(settings.context("the flags behind `--` are not those of `windlass serve`")?.normalized())
}

async fn compare(site: &Site, args: &Args, settings: Settings) -> anyhow::Result<Difference> {
    let target = kind::one(&site.cluster, &args.what).await?;
    let gvk = &target.resource.gvk;
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("kustomize.toolkit.fluxcd.io", "Kustomization") => {
            ensure!(args.chart.is_none(), "--chart is for HelmReleases; use --path");
            let folder = args.path.as_deref();
            let folder = folder.context("name the folder of spec.path with --path")?;
            let object = typed(kind::read(site, &target).await?)?;
            kustomization::diff(&site.cluster, object, folder, settings).await
        }
        ("helm.toolkit.fluxcd.io", "HelmRelease") => {
            ensure!(args.path.is_none(), "--path is for Kustomizations; use --chart");
            let chart = args.chart.as_deref().context("name the chart with --chart")?;
            let object = typed(kind::read(site, &target).await?)?;
            helm_release::diff(&site.cluster, object, chart, settings).await
        }
        _ => bail!("{} is not a Kustomization or HelmRelease", gvk.kind),
    }
}

fn typed<K: DeserializeOwned>(object: Object) -> anyhow::Result<K> {
    let subject = object.id().subject();
    serde_json::from_value(object.into_value()).with_context(|| format!("{subject} cannot be read"))
}

/// What specs name, read from a cluster as a run reads it, and not watched.
fn references(cluster: &Cluster) -> References {
    let hub = Arc::new(Hub::new(Metrics::new()));
    References::new(&ObjectWatcher::new(cluster.clone(), hub, BTreeMap::new()))
}

/// What the status of a run would say.
fn told(rest: Rest) -> anyhow::Error {
    anyhow::anyhow!(rest.text().to_owned())
}

/// Says that a suspended object is not reconciled.
fn say_suspended(is_suspended: bool) {
    if is_suspended {
        say(Mark::Warning, "it is suspended: nothing changes before it is resumed");
    }
}

/// Kustomizations and templates within each other cost stack.
const STACK: usize = 64 << 20;

/// Does work on a thread with a large stack. Meanwhile others may wait for the cluster.
async fn on_large_stack<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().stack_size(STACK.max(helm::render::STACK));
    thread.spawn(move || tell.send(work()).ok()).context("cannot start a thread")?;
    told.await.context("the build panicked; this is a bug in windlass, please report it")
}
