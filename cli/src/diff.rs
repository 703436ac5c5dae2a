//! `windlass diff`: prints what the next reconciliation of a Kustomization or HelmRelease would change. The files come from its
//! source, or from a local folder or chart.
//!
//! Here: the command and its exit code. Below: the output (`diff/format.rs`). Elsewhere: comparing (`windlass_answers::diff`),
//! building and rendering (`windlass_answers::render`).

mod format;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args as ClapArgs;
use objects::Object;
use windlass_answers::diff::{self, DiffReport};

use super::command_scope::{ClusterScope, CommandScope};
use super::complete;
use super::kind_argument;
use super::output::{ReportFormat, report};
use super::render::BuildableKind;
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, clean};
use windlass_cli_runtime::trailing_serve_flags::settings;
use windlass_serve::settings::OperatorSettings;

/// The flags of `windlass diff`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct DiffArgs {
    /// The Kustomization or HelmRelease
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = complete::objects())]
    what: Vec<String>,
    /// Of a Kustomization: a local folder instead of that at spec.path of its source
    #[arg(long, value_name = "DIR", conflicts_with = "chart")]
    path: Option<PathBuf>,
    /// Of a HelmRelease: a local folder or archive instead of the chart of its source
    #[arg(long, value_name = "PATH")]
    chart: Option<PathBuf>,
    #[command(flatten)]
    place: ClusterScope,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
    /// Flags with which `windlass serve` runs in the cluster; by default none
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<String>,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass diff ks/app -n apps                          what the next reconciliation would change
  windlass diff ks/app -n apps --path ./deploy/app      what a push of this folder would change
  windlass diff hr/web -n apps --chart ./charts/web     what this chart would change
  windlass diff ks/app --path . -o json                 changes, objects and fields for machines
  windlass diff ks/app --path . -- --feature-gates=StrictPostBuildSubstitutions=true

The spec is that of the cluster, and so are the ConfigMaps and Secrets that it names. Everything is built or rendered as
windlass does it, and each object is compared by a dry-run of the API server in the name of the field manager of windlass.
Nothing is written. Values of Secrets are printed as ****.

Without --path or --chart, the artifact of the source is read: from its URL, or through the API server (as `kubectl proxy`
does, which takes the right to get services/proxy) where a Service of the cluster has it.

Where the end of DIR is spec.path, files beside DIR, such as ../base, are those of the checkout. Files that .sourceignore
excludes are not read, nor are symbolic links.

Not covered: remote bases, files that only Vault or the KMS of a cloud decrypts, spec.kubeConfig, and what the guard of
CustomResourceDefinitions decides (see `windlass crd diff`); with --path, `spec.ignore` of the source. Of a HelmRelease:
hooks, the CRDs in crds/, and a release that is installed again because its name or namespace changed; with --chart,
valuesFiles and the digest in the version of a chart from a registry. An upgrade is compared, which windlass does only
if chart, values or post-renderers changed. Requests are made as the user of the kubeconfig, whatever
spec.serviceAccountName says. Fields that are taken over from other tools are predicted by another dry-run, for which
this user needs the right to update the object; without it they are only noted.

Exit status: 0 if nothing would change; 1 if something would; 2 if something could not be read, built or compared; 3 if the
cluster cannot be reached.";

/// The maximum number of named objects that cannot be compared.
const MAX_NAMED_PROBLEMS: usize = 20;

/// Prints the predicted changes.
///
/// # Errors
/// The object cannot be built or compared.
pub(super) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let settings = settings(&args.flags)?;
    let (difference, keeps_drift) = args.place.run(async |site| {
        let target = kind_argument::one(&site.cluster, &args.what).await?;
        let object = kind_argument::read(&site, &target).await?;
        let local = match BuildableKind::of(&object)? {
            BuildableKind::Kustomization => {
                ensure!(args.chart.is_none(), "--chart is for HelmReleases; use --path");
                args.path.as_ref()
            }
            BuildableKind::HelmRelease => {
                ensure!(args.path.is_none(), "--path is for Kustomizations; use --chart");
                args.chart.as_ref()
            }
        };
        if object.get("spec").is_some_and(|spec| spec["suspend"] == true) {
            say(ProgressGlyph::Warning, "it is suspended: nothing changes before it is resumed");
        }
        // If a source fails, windlass compares its last artifact.
        if let Some(said) = cause::condition(&object, "Ready").filter(|it| it.status == "False") {
            say(ProgressGlyph::Warning, &clean(&format!("it is not ready: {}", said.message)));
        }
        let keeps_drift = local.is_none() && keeps_drift(&object);
        anyhow::Ok((predict(&site, object, local, settings).await?, keeps_drift))
    })?;
    let found = tell(&difference, args.output)?;
    if found == ExitCode::ProblemsFound && keeps_drift {
        say(ProgressGlyph::Warning, KEPT);
    }
    Ok(found)
}

/// Whether manual changes by users stay until the next upgrade.
fn keeps_drift(object: &Object) -> bool {
    let mode = object.get("spec").map(|spec| spec["driftDetection"]["mode"].clone());
    object.kind() == "HelmRelease" && mode.is_none_or(|it| it != "enabled")
}

/// The remark if manual changes may be the whole difference.
const KEPT: &str = "without spec.driftDetection.mode `enabled`, what differs only because it was changed by hand stays \
    until the next upgrade";

/// Predicts what the next reconciliation of an object would change, and prints the warnings of the build.
///
/// # Errors
/// The object cannot be built or compared.
pub(super) async fn predict(
    site: &CommandScope,
    object: Object,
    local: Option<&PathBuf>,
    settings: OperatorSettings,
) -> anyhow::Result<DiffReport> {
    let mut warn = |text: &str| say(ProgressGlyph::Warning, &clean(text));
    diff::predict(site, object, local, settings, &mut warn).await
}

/// Prints the predicted changes. Returns the exit code, which says whether there are any.
///
/// # Errors
/// The reader of the output has closed it.
pub(super) fn tell(difference: &DiffReport, format: ReportFormat) -> anyhow::Result<ExitCode> {
    for problem in difference.problems.iter().take(MAX_NAMED_PROBLEMS) {
        say(ProgressGlyph::Failure, &clean(problem));
    }
    if let Some(more) =
        difference.problems.len().checked_sub(MAX_NAMED_PROBLEMS).filter(|more| *more > 0)
    {
        say(ProgressGlyph::Failure, &format!("{more} more objects cannot be compared"));
    }
    if report(&difference.changes, format)?.is_none() {
        print(&format::text(difference, TerminalScreen::of_stdout()))?;
    }
    Ok(match (difference.problems.is_empty(), difference.changes.is_empty()) {
        (false, _) => ExitCode::Failed,
        (true, false) => ExitCode::ProblemsFound,
        (true, true) => ExitCode::Success,
    })
}
