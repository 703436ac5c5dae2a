//! The template functions that helmfile adds to sprig's, and functions of sprig that Helm lacks.

use golang::GoRuntimeValue;
use golang::value::{FunctionSignature, GoSlice, GoString, GoType, ReflectKind};
use gotemplate::{FunctionCallContext, TemplateFunctionError, TemplateFunctions};
use serde_json::Value as Json;
use tree::FileKind as EntryKind;

use super::{TemplateFunctionContext, go, with_helpers};
use crate::error::Error;
use crate::helmfile_host_environment::ProgramCall;
use crate::secret_references;
use crate::yaml;
use golang::path::join;

/// The extra bytes that count for each value when it is converted to text.
const NODE_OVERHEAD_BYTES: usize = 64;

/// All functions that templates of helmfiles can call.
pub(super) fn functions() -> TemplateFunctions {
    let mut functions = sprig::functions::<TemplateFunctionContext>();
    let text = || GoType::String;
    let any = || GoType::Any;
    let sprig_get = FunctionSignature::new([GoType::map(), text()], any());
    functions.insert("sprigGet", sprig_get, |_, arguments| match arguments.first() {
        Some(GoRuntimeValue::Map(map)) => {
            Ok(map.get(&text_of(arguments, 1)).unwrap_or_else(|| "".into()))
        }
        _ => Ok(GoRuntimeValue::from("")),
    });
    functions.insert("get", FunctionSignature::variadic([text(), any()], any()), get);
    functions.insert("getOrNil", FunctionSignature::new([text(), any()], any()), get_or_nil);
    let at_path = FunctionSignature::new([text(), any(), GoType::map()], GoType::map());
    functions.insert("setValueAtPath", at_path, set_value_at_path);
    functions.insert("toYaml", FunctionSignature::new([any()], text()), to_yaml);
    functions.insert("fromYaml", FunctionSignature::new([text()], any()), from_yaml);
    functions.insert("fromJson", FunctionSignature::new([text()], any()), |_, arguments| {
        let json = serde_json::from_slice(&text_of(arguments, 0)).unwrap_or_default();
        Ok(GoRuntimeValue::from_json(&json))
    });
    functions.insert("mustFromJson", FunctionSignature::new([text()], any()), |_, arguments| {
        let json = serde_json::from_slice(&text_of(arguments, 0));
        json.map(|json| GoRuntimeValue::from_json(&json)).map_err(|error| error.to_string().into())
    });
    functions.insert("required", FunctionSignature::new([text(), any()], any()), required);
    functions.insert("requiredEnv", FunctionSignature::new([text()], text()), required_env);
    functions.insert("env", FunctionSignature::new([text()], text()), |call, arguments| {
        let name = text_of(arguments, 0);
        Ok(GoRuntimeValue::from(
            host(call)?.helmfile_environment.variable(&name.lossy()).unwrap_or_default(),
        ))
    });
    functions.insert("expandenv", FunctionSignature::new([text()], text()), expand_env);
    functions.insert(
        "include",
        FunctionSignature::new([text(), any()], text()),
        |call, arguments| {
            let name = text_of(arguments, 0);
            call.run(&name.lossy(), value(arguments, 1)).map(GoRuntimeValue::string)
        },
    );
    functions.insert("tpl", FunctionSignature::new([text(), any()], text()), tpl);
    files(&mut functions);
    programs(&mut functions);
    secrets(&mut functions);
    functions
}

