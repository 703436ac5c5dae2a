//! Builds the chart of a release as chartify does: from a kustomization or plain manifests, with more dependencies, with
//! another namespace, or with patches.
//!
//! Here: the steps. Below: patches (`chartify/patch.rs`), dependencies (`chartify/dependencies.rs`), added files
//! (`chartify/file_tree_with_chart.rs`). Elsewhere: rendering templates (the caller, by [`HelmChartRenderer`]).

mod dependencies;
mod file_tree_with_chart;
mod patch;

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::work_meter::WorkMeter;
use goyaml::v3::{self, YamlLayout, YamlNode, YamlNodeKind};
use helm::chart::ChartFile;
use helm::ignore::HelmIgnoreRules;
use kustomize::{ALLOWED, BuildBudget, LoadRestriction, ObjectOrder, TreeBuildFiles};
use serde_json::{Value, json};

use crate::chart_reference_resolution::has_patches;
use crate::error::{Error, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::release_render_preparation::{ReleaseChartLocation, RenderCommandFlags, words};
use crate::spec::Release;
use crate::state_values_merge::ValuesMap;
use crate::template::TemplateStringRenderer;
use crate::working_directory::base;
use crate::yaml;
use file_tree_with_chart::FileTreeWithChartDirectory;
use golang::path::clean;

/// Renders the charts that a helmfile changes before they are installed.
pub trait HelmChartRenderer {
    /// The files that `helm template --output-dir` writes, each under the name of the chart.
    ///
    /// # Errors
    /// Helm's error.
    fn template(
        &self,
        request: &ChartRenderRequest<'_>,
    ) -> std::result::Result<Vec<(String, Vec<u8>)>, String>;
}

/// A chart to be rendered into files.
#[derive(Debug)]
pub struct ChartRenderRequest<'t> {
    /// The name of the release.
    pub name: &'t str,
    /// The name of the chart in messages.
    pub place: &'t str,
    /// The files of the chart.
    pub files: &'t [ChartFile],
    /// The content of values files. Later ones take precedence.
    pub values: &'t [Vec<u8>],
    /// Flags of `helm template`.
    pub flags: &'t [String],
}

/// The files of a chart that is being built.
pub(crate) type ChartFileTree = BTreeMap<String, Arc<[u8]>>;

/// The directories of a chart that are rendered.
const RENDERED: [&str; 3] = ["templates", "charts", "crds"];

fn is_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

impl Helmfile {
    /// Builds the chart of a release.
    pub(crate) fn chartified(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        options: &RenderCommandFlags,
        helm: &dyn HelmChartRenderer,
    ) -> Result<ReleaseChartLocation> {
        let chart = self.chart(release);
        let Some(directory) = self.chart_directory(release) else {
            return Err(format!(
                "the chart `{chart}` is not on the disk, so it can be neither patched nor extended: fetch it first and \
                 name the local directory"
            )
            .into());
        };
        let cleaned = clean(&directory);
        let name = base(&cleaned);
        let is_kustomization = self.is_kustomization(release);
        let mut tree =
            if is_kustomization { ChartFileTree::new() } else { self.place.walk(&directory)? };
        let is_chart = tree.contains_key("Chart.yaml");
        let mut namespace = release.force_namespace.as_str();
        if !is_chart {
            self.render_files(helmfile_environment, release, &directory, &mut tree)?;
            if is_kustomization {
                let built = self.kustomized(helmfile_environment, release, &directory)?;
                tree.insert("templates/kustomized.yaml".to_owned(), built.into_bytes().into());
            } else {
                move_manifests(&mut tree);
                if namespace.is_empty() {
                    namespace = &release.namespace;
                }
            }
            let version = if release.version.is_empty() { "1.0.0" } else { &release.version };
            let metadata = format!("name: {name:?}\nversion: {version}\napiVersion: v2\n");
            tree.insert("Chart.yaml".to_owned(), metadata.into_bytes().into());
            defer_rendering(&mut tree);
        }
        self.add_dependencies(release, &directory, options, &mut tree)?;
        let has_patches = has_patches(release);
        if is_chart && namespace.is_empty() && !has_patches {
            return finished(name, &tree);
        }
        let generated = self.replace_with_rendered(
            helmfile_environment,
            release,
            options,
            helm,
            name,
            &mut tree,
        )?;
        if !namespace.is_empty() {
            for (path, text) in &mut tree {
                if RENDERED.iter().any(|directory| is_below(path, directory)) {
                    let set = with_namespace(text, namespace).map_err(|error| error.at(path))?;
                    *text = set.into_bytes().into();
                }
            }
        }
        if has_patches && !generated.is_empty() {
            self.patch(helmfile_environment, release, &generated, &mut tree)?;
        }
        defer_rendering(&mut tree);
        finished(name, &tree)
    }

