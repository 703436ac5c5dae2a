//! Computes the greatest cost of checking values, before they are checked.
//!
//! A schema of a few lines can apply itself to one value billions of times, and the library has no limit. Therefore the
//! schemas that it may apply are counted first, even if some of them turn out not to matter.

use std::collections::BTreeMap;
use std::rc::Rc;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};

use super::pattern::ReplacedSchemaPatterns;
use super::{MAX_DEPTH, MAX_STEPS};

/// The cost of a check.
pub(super) struct SchemaCheckCost {
    /// How deep the applications of schemas are nested.
    pub(super) depth: usize,
    /// How many schemas are applied. Reading long strings counts as further applications.
    pub(super) steps: usize,
}

/// Counts the applications of schemas, and how deep they are nested.
///
/// # Errors
/// There are too many applications, or they are nested too deeply.
pub(super) fn of(
    schema: &Json,
    values: &Json,
    patterns: &ReplacedSchemaPatterns,
) -> Result<SchemaCheckCost, String> {
    let index = SchemaReferenceIndex::new(schema);
    let mut steps = 0_usize;
    let mut deepest = 0;
    let mut pending = vec![SchemaApplication { schema, value: values, depth: 0, above: None }];
    while let Some(step) = pending.pop() {
        let Json::Object(keywords) = step.schema else { continue };
        steps += 1 + keywords.get("enum").and_then(Json::as_array).map_or(0, Vec::len);
        steps = steps.saturating_add(step.of_strings(keywords, patterns));
        if steps.saturating_add(pending.len()) > MAX_STEPS {
            return Err(format!("checking values takes more than {MAX_STEPS} steps\n"));
        }
        if step.depth > MAX_DEPTH {
            return Err(format!("schemas are applied deeper than {MAX_DEPTH} in each other\n"));
        }
        deepest = deepest.max(step.depth);
        if step.is_cycle() {
            continue;
        }
        step.in_place(keywords, &index, &mut pending);
        match step.value {
            Json::Object(object) => step.properties(keywords, object, &mut pending),
            Json::Array(items) => step.items(keywords, items, &mut pending),
            _ => {}
        }
    }
    Ok(SchemaCheckCost { depth: deepest, steps })
}

/// How many bytes of a text one step reads: in a single pass, and with one state of a pattern.
const READ_BYTES_PER_STEP: usize = 256;
const PATTERN_STATES_PER_STEP: usize = 512;

/// How many steps it takes to check whether a text is a regular expression.
const REGEX_FORMAT_STEPS: usize = 20_000;

/// The application of a schema to a value.
struct SchemaApplication<'a> {
    schema: &'a Json,
    value: &'a Json,
    depth: usize,
    /// The schemas that led to this one with the same value.
    above: Option<Rc<ParentSchemas<'a>>>,
}

struct ParentSchemas<'a> {
    schema: &'a Json,
    next: Option<Rc<Self>>,
}

const LISTS_IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];
const NAMED_IN_PLACE: [&str; 2] = ["dependentSchemas", "dependencies"];
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
const OF_PROPERTIES: [&str; 3] = ["additionalProperties", "unevaluatedProperties", "propertyNames"];
const OF_ITEMS: [&str; 4] = ["items", "additionalItems", "contains", "unevaluatedItems"];

impl<'a> SchemaApplication<'a> {
    /// Whether the schema leads to itself with the same value. The library notices that and stops there.
    fn is_cycle(&self) -> bool {
        let mut above = self.above.as_deref();
        while let Some(it) = above {
            if std::ptr::eq(it.schema, self.schema) {
                return true;
            }
            above = it.next.as_deref();
        }
        false
    }

