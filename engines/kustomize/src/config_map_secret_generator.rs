//! Generates ConfigMaps and Secrets from literals, files and environment files.
//!
//! Elsewhere: the hash in their names (`name_hash.rs`), charts (`chart_inflation.rs`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use goyaml::v3::{YamlNode, YamlNodeKind, YamlNodeStyle};

use crate::error::{Error, ErrorContext as _, Result};
use crate::field_edit;
use crate::kustomization::{GeneratorArgs, GeneratorOptions, SecretArgs};
use crate::loader::KustomizationLoader;
use crate::resource::{self, BuildResource, GeneratorBehavior};

/// The memory of an entry in addition to its strings, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 512;

/// How many times a value is in memory: as bytes and in base64.
const COPIES_PER_VALUE: usize = 3;

/// Columns of a line of base64.
const BASE64_LINE_CHARACTERS: usize = 70;

/// A ConfigMap.
///
/// # Errors
/// It has no name, a source cannot be read, or a key comes twice.
pub(crate) fn config_map(
    loader: &KustomizationLoader<'_>,
    args: &GeneratorArgs,
) -> Result<BuildResource> {
    let mut node = base("ConfigMap", args)?;
    load_data(&mut node, &data(loader, args)?)?;
    finish(node, args)
}

/// A Secret.
///
/// # Errors
/// As [`config_map`].
pub(crate) fn secret(loader: &KustomizationLoader<'_>, args: &SecretArgs) -> Result<BuildResource> {
    let mut node = base("Secret", &args.generator)?;
    let type_ = if args.type_.is_empty() { "Opaque" } else { &args.type_ };
    field_edit::set_field(&mut node, "type", field_edit::string(type_))?;
    if field_edit::get_or_create(&mut node, "data", YamlNodeKind::Mapping)?.is_none() {
        return Ok(BuildResource::new(node));
    }
    let data = data(loader, &args.generator)?;
    let fields = data.iter().map(|(key, value)| (key.as_str(), block(encoded(value))));
    field_edit::set_all(&mut node, "data", fields)?;
    finish(node, &args.generator)
}

fn base(kind: &str, args: &GeneratorArgs) -> Result<YamlNode> {
    let entry = |key: &str, value: &str| (YamlNode::string(key), YamlNode::string(value));
    let mut node = YamlNode::mapping([entry("apiVersion", "v1"), entry("kind", kind)]);
    let own = |text: &str, metadata: &str| {
        if text.is_empty() { metadata.to_owned() } else { text.to_owned() }
    };
    let name = own(&args.name, &args.metadata.name);
    if name.is_empty() {
        return Err(Error::new("a configmap must have a name"));
    }
    field_edit::set_at(&mut node, &["metadata"], "name", field_edit::string(name))?;
    let namespace = own(&args.namespace, &args.metadata.namespace);
    if !namespace.is_empty() {
        field_edit::set_at(&mut node, &["metadata"], "namespace", field_edit::string(namespace))?;
    }
    Ok(node)
}

fn finish(mut node: YamlNode, args: &GeneratorArgs) -> Result<BuildResource> {
    let options = args.options.as_ref();
    if let Some(GeneratorOptions { labels, annotations, immutable, .. }) = options {
        for (name, strings) in [("labels", labels), ("annotations", annotations)] {
            for (key, value) in strings {
                let value = field_edit::string(value.as_str());
                field_edit::set_at(&mut node, &["metadata", name], key, value)?;
            }
        }
        if *immutable {
            field_edit::set_field(
                &mut node,
                "immutable",
                YamlNode::scalar(field_edit::BOOL, "true"),
            )?;
        }
    }
    let mut resource = BuildResource::new(node);
    resource.needs_hash = !options.is_some_and(|options| options.disable_name_suffix_hash);
    resource.behavior = GeneratorBehavior::parse(&args.behavior);
    resource.note();
    Ok(resource)
}

type GeneratedData = BTreeMap<String, Vec<u8>>;

fn data(loader: &KustomizationLoader<'_>, args: &GeneratorArgs) -> Result<GeneratedData> {
    let mut data = GeneratedData::new();
    let name = if args.name.is_empty() { &args.metadata.name } else { &args.name };
    for (key, value) in pairs(loader, args).within(|| "loading KV pairs")? {
        if data.contains_key(&key) {
            let text = format!("configmap {name} illegally repeats the key `{key}`");
            return Err(Error::new(text));
        }
        data.insert(key, value);
    }
    Ok(data)
}

fn pairs(loader: &KustomizationLoader<'_>, args: &GeneratorArgs) -> Result<Vec<(String, Vec<u8>)>> {
    let budget = loader.budget();
    let keep = |bytes: usize, path: &str| {
        budget.bytes(bytes).map_err(Error::from).within(|| format!("the entries of `{path}`"))
    };
    let mut pairs = Vec::new();
    for path in &args.envs {
        let read = loader.load(path).and_then(|content| {
            let lines = memchr::memchr_iter(b'\n', &content).count() + 1;
            keep(COPIES_PER_VALUE * content.len() + ENTRY_OVERHEAD_BYTES * lines, path)?;
            environment(&content)
        });
        pairs.extend(read.within(|| format!("env source files: [{}]", args.envs.join(" ")))?);
    }
    for source in &args.literals {
        keep(COPIES_PER_VALUE * source.len() + ENTRY_OVERHEAD_BYTES, source)?;
        let read = literal(source);
        pairs.push(read.within(|| format!("literal sources [{}]", args.literals.join(" ")))?);
    }
    for source in &args.files {
        let read = file(loader, source);
        pairs.push(read.within(|| format!("file sources: [{}]", args.files.join(" ")))?);
    }
    Ok(pairs)
}

