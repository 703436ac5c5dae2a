//! Reads `Chart.yaml`, `requirements.yaml` and lock files, as Go reads YAML into structs.
//!
//! Keys match without regard to case, in the order of their bytes. A null leaves a field unchanged. A list is read into
//! the existing items. If several values have the wrong type, the first one is reported. Elsewhere: YAML (`goyaml`),
//! and checking the fields (`chart/validate.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use golang::GoRuntimeValue;
use golang::time::{GoTime, GoTimeZone, RFC3339};
use goyaml::DecodeTarget;
use serde_json::Value as Json;

use super::{ChartDependency, ChartLock, ChartMaintainer, ChartMetadata};

/// Why a file of a chart cannot be read. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChartDecodeError {
    /// The file is not YAML, or JSON cannot represent it.
    #[error("error converting YAML to JSON: {0}")]
    Yaml(#[from] goyaml::Error),
    /// A value has another type than its field.
    #[error(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go {place}"
    )]
    Shape {
        /// The type of the value, in Go's words for JSON.
        found: &'static str,
        /// The field and its type, as Go names them.
        place: String,
    },
    /// A time cannot be parsed.
    #[error("error unmarshaling JSON: while decoding JSON: {0}")]
    Time(String),
}

/// The metadata while files are read into it. Items of lists may be missing.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChartMetadataDraft {
    pub(crate) metadata: ChartMetadata,
    pub(crate) maintainers: Vec<Option<ChartMaintainer>>,
    pub(crate) dependencies: Option<Vec<Option<ChartDependency>>>,
}

const STRINGS: DecodeTarget = DecodeTarget::List(&DecodeTarget::Text);
const MAINTAINER: &[(&str, DecodeTarget)] =
    &[("name", DecodeTarget::Text), ("email", DecodeTarget::Text), ("url", DecodeTarget::Text)];
const DEPENDENCY: &[(&str, DecodeTarget)] = &[
    ("name", DecodeTarget::Text),
    ("version", DecodeTarget::Text),
    ("repository", DecodeTarget::Text),
    ("condition", DecodeTarget::Text),
    ("tags", STRINGS),
    ("alias", DecodeTarget::Text),
];
pub(crate) const METADATA: &[(&str, DecodeTarget)] = &[
    ("name", DecodeTarget::Text),
    ("home", DecodeTarget::Text),
    ("sources", STRINGS),
    ("version", DecodeTarget::Text),
    ("description", DecodeTarget::Text),
    ("keywords", STRINGS),
    ("maintainers", DecodeTarget::List(&DecodeTarget::Struct(MAINTAINER))),
    ("icon", DecodeTarget::Text),
    ("apiVersion", DecodeTarget::Text),
    ("condition", DecodeTarget::Text),
    ("tags", DecodeTarget::Text),
    ("appVersion", DecodeTarget::Text),
    ("annotations", DecodeTarget::Map(&DecodeTarget::Text)),
    ("kubeVersion", DecodeTarget::Text),
    ("dependencies", DecodeTarget::List(&DecodeTarget::Struct(DEPENDENCY))),
    ("type", DecodeTarget::Text),
];
const LOCK: &[(&str, DecodeTarget)] = &[
    ("digest", DecodeTarget::Text),
    ("dependencies", DecodeTarget::List(&DecodeTarget::Struct(DEPENDENCY))),
];

/// The `apiVersion` of a `Chart.yaml`. Helm decides by it how to read the other fields.
pub(super) fn api_version(yaml: &[u8]) -> Result<String, ChartDecodeError> {
    const FIELDS: &[(&str, DecodeTarget)] = &[("apiVersion", DecodeTarget::Text)];
    let mut version = String::new();
    let mut decoder = ChartFieldDecoder::default();
    let json = goyaml::to_json_for(yaml, &DecodeTarget::Struct(FIELDS))?;
    for (key, value) in decoder.object(&json, "value of type loader.chartBase") {
        if goyaml::is_field(key, "apiVersion") {
            decoder.text(&mut version, value, "chartBase.apiVersion");
        }
    }
    decoder.finish(version)
}