    fn in_place(
        &self,
        keywords: &'a Map<String, Json>,
        index: &SchemaReferenceIndex<'a>,
        pending: &mut Vec<Self>,
    ) {
        let above = Rc::new(ParentSchemas { schema: self.schema, next: self.above.clone() });
        let mut push = |schema: &'a Json| {
            let value = self.value;
            let depth = self.depth + 1;
            pending.push(SchemaApplication {
                schema,
                value,
                depth,
                above: Some(Rc::clone(&above)),
            });
        };
        let lists = LISTS_IN_PLACE.iter().filter_map(|it| keywords.get(*it)?.as_array());
        lists.flatten().for_each(&mut push);
        IN_PLACE.iter().filter_map(|it| keywords.get(*it)).for_each(&mut push);
        let named = NAMED_IN_PLACE.iter().filter_map(|it| keywords.get(*it)?.as_object());
        named.flat_map(Map::values).for_each(&mut push);
        let references = REFERENCES.iter().filter_map(|it| keywords.get(*it)?.as_str());
        references.flat_map(|reference| index.find(reference)).for_each(&mut push);
    }

    /// The cost of the strings and keys of a value.
    fn of_strings(&self, keywords: &Map<String, Json>, patterns: &ReplacedSchemaPatterns) -> usize {
        let read = |text: &str, pattern: &str| {
            (text.len() + 1).saturating_mul(patterns.states(pattern)) / PATTERN_STATES_PER_STEP
        };
        match self.value {
            Json::String(text) => {
                let pattern = keywords.get("pattern").and_then(Json::as_str);
                let format = match keywords.get("format").and_then(Json::as_str) {
                    Some("regex") => REGEX_FORMAT_STEPS,
                    _ => 0,
                };
                text.len() / READ_BYTES_PER_STEP
                    + format
                    + pattern.map_or(0, |pattern| read(text, pattern))
            }
            Json::Object(object) => {
                let all = keywords.get("patternProperties").and_then(Json::as_object);
                let all = all.into_iter().flat_map(Map::keys);
                all.map(|pattern| object.keys().map(|key| read(key, pattern)).sum::<usize>())
                    .fold(0, usize::saturating_add)
            }
            // All items are compared with each other.
            Json::Array(items) if keywords.get("uniqueItems") == Some(&Json::Bool(true)) => {
                items.len()
            }
            _ => 0,
        }
    }

    fn push_inner(&self, schema: &'a Json, value: &'a Json, pending: &mut Vec<Self>) {
        if schema.is_object() {
            pending.push(SchemaApplication { schema, value, depth: self.depth + 1, above: None });
        }
    }

    fn properties(
        &self,
        keywords: &'a Map<String, Json>,
        object: &'a Map<String, Json>,
        pending: &mut Vec<Self>,
    ) {
        let named = keywords.get("properties").and_then(Json::as_object);
        let patterns = keywords.get("patternProperties").and_then(Json::as_object);
        for (name, value) in object {
            let own = named.and_then(|named| named.get(name));
            let others = OF_PROPERTIES.iter().filter_map(|it| keywords.get(*it));
            let by_pattern = patterns.into_iter().flat_map(Map::values);
            for schema in own.into_iter().chain(by_pattern).chain(others) {
                self.push_inner(schema, value, pending);
            }
            if pending.len() > MAX_STEPS {
                return;
            }
        }
    }

    fn items(&self, keywords: &'a Map<String, Json>, items: &'a [Json], pending: &mut Vec<Self>) {
        let of_all = || OF_ITEMS.iter().filter_map(|it| keywords.get(*it));
        let by_place = ["prefixItems", "items"].iter();
        let by_place = by_place.filter_map(|it| keywords.get(*it)?.as_array());
        for (value, schema) in by_place.flat_map(|schemas| items.iter().zip(schemas)) {
            self.push_inner(schema, value, pending);
        }
        for value in items {
            of_all().for_each(|schema| self.push_inner(schema, value, pending));
            if pending.len() > MAX_STEPS {
                return;
            }
        }
    }
}

/// The schemas to which references may lead.
struct SchemaReferenceIndex<'a> {
    root: &'a Json,
    /// The schemas with an `$id`, by its last part.
    identified: BTreeMap<&'a str, Vec<&'a Json>>,
    /// The schemas with an anchor, of all documents.
    anchors: BTreeMap<&'a str, Vec<&'a Json>>,
}

impl<'a> SchemaReferenceIndex<'a> {
    fn new(root: &'a Json) -> Self {
        let mut index = Self { root, identified: BTreeMap::new(), anchors: BTreeMap::new() };
        let mut pending = vec![root];
        while let Some(schema) = pending.pop() {
            match schema {
                Json::Array(items) => pending.extend(items),
                Json::Object(keywords) => {
                    for (keyword, value) in keywords {
                        match (keyword.as_str(), value) {
                            ("$id" | "id", Json::String(id)) => {
                                let (address, anchor) = id.split_once('#').unwrap_or((id, ""));
                                index.identified.entry(last(address)).or_default().push(schema);
                                index.anchors.entry(anchor).or_default().push(schema);
                            }
                            ("$anchor" | "$dynamicAnchor", Json::String(name)) => {
                                index.anchors.entry(name).or_default().push(schema);
                            }
                            _ => pending.push(value),
                        }
                    }
                }
                _ => {}
            }
        }
        index
    }

    /// All schemas that a reference may mean. It may return more schemas than the reference really means.
    fn find(&self, reference: &str) -> Vec<&'a Json> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let fragment = percent_decode_str(fragment).decode_utf8_lossy();
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(&*fragment).cloned().unwrap_or_default();
        }
        let identified = match address {
            "" => self.identified.values().flatten().copied().collect(),
            address => self.identified.get(last(address)).cloned().unwrap_or_default(),
        };
        let bases = std::iter::once(self.root).chain(identified);
        bases.filter_map(|base| base.pointer(&fragment)).collect()
    }
}

fn last(address: &str) -> &str {
    address.rsplit(['/', ':']).next().unwrap_or_default()
}
