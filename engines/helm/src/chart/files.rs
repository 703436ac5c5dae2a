//! `.Files`: the files of a chart as templates see them.
//!
//! Elsewhere: globs (`golang::glob`), and calling methods from templates (`gotemplate`).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use golang::GoRuntimeValue;
use golang::glob::Glob;
use golang::value::{
    FunctionCallError, FunctionSignature, GoFunction, GoMap, GoObject, GoSlice, GoString, GoType,
    IntegerKind, ReflectKind,
};
use golang::work_meter::WorkMeter;
use serde_json::Value as Json;

use super::ChartFile;
use super::go_path_and_quote::base;

/// How many bytes a file takes in a list of files, and a line in a list of lines.
const FILE_ENTRY_BYTES: u64 = 100;
const LINE_ENTRY_BYTES: u64 = 40;

/// The files of a chart, keyed by file name. This is Go's `engine.files`, a map of bytes with methods.
#[derive(Debug, Clone)]
pub struct ChartFiles(GoMap);

impl ChartFiles {
    /// Takes the files that are not templates, values, or charts ([`super::Chart::files`]).
    pub fn new(files: &[ChartFile]) -> Self {
        let entries = files.iter().map(|file| (file.name.as_str().into(), bytes(&file.data)));
        Self::of(entries)
    }

    fn of(entries: impl IntoIterator<Item = (GoString, GoRuntimeValue)>) -> Self {
        let bytes = GoType::Slice(Arc::new(GoType::Integer(IntegerKind::Uint8)));
        Self(GoMap::new(bytes, entries))
    }

    /// The content of a file. It is empty if there is no such file.
    pub fn get(&self, name: &[u8]) -> GoString {
        self.find(name).unwrap_or_else(|| GoString::from(""))
    }

