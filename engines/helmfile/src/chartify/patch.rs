//! Applies `jsonPatches`, `strategicMergePatches` and `transformers` of a release. The rendered manifests of its chart become
//! resources of a kustomization.

use std::sync::Arc;

use kustomize::LoadRestriction;
use serde_json::{Value, json};

use super::{ChartFileTree, RENDERED, is_below};
use crate::error::Result;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::secret_references;
use crate::spec::Release;
use crate::state_values_merge::{ListMergeMode, ValuesMap, merge};
use crate::template::TemplateStringRenderer;
use crate::working_directory::parent;
use crate::yaml;

/// Temporary directories that a build adds to the files of the chart, and that are removed afterwards.
const SCAFFOLD: [&str; 3] = ["strategicmergepatches", "jsonpatches", "transformer-patch-files"];

impl Helmfile {
    /// Patches the rendered files. Afterwards there are two files: one with all resources, and one with all CRDs.
    pub(super) fn patch(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        generated: &[String],
        tree: &mut ChartFileTree,
    ) -> Result<()> {
        let mut patches = Vec::new();
        for (index, entry) in release.json_patches.iter().enumerate() {
            let Some(text) = self.patch_text(helmfile_environment, release, entry)? else {
                continue;
            };
            patches.push(json_patch(index, &text, tree)?);
        }
        for (index, entry) in release.strategic_merge_patches.iter().enumerate() {
            let Some(text) = self.patch_text(helmfile_environment, release, entry)? else {
                continue;
            };
            let path = format!("strategicmergepatches/patch.{index}.yaml");
            tree.insert(path.clone(), text.into());
            patches.push(json!({ "path": path }));
        }
        let mut transformers = Vec::new();
        for (index, entry) in release.transformers.iter().enumerate() {
            let Some(text) = self.patch_text(helmfile_environment, release, entry)? else {
                continue;
            };
            let text = self.with_files(text, tree)?;
            let path = format!("transformers/transformer.{index}.yaml");
            tree.insert(path.clone(), text.into());
            transformers.push(path);
        }
        let kustomization =
            json!({ "resources": generated, "patches": patches, "transformers": transformers });
        let text = yaml::write_plain(&kustomization)?;
        let mut build = tree.clone();
        build.insert("kustomization.yaml".to_owned(), text.into_bytes().into());
        let built = self.kustomize(helmfile_environment, build, LoadRestriction::RootOnly)?;
        tree.retain(|path, _| {
            !RENDERED.iter().chain(&SCAFFOLD).any(|directory| is_below(path, directory))
        });
        let mut resources = String::new();
        let mut crds = String::new();
        for document in built.split("\n---\n") {
            let map = yaml::read_map(document.as_bytes())?;
            let is_crd =
                map.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition");
            let target = if is_crd { &mut crds } else { &mut resources };
            target.push_str(document.trim_end_matches('\n'));
            target.push_str("\n---\n");
        }
        // CRDs stay where the author of the chart has put them.
        let are_templates = generated.iter().any(|path| is_below(path, "templates/crds"));
        let target = if are_templates {
            "templates/crds/patched_crds.yaml"
        } else {
            "crds/patched_crds.yaml"
        };
        for (path, text) in [(target, crds), ("templates/patched_resources.yaml", resources)] {
            if !text.is_empty() {
                tree.insert(path.to_owned(), text.into_bytes().into());
            }
        }
        Ok(())
    }

    /// The text of an entry, which is a file or written out.
    pub(crate) fn patch_text(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        entry: &Value,
    ) -> Result<Option<Vec<u8>>> {
        let Value::String(path) = entry else {
            // Parity(helmfile 1.8): references are followed in files only.
            if secret_references::any(entry) {
                return Err("a patch has a reference to a secret, which is followed in files only: put the patch into a file"
                    .into());
            }
            return Ok(Some(yaml::write_plain(entry)?.into_bytes()));
        };
        let own = release.missing_file_handler.as_deref();
        let handler = own.or(self.spec.missing_file_handler.as_deref());
        let files = self.storage().resolve(handler, "values", path)?;
        let file = match files.as_slice() {
            [] => return Ok(None),
            [file] => file,
            _ => return Err(format!("`{path}` matches several files, where one is wanted").into()),
        };
        // Templates of patches also see the values of the release.
        let mut values = self.values.clone();
        for text in self.release_values(helmfile_environment, release)? {
            merge(&mut values, &yaml::read_map(&text)?, ListMergeMode::Sparse);
        }
        let data = self.release_data(release, &values);
        let renderer =
            TemplateStringRenderer::new(helmfile_environment, &self.place, &parent(file), data);
        let text = renderer
            .file(file)
            .map_err(|error| error.at(&format!("failed to render \"{path}\"")))?;
        secret_references::expand_file(helmfile_environment, &self.place, text).map(Some)
    }

    /// A transformer with the files that its `path` names, which are copied.
    pub(crate) fn with_files(&self, text: Vec<u8>, tree: &mut ChartFileTree) -> Result<Vec<u8>> {
        let Ok(documents) = yaml::documents(&text) else { return Ok(text) };
        let mut out = Vec::new();
        let mut is_changed = false;
        for document in &documents {
            let mut value = yaml::value(document)?;
            let maps: Vec<&mut ValuesMap> = match &mut value {
                Value::Object(map) => vec![map],
                Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).collect(),
                _ => Vec::new(),
            };
            for map in maps {
                let named = map.get("path").and_then(Value::as_str).filter(|path| !path.is_empty());
                let Some(path) = named.filter(|path| self.place.is_file(path)).map(str::to_owned)
                else {
                    continue;
                };
                let copy = format!("transformer-patch-files/{path}").replace("../", "up/");
                tree.insert(copy.clone(), self.place.read(&path)?);
                map.insert("path".to_owned(), copy.into());
                is_changed = true;
            }
            out.push(yaml::write_plain(&value)?);
        }
        Ok(if is_changed { out.join("---\n").into_bytes() } else { text })
    }
}

/// An entry of `patches` of a kustomization for a patch of JSON.
fn json_patch(index: usize, text: &[u8], tree: &mut ChartFileTree) -> Result<Value> {
    let mut map = yaml::read_map(text)?;
    let target = map.remove("target").unwrap_or_default();
    let path = match (map.get("path").and_then(Value::as_str), map.get("patch")) {
        // Parity(chartify): a path leads into the copy of the chart.
        (Some(path), _) if !path.is_empty() => path.to_owned(),
        (_, Some(Value::Array(operations))) if !operations.is_empty() => {
            let path = format!("jsonpatches/patch.{index}.yaml");
            let text = yaml::write_plain(&Value::Array(operations.clone()))?;
            tree.insert(path.clone(), text.into_bytes().into());
            path
        }
        _ => return Err(format!("jsonPatches[{index}] has neither `path` nor `patch`").into()),
    };
    Ok(json!({ "target": target, "path": path }))
}
