//! Evaluates the CEL rules of a schema (`x-kubernetes-validations`).
//!
//! Here: which rules are evaluated, and with which values. Elsewhere: the language (engine `gocel`).
//!
//! Kubernetes has functions and types of its own. A rule is not judged if it uses one of them, reads a value of an
//! unsupported type, or gives no value.
//!
//! Source of the semantics: apiextensions-apiserver `pkg/apiserver/schema/cel`.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use gocel::CelExpression;
use serde_json::{Map, Value};

use crate::crd_change_verdict::{CrdChangeProblem, ObjectFindingSink};
use crate::field_path::FieldPath;
use crate::schema::{SchemaListType, SchemaNode, SchemaNodeWithPrevious, SchemaType};

/// How many characters of a rule a message shows.
const MAX_RULE_CHARACTERS: usize = 120;

/// A validation rule of a schema, which is a CEL expression that is parsed when it is first needed.
#[derive(Debug)]
pub(crate) struct ValidationRule {
    text: String,
    message: String,
    has_optional_old: bool,
    read: OnceLock<Option<CelExpression>>,
}

impl PartialEq for ValidationRule {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.has_optional_old) == (&other.text, other.has_optional_old)
    }
}

impl ValidationRule {
    pub(crate) fn read(value: &Value) -> Self {
        let text = |name: &str| value[name].as_str().unwrap_or_default().trim().to_owned();
        Self {
            text: text("rule"),
            message: text("message"),
            has_optional_old: value["optionalOldSelf"] == true,
            read: OnceLock::new(),
        }
    }

    /// Whether the rule contains this word.
    fn names(&self, word: &str) -> bool {
        let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
        self.text.split(|it| !is_word(it)).any(|it| it == word)
    }

    fn shown(&self) -> String {
        let text: String = self.text.chars().take(MAX_RULE_CHARACTERS).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match self.message.is_empty() {
            true => format!("violates the rule `{text}`"),
            false => {
                let message: String = self.message.chars().take(MAX_RULE_CHARACTERS).collect();
                format!("violates a rule: {message}")
            }
        }
    }
}

/// Evaluates the rules of all parts that changed. `was` is the object before it was defaulted and pruned.
pub(crate) fn ask(
    value: &Value,
    change: SchemaNodeWithPrevious<'_>,
    was: Option<&Value>,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    let node = change.node;
    if node.is_same || !sink.step() {
        return;
    }
    let fits = match node.own.of {
        Some(SchemaType::Object) => value.is_object(),
        Some(SchemaType::Array) => value.is_array(),
        _ => !value.is_null(),
    };
    if fits && !node.own.rules.is_empty() {
        ask_here(value, change, was, place, sink);
    }
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let Some(below) = change.of_key(name) else { continue };
                let was = was.and_then(|it| it.get(name));
                match node.properties.contains_key(name) {
                    true => place.below(name, |place| ask(value, below, was, place, sink)),
                    false => place.any(|place| ask(value, below, was, place, sink)),
                }
            }
        }
        Value::Array(items) => {
            let Some(below) = change.of_items() else { return };
            for (at, item) in items.iter().enumerate() {
                let was = was.and_then(|it| it.get(at));
                place.item(|place| ask(item, below, was, place, sink));
            }
        }
        _ => {}
    }
}

fn ask_here(
    value: &Value,
    SchemaNodeWithPrevious { node, before }: SchemaNodeWithPrevious<'_>,
    was: Option<&Value>,
    place: &mut FieldPath,
    sink: &mut ObjectFindingSink,
) {
    let mut data = ValidationRuleData::default();
    let own = data.of(value, node, place.text() == ".", None, sink);
    for rule in &node.own.rules {
        let is_known = was == Some(value) && before.is_some_and(|it| it.own.rules.contains(rule));
        let outcome = match &own {
            Some(own) => answer(rule, own, &data, sink),
            None => Err("its value has a type that is not supported here".to_owned()),
        };
        match outcome {
            Ok(true) => {}
            Ok(false) => sink.invalid(place, rule.shown()),
            // The old schema gave the same error.
            Err(_) if is_known => {}
            Err(why) => {
                let text: String = rule.text.chars().take(MAX_RULE_CHARACTERS).collect();
                sink.find(CrdChangeProblem::Unjudged, place, format!("the rule `{text}`: {why}"));
            }
        }
    }
}

