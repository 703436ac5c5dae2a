//! Metadata in formats without nesting. For example, `age__list_0__map_recipient` is the recipient of the first age key.

use std::collections::BTreeMap;

use golang::strconv;

use crate::limits::{FileLimitExceeded, SopsLimits};
use crate::metadata::SopsMetadataError;
use crate::value::{MapItem, MapItemKey, SopsValue};

/// The prefix of metadata keys in formats without sections.
const PREFIX: &str = "sops_";
const MAP: &str = "__map_";
const LIST: &str = "__list_";

/// Takes the entries of metadata out of the first document. `None` if the document has none.
pub(super) fn take(documents: &mut [Vec<MapItem>]) -> Option<Vec<MapItem>> {
    let document = documents.first_mut()?;
    let mut taken = Vec::new();
    let mut rest = Vec::new();
    for item in std::mem::take(document) {
        match &item.key {
            MapItemKey::Text(key) if key.starts_with(PREFIX) => {
                let name = key.get(PREFIX.len()..).unwrap_or_default().to_owned();
                taken.push(MapItem { key: MapItemKey::Text(name), value: item.value });
            }
            _ => rest.push(item),
        }
    }
    *document = rest;
    (!taken.is_empty()).then_some(taken)
}

enum FlatKeyToken<'p> {
    Key(&'p str),
    Place(i64),
}

/// The steps that a flat key names.
fn tokens(path: &str) -> Vec<FlatKeyToken<'_>> {
    let mut tokens = Vec::new();
    let mut rest = path;
    let mut is_list = false;
    loop {
        let ends = [rest.find(MAP).map(|at| (at, MAP)), rest.find(LIST).map(|at| (at, LIST))];
        let end = ends.into_iter().flatten().min_by_key(|(at, _)| *at);
        let (own, after) = match end {
            Some((at, separator)) => {
                let (own, after) = rest.split_at(at);
                (own, Some((after.get(separator.len()..).unwrap_or_default(), separator)))
            }
            None => (rest, None),
        };
        // Parity(sops 3.13): what is not a number counts as 0.
        tokens.push(if is_list {
            FlatKeyToken::Place(strconv::atoi(own).unwrap_or(0))
        } else {
            FlatKeyToken::Key(own)
        });
        let Some((after, separator)) = after else { return tokens };
        (rest, is_list) = (after, separator == LIST);
    }
}

#[derive(Default)]
struct FlatMetadataNode {
    value: Option<SopsValue>,
    keys: BTreeMap<String, Self>,
    places: BTreeMap<i64, Self>,
}

/// The nested form of flat entries.
pub(super) fn unflatten(
    items: Vec<MapItem>,
    limits: &SopsLimits,
) -> Result<Vec<MapItem>, SopsMetadataError> {
    let mut root = FlatMetadataNode::default();
    for item in items {
        let key = match &item.key {
            MapItemKey::Comment(_) => continue,
            MapItemKey::Text(key) => key,
            MapItemKey::Other(_) => return Err(SopsMetadataError::Flat("a key is no text")),
        };
        let tokens = tokens(key);
        let deepest = limits.depth.min(SopsLimits::MAX_DEPTH);
        if tokens.len() > deepest {
            return Err(FileLimitExceeded::Depth(deepest).into());
        }
        let mut node = &mut root;
        for token in tokens {
            node = match token {
                FlatKeyToken::Key(key) => node.keys.entry(key.to_owned()).or_default(),
                FlatKeyToken::Place(place) => node.places.entry(place).or_default(),
            };
        }
        if node.value.replace(item.value).is_some() {
            return Err(SopsMetadataError::Flat("Duplicate value"));
        }
    }
    match nested(root)? {
        SopsValue::Map(items) => Ok(items),
        _ => Err(SopsMetadataError::Flat("the root is no map")),
    }
}

fn nested(node: FlatMetadataNode) -> Result<SopsValue, SopsMetadataError> {
    match (node.value, node.keys.is_empty(), node.places.is_empty()) {
        (Some(value), true, true) => Ok(value),
        (None, _, true) => {
            let items = node.keys.into_iter();
            let items = items.map(|(key, node)| Ok(MapItem::text(key, nested(node)?)));
            items.collect::<Result<_, SopsMetadataError>>().map(SopsValue::Map)
        }
        (None, true, false) => {
            if node.places.keys().zip(0..).any(|(place, wanted)| *place != wanted) {
                return Err(SopsMetadataError::Flat("Incomplete list"));
            }
            node.places.into_values().map(nested).collect::<Result<_, _>>().map(SopsValue::List)
        }
        _ => Err(SopsMetadataError::Flat("Type mismatch")),
    }
}
