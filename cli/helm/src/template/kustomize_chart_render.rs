//! Renders charts in kustomizations, with the arguments of `helm template` and with values that are not in files.
//!
//! Elsewhere: choosing the arguments (`windlass build`).

use clap::{Args as _, Command, FromArgMatches as _};
use golang::work_meter::StopSignal;
use helm::chart::ChartFile;
use helm::render::REQUIRED_STACK_BYTES;

use super::{EnclosingBuildInputs, HelmTemplateFlags, PrintedTemplateOutput};

/// Returns the output of `helm template` for these arguments and values. `stop` can end the rendering.
///
/// # Errors
/// The error message of `helm template`. With `--debug`, the message also contains the manifests that were already rendered.
pub fn render(args: &[String], values: &[u8], stop: &StopSignal) -> Result<Vec<u8>, String> {
    render_chart(args, &[values.to_vec()], None, stop)
}

/// Renders like [`render`], with several YAML strings of values and a chart that need not be on the disk. Later values override
/// earlier ones.
///
/// # Errors
/// The same errors as those of [`render`].
pub fn render_chart(
    args: &[String],
    values: &[Vec<u8>],
    chart: Option<&[ChartFile]>,
    stop: &StopSignal,
) -> Result<Vec<u8>, String> {
    let command = HelmTemplateFlags::augment_args(Command::new("template").no_binary_name(true));
    let flags =
        command.try_get_matches_from(args).and_then(|it| HelmTemplateFlags::from_arg_matches(&it));
    let flags =
        flags.map_err(|error| super::explain_usage(&error).unwrap_or_else(|| error.to_string()))?;
    let mut said = PrintedTemplateOutput::default();
    // Deeply nested templates need a large stack.
    let done = std::thread::scope(|scope| {
        let work =
            || super::render(&flags, Some(EnclosingBuildInputs { values, chart, stop }), &mut said);
        let thread =
            std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn_scoped(scope, work);
        thread.map_err(|error| (error.to_string(), None)).and_then(|thread| {
            let broken = |_| ("rendering panicked".to_owned(), None);
            thread.join().map_err(broken).and_then(|done| done)
        })
    });
    match done {
        Ok(()) => Ok(said.stdout),
        Err((error, _)) if flags.debug => {
            let template = String::from_utf8_lossy(&said.stdout);
            Err(format!("{error}\nHelm template:\n{template}"))
        }
        Err((error, _)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_build_is_that_of_its_charts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n");
        file("templates/a.yaml", "{{ range until 100000 }}{{ end }}a: b\n");
        let args = ["app".to_owned(), folder.path().display().to_string()];
        let stop = StopSignal::default();
        let rendered = render(&args, b"{}", &stop).unwrap();
        assert!(String::from_utf8_lossy(&rendered).contains("a: b"));
        stop.set();
        let error = render(&args, b"{}", &stop).unwrap_err();
        assert!(error.contains(windlass_cli_runtime::time_limit::HINT), "{error}");
    }
}