impl ChartMetadataDraft {
    /// Reads a `Chart.yaml` or `requirements.yaml` into the present fields.
    pub(crate) fn read(&mut self, yaml: &[u8]) -> Result<(), ChartDecodeError> {
        let json = goyaml::to_json_for(yaml, &DecodeTarget::Struct(METADATA))?;
        let mut decoder = ChartFieldDecoder::default();
        for (key, value) in decoder.object(&json, "value of type v2.Metadata") {
            let mut known = METADATA.iter().map(|(name, _)| *name).chain(["deprecated"]);
            if let Some(field) = known.find(|name| goyaml::is_field(key, name)) {
                self.read_field(field, value, &mut decoder);
            }
        }
        decoder.finish(())
    }

    fn read_field(&mut self, field: &str, json: &Json, decoder: &mut ChartFieldDecoder) {
        let it = &mut self.metadata;
        match field {
            "name" => decoder.text(&mut it.name, json, "Metadata.name"),
            "home" => decoder.text(&mut it.home, json, "Metadata.home"),
            "sources" => decoder.strings(&mut it.sources, json, "Metadata.sources"),
            "version" => decoder.text(&mut it.version, json, "Metadata.version"),
            "description" => decoder.text(&mut it.description, json, "Metadata.description"),
            "keywords" => decoder.strings(&mut it.keywords, json, "Metadata.keywords"),
            "maintainers" => decoder.maintainers(&mut self.maintainers, json),
            "icon" => decoder.text(&mut it.icon, json, "Metadata.icon"),
            "apiVersion" => decoder.text(&mut it.api_version, json, "Metadata.apiVersion"),
            "condition" => decoder.text(&mut it.condition, json, "Metadata.condition"),
            "tags" => decoder.text(&mut it.tags, json, "Metadata.tags"),
            "appVersion" => decoder.text(&mut it.app_version, json, "Metadata.appVersion"),
            "deprecated" => decoder.truth(&mut it.deprecated, json, "Metadata.deprecated"),
            "annotations" => decoder.annotations(&mut it.annotations, json),
            "kubeVersion" => decoder.text(&mut it.kube_version, json, "Metadata.kubeVersion"),
            "dependencies" => {
                decoder.dependencies(&mut self.dependencies, json, "Metadata.dependencies");
            }
            "type" => decoder.text(&mut it.kind, json, "Metadata.type"),
            _ => {}
        }
    }
}

/// Reads a lock file. `None` if it is empty.
pub(super) fn lock(yaml: &[u8]) -> Result<Option<ChartLock>, ChartDecodeError> {
    let json = goyaml::to_json_for(yaml, &DecodeTarget::Struct(LOCK))?;
    if json.is_null() {
        return Ok(None);
    }
    let mut decoder = ChartFieldDecoder::default();
    let mut generated = String::new();
    let mut digest = String::new();
    let mut dependencies = None;
    for (key, value) in decoder.object(&json, "value of type v2.Lock") {
        if goyaml::is_field(key, "generated") {
            if !value.is_null() {
                generated = time(value)?;
            }
        } else if goyaml::is_field(key, "digest") {
            decoder.text(&mut digest, value, "Lock.digest");
        } else if goyaml::is_field(key, "dependencies") {
            decoder.dependencies(&mut dependencies, value, "Lock.dependencies");
        }
    }
    let dependencies = dependencies.unwrap_or_default().into_iter().flatten().collect();
    decoder.finish(Some(ChartLock { generated, digest, dependencies }))
}

fn time(json: &Json) -> Result<String, ChartDecodeError> {
    let Json::String(text) = json else {
        return Err(ChartDecodeError::Time(
            "Time.UnmarshalJSON: input is not a JSON string".to_owned(),
        ));
    };
    match GoTime::parse(RFC3339, text, &GoTimeZone::Utc) {
        Ok(_) => Ok(text.clone()),
        Err(error) => Err(ChartDecodeError::Time(error.to_string())),
    }
}

