//! `windlass build`: works like `kustomize build`, with the same flags, messages and exit status. It can also build an object
//! of the cluster.
//!
//! Below: charts (`build/charts.rs`), objects of the cluster (`build/cluster_object.rs`). Elsewhere: building (`kustomize`),
//! reading the disk (`sources::workstation_build_files`).

mod charts;
mod cluster_object;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args as ClapArgs;
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use kustomize::{
    BuildBudget, BuiltObject, HelmOptions, KustomizeBuildOptions, KustomizeBuildOutput,
    KustomizeBuildWarning, LoadRestriction, ObjectOrder,
};
use sources::workstation_build_files::{self, WorkstationBuildFiles};

use super::complete;
use windlass_cli_runtime::connection::print;
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::time_limit;
use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};

/// The default load restrictor.
const ROOT_ONLY: &str = "LoadRestrictionsRootOnly";

/// The default Helm program.
const HELM: &str = "helm";

/// The default network of functions, which has no effect.
const BRIDGE: &str = "bridge";

/// The flags of `kustomize build`, and those for objects of the cluster.
#[derive(Debug, ClapArgs)]
pub(super) struct BuildArgs {
    /// Directory of the kustomization; or a Kustomization or HelmRelease of the cluster, such as ks/app
    #[arg(value_name = "DIR|KIND/NAME", add = complete::directories_and_objects())]
    dirs: Vec<String>,
    /// Write to this file, or one file per object to this directory
    #[arg(short, long, value_name = "PATH", default_value = "")]
    output: String,
    /// Files that a kustomization may load: those below its directory with `LoadRestrictionsRootOnly`, all with
    /// `LoadRestrictionsNone`
    #[arg(long, value_name = "RESTRICTOR", default_value = ROOT_ONLY)]
    load_restrictor: String,
    /// Order of objects: `legacy` or `none` [deprecated: use `sortOptions`]
    #[arg(long, value_name = "ORDER", hide = true)]
    reorder: Option<String>,
    /// Label all objects with `app.kubernetes.io/managed-by` [deprecated: use `buildMetadata`]
    #[arg(long, hide = true)]
    enable_managedby_label: bool,
    /// Enable kustomize plugins; other plugins than the builtin ones are not supported
    #[arg(long)]
    enable_alpha_plugins: bool,
    /// Render the charts of `helmCharts`
    #[arg(long)]
    enable_helm: bool,
    /// Path to helm, which fetches charts from repositories
    #[arg(long, value_name = "PATH", default_value = HELM)]
    helm_command: String,
    /// API version in `.Capabilities.APIVersions` of charts; may be repeated
    #[arg(long, value_name = "VERSION")]
    helm_api_versions: Vec<String>,
    /// Kubernetes version in `.Capabilities.KubeVersion` of charts
    #[arg(long, value_name = "VERSION", default_value = "")]
    helm_kube_version: String,
    /// Print the output of helm when it fails
    #[arg(long)]
    helm_debug: bool,
    /// Maximum duration of the build; 0 for no limit
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = time_limit::parse)]
    time_limit: Duration,
    #[command(flatten)]
    functions: IgnoredKustomizeFunctionFlags,
    #[command(flatten)]
    object: cluster_object::BuildObjectFlags,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass build ./deploy/app                   a kustomization, as `kustomize build` does
  windlass build ks/app -n apps                 what windlass applies for a Kustomization
  windlass build ks/app --path ./deploy/app     the same with the files of a local folder
  windlass build hr/web -n apps                 what windlass releases for a HelmRelease, with its hooks
  windlass build hr/web --chart ./charts/web    the same with a local chart

An object of the cluster is built or rendered with the ConfigMaps, Secrets and values of the cluster. Without --path or
--chart, the artifact of its source is read: from its URL, or through the API server where a Service has it. Values of
Secrets are printed as ****. A directory that has the name of an object is meant before the object.

Exit status: that of `kustomize build`; of an object, 2 if it cannot be built, 3 if the cluster cannot be reached.";

/// Flags for functions in containers, which have no effect as none are run.
#[derive(Debug, PartialEq, Eq, ClapArgs)]
struct IgnoredKustomizeFunctionFlags {
    /// No effect: functions are not run
    #[arg(long)]
    enable_exec: bool,
    /// No effect: functions are not run
    #[arg(long)]
    network: bool,
    /// No effect: functions are not run
    #[arg(long, value_name = "NAME", default_value = BRIDGE)]
    network_name: String,
    /// No effect: functions are not run
    #[arg(long, value_name = "MOUNT")]
    mount: Vec<String>,
    /// No effect: functions are not run
    #[arg(short, long, value_name = "VARIABLE")]
    env: Vec<String>,
    /// No effect: functions are not run
    #[arg(long)]
    as_current_user: bool,
}

/// Builds, prints the result, and prints errors.
///
/// # Errors
/// An object of the cluster cannot be built. Errors of kustomizations are printed in the words of kustomize.
#[expect(clippy::print_stderr, reason = "the command's own messages are what scripts read")]
pub(super) fn run(args: &mut BuildArgs) -> anyhow::Result<ExitCode> {
    if let Some(words) = cluster_object::named(&args.dirs) {
        let text = cluster_object::build(&args.object, &words)?;
        put(&text, &args.output)?;
        return Ok(ExitCode::Success);
    }
    Ok(match cluster_object::refuse(&args.object).and_then(|()| build(args)) {
        Ok(()) => ExitCode::Success,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::UpstreamError
        }
    })
}

