//! The kustomization file that a build starts from. It is the file of the folder, or a generated one that lists the folder's
//! manifests, with the additions of the spec.
//!
//! Source: `kustomize_generator.go` of fluxcd/pkg/kustomize 1.44. Pure: files come through `tree::FileTree`.
//! Elsewhere: the meaning of a kustomization (`kustomize`).

use std::sync::Arc;

use crds::kustomize::KustomizationSpec;
use crds::{Image, Patch, Selector};
use kustomize::FILE_NAMES;
use serde_json::{Map, Value, json};
use tree::{FileKind, FileTree, RelPath, RelPathError, TreeError};

/// What kustomize 5.8 knows in such a file.
///
/// Parity(flux): the first file is read by Flux, which passes nothing else on; in files that it names, other fields are
/// errors.
const FIELDS: [&str; 34] = [
    "apiVersion",
    "kind",
    "metadata",
    "openapi",
    "namePrefix",
    "nameSuffix",
    "namespace",
    "commonLabels",
    "labels",
    "commonAnnotations",
    "patchesStrategicMerge",
    "patchesJson6902",
    "patches",
    "images",
    "imageTags",
    "replacements",
    "replicas",
    "vars",
    "sortOptions",
    "resources",
    "components",
    "crds",
    "bases",
    "configMapGenerator",
    "secretGenerator",
    "helmGlobals",
    "helmCharts",
    "helmChartInflationGenerator",
    "generatorOptions",
    "configurations",
    "generators",
    "transformers",
    "validators",
    "buildMetadata",
];

/// The most files and folders that are searched for manifests.
const MAX_ENTRIES: usize = 200_000;

/// The reason why there is no kustomization file. `Display` names the file.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "kustomization path not found: `{0}` does not exist in the artifact; correct spec.path or commit the \
         directory"
    )]
    NoSuchFolder(String),
    #[error("kustomization path `{0}` is a file; spec.path must be a directory")]
    NotAFolder(String),
    #[error("spec.path: {0}")]
    Path(RelPathError),
    #[error("{file}: {problem}")]
    File { file: String, problem: String },
    #[error("component path '{0}' must be local and relative")]
    RemoteComponent(String),
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error("more than {MAX_ENTRIES} files in {0}; set spec.path to a directory with fewer files")]
    TooMany(String),
}

/// A generated file that replaces the one at its path.
#[derive(Debug)]
pub(super) struct GeneratedKustomizationFile {
    /// The folder to build.
    pub(super) folder: RelPath,
    /// The path of the file, even if it does not exist.
    pub(super) path: RelPath,
    /// The bytes of the file.
    pub(super) content: Arc<[u8]>,
}

/// The file for a folder and a spec.
pub(super) fn generate(
    files: &dyn FileTree,
    spec: &KustomizationSpec,
) -> Result<GeneratedKustomizationFile, Error> {
    let path = spec.path.as_deref().unwrap_or_default();
    let folder = RelPath::parse(path.trim_start_matches('/')).map_err(Error::Path)?;
    match files.entry(&folder) {
        None => return Err(Error::NoSuchFolder(folder.to_string())),
        Some(entry) if entry.kind() != FileKind::Dir => {
            return Err(Error::NotAFolder(folder.to_string()));
        }
        Some(_) => {}
    }
    let found = file_of(files, &folder);
    let mut fields = match &found {
        Some(file) => read(files, file)?,
        None => listed(files, &folder)?,
    };
    add(files, &folder, spec, &mut fields)?;
    let path = match found {
        Some(file) => file,
        None => folder.join(FILE_NAMES[0]).map_err(Error::Path)?,
    };
    let content = goyaml::emit(&Value::Object(fields))
        .map_err(|error| Error::File { file: path.to_string(), problem: error.to_string() })?;
    Ok(GeneratedKustomizationFile { folder, path, content: content.into_bytes().into() })
}

/// The kustomization file of a folder, which is the first of the allowed names that exists. `None` if the folder has no such
/// file.
fn file_of(files: &dyn FileTree, folder: &RelPath) -> Option<RelPath> {
    let paths = FILE_NAMES.iter().filter_map(|name| folder.join(name).ok());
    let is_file = |path: &RelPath| files.entry(path).is_some_and(|e| e.kind() == FileKind::File);
    paths.into_iter().find(is_file)
}

fn read(files: &dyn FileTree, file: &RelPath) -> Result<Map<String, Value>, Error> {
    let wrong = |problem: String| Error::File { file: file.to_string(), problem };
    let text = files.read(file)?;
    let value = goyaml::to_json(&text).map_err(|error| {
        let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
        wrong(format!("{line}{}", error.problem()))
    })?;
    let mut fields = match value {
        Value::Object(fields) => fields,
        Value::Null => Map::new(),
        _ => return Err(wrong("a kustomization must be a mapping".to_owned())),
    };
    fields.retain(|key, value| FIELDS.contains(&key.as_str()) && !value.is_null());
    for (key, default) in
        [("apiVersion", "kustomize.config.k8s.io/v1beta1"), ("kind", "Kustomization")]
    {
        fields.entry(key).or_insert_with(|| default.into());
    }
    let is_empty = fields.get("resources").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if is_empty {
        // Parity(flux): kustomize refuses a file that says nothing, and one without resources may say nothing.
        fields.insert("buildMetadata".into(), json!(["originAnnotations"]));
    }
    Ok(fields)
}