/// Adds the functions of templates that read files.
fn files(functions: &mut TemplateFunctions) {
    let text = || GoType::String;
    functions.insert("readFile", FunctionSignature::new([text()], text()), |call, arguments| {
        let host = unrestricted(call)?;
        let path = path(host, arguments);
        let data = match host.place.read(&path) {
            Err(_) if host.is_lenient => return Ok(GoRuntimeValue::from("")),
            read => read.map_err(|error| error.to_string())?,
        };
        call.produce(data.len())?;
        Ok(GoRuntimeValue::string(data.to_vec()))
    });
    let names =
        FunctionSignature::new([text()], GoType::Slice(std::sync::Arc::new(GoType::String)));
    functions.insert("readDir", names, |call, arguments| {
        let host = unrestricted(call)?;
        let given = text_of(arguments, 0);
        let entries = match entries(host, arguments) {
            Err(_) if host.is_lenient => Vec::new(),
            read => read?,
        };
        let files = entries.into_iter().filter(|(_, kind)| *kind == EntryKind::File);
        let paths: Vec<String> = files.map(|(name, _)| join(&given.lossy(), &name)).collect();
        if paths.is_empty() {
            return Ok(GoRuntimeValue::List(GoSlice::nil(GoType::String)));
        }
        Ok(GoRuntimeValue::strings(paths))
    });
    let entries_of = FunctionSignature::new([text()], GoType::Any);
    functions.insert("readDirEntries", entries_of, |call, arguments| {
        let host = unrestricted(call)?;
        let entries = entries(host, arguments)?.into_iter();
        Ok(GoRuntimeValue::list(
            entries.map(|(name, kind)| GoRuntimeValue::object(DirEntry { name, kind })),
        ))
    });
    functions.insert(
        "isFile",
        FunctionSignature::new([text()], GoType::Bool),
        |call, arguments| {
            let host = host(call)?;
            Ok(GoRuntimeValue::Bool(host.place.is_file(&path(host, arguments))))
        },
    );
    functions.insert("isDir", FunctionSignature::new([text()], GoType::Bool), |call, arguments| {
        let host = host(call)?;
        Ok(GoRuntimeValue::Bool(host.place.is_directory(&path(host, arguments))))
    });
}

/// Adds the functions of templates that run programs.
fn programs(functions: &mut TemplateFunctions) {
    let list = || GoType::Slice(std::sync::Arc::new(GoType::Any));
    let exec =
        FunctionSignature::variadic([GoType::String, list(), GoType::String], GoType::String);
    functions
        .insert("exec", exec, |call, arguments| run("exec", call, &GoRuntimeValue::Nil, arguments));
    let exec = FunctionSignature::variadic(
        [GoType::map(), GoType::String, list(), GoType::String],
        GoType::String,
    );
    functions.insert("envExec", exec, |call, arguments| match arguments.split_first() {
        Some((env, arguments)) => run("envExec", call, env, arguments),
        None => Err("envExec needs variables".into()),
    });
}

/// Runs `COMMAND ARGUMENTS [INPUT]` in the directory of the template, if programs are allowed.
fn run(
    function: &'static str,
    call: &mut FunctionCallContext<'_>,
    env: &GoRuntimeValue,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let host = unrestricted(call)?;
    if host.is_lenient {
        return Ok(GoRuntimeValue::from(""));
    }
    let Some(programs) = &host.helmfile_environment.programs else {
        return Err(format!(
            "{function} is not supported, because it runs a program: write what the program prints to a file and use \
             readFile, or pass it with --state-values-file; on a command line, --allow-exec allows it"
        )
        .into());
    };
    let is_text = |value: &GoRuntimeValue, what: &str| match value {
        GoRuntimeValue::String(text) => Ok(text.lossy().into_owned()),
        other => Err(format!(
            "unexpected type of {what}: {}, where a string is wanted",
            other.type_name()
        )),
    };
    let mut args = Vec::new();
    if let Some(GoRuntimeValue::List(list)) = arguments.get(1) {
        for (index, item) in list.items().iter().enumerate() {
            args.push(is_text(item, &format!("argument {index} of {function}"))?);
        }
    }
    let mut variables = Vec::new();
    if let GoRuntimeValue::Map(map) = env {
        for (name, value) in map.entries() {
            let name = name.lossy().into_owned();
            let value = is_text(&value, &format!("variable {name} of {function}"))?;
            variables.push((name, value));
        }
    }
    host.helmfile_environment.note(function);
    let directory = host.place.absolute_of(&host.base).map_err(|error| error.to_string())?;
    let command = text_of(arguments, 0);
    let input = text_of(arguments, 2);
    let program = ProgramCall {
        command: &command.lossy(),
        args: &args,
        env: &variables,
        input: &input,
        directory: &directory,
    };
    let output = programs.run(&program)?;
    call.produce(output.len())?;
    Ok(GoRuntimeValue::string(output))
}

/// Functions that follow references to secrets.
fn secrets(functions: &mut TemplateFunctions) {
    let fetch = FunctionSignature::new([GoType::String], GoType::String);
    functions.insert("fetchSecretValue", fetch, |call, arguments| {
        let text = Json::String(text_of(arguments, 0).lossy().into_owned());
        match expanded(call, &text)? {
            Json::String(text) => Ok(GoRuntimeValue::from(text)),
            other => Err(format!(
                "the reference leads to {}, where a string is wanted",
                yaml::kind(&other)
            )
            .into()),
        }
    });
    let expand = FunctionSignature::new([GoType::map()], GoType::map());
    functions.insert("expandSecretRefs", expand, |call, arguments| {
        let given = value(arguments, 0);
        sprig::walk(call.meter(), &given, NODE_OVERHEAD_BYTES)?;
        let text = sprig::write_yaml_v3(&given)?;
        call.produce(text.len())?;
        let map = yaml::read(text.as_bytes()).map_err(|error| error.to_string())?;
        match expanded(call, &map)? {
            map @ Json::Object(_) => Ok(go(&map)),
            _ => Ok(given),
        }
    });
}

