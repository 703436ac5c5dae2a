//! The template functions that need the chart, the release or the cluster: `include`, `tpl`, `required`, `fail`,
//! `lookup`.
//!
//! Elsewhere: all other functions (`sprig`).

use std::sync::LazyLock;

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote};
use golang::value::{FunctionSignature, GoString, GoType};
use gotemplate::{FunctionCallContext, TemplateFunctionError, TemplateFunctions, TemplateSet};
use serde_json::Value as Json;

use super::render_function_context::RenderFunctionContext;
use super::{MAX_CODE, PARSED_BYTES_PER_BYTE, code_length, without_no_value};
use crate::render_environment::LookupQuery;
use crate::warning::{HelmWarning, WarningLevel};

/// The marks that Helm puts around messages of chart authors within Go's errors.
pub(super) const MARKS: (&str, &str) = ("HELM_ERR_START", "HELM_ERR_END");

/// The name of the template set, and of a text that `tpl` runs.
const SET: &str = "gotpl";

/// A template set with all functions and without templates.
pub(super) fn empty_set() -> TemplateSet {
    static EMPTY: LazyLock<TemplateSet> = LazyLock::new(|| TemplateSet::new(SET, functions()));
    EMPTY.clone()
}

/// The functions that chart templates can call in addition to Go's own.
pub fn functions() -> TemplateFunctions {
    let mut functions = sprig::functions::<RenderFunctionContext>();
    let text = || GoType::String;
    functions.insert("include", FunctionSignature::new([text(), GoType::Any], text()), include);
    functions.insert("tpl", FunctionSignature::new([text(), GoType::Any], text()), tpl);
    functions.insert(
        "required",
        FunctionSignature::new([text(), GoType::Any], GoType::Any),
        required,
    );
    functions.insert("fail", FunctionSignature::new([text()], text()), fail);
    let four = [text(), text(), text(), text()];
    functions.insert("lookup", FunctionSignature::new(four, GoType::map()), lookup);
    functions
}

fn host<'r>(
    call: &FunctionCallContext<'r>,
) -> Result<&'r RenderFunctionContext, TemplateFunctionError> {
    call.host::<RenderFunctionContext>()
        .ok_or_else(|| TemplateFunctionError::from("this run knows of no chart"))
}

/// An argument whose type in the signature is a text.
fn text(arguments: &[GoRuntimeValue], index: usize) -> GoString {
    match arguments.get(index) {
        Some(GoRuntimeValue::String(text)) => text.clone(),
        _ => GoString::default(),
    }
}

fn value(arguments: &[GoRuntimeValue], index: usize) -> GoRuntimeValue {
    arguments.get(index).cloned().unwrap_or_default()
}

/// `include NAME VALUE`: runs a template and returns its output as a text.
fn include(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let host = host(call)?;
    let name = text(arguments, 0);
    if !host.enter(&name) {
        return Err(TemplateFunctionError::Message(format!(
            "rendering template has a nested reference name: {}: unable to execute template",
            name.lossy()
        )));
    }
    let output = call.run(&name.lossy(), value(arguments, 1));
    host.leave(&name);
    output.map(GoRuntimeValue::string)
}

/// `tpl TEXT VALUE`: runs a text as a template. Its own definitions are not visible outside of it.
fn tpl(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let host = host(call)?;
    let source = text(arguments, 0);
    let parsed = match host.parsed(call.set(), &source) {
        Some(parsed) => parsed,
        None => {
            let mut set = call.set().clone();
            let code = code_length(&source);
            if code > MAX_CODE {
                let message = format!("the actions of a text are longer than {MAX_CODE} bytes");
                return Err(TemplateFunctionError::Message(message));
            }
            call.work(code * PARSED_BYTES_PER_BYTE + source.len() / 64)?;
            call.produce(code * PARSED_BYTES_PER_BYTE + source.len())?;
            let template =
                set.parse(SET, &source).map_err(|error| TemplateFunctionError::Within {
                    message: format!("cannot parse template {}: ", shown(call, &source)),
                    source: Box::new(error.into()),
                })?;
            host.keep(call.set(), &source, set, template)
        }
    };
    let output = call.run_template(&parsed.set, &parsed.template, value(arguments, 1));
    let output = output.map_err(|failure| TemplateFunctionError::Within {
        message: format!("error during tpl function execution for {}: ", shown(call, &source)),
        source: Box::new(failure),
    })?;
    Ok(GoRuntimeValue::string(without_no_value(output)))
}

