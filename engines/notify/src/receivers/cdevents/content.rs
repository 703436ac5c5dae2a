//! The required content of the subjects in CDEvents 0.4.1, by the type of the event.
//!
//! Source: the schemas of cdevents/sdk-go 0.5.0. The SDK encodes an event again before it checks the schemas, so unknown
//! members are lost, and optional strings that are empty are dropped. Formats are not checked.

use golang::url::GoUrl;
use serde_json::Value;

use super::super::payload::member;
use CdEventFieldType::{Filled, Members, OneOf, Purl, Strings, Text, Uri};

/// A type of CDEvents: its subject, what happens to it, and its content.
pub(super) struct CdEventType {
    pub(super) subject: &'static str,
    pub(super) predicate: &'static str,
    /// The version of the type.
    pub(super) version: &'static str,
    /// The content of the subject.
    pub(super) content: &'static [CdEventMember],
}

const fn event(
    subject: &'static str,
    predicate: &'static str,
    version: &'static str,
    content: &'static [CdEventMember],
) -> CdEventType {
    CdEventType { subject, predicate, version, content }
}

/// A member of an object.
pub(super) struct CdEventMember {
    name: &'static str,
    field: CdEventFieldType,
    is_required: bool,
}

/// The required type of a value.
enum CdEventFieldType {
    /// A text.
    Text,
    /// A string that is not empty if it is present.
    Filled,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A text that Go reads as a URL.
    Uri,
    /// The URL of a package. Parity(flux): required also where the schemas have it optional.
    Purl,
    /// A list of strings.
    Strings,
    /// An object.
    Members(&'static [CdEventMember]),
}

const fn needs(name: &'static str, field: CdEventFieldType) -> CdEventMember {
    CdEventMember { name, field, is_required: true }
}

const fn may(name: &'static str, field: CdEventFieldType) -> CdEventMember {
    CdEventMember { name, field, is_required: false }
}

const ANY_REFERENCE: CdEventFieldType = Members(&[needs("id", Filled), may("source", Uri)]);
const SBOM_LINK: CdEventFieldType = Members(&[needs("uri", Filled)]);
const RUN_TRIGGER: CdEventFieldType = Members(&[
    may("type", OneOf(&["manual", "pipeline", "event", "schedule", "other"])),
    may("uri", Text),
]);
const TEST_CASE: CdEventFieldType = Members(&[
    needs("id", Filled),
    may("name", Text),
    may("type", TEST_TYPES),
    may("uri", Text),
    may("version", Text),
]);
const TEST_SUITE: CdEventFieldType = Members(&[
    needs("id", Filled),
    may("name", Text),
    may("uri", Text),
    may("url", Text),
    may("version", Text),
]);
const TEST_TYPES: CdEventFieldType = OneOf(&[
    "performance",
    "functional",
    "unit",
    "security",
    "compliance",
    "integration",
    "e2e",
    "other",
]);
const RUN_OUTCOME: CdEventFieldType = OneOf(&["pass", "fail", "cancel", "error"]);
const RUN_SEVERITY: CdEventFieldType = OneOf(&["low", "medium", "high", "critical"]);
const OUTPUT_TYPES: CdEventFieldType = OneOf(&["report", "video", "image", "log", "other"]);

/// All types.
pub(super) const ALL_TYPES: [CdEventType; 45] = [
    event("artifact", "deleted", "0.1.0", &[may("user", Filled)]),
    event("artifact", "downloaded", "0.1.0", &[may("user", Filled)]),
    event(
        "artifact",
        "packaged",
        "0.2.0",
        &[needs("change", ANY_REFERENCE), may("sbom", SBOM_LINK)],
    ),
    event("artifact", "published", "0.2.0", &[may("sbom", SBOM_LINK), may("user", Filled)]),
    event("artifact", "signed", "0.2.0", &[needs("signature", Filled)]),
    event("branch", "created", "0.2.0", &[may("repository", ANY_REFERENCE)]),
    event("branch", "deleted", "0.2.0", &[may("repository", ANY_REFERENCE)]),
    event("build", "finished", "0.2.0", &[needs("artifactId", Purl)]),
    event("build", "queued", "0.2.0", &[]),
    event("build", "started", "0.2.0", &[]),
    event("change", "abandoned", "0.2.0", &[may("repository", ANY_REFERENCE)]),
    event(
        "change",
        "created",
        "0.3.0",
        &[may("description", Filled), may("repository", ANY_REFERENCE)],
    ),
    event("change", "merged", "0.2.0", &[may("repository", ANY_REFERENCE)]),
    event("change", "reviewed", "0.2.0", &[may("repository", ANY_REFERENCE)]),
    event("change", "updated", "0.2.0", &[may("repository", ANY_REFERENCE)]),
    event("environment", "created", "0.2.0", &[may("name", Text), may("url", Text)]),
    event("environment", "deleted", "0.2.0", &[may("name", Text)]),
    event("environment", "modified", "0.2.0", &[may("name", Text), may("url", Text)]),
    event(
        "incident",
        "detected",
        "0.2.0",
        &[
            needs("artifactId", Purl),
            may("description", Text),
            needs("environment", ANY_REFERENCE),
            may("service", ANY_REFERENCE),
        ],
    ),
    event(
        "incident",
        "reported",
        "0.2.0",
        &[
            needs("artifactId", Purl),
            may("description", Text),
            needs("environment", ANY_REFERENCE),
            may("service", ANY_REFERENCE),
            needs("ticketURI", Filled),
        ],
    ),
    event(
        "incident",
        "resolved",
        "0.2.0",
        &[
            needs("artifactId", Purl),
            may("description", Text),
            needs("environment", ANY_REFERENCE),
            may("service", ANY_REFERENCE),
        ],
    ),
    event(
        "pipelinerun",
        "finished",
        "0.2.0",
        &[may("errors", Text), may("outcome", Text), may("pipelineName", Text), may("url", Text)],
    ),
    event("pipelinerun", "queued", "0.2.0", &[may("pipelineName", Text), may("url", Text)]),
    event("pipelinerun", "started", "0.2.0", &[needs("pipelineName", Text), needs("url", Text)]),
    event(
        "repository",
        "created",
        "0.2.0",
        &[needs("name", Filled), may("owner", Text), needs("url", Filled), may("viewUrl", Text)],
    ),
    event(
        "repository",
        "deleted",
        "0.2.0",
        &[may("name", Text), may("owner", Text), may("url", Text), may("viewUrl", Text)],
    ),
    event(
        "repository",
        "modified",
        "0.2.0",
        &[may("name", Text), may("owner", Text), may("url", Text), may("viewUrl", Text)],
    ),
    event(
        "service",
        "deployed",
        "0.2.0",
        &[needs("artifactId", Purl), needs("environment", ANY_REFERENCE)],
    ),
    event("service", "published", "0.2.0", &[may("environment", ANY_REFERENCE)]),
    event("service", "removed", "0.2.0", &[may("environment", ANY_REFERENCE)]),
    event(
        "service",
        "rolledback",
        "0.2.0",
        &[needs("artifactId", Purl), needs("environment", ANY_REFERENCE)],
    ),
    event(
        "service",
        "upgraded",
        "0.2.0",
        &[needs("artifactId", Purl), needs("environment", ANY_REFERENCE)],
    ),
    event(
        "taskrun",
        "finished",
        "0.2.0",
        &[
            may("errors", Text),
            may("outcome", Text),
            may("pipelineRun", ANY_REFERENCE),
            may("taskName", Text),
            may("url", Text),
        ],
    ),
    event(
        "taskrun",
        "started",
        "0.2.0",
        &[may("pipelineRun", ANY_REFERENCE), may("taskName", Text), may("url", Text)],
    ),
    event(
        "testcaserun",
        "finished",
        "0.2.0",
        &[
            needs("environment", ANY_REFERENCE),
            needs("outcome", RUN_OUTCOME),
            may("reason", Text),
            may("severity", RUN_SEVERITY),
            may("testCase", TEST_CASE),
            may("testSuiteRun", ANY_REFERENCE),
        ],
    ),
    event(
        "testcaserun",
        "queued",
        "0.2.0",
        &[
            needs("environment", ANY_REFERENCE),
            may("testCase", TEST_CASE),
            may("testSuiteRun", ANY_REFERENCE),
            may("trigger", RUN_TRIGGER),
        ],
    ),
    event(
        "testcaserun",
        "skipped",
        "0.1.0",
        &[
            may("environment", ANY_REFERENCE),
            may("reason", Text),
            may("testCase", TEST_CASE),
            may("testSuiteRun", ANY_REFERENCE),
        ],
    ),
    event(
        "testcaserun",
        "started",
        "0.2.0",
        &[
            needs("environment", ANY_REFERENCE),
            may("testCase", TEST_CASE),
            may("testSuiteRun", ANY_REFERENCE),
            may("trigger", RUN_TRIGGER),
        ],
    ),
    event(
        "testoutput",
        "published",
        "0.2.0",
        &[
            needs("format", Text),
            needs("outputType", OUTPUT_TYPES),
            may("testCaseRun", ANY_REFERENCE),
            may("uri", Text),
        ],
    ),
    event(
        "testsuiterun",
        "finished",
        "0.2.0",
        &[
            needs("environment", ANY_REFERENCE),
            needs("outcome", RUN_OUTCOME),
            may("reason", Text),
            may("severity", RUN_SEVERITY),
            may("testSuite", TEST_SUITE),
        ],
    ),
    event(
        "testsuiterun",
        "queued",
        "0.2.0",
        &[
            needs("environment", ANY_REFERENCE),
            may("testSuite", TEST_SUITE),
            may("trigger", RUN_TRIGGER),
        ],
    ),
    event(
        "testsuiterun",
        "started",
        "0.2.0",
        &[
            needs("environment", ANY_REFERENCE),
            may("testSuite", TEST_SUITE),
            may("trigger", RUN_TRIGGER),
        ],
    ),
    event(
        "ticket",
        "closed",
        "0.1.0",
        &[
            may("assignees", Strings),
            may("creator", Filled),
            may("group", Text),
            may("labels", Strings),
            may("milestone", Text),
            may("priority", Text),
            needs("resolution", Filled),
            may("summary", Text),
            may("ticketType", Text),
            may("updatedBy", Text),
            needs("uri", Filled),
        ],
    ),
    event(
        "ticket",
        "created",
        "0.1.0",
        &[
            may("assignees", Strings),
            needs("creator", Filled),
            may("group", Text),
            may("labels", Strings),
            may("milestone", Text),
            may("priority", Text),
            needs("summary", Text),
            may("ticketType", Text),
            needs("uri", Filled),
        ],
    ),
    event(
        "ticket",
        "updated",
        "0.1.0",
        &[
            may("assignees", Strings),
            may("creator", Filled),
            may("group", Text),
            may("labels", Strings),
            may("milestone", Text),
            may("priority", Text),
            may("summary", Text),
            may("ticketType", Text),
            may("updatedBy", Text),
            needs("uri", Filled),
        ],
    ),
];

/// Names of subjects that are not their part of the type.
const SUBJECT_TYPES: [(&str, &str); 5] = [
    ("pipelinerun", "pipelineRun"),
    ("taskrun", "taskRun"),
    ("testcaserun", "testCaseRun"),
    ("testoutput", "testOutput"),
    ("testsuiterun", "testSuiteRun"),
];

/// The type of a subject, by its part of the type of the event.
pub(super) fn subject_type(subject: &str) -> &str {
    SUBJECT_TYPES.iter().find(|(known, _)| *known == subject).map_or(subject, |(_, name)| name)
}

/// Checks the content of a subject. A null counts as an object without members.
///
/// # Errors
/// The first problem of the content.
pub(super) fn check(content: &Value, members: &[CdEventMember]) -> Result<(), String> {
    if content.is_null() || content.is_object() {
        return members.iter().try_for_each(|known| known.check(content));
    }
    Err("its content is no object".to_owned())
}

impl CdEventMember {
    fn check(&self, object: &Value) -> Result<(), String> {
        let Self { name, field, is_required } = self;
        let value = member(object, name).unwrap_or(&Value::Null);
        let text = match value {
            Value::Null => Some(""),
            value => value.as_str(),
        };
        let is_right = match field {
            Text => text.is_some(),
            Filled => text.is_some_and(|text| !(text.is_empty() && *is_required)),
            OneOf(known) => text.is_some_and(|text| match text {
                "" => !is_required,
                text => known.contains(&text),
            }),
            Uri => text.is_some_and(|text| GoUrl::parse(text.as_bytes()).is_ok()),
            Purl => text.is_some_and(is_purl),
            Strings => match value {
                Value::Null => true,
                Value::Array(items) => items.iter().all(|it| it.is_string() || it.is_null()),
                _ => false,
            },
            Members(members) => match value {
                Value::Null => !is_required,
                Value::Object(_) => return members.iter().try_for_each(|it| it.check(value)),
                _ => false,
            },
        };
        if is_right { Ok(()) } else { Err(format!("`{name}` of its content is missing or wrong")) }
    }
}

/// Whether a text is the URL of a package: `pkg:TYPE/NAMESPACE/NAME@VERSION?QUALIFIERS#SUBPATH`. Only type and name are
/// required.
fn is_purl(text: &str) -> bool {
    let text = text.split_once('#').map_or(text, |(text, _)| text);
    let text = text.rsplit_once('?').map_or(text, |(text, _)| text);
    let rest = text.strip_prefix("pkg:").unwrap_or_default().trim_start_matches('/');
    let name = rest.split_once('/').and_then(|(_, rest)| rest.rsplit('/').next());
    name.is_some_and(|name| !name.split('@').next().unwrap_or_default().is_empty())
}
