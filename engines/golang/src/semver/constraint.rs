//! Version ranges: reading them, and checking whether a version is inside. Elsewhere: versions (`version.rs`).
//!
//! A constraint has alternatives, separated by `||`. An alternative has comparisons, separated by spaces or commas,
//! which all have to hold. `a - b` is short for `>=a, <=b`. A number that is missing, or is `x`, `X` or `*`, stands for
//! any number.

use std::fmt;
use std::str::FromStr;

use super::version::compare_parts;
use super::{MAX_CONSTRAINT_BYTES, SemverVersion, is_identifier};
use crate::strconv::{QuotingStyle, quote};

/// How long a constraint of Masterminds/semver 3.5 may be, in bytes.
const MAX_GO_CONSTRAINT_BYTES: usize = 512;

/// How many alternatives a constraint of Masterminds/semver 3.5 may have.
const MAX_GO_ALTERNATIVES: usize = 32;

/// Why a text is not a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionConstraintError {
    /// The text does not have the form of a constraint.
    #[error("`{0}` is not a version constraint; write ranges such as `>=1.2 <2`, `~1.2` or `1.x`")]
    Improper(String),
    /// The text has the form of a constraint, but compares with a text that is not a version.
    #[error("`{0}` compares with something that is not a version")]
    NotAVersion(String),
    /// The text is longer than [`MAX_CONSTRAINT_BYTES`].
    #[error("a version constraint may be {MAX_CONSTRAINT_BYTES} bytes long, and this one has {0}")]
    TooLong(usize),
}

/// A range of versions.
///
/// A pre-release matches an alternative only if one of its comparisons names a pre-release. The usual way to include
/// pre-releases is `>=1.0.0-0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionConstraint {
    alternatives: Vec<ConstraintAlternative>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ConstraintAlternative {
    comparisons: Vec<VersionComparison>,
    takes_prereleases: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConstraintOperator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// Which numbers of a version were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum VersionPrecision {
    Nothing,
    Major,
    Minor,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct VersionComparison {
    operator: ConstraintOperator,
    /// The version. Numbers that were not given are 0.
    version: SemverVersion,
    given: VersionPrecision,
    /// The text of the comparison.
    text: String,
}

impl VersionConstraint {
    /// Reads a constraint as `NewConstraint` does.
    ///
    /// # Errors
    /// The text is not a constraint, or is too long. An empty text is not a constraint. `*` matches every release.
    pub fn parse(text: &str) -> Result<Self, VersionConstraintError> {
        if text.len() > MAX_CONSTRAINT_BYTES {
            return Err(VersionConstraintError::TooLong(text.len()));
        }
        let text = without_hyphens(text);
        let alternatives = text.split("||").map(alternative).collect::<Result<_, _>>()?;
        Ok(Self { alternatives })
    }

    /// Reads a constraint with the limits and the messages of Masterminds/semver 3.5.
    ///
    /// # Errors
    /// The complete text of its error.
    pub fn parse_in_go_words(text: &str) -> Result<Self, String> {
        if text.len() > MAX_GO_CONSTRAINT_BYTES {
            return Err(format!(
                "constraint string is too long (max {MAX_GO_CONSTRAINT_BYTES} bytes)"
            ));
        }
        if text.matches("||").count() >= MAX_GO_ALTERNATIVES {
            return Err(format!("too many constraint groups (max {MAX_GO_ALTERNATIVES})"));
        }
        Self::parse(text).map_err(|error| match error {
            VersionConstraintError::Improper(part) => {
                let quoted = quote(part.as_bytes(), QuotingStyle::Printable);
                format!("improper constraint: {}", String::from_utf8_lossy(&quoted))
            }
            VersionConstraintError::NotAVersion(_) => "constraint parser error".to_owned(),
            VersionConstraintError::TooLong(_) => error.to_string(),
        })
    }

    /// Whether a version is in the range, as `Check` decides.
    pub fn matches(&self, version: &SemverVersion) -> bool {
        self.alternatives.iter().any(|alternative| {
            (alternative.takes_prereleases || version.prerelease.is_empty())
                && alternative.comparisons.iter().all(|comparison| comparison.admits(version))
        })
    }
}

impl FromStr for VersionConstraint {
    type Err = VersionConstraintError;

    fn from_str(text: &str) -> Result<Self, VersionConstraintError> {
        Self::parse(text)
    }
}

/// Writes the constraint with single spaces, and with hyphen ranges as comparisons.
impl fmt::Display for VersionConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, alternative) in self.alternatives.iter().enumerate() {
            f.write_str(if at > 0 { " || " } else { "" })?;
            for (at, comparison) in alternative.comparisons.iter().enumerate() {
                f.write_str(if at > 0 { " " } else { "" })?;
                f.write_str(&comparison.text)?;
            }
        }
        Ok(())
    }
}

