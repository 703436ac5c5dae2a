//! What a document is read into, as far as `sigs.k8s.io/yaml` examines it.

/// The shape of the Go type that a document is read into.
///
/// Where it has a text, a number or truth becomes one: `version: 1.10` is `"1.1"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeTarget {
    /// Any type that is not text and does not hold text: values stay what they are.
    Any,
    /// A `string`.
    Text,
    /// A slice.
    List(&'static Self),
    /// A map.
    Map(&'static Self),
    /// A struct: its keys and what they hold.
    Struct(&'static [(&'static str, Self)]),
}

impl DecodeTarget {
    /// What an item of a list is read into.
    pub(crate) fn item(&self) -> &Self {
        match self {
            Self::List(item) => item,
            _ => &Self::Any,
        }
    }

    /// What the value of a key is read into.
    pub(crate) fn entry(&self, key: &str) -> &Self {
        match self {
            Self::Map(value) => value,
            Self::Struct(fields) => {
                let exact = fields.iter().find(|(name, _)| *name == key);
                let found = exact.or_else(|| fields.iter().find(|(name, _)| is_field(key, name)));
                found.map_or(&Self::Any, |(_, target)| target)
            }
            _ => &Self::Any,
        }
    }
}

/// Whether `encoding/json` takes a key for a field of that name: case does not count.
///
/// Parity(go): two letters outside of ASCII count as their ASCII ones.
pub fn is_field(key: &str, field: &str) -> bool {
    let folded = |character: char| match character {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(folded).eq(field.chars().map(folded))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::DecodeTarget;
    use crate::to_json_for;

    #[test]
    fn numbers_become_strings_where_strings_are_wanted() {
        const FIELDS: &[(&str, DecodeTarget)] =
            &[("version", DecodeTarget::Text), ("tags", DecodeTarget::List(&DecodeTarget::Text))];
        let yaml = b"version: 1.10\nVERSION: 1e6\ntags: [1, true, null, [2]]\nother: 1.10\n";
        let json = to_json_for(yaml, &DecodeTarget::Struct(FIELDS)).unwrap();
        assert_eq!(
            json,
            json!({"version": "1.1", "VERSION": "1e+06", "tags": ["1", "true", null, [2]], "other": 1.1})
        );
    }
}
