//! Reads helmfiles for versions before 1.0. Renames keys that have new names, and drops keys of Helm 2 that have no effect.
//!
//! Elsewhere: rendering such helmfiles twice (`load.rs`).

use goyaml::v3::YamlNode;

/// The version of helmfile that a helmfile was written for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum HelmfileDialect {
    /// Before 1.0. Every helmfile is a template, and environments and releases may be in the same part.
    V0,
    /// Since 1.0.
    #[default]
    V1,
}

/// Old names of top-level keys, and today's.
const RENAMED: [(&str, &str); 2] = [("charts", "releases"), ("context", "kubeContext")];

/// Keys that only Helm 2 supported.
const OF_HELM_2: [&str; 6] =
    ["tillerNamespace", "tillerless", "tls", "tlsCACert", "tlsCert", "tlsKey"];

/// Translates a document of an old helmfile to the present keys.
///
/// Differs(helmfile 0.79): keys that are about Tiller and its certificates have no effect.
pub(crate) fn modern(document: &YamlNode) -> YamlNode {
    let entries = document.entries().filter(|(key, _)| !is_of_helm_2(key));
    let content = entries.flat_map(|(key, value)| {
        let renamed = RENAMED.iter().find(|(old, _)| key.value == *old);
        let key = renamed.map_or_else(
            || key.clone(),
            |(_, new)| YamlNode { value: (*new).to_owned(), ..key.clone() },
        );
        let value = match key.value.as_str() {
            "helmDefaults" => without(value),
            "releases" => YamlNode {
                content: value.content.iter().map(without).collect::<Vec<_>>().into(),
                ..value.clone()
            },
            _ => value.clone(),
        };
        [key, value]
    });
    let content: Vec<YamlNode> = content.collect();
    if content.is_empty() {
        return document.clone();
    }
    YamlNode { content: content.into(), ..document.clone() }
}

fn is_of_helm_2(key: &YamlNode) -> bool {
    OF_HELM_2.contains(&key.value.as_str())
}

/// A map without keys of Helm 2.
fn without(map: &YamlNode) -> YamlNode {
    if !map.entries().any(|(key, _)| is_of_helm_2(key)) {
        return map.clone();
    }
    let kept = map.entries().filter(|(key, _)| !is_of_helm_2(key));
    let content: Vec<YamlNode> =
        kept.flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
    YamlNode { content: content.into(), ..map.clone() }
}
