//! `windlass helmfile`: prints what the program `helmfile` prints for helmfiles on the disk, and renders their releases.
//!
//! Here: the steps. Elsewhere: flags (`helmfile/flags.rs`), the disk (`helmfile/local_disk_files.rs`), the meaning of helmfiles
//! (engine `helmfile`), rendering a release (`template`).

mod deps;
mod diff;
mod flags;
mod lint;
mod local_disk_files;
mod local_key_decryptor;
mod local_program_runner;
mod registry_logins;
mod remote_fetcher;

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use golang::time::GoTime;
use golang::work_meter::StopSignal;
use helm::render::REQUIRED_STACK_BYTES;
use helmfile::{
    ChartRenderRequest, HelmChartRenderer, HelmfileHostEnvironment, HelmfilePlanSettings,
    HelmfileProcessingPlan, HelmfileReleaseToRender, PartialOutput, PrintEnvFormat, PrintOutput,
    ReleaseChartLocation, ReleaseListFormat, RemoteFetcher, RenderPurpose,
};

use super::template;
use flags::{HelmfileCommand, HelmfileEnvFormat, HelmfileListFormat};
use local_key_decryptor::LocalKeyDecryptor;
use local_program_runner::LocalProgramRunner;
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::time_limit;
use windlass_runtime::time_limit::TimeLimit;

pub use flags::HelmfileFlags;
pub(super) use local_disk_files::below;
pub(super) use remote_fetcher::HelmfileRemoteFetcher;

/// Runs `windlass helmfile` and prints its result. Returns the exit code of the command.
pub fn run(flags: HelmfileFlags) -> ExitCode {
    let settings = flags.settings();
    let allows_nothing = flags.allow_no_matching_release;
    let is_quiet = flags.quiet;
    let stop = StopSignal::default();
    let limit = TimeLimit::start(flags.time_limit, &stop);
    // Deeply nested templates need a large stack.
    let seen = stop.clone();
    let asked = settings.clone();
    let thread = std::thread::Builder::new()
        .stack_size(REQUIRED_STACK_BYTES)
        .spawn(move || print(&flags, &asked, &seen));
    let printed = thread
        .map_err(|error| error.to_string())
        .and_then(|thread| thread.join().unwrap_or_else(|_| Err("planning panicked".to_owned())));
    drop(limit);
    let mut said = String::new();
    let status = match printed {
        Ok(HelmfileCommandOutcome { printed, summary, ending }) => {
            drop(std::io::stdout().lock().write_all(printed.text.as_bytes()));
            if !is_quiet {
                said = printed
                    .warnings
                    .iter()
                    .map(|warning| format!("warning: {warning}\n"))
                    .collect();
                said.push_str(&summary);
            }
            match (ending, printed.has_releases) {
                (HelmfileCommandEnd::Failed(error), _) => {
                    said.push_str(&failure(&error, &stop));
                    ExitCode::UpstreamError
                }
                (HelmfileCommandEnd::Changed, _) => {
                    said.push_str("Identified at least one change\n");
                    ExitCode::HelmfileDiffChanged
                }
                (HelmfileCommandEnd::Done, true) => ExitCode::Success,
                (HelmfileCommandEnd::Done, false) => {
                    said.push_str(&format!(
                        "err: {}\n",
                        HelmfileProcessingPlan::nothing_matched(&settings)
                    ));
                    if allows_nothing {
                        ExitCode::Success
                    } else {
                        ExitCode::HelmfileNothingMatched
                    }
                }
            }
        }
        Err(error) => {
            said = failure(&error, &stop);
            ExitCode::UpstreamError
        }
    };
    // If stderr is closed, the text cannot be shown anywhere.
    drop(std::io::stderr().lock().write_all(said.as_bytes()));
    status
}

/// The text of an error for the user.
fn failure(error: &str, stop: &StopSignal) -> String {
    match stop.is_set() {
        true => format!("Error: {error}\n\n{}\n", time_limit::HINT),
        false => format!("Error: {error}\n"),
    }
}

/// The result of a command.
struct HelmfileCommandOutcome {
    printed: PrintOutput,
    /// The summary for the user at the end.
    summary: String,
    ending: HelmfileCommandEnd,
}

