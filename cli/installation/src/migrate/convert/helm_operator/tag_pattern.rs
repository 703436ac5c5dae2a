//! Converts tag patterns of Flux v1 to the policies of ImagePolicies.
//!
//! Flux v1 sorts tags by version if the pattern is a version range. Otherwise it sorts them by build time.
//! An ImagePolicy does not know the build time. So other patterns are converted only if the tag itself shows which one is
//! newer.
//! Source of the semantics: Flux 1.25, `pkg/policy/pattern.go`.

use golang::regexp::{GoRegexp, quote_meta};
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use image::{FilterTags, PolicyChoice, TagPolicy};
use serde_json::{Value, json};

/// The limits for comparing the one tag that is known.
const CHECK_ALLOWANCE: WorkAllowance = WorkAllowance { steps: 10_000_000, bytes: 1 << 20 };

/// The advice for a pattern whose tags are sorted by build time.
const ORDER_ADVICE: &str = "Flux ordered the tags by the time of their build, which an ImagePolicy does not have. Where tags are \
                            versions, write `semver:` with a range; where they have a growing number, write `regexp:` with one \
                            group of digits, such as `^main-[a-f0-9]+-([0-9]+)$`; then convert it anew";

/// The policy for the tags of an image.
#[derive(Debug)]
pub(super) struct ConvertedTagPolicy {
    choice: PolicyChoice,
    filter: Option<FilterTags>,
    policy: TagPolicy,
    /// How the policy differs from the pattern.
    pub(super) remark: Option<String>,
}

/// How a tag, or a group of it, is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagOrder {
    Number,
    Version,
}

impl ConvertedTagPolicy {
    /// Converts a pattern: `semver:RANGE`, `regexp:EXPRESSION`, `regex:EXPRESSION`, `glob:PATTERN` or `PATTERN`.
    ///
    /// # Errors
    /// The pattern has no counterpart. The error says why, and what to do.
    pub(super) fn of(pattern: &str) -> Result<Self, String> {
        if let Some(range) = pattern.strip_prefix("semver:") {
            return Self::of_range(range.trim());
        }
        let expression = pattern.strip_prefix("regexp:").or_else(|| pattern.strip_prefix("regex:"));
        match expression {
            Some(expression) => Self::of_expression(expression),
            None => Self::of_glob(pattern.strip_prefix("glob:").unwrap_or(pattern)),
        }
    }

    fn of_range(range: &str) -> Result<Self, String> {
        let choice = PolicyChoice { semver: Some(range.to_owned()), ..PolicyChoice::default() };
        Self::new(choice, None, None).map_err(|error| {
            format!("{error}. Flux took every version then: correct the range, and convert it anew")
        })
    }

    fn of_glob(pattern: &str) -> Result<Self, String> {
        if pattern.contains('*') {
            return Err(ORDER_ADVICE.to_owned());
        }
        if pattern.is_empty() {
            return Err("no tag matches it, so Flux updated nothing".to_owned());
        }
        let filter =
            FilterTags { pattern: format!("^{}$", quote_meta(pattern)), ..FilterTags::default() };
        let choice =
            PolicyChoice { alphabetical: Some("asc".to_owned()), ..PolicyChoice::default() };
        Self::new(choice, Some(filter), None)
    }

    fn of_expression(pattern: &str) -> Result<Self, String> {
        if let Err(error) = GoRegexp::new(pattern) {
            return Err(format!(
                "{error}. Flux took every tag then: correct the expression, and convert it anew"
            ));
        }
        if let Some(order) = whole_order(pattern) {
            return Self::of_order(order, pattern, String::new());
        }
        let mut ordered =
            groups(pattern).into_iter().filter_map(|group| Some((group.order()?, group.reference)));
        match (ordered.next(), ordered.next()) {
            (Some((order, reference)), None) => Self::of_order(order, pattern, reference),
            _ => Err(ORDER_ADVICE.to_owned()),
        }
    }

