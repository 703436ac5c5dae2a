//! The query of an address: filters, sort order, and page number.

use std::collections::BTreeMap;

/// How many name and value pairs of a query are read.
const MAX_PAIRS: usize = 32;

/// The longest value, in bytes.
const MAX_VALUE_BYTES: usize = 2048;

/// A query, as values by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PageQuery(BTreeMap<String, String>);

impl PageQuery {
    /// Parses a query. If a name occurs several times, the last value is used. Values that are too long are ignored.
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = url::form_urlencoded::parse(query.as_bytes()).take(MAX_PAIRS);
        let pairs = pairs.filter(|(_, value)| value.len() <= MAX_VALUE_BYTES);
        Self(pairs.map(|(key, value)| (key.into_owned(), value.trim().to_owned())).collect())
    }

    /// The value of a name. Empty if the query does not contain the name.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    /// All names with their values.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// The number of the page, starting at 1.
    pub(crate) fn page(&self) -> usize {
        self.get("page").parse().unwrap_or(1).clamp(1, 100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_bounded() {
        let query = PageQuery::parse("q=a%26b+c&ns=one&ns=two&page=3");
        assert_eq!((query.get("q"), query.get("ns"), query.page()), ("a&b c", "two", 3));
        assert_eq!(query.get("state"), "");
        let long = format!("q={}", "a".repeat(MAX_VALUE_BYTES + 1));
        assert_eq!(PageQuery::parse(&long).get("q"), "");
        for page in ["page=0", "page=-1", "page=x", "page=99999999999999999999", ""] {
            assert_eq!(PageQuery::parse(page).page(), 1, "{page}");
        }
        assert_eq!(PageQuery::parse("page=4000000000").page(), 100_000);
    }
}
