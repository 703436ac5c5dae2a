//! Replays cases about files, objects and trees that SOPS encrypted.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kustomize::{BuildBudget, KustomizeBuildOptions, LoadRestriction, TreeBuildFiles};
use serde_json::{Map, Value};
use sops::{DecryptedFiles, DecryptionKeys, DecryptionOutcome, SopsDecryptor, SopsFormat};
use tree::{FileTree as _, MemoryTree, RelPath};
use zeroize::Zeroizing;

use super::TrustCase;
use crate::replay::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer};

/// Cases whose answers differ from the recorded ones, each with the reason.
pub(super) const EXCEPTIONS: [(&str, &str); 1] = [(
    "sops-value-bytes-text",
    "refused as well, without the panic of sops that the text is about",
)];

/// Cases of builds whose answers differ from the recorded ones, each with the reason.
pub(super) const EXCEPTIONS_OF_BUILDS: [(&str, &str); 2] = [
    (
        "build-file-escape",
        "the tree is all there is for a build: no path leads out of it, `..` ends at its root",
    ),
    ("build-file-absolute", "the tree is all there is for a build, and its root is `/`"),
];

fn mismatch(wanted: impl ToString, got: impl ToString) -> CaseFailure {
    CaseFailure::Mismatch { wanted: wanted.to_string(), got: got.to_string() }
}

/// The Secrets with the keys of a case.
struct KeySecrets {
    own: BTreeMap<String, Vec<u8>>,
    global: BTreeMap<String, Vec<u8>>,
}

impl KeySecrets {
    fn of(recorded: &TrustCase) -> Result<Self, CaseFailure> {
        Ok(Self { own: recorded.folder("keys/")?, global: recorded.folder("global-keys/")? })
    }
}

/// Reads the keys of a case, like Flux's `ImportKeys`.
fn keys(recorded: &TrustCase, secrets: &KeySecrets) -> Result<DecryptionKeys, String> {
    let missing = |name: &str| Err(format!("secrets {name:?} not found"));
    if recorded.arg("provider") == "none" {
        return Ok(DecryptionKeys::default());
    }
    if recorded.flag("missingSecret") {
        return missing("sops-keys");
    }
    let has_reference = !secrets.own.is_empty() || recorded.flag("secretRef");
    if !has_reference && recorded.flag("globalAge") {
        return missing("global-age");
    }
    let (secret, data) = match has_reference {
        true => ("apps/sops-keys", &secrets.own),
        false => ("flux-system/global-age", &secrets.global),
    };
    let data = data.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
    let keys = if has_reference {
        DecryptionKeys::import(secret, data)
    } else {
        DecryptionKeys::import_age(secret, data)
    };
    keys.map_err(|error| error.to_string())
}

fn format(name: &str) -> SopsFormat {
    match name {
        "yaml" => SopsFormat::Yaml,
        "json" => SopsFormat::Json,
        "dotenv" => SopsFormat::Dotenv,
        "ini" => SopsFormat::Ini,
        _ => SopsFormat::Binary,
    }
}

/// Compares verdicts and accepted results. Of a rejection, the words are compared up to the first that may differ.
/// windlass never quotes values, and has its own words for errors of GnuPG, the operating system and parsers.
fn same(case: &Case, recorded: &TrustCase, got: Result<Value, String>) -> CaseJudgement {
    let accepted: Vec<&Value> =
        recorded.variants.iter().filter_map(|variant| variant.get("out")).collect();
    match (&case.answer, got) {
        (_, Ok(got)) if accepted.contains(&&got) => Ok(()),
        (ReferenceAnswer::Out(wanted), Ok(got)) if *wanted == got => Ok(()),
        (ReferenceAnswer::Out(wanted), Ok(got)) => Err(mismatch(shown(wanted), shown(&got))),
        (ReferenceAnswer::Out(wanted), Err(got)) => {
            Err(mismatch(shown(wanted), format!("error: {got}")))
        }
        (ReferenceAnswer::Error(wanted), Ok(got)) => {
            Err(mismatch(format!("error: {wanted}"), shown(&got)))
        }
        (ReferenceAnswer::Error(wanted), Err(got)) => {
            let wanted = wanted.replace("${DIR}/", "");
            if recorded.text == "loose" || leading(&wanted) == leading(&got) {
                return Ok(());
            }
            Err(mismatch(format!("error: {wanted}"), format!("error: {got}")))
        }
        (ReferenceAnswer::Panic | ReferenceAnswer::Elsewhere, _) => {
            Err(CaseFailure::NotRun("no answer is recorded".to_owned()))
        }
    }
}

