//! The list of crates that the program is made of, in the format CycloneDX 1.6.

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use serde_json::{Value, json};
use std::collections::BTreeSet;

use super::platform::ImagePlatform;

/// The package whose dependencies the list has.
const PROGRAM: &str = "windlass";

/// Lists all crates that are linked into the program on a platform. Each has its version, licence and origin.
///
/// # Errors
/// When `cargo metadata` fails.
pub(crate) fn list(version: &str, platform: ImagePlatform) -> anyhow::Result<Value> {
    let platform = platform.triple().to_owned();
    let metadata = MetadataCommand::new()
        .current_dir(testbed::root())
        .other_options(vec!["--filter-platform".to_owned(), platform, "--locked".to_owned()])
        .exec()
        .context("cargo metadata")?;
    let linked = linked(&metadata)?;
    let mut components: Vec<Value> = metadata
        .packages
        .iter()
        .filter(|package| linked.contains(&package.id) && package.name.as_str() != PROGRAM)
        .map(|package| {
            let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
            let mut component = json!({
                "type": "library",
                "bom-ref": purl,
                "name": package.name.as_str(),
                "version": package.version.to_string(),
                "purl": purl,
            });
            if let Some(licence) = &package.license {
                component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
            }
            component
        })
        .collect();
    components.sort_by_key(|component| component["bom-ref"].as_str().map(str::to_owned));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": PROGRAM, "version": version},
        },
        "components": components,
    }))
}

/// The packages that are linked into the program. Dependencies of tests and of build scripts are not among them.
fn linked(metadata: &Metadata) -> anyhow::Result<BTreeSet<PackageId>> {
    let resolve = metadata.resolve.as_ref().context("cargo resolved nothing")?;
    let program = metadata
        .packages
        .iter()
        .find(|package| package.name.as_str() == PROGRAM)
        .context("the program is no package")?;
    let mut known = BTreeSet::new();
    let mut left = vec![program.id.clone()];
    while let Some(id) = left.pop() {
        if !known.insert(id.clone()) {
            continue;
        }
        let node = resolve.nodes.iter().find(|node| node.id == id).context("an unknown package")?;
        for dependency in &node.deps {
            let is_linked =
                |kind: &cargo_metadata::DepKindInfo| kind.kind == DependencyKind::Normal;
            if dependency.dep_kinds.iter().any(is_linked) {
                left.push(dependency.pkg.clone());
            }
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_is_linked_and_nothing_of_tests() {
        let list = list("v1", ImagePlatform::of_machine()).unwrap();
        let names: Vec<&str> = list["components"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["name"].as_str())
            .collect();
        assert!(names.contains(&"kube-client") && names.contains(&"goyaml"), "{names:?}");
        assert!(!names.contains(&"expect-test") && !names.contains(&PROGRAM), "{names:?}");
        let without: Vec<&Value> = list["components"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["licenses"].is_null())
            .collect();
        assert!(without.is_empty(), "no licence: {without:?}");
    }
}
