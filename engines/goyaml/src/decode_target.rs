//! The Go type into which a document is read, as far as `sigs.k8s.io/yaml` examines it.

/// The shape of the Go type into which a document is read.
///
/// Where the type has a string, a number or boolean becomes a string: `version: 1.10` is `"1.1"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeTarget {
    /// Any type that is not a string and contains no string. Values do not change.
    Any,
    /// A `string`.
    Text,
    /// A slice.
    List(&'static Self),
    /// A map.
    Map(&'static Self),
    /// A struct: its keys, and the shapes of their values.
    Struct(&'static [(&'static str, Self)]),
}

impl DecodeTarget {
    /// The shape of the items of a list.
    pub(crate) fn item(&self) -> &Self {
        match self {
            Self::List(item) => item,
            _ => &Self::Any,
        }
    }

    /// The shape of the value of a key.
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

/// Whether `encoding/json` accepts a key for a field of this name. Upper and lower case are the same.
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
