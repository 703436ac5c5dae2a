//! Values of environments: a list of files and maps becomes one map.

use std::sync::Arc;

use serde_json::Value;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::hcl;
use crate::helmfile_environment::HelmfileEnvironment;
use crate::maps::{Lists, Map, merge, overlay};
use crate::storage::Storage;
use crate::template::{Renderer, environment_data};
use crate::working_directory::{WorkingDirectory, parent};
use crate::yaml;

/// How the entries of a list are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Override,
    Fallback,
}

/// What loads lists of values.
pub(crate) struct Loader<'l> {
    pub(crate) helmfile_environment: &'l Arc<HelmfileEnvironment>,
    pub(crate) place: &'l WorkingDirectory,
    pub(crate) storage: Storage<'l>,
}

impl Loader<'_> {
    /// The map that a list of entries gives.
    ///
    /// `context` is what templates among the files see; `modules` are files of HCL that come first.
    pub(crate) fn load(
        &self,
        handler: Option<&str>,
        entries: &[Value],
        context: &Environment,
        strategy: &str,
        modules: hcl::HclFiles,
    ) -> Result<Map> {
        let mut modules = modules;
        // What was decrypted is there already.
        let is_secret = !modules.is_empty();
        let strategy = match strategy {
            "" | "override" => Strategy::Override,
            "fallback" => Strategy::Fallback,
            other => {
                return Err(format!(
                    "environment {:?}: invalid mergeStrategy {other:?} (must be \"override\" or \"fallback\")",
                    context.name
                )
                .into());
            }
        };
        let mut result = Map::new();
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
        context: &Environment,
        strategy: Strategy,
        so_far: &Map,
    ) -> Result<Map> {
        let failed =
            |error: Error| error.at(&format!("failed to load environment values file \"{file}\""));
        let mut values = context.merged();
        if strategy == Strategy::Fallback && !so_far.is_empty() {
            let mut enriched = so_far.clone();
            overlay(&mut enriched, &values);
            values = enriched;
        }
        let data = environment_data(context, "", &values);
        let renderer = Renderer::new(self.helmfile_environment, self.place, &parent(file), data);
        let text = renderer.file(file).map_err(failed)?;
        yaml::read_map(&text).map_err(failed)
    }
}

fn put(result: &mut Map, map: &Map, strategy: Strategy) {
    match strategy {
        Strategy::Override => overlay(result, map),
        Strategy::Fallback => {
            let mut base = map.clone();
            merge(&mut base, result, Lists::Sparse);
            *result = base;
        }
    }
}
