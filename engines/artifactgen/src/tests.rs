//! The recorded cases, and laws.
//!
//! Elsewhere: archives as the program reads and writes them, links, whole runs (`cargo xtask conformance`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tree::{FileKind, FileMetadata, FileTree, MemoryTree, RelPath, TreeError, TreeLimits};

use super::*;

const BUILD: &str = include_str!("../../../e2e/conformance/artifactgen/build.jsonl");
const PATH_PATTERN: &str = include_str!("../../../e2e/conformance/artifactgen/pathpattern.jsonl");
const SOURCES_DIGEST: &str =
    include_str!("../../../e2e/conformance/artifactgen/sources-digest.jsonl");

/// The archive that the case copies as it is was compressed by Go.
const COMPRESSED: &str = "extract/34";

fn cases(text: &str) -> impl Iterator<Item = Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn meter() -> WorkMeter {
    WorkMeter::new(BUILD_ALLOWANCE, StopSignal::default())
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// A tree of the cases; none if it has links, which trees never have.
fn tree(source: &Map<String, Value>) -> Option<MemoryTree> {
    let mut builder = MemoryTree::builder(TreeLimits::default());
    for (name, node) in source {
        let body = match node {
            Value::String(text) => text.clone().into_bytes(),
            node if node["Dir"] == true => {
                builder.dir(&path(name)).unwrap();
                continue;
            }
            node if node["Symlink"].is_string() => return None,
            node if node["Tarball"].is_object() => node["Tarball"].to_string().into_bytes(),
            node if node["Base64"].is_string() => {
                STANDARD.decode(node["Base64"].as_str().unwrap()).unwrap()
            }
            node => node["Text"].as_str().unwrap_or_default().to_owned().into_bytes(),
        };
        builder.file(&path(name), body, node["Exec"] == true).unwrap();
    }
    Some(builder.build())
}

fn trees(case: &Value) -> Option<BTreeMap<String, MemoryTree>> {
    let sources = case["sources"].as_object().unwrap().iter();
    sources.map(|(alias, source)| Some((alias.clone(), tree(source.as_object()?)?))).collect()
}

fn by_alias(trees: &BTreeMap<String, MemoryTree>) -> SourceTrees<'_> {
    trees.iter().map(|(alias, tree)| (alias.as_str(), tree as &dyn FileTree)).collect()
}

/// Reads the trees that stand for archives here.
struct FakeTarballReader;

impl TarballReader for FakeTarballReader {
    fn read(&self, tarball: &[u8], _limits: &TreeLimits) -> Result<MemoryTree, String> {
        let source: Map<String, Value> = serde_json::from_slice(tarball)
            .map_err(|_| "requires gzip-compressed body: unexpected EOF".to_owned())?;
        let odd = source.keys().find(|name| RelPath::parse(name).is_err());
        if let Some(name) = odd {
            return Err(format!("tar contained invalid name error {name:?}"));
        }
        let link = source.iter().find(|(_, node)| node["Symlink"].is_string());
        if let Some((name, _)) = link {
            let problem = "is a symlink, which is not allowed in this context";
            return Err(format!("tar file entry {name} {problem}"));
        }
        Ok(tree(&source).unwrap())
    }
}

fn built(
    artifact: &OutputArtifact,
    sources: &SourceTrees<'_>,
    meter: &mut WorkMeter,
) -> Result<ArtifactTree, ArtifactBuildError> {
    let limits = TreeLimits::default();
    build(artifact, &BuildInputs { sources, tarballs: &FakeTarballReader, limits }, meter)
}

/// Whether an error is the recorded one, except for the text of the operating system.
fn is_same_error(wanted: &str, got: &str) -> bool {
    let of_system = ["openat ", "mkdirat ", "mkdir ${WORK}", "read ${WORK}"];
    let end = of_system.iter().filter_map(|words| wanted.find(words)).min();
    end.map_or(wanted == got, |end| got.starts_with(&wanted[..end]))
}

