//! `windlass template`: renders a chart like `helm template`, with the same output, errors and exit status.
//!
//! Here: the steps. Elsewhere: flags (`template/flags.rs`, `template/ignored_flags.rs`), errors of the command line
//! (`template/usage_error.rs`), files (`template/local_machine_inputs.rs`), values (`template/values.rs`).
//! Also elsewhere: output (`template/output.rs`), explaining a failing template (`template/error_explanation.rs`), charts in
//! kustomizations (`template/kustomize_chart_render.rs`), `helm lint` (`template/chart_lint.rs`), rendering (engine `helm`).

mod chart_lint;
mod error_explanation;
mod flags;
mod ignored_flags;
mod kustomize_chart_render;
mod local_machine_inputs;
mod output;
mod usage_error;
mod values;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use golang::time::{GoTime, GoTimeZone};
use golang::work_meter::StopSignal;
use helm::RenderEnvironment;
use helm::capabilities::{Capabilities, KubeVersion};
use helm::chart::{ChartFile, validate};
use helm::render::{REQUIRED_STACK_BYTES, ReleaseToRender, RenderMode};
use helm::template::{self, RenderRequest};
use helm::warning::{HelmWarning, WarningLevel};

use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::time_limit;
use windlass_runtime::time_limit::TimeLimit;

pub(super) use chart_lint::{ChartToLint as LintedChart, lint_chart};
pub use flags::HelmTemplateFlags;
pub use kustomize_chart_render::{render as render_for_overlay, render_chart};
pub use usage_error::explain as explain_usage;

/// The output of the command.
#[derive(Debug, Default)]
struct PrintedTemplateOutput {
    stdout: Vec<u8>,
    warnings: Vec<HelmWarning>,
    /// The text after `Error: `, and the explanation for a user at a terminal.
    error: Option<(String, Option<String>)>,
}

/// Runs `windlass template` and prints its result. Returns the exit code of the command.
pub fn run(flags: HelmTemplateFlags) -> ExitCode {
    let is_debug = flags.debug;
    let notices = flags.other.notices.clone();
    // Deeply nested templates need a large stack.
    let thread = std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn(move || {
        let mut said = PrintedTemplateOutput::default();
        if let Err(failed) = render(&flags, None, &mut said) {
            said.error = Some(failed);
        }
        said
    });
    let said = thread
        .and_then(|thread| thread.join().map_err(|_| std::io::Error::other("rendering panicked")));
    let said = said.unwrap_or_else(|error| PrintedTemplateOutput {
        error: Some((error.to_string(), None)),
        ..PrintedTemplateOutput::default()
    });
    let mut text: String = notices.iter().map(|notice| format!("{notice}\n")).collect();
    for warning in &said.warnings {
        if is_debug || warning.level > WarningLevel::Debug {
            text.push_str(&warning.line_with_values());
            text.push('\n');
        }
    }
    if let Some((error, explanation)) = &said.error {
        text.push_str(&format!("Error: {error}\n"));
        text.push_str(explanation.as_deref().unwrap_or_default());
    }
    // If the streams are closed, the text cannot be shown anywhere.
    drop(std::io::stdout().lock().write_all(&said.stdout));
    drop(std::io::stderr().lock().write_all(text.as_bytes()));
    if said.error.is_some() { ExitCode::UpstreamError } else { ExitCode::Success }
}

/// Loads a chart from a folder or an archive.
///
/// # Errors
/// The error text of Helm.
pub fn load_chart(path: &std::path::Path) -> Result<helm::chart::Chart, String> {
    local_machine_inputs::load(path, &mut Vec::new())
}

/// An error as the command prints it: the text, and an explanation.
type TemplateCommandError = (String, Option<String>);

fn failed(error: impl ToString) -> TemplateCommandError {
    (error.to_string(), None)
}

/// The inputs of a render that is part of a kustomize build or a helmfile.
#[derive(Clone, Copy)]
struct EnclosingBuildInputs<'b> {
    /// Values with lower precedence than those of the flags. Later ones override earlier ones.
    values: &'b [Vec<u8>],
    /// The files of the chart, if it is not on the disk.
    chart: Option<&'b [ChartFile]>,
    /// Stops the whole build.
    stop: &'b StopSignal,
}

/// Renders a chart according to the flags, alone or as part of a build. As a part, it shares the time limit of the build.
fn render(
    flags: &HelmTemplateFlags,
    within: Option<EnclosingBuildInputs<'_>>,
    said: &mut PrintedTemplateOutput,
) -> Result<(), TemplateCommandError> {
    let kube_version = match flags.kube_version.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            KubeVersion::parse(text)
                .map_err(|error| (format!("invalid kube version '{text}': {error}"), None))?,
        ),
    };
    said.warnings.extend(flags.said().map_err(failed)?);
    let stop = within.map_or_else(StopSignal::default, |within| within.stop.clone());
    let _limit = within.is_none().then(|| TimeLimit::start(flags.time_limit, &stop));
    let env = RenderEnvironment { stop, ..env(flags, kube_version) };
    let done = render_in(flags, &env, within, said);
    done.map_err(|(error, explanation)| match env.stop.is_set() {
        true => (format!("{error}\n\n{}", time_limit::HINT), explanation),
        false => (error, explanation),
    })
}