/// A kustomization with all manifests below a folder. A folder that is a kustomization itself is listed as one, and not
/// searched.
fn listed(files: &dyn FileTree, folder: &RelPath) -> Result<Map<String, Value>, Error> {
    let mut resources = Vec::new();
    // The last entry is taken first, so the entries of a folder are pushed in reverse.
    let mut work = vec![(folder.clone(), FileKind::Dir)];
    let mut visited = 0;
    while let Some((path, kind)) = work.pop() {
        visited += 1;
        if visited > MAX_ENTRIES {
            return Err(Error::TooMany(folder.to_string()));
        }
        let is_manifest =
            kind == FileKind::File && matches!(path.extension(), Some("yaml" | "yml"));
        let is_kustomization =
            kind == FileKind::Dir && path != *folder && file_of(files, &path).is_some();
        if is_manifest || is_kustomization {
            let below = path.strip_prefix(folder).unwrap_or_else(|| path.clone());
            resources.push(Value::from(format!("./{below}")));
        } else if kind == FileKind::Dir {
            let mut within = files.list(&path)?;
            within.reverse();
            for (name, kind) in within {
                work.push((path.join(&name).map_err(Error::Path)?, kind));
            }
        }
    }
    let mut fields = Map::new();
    fields.insert("apiVersion".into(), "kustomize.config.k8s.io/v1beta1".into());
    fields.insert("kind".into(), "Kustomization".into());
    if resources.is_empty() {
        // Parity(flux): this very text, since kustomize refuses a file that says nothing. No object is there to be put
        // into such a namespace.
        fields.insert("namespace".into(), "_placeholder".into());
    } else {
        fields.insert("resources".into(), Value::Array(resources));
    }
    Ok(fields)
}

/// Adds the fields of the spec.
fn add(
    files: &dyn FileTree,
    folder: &RelPath,
    spec: &KustomizationSpec,
    fields: &mut Map<String, Value>,
) -> Result<(), Error> {
    for (key, value) in [
        ("namespace", &spec.target_namespace),
        ("namePrefix", &spec.name_prefix),
        ("nameSuffix", &spec.name_suffix),
    ] {
        if let Some(value) = value {
            fields.insert(key.into(), value.as_str().into());
        }
    }
    append(fields, "patches", spec.patches.iter().map(patch));
    let mut components = Vec::new();
    for component in &spec.components {
        if is_remote(component) {
            return Err(Error::RemoteComponent(component.clone()));
        }
        let is_there = folder.join(component).is_ok_and(|path| files.entry(&path).is_some());
        if is_there || !spec.ignore_missing_components {
            components.push(Value::from(component.as_str()));
        }
    }
    append(fields, "components", components);
    for image in &spec.images {
        put_image(fields, image);
    }
    if !spec.build_metadata.is_empty() {
        fields.insert("buildMetadata".into(), json!(spec.build_metadata));
    }
    Ok(())
}

fn append(fields: &mut Map<String, Value>, key: &str, more: impl IntoIterator<Item = Value>) {
    let mut more = more.into_iter().peekable();
    if more.peek().is_none() {
        return;
    }
    match fields.entry(key).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(items) => items.extend(more),
        other => *other = more.collect(),
    }
}

fn patch(patch: &Patch) -> Value {
    let mut fields = json!({"patch": patch.patch});
    if let Some(target) = &patch.target {
        fields["target"] = selector(target);
    }
    fields
}

