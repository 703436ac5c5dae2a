//! Merges the values of a release from its values files and flags, as Helm does.
//!
//! Elsewhere: the list of files and flags (`release_render_preparation.rs`), the meaning of each flag (`helm::strvals`).

use golang::value::{GoMap, GoString};
use helm::chart::read_values;
use helm::strvals::{SetValueMode, set};
use helm::values::over;
use tree::{FileTree, RelPath};

/// The flags of a release that are about more than values.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ExtraReleaseFlags {
    /// Whether values are not validated against the schema of the chart.
    pub skips_schema: bool,
}

/// Merges the values of a release from values files and flags of `helm template`. Later values files take precedence.
///
/// # Errors
/// Values cannot be read, or a flag needs an external program.
pub fn merged(
    values_files: &[Vec<u8>],
    flags: &[String],
    files: &dyn FileTree,
) -> Result<(GoMap, ExtraReleaseFlags), String> {
    let mut all = GoMap::default();
    for text in values_files {
        let read = read_values(text).map_err(|error| format!("failed to parse values: {error}"))?;
        all = over(&all, &read);
    }
    let mut more = ExtraReleaseFlags::default();
    let mut sets: [Vec<&str>; 3] = Default::default();
    let mut rest = flags.iter();
    while let Some(flag) = rest.next() {
        let mut value = || rest.next().map(String::as_str).ok_or(format!("{flag} has no value"));
        match flag.as_str() {
            "--set" => sets[0].push(value()?),
            "--set-string" => sets[1].push(value()?),
            "--set-file" => sets[2].push(value()?),
            // The caller knows the cluster and the namespace of the release better than these flags.
            "--namespace" | "--kube-version" | "--api-versions" => drop(value()?),
            "--skip-schema-validation" => more.skips_schema = true,
            // Hosts are looked up only if the flag of the process allows it.
            "--enable-dns" => {}
            other => {
                return Err(format!(
                    "the flag `{other}` of `helmDefaults.args` or of the release is not supported: use the key of \
                     the helmfile or the values instead"
                ));
            }
        }
    }
    let [typed, strings, of_files] = sets;
    for text in typed {
        let done = set(&all, text, SetValueMode::Typed);
        done.map_err(|error| format!("failed parsing --set data: {error}"))?;
    }
    for text in strings {
        let done = set(&all, text, SetValueMode::Strings);
        done.map_err(|error| format!("failed parsing --set-string data: {error}"))?;
    }
    for text in of_files {
        let mut from = |path: &str| read(files, path).map(GoString::from);
        let done = set(&all, text, SetValueMode::File(&mut from));
        done.map_err(|error| format!("failed parsing --set-file data: {error}"))?;
    }
    Ok((all, more))
}

fn read(files: &dyn FileTree, path: &str) -> Result<Vec<u8>, String> {
    let at = RelPath::parse(path.trim_start_matches('/')).map_err(|error| error.to_string())?;
    let read = files.read(&at).map_err(|error| format!("open {path}: {error}"))?;
    Ok(read.to_vec())
}
