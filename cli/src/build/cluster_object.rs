//! `windlass build KIND/NAME`: prints the objects that windlass applies for an object of the cluster.
//!
//! Elsewhere: building and rendering (`render`).

use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args as ClapArgs;
use objects::{Object, SecretMasking};
use serde_json::Value;

use crate::command_scope::{ClusterScope, CommandScope, shown};
use crate::kind_argument;
use crate::render::{BuildFilesOrigin, BuildableKind, helm_release, kustomization};
use windlass_cli_runtime::trailing_serve_flags::settings;

/// Flags for objects of the cluster.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct BuildObjectFlags {
    /// Of a Kustomization of the cluster: a local folder instead of that at spec.path of its source
    #[arg(long, value_name = "DIR", conflicts_with = "chart")]
    path: Option<PathBuf>,
    /// Of a HelmRelease of the cluster: a local folder or archive instead of the chart of its source
    #[arg(long, value_name = "PATH")]
    chart: Option<PathBuf>,
    #[command(flatten)]
    place: ClusterScope,
    /// Flags with which `windlass serve` runs in the cluster, for its objects; by default none
    #[arg(last = true, value_name = "FLAG")]
    flags: Vec<String>,
}

/// The API groups of the kinds that can be built.
const GROUPS: [&str; 2] = ["kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"];

/// The object that the arguments name. `None` if they name a directory.
pub(super) fn named(arguments: &[String]) -> Option<Vec<String>> {
    let first = arguments.first()?;
    let kind = match (first.split_once('/'), arguments.len()) {
        (Some((kind, _)), 1) if !Path::new(first).exists() => kind,
        (None, 2) => first,
        _ => return None,
    };
    let kind = kind.to_lowercase();
    let is_built = |names: &&crds::KindNames| GROUPS.contains(&names.group);
    let mut words = crds::names().filter(is_built).flat_map(|names| {
        kind_argument::words(names).flat_map(|word| [format!("{word}.{}", names.group), word])
    });
    words.any(|word| word == kind).then(|| arguments.to_vec())
}

/// Refuses flags for cluster objects if a directory is built.
///
/// # Errors
/// Such a flag is given.
pub(super) fn refuse(flags: &BuildObjectFlags) -> anyhow::Result<()> {
    let is_given = flags.path.is_some() || flags.chart.is_some() || !flags.flags.is_empty();
    ensure!(!is_given, "--path, --chart and flags behind `--` are for objects, such as ks/app");
    Ok(())
}

/// The manifests of an object.
///
/// # Errors
/// The object cannot be built.
pub(super) fn build(flags: &BuildObjectFlags, words: &[String]) -> anyhow::Result<String> {
    let settings = settings(&flags.flags)?;
    flags.place.run(async |site: CommandScope| {
        let target = kind_argument::one(&site.cluster, words).await?;
        let object = kind_argument::read(&site, &target).await?;
        let is_release = BuildableKind::of(&object)? == BuildableKind::HelmRelease;
        let local = match (is_release, &flags.path, &flags.chart) {
            (true, Some(_), _) => bail!("--path is for Kustomizations; use --chart"),
            (false, _, Some(_)) => bail!("--chart is for HelmReleases; use --path"),
            (true, None, chart) => chart.as_ref(),
            (false, path, None) => path.as_ref(),
        };
        let given = BuildFilesOrigin::of(local, &object)?;
        if is_release {
            let it = helm_release::render_release(&site.cluster, object, &given, settings).await?;
            return text(it.definitions.iter().chain(&it.objects).chain(&it.hooks), &it.secrets);
        }
        let built = kustomization::build(&site.cluster, object, &given, settings).await?;
        text(built.manifests().map(|it| &it.object), &built.desired_kustomization.secrets)
    })
}

/// Objects as YAML documents, with the values of Secrets masked.
fn text<'o>(
    objects: impl Iterator<Item = &'o Object>,
    secrets: &SecretMasking,
) -> anyhow::Result<String> {
    let mut out = String::new();
    for object in objects {
        let mut value = shown(object.clone()).into_value();
        mask(&mut value, secrets);
        let begin = if out.is_empty() { "" } else { "---\n" };
        out.push_str(&format!("{begin}{}", goyaml::emit_with_escapes(&value)?));
    }
    Ok(out)
}

/// Masks every text in a value.
fn mask(value: &mut Value, secrets: &SecretMasking) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => *text = secrets.mask(text),
            Value::Array(items) => pending.extend(items),
            Value::Object(fields) => pending.extend(fields.values_mut()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_distinguished_from_directories() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            named(&words).is_some()
        };
        for words in [["ks/app"], ["HelmRelease/web"], ["kustomizations/a/b"]] {
            assert!(of(&words), "{words:?}");
        }
        assert!(of(&["hr", "web"]) && of(&["helmrelease.helm.toolkit.fluxcd.io/web"]));
        for words in [&["."][..], &["deploy/app"], &["ks"], &[], &["a", "b"], &["gitrepo/app"]] {
            assert!(!of(words), "{words:?}");
        }
    }

    #[test]
    fn nothing_of_a_secret_is_printed() {
        let object = |value: Value| Object::new(value).unwrap();
        let secret =
            object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "stringData": {"password": "hunter2-and-more"}}));
        let map =
            object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"},
            "data": {"url": "https://user:hunter2-and-more@host"}}));
        let secrets = SecretMasking::new([b"hunter2-and-more".to_vec()]);
        let text = text([&secret, &map].into_iter(), &secrets).unwrap();
        assert!(!text.contains("hunter2") && text.matches("****").count() == 2, "{text}");
        assert_eq!(text.matches("---\n").count(), 1);
    }
}
