//! Selects releases by selectors and conditions, and detects duplicate releases.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::spec::Release;
use crate::state_values_merge::ValuesMap;

/// A selector: labels that a release must have, and labels that it must not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReleaseSelector {
    wanted: Vec<(String, String)>,
    unwanted: Vec<(String, String)>,
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./+-".contains(&byte))
}

impl ReleaseSelector {
    /// Reads a selector of releases such as `k=v,k!=v`. The error says that a label is malformed.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut selector = Self::default();
        for label in text.split(',') {
            let unequal = label.split_once("!=");
            let pair = unequal.or_else(|| label.split_once('='));
            match pair.filter(|(key, value)| is_word(key) && is_word(value)) {
                Some((key, value)) => {
                    let pair = (key.to_owned(), value.to_owned());
                    let list = if unequal.is_some() {
                        &mut selector.unwanted
                    } else {
                        &mut selector.wanted
                    };
                    list.push(pair);
                }
                None => {
                    return Err(format!(
                        "malformed label: {label}. Expected label in form k=v or k!=v"
                    )
                    .into());
                }
            }
        }
        Ok(selector)
    }

    pub(crate) fn matches(&self, release: &Release) -> bool {
        let has = |(key, value): &(String, String)| release.labels.get(key) == Some(value);
        self.wanted.iter().all(has) && !self.unwanted.iter().any(has)
    }

    /// Whether a release could match both.
    fn is_compatible(&self, other: &Self) -> bool {
        !self.wanted.iter().any(|(key, value)| {
            other.wanted.iter().any(|(known, wanted)| known == key && wanted != value)
        })
    }
}

/// Whether one release could match a selector from each list. Malformed selectors count as compatible.
pub(crate) fn are_compatible(one: &[String], other: &[String]) -> bool {
    let parse = |strings: &[String]| {
        strings.iter().map(|text| ReleaseSelector::parse(text)).collect::<Result<Vec<_>>>()
    };
    match (parse(one), parse(other)) {
        (Ok(one), Ok(other)) => one.iter().any(|a| other.iter().any(|b| a.is_compatible(b))),
        _ => true,
    }
}

/// Whether the condition of a release holds.
pub(crate) fn is_enabled(release: &Release, values: &ValuesMap) -> Result<bool> {
    let condition = release.condition.as_str();
    match condition.to_ascii_lowercase().as_str() {
        "" | "true" => return Ok(true),
        "false" => return Ok(false),
        _ => {}
    }
    let keys: Vec<&str> = condition.split('.').collect();
    let Some(("enabled", parents)) = keys.split_last().map(|(last, parents)| (*last, parents))
    else {
        return Err("Condition value must be in the form 'foo.enabled' where 'foo' can be modified as necessary".into());
    };
    let mut map = values;
    let mut path = String::new();
    for key in parents {
        path = format!("{path}.{key}");
        map = match map.get(*key) {
            None => return Err(format!("environment values field '{path}' not found").into()),
            Some(Value::Object(map)) => map,
            Some(_) => return Err(format!("environment values field '{path}' is not a map").into()),
        };
    }
    Ok(map.get("enabled").and_then(Value::as_bool).unwrap_or(false))
}

/// The releases whose condition holds and that match a selector. Without selectors, only the condition counts.
///
/// With `with_needs`, also the releases that these need directly or indirectly.
pub(crate) fn selected(
    releases: &[Release],
    selectors: &[String],
    values: &ValuesMap,
    with_needs: bool,
) -> Result<Vec<Release>> {
    let filters: Vec<ReleaseSelector> =
        selectors.iter().map(|text| ReleaseSelector::parse(text)).collect::<Result<_>>()?;
    let mut marks = Vec::new();
    for release in releases {
        let is_selected =
            filters.is_empty() || filters.iter().any(|filter| filter.matches(release));
        let is_enabled = is_enabled(release, values).map_err(|error| {
            Error::from(format!("failed to parse condition in release {}: {error}", release.name))
        })?;
        marks.push(is_selected && is_enabled);
    }
    if with_needs {
        let needed = needed(releases, &marks);
        for (release, mark) in releases.iter().zip(&mut marks) {
            *mark |= needed.contains(&release.id());
        }
    }
    let chosen = releases.iter().zip(marks).filter(|(_, mark)| *mark);
    Ok(chosen.map(|(release, _)| release.clone()).collect())
}

/// The entries in `needs` of the selected releases, and of the releases that these entries name. Parity(helmfile 1.8):
/// helmfile compares names only, and ignores the namespace and the context of an entry.
fn needed(releases: &[Release], marks: &[bool]) -> std::collections::BTreeSet<String> {
    let mut needed = std::collections::BTreeSet::new();
    let mut left: Vec<&Release> =
        releases.iter().zip(marks).filter(|(_, mark)| **mark).map(|(release, _)| release).collect();
    while let Some(release) = left.pop() {
        for id in &release.needs {
            if needed.insert(id.clone()) {
                let name = id.rsplit('/').next().unwrap_or_default();
                left.extend(releases.iter().filter(|known| known.name == name));
            }
        }
    }
    needed
}

/// Rejects two releases with the same name in a namespace.
pub(crate) fn check_duplicates(releases: &[Release]) -> Result<()> {
    let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for release in releases {
        *counts.entry((&release.namespace, &release.name, &release.kube_context)).or_default() += 1;
    }
    match counts.into_iter().find(|(_, count)| *count > 1) {
        None => Ok(()),
        Some(((namespace, name, context), count)) => {
            let mut place = String::new();
            if !namespace.is_empty() {
                place = format!(" in namespace {namespace:?}");
            }
            if !context.is_empty() {
                place = format!("{place} in kubecontext {context:?}");
            }
            Err(format!(
                "duplicate release {name:?} found{place}: there were {count} releases named \"{name}\" matching \
                 specified selector"
            )
            .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_take_one_equals_sign_and_words() {
        for text in ["k==v", "k=", "k in (a)", "", "k=v,"] {
            assert!(ReleaseSelector::parse(text).is_err(), "{text}");
        }
        let selector = ReleaseSelector::parse("tier=web,name!=a").unwrap();
        let mut release =
            Release { labels: [("tier".into(), "web".into())].into(), ..Release::default() };
        assert!(selector.matches(&release));
        release.labels.insert("name".into(), "a".into());
        assert!(!selector.matches(&release));
    }

    #[test]
    fn a_condition_needs_its_parents() {
        let serde_json::Value::Object(values) = serde_json::json!({"a": {"b": {"enabled": true}}})
        else {
            panic!("no map");
        };
        let with = |condition: &str| Release { condition: condition.into(), ..Release::default() };
        assert_eq!(is_enabled(&with("a.b.enabled"), &values), Ok(true));
        assert_eq!(is_enabled(&with("a.enabled"), &values), Ok(false));
        assert!(is_enabled(&with("x.enabled"), &values).is_err());
        assert!(is_enabled(&with("a.b"), &values).is_err());
    }
}