/// A value whose references to secrets are replaced by the secrets.
fn expanded(
    call: &mut FunctionCallContext<'_>,
    value: &Json,
) -> Result<Json, TemplateFunctionError> {
    let host = host(call)?;
    let mut count =
        |bytes: usize| call.produce(bytes).map_err(|failure| Error::from(failure.to_string()));
    let done = secret_references::expand_within(
        &host.helmfile_environment,
        &host.place,
        value,
        &mut count,
    );
    done.map_err(|error| error.to_string().into())
}

fn host<'r>(
    call: &FunctionCallContext<'r>,
) -> Result<&'r TemplateFunctionContext, TemplateFunctionError> {
    call.host::<TemplateFunctionContext>()
        .ok_or_else(|| TemplateFunctionError::from("this run knows of no helmfile"))
}

fn unrestricted<'r>(
    call: &FunctionCallContext<'r>,
) -> Result<&'r TemplateFunctionContext, TemplateFunctionError> {
    let host = host(call)?;
    if host.helmfile_environment.is_restricted() {
        return Err("HELMFILE_DISABLE_INSECURE_FEATURES or HELMFILE_DISABLE_INSECURE_TEMPLATE_FUNCTIONS is active, \
                    insecure function calls are disabled"
            .into());
    }
    Ok(host)
}

/// An argument whose parameter has the type string.
fn text_of(arguments: &[GoRuntimeValue], index: usize) -> GoString {
    arguments.get(index).and_then(GoRuntimeValue::bytes).cloned().unwrap_or_default()
}

fn value(arguments: &[GoRuntimeValue], index: usize) -> GoRuntimeValue {
    arguments.get(index).cloned().unwrap_or_default()
}

/// The path that the first argument refers to.
fn path(host: &TemplateFunctionContext, arguments: &[GoRuntimeValue]) -> String {
    let given = text_of(arguments, 0);
    let given = given.lossy();
    if given.starts_with('/') { given.into_owned() } else { join(&host.base, &given) }
}

fn entries(
    host: &TemplateFunctionContext,
    arguments: &[GoRuntimeValue],
) -> Result<Vec<(String, EntryKind)>, TemplateFunctionError> {
    host.place.list(&path(host, arguments)).map_err(|error| error.to_string().into())
}

/// An entry of a directory, as returned by `readDirEntries`.
#[derive(Debug)]
struct DirEntry {
    name: String,
    kind: EntryKind,
}

impl golang::value::GoObject for DirEntry {
    fn type_name(&self) -> &str {
        "*os.unixDirent"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Pointer
    }

    fn method(self: std::sync::Arc<Self>, name: &str) -> Option<golang::value::GoFunction> {
        let value = match name {
            "Name" => GoRuntimeValue::from(self.name.as_str()),
            "IsDir" => GoRuntimeValue::Bool(self.kind == EntryKind::Dir),
            _ => return None,
        };
        let result = value.type_of().unwrap_or(GoType::Any);
        Some(golang::value::GoFunction::new(FunctionSignature::new([], result), move |_| {
            Ok(value.clone())
        }))
    }
}

/// The function `get PATH [DEFAULT] OBJECT` of templates, which reads the value at a path in an object.
fn get(
    _: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let (default, object) = match arguments {
        [_, object] => (None, object),
        [_, default, object] => (Some(default), object),
        _ => {
            return Err(format!(
                "unexpected number of args passed to the template function get(path, [def, ]obj): \
                 expected 1 or 2, got {}",
                arguments.len().saturating_sub(1)
            )
            .into());
        }
    };
    look_up(&text_of(arguments, 0).lossy(), default, object).map_err(TemplateFunctionError::from)
}

/// `getOrNil PATH OBJECT`: the value at a path, or nil if it is missing.
fn get_or_nil(
    _: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let path = text_of(arguments, 0);
    Ok(look_up(&path.lossy(), None, &value(arguments, 1)).unwrap_or_default())
}