fn build(args: &mut BuildArgs) -> anyhow::Result<()> {
    let options = options(args)?;
    let path = match args.dirs.as_slice() {
        [] => ".",
        [path] => path,
        _ => bail!("specify one path to kustomization.yaml"),
    };
    let mut warnings = Vec::new();
    let stop = StopSignal::default();
    let limit = TimeLimit::start(args.time_limit, &stop);
    let command = args.helm_command.as_str();
    let disk = WorkstationBuildFiles::default();
    let files = charts::ChartBuildFiles { command, disk, limit: &limit, stop: stop.clone() };
    // The limit of steps is a time limit that works on every machine. So another time limit also turns off the limit of steps.
    let allowance = match args.time_limit == TIME_LIMIT {
        true => kustomize::ALLOWED,
        false => WorkAllowance { steps: u64::MAX, ..kustomize::ALLOWED },
    };
    let budget = BuildBudget::new(WorkMeter::new(allowance, stop));
    let built = kustomize::build(&files, path, &options, &budget, &mut warnings);
    warnings.iter().for_each(warn);
    write(built.map_err(with_flag)?, &args.output)
}

/// If the time limit ended the build, adds the flag that raises it.
fn with_flag(error: kustomize::Error) -> anyhow::Error {
    if error.is_time_over() {
        return anyhow!("{error}\n\n{}", time_limit::HINT);
    }
    error.into()
}

fn options(args: &mut BuildArgs) -> anyhow::Result<KustomizeBuildOptions> {
    let restriction = match args.load_restrictor.as_str() {
        "" | ROOT_ONLY => LoadRestriction::RootOnly,
        "LoadRestrictionsNone" => LoadRestriction::None,
        other => bail!(
            "illegal flag value --load-restrictor {other}; legal values: [LoadRestrictionsRootOnly \
             LoadRestrictionsNone]"
        ),
    };
    if args.reorder.is_some() {
        deprecated("reorder", "use the new 'sortOptions' field in kustomization.yaml instead.");
    }
    if args.enable_managedby_label {
        deprecated(
            "enable-managedby-label",
            "The flag `enable-managedby-label` has been deprecated. Use the `managedByLabel` option in the \
             `buildMetadata` field instead.",
        );
    }
    let order = match args.reorder.as_deref() {
        None | Some("legacy") => ObjectOrder::Legacy,
        Some("none") => ObjectOrder::AsRead,
        Some(other) => bail!("illegal flag value --reorder {other}; legal values: [legacy none]"),
    };
    let is_labelled_by_default =
        std::env::var("KUSTOMIZE_ENABLE_MANAGEDBY_LABEL").is_ok_and(|value| value == "on");
    Ok(KustomizeBuildOptions {
        restriction,
        order,
        is_order_explicit: args.reorder.is_some(),
        managed_by_label: args.enable_managedby_label || is_labelled_by_default,
        plugins: args.enable_alpha_plugins,
        helm: HelmOptions {
            is_enabled: args.enable_helm || args.enable_alpha_plugins,
            kube_version: std::mem::take(&mut args.helm_kube_version),
            api_versions: std::mem::take(&mut args.helm_api_versions),
            debug: args.helm_debug,
        },
        keeps_builtin_schema: false,
    })
}

#[expect(clippy::print_stderr, reason = "what kustomize says of deprecated flags")]
fn deprecated(flag: &str, advice: &str) {
    eprintln!("Flag --{flag} has been deprecated, {advice}");
}

#[expect(clippy::print_stderr, reason = "warnings go where kustomize prints them")]
fn warn(warning: &KustomizeBuildWarning) {
    match warning {
        KustomizeBuildWarning::Advice(text) => eprintln!("{text}"),
        KustomizeBuildWarning::Lost(text) => eprintln!("# Warning: {text}"),
        KustomizeBuildWarning::Log(line) => {
            let now = jiff::Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string();
            eprintln!("{now} {line}");
        }
    }
}

/// Writes the result to the output, to a file, or to one file for each object.
fn write(built: KustomizeBuildOutput, output: &str) -> anyhow::Result<()> {
    if !output.is_empty() && Path::new(output).is_dir() {
        return write_each(&built.into_objects().map_err(with_flag)?, Path::new(output));
    }
    let text = built.yaml().map_err(with_flag)?;
    // The process ends soon, so freeing the nodes would only delay it.
    std::mem::forget(built);
    put(&text, output)
}

/// Writes a text to standard output or to a file.
fn put(text: &str, output: &str) -> anyhow::Result<()> {
    if output.is_empty() {
        return print(text);
    }
    std::fs::write(output, text)
        .map_err(|error| anyhow!("open {output}: {}", workstation_build_files::reason(&error)))
}

fn write_each(objects: &[BuiltObject], dir: &Path) -> anyhow::Result<()> {
    let namespaced = objects.iter().filter(|object| !object.id.is_cluster_scoped);
    let namespaces: BTreeSet<&str> =
        namespaced.map(|object| object.id.effective_namespace()).collect();
    for BuiltObject { id, value } in objects {
        let kind = id.gvk.without_empty_parts().to_lowercase();
        let mut name = format!("{kind}_{}.yaml", id.name.to_lowercase());
        if namespaces.len() > 1 && !id.is_cluster_scoped {
            name = format!("{}_{name}", id.effective_namespace().to_lowercase());
        }
        let path = dir.join(name);
        let text = goyaml::emit::emit(value).map_err(|error| anyhow!("{error}"))?;
        std::fs::write(&path, text).map_err(|error| {
            anyhow!("open {}: {}", path.display(), workstation_build_files::reason(&error))
        })?;
    }
    Ok(())
}
