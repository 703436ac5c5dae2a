//! Loads the values of an environment: merges a list of files and maps into one map.

use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::hcl;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_paths::HelmfilePaths;
use crate::named_environment::NamedEnvironment;
use crate::state_values_merge::{ListMergeMode, ValuesMap, merge, overlay};
use crate::template::{TemplateStringRenderer, environment_data};
use crate::working_directory::{WorkingDirectory, parent};
use crate::yaml;

/// How the entries of a list are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnvironmentValuesPrecedence {
    Override,
    Fallback,
}

/// Loads the lists of values of an environment or a release.
pub(crate) struct ValuesLoader<'l> {
    pub(crate) helmfile_environment: &'l Arc<HelmfileHostEnvironment>,
    pub(crate) place: &'l WorkingDirectory,
    pub(crate) storage: HelmfilePaths<'l>,
}

impl ValuesLoader<'_> {
    /// Loads a list of entries and merges them into one map.
    ///
    /// `context` is the data for templates among the files. `modules` are HCL files that are read first.
    pub(crate) fn load(
        &self,
        handler: Option<&str>,
        entries: &[Value],
        context: &NamedEnvironment,
        strategy: &str,
        modules: hcl::HclFiles,
    ) -> Result<ValuesMap> {
        let mut modules = modules;
        // The modules are decrypted already.
        let is_secret = !modules.is_empty();
        let strategy = match strategy {
            "" | "override" => EnvironmentValuesPrecedence::Override,
            "fallback" => EnvironmentValuesPrecedence::Fallback,
            other => {
                return Err(format!(
                    "environment {:?}: invalid mergeStrategy {other:?} (must be \"override\" or \"fallback\")",
                    context.name
                )
                .into());
            }
        };
        let mut result = ValuesMap::new();
        for entry in entries {
            match entry {
                Value::String(path) => {
                    for file in self.storage.resolve(handler, "environment values", path)? {
                        if file.ends_with(".hcl") {
                            modules.add(&file, &self.place.read(&file)?)?;
                            continue;
                        }
                        let map = self.file(&file, context, strategy, &result)?;
                        put(&mut result, &map, strategy);
                    }
                }
                Value::Object(map) => put(&mut result, map, strategy),
                other => {
                    return Err(format!(
                        "unexpected type of value: value={other}, type={}",
                        yaml::kind(other)
                    )
                    .into());
                }
            }
        }
        if !modules.is_empty() {
            let map = modules.evaluate().map_err(|error| match is_secret {
                true => "the HCL of its values and secrets cannot be evaluated; the reason is not shown, because it may \
                         quote what was decrypted"
                    .into(),
                false => error,
            })?;
            put(&mut result, &map, strategy);
        }
        Ok(result)
    }

    fn file(
        &self,
        file: &str,
        context: &NamedEnvironment,
        strategy: EnvironmentValuesPrecedence,
        so_far: &ValuesMap,
    ) -> Result<ValuesMap> {
        let failed =
            |error: Error| error.at(&format!("failed to load environment values file \"{file}\""));
        let mut values = context.merged();
        if strategy == EnvironmentValuesPrecedence::Fallback && !so_far.is_empty() {
            let mut enriched = so_far.clone();
            overlay(&mut enriched, &values);
            values = enriched;
        }
        let data = environment_data(context, "", &values);
        let renderer =
            TemplateStringRenderer::new(self.helmfile_environment, self.place, &parent(file), data);
        let text = renderer.file(file).map_err(failed)?;
        yaml::read_map(&text).map_err(failed)
    }
}

fn put(result: &mut ValuesMap, map: &ValuesMap, strategy: EnvironmentValuesPrecedence) {
    match strategy {
        EnvironmentValuesPrecedence::Override => overlay(result, map),
        EnvironmentValuesPrecedence::Fallback => {
            let mut base = map.clone();
            merge(&mut base, result, ListMergeMode::Sparse);
            *result = base;
        }
    }
}