    fn find(&self, name: &[u8]) -> Option<GoString> {
        match self.0.get(name) {
            Some(GoRuntimeValue::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The files that match a glob. A `*` matches within a folder. An invalid glob matches all files.
    ///
    /// # Errors
    /// Matching takes too many steps.
    pub fn glob(&self, pattern: &str, meter: &mut WorkMeter) -> Result<Self, FunctionCallError> {
        meter.steps(self.0.len() as u64)?;
        let Ok(glob) = Glob::new(pattern, &['/']) else { return Ok(self.clone()) };
        let mut matched = Vec::new();
        for (name, data) in self.0.entries() {
            let (is_match, steps) = glob.is_match_in_steps(&name.lossy());
            meter.steps(steps as u64)?;
            if is_match.map_err(|error| error.to_string())? {
                meter.bytes(FILE_ENTRY_BYTES)?;
                matched.push((name, data));
            }
        }
        Ok(Self::of(matched))
    }

    /// The files as YAML strings, by the last part of their paths. This is the data of a ConfigMap.
    ///
    /// # Errors
    /// The result exceeds the meter.
    pub(crate) fn as_config(&self, meter: &mut WorkMeter) -> Result<String, FunctionCallError> {
        self.as_yaml(meter, |data| String::from_utf8_lossy(data).into_owned())
    }

    /// The files as base64 in YAML, by the last part of their paths. This is the data of a Secret.
    ///
    /// # Errors
    /// The result exceeds the meter.
    pub(crate) fn as_secrets(&self, meter: &mut WorkMeter) -> Result<String, FunctionCallError> {
        self.as_yaml(meter, |data| STANDARD.encode(data))
    }

    /// Writes files as YAML. If several files have the same last part of their paths, the last file counts.
    /// Differs(helm 4): in Helm it is a random one.
    fn as_yaml(
        &self,
        meter: &mut WorkMeter,
        text: impl Fn(&[u8]) -> String,
    ) -> Result<String, FunctionCallError> {
        let mut by_name = serde_json::Map::new();
        for (name, data) in self.0.entries() {
            let GoRuntimeValue::Bytes(data) = &data else { continue };
            // The YAML contains the text again.
            meter.steps(data.len() as u64 / 4)?;
            meter.bytes(data.len() as u64 + FILE_ENTRY_BYTES)?;
            by_name.insert(base(&name.lossy()).to_owned(), text(data).into());
        }
        let left = meter.left().bytes;
        let limit = usize::try_from(left).unwrap_or(usize::MAX);
        let mut yaml = match goyaml::emit_value(&&Json::Object(by_name), limit) {
            Ok(yaml) => yaml,
            Err(error) if error.is_limit() => {
                meter.bytes(left.saturating_add(1))?;
                return Err(FunctionCallError::Said(error.to_string()));
            }
            Err(_) => String::new(),
        };
        meter.bytes(yaml.len() as u64)?;
        if yaml.ends_with('\n') {
            yaml.pop();
        }
        Ok(yaml)
    }

    /// The lines of a file, without the last line end. The list is empty if there is no such file.
    ///
    /// # Errors
    /// Parity(helm 4): the file is empty, at which Go panics. Or the lines exceed the meter.
    pub fn lines(
        &self,
        name: &[u8],
        meter: &mut WorkMeter,
    ) -> Result<Vec<GoString>, FunctionCallError> {
        let Some(data) = self.find(name) else { return Ok(Vec::new()) };
        let Some(last) = data.last() else {
            return Err("runtime error: index out of range [-1]".to_owned().into());
        };
        let text = if *last == b'\n' { &data[..data.len() - 1] } else { &data[..] };
        let lines = memchr::memchr_iter(b'\n', text).count() as u64 + 1;
        meter.steps(lines + text.len() as u64 / 16)?;
        meter.bytes(lines * LINE_ENTRY_BYTES + text.len() as u64)?;
        Ok(text.split(|byte| *byte == b'\n').map(GoString::from).collect())
    }

    /// The files as a value for templates.
    pub fn value(self) -> GoRuntimeValue {
        GoRuntimeValue::object(self)
    }
}

fn bytes(data: &Arc<[u8]>) -> GoRuntimeValue {
    GoRuntimeValue::Bytes(GoString::from(Arc::clone(data)))
}

impl GoObject for ChartFiles {
    fn type_name(&self) -> &str {
        "engine.files"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Map
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::Map(self.0.clone()))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let bytes_type = || GoType::Slice(Arc::new(GoType::Integer(IntegerKind::Uint8)));
        let named = |params, result| FunctionSignature::new(vec![GoType::String; params], result);
        Some(match name {
            // The content is shared with the chart.
            "Get" => GoFunction::metered(named(1, GoType::String), move |_, arguments| {
                Ok(GoRuntimeValue::String(self.get(&text(arguments))))
            }),
            "GetBytes" => GoFunction::metered(named(1, bytes_type()), move |_, arguments| {
                Ok(GoRuntimeValue::Bytes(self.get(&text(arguments))))
            }),
            "Glob" => {
                let files = GoType::Named(self.type_name().into(), ReflectKind::Map);
                GoFunction::metered(named(1, files), move |meter, arguments| {
                    self.glob(&text(arguments).lossy(), meter).map(Self::value)
                })
            }
            "AsConfig" => GoFunction::metered(named(0, GoType::String), move |meter, _| {
                self.as_config(meter).map(GoRuntimeValue::from)
            }),
            "AsSecrets" => GoFunction::metered(named(0, GoType::String), move |meter, _| {
                self.as_secrets(meter).map(GoRuntimeValue::from)
            }),
            "Lines" => {
                let strings = GoType::Slice(Arc::new(GoType::String));
                GoFunction::metered(named(1, strings), move |meter, arguments| {
                    let lines = self.lines(&text(arguments), meter)?;
                    let lines = lines.into_iter().map(GoRuntimeValue::String).collect();
                    Ok(GoRuntimeValue::List(GoSlice::new(GoType::String, lines)))
                })
            }
            _ => return None,
        })
    }
}

/// The first argument. The signature makes it a text.
fn text(arguments: &[GoRuntimeValue]) -> GoString {
    match arguments.first() {
        Some(GoRuntimeValue::String(text)) => text.clone(),
        _ => GoString::from(""),
    }
}