/// How a command ends after it has printed.
enum HelmfileCommandEnd {
    Done,
    /// The command failed.
    Failed(String),
    /// The command found changes, which the exit status reports.
    Changed,
}

impl From<PrintOutput> for HelmfileCommandOutcome {
    fn from(printed: PrintOutput) -> Self {
        Self { printed, summary: String::new(), ending: HelmfileCommandEnd::Done }
    }
}

impl HelmfileCommandOutcome {
    /// Keeps the output that was printed before an error.
    fn until_error(printed: PrintOutput, error: Option<String>) -> Self {
        let outcome = Self::from(printed);
        match error {
            Some(error) => Self { ending: HelmfileCommandEnd::Failed(error), ..outcome },
            None => outcome,
        }
    }
}

impl From<PartialOutput<PrintOutput>> for HelmfileCommandOutcome {
    fn from(printed: PartialOutput<PrintOutput>) -> Self {
        Self::until_error(printed.made, printed.error.map(|error| error.to_string()))
    }
}

fn print(
    flags: &HelmfileFlags,
    settings: &HelmfilePlanSettings,
    stop: &StopSignal,
) -> Result<HelmfileCommandOutcome, String> {
    let directory = std::env::current_dir().map_err(|error| error.to_string())?;
    let directory = directory.to_str().ok_or("the working directory is no UTF-8")?;
    let helmfile_environment = Arc::new(helmfile_environment(flags, settings, stop)?);
    let PartialOutput { made: plan, error } =
        HelmfileProcessingPlan::load_until_error(&helmfile_environment, directory, settings);
    let error = error.map(|error| error.to_string());
    if let Some(error) = &error
        && (plan.lacks_environment() || !flags.command.prints_until_error())
    {
        return Err(error.clone());
    }
    let mut outcome = run_command(plan, flags, stop)?;
    outcome.printed.warnings.extend(changing(&helmfile_environment));
    // A helmfile that was loaded is printed before the error of one that was not.
    if let (Some(error), HelmfileCommandEnd::Done) = (error, &outcome.ending) {
        outcome.ending = HelmfileCommandEnd::Failed(error);
    }
    Ok(outcome)
}