/// Entries and files of a tree as the cases have them.
fn listed(files: &MemoryTree) -> Value {
    let mut entries = vec!["./ 750".to_owned()];
    let mut bodies = Map::new();
    for (path, metadata) in files.walk() {
        entries.push(match metadata {
            FileMetadata::Dir => format!("{path}/ 750"),
            FileMetadata::File { executable: true, .. } => format!("{path} 700"),
            FileMetadata::File { executable: false, .. } => format!("{path} 600"),
        });
        if let Ok(body) = files.read(path) {
            let body = match str::from_utf8(&body) {
                Ok(text) => json!(text),
                Err(_) => json!({"base64": STANDARD.encode(&body)}),
            };
            bodies.insert(path.to_string(), body);
        }
    }
    json!({"entries": entries, "files": bodies})
}

#[test]
fn artifacts_are_made_as_recorded() {
    let mut count = 0;
    for case in cases(BUILD) {
        let name = case["name"].as_str().unwrap();
        let Some(trees) = trees(&case) else { continue };
        if name == COMPRESSED {
            continue;
        }
        count += 1;
        let artifact: OutputArtifact = serde_json::from_value(case["artifact"].clone()).unwrap();
        match (case["err"].as_str(), built(&artifact, &by_alias(&trees), &mut meter())) {
            (Some(wanted), Err(got)) => {
                let got = got.to_string();
                assert!(is_same_error(wanted, &got), "{name}\nwanted {wanted}\ngot    {got}");
            }
            (None, Ok(built)) => {
                let wanted = &case["out"];
                let got = listed(&built.files);
                assert_eq!(wanted["entries"], got["entries"], "{name}");
                assert_eq!(wanted["files"], got["files"], "{name}");
                let file = format!("/{}", built.file_name());
                assert!(wanted["path"].as_str().unwrap().ends_with(&file), "{name} {file}");
            }
            (wanted, got) => panic!("{name}: wanted {wanted:?}, got {got:?}"),
        }
    }
    assert!(count >= 325, "{count}");
}

#[test]
fn patterns_of_paths_are_expanded_as_recorded() {
    let mut count = 0;
    for case in cases(PATH_PATTERN) {
        let Some(trees) = trees(&case) else { continue };
        count += 1;
        let spec: GeneratorSpec = serde_json::from_value(case["spec"].clone()).unwrap();
        let got = artifact_requests(&spec, &by_alias(&trees), &mut meter());
        match (case["err"].as_str(), got) {
            (Some(wanted), Err(got)) => {
                assert_eq!(wanted, got.to_string());
                assert_eq!(case["terminal"] == true, got.is_terminal());
            }
            (None, Ok(got)) => {
                let wanted = case["out"].as_array().into_iter().flatten();
                let wanted = wanted.map(|request| ArtifactRequest {
                    artifact: serde_json::from_value(request["artifact"].clone()).unwrap(),
                    labels: serde_json::from_value(request["labels"].clone()).unwrap_or_default(),
                });
                assert_eq!(wanted.collect::<Vec<_>>(), got, "{}", case["name"]);
            }
            (wanted, got) => panic!("{}: wanted {wanted:?}, got {got:?}", case["name"]),
        }
    }
    assert!(count >= 34, "{count}");
}

#[test]
fn digests_of_sources_are_as_recorded() {
    for case in cases(SOURCES_DIGEST) {
        let sources = serde_json::from_value(case["sources"].clone()).unwrap();
        assert_eq!(case["out"], sources_digest(&sources), "{}", case["name"]);
    }
}

fn artifact(name: &str, copies: &[(&str, &str)]) -> OutputArtifact {
    let copy = |(from, to): &(&str, &str)| CopyOperation {
        from: (*from).to_owned(),
        to: (*to).to_owned(),
        ..CopyOperation::default()
    };
    OutputArtifact {
        name: name.to_owned(),
        copy: copies.iter().map(copy).collect(),
        ..OutputArtifact::default()
    }
}

