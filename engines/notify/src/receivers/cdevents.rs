//! Bodies of CDEvents: the types of 0.4.1, and what all of them have in common.
//!
//! Differs(flux): the contents of a subject, which differ by type, are not compared with their schemas; Flux does
//! nothing with them either, and filters say what they need.

use golang::url::Url;
use serde_json::Value;

use super::payload::{Shape, fits, is_time, member, text, whole};

/// Subject, predicates, and the version of the type.
const TYPES: [(&str, &str, &str); 45] = [
    ("artifact", "deleted", "0.1.0"),
    ("artifact", "downloaded", "0.1.0"),
    ("artifact", "packaged", "0.2.0"),
    ("artifact", "published", "0.2.0"),
    ("artifact", "signed", "0.2.0"),
    ("branch", "created", "0.2.0"),
    ("branch", "deleted", "0.2.0"),
    ("build", "finished", "0.2.0"),
    ("build", "queued", "0.2.0"),
    ("build", "started", "0.2.0"),
    ("change", "abandoned", "0.2.0"),
    ("change", "created", "0.3.0"),
    ("change", "merged", "0.2.0"),
    ("change", "reviewed", "0.2.0"),
    ("change", "updated", "0.2.0"),
    ("environment", "created", "0.2.0"),
    ("environment", "deleted", "0.2.0"),
    ("environment", "modified", "0.2.0"),
    ("incident", "detected", "0.2.0"),
    ("incident", "reported", "0.2.0"),
    ("incident", "resolved", "0.2.0"),
    ("pipelinerun", "finished", "0.2.0"),
    ("pipelinerun", "queued", "0.2.0"),
    ("pipelinerun", "started", "0.2.0"),
    ("repository", "created", "0.2.0"),
    ("repository", "deleted", "0.2.0"),
    ("repository", "modified", "0.2.0"),
    ("service", "deployed", "0.2.0"),
    ("service", "published", "0.2.0"),
    ("service", "removed", "0.2.0"),
    ("service", "rolledback", "0.2.0"),
    ("service", "upgraded", "0.2.0"),
    ("taskrun", "finished", "0.2.0"),
    ("taskrun", "started", "0.2.0"),
    ("testcaserun", "finished", "0.2.0"),
    ("testcaserun", "queued", "0.2.0"),
    ("testcaserun", "skipped", "0.1.0"),
    ("testcaserun", "started", "0.2.0"),
    ("testoutput", "published", "0.2.0"),
    ("testsuiterun", "finished", "0.2.0"),
    ("testsuiterun", "queued", "0.2.0"),
    ("testsuiterun", "started", "0.2.0"),
    ("ticket", "closed", "0.1.0"),
    ("ticket", "created", "0.1.0"),
    ("ticket", "updated", "0.1.0"),
];

const CONTEXT: Shape = Shape::Object(&[
    ("id", Shape::Text),
    ("source", Shape::Text),
    ("type", Shape::Text),
    ("version", Shape::Text),
    ("timestamp", Shape::Text),
    ("chainId", Shape::Text),
    ("schemaUri", Shape::Text),
]);
const SUBJECT: Shape =
    Shape::Object(&[("id", Shape::Text), ("source", Shape::Text), ("type", Shape::Text)]);

/// Accepts a body that is an event. What it lacks is filled in, and does not count; what it has must be right.
///
/// # Errors
/// What is wrong with it.
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
    if !is_custom && parts.is_none_or(|parts| !TYPES.contains(&parts)) {
        return refuse(&format!("unknown event type {kind}"));
    }
    if member(context, "id").is_some() && text(context, "id").is_empty() {
        return refuse("its id is empty");
    }
    for name in ["source", "schemaUri"] {
        if Url::parse(text(context, name).as_bytes()).is_err() {
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
    Ok(())
}
