//! Lints a chart like `helm lint`, with arguments and values that are not in files.
//!
//! Elsewhere: the lint rules (`helm::lint`), choosing the charts (`helmfile`).

use std::path::Path;

use clap::{Args as _, Command, FromArgMatches as _};
use golang::work_meter::StopSignal;
use helm::RenderEnvironment;
use helm::capabilities::KubeVersion;
use helm::chart::{ChartFile, load};
use helm::lint::{LintSeverity, LintSubject};
use helm::render::REQUIRED_STACK_BYTES;

use super::{HelmTemplateFlags, local_machine_inputs, values};

/// A chart to be linted.
#[derive(Debug)]
pub(crate) struct ChartToLint<'c> {
    /// The name of the chart in the output.
    pub(crate) shown: &'c str,
    /// The directory or archive of the chart.
    pub(crate) path: &'c str,
    /// The files of the chart, if they differ from the directory.
    pub(crate) files: Option<&'c [ChartFile]>,
}

/// The output of Helm for a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LintReport {
    /// Standard output.
    pub(crate) text: String,
    /// Whether there is an error. With `--strict`, a warning counts, too.
    pub(crate) is_failed: bool,
}

/// Lints a chart with the flags of `helm lint` and with values as YAML strings. Later values override earlier ones.
///
/// # Errors
/// A flag or a value cannot be used, or a directory cannot be read.
pub(crate) fn lint_chart(
    chart: &ChartToLint<'_>,
    args: &[String],
    strings: &[Vec<u8>],
    stop: &StopSignal,
) -> Result<LintReport, String> {
    let has = |name: &str| args.iter().any(|arg| arg == name);
    if has("--with-subcharts") {
        return Err(
            "`--with-subcharts` is not supported: lint these charts by themselves".to_owned()
        );
    }
    let own = ["--strict", "--quiet"];
    let others = args.iter().filter(|arg| !own.contains(&arg.as_str()));
    let command = HelmTemplateFlags::augment_args(Command::new("lint").no_binary_name(true));
    let flags = command
        .try_get_matches_from(others)
        .and_then(|it| HelmTemplateFlags::from_arg_matches(&it));
    let flags =
        flags.map_err(|error| super::explain_usage(&error).unwrap_or_else(|| error.to_string()))?;
    let kube_version = match flags.kube_version.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            KubeVersion::parse(text)
                .map_err(|error| format!("invalid kube version '{text}': {error}"))?,
        ),
    };
    let env =
        RenderEnvironment { stop: stop.clone(), names: None, ..super::env(&flags, kube_version) };
    let subject = LintSubject {
        place: chart.path,
        files: match chart.files {
            Some(files) => files.to_vec(),
            None => read(Path::new(chart.path))?,
        },
        values: &values::merged(&flags, strings)?,
        namespace: &local_machine_inputs::namespace(&flags),
        skip_schema: flags.skip_schema_validation,
    };
    let least = if has("--strict") { LintSeverity::Warning } else { LintSeverity::Error };
    on_large_stack(|| linted(chart.shown, &subject, &env, least, has("--quiet")))
}

/// Runs work on a thread with a stack that is large enough for templates.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| error.to_string())?;
        thread.join().map_err(|_| "linting panicked".to_owned())
    })
}

/// The files of a directory or an archive.
fn read(path: &Path) -> Result<Vec<ChartFile>, String> {
    if path.is_dir() {
        return local_machine_inputs::all(path);
    }
    let bytes = std::fs::read(path).map_err(|error| {
        format!(
            "unable to open tarball: {}",
            local_machine_inputs::go_error("open", &path.to_string_lossy(), &error)
        )
    })?;
    load::archive_entries(&bytes).map_err(|error| format!("unable to extract tarball: {error}"))
}

fn linted(
    shown: &str,
    subject: &LintSubject<'_>,
    env: &RenderEnvironment,
    least: LintSeverity,
    is_quiet: bool,
) -> LintReport {
    let mut text = format!("==> Linting {shown}\n");
    let (is_failed, is_clean) = match helm::lint::lint(subject, env, &mut Vec::new()) {
        Ok(messages) => {
            for message in &messages {
                if !is_quiet || message.severity > LintSeverity::Info {
                    text.push_str(&format!("{message}\n"));
                }
            }
            let worst = messages.iter().map(|message| message.severity).max();
            (worst >= Some(least), worst <= Some(LintSeverity::Info))
        }
        Err(error) => {
            text.push_str(&format!("Error {error}\n"));
            (true, false)
        }
    };
    if is_quiet && is_clean {
        return LintReport { text: String::new(), is_failed };
    }
    text.push('\n');
    if !is_failed {
        text.push_str("1 chart(s) linted, 0 chart(s) failed\n");
    }
    LintReport { text, is_failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str =
        "apiVersion: v2\nname: app\nversion: 1.0.0\nicon: https://example.com/a.png\n";

    fn lint(template: &str, args: &[&str]) -> Result<LintReport, String> {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        std::fs::create_dir(top.join("templates")).unwrap();
        std::fs::write(top.join("Chart.yaml"), METADATA).unwrap();
        std::fs::write(top.join("values.yaml"), "").unwrap();
        std::fs::write(top.join("templates/a.yaml"), template).unwrap();
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let chart = ChartToLint { shown: "./app", path: top.to_str().unwrap(), files: None };
        lint_chart(&chart, &args, &[b"name: given".to_vec()], &StopSignal::default())
    }

    #[test]
    fn a_chart_is_linted_with_its_values() {
        const OBJECT: &str = "kind: A\nmetadata: {name: '{{ .Values.name }}'}\n";
        let whole = "==> Linting ./app\n\n1 chart(s) linted, 0 chart(s) failed\n";
        let linted = lint(OBJECT, &[]).unwrap();
        assert_eq!((linted.text.as_str(), linted.is_failed), (whole, false));
        assert_eq!(lint(OBJECT, &["--quiet"]).unwrap().text, "");
        let linted = lint(OBJECT, &["--set", "name=Not_a_name"]).unwrap();
        assert!(linted.text.contains("[WARNING] templates/a.yaml: object name"), "{}", linted.text);
        assert!(!linted.is_failed);
        let linted = lint(OBJECT, &["--set", "name=Not_a_name", "--strict"]).unwrap();
        assert!(linted.is_failed && !linted.text.contains("1 chart"), "{}", linted.text);
    }

    #[test]
    fn what_cannot_be_linted_is_an_error() {
        assert!(lint("{{ nope }}", &[]).unwrap().is_failed);
        assert!(lint("", &["--with-subcharts"]).unwrap_err().contains("--with-subcharts"));
        assert!(lint("", &["--no-such-flag"]).is_err());
        let chart = ChartToLint { shown: "x", path: "/no/such/chart.tgz", files: None };
        let error = lint_chart(&chart, &[], &[], &StopSignal::default()).unwrap_err();
        assert!(error.contains("unable to open tarball"), "{error}");
    }
}
