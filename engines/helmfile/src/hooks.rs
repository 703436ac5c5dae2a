//! Hooks that apply manifests (`kubectlApply`), as far as a controller supports them. Reads their manifests, and rejects hooks
//! that are not supported.
//!
//! Elsewhere: hooks with commands, which are never run (`chart_reference_resolution.rs`); applying the manifests (the caller).

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::remote_address::RemoteAddress;
use crate::spec::{Hook, Release};
use crate::template::{TemplateStringRenderer, hook_data};
use golang::path::join;

/// The most bytes in the manifests of all hooks of a plan.
pub(crate) const MAX_HOOK_MANIFEST_BYTES: usize = 8 << 20;

/// Extra bytes that count for each path and file, so that the number of empty files is limited, too.
const FILE_OVERHEAD_BYTES: usize = 4 << 10;

/// When the manifests of a hook are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestHookTime {
    /// Before a Helm operation on the release: `preapply` and `presync`.
    Before,
    /// After a Helm operation on the release: `postsync`.
    After,
}

/// The manifests of one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestHook {
    /// The name of the hook.
    pub name: String,
    /// When the manifests are applied.
    pub when: ManifestHookTime,
    /// Manifests as YAML.
    pub manifests: String,
}

/// The name of a hook.
pub(crate) fn name(hook: &Hook) -> &str {
    match (hook.name.is_empty(), hook.kubectl.is_empty()) {
        (false, _) => &hook.name,
        (true, false) => "kubectlApply",
        (true, true) => &hook.command,
    }
}

/// When the hooks of an event run. The error says why the event is not supported.
///
/// Differs(helmfile): in helmfile, `preapply` hooks of all releases run before the first operation; here, each runs right
/// before the operation on its own release.
fn when(event: &str) -> std::result::Result<ManifestHookTime, &'static str> {
    Err(match event {
        "preapply" | "presync" => return Ok(ManifestHookTime::Before),
        "postsync" => return Ok(ManifestHookTime::After),
        "prepare" => "because charts are read without any effect on the cluster: use `presync`",
        "cleanup" => "because it belongs to no operation of Helm: use `postsync`",
        "preuninstall" | "postuninstall" => {
            "because a release that is uninstalled has mostly left the helmfile: use a `pre-delete` or \
             `post-delete` hook of the chart"
        }
        _ => "because helmfile has no such event: use `presync` or `postsync`",
    })
}

impl Helmfile {
    /// Rejects hooks that are not supported for releases in a cluster.
    ///
    /// # Errors
    /// The first such hook, and an alternative.
    pub(crate) fn refuse_hooks(&self, release: &Release) -> Result<()> {
        for hook in release.hooks.iter().chain(&self.spec.hooks) {
            if hook.kubectl.is_empty() {
                return Err(format!(
                    "the hook `{}` is not supported, because it runs a program: use `kubectlApply`, a hook of the \
                     chart or a Job",
                    name(hook)
                )
                .into());
            }
        }
        if let Some(hook) = self.spec.hooks.first() {
            return Err(format!(
                "the hook `{}` is not supported, because it belongs to the whole helmfile: list it under `hooks` of a \
                 release, with the event `presync` or `postsync`",
                name(hook)
            )
            .into());
        }
        for hook in &release.hooks {
            for event in &hook.events {
                if let Err(why) = when(event) {
                    return Err(format!(
                        "the event `{event}` of the hook `{}` is not supported, {why}",
                        name(hook)
                    )
                    .into());
                }
            }
        }
        Ok(())
    }

    /// The manifests that the hooks of a release apply, in order for each event. `left` is the number of bytes that are still
    /// allowed.
    ///
    /// # Errors
    /// A template or a file cannot be read, or the manifests are too large.
    pub(crate) fn manifest_hooks(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        left: &mut usize,
    ) -> Result<Vec<ManifestHook>> {
        let mut all = Vec::new();
        for event in ["preapply", "presync", "postsync"] {
            let Ok(when) = when(event) else { continue };
            for hook in release.hooks.iter().filter(|it| it.events.iter().any(|own| own == event)) {
                let failed = |error: Error| error.at(&format!("hook[{}]", name(hook)));
                let manifests = self
                    .applied(helmfile_environment, release, hook, event, left)
                    .map_err(failed)?;
                all.push(ManifestHook { name: name(hook).to_owned(), when, manifests });
            }
        }
        Ok(all)
    }

    fn applied(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        hook: &Hook,
        event: &str,
        left: &mut usize,
    ) -> Result<String> {
        let data = hook_data(self.release_fields(release, &self.values), event);
        let renderer =
            TemplateStringRenderer::new(helmfile_environment, &self.place, &self.base, data);
        let documents = match (hook.kubectl.get("filename"), hook.kubectl.get("kustomize")) {
            (Some(_), Some(_)) => {
                return Err("kustomize & filename cannot be used together".into());
            }
            (None, None) => return Err("either kustomize or filename must be given".into()),
            (Some(names), None) => {
                let mut documents = Vec::new();
                // As in kubectl, one flag may list several files.
                for path in renderer.render_text(names)?.split(',') {
                    spend(FILE_OVERHEAD_BYTES, left)?;
                    self.read_manifests(path, left, &mut documents)?;
                }
                documents
            }
            (None, Some(path)) => {
                let path = renderer.render_text(path)?;
                refuse_address(&path)?;
                let built = self.kustomization(helmfile_environment, &self.beside(&path))?;
                spend(built.len(), left)?;
                vec![built]
            }
        };
        Ok(documents.join("\n---\n"))
    }

    /// A path that is relative to the helmfile.
    fn beside(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { join(&self.base, path) }
    }

    /// Reads the manifests of a file, or of all files in a directory, like `kubectl apply -f`.
    fn read_manifests(
        &self,
        path: &str,
        left: &mut usize,
        documents: &mut Vec<String>,
    ) -> Result<()> {
        refuse_address(path)?;
        let path = self.beside(path);
        let mut files = vec![path.clone()];
        if self.place.is_directory(&path) {
            let names = self.place.list(&path)?.into_iter().map(|(name, _)| join(&path, &name));
            let is_manifest = |path: &String| {
                let ending = path.rsplit_once('.').map(|(_, ending)| ending);
                matches!(ending, Some("json" | "yaml" | "yml")) && self.place.is_file(path)
            };
            files = names.filter(is_manifest).collect();
            if files.is_empty() {
                return Err(
                    format!("`{path}` has no file that ends in .json, .yaml or .yml").into()
                );
            }
        }
        for file in files {
            let read = self.place.read(&file)?;
            spend(read.len().saturating_add(FILE_OVERHEAD_BYTES), left)?;
            documents.push(String::from_utf8_lossy(&read).into_owned());
        }
        Ok(())
    }
}

fn refuse_address(path: &str) -> Result<()> {
    let is_address = RemoteAddress::parse(path).is_some() || path.contains("://");
    if is_address {
        return Err("addresses of manifests are not supported: put the file into the source".into());
    }
    Ok(())
}

fn spend(bytes: usize, left: &mut usize) -> Result<()> {
    match left.checked_sub(bytes) {
        Some(rest) => *left = rest,
        None => {
            return Err(format!(
                "the manifests of hooks have more than {MAX_HOOK_MANIFEST_BYTES} bytes, of which each path and each file counts {FILE_OVERHEAD_BYTES}"
            )
            .into());
        }
    }
    Ok(())
}
