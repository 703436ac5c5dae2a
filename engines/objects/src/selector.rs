//! Label selectors as text: the grammar of `kubectl --selector`.
//!
//! Source: the API conventions of Kubernetes and `k8s.io/apimachinery/pkg/labels` (0.36).

use std::collections::BTreeSet;

/// Longest text that is read.
const MAX_SELECTOR_BYTES: usize = 8192;

/// A label selector. An empty one selects every object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector {
    text: String,
    expressions: Vec<LabelExpression>,
}

/// The requirement of a selector on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelExpression {
    Exists(String),
    Absent(String),
    In(String, BTreeSet<String>),
    NotIn(String, BTreeSet<String>),
}

impl LabelExpression {
    fn key(&self) -> &str {
        match self {
            Self::Exists(key) | Self::Absent(key) | Self::In(key, _) | Self::NotIn(key, _) => key,
        }
    }

    fn selects<'a>(&self, value_of: &impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Exists(key) => value_of(key).is_some(),
            Self::Absent(key) => value_of(key).is_none(),
            Self::In(key, values) => value_of(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => value_of(key).is_none_or(|value| !values.contains(value)),
        }
    }
}

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// Which syntax was expected, and at which position.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_SELECTOR_BYTES {
            return Err(format!("a label selector has at most {MAX_SELECTOR_BYTES} bytes"));
        }
        let mut reader = LabelSelectorReader { rest: text };
        let mut expressions = Vec::new();
        loop {
            reader.skip_spaces();
            if reader.rest.is_empty() && (expressions.is_empty() || !text.trim_end().ends_with(','))
            {
                break;
            }
            expressions.push(reader.requirement()?);
            reader.skip_spaces();
            if !reader.take(",") && !reader.rest.is_empty() {
                return Err(reader.expected("a comma"));
            }
        }
        Ok(Self { text: text.to_owned(), expressions })
    }

    /// Whether labels match this selector. `value_of` returns the value of a key, or `None` if the label is missing.
    pub fn selects<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.expressions.iter().all(|expression| expression.selects(&value_of))
    }

    /// The keys of the requirements, in order. A key with several requirements occurs several times.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.expressions.iter().map(LabelExpression::key)
    }

    /// The text that the selector was read from.
    pub fn text(&self) -> &str {
        &self.text
    }
}

struct LabelSelectorReader<'a> {
    rest: &'a str,
}

impl<'a> LabelSelectorReader<'a> {
    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, sign: &str) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let ends = |sign: char| sign.is_whitespace() || "!=(),<>".contains(sign);
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn expected(&self, what: &str) -> String {
        let found: String = self.rest.chars().take(20).collect();
        if found.is_empty() {
            format!("a label selector ends where {what} is expected")
        } else {
            format!("a label selector has `{found}` where {what} is expected")
        }
    }

    fn requirement(&mut self) -> Result<LabelExpression, String> {
        let is_absent = self.take("!");
        self.skip_spaces();
        let key = self.key()?;
        if is_absent {
            return Ok(LabelExpression::Absent(key));
        }
        self.skip_spaces();
        if self.take("!=") {
            return Ok(LabelExpression::NotIn(key, BTreeSet::from([self.value()?])));
        }
        if self.take("==") || self.take("=") {
            return Ok(LabelExpression::In(key, BTreeSet::from([self.value()?])));
        }
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(LabelExpression::Exists(key));
        }
        let here = self.rest;
        match self.word() {
            "in" => Ok(LabelExpression::In(key, self.values()?)),
            "notin" => Ok(LabelExpression::NotIn(key, self.values()?)),
            _ => {
                self.rest = here;
                Err(self.expected("one of =, ==, !=, in, notin"))
            }
        }
    }

    /// An optional DNS name and a slash, and a name of at most 63 characters.
    fn key(&mut self) -> Result<String, String> {
        let here = self.rest;
        let key = self.word();
        let (prefix, name) = match key.split_once('/') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, key),
        };
        let is_prefix = |prefix: &str| {
            !prefix.is_empty()
                && prefix.len() <= 253
                && prefix.split('.').all(|part| {
                    is_word(part, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), b"-")
                })
        };
        if prefix.is_none_or(is_prefix) && name.len() <= 63 && is_label_word(name) {
            return Ok(key.to_owned());
        }
        self.rest = here;
        Err(self.expected("the key of a label"))
    }

    fn value(&mut self) -> Result<String, String> {
        self.skip_spaces();
        let here = self.rest;
        let value = self.word();
        if value.is_empty() || (value.len() <= 63 && is_label_word(value)) {
            return Ok(value.to_owned());
        }
        self.rest = here;
        Err(self.expected("the value of a label"))
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        self.skip_spaces();
        if !self.take("(") {
            return Err(self.expected("a list in parentheses"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            self.skip_spaces();
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(self.expected("a comma or the end of the list"));
            }
        }
    }
}