/// Renders a chart according to the flags in an environment.
fn render_in(
    flags: &HelmTemplateFlags,
    env: &RenderEnvironment,
    within: Option<EnclosingBuildInputs<'_>>,
    said: &mut PrintedTemplateOutput,
) -> Result<(), TemplateCommandError> {
    said.warnings.push(
        HelmWarning::new(WarningLevel::Debug, "Original chart version")
            .with("version", flags.version.clone().unwrap_or_default()),
    );
    let (name, reference) = flags.name_and_chart(env).map_err(failed)?;
    let values = within.map(|within| within.values).unwrap_or_default();
    let (values, chart) = match within.and_then(|within| within.chart) {
        Some(files) => {
            let values = values::merged(flags, values).map_err(failed)?;
            let loaded = helm::chart::load::folder(&reference, files.to_vec()).map_err(failed)?;
            (values, loaded.chart)
        }
        None => {
            let path = local_machine_inputs::locate(&reference).map_err(failed)?;
            let shown = path.to_string_lossy().into_owned();
            said.warnings
                .push(HelmWarning::new(WarningLevel::Debug, "Chart path").with("path", shown));
            let values = values::merged(flags, values).map_err(failed)?;
            (values, local_machine_inputs::load(&path, &mut said.warnings).map_err(failed)?)
        }
    };
    validate::installable(&chart).map_err(failed)?;
    if chart.metadata.deprecated {
        said.warnings.push(HelmWarning::new(WarningLevel::Warn, "this chart is deprecated"));
    }
    validate::dependencies_present(&chart).map_err(failed)?;
    let release = ReleaseToRender {
        name,
        namespace: local_machine_inputs::namespace(flags),
        revision: 1,
        is_upgrade: flags.is_upgrade,
    };
    let request = RenderRequest {
        chart,
        values: &values,
        release: release.clone(),
        mode: RenderMode::default(),
        skip_schema: flags.skip_schema_validation,
        sub_notes: false,
        templates: None,
        post_render: None,
    };
    match template::render(request, env, &mut said.warnings) {
        Ok(rendered) => {
            let printed = output::print(flags, &release, &rendered, &mut said.stdout);
            // The process ends soon, so freeing the templates and manifests would only delay it.
            std::mem::forget(rendered);
            printed.map_err(failed)
        }
        Err(error) if flags.debug && error.is_of_release() => {
            // Parity(helm 4): what cannot be shown does not hide why.
            let printed = output::print_partial(flags, &release, &error, &mut said.stdout);
            drop(printed);
            Err((error.to_string(), error_explanation::error(&error)))
        }
        Err(error) if error.is_of_release() => {
            Err((format!("{error}{}", output::HINT), error_explanation::error(&error)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// The inputs of the templates: the time, random numbers, and the cluster that the flags describe.
fn env(flags: &HelmTemplateFlags, kube_version: Option<KubeVersion>) -> RenderEnvironment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let local = local_zone();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let nanos = i64::from(since.subsec_nanos());
    let mut capabilities = Capabilities::default();
    if let Some(version) = kube_version {
        capabilities.kube_version = version;
    }
    capabilities.api_versions.extend(flags.api_versions());
    RenderEnvironment {
        now: GoTime::from_unix(seconds, nanos, local.clone()),
        local,
        random: Arc::new(windlass_runtime::random_bytes::fill),
        capabilities: Arc::new(capabilities),
        cluster: None,
        stop: StopSignal::default(),
        names: flags.enable_dns.then(|| Arc::new(local_machine_inputs::HostNameResolver) as _),
    }
}

/// The namespace of a release: the given one, `HELM_NAMESPACE`, or the namespace of a kubeconfig context. An empty context
/// stands for the current one.
pub(super) fn namespace(given: &str, kubeconfig: Option<&str>, context: &str) -> String {
    let mut flags = HelmTemplateFlags::default();
    flags.namespace = Some(given.to_owned());
    flags.kubeconfig = kubeconfig.map(str::to_owned);
    flags.kube_context = Some(context.to_owned()).filter(|name| !name.is_empty());
    local_machine_inputs::namespace(&flags)
}

/// The time zone in `TZ`. UTC if it is not set.
pub(super) fn local_zone() -> GoTimeZone {
    match std::env::var("TZ") {
        Ok(name) if !name.is_empty() => GoTimeZone::load(name.trim_start_matches(':'))
            .unwrap_or_else(|_| GoTimeZone::fixed("UTC", 0)),
        _ => local_machine_inputs::zone_of_the_machine(),
    }
}