/// The releases of a helmfile, for other commands.
pub struct HelmfileReleaseList {
    /// The namespace and name of each release. The namespace is empty if the release names none.
    pub releases: Vec<(String, String)>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Lists the releases of the helmfile in a folder, which is an absolute path.
///
/// # Errors
/// The helmfile is not valid. The error says why.
pub fn listed(folder: &Path, environment: &str) -> Result<HelmfileReleaseList, String> {
    let folder = folder.to_str().ok_or("the path of the folder is no UTF-8")?.to_owned();
    let settings = HelmfilePlanSettings {
        environment: environment.to_owned(),
        ..HelmfilePlanSettings::default()
    };
    let work = move || {
        let helmfile_environment = Arc::new(
            on_disk(&StopSignal::default())
                .with_fetch(Arc::new(HelmfileRemoteFetcher::within(Duration::ZERO)?)),
        );
        let plan = HelmfileProcessingPlan::load(&helmfile_environment, &folder, &settings)
            .map_err(|error| error.to_string())?;
        let printed = plan.list(ReleaseListFormat::Json).map_err(|error| error.to_string())?;
        let mut warnings = printed.warnings;
        warnings.extend(changing(&helmfile_environment));
        let rows: Vec<serde_json::Value> =
            serde_json::from_str(&printed.text).map_err(|error| error.to_string())?;
        let text =
            |row: &serde_json::Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let is_wanted =
            |row: &&serde_json::Value| row["enabled"] == true && row["installed"] == true;
        let wanted = rows.iter().filter(is_wanted);
        let releases = wanted.map(|row| (text(row, "namespace"), text(row, "name"))).collect();
        Ok(HelmfileReleaseList { releases, warnings })
    };
    let thread = std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn(work);
    let thread = thread.map_err(|error| error.to_string())?;
    thread.join().unwrap_or_else(|_| Err("planning panicked".to_owned()))
}

/// Fetches everything that the releases of a helmfile use from other servers. Returns the number of releases, and warnings for
/// the user.
///
/// # Errors
/// The helmfile is not valid, or something cannot be fetched.
pub(super) fn fetch_all(
    folder: &Path,
    settings: HelmfilePlanSettings,
    fetch: Arc<dyn RemoteFetcher>,
) -> Result<(usize, Vec<String>), String> {
    let folder = folder.to_str().ok_or("the path of the folder is no UTF-8")?.to_owned();
    let work = move || {
        let stop = StopSignal::default();
        let helmfile_environment = Arc::new(on_disk(&stop).with_fetch(fetch));
        let plan = HelmfileProcessingPlan::load(&helmfile_environment, &folder, &settings)
            .map_err(|error| error.to_string())?;
        let options = helmfile::RenderCommandFlags {
            purpose: RenderPurpose::Apply,
            skip_needs: !settings.selectors.is_empty(),
            ..helmfile::RenderCommandFlags::default()
        };
        let all = plan
            .renderings(&options, &FolderChartRenderer(&stop))
            .map_err(|error| error.to_string())?;
        Ok((all.releases.len(), all.warnings))
    };
    let thread = std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn(work);
    let thread = thread.map_err(|error| error.to_string())?;
    thread.join().unwrap_or_else(|_| Err("planning panicked".to_owned()))
}

/// The warning that each run may print something else, because the helmfile reads changing values. `None` if it reads none.
fn changing(helmfile_environment: &HelmfileHostEnvironment) -> Option<String> {
    let drawn = helmfile_environment.drawn();
    (!drawn.is_empty()).then(|| {
        format!(
            "the helmfile uses {}, so each run can give another result: \
             pass such values with --state-values-file or --state-values-set",
            drawn.join(", ")
        )
    })
}

fn run_command(
    plan: HelmfileProcessingPlan,
    flags: &HelmfileFlags,
    stop: &StopSignal,
) -> Result<HelmfileCommandOutcome, String> {
    let printed = match &flags.command {
        HelmfileCommand::Build { embed_values } => {
            let temporary = std::env::temp_dir();
            let temporary = temporary.to_string_lossy();
            return Ok(plan.build_until_error(*embed_values, &temporary).into());
        }
        HelmfileCommand::List { output: HelmfileListFormat::Json, .. } => {
            plan.list(ReleaseListFormat::Json)
        }
        HelmfileCommand::List { output: HelmfileListFormat::Table, .. } => {
            plan.list(ReleaseListFormat::Table)
        }
        HelmfileCommand::ShowDag => return Ok(plan.show_dag_until_error().into()),
        HelmfileCommand::PrintEnv { output } => {
            let format = match output {
                HelmfileEnvFormat::Yaml => PrintEnvFormat::Yaml,
                HelmfileEnvFormat::Json => PrintEnvFormat::Json,
            };
            // The values of an environment do not depend on releases.
            let printed = plan.print_env(format);
            printed.map(|text| PrintOutput { text, has_releases: true, ..PrintOutput::default() })
        }
        HelmfileCommand::Template(given) => {
            return Ok(render(plan, &flags.options(given), stop));
        }
        HelmfileCommand::Deps(_) => return deps::run(&plan),
        HelmfileCommand::Diff(given) => return diff::run(plan, given, flags, stop),
        HelmfileCommand::Lint(given) => return Ok(lint::run(plan, &given.options(flags), stop)),
    };
    printed.map(HelmfileCommandOutcome::from).map_err(|error| error.to_string())
}

/// The inputs of the helmfile: the disk, the environment variables, the time, and random numbers.
fn helmfile_environment(
    flags: &HelmfileFlags,
    settings: &HelmfilePlanSettings,
    stop: &StopSignal,
) -> Result<HelmfileHostEnvironment, String> {
    let helmfile_environment = on_disk(stop);
    let helmfile_environment = match flags.allow_exec {
        true => helmfile_environment
            .with_programs(Arc::new(LocalProgramRunner::within(flags.time_limit, stop))),
        false => helmfile_environment,
    };
    let helmfile_environment =
        helmfile_environment.with_fetch(Arc::new(HelmfileRemoteFetcher::within(flags.time_limit)?));
    if settings.file != "-" {
        return Ok(helmfile_environment);
    }
    let mut stdin = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut stdin)
        .map_err(|error| format!("read /dev/stdin: {error}"))?;
    Ok(helmfile_environment.with_stdin(stdin.into()))
}