fn is_label_word(text: &str) -> bool {
    is_word(text, |byte| byte.is_ascii_alphanumeric(), b"-_.")
}

/// Whether a text begins and ends with a byte that `outer` accepts, and otherwise has only such bytes and bytes of `inner`.
fn is_word(text: &str, outer: impl Fn(u8) -> bool, inner: &[u8]) -> bool {
    let bytes = text.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_some_and(|&byte| outer(byte));
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|&byte| outer(byte) || inner.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let value_of = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
        LabelSelector::parse(selector).unwrap().selects(value_of)
    }

    #[test]
    fn selectors_mean_what_they_mean_to_kubectl() {
        let shard = [("sharding.fluxcd.io/key", "shard1"), ("tier", "web"), ("empty", "")];
        for (selector, selected) in [
            ("", true),
            ("  ", true),
            ("sharding.fluxcd.io/key=shard1", true),
            ("sharding.fluxcd.io/key == shard1", true),
            ("sharding.fluxcd.io/key=shard2", false),
            ("!sharding.fluxcd.io/key", false),
            ("! other", true),
            ("tier", true),
            ("tier!=web", false),
            ("other!=web", true),
            ("tier in (web, db)", true),
            ("tier in(db)", false),
            ("tier notin (db,cache)", true),
            ("other notin (db)", true),
            ("tier,sharding.fluxcd.io/key in (shard1,shard2),!other", true),
            ("tier=web,other", false),
            ("empty=", true),
            ("tier=", false),
            ("empty in (,x)", true),
            ("in=web", false),
        ] {
            assert_eq!(selects(selector, &shard), selected, "{selector}");
        }
    }

    #[test]
    fn a_selector_names_the_keys_on_which_it_depends() {
        let selector =
            LabelSelector::parse("tier in (web,db),!sharding.fluxcd.io/key,a!=b").unwrap();
        assert_eq!(selector.keys().collect::<Vec<_>>(), ["tier", "sharding.fluxcd.io/key", "a"]);
        assert_eq!(LabelSelector::default().keys().next(), None);
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_place() {
        for (text, complaint) in [
            ("tier in web", "`web` where a list in parentheses"),
            ("tier in (web", "ends where a comma or the end of the list"),
            ("tier like web", "`like web` where one of ="),
            ("tier=web db", "`db` where a comma"),
            ("tier>1", "`>1` where one of ="),
            (",tier", "`,tier` where the key"),
            ("tier,", "ends where the key"),
            ("=web", "`=web` where the key"),
            ("-a", "where the key"),
            ("UPPER.case/a", "where the key"),
            ("a=b/c", "where the value"),
            ("!a=b", "`=b` where a comma"),
        ] {
            let error = LabelSelector::parse(text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
        assert!(LabelSelector::parse(&format!("a in ({})", "b,".repeat(9000))).is_err());
        assert!(LabelSelector::parse(&format!("a={}", "b".repeat(64))).is_err());
    }
}
