//! `.Files`: what templates see of the files of a chart.
//!
//! Elsewhere: globs (`golang::glob`), how templates call methods (`gotemplate`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use golang::Value;
use golang::glob::Glob;
use golang::value::{Function, IntKind, Kind, List, Map, Object, Signature, Str, Type};
use serde_json::Value as Json;

use super::File;
use super::name::base;

/// Files of a chart by their names: Go's `engine.files`, a map of bytes with methods.
#[derive(Debug, Clone)]
pub struct Files(Map);

impl Files {
    /// The files that are no templates, values, or charts ([`super::Chart::files`]).
    pub fn new(files: &[File]) -> Self {
        let entries = files.iter().map(|file| (file.name.as_str().into(), bytes(&file.data)));
        Self::of(entries)
    }

    fn of(entries: impl IntoIterator<Item = (Str, Value)>) -> Self {
        let bytes = Type::Slice(Arc::new(Type::Integer(IntKind::Uint8)));
        Self(Map::new(bytes, entries))
    }

    /// The bytes of a file; none if there is no such file.
    pub fn get(&self, name: &[u8]) -> Str {
        self.find(name).unwrap_or_else(|| Str::from(""))
    }

    fn find(&self, name: &[u8]) -> Option<Str> {
        match self.0.get(name) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The files that a glob matches, `*` within a folder; all of them if it is no glob.
    ///
    /// # Errors
    /// Matching takes too many steps.
    pub fn glob(&self, pattern: &str) -> Result<Self, golang::glob::Error> {
        let Ok(glob) = Glob::new(pattern, &['/']) else { return Ok(self.clone()) };
        let mut matched = Vec::new();
        for (name, data) in self.0.entries() {
            if glob.is_match(&name.lossy())? {
                matched.push((name, data));
            }
        }
        Ok(Self::of(matched))
    }

    /// YAML of the files as texts, by the last parts of their names: the data of a ConfigMap.
    pub fn as_config(&self) -> String {
        self.as_yaml(|data| String::from_utf8_lossy(data).into_owned())
    }

    /// YAML of the files in base64, by the last parts of their names: the data of a Secret.
    pub fn as_secrets(&self) -> String {
        self.as_yaml(|data| STANDARD.encode(data))
    }

    /// Of files with the same last part of their names, the last counts. Differs(helm 4): there it is any of them.
    fn as_yaml(&self, text: impl Fn(&[u8]) -> String) -> String {
        let entries = self.0.entries().into_iter().map(|(name, data)| {
            let text = if let Value::Bytes(data) = &data { text(data) } else { String::new() };
            (base(&name.lossy()).to_owned(), text)
        });
        let by_name: BTreeMap<_, _> = entries.collect();
        let json = Json::Object(by_name.into_iter().map(|(k, v)| (k, v.into())).collect());
        let yaml = goyaml::emit(&json).unwrap_or_default();
        yaml.strip_suffix('\n').map_or(yaml.clone(), str::to_owned)
    }

    /// The lines of a file, without one line end at its end; none if there is no such file.
    ///
    /// # Errors
    /// Parity(helm 4): an empty file, at which Go panics.
    pub fn lines(&self, name: &[u8]) -> Result<Vec<Str>, String> {
        let Some(data) = self.find(name) else { return Ok(Vec::new()) };
        let Some(last) = data.last() else {
            return Err("runtime error: index out of range [-1]".to_owned());
        };
        let text = if *last == b'\n' { &data[..data.len() - 1] } else { &data[..] };
        Ok(text.split(|byte| *byte == b'\n').map(Str::from).collect())
    }

    /// As a value of templates.
    pub fn value(self) -> Value {
        Value::object(self)
    }
}

fn bytes(data: &Arc<[u8]>) -> Value {
    Value::Bytes(Str::from(Arc::clone(data)))
}

impl Object for Files {
    fn type_name(&self) -> &str {
        "engine.files"
    }

    fn kind(&self) -> Kind {
        Kind::Map
    }

    fn underlying(&self) -> Option<Value> {
        Some(Value::Map(self.0.clone()))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<Function> {
        let bytes_type = || Type::Slice(Arc::new(Type::Integer(IntKind::Uint8)));
        let named = |params, result| Signature::new(vec![Type::String; params], result);
        Some(match name {
            "Get" => Function::new(named(1, Type::String), move |arguments| {
                Ok(Value::String(self.get(&text(arguments))))
            }),
            "GetBytes" => Function::new(named(1, bytes_type()), move |arguments| {
                Ok(Value::Bytes(self.get(&text(arguments))))
            }),
            "Glob" => {
                let files = Type::Named(self.type_name().into(), Kind::Map);
                Function::new(named(1, files), move |arguments| {
                    let matched = self.glob(&text(arguments).lossy());
                    matched.map(Self::value).map_err(|error| error.to_string())
                })
            }
            "AsConfig" => {
                Function::new(named(0, Type::String), move |_| Ok(self.as_config().into()))
            }
            "AsSecrets" => {
                Function::new(named(0, Type::String), move |_| Ok(self.as_secrets().into()))
            }
            "Lines" => {
                let strings = Type::Slice(Arc::new(Type::String));
                Function::new(named(1, strings), move |arguments| {
                    let lines = self.lines(&text(arguments))?;
                    let lines = lines.into_iter().map(Value::String).collect();
                    Ok(Value::List(List::new(Type::String, lines)))
                })
            }
            _ => return None,
        })
    }
}

/// The first argument, which the signature makes a text.
fn text(arguments: &[Value]) -> Str {
    match arguments.first() {
        Some(Value::String(text)) => text.clone(),
        _ => Str::from(""),
    }
}