    /// Renders the `.gotmpl` files of a directory that is not a chart.
    fn render_files(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        directory: &str,
        tree: &mut ChartFileTree,
    ) -> Result<()> {
        let templates: Vec<String> =
            tree.keys().filter(|path| path.ends_with(".gotmpl")).cloned().collect();
        for path in templates {
            let Some(text) = tree.get(&path).cloned() else { continue };
            let data = self.release_data(release, &self.values);
            let renderer =
                TemplateStringRenderer::new(helmfile_environment, &self.place, directory, data);
            let rendered = renderer.render(&text).map_err(|error| error.at(&path))?;
            let target = path.strip_suffix(".gotmpl").unwrap_or(&path).to_owned();
            tree.insert(target, rendered.into());
        }
        Ok(())
    }

    /// The objects of a kustomization, which the values of the release may change.
    fn kustomized(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        directory: &str,
    ) -> Result<String> {
        if !release.set.is_empty() {
            return Err(crate::chart_reference_resolution::set_of_kustomization(&format!(
                "release \"{}\"",
                release.name
            )));
        }
        let mut asked = ValuesMap::new();
        for text in self.all_values(helmfile_environment, release)? {
            for (key, value) in yaml::read_map(&text)? {
                if matches!(key.as_str(), "images" | "namePrefix" | "nameSuffix" | "namespace") {
                    asked.insert(key, value);
                }
            }
        }
        if !release.namespace.is_empty() {
            asked.insert("namespace".to_owned(), release.namespace.as_str().into());
        }
        let absolute = self.place.absolute_of(directory)?;
        asked.insert("resources".to_owned(), json!([format!("..{absolute}")]));
        let kustomization = yaml::write_plain(&Value::Object(asked))?.into_bytes();
        let tree = ChartFileTree::from([("kustomization.yaml".to_owned(), kustomization.into())]);
        self.kustomize(helmfile_environment, tree, LoadRestriction::None)
    }

    /// Builds the kustomization at the root of a tree. The kustomization may refer to files around the tree.
    fn kustomize(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        tree: ChartFileTree,
        restriction: LoadRestriction,
    ) -> Result<String> {
        let options = kustomize::KustomizeBuildOptions {
            restriction,
            order: ObjectOrder::Legacy,
            plugins: true,
            ..kustomize::KustomizeBuildOptions::default()
        };
        self.built(helmfile_environment, tree, file_tree_with_chart::ROOT, &options)
    }

    /// Builds the kustomization of a directory, as `kubectl apply -k` does.
    pub(crate) fn kustomization(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        directory: &str,
    ) -> Result<String> {
        let absolute = self.place.absolute_of(directory)?;
        self.built(
            helmfile_environment,
            ChartFileTree::new(),
            &absolute,
            &kustomize::KustomizeBuildOptions::default(),
        )
    }

    fn built(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        tree: ChartFileTree,
        directory: &str,
        options: &kustomize::KustomizeBuildOptions,
    ) -> Result<String> {
        let files = TreeBuildFiles(FileTreeWithChartDirectory::new(self.place.files(), tree));
        let budget = BuildBudget::new(WorkMeter::new(ALLOWED, helmfile_environment.stop.clone()));
        let built = kustomize::build(&files, directory, options, &budget, &mut Vec::new());
        built.and_then(|built| built.yaml()).map_err(|error| error.to_string().into())
    }

    /// Replaces templates, CRDs and charts within a chart by their rendered manifests. Returns the paths of these manifests.
    fn replace_with_rendered(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        options: &RenderCommandFlags,
        helm: &dyn HelmChartRenderer,
        name: &str,
        tree: &mut ChartFileTree,
    ) -> Result<Vec<String>> {
        let mut values: Vec<Vec<u8>> = Vec::new();
        values.extend(tree.get("values.yaml").map(|text| text.to_vec()));
        for path in &options.values {
            values.push(self.place.read(path)?.to_vec());
        }
        values.extend(self.all_values(helmfile_environment, release)?);
        let mut flags = self.capability_flags(release, options);
        let only_set = Release { set: release.set.clone(), ..Release::default() };
        self.set_flags(helmfile_environment, &only_set, &mut flags)?;
        options.set.iter().for_each(|set| flags.extend(["--set".to_owned(), set.clone()]));
        if options.include_crds {
            flags.push("--include-crds".to_owned());
        }
        if self.skips_schema(release, options) {
            flags.push("--skip-schema-validation".to_owned());
        }
        flags.extend(words(&self.template_args(options)));
        let files = kept(tree)?;
        let request = ChartRenderRequest {
            name: &release.name,
            place: name,
            files: &files,
            values: &values,
            flags: &flags,
        };
        let rendered = helm.template(&request)?;
        tree.retain(|path, _| !RENDERED.iter().any(|directory| is_below(path, directory)));
        let mut generated = Vec::new();
        for (path, text) in rendered {
            // The path below the name of the chart.
            let Some((_, path)) = path.split_once('/') else { continue };
            let Some(directory) = RENDERED.iter().find(|directory| is_below(path, directory))
            else {
                continue;
            };
            let used = format!("files/{directory}");
            tree.retain(|path, _| !is_below(path, &used));
            generated.push((path.to_owned(), text));
        }
        for (path, text) in &generated {
            tree.insert(path.clone(), text.as_slice().into());
        }
        dependencies::remove_all(tree)?;
        Ok(generated.into_iter().map(|(path, _)| path).collect())
    }
}

