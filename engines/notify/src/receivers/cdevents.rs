//! Checks bodies of CDEvents 0.4.1: the fields that all events have. Below: fields that differ by type (`cdevents/content.rs`).

mod content;

use golang::regexp::GoRegexp;
use golang::url::GoUrl;
use serde_json::Value;

use super::payload::{PayloadValueType, fits, is_time, member, text, whole};

const CONTEXT: PayloadValueType = PayloadValueType::Object(&[
    ("id", PayloadValueType::Text),
    ("source", PayloadValueType::Text),
    ("type", PayloadValueType::Text),
    ("version", PayloadValueType::Text),
    ("timestamp", PayloadValueType::Text),
    ("chainId", PayloadValueType::Text),
    ("schemaUri", PayloadValueType::Text),
]);
const SUBJECT: PayloadValueType = PayloadValueType::Object(&[
    ("id", PayloadValueType::Text),
    ("source", PayloadValueType::Text),
    ("type", PayloadValueType::Text),
]);

/// Accepts a body that is an event. Fields missing in its context, and a missing type of its subject, are filled in. Fields
/// that it has must be valid.
///
/// Differs(flux): Flux's SDK fills in missing fields from the preceding event of that type, from any sender, and it also
/// validates each link.
///
/// # Errors
/// The first problem of the body.
pub(super) fn check(body: &[u8]) -> Result<(), String> {
    let refuse = |reason: &str| Err(format!("unable to validate CDEvent event: {reason}"));
    let event = match whole(body) {
        Ok(event @ Value::Object(_)) => event,
        Ok(_) => return refuse("the body is no object"),
        Err(error) => return refuse(&error),
    };
    let context = member(&event, "context").unwrap_or(&Value::Null);
    let subject = member(&event, "subject").unwrap_or(&Value::Null);
    if !fits(context, &CONTEXT) || !fits(subject, &SUBJECT) {
        return refuse("a member has another type than the specification says");
    }
    let kind = text(context, "type");
    let parts = kind.strip_prefix("dev.cdevents.").and_then(|rest| {
        let (subject, rest) = rest.split_once('.')?;
        let (predicate, version) = rest.split_once('.')?;
        Some((subject, predicate, version))
    });
    let is_custom = kind.starts_with("dev.cdeventsx.");
    let known = parts.and_then(|(subject, predicate, version)| {
        let mut types = content::ALL_TYPES.iter();
        types.find(|it| (it.subject, it.predicate, it.version) == (subject, predicate, version))
    });
    if !is_custom && known.is_none() {
        return refuse(&format!("unknown event type {kind}"));
    }
    let is_empty = |name: &str| member(context, name).is_some() && text(context, name).is_empty();
    if let Some(name) = ["id", "source", "version"].into_iter().find(|name| is_empty(name)) {
        return refuse(&format!("its {name} is empty"));
    }
    for name in ["source", "schemaUri"] {
        if GoUrl::parse(text(context, name).as_bytes()).is_err() {
            return refuse(&format!("{name} is no URI reference"));
        }
    }
    if !text(context, "schemaUri").is_empty() {
        return refuse("schemas of one's own are not fetched");
    }
    let time = text(context, "timestamp");
    if !time.is_empty() && !is_time(time) {
        return refuse("its timestamp is no time");
    }
    if text(subject, "id").is_empty() {
        return refuse("its subject has no id");
    }
    if GoUrl::parse(text(subject, "source").as_bytes()).is_err() {
        return refuse("the source of its subject is no URI reference");
    }
    match member(&event, "customData") {
        None | Some(Value::Null | Value::Object(_) | Value::String(_)) => {}
        Some(_) => return refuse("customData is neither an object nor a text"),
    }
    if !fits(
        &event,
        &PayloadValueType::Object(&[("customDataContentType", PayloadValueType::Text)]),
    ) {
        return refuse("customDataContentType is no text");
    }
    if !member(context, "links").is_none_or(|links| links.is_null() || links.is_array()) {
        return refuse("its links are no list");
    }
    let content = member(subject, "content").unwrap_or(&Value::Null);
    let Some(known) = known else { return custom(kind, subject, content) };
    let is_of_type =
        |given: &Value| given == content::subject_type(known.subject) || given.is_null();
    if !member(subject, "type").is_none_or(is_of_type) {
        return refuse("its subject has another type than it");
    }
    content::check(content, known.content).or_else(|reason| refuse(&reason))
}

/// Checks the other fields of an event with a custom type.
fn custom(kind: &str, subject: &Value, content: &Value) -> Result<(), String> {
    const CUSTOM_KIND: &str =
        "^dev\\.cdeventsx\\.[a-zA-Z0-9]+-[a-zA-Z]+\\.[a-zA-Z]+\\.[0-9]\\.[0-9]\\.[0-9]$";
    const CUSTOM_SUBJECT: &str = "^[a-zA-Z0-9]+-[a-zA-Z]+$";
    let is_like = |pattern: &str, text: &str| {
        GoRegexp::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
    };
    let refuse = |reason: &str| Err(format!("unable to validate CDEvent event: {reason}"));
    if !is_like(CUSTOM_KIND, kind) {
        return refuse(&format!("{kind} is no type of a custom event"));
    }
    if !is_like(CUSTOM_SUBJECT, text(subject, "type")) {
        return refuse("its subject has no type of a custom event");
    }
    if !content.is_object() {
        return refuse("its content is no object");
    }
    Ok(())
}