fn answer(
    rule: &ValidationRule,
    own: &Value,
    data: &ValidationRuleData,
    sink: &mut ObjectFindingSink,
) -> Result<bool, String> {
    let odd = data.odd.iter().find(|name| rule.names(name));
    if let Some(name) = odd {
        return Err(format!("`{name}` has a type that is not supported here"));
    }
    let lists = data.lists.iter().filter(|name| rule.names(name)).count();
    if lists > 1 && (rule.text.contains("==") || rule.text.contains("!=")) {
        return Err("it may compare lists that have no order".to_owned());
    }
    if rule.has_optional_old && rule.names("oldSelf") {
        return Err("`oldSelf` is optional".to_owned());
    }
    let read = rule.read.get_or_init(|| {
        let mut meter = sink.reading();
        let read = CelExpression::parse_within(&rule.text, &mut meter).ok();
        sink.has_read(&meter);
        read
    });
    let Some(expression) = read else {
        return Err("it is not in the language as it is known here".to_owned());
    };
    // The rule compares an object with its predecessor. The object itself stands for both, as in an update that changes
    // nothing.
    let variables = [("self", own), ("oldSelf", own)];
    let describe = |error: &gocel::Error| match error {
        gocel::Error::Evaluate { .. } => "it has no value here".to_owned(),
        _ => "its value is not a boolean".to_owned(),
    };
    sink.evaluate(|meter| expression.evaluate_bool_within(&variables, meter))
        .map_err(|error| describe(&error))
}

/// Words that cannot be names in CEL.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name of a field in a rule. `None` if a rule cannot name the field.
fn escaped(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let plain = name.replace("__", "__underscores__").replace('.', "__dot__");
    let plain = plain.replace('-', "__dash__").replace('/', "__slash__");
    let mut bytes = plain.bytes();
    let is_first = |it: u8| it.is_ascii_alphabetic() || it == b'_';
    let is_name = bytes.next().is_some_and(is_first)
        && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'_');
    is_name.then_some(plain)
}

/// Facts about the values of an object that matter for a rule.
#[derive(Default)]
struct ValidationRuleData {
    /// Fields with values for which the CEL engine has no type.
    odd: BTreeSet<String>,
    /// Fields that are lists whose order does not matter.
    lists: BTreeSet<String>,
}

impl ValidationRuleData {
    /// The value as a rule sees it. If its type is not supported, the result is `None` and the field is recorded by its
    /// name.
    fn of(
        &mut self,
        value: &Value,
        node: &SchemaNode,
        is_object: bool,
        name: Option<&str>,
        sink: &mut ObjectFindingSink,
    ) -> Option<Value> {
        let is_odd = matches!(
            node.own.format.as_str(),
            "date" | "date-time" | "datetime" | "duration" | "byte"
        );
        if value.is_null() || is_odd || !sink.step() {
            self.odd.extend(name.map(str::to_owned));
            return None;
        }
        if node.own.list != SchemaListType::Atomic {
            self.lists.extend(name.map(str::to_owned));
        }
        match value {
            Value::Object(map) => Some(self.of_map(map, node, is_object, name, sink)),
            Value::Array(items) => {
                let Some(below) = &node.items else { return Some(value.clone()) };
                let items = items.iter().map(|it| self.of(it, below, false, name, sink));
                let items = items.collect::<Option<Vec<_>>>();
                if items.is_none() {
                    self.odd.extend(name.map(str::to_owned));
                }
                items.map(Value::Array)
            }
            Value::Number(number) => {
                let float = number.as_f64().unwrap_or_default();
                let is_whole = float.fract() == 0.0 && float.abs() < 9e15;
                Some(match node.own.of {
                    Some(SchemaType::Number) => Value::from(float),
                    Some(SchemaType::Integer) if number.is_f64() && is_whole => {
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "it is whole and small"
                        )]
                        let whole = float as i64;
                        Value::from(whole)
                    }
                    _ => value.clone(),
                })
            }
            _ => Some(value.clone()),
        }
    }

    fn of_map(
        &mut self,
        map: &Map<String, Value>,
        node: &SchemaNode,
        is_object: bool,
        name: Option<&str>,
        sink: &mut ObjectFindingSink,
    ) -> Value {
        let mut seen = Map::new();
        if is_object || node.own.is_embedded {
            for name in ["apiVersion", "kind"] {
                seen.extend(map.get(name).map(|it| (name.to_owned(), it.clone())));
            }
            let meta = map.get("metadata").and_then(Value::as_object);
            let meta: Map<String, Value> = meta
                .into_iter()
                .flatten()
                .filter(|(name, _)| ["name", "generateName"].contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            seen.insert("metadata".to_owned(), Value::Object(meta));
        }
        for (key, value) in map {
            let is_field = node.properties.contains_key(key);
            let (Some(below), true) = (node.of_key(key), !seen.contains_key(key)) else { continue };
            let visible = if is_field { escaped(key) } else { Some(key.clone()) };
            let Some(visible) = visible else { continue };
            let noted = if is_field { Some(visible.as_str()) } else { name };
            if let Some(value) = self.of(value, below, false, noted, sink) {
                seen.insert(visible, value);
            }
        }
        Value::Object(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_names_that_the_language_can_say() {
        assert_eq!(escaped("namespace").as_deref(), Some("__namespace__"));
        assert_eq!(
            escaped("a-b.c/d__e").as_deref(),
            Some("a__dash__b__dot__c__slash__d__underscores__e")
        );
        assert_eq!(escaped("self").as_deref(), Some("self"));
        assert_eq!(escaped("0a"), None);
    }
}