fn look_up(
    path: &str,
    default: Option<&GoRuntimeValue>,
    object: &GoRuntimeValue,
) -> Result<GoRuntimeValue, String> {
    let mut object = object.clone();
    for key in path.split('.').filter(|_| !path.is_empty()) {
        let found = match &object {
            GoRuntimeValue::Map(map) => map.get(key.as_bytes()),
            GoRuntimeValue::Object(object) if matches!(object.kind(), ReflectKind::Struct) => {
                object.field(key)
            }
            other => {
                return Err(format!(
                    "unexpected type({}) of value for key \"{key}\": it must be either map[string]any or any struct",
                    other.type_name()
                ));
            }
        };
        match (found, default) {
            (Some(found), _) => object = found,
            (None, Some(default)) => return Ok(default.clone()),
            (None, None) => return Err(format!("no value exist for key \"{key}\"")),
        }
    }
    Ok(object)
}

/// `setValueAtPath PATH VALUE MAP`: sets the value in the map and returns the map.
fn set_value_at_path(
    _: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let path = text_of(arguments, 0);
    let path = path.lossy();
    let not_a_map = |key: &str| {
        format!("failed to set value at path \"{path}\": value for key \"{key}\" was not a map")
    };
    let mut current = value(arguments, 2);
    let keys: Vec<&str> = path.split('.').collect();
    let Some((last, parents)) = keys.split_last() else { return Ok(current) };
    for key in parents {
        let GoRuntimeValue::Map(map) = &current else { return Err(not_a_map(key).into()) };
        let Some(next) = map.get(key.as_bytes()) else {
            return Err(format!(
                "failed to set value at path \"{path}\": value for key \"{key}\" does not exist"
            )
            .into());
        };
        current = next;
    }
    match &current {
        GoRuntimeValue::Map(map) if !map.is_nil() => drop(map.insert(*last, value(arguments, 1))),
        _ => return Err(not_a_map(last).into()),
    }
    Ok(value(arguments, 2))
}

fn to_yaml(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let given = value(arguments, 0);
    sprig::walk(call.meter(), &given, NODE_OVERHEAD_BYTES)?;
    let text = sprig::write_yaml_v3(&given)?;
    call.produce(text.len())?;
    Ok(GoRuntimeValue::from(text))
}

fn from_yaml(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let text = text_of(arguments, 0);
    call.work(text.len())?;
    call.produce(text.len() * 8)?;
    let read =
        yaml::read(&text).map_err(|error| format!("{error}, offending yaml: {}", text.lossy()))?;
    Ok(go(&read))
}

fn required(
    _: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    match value(arguments, 1) {
        GoRuntimeValue::Nil => Err(text_of(arguments, 0).lossy().into_owned().into()),
        GoRuntimeValue::String(text) if text.is_empty() => {
            Err(text_of(arguments, 0).lossy().into_owned().into())
        }
        other => Ok(other),
    }
}

fn required_env(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let name = text_of(arguments, 0);
    let set =
        host(call)?.helmfile_environment.variable(&name.lossy()).filter(|text| !text.is_empty());
    set.map(GoRuntimeValue::from)
        .ok_or_else(|| format!("required env var `{}` is not set", name.lossy()).into())
}

/// `expandenv TEXT`: replaces `$NAME` and `${NAME}` by environment variables.
fn expand_env(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let helmfile_environment = &host(call)?.helmfile_environment;
    let given = text_of(arguments, 0);
    let given = given.lossy();
    let mut out = String::new();
    let mut rest = &*given;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let is_name = |character: char| character == '_' || character.is_ascii_alphanumeric();
        let (name, left) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(parts) => parts,
            None => {
                after.split_at(after.find(|character| !is_name(character)).unwrap_or(after.len()))
            }
        };
        if name.is_empty() && !after.starts_with('{') {
            out.push('$');
        }
        out.push_str(helmfile_environment.variable(name).unwrap_or_default());
        rest = left;
    }
    out.push_str(rest);
    call.produce(out.len())?;
    Ok(GoRuntimeValue::from(out))
}

/// `tpl TEXT DATA`: renders a text as a template, which can include only the `_*.tpl` files.
fn tpl(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let source = text_of(arguments, 0);
    call.work(source.len())?;
    call.produce(source.len())?;
    let mut set = with_helpers(host(call)?).map_err(|error| error.to_string())?;
    let template = set.parse(super::NAME, &source)?;
    call.run_template(&set, &template, value(arguments, 1)).map(GoRuntimeValue::string)
}