impl VersionComparison {
    fn admits(&self, version: &SemverVersion) -> bool {
        let wanted = &self.version;
        match self.operator {
            ConstraintOperator::Equal if self.given < VersionPrecision::All => {
                self.is_near(version)
            }
            ConstraintOperator::Equal => version == wanted,
            ConstraintOperator::NotEqual => self.differs(version),
            ConstraintOperator::Greater => match self.given {
                VersionPrecision::All | VersionPrecision::Nothing => version > wanted,
                VersionPrecision::Major => version.major > wanted.major,
                VersionPrecision::Minor => {
                    (version.major, version.minor) > (wanted.major, wanted.minor)
                }
            },
            ConstraintOperator::Less => version < wanted,
            ConstraintOperator::GreaterOrEqual => version >= wanted,
            ConstraintOperator::LessOrEqual => match self.given {
                VersionPrecision::All => version <= wanted,
                VersionPrecision::Major => version.major <= wanted.major,
                // Parity(go): `<=*` admits what `<=0.0` does.
                VersionPrecision::Minor | VersionPrecision::Nothing => {
                    (version.major, version.minor) <= (wanted.major, wanted.minor)
                }
            },
            ConstraintOperator::Tilde => self.is_near(version),
            ConstraintOperator::Caret => self.is_compatible(version),
        }
    }

    /// `!=`: the version differs in one of the given numbers.
    fn differs(&self, version: &SemverVersion) -> bool {
        let wanted = &self.version;
        let same_major = version.major == wanted.major;
        match self.given {
            VersionPrecision::All | VersionPrecision::Nothing => version != wanted,
            VersionPrecision::Major => !same_major,
            VersionPrecision::Minor => {
                !same_major
                    || version.minor != wanted.minor
                    || compare_parts(&version.prerelease, &wanted.prerelease).is_ne()
            }
        }
    }

    /// `~`: this version or a later one with the same major and, if it is given, minor number.
    fn is_near(&self, version: &SemverVersion) -> bool {
        let wanted = &self.version;
        // Parity(go): `~0.0.0` admits everything, as `~*` does.
        let is_any = matches!(self.given, VersionPrecision::All | VersionPrecision::Nothing)
            && (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0);
        version >= wanted
            && (is_any
                || version.major == wanted.major
                    && (version.minor == wanted.minor || self.given == VersionPrecision::Major))
    }

    /// `^`: this version or a later one in which the first number that is not 0 is the same.
    fn is_compatible(&self, version: &SemverVersion) -> bool {
        let wanted = &self.version;
        if version < wanted || version.major != wanted.major {
            return false;
        }
        if wanted.major > 0 || self.given == VersionPrecision::Major {
            return true;
        }
        if version.minor != wanted.minor {
            return false;
        }
        // Parity(go): `^*` admits `0.0.0` alone.
        wanted.minor > 0 || self.given == VersionPrecision::Minor || version.patch == wanted.patch
    }
}

/// Reads the comparisons of one alternative.
fn alternative(text: &str) -> Result<ConstraintAlternative, VersionConstraintError> {
    let improper = || VersionConstraintError::Improper(text.to_owned());
    let mut comparisons = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    loop {
        let (operator, sign, after) = operator(rest);
        let from = after.trim_start_matches(is_space);
        let length = wildcard_version(from).ok_or_else(improper)?;
        let (version, after) = from.split_at(length);
        comparisons.push(comparison(operator, sign, version)?);
        let next = after.trim_start_matches(is_space);
        if next.is_empty() {
            break;
        }
        rest = match next.strip_prefix(',') {
            Some(next) => next.trim_start_matches(is_space),
            None if next.len() < after.len() => next,
            None => return Err(improper()),
        };
    }
    let takes_prereleases = comparisons.iter().any(|it| !it.version.prerelease.is_empty());
    Ok(ConstraintAlternative { comparisons, takes_prereleases })
}