/// Reads a values file as Helm 4 does: its documents are merged, and later ones win.
///
/// Differs(helm 4): the last line is always read. Helm loses a last line without a line feed if its length is a
/// multiple of 4 096 bytes (helm#32506).
///
/// # Errors
/// A document is not YAML, or not a table, or has text after its `---`.
pub fn values(yaml: &[u8]) -> Result<golang::value::GoMap, ValuesFileError> {
    let mut merged: Option<golang::value::GoMap> = None;
    for document in documents(yaml)? {
        match sprig::read_yaml(&document).map_err(ChartDecodeError::from)? {
            GoRuntimeValue::Nil => {}
            GoRuntimeValue::Map(table) => match &merged {
                None => merged = Some(table),
                Some(merged) => merge(merged, &table),
            },
            other => {
                let place = "value of type map[string]interface {}".to_owned();
                return Err(ChartDecodeError::Shape { found: shape_of(&other), place }.into());
            }
        }
    }
    Ok(merged.unwrap_or_else(crate::values::empty))
}

/// Why a values file cannot be read. The messages are Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValuesFileError {
    /// There is text after `---` on the same line.
    #[error("error reading yaml document: invalid Yaml document separator: {0}")]
    Separator(String),
    /// A document is not a table.
    #[error("cannot unmarshal yaml document: {0}")]
    Document(#[from] ChartDecodeError),
}

/// The documents of a text, divided at lines that begin with `---`. Each line ends with a line feed.
pub(crate) fn documents(yaml: &[u8]) -> Result<Vec<Cow<'_, [u8]>>, ValuesFileError> {
    // Nearly all values files are a single document.
    let is_divided = yaml.starts_with(b"---") || memchr::memmem::find(yaml, b"\n---").is_some();
    if !is_divided && yaml.ends_with(b"\n") && memchr::memchr(b'\r', yaml).is_none() {
        return Ok(vec![Cow::Borrowed(yaml)]);
    }
    let mut documents = Vec::new();
    let mut document = Vec::new();
    for line in yaml.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(rest) = line.strip_prefix(b"---") {
            let rest = String::from_utf8_lossy(rest);
            let rest = rest.trim();
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err(ValuesFileError::Separator(rest.to_owned()));
            }
            if !document.is_empty() {
                documents.push(Cow::Owned(std::mem::take(&mut document)));
                continue;
            }
        }
        document.extend_from_slice(line);
        document.push(b'\n');
    }
    documents.push(Cow::Owned(document));
    Ok(documents)
}

