//! The patterns of a schema. Helm reads them as Go does, but `boon` as ECMAScript does.
//!
//! Each pattern is therefore replaced by one that means the same to `boon`. Errors show the original pattern.

use std::collections::BTreeMap;

use golang::regexp::GoRegexp;
use regex::RegexBuilder;
use serde_json::{Map, Value as Json};

use super::{MAX_LARGE_PATTERNS, MAX_PATTERNS};

/// The patterns of a schema that were replaced.
#[derive(Debug, Default)]
pub(super) struct ReplacedSchemaPatterns {
    /// The original pattern for each replacement.
    originals: BTreeMap<String, String>,
    /// The replacement for each original pattern.
    replacements: BTreeMap<String, String>,
    /// The work of each pattern for each byte of a text (`GoRegexp::work`).
    states: BTreeMap<String, usize>,
    /// How many patterns are large when they are compiled.
    large: usize,
    /// The greatest number of schemas within the schema.
    subschemas: u64,
}

/// How many bytes a compiled pattern may take without counting as large.
const MAX_SMALL_PATTERN_BYTES: usize = 64 << 10;

/// Keywords whose value is data and not a schema.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Keywords whose value has a schema for each of its keys.
const NAMED: [&str; 7] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependencies",
    "$vocabulary",
];

impl ReplacedSchemaPatterns {
    /// Replaces every pattern of a schema.
    ///
    /// # Errors
    /// The schema has too many patterns.
    pub(super) fn translate(schema: &mut Json) -> Result<Self, String> {
        let mut patterns = Self::default();
        let mut pending = vec![schema];
        while let Some(schema) = pending.pop() {
            match schema {
                Json::Array(items) => pending.extend(items),
                Json::Bool(_) => patterns.subschemas += 1,
                Json::Object(keywords) => {
                    patterns.subschemas += 1;
                    if let Some(Json::Object(by_pattern)) = keywords.get_mut("patternProperties") {
                        let renamed = std::mem::take(by_pattern).into_iter();
                        *by_pattern = renamed
                            .map(|(pattern, schema)| (patterns.replacement(pattern), schema))
                            .collect::<Map<_, _>>();
                    }
                    if let Some(Json::String(pattern)) = keywords.get_mut("pattern") {
                        *pattern = patterns.replacement(std::mem::take(pattern));
                    }
                    for (keyword, value) in keywords.iter_mut() {
                        if DATA.contains(&keyword.as_str()) {
                            continue;
                        }
                        if NAMED.contains(&keyword.as_str()) && value.is_object() {
                            let named = value.as_object_mut().into_iter();
                            pending.extend(named.flat_map(Map::values_mut));
                        } else {
                            pending.push(value);
                        }
                    }
                }
                _ => {}
            }
            if patterns.originals.len() > MAX_PATTERNS || patterns.large > MAX_LARGE_PATTERNS {
                return Err(format!(
                    "the schema has more than {MAX_PATTERNS} patterns, or {MAX_LARGE_PATTERNS} large ones\n"
                ));
            }
        }
        Ok(patterns)
    }

    /// The greatest number of schemas within the schema.
    pub(super) fn subschemas(&self) -> u64 {
        self.subschemas
    }

    /// The original pattern for a replacement.
    pub(super) fn original<'a>(&'a self, replacement: &'a str) -> &'a str {
        self.originals.get(replacement).map_or(replacement, String::as_str)
    }

    /// The work of a replacement for each byte of a text.
    pub(super) fn states(&self, replacement: &str) -> usize {
        self.states.get(replacement).copied().unwrap_or(1)
    }

    fn replacement(&mut self, original: String) -> String {
        if let Some(known) = self.replacements.get(&original) {
            return known.clone();
        }
        let mut states = 1;
        let mut replacement = match GoRegexp::new(&original) {
            Ok(regexp) => {
                states = regexp.work();
                let small = RegexBuilder::new(regexp.translated())
                    .size_limit(MAX_SMALL_PATTERN_BYTES)
                    .build();
                self.large += usize::from(small.is_err());
                regexp.translated().to_owned()
            }
            // An invalid pattern that every engine refuses.
            Err(_) => "(".to_owned(),
        };
        // Two patterns with the same translation must stay distinct.
        while self.originals.contains_key(&replacement) {
            replacement = match replacement.strip_prefix('(') {
                Some(rest) if !replacement.ends_with(')') => format!("(({rest}"),
                _ => format!("(?:{replacement})"),
            };
        }
        self.states.insert(replacement.clone(), states);
        self.originals.insert(replacement.clone(), original.clone());
        self.replacements.insert(original, replacement.clone());
        replacement
    }
}