/// The operator at the beginning of a text, its sign, and the rest of the text.
fn operator(text: &str) -> (ConstraintOperator, &str, &str) {
    const OPERATORS: [(&str, ConstraintOperator); 11] = [
        (">=", ConstraintOperator::GreaterOrEqual),
        ("=>", ConstraintOperator::GreaterOrEqual),
        ("<=", ConstraintOperator::LessOrEqual),
        ("=<", ConstraintOperator::LessOrEqual),
        ("!=", ConstraintOperator::NotEqual),
        ("~>", ConstraintOperator::Tilde),
        ("~", ConstraintOperator::Tilde),
        ("^", ConstraintOperator::Caret),
        (">", ConstraintOperator::Greater),
        ("<", ConstraintOperator::Less),
        ("=", ConstraintOperator::Equal),
    ];
    for (sign, operator) in OPERATORS {
        if let Some(rest) = text.strip_prefix(sign) {
            return (operator, sign, rest);
        }
    }
    (ConstraintOperator::Equal, "", text)
}

fn comparison(
    operator: ConstraintOperator,
    sign: &str,
    text: &str,
) -> Result<VersionComparison, VersionConstraintError> {
    let rest = text.strip_prefix('v').unwrap_or(text);
    let end = rest.find(['-', '+']).unwrap_or(rest.len());
    let (numbers, extra) = rest.split_at(end);
    let prerelease = extra.split('+').next().unwrap_or_default();
    let is_any = |part: &str| matches!(part, "x" | "X" | "*");
    let parts: Vec<&str> = numbers.split('.').collect();
    let (given, plain) = match parts.as_slice() {
        [major, ..] if is_any(major) => (VersionPrecision::Nothing, format!("0.0.0{prerelease}")),
        [major] => (VersionPrecision::Major, format!("{major}.0.0{prerelease}")),
        [major, minor, ..] if is_any(minor) => {
            (VersionPrecision::Major, format!("{major}.0.0{prerelease}"))
        }
        [major, minor] => (VersionPrecision::Minor, format!("{major}.{minor}.0{prerelease}")),
        [major, minor, patch, ..] if is_any(patch) => {
            (VersionPrecision::Minor, format!("{major}.{minor}.0{prerelease}"))
        }
        _ => (VersionPrecision::All, rest.to_owned()),
    };
    let version = SemverVersion::parse(&plain)
        .map_err(|_| VersionConstraintError::NotAVersion(text.to_owned()))?;
    Ok(VersionComparison { operator, version, given, text: format!("{sign}{text}") })
}

/// Whether Go's `\s` matches a character.
fn is_space(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\x0c' | '\r' | ' ')
}

/// The length of the version at the beginning of a text, in which any number may be `x`; `None` if there is none.
///
/// Parity(go): a `|` may stand where a digit may. It matters in `1||2 - 3`, which is `>=1 || 2, <=3`.
fn wildcard_version(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let run = |from: usize, is_in: fn(u8) -> bool| {
        from + bytes[from..].iter().take_while(|byte| is_in(**byte)).count()
    };
    let is_number = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'x' | b'X' | b'*' | b'|');
    let start = usize::from(bytes.first() == Some(&b'v'));
    let mut end = run(start, is_number);
    if end == start {
        return None;
    }
    for _ in 0..2 {
        let next = if bytes.get(end) == Some(&b'.') { run(end + 1, is_number) } else { end };
        if next <= end + 1 {
            break;
        }
        end = next;
    }
    for sign in [b'-', b'+'] {
        if bytes.get(end) != Some(&sign) {
            continue;
        }
        let mut next = run(end + 1, is_identifier);
        if next == end + 1 {
            continue;
        }
        loop {
            end = next;
            next = if bytes.get(end) == Some(&b'.') { run(end + 1, is_identifier) } else { end };
            if next <= end + 1 {
                break;
            }
        }
    }
    Some(end)
}