    fn of_order(order: TagOrder, pattern: &str, extract: String) -> Result<Self, String> {
        let what = if extract.is_empty() { "tag" } else { "group" };
        let default = PolicyChoice::default();
        let (choice, largest) = match order {
            TagOrder::Number => {
                (PolicyChoice { numerical: Some("asc".to_owned()), ..default }, "largest number")
            }
            TagOrder::Version => {
                (PolicyChoice { semver: Some("*".to_owned()), ..default }, "highest version")
            }
        };
        let remark = format!(
            "Flux took the image that was built last, the ImagePolicy takes the one with the {largest} in the {what}"
        );
        Self::new(choice, Some(FilterTags { pattern: pattern.to_owned(), extract }), Some(remark))
    }

    fn new(
        choice: PolicyChoice,
        filter: Option<FilterTags>,
        remark: Option<String>,
    ) -> Result<Self, String> {
        let policy = TagPolicy::new(&choice).map_err(|error| error.to_string())?;
        Ok(Self { choice, filter, policy, remark })
    }

    /// Whether the policy accepts a tag.
    pub(super) fn takes(&self, tag: &str) -> bool {
        let mut meter = WorkMeter::new(CHECK_ALLOWANCE, StopSignal::default());
        self.policy.latest(self.filter.as_ref(), &[tag.to_owned()], &mut meter).is_ok()
    }

    /// Writes the policy into the spec of an ImagePolicy.
    pub(super) fn put_into(&self, spec: &mut Value) {
        let PolicyChoice { semver, alphabetical, numerical } = &self.choice;
        spec["policy"] = match (semver, numerical) {
            (Some(range), _) => json!({"semver": {"range": range}}),
            (None, Some(order)) => json!({"numerical": {"order": order}}),
            (None, None) => json!({"alphabetical": {"order": alphabetical}}),
        };
        if let Some(FilterTags { pattern, extract }) = &self.filter {
            spec["filterTags"] = json!({"pattern": pattern});
            if !extract.is_empty() {
                spec["filterTags"]["extract"] = json!(extract);
            }
        }
    }
}

/// A capture group of a regular expression.
#[derive(Debug, PartialEq, Eq)]
struct CaptureGroup {
    /// The name of the group in a template.
    reference: String,
    body: String,
    /// Whether each match contains the group exactly once.
    is_in_each_match: bool,
}

impl CaptureGroup {
    fn order(&self) -> Option<TagOrder> {
        self.is_in_each_match.then(|| order_of(&self.body)).flatten()
    }
}

/// A group whose end has not been reached yet.
struct OpenRegexGroup {
    /// The name of the group in a template. `None` if the group does not capture.
    reference: Option<String>,
    /// The index at which the body of the group begins.
    start: usize,
}

/// The capture groups of a valid expression, in the order of their ends. `None` if the expression has quoted text or top-level
/// alternatives, because then a match may lack a group.
fn groups(pattern: &str) -> Vec<CaptureGroup> {
    let mut ended = Vec::new();
    let mut open: Vec<OpenRegexGroup> = Vec::new();
    let mut count = 0;
    let mut at = 0;
    while let Some(rest) = pattern.get(at..).filter(|rest| !rest.is_empty()) {
        let length = match rest.chars().next() {
            Some('\\') if rest.starts_with("\\Q") => return Vec::new(),
            Some('\\') => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            Some('[') => class_length(rest),
            Some('|') if open.is_empty() => return Vec::new(),
            Some('(') => {
                let (name, length) = head(rest);
                let reference = name.map(|name| {
                    count += 1;
                    if name.is_empty() { format!("${count}") } else { format!("${name}") }
                });
                open.push(OpenRegexGroup { reference, start: at + length });
                length
            }
            Some(')') => {
                let behind = rest.get(1..).unwrap_or_default();
                if let Some(OpenRegexGroup { reference: Some(reference), start }) = open.pop() {
                    let body = pattern.get(start..at).unwrap_or_default().to_owned();
                    let is_in_each_match =
                        open.is_empty() && !behind.starts_with(['?', '*', '+', '{']);
                    ended.push(CaptureGroup { reference, body, is_in_each_match });
                }
                1
            }
            other => other.map_or(1, char::len_utf8),
        };
        at += length;
    }
    ended
}