/// A text as an error quotes it. An error quotes all texts that run each other, and a text within another one several
/// times. The budget for errors of the run therefore limits their total length.
fn shown(call: &FunctionCallContext<'_>, source: &GoString) -> String {
    let words = call.words(source.len());
    let quoted = quote(&source[..words], QuotingStyle::Printable);
    let rest = if words < source.len() { "..." } else { "" };
    format!("{}{rest}", String::from_utf8_lossy(&quoted))
}

fn marked(message: &GoString) -> TemplateFunctionError {
    TemplateFunctionError::Message(format!("{}{}{}", MARKS.0, message.lossy(), MARKS.1))
}

/// `required MESSAGE VALUE`: returns the value, unless it is nil or an empty text.
fn required(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let message = text(arguments, 0);
    let value = value(arguments, 1);
    let what = match &value {
        GoRuntimeValue::Nil => "missing required value",
        GoRuntimeValue::String(text) if text.is_empty() => "missing required values",
        _ => return Ok(value),
    };
    let host = host(call)?;
    if !host.mode.lint {
        return Err(marked(&message));
    }
    call.produce(message.len() + VALUE_OVERHEAD_BYTES)?;
    host.warn(HelmWarning::new(WarningLevel::Warn, what).with_value("message", message.lossy()));
    Ok(GoRuntimeValue::from(""))
}

/// `fail MESSAGE`: ends the render.
fn fail(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let message = text(arguments, 0);
    let host = host(call)?;
    if !host.mode.lint {
        return Err(marked(&message));
    }
    call.produce(message.len() + VALUE_OVERHEAD_BYTES)?;
    host.warn(
        HelmWarning::new(WarningLevel::Info, "funcMap fail").with_value("message", message.lossy()),
    );
    Ok(GoRuntimeValue::from(""))
}

/// `lookup APIVERSION KIND NAMESPACE NAME`: returns an object of the cluster, or a list if the name is empty. It
/// returns an empty map if there is no such object.
fn lookup(
    call: &mut FunctionCallContext<'_>,
    arguments: &[GoRuntimeValue],
) -> Result<GoRuntimeValue, TemplateFunctionError> {
    let host = host(call)?;
    let nothing = || GoRuntimeValue::Map(golang::value::GoMap::default());
    let Some(cluster) = host.env.cluster.as_ref().filter(|_| !host.mode.lint) else {
        return Ok(nothing());
    };
    if !host.is_alone() {
        return Ok(nothing());
    }
    let strings = [0, 1, 2, 3].map(|index| text(arguments, index).lossy().into_owned());
    let [api_version, kind, namespace, name] = &strings;
    call.look()?;
    let found = cluster.lookup(&LookupQuery { api_version, kind, namespace, name })?;
    let Some(object) = found else { return Ok(nothing()) };
    count(call, &object)?;
    Ok(GoRuntimeValue::from_json(&object))
}

/// Charges for the values of an object that was made outside of the templates.
fn count(call: &mut FunctionCallContext<'_>, object: &Json) -> Result<(), TemplateFunctionError> {
    let mut pending = vec![object];
    while let Some(value) = pending.pop() {
        let bytes = match value {
            Json::String(text) => text.len(),
            Json::Array(items) => {
                pending.extend(items);
                LIST_OVERHEAD_BYTES
            }
            Json::Object(entries) => {
                pending.extend(entries.values());
                MAP_OVERHEAD_BYTES
                    + entries.keys().map(|key| key.len() + VALUE_OVERHEAD_BYTES).sum::<usize>()
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => 0,
        };
        call.work(1 + bytes / 64)?;
        call.produce(bytes + VALUE_OVERHEAD_BYTES)?;
    }
    Ok(())
}

/// How many bytes a value, a list and a map of a cluster's object take in addition to their content.
const VALUE_OVERHEAD_BYTES: usize = 40;
const LIST_OVERHEAD_BYTES: usize = 96;
const MAP_OVERHEAD_BYTES: usize = 448;
