//! Durations as Go prints and reads them.
//!
//! Here: the text and its schema. Elsewhere: what the text means (`reconcile::parse_duration`).

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The pattern of an interval or timeout.
const PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";

/// The pattern of a source's timeout, which may not be given in hours.
pub(crate) const FETCH_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m))+$";

/// A duration in Go's notation, such as `1h30m` or `500ms`, kept as it was written.
///
/// The schema checks the notation; a status may also hold units and signs that the pattern refuses.
/// Nothing is checked here, so that a strange text stalls its own object only.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(String);

impl GoDuration {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for GoDuration {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for GoDuration {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl AsRef<str> for GoDuration {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}