/// The name of the group that begins here, and the length of the text before its body. The name is empty for a group without a
/// name, and `None` for a group that does not capture.
fn head(rest: &str) -> (Option<&str>, usize) {
    for start in ["(?P<", "(?<"] {
        if let Some((name, _)) = rest.strip_prefix(start).and_then(|it| it.split_once('>')) {
            return (Some(name), start.len() + name.len() + 1);
        }
    }
    if rest.starts_with("(?") { (None, "(?".len()) } else { (Some(""), 1) }
}

/// The length of the character class that begins here.
fn class_length(rest: &str) -> usize {
    let mut at = 1;
    if rest.get(at..).is_some_and(|it| it.starts_with('^')) {
        at += 1;
    }
    // At this position, the bracket is one of the characters.
    if rest.get(at..).is_some_and(|it| it.starts_with(']')) {
        at += 1;
    }
    while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
        let named = left.strip_prefix("[:").and_then(|it| it.find(":]"));
        at += match (named, left.chars().next()) {
            (Some(length), _) => "[:".len() + length + ":]".len(),
            (None, Some(']')) => return at + 1,
            (None, Some('\\')) => 1 + left.chars().nth(1).map_or(0, char::len_utf8),
            (None, other) => other.map_or(1, char::len_utf8),
        };
    }
    at
}

/// How to order the tags that match a pattern as a whole, from `^` to `$`. `None` if the pattern describes no known order.
fn whole_order(pattern: &str) -> Option<TagOrder> {
    let body = pattern.strip_prefix('^')?.strip_suffix('$')?;
    if body.contains("(?") {
        return None;
    }
    // Groups around the parts of a version do not change the order of the whole.
    order_of(&body.replace(['(', ')'], ""))
}

fn order_of(body: &str) -> Option<TagOrder> {
    if after_number(body) == Some("") {
        return Some(TagOrder::Number);
    }
    (after_version(body) == Some("")).then_some(TagOrder::Version)
}

/// The rest of a pattern after three numbers with dots between them. `None` if the pattern does not begin with such a version.
fn after_version(pattern: &str) -> Option<&str> {
    let prefix = pattern.strip_prefix('v').map(|it| it.strip_prefix('?').unwrap_or(it));
    let minor = after_dot(after_number(prefix.unwrap_or(pattern))?)?;
    after_number(after_dot(after_number(minor)?)?)
}

fn after_dot(pattern: &str) -> Option<&str> {
    pattern.strip_prefix("\\.").or_else(|| pattern.strip_prefix("[.]"))
}

/// The rest of a pattern after a number. `None` if the pattern does not begin with a part that requires a digit.
fn after_number(pattern: &str) -> Option<&str> {
    let mut rest = pattern;
    let mut has_digit = false;
    while let Some(behind) = after_digit(rest) {
        let RegexQuantifier { rest: next, is_optional } = RegexQuantifier::of(behind);
        has_digit |= !is_optional;
        rest = next;
    }
    has_digit.then_some(rest)
}

fn after_digit(pattern: &str) -> Option<&str> {
    let classes = ["\\d", "[0-9]", "[1-9]", "[\\d]", "[[:digit:]]"];
    let behind = classes.into_iter().find_map(|class| pattern.strip_prefix(class));
    behind.or_else(|| pattern.strip_prefix(|c: char| c.is_ascii_digit()))
}

/// The quantifier of the previous part.
struct RegexQuantifier<'p> {
    /// The rest of the pattern after the quantifier.
    rest: &'p str,
    /// Whether the previous part may be missing.
    is_optional: bool,
}

impl<'p> RegexQuantifier<'p> {
    fn of(pattern: &'p str) -> Self {
        let greedy = match pattern.chars().next() {
            Some('+') => Self { rest: &pattern[1..], is_optional: false },
            Some('*' | '?') => Self { rest: &pattern[1..], is_optional: true },
            Some('{') => match pattern[1..].split_once('}') {
                Some((count, rest)) => {
                    let least = count.split(',').next().unwrap_or_default();
                    Self { rest, is_optional: !matches!(least.parse::<u32>(), Ok(1..)) }
                }
                None => return Self { rest: pattern, is_optional: false },
            },
            _ => return Self { rest: pattern, is_optional: false },
        };
        let Self { rest, is_optional } = greedy;
        Self { rest: rest.strip_prefix('?').unwrap_or(rest), is_optional }
    }
}