/// The inputs of a helmfile that fetches and runs nothing. Encrypted files are decrypted with the keys of the current user.
fn on_disk(stop: &StopSignal) -> HelmfileHostEnvironment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let local = template::local_zone();
    let now = GoTime::from_unix(seconds, i64::from(since.subsec_nanos()), local.clone());
    let text = |given: std::ffi::OsString| given.into_string().ok();
    let variables =
        std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
    let random = Arc::new(windlass_runtime::random_bytes::fill);
    HelmfileHostEnvironment::new(
        Arc::new(local_disk_files::LocalDiskFiles),
        variables.collect(),
        now,
        local,
        random,
    )
    .with_stop(stop.clone())
    .with_decrypt(Arc::new(LocalKeyDecryptor::new(stop)))
}

/// Renders the releases of a plan, as many at once as there are processors. Prints them in order until one fails.
fn render(
    plan: HelmfileProcessingPlan,
    options: &helmfile::RenderCommandFlags,
    stop: &StopSignal,
) -> HelmfileCommandOutcome {
    let PartialOutput { made: all, error } =
        plan.renderings_until_error(options, &FolderChartRenderer(stop));
    let mut printed = PrintOutput {
        warnings: all.warnings,
        has_releases: all.has_releases,
        ..PrintOutput::default()
    };
    for (release, text) in all.releases.iter().zip(side_by_side(&all.releases, stop)) {
        printed.text.extend(std::iter::repeat_n('\n', release.empty_lines));
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                return HelmfileCommandOutcome::until_error(
                    printed,
                    Some(failure_of(release, &error)),
                );
            }
        };
        printed.text.push_str(&String::from_utf8_lossy(&text));
        // Parity(helmfile 1.8): a line is added to what Helm prints, if that is anything.
        if !text.is_empty() {
            printed.text.push('\n');
        }
    }
    PartialOutput { made: printed, error }.into()
}

/// The error text of a release.
fn failure_of(release: &HelmfileReleaseToRender, error: &str) -> String {
    format!("{}: release \"{}\": {error}", release.trail, release.name)
}

/// Renders releases in parallel. The results have the order of the releases. Each is the manifest or the error text of a
/// release.
fn side_by_side(
    releases: &[HelmfileReleaseToRender],
    stop: &StopSignal,
) -> Vec<Result<Vec<u8>, String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(release) = releases.get(index) else { return done };
            done.push((index, rendered(release, stop)));
        }
    };
    let mut all: Vec<_> = releases.iter().map(|_| Err("rendering panicked".to_owned())).collect();
    std::thread::scope(|scope| {
        let most = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers: Vec<_> = (0..most.min(releases.len())).map(|_| scope.spawn(work)).collect();
        for (index, text) in workers.into_iter().filter_map(|it| it.join().ok()).flatten() {
            if let Some(place) = all.get_mut(index) {
                *place = text;
            }
        }
    });
    all
}

/// Renders charts into temporary folders.
struct FolderChartRenderer<'s>(&'s StopSignal);

impl HelmChartRenderer for FolderChartRenderer<'_> {
    fn template(&self, request: &ChartRenderRequest<'_>) -> Result<Vec<(String, Vec<u8>)>, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let shown = folder.path().to_string_lossy().into_owned();
        let mut args = vec![request.name.to_owned(), request.place.to_owned()];
        args.extend(request.flags.iter().cloned());
        args.push(format!("--output-dir={shown}"));
        template::render_chart(&args, request.values, Some(request.files), self.0)?;
        local_disk_files::below(folder.path()).map_err(|error| format!("{shown}: {error}"))
    }
}

fn rendered(release: &HelmfileReleaseToRender, stop: &StopSignal) -> Result<Vec<u8>, String> {
    let mut args = vec![release.name.clone()];
    let files = match &release.chart {
        ReleaseChartLocation::Path(path) => {
            args.push(path.clone());
            None
        }
        ReleaseChartLocation::Files { place, files } => {
            args.push(place.clone());
            Some(files.as_slice())
        }
        ReleaseChartLocation::Refused { why } => return Err(why.clone()),
    };
    args.extend(release.flags.iter().cloned());
    template::render_chart(&args, &release.values, files, stop)
}