#[test]
fn bodies_are_those_of_the_sources() {
    let source = MemoryTree::from_files([("d/f", "text")]).unwrap();
    let sources = SourceTrees::from([("s", &source as &dyn FileTree)]);
    let copies = [("@s/d", "@artifact/"), ("@s/**", "@artifact/x/"), ("@s/d/f", "@artifact/f")];
    let made = built(&artifact("a", &copies), &sources, &mut meter()).unwrap();
    let body = source.read(&path("d/f")).unwrap();
    for copy in ["d/f", "x/d/f", "f"] {
        assert!(Arc::ptr_eq(&body, &made.files.read(&path(copy)).unwrap()), "{copy}");
    }
}

#[test]
fn an_artifact_that_is_called_as_a_source_has_its_own_files_alone() {
    let source = MemoryTree::from_files([("a", ""), ("b", "")]).unwrap();
    let sources = SourceTrees::from([("s", &source as &dyn FileTree)]);
    let made = built(&artifact("s", &[("@s/a", "@artifact/c")]), &sources, &mut meter()).unwrap();
    assert_eq!(listed(&made.files)["entries"], json!(["./ 750", "c 600"]));
}

#[test]
fn a_place_outside_of_a_source_is_refused() {
    let source = MemoryTree::from_files([("a", "")]).unwrap();
    let sources = SourceTrees::from([("s", &source as &dyn FileTree)]);
    for (from, problem) in [
        ("@s/../b", "failed to stat source '../b': statat ../b: path escapes from parent"),
        ("@s//b", "failed to stat source '/b': statat /b: path escapes from parent"),
        ("@s/a/b", "failed to stat source 'a/b': statat a/b: not a directory"),
    ] {
        let error = built(&artifact("x", &[(from, "@artifact/")]), &sources, &mut meter());
        let error = error.unwrap_err().to_string();
        assert!(error.ends_with(problem), "{error}");
    }
}

#[test]
fn a_build_that_is_too_much_ends_with_an_error() {
    let files: Vec<String> = (0..1000).map(|at| format!("d/{at}")).collect();
    let source = MemoryTree::from_files(files.iter().map(|file| (file, ""))).unwrap();
    let sources = SourceTrees::from([("s", &source as &dyn FileTree)]);
    let places: Vec<String> = (0..1000).map(|at| format!("@artifact/{at}/")).collect();
    let copies: Vec<(&str, &str)> = places.iter().map(|to| ("@s/**", to.as_str())).collect();
    let allowance = WorkAllowance { steps: 1_000_000, bytes: 1_000_000 };
    let mut meter = WorkMeter::new(allowance, StopSignal::default());
    let error = built(&artifact("a", &copies), &sources, &mut meter).unwrap_err().to_string();
    assert!(error.ends_with("it takes more than 1000000 steps"), "{error}");

    let limits = TreeLimits { entries: 10, ..TreeLimits::default() };
    let inputs = BuildInputs { sources: &sources, tarballs: &FakeTarballReader, limits };
    let error = build(&artifact("a", &[("@s/d", "@artifact/")]), &inputs, &mut self::meter());
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("one more than the 10 files and directories allowed"), "{error}");
}

/// Says how many bytes may be taken out of an archive.
struct LimitReportingTarballReader;

impl TarballReader for LimitReportingTarballReader {
    fn read(&self, _tarball: &[u8], limits: &TreeLimits) -> Result<MemoryTree, String> {
        Err(format!("at most {} bytes", limits.total_bytes))
    }
}