fn literal(source: &str) -> Result<(String, Vec<u8>)> {
    let invalid = || Error::new(format!("invalid literal source {source}, expected key=value"));
    let (key, value) =
        source.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(invalid)?;
    let quoted =
        ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    Ok((key.to_owned(), quoted.unwrap_or(value).as_bytes().to_vec()))
}

fn file(loader: &KustomizationLoader<'_>, source: &str) -> Result<(String, Vec<u8>)> {
    let (key, path) = match source.split('=').collect::<Vec<_>>().as_slice() {
        [path] => (base_name(path), *path),
        ["", path] => {
            let text = format!("missing key name for file path {path:?} in source {source:?}");
            return Err(Error::new(text));
        }
        [key, ""] => {
            let text = format!("missing file path for key name {key:?} in source {source:?}");
            return Err(Error::new(text));
        }
        [key, path] => (*key, *path),
        _ => {
            let text = format!("source {source:?} key name or file path contains '='");
            return Err(Error::new(text));
        }
    };
    let content = loader.load(path)?;
    let kept = loader.budget().bytes(COPIES_PER_VALUE * content.len() + ENTRY_OVERHEAD_BYTES);
    kept.map_err(Error::from).within(|| format!("the entry `{source}`"))?;
    Ok((key.to_owned(), content.to_vec()))
}

/// The last part of a path, as Go defines it.
fn base_name(path: &str) -> &str {
    if path.is_empty() {
        return ".";
    }
    let path = path.trim_end_matches('/');
    if path.is_empty() { "/" } else { path.rsplit('/').next().unwrap_or(path) }
}

/// The pairs of an environment file.
fn environment(content: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut pairs = Vec::new();
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(mut line) = std::str::from_utf8(line) else {
            // Parity(kustomize): the line is there twice, as numbers first.
            let bytes: Vec<String> = line.iter().map(u8::to_string).collect();
            let bytes = bytes.join(" ");
            let text = String::from_utf8_lossy(line);
            return Err(Error::new(format!("line [{bytes}] has invalid utf8 bytes : {text}")));
        };
        if number == 0 {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if !key.is_empty() {
            pairs.push((key.to_owned(), value.as_bytes().to_vec()));
        }
    }
    Ok(pairs)
}

/// Adds values to a ConfigMap: strings to `data`, and other bytes to `binaryData`.
fn load_data(node: &mut YamlNode, data: &GeneratedData) -> Result<()> {
    // Which of both maps comes first in the object is up to the first value.
    let strings = data.iter().map(|(key, value)| (key.as_str(), std::str::from_utf8(value), value));
    let is_text_first = strings.clone().next().is_none_or(|(_, text, _)| text.is_ok());
    for is_text in [is_text_first, !is_text_first] {
        let fields = strings.clone().filter(|(_, text, _)| text.is_ok() == is_text);
        let fields = fields.map(|(key, text, value)| {
            (key, block(text.map_or_else(|_| encoded(value), str::to_owned)))
        });
        field_edit::set_all(node, if is_text { "data" } else { "binaryData" }, fields)?;
    }
    Ok(())
}

fn block(text: String) -> YamlNode {
    let style = if text.contains('\n') { YamlNodeStyle::LITERAL } else { YamlNodeStyle::default() };
    YamlNode { style, ..YamlNode::string(text) }
}

/// Encodes bytes in base64. A text of more than one line also ends with a line break.
fn encoded(bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    if text.len() < BASE64_LINE_CHARACTERS {
        return text;
    }
    let mut lines = String::with_capacity(text.len() + text.len() / BASE64_LINE_CHARACTERS + 1);
    for (at, character) in text.char_indices() {
        if at > 0 && at % BASE64_LINE_CHARACTERS == 0 {
            lines.push('\n');
        }
        lines.push(character);
    }
    lines.push('\n');
    lines
}

/// Copies the entries of an existing object that the newly generated object lacks.
///
/// # Errors
/// The metadata is not a map.
pub(crate) fn merge(new: &mut BuildResource, old: &BuildResource) -> Result<()> {
    let origin = old.annotations().remove(crate::origin::ORIGIN);
    new.take_metadata_from(old)?;
    for (name, is_binary) in [("data", false), ("binaryData", true)] {
        let mut strings = old.strings(name);
        strings.extend(new.strings(name));
        field_edit::clear(&mut new.node, name)?;
        let field = if is_binary { "binaryData" } else { "data" };
        let fields = strings.iter().map(|(key, value)| (key.as_str(), block(value.clone())));
        field_edit::set_all(&mut new.node, field, fields)?;
    }
    if let Some(origin) = origin {
        resource::set_annotation(&mut new.node, crate::origin::ORIGIN, &origin)?;
    }
    Ok(())
}
