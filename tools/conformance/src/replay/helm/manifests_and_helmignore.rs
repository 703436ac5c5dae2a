//! Replays cases about rendered texts and ignore files.
//!
//! The module `release.rs` of the replay has releases and their names.

use std::collections::BTreeMap;

use ::helm::ignore::HelmIgnoreRules;
use ::helm::manifests::{self, ManifestOrder, ReleaseHook, ReleaseManifest};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::case::{Case, CaseFailure, CaseJudgement};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestSplitCase {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ManifestSortCase {
    files: BTreeMap<String, String>,
    order: String,
}

pub(super) fn manifests(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "split" => {
            let ManifestSplitCase { text } = case.inputs()?;
            let documents = manifests::split(text.as_bytes()).into_iter();
            let documents = documents.map(|document| String::from_utf8_lossy(document).into());
            case.judge(Ok(Json::Array(documents.collect())))
        }
        "sort" => {
            let ManifestSortCase { files, order } = case.inputs()?;
            let order = match order.as_str() {
                "install" => ManifestOrder::Install,
                "uninstall" => ManifestOrder::Uninstall,
                other => return Err(CaseFailure::NotRun(format!("unknown order `{other}`"))),
            };
            let sorted = manifests::sort(&files, order).map(|sorted| {
                json!({
                    "hooks": sorted.hooks.iter().map(hook).collect::<Vec<_>>(),
                    "manifests": sorted.manifests.iter().map(manifest).collect::<Vec<_>>(),
                })
            });
            case.judge(sorted.map_err(|error| error.to_string()))
        }
        _ => Err(case.unsupported(&[])),
    }
}

fn hook(hook: &ReleaseHook) -> Json {
    json!({
        "name": hook.name,
        "kind": hook.kind,
        "path": hook.path,
        "manifest": hook.manifest,
        "events": hook.events.iter().map(|event| event.as_str()).collect::<Vec<_>>(),
        "weight": hook.weight,
        "deletePolicies": hook.delete_policies,
        "outputLogPolicies": hook.output_log_policies,
    })
}

fn manifest(manifest: &ReleaseManifest) -> Json {
    json!({"path": manifest.path, "kind": manifest.head.kind, "content": manifest.content})
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HelmIgnoreCase {
    rules: String,
    paths: Vec<String>,
}

pub(super) fn ignore(case: Case) -> CaseJudgement {
    let HelmIgnoreCase { rules, paths } = case.inputs()?;
    let ignored = HelmIgnoreRules::parse(&rules).map(|rules| {
        let ignored = paths.iter().map(|path| {
            let name = path.strip_suffix('/').unwrap_or(path);
            rules.is_ignored(name, name.len() < path.len())
        });
        ignored.collect::<Vec<_>>().into()
    });
    case.judge(ignored.map_err(|error| error.to_string()))
}
