//! Prints or writes the output of the command: first manifests, then hooks, like Helm.
//!
//! Elsewhere: rendering manifests and hooks (`helm::manifests_and_helmignore`).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use golang::glob::path_match;
use helm::chart::crds;
use helm::manifests::{HookEvent, ReleaseHook, split};
use helm::render::ReleaseToRender;
use helm::template::{Error, RenderedRelease, text};

use super::flags::HelmTemplateFlags;
use super::local_machine_inputs::go_error;

/// The hint that Helm adds to an error if there are rendered manifests to show.
pub(super) const HINT: &str = "\n\nUse --debug flag to render out invalid YAML";

/// Prints a release, or writes it into files.
///
/// # Errors
/// A file cannot be written, or a template of `--show-only` rendered nothing.
pub(super) fn print(
    flags: &HelmTemplateFlags,
    release: &ReleaseToRender,
    rendered: &RenderedRelease,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let defined = if flags.include_crds { crds(&rendered.chart) } else { Vec::new() };
    let crds = defined.iter().map(|crd| (crd.path.as_str(), &*crd.file.data));
    let manifests = rendered.manifests.iter();
    let manifests = manifests.map(|it| (it.path.as_str(), it.content.as_bytes()));
    let Some(folder) = folder(flags, release) else {
        return finish(flags, None, text(crds.chain(manifests)), &rendered.hooks, out);
    };
    // Parity(helm 4): CRDs go into the folder itself, also with `--release-name`.
    let top = flags.output_dir.as_deref().unwrap_or_default();
    let hint = |error: String| match flags.debug {
        true => error,
        false => format!("{error}{HINT}"),
    };
    let mut written = BTreeSet::new();
    for (path, content) in crds {
        write(top, path, content, !written.insert(path), out).map_err(hint)?;
    }
    let mut written = BTreeSet::new();
    for (path, content) in manifests {
        write(&folder, path, content, !written.insert(path), out).map_err(hint)?;
    }
    finish(flags, Some(&folder), Vec::new(), &rendered.hooks, out)
}

/// Prints the rendered parts of a release that failed.
///
/// # Errors
/// The same errors as those of [`print`].
pub(super) fn print_partial(
    flags: &HelmTemplateFlags,
    release: &ReleaseToRender,
    error: &Error,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let Error::Manifests { error, files } = error else {
        return finish(flags, None, Vec::new(), &[], out);
    };
    let files = files.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
    let manifests = text(files.filter(|(_, content)| !trimmed(content).is_empty()));
    finish(flags, folder(flags, release).as_deref(), manifests, &error.before.hooks, out)
}

/// The folder to which the templates of a release are written. `None` if they are printed instead.
fn folder(flags: &HelmTemplateFlags, release: &ReleaseToRender) -> Option<String> {
    let folder = flags.output_dir.clone().filter(|folder| !folder.is_empty())?;
    Some(if flags.release_name { format!("{folder}/{}", release.name) } else { folder })
}

fn finish(
    flags: &HelmTemplateFlags,
    folder: Option<&str>,
    manifests: Vec<u8>,
    hooks: &[ReleaseHook],
    out: &mut Vec<u8>,
) -> Result<(), String> {
    // The manifests begin with a document marker or are empty, so only their end has to be trimmed.
    let mut all = manifests;
    all.truncate(trimmed(&all).len());
    all.push(b'\n');
    let is_shown =
        |hook: &&ReleaseHook| !(flags.skip_tests && hook.events.contains(&HookEvent::Test));
    for hook in hooks.iter().filter(|_| !flags.no_hooks).filter(is_shown) {
        match folder {
            None => all.extend(text([(hook.path.as_str(), hook.manifest.as_bytes())])),
            Some(folder) => {
                // Parity(helm 4): also a file that was there before is appended to.
                let is_there = Path::new(folder).join(&hook.path).exists();
                write(folder, &hook.path, hook.manifest.as_bytes(), is_there, out)?;
            }
        }
    }
    if flags.show_only.is_empty() {
        out.append(&mut all);
        return Ok(());
    }
    let documents = split(&all);
    let mut chosen = Vec::new();
    for pattern in &flags.show_only {
        let before = chosen.len();
        chosen.extend(documents.iter().filter(|document| {
            source(document).is_some_and(|path| path_match(pattern, path) == Ok(true))
        }));
        if chosen.len() == before {
            return Err(format!("could not find template {pattern} in chart"));
        }
    }
    for document in chosen {
        out.extend_from_slice(b"---\n");
        out.extend_from_slice(document);
        out.push(b'\n');
    }
    Ok(())
}

/// The path of a template in its chart, from the comment `# Source:` of a rendered document. `None` if there is no such
/// comment.
fn source(document: &[u8]) -> Option<&str> {
    const SOURCE_COMMENT_PREFIX: &[u8] = b"# Source: ";
    let found = document
        .windows(SOURCE_COMMENT_PREFIX.len())
        .enumerate()
        .filter(|(_, window)| *window == SOURCE_COMMENT_PREFIX);
    found.map(|(at, _)| &document[at + SOURCE_COMMENT_PREFIX.len()..]).find_map(|rest| {
        let slash = rest.iter().position(|byte| *byte == b'/').filter(|slash| *slash > 0)?;
        let path = rest[slash + 1..].split(|byte| *byte == b'\n').next()?;
        std::str::from_utf8(path).ok().filter(|path| !path.is_empty())
    })
}

/// Writes a manifest to a file, or appends it.
fn write(
    folder: &str,
    path: &str,
    content: &[u8],
    append: bool,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let file = format!("{folder}/{path}");
    let failed = |act: &str, error: std::io::Error| go_error(act, &file, &error);
    if let Some(parent) = Path::new(&file).parent() {
        let shown = parent.to_string_lossy();
        let failed = |act: &str, error: std::io::Error| go_error(act, &shown, &error);
        match std::fs::metadata(parent) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("stat", error));
            }
            _ => std::fs::create_dir_all(parent).map_err(|error| failed("mkdir", error))?,
        }
    }
    let mut options = std::fs::OpenOptions::new();
    if append {
        options.append(true);
    } else {
        options.write(true).create(true).truncate(true);
    }
    let mut opened = options.open(&file).map_err(|error| failed("open", error))?;
    let written = opened.write_all(&text([(path, content)]));
    written.map_err(|error| failed("write", error))?;
    out.extend_from_slice(format!("wrote {file}\n").as_bytes());
    Ok(())
}

/// Removes white space around a text.
fn trimmed(text: &[u8]) -> &[u8] {
    std::str::from_utf8(text).map_or_else(|_| text.trim_ascii(), |text| text.trim().as_bytes())
}