#[test]
fn no_more_is_taken_out_of_an_archive_than_may_be_kept() {
    let source = MemoryTree::from_files([("a.tgz", "")]).unwrap();
    let sources = SourceTrees::from([("s", &source as &dyn FileTree)]);
    let limits = TreeLimits::default();
    let inputs = BuildInputs { sources: &sources, tarballs: &LimitReportingTarballReader, limits };
    let copy = CopyOperation {
        strategy: CopyStrategy::Extract,
        ..artifact("a", &[("@s/a.tgz", "@artifact/")]).copy.remove(0)
    };
    let artifact = OutputArtifact { copy: vec![copy], ..artifact("a", &[]) };
    let mut meter =
        WorkMeter::new(WorkAllowance { steps: 1_000_000, bytes: 1_000 }, StopSignal::default());
    let error = build(&artifact, &inputs, &mut meter).unwrap_err().to_string();
    assert!(error.ends_with("at most 1000 bytes"), "{error}");
}

/// A tree in which all paths are folders, and none can be listed.
struct UnlistableFileTree;

impl FileTree for UnlistableFileTree {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        Err(TreeError::NotFound(path.clone()))
    }

    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        Err(TreeError::NotFound(dir.clone()))
    }

    fn entry(&self, _: &RelPath) -> Option<FileMetadata> {
        Some(FileMetadata::Dir)
    }
}

#[test]
fn a_folder_that_is_not_listed_is_not_taken_for_an_empty_one() {
    let sources = SourceTrees::from([("s", &UnlistableFileTree as &dyn FileTree)]);
    for (from, wanted) in [
        ("@s/d", "failed to read what is to be copied: `d` does not exist"),
        ("@s/d/*", "failed to list the files of source 's': `d` does not exist"),
    ] {
        let artifact = artifact("a", &[(from, "@artifact/")]);
        let error = built(&artifact, &sources, &mut meter()).unwrap_err().to_string();
        assert!(error.ends_with(wanted), "{error}");
    }
    let path_pattern = "@s/{x}".to_owned();
    let spec = GeneratorSpec { path_pattern, ..GeneratorSpec::default() };
    let error = artifact_requests(&spec, &sources, &mut meter()).unwrap_err();
    assert!(matches!(error, PathPatternError::List(_)) && !error.is_terminal(), "{error}");
}

#[test]
fn only_new_digests_are_reported() {
    let entry = |name: &str, digest: &str| InventoryEntry {
        digest: digest.to_owned(),
        filename: "1.tar.gz".to_owned(),
        name: name.to_owned(),
        namespace: "apps".to_owned(),
    };
    let before = [entry("a", "sha256:1"), entry("b", "sha256:2")];
    let now = [entry("b", "sha256:3"), entry("c", "sha256:1")];
    let message = changes_message(&before, &now);
    let wanted = "external artifacts reconciled: apps/b (sha256:3)\napps/c (sha256:1)";
    assert_eq!(message.as_deref(), Some(wanted));
    assert_eq!(changes_message(&before, &before), None);
}

proptest! {
    #[test]
    fn no_copy_panics_or_depends_on_chance(
        pattern in r"[\[\]{},*?!\\ab./]{0,12}",
        to in "[ab./]{0,8}",
        exclude in r"[\[\]{},*?!\\ab./]{0,8}",
        strategy in prop::sample::select(vec!["Overwrite", "Merge", "Extract"]),
    ) {
        let files = [("a/b", "a: 1\n"), ("a/a/b", "b: 1\n"), ("b", "[]"), ("a.b", ""), ("b.tgz", "{}")];
        let source = MemoryTree::from_files(files).unwrap();
        let sources = SourceTrees::from([("s", &source as &dyn FileTree)]);
        let copy = CopyOperation {
            from: format!("@s/{pattern}"),
            to: format!("@artifact/{to}"),
            exclude: vec![exclude],
            strategy: strategy.to_owned().into(),
        };
        let artifact = OutputArtifact { copy: vec![copy.clone(), copy], ..artifact("x", &[]) };
        let made = built(&artifact, &sources, &mut meter());
        prop_assert_eq!(&made, &built(&artifact, &sources, &mut meter()));
    }
}