fn selector(target: &Selector) -> Value {
    let fields = [
        ("group", &target.group),
        ("version", &target.version),
        ("kind", &target.kind),
        ("name", &target.name),
        ("namespace", &target.namespace),
        ("annotationSelector", &target.annotation_selector),
        ("labelSelector", &target.label_selector),
    ];
    let given = fields.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
    given.map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

/// Merges an image into the entry of the same name, or adds it. Tag and digest are set together.
fn put_image(fields: &mut Map<String, Value>, image: &Image) {
    let given =
        [("newName", &image.new_name), ("newTag", &image.new_tag), ("digest", &image.digest)];
    let given = given.map(|(key, value)| (key, value.as_deref().filter(|text| !text.is_empty())));
    let images = fields.entry("images").or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(images) = images else { return };
    let same = images
        .iter_mut()
        .find(|other| other.get("name").and_then(Value::as_str).unwrap_or_default() == image.name);
    if let Some(Value::Object(known)) = same {
        if image.new_tag.is_some() || image.digest.is_some() {
            known.remove("newTag");
            known.remove("digest");
        }
        for (key, value) in given {
            if let Some(value) = value {
                known.insert(key.into(), value.into());
            }
        }
        return;
    }
    let mut added = json!({"name": image.name});
    for (key, value) in given {
        if let Some(value) = value {
            added[key] = value.into();
        }
    }
    images.push(added);
}

/// Parity(flux): what kustomize would take for a repository or a web address, and absolute paths.
fn is_remote(path: &str) -> bool {
    const BEGINNINGS: [&str; 8] =
        ["git::", "gh:", "ssh://", "https://", "http://", "git@", "github.com:", "github.com/"];
    let lower = path.to_lowercase();
    let begins = |beginning: &&str| lower.starts_with(*beginning) && lower.len() > beginning.len();
    BEGINNINGS.iter().any(begins)
        || path.starts_with('/')
        || lower.trim_start_matches("file://").starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(more: Value) -> KustomizationSpec {
        let mut spec = json!({"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "r"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn generated(files: &[(&str, &str)], more: Value) -> Result<(String, Value), String> {
        let files = tree::MemoryTree::from_files(files.iter().copied()).unwrap();
        let done = generate(&files, &spec(more)).map_err(|error| error.to_string())?;
        Ok((done.path.to_string(), goyaml::to_json(&done.content).unwrap()))
    }

    #[test]
    fn manifests_are_listed_in_the_order_of_a_walk_and_kustomizations_are_not_looked_into() {
        let files = [
            ("app/b.yaml", ""),
            ("app/a/x.yml", ""),
            ("app/a/note.txt", ""),
            ("app/base/kustomization.yaml", ""),
            ("app/base/y.yaml", ""),
            ("other/z.yaml", ""),
        ];
        let (path, content) = generated(&files, json!({"path": "./app"})).unwrap();
        assert_eq!(path, "app/kustomization.yaml");
        assert_eq!(content["resources"], json!(["./a/x.yml", "./b.yaml", "./base"]));
    }

    #[test]
    fn a_folder_without_manifests_still_builds() {
        let (_, content) = generated(&[("app/readme.md", "")], json!({"path": "app"})).unwrap();
        assert_eq!(content["namespace"], "_placeholder");
        assert_eq!(content.get("resources"), None);
    }

    #[test]
    fn the_file_of_the_folder_keeps_what_it_says_and_gets_what_the_spec_adds() {
        let file = "resources: [a.yaml]\nnamePrefix: old-\nunknown: 1\nimages:\n- {name: web, newTag: v1, newName: x}\n\
                    patches: [{path: p.yaml}]\n";
        let more = json!({
            "targetNamespace": "shop",
            "namePrefix": "new-",
            "patches": [{"patch": "[]", "target": {"kind": "Deployment"}}],
            "images": [{"name": "web", "digest": "sha256:1"}, {"name": "db", "newTag": "v2"}],
            "components": ["../c"],
        });
        let (path, content) = generated(&[("Kustomization", file)], more).unwrap();
        assert_eq!(path, "Kustomization");
        assert_eq!(
            content,
            json!({
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": ["a.yaml"],
                "namespace": "shop",
                "namePrefix": "new-",
                "patches": [{"path": "p.yaml"}, {"patch": "[]", "target": {"kind": "Deployment"}}],
                "images": [
                    {"name": "web", "newName": "x", "digest": "sha256:1"},
                    {"name": "db", "newTag": "v2"},
                ],
                "components": ["../c"],
            })
        );
    }

    #[test]
    fn missing_components_are_left_out_only_when_that_is_asked_for() {
        let files = [("app/a.yaml", ""), ("c/kustomization.yaml", "")];
        let more = |ignore: bool| json!({"path": "app", "components": ["../c", "../gone"], "ignoreMissingComponents": ignore});
        let components = |ignore| generated(&files, more(ignore)).unwrap().1["components"].clone();
        assert_eq!(components(false), json!(["../c", "../gone"]));
        assert_eq!(components(true), json!(["../c"]));
    }

    #[test]
    fn components_come_from_the_artifact_alone() {
        for path in
            ["https://example.com/c", "git@example.com:c", "github.com/a/b", "/etc", "file:///c"]
        {
            let error = generated(&[("a.yaml", "")], json!({"components": [path]})).unwrap_err();
            assert_eq!(error, format!("component path '{path}' must be local and relative"));
        }
    }

    #[test]
    fn a_path_that_is_no_folder_is_reported() {
        let error_of =
            |path: &str| generated(&[("a.yaml", "")], json!({"path": path})).unwrap_err();
        assert!(error_of("gone").starts_with("kustomization path not found: `gone`"));
        assert!(error_of("a.yaml").contains("is a file"));
        assert!(error_of("../x").starts_with("spec.path: "));
    }
}