/// The part of an error that says which step failed.
fn leading(text: &str) -> &str {
    let ends = [
        "cannot get sops data key: Failed",
        "failed to load encrypted",
        "error decrypting sops tree",
        "failed to emit encrypted",
        "kustomize build failed",
        "failed to import",
        "lstat ",
    ];
    let end = ends.iter().filter_map(|end| Some(text.find(end)? + end.len())).min();
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The content of a recorded base64 text, for people.
fn shown(value: &Value) -> String {
    let decoded = value.as_str().and_then(|text| STANDARD.decode(text).ok());
    decoded.map_or_else(|| value.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn decrypt(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let from = format(recorded.arg("format"));
    let to = match recorded.arg("outFormat") {
        "" => from,
        name => format(name),
    };
    let data = recorded.file("data")?;
    let got = keys(recorded, &KeySecrets::of(recorded)?).and_then(|keys| {
        let plain = SopsDecryptor::new(&keys).decrypt(&data, from, to);
        plain.map(|plain| Value::from(STANDARD.encode(&*plain))).map_err(|error| error.to_string())
    });
    same(case, recorded, got)
}

pub(super) fn import(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    same(case, recorded, keys(recorded, &KeySecrets::of(recorded)?).map(|_| Value::from("ok")))
}

pub(super) fn resource(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let object = recorded.file("object")?;
    let limits = goyaml::YamlLimits::default();
    let read = goyaml::v3::parse(&object, &limits)
        .ok()
        .and_then(|documents| goyaml::v3::to_json(documents.first()?, &limits).ok());
    let mut object = match read {
        // A list was recorded as its first object.
        Some(Value::Object(mut list)) if list.get("kind").is_some_and(|kind| kind == "List") => {
            let items = list.get_mut("items").and_then(Value::as_array_mut);
            items.and_then(|items| items.first_mut()).map(Value::take).unwrap_or_default()
        }
        other => other.unwrap_or_default(),
    };
    let Value::Object(object) = &mut object else {
        return Err(CaseFailure::NotRun("the object is none".to_owned()));
    };
    if recorded.arg("provider") == "none" {
        return same(case, recorded, Ok(Value::Null));
    }
    let got = keys(recorded, &KeySecrets::of(recorded)?).and_then(|keys| {
        let change = SopsDecryptor::new(&keys).decrypt_resource(object);
        match change.map_err(|error| error.to_string())? {
            DecryptionOutcome::LeftAlone => Ok(Value::Null),
            DecryptionOutcome::Decrypted => Ok(Value::from(yaml(object)?)),
        }
    });
    same(case, recorded, got)
}

fn yaml(object: &Map<String, Value>) -> Result<String, String> {
    goyaml::emit(&Value::Object(object.clone())).map_err(|error| error.to_string())
}

/// The files of a case, and the folder of the kustomization.
fn tree(recorded: &TrustCase) -> Result<(MemoryTree, RelPath), CaseFailure> {
    let not_run = |error: &dyn std::fmt::Display| CaseFailure::NotRun(error.to_string());
    if recorded.args.contains_key("symlinks") {
        return Err(not_run(
            &"symbolic links: archives are unpacked without them, so no tree has any",
        ));
    }
    let tree =
        MemoryTree::from_files(recorded.folder("tree/")?).map_err(|error| not_run(&error))?;
    let folder = RelPath::parse(recorded.arg("path")).map_err(|error| not_run(&error))?;
    Ok((tree, folder))
}

fn decrypted(
    keys: &DecryptionKeys,
    tree: &MemoryTree,
    folder: &RelPath,
) -> Result<DecryptedFiles, String> {
    SopsDecryptor::new(keys).decrypt_sources(tree, folder).map_err(|error| error.to_string())
}

pub(super) fn sources(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let (tree, folder) = tree(recorded)?;
    if recorded.arg("provider") == "none" {
        return same(case, recorded, Ok(Value::Object(Map::new())));
    }
    let got = keys(recorded, &KeySecrets::of(recorded)?).and_then(|keys| {
        let changed = decrypted(&keys, &tree, &folder)?;
        let file = |(path, plain): (&RelPath, &Zeroizing<Vec<u8>>)| {
            (path.as_str().to_owned(), Value::from(STANDARD.encode(plain.as_slice())))
        };
        Ok(Value::Object(changed.iter().map(file).collect()))
    });
    same(case, recorded, got)
}

pub(super) fn build(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let (tree, folder) = tree(recorded)?;
    let got = keys(recorded, &KeySecrets::of(recorded)?)
        .and_then(|keys| Ok(Value::from(built(&keys, &tree, &folder)?)));
    same(case, recorded, got)
}

/// The result of a build in the order of the kustomize-controller. It decrypts files before the build, and objects
/// after it.
fn built(keys: &DecryptionKeys, tree: &MemoryTree, folder: &RelPath) -> Result<String, String> {
    let changed = decrypted(keys, tree, folder);
    let changed = changed.map_err(|error| format!("error decrypting sources: {error}"))?;
    let mut files = BTreeMap::new();
    for (path, entry) in tree.walk() {
        if entry.kind() == tree::FileKind::File {
            let body = tree.read(path).map_err(|error| error.to_string())?;
            files.insert(path.as_str().to_owned(), body.to_vec());
        }
    }
    files.extend(changed.iter().map(|(path, plain)| (path.as_str().to_owned(), plain.to_vec())));
    let plain = MemoryTree::from_files(files).map_err(|error| error.to_string())?;
    let restriction = LoadRestriction::None;
    let options = KustomizeBuildOptions {
        restriction,
        keeps_builtin_schema: true,
        ..KustomizeBuildOptions::default()
    };
    let path = format!("/{}", folder.as_str());
    let built = kustomize::build(
        &TreeBuildFiles(plain),
        &path,
        &options,
        &BuildBudget::default(),
        &mut Vec::new(),
    );
    let objects = built.and_then(kustomize::KustomizeBuildOutput::into_objects);
    let objects = objects.map_err(|error| format!("kustomize build failed: {error}"))?;
    let mut texts = Vec::new();
    for object in objects {
        let Value::Object(mut value) = object.value else { continue };
        SopsDecryptor::new(keys).decrypt_resource(&mut value).map_err(|error| {
            format!("decryption failed for '{}': {error}", without_namespace(&object.id))
        })?;
        texts.push(yaml(&value)?);
    }
    Ok(texts.join("---\n"))
}

/// The id of an object in Flux's notation.
fn without_namespace(id: &kustomize::resource_id::ResourceId) -> String {
    let id = id.to_string();
    id.rsplit_once('.').map_or(id.clone(), |(name, _)| name.to_owned())
}