/// Merges one table into another, including tables in both. YAML bounds the depth.
fn merge(under: &golang::value::GoMap, over: &golang::value::GoMap) {
    for (key, value) in over.entries() {
        match (under.get(&key), value) {
            (Some(GoRuntimeValue::Map(below)), GoRuntimeValue::Map(above)) => merge(&below, &above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// Fills fields from YAML, and keeps the first type error.
#[derive(Debug, Default)]
struct ChartFieldDecoder {
    problem: Option<ChartDecodeError>,
}

impl ChartFieldDecoder {
    fn finish<T>(self, done: T) -> Result<T, ChartDecodeError> {
        self.problem.map_or(Ok(done), Err)
    }

    fn misfit(&mut self, json: &Json, place: String) {
        self.problem.get_or_insert(ChartDecodeError::Shape { found: shape(json), place });
    }

    /// Records that a field cannot hold a value. A null is no error, because it leaves any field unchanged.
    fn refuse(&mut self, json: &Json, field: &str, kind: &str) {
        if !json.is_null() {
            self.misfit(json, format!("struct field {field} of type {kind}"));
        }
    }

    fn object<'j>(
        &mut self,
        json: &'j Json,
        place: &str,
    ) -> impl Iterator<Item = (&'j String, &'j Json)> + use<'j> {
        if !matches!(json, Json::Null | Json::Object(_)) {
            self.misfit(json, place.to_owned());
        }
        json.as_object().into_iter().flatten()
    }

    fn text(&mut self, text: &mut String, json: &Json, field: &str) {
        match json {
            Json::String(found) => text.clone_from(found),
            other => self.refuse(other, field, "string"),
        }
    }

    fn truth(&mut self, truth: &mut bool, json: &Json, field: &str) {
        match json {
            Json::Bool(found) => *truth = *found,
            other => self.refuse(other, field, "bool"),
        }
    }

    fn strings(&mut self, strings: &mut Vec<String>, json: &Json, field: &str) {
        match json {
            Json::Array(items) => {
                strings.resize(items.len(), String::new());
                for (text, item) in strings.iter_mut().zip(items) {
                    self.text(text, item, field);
                }
            }
            Json::Null => strings.clear(),
            other => self.refuse(other, field, "[]string"),
        }
    }

    fn annotations(&mut self, annotations: &mut Option<BTreeMap<String, String>>, json: &Json) {
        const FIELD: &str = "Metadata.annotations";
        match json {
            Json::Object(found) => {
                let annotations = annotations.get_or_insert_default();
                for (name, value) in found {
                    let mut text = String::new();
                    self.text(&mut text, value, FIELD);
                    annotations.insert(name.clone(), text);
                }
            }
            Json::Null => *annotations = None,
            other => self.refuse(other, FIELD, "map[string]string"),
        }
    }

    fn maintainers(&mut self, maintainers: &mut Vec<Option<ChartMaintainer>>, json: &Json) {
        const FIELD: &str = "Metadata.maintainers";
        match json {
            Json::Array(items) => {
                maintainers.resize(items.len(), None);
                for (maintainer, item) in maintainers.iter_mut().zip(items) {
                    let place = format!("struct field {FIELD} of type v2.Maintainer");
                    if item.is_null() {
                        *maintainer = None;
                        continue;
                    }
                    let it = maintainer.get_or_insert_default();
                    for (key, value) in self.object(item, &place) {
                        if goyaml::is_field(key, "name") {
                            self.text(&mut it.name, value, "Maintainer.maintainers.name");
                        } else if goyaml::is_field(key, "email") {
                            self.text(&mut it.email, value, "Maintainer.maintainers.email");
                        } else if goyaml::is_field(key, "url") {
                            self.text(&mut it.url, value, "Maintainer.maintainers.url");
                        }
                    }
                }
            }
            Json::Null => maintainers.clear(),
            other => self.refuse(other, FIELD, "[]*v2.Maintainer"),
        }
    }

    fn dependencies(
        &mut self,
        dependencies: &mut Option<Vec<Option<ChartDependency>>>,
        json: &Json,
        field: &str,
    ) {
        match json {
            Json::Array(items) => {
                let dependencies = dependencies.get_or_insert_default();
                dependencies.resize(items.len(), None);
                for (dependency, item) in dependencies.iter_mut().zip(items) {
                    if item.is_null() {
                        *dependency = None;
                    } else {
                        let place = format!("struct field {field} of type v2.Dependency");
                        self.dependency(dependency.get_or_insert_default(), item, &place);
                    }
                }
            }
            Json::Null => *dependencies = None,
            other => self.refuse(other, field, "[]*v2.Dependency"),
        }
    }

    fn dependency(&mut self, it: &mut ChartDependency, json: &Json, place: &str) {
        for (key, value) in self.object(json, place) {
            let known = DEPENDENCY.iter().map(|(name, _)| *name);
            let mut known = known.chain(["enabled", "import-values"]);
            match known.find(|name| goyaml::is_field(key, name)) {
                Some("name") => self.text(&mut it.name, value, "Dependency.dependencies.name"),
                Some("version") => {
                    self.text(&mut it.version, value, "Dependency.dependencies.version");
                }
                Some("repository") => {
                    self.text(&mut it.repository, value, "Dependency.dependencies.repository");
                }
                Some("condition") => {
                    self.text(&mut it.condition, value, "Dependency.dependencies.condition");
                }
                Some("tags") => self.strings(&mut it.tags, value, "Dependency.dependencies.tags"),
                Some("alias") => self.text(&mut it.alias, value, "Dependency.dependencies.alias"),
                Some("enabled") => {
                    self.truth(&mut it.enabled, value, "Dependency.dependencies.enabled");
                }
                Some("import-values") => match value {
                    Json::Array(items) => {
                        it.import_values = items.iter().map(GoRuntimeValue::from_json).collect();
                    }
                    Json::Null => it.import_values.clear(),
                    other => {
                        let field = "Dependency.dependencies.import-values";
                        self.refuse(other, field, "[]interface {}");
                    }
                },
                _ => {}
            }
        }
    }
}

/// The name of a value's type in Go's JSON errors.
pub(crate) fn shape_of(value: &GoRuntimeValue) -> &'static str {
    match value {
        GoRuntimeValue::Bool(_) => "bool",
        GoRuntimeValue::Float(_) => "number",
        GoRuntimeValue::String(_) => "string",
        GoRuntimeValue::List(_) => "array",
        _ => "object",
    }
}

fn shape(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "bool",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}