/// Moves manifests to where templates are.
fn move_manifests(tree: &mut ChartFileTree) {
    let is_manifest = |path: &str| path.ends_with("yaml") || path.ends_with("yml");
    let directories: Vec<String> = tree
        .keys()
        .filter(|path| is_manifest(path))
        .filter_map(|path| path.rsplit_once('/').map(|(directory, _)| directory.to_owned()))
        .collect();
    let moved = std::mem::take(tree);
    for (path, text) in moved {
        if is_manifest(&path) {
            tree.insert(format!("templates/{path}"), text);
        } else if !directories.iter().any(|directory| is_below(&path, directory)) {
            tree.insert(path, text);
        }
    }
}

/// Moves rendered manifests to `files`, and adds templates that print them. Helm then does not render them a second time.
fn defer_rendering(tree: &mut ChartFileTree) {
    for (directory, target) in [("templates", "templates"), ("charts", "templates/charts")] {
        let paths: Vec<String> =
            tree.keys().filter(|path| is_below(path, directory)).cloned().collect();
        // Manifests of subcharts are already in the right place below `templates`.
        for path in
            paths.iter().filter(|path| directory == "charts" || !is_below(path, "templates/charts"))
        {
            let Some(text) = tree.remove(path) else { continue };
            let rest = path.strip_prefix(directory).unwrap_or_default();
            let print = format!("{{{{ .Files.Get \"files/{path}\" }}}}");
            tree.insert(format!("files/{path}"), text);
            tree.insert(format!("{target}{rest}"), print.into_bytes().into());
        }
    }
}

/// Sets the namespace of manifests that do not name one.
fn with_namespace(text: &[u8], namespace: &str) -> Result<String> {
    const LAYOUT: YamlLayout = YamlLayout { indent: 2, compact_sequences: false };
    let mut documents =
        v3::parse(text, &goyaml::YamlLimits::default()).map_err(|error| error.to_string())?;
    for document in &mut documents {
        let root = document.content.iter_mut().next();
        let metadata = root.and_then(|root| root.get_mut("metadata"));
        if let Some(metadata) = metadata.filter(|known| known.kind == YamlNodeKind::Mapping)
            && metadata.get("namespace").is_none()
        {
            metadata.content.push(YamlNode::string("namespace"));
            metadata.content.push(YamlNode::string(namespace));
        }
    }
    v3::emit_documents(&documents, &LAYOUT).map_err(|error| error.to_string().into())
}

/// The files of a chart that `.helmignore` keeps.
fn kept(tree: &ChartFileTree) -> Result<Vec<ChartFile>> {
    let rules = tree.get(".helmignore").map(|text| String::from_utf8_lossy(text).into_owned());
    let rules =
        HelmIgnoreRules::parse(&rules.unwrap_or_default()).map_err(|error| error.to_string())?;
    let is_ignored = |path: &str| {
        let directories = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        let mut directories = directories.map(|directory| rules.is_ignored(directory, true));
        directories.any(|is| is) || rules.is_ignored(path, false)
    };
    let files = tree.iter().filter(|(path, _)| *path == "Chart.yaml" || !is_ignored(path));
    Ok(files.map(|(path, data)| ChartFile { name: path.clone(), data: Arc::clone(data) }).collect())
}

pub(crate) fn finished(name: &str, tree: &ChartFileTree) -> Result<ReleaseChartLocation> {
    Ok(ReleaseChartLocation::Files { place: name.to_owned(), files: kept(tree)? })
}

/// The error about a file that a built chart needs.
fn unreadable(path: &str, error: impl ToString) -> Error {
    format!("{path}: {}", error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_set_where_there_is_none() {
        let text = "# Source: a\nkind: A\nmetadata:\n  name: a # x\n---\nkind: B\nmetadata: {namespace: own}\n";
        assert_eq!(
            with_namespace(text.as_bytes(), "n").unwrap(),
            "# Source: a\nkind: A\nmetadata:\n  name: a # x\n  namespace: n\n---\nkind: B\nmetadata: {namespace: own}\n"
        );
    }

    #[test]
    fn what_was_rendered_is_not_rendered_again() {
        let mut tree =
            ChartFileTree::from([("templates/a.yaml".to_owned(), b"{{ x }}".as_slice().into())]);
        defer_rendering(&mut tree);
        assert_eq!(
            tree.get("files/templates/a.yaml").map(|text| &**text),
            Some(b"{{ x }}".as_slice())
        );
        let print = b"{{ .Files.Get \"files/templates/a.yaml\" }}".as_slice();
        assert_eq!(tree.get("templates/a.yaml").map(|text| &**text), Some(print));
    }
}