/// Writes `a - b` as two comparisons, everywhere in a text.
///
/// Parity(go): this is done before the text is parsed, and replaces the first text that looks the same.
fn without_hyphens(text: &str) -> String {
    let mut result = text.to_owned();
    let mut at = 0;
    while at < text.len() {
        match hyphen_range(&text[at..]) {
            Some((length, from, to)) => {
                let range = &text[at..at + length];
                result = result.replacen(range, &format!(">= {from}, <= {to} "), 1);
                at += length;
            }
            None => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    result
}

/// The range `a - b` at the beginning of a text, including the spaces around it: its length, `a` and `b`. `None` if the
/// text does not begin with such a range.
fn hyphen_range(text: &str) -> Option<(usize, &str, &str)> {
    let spaced = |text: &'_ str| -> usize { text.len() - text.trim_start_matches(is_space).len() };
    let mut at = spaced(text);
    let from = &text[at..at + wildcard_version(&text[at..])?];
    at += from.len();
    let before = spaced(&text[at..]);
    let after = text[at + before..].strip_prefix('-').map_or(0, spaced);
    if before == 0 || after == 0 {
        return None;
    }
    at += before + 1 + after;
    let to = &text[at..at + wildcard_version(&text[at..])?];
    at += to.len();
    Some((at + spaced(&text[at..]), from, to))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(constraint: &str, version: &str) -> bool {
        VersionConstraint::parse(constraint)
            .unwrap()
            .matches(&SemverVersion::parse(version).unwrap())
    }

    #[test]
    fn prereleases_count_in_alternatives_that_name_one() {
        assert!(!matches(">=1.0.0", "1.1.0-rc.1"));
        assert!(matches(">=1.0.0-0", "1.1.0-rc.1"));
        assert!(!matches("<1-0 || >=1", "1.1.0-rc.1"));
        assert!(matches(">=1, <2.0.0-0", "1.1.0-rc.1"));
    }

    #[test]
    fn a_hyphen_between_spaces_is_a_range() {
        assert!(matches("1.2 - 2.4", "2.4.9") && !matches("1.2 - 2.4", "2.5.0"));
        assert!(matches("1 - 2 || 4 - 5", "5.1.0") && !matches("1 - 2 || 4 - 5", "3.0.0"));
        assert_eq!(
            VersionConstraint::parse(" 1 -  2,  !=1.5").unwrap().to_string(),
            ">=1 <=2 !=1.5"
        );
        // As Go has it: the bar belongs to what is before the hyphen.
        assert_eq!(VersionConstraint::parse("1||2 - 3").unwrap().to_string(), ">=1 || 2 <=3");
    }

    #[test]
    fn what_is_no_constraint_is_refused() {
        for text in
            ["", " ", "foo", "1.2.3.4", "==1", "!1", ">= ", "1,", ",1", "1,,2", "1 ||", "> =1"]
        {
            assert!(
                matches!(VersionConstraint::parse(text), Err(VersionConstraintError::Improper(_))),
                "{text}"
            );
        }
        for text in ["1|2", "1.2x", "12*", "1.2.3-01", "18446744073709551616"] {
            assert!(
                matches!(
                    VersionConstraint::parse(text),
                    Err(VersionConstraintError::NotAVersion(_))
                ),
                "{text}"
            );
        }
        let long = "1 ".repeat(MAX_CONSTRAINT_BYTES);
        assert_eq!(
            VersionConstraint::parse(&long),
            Err(VersionConstraintError::TooLong(2 * MAX_CONSTRAINT_BYTES))
        );
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(text in "[ ,|vxX*0-9.<>=~^!+a-]{0,24}|.*", version in "[0-9]\\.[0-9]") {
            if let Ok(constraint) = VersionConstraint::parse(&text) {
                let version = SemverVersion::parse(&version).unwrap();
                let again = VersionConstraint::parse(&constraint.to_string()).unwrap();
                prop_assert_eq!(constraint.matches(&version), again.matches(&version));
            }
        }
    }
}
