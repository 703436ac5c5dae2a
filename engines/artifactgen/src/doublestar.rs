//! Matches paths with patterns that have `**`, `{a,b}` and classes, as the doublestar library does.
//!
//! Here: matching one path, and whether a pattern is well-formed. Elsewhere: finding the paths of a tree (`glob.rs`),
//! and excluded paths (`copy_exclude.rs`).
//!
//! Source of the semantics: github.com/bmatcuk/doublestar/v4 4.10.0, with its oddities. `**` counts at the beginning of
//! an alternative, `[!x]` and `[^x]` both negate, and a class that does not match need not end.

use golang::work_meter::{WorkLimitExceeded, WorkMeter};

/// Why a pattern was not matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternMatchError {
    /// The part of the pattern that was read is malformed.
    Malformed,
    /// The matching costs more than the meter allows.
    Work(WorkLimitExceeded),
}

impl From<WorkLimitExceeded> for PatternMatchError {
    fn from(error: WorkLimitExceeded) -> Self {
        Self::Work(error)
    }
}

/// How much of a pattern has to be well-formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternSyntaxCheck {
    /// The whole pattern. After a mismatch, the rest is checked, too.
    WholePattern,
    /// Only the part up to a mismatch. A malformed rest is not noticed.
    PartThatWasRead,
}

/// Whether a pattern matches a whole path.
///
/// # Errors
/// The pattern is malformed, or matching takes too long. Each group of alternatives multiplies the work.
pub(crate) fn is_match(
    pattern: &str,
    path: &str,
    check: PatternSyntaxCheck,
    meter: &mut WorkMeter,
) -> Result<bool, PatternMatchError> {
    meter.steps(pattern.len() as u64)?;
    let mut attempts = vec![PatternMatchAttempt {
        pattern: pattern.to_owned(),
        pattern_at: 0,
        path_at: 0,
        star: None,
        double_star: None,
    }];
    while let Some(attempt) = attempts.pop() {
        match attempt.run(path, check, meter)? {
            PatternMatchAttemptResult::Match => return Ok(true),
            PatternMatchAttemptResult::Mismatch => {}
            // The first alternative is tried first.
            PatternMatchAttemptResult::Alternatives(alternatives) => {
                attempts.extend(alternatives.into_iter().rev());
            }
        }
    }
    Ok(false)
}

/// Whether all classes, groups and escapes of a pattern are complete.
pub(crate) fn is_well_formed(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let mut open_groups = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => {
                at += 1;
                if at >= bytes.len() {
                    return false;
                }
            }
            b'[' => match class_end(bytes, at + 1) {
                Some(end) => at = end,
                None => return false,
            },
            b'{' => open_groups += 1,
            b'}' if open_groups == 0 => return false,
            b'}' => open_groups -= 1,
            _ => {}
        }
        at += 1;
    }
    open_groups == 0
}

/// The position of the `]` that ends a character class, whose `[` is before `at`. `None` if the class is empty or not
/// closed.
fn class_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    if matches!(bytes.get(at)?, b'^' | b'!') {
        at += 1;
    }
    if *bytes.get(at)? == b']' {
        return None;
    }
    loop {
        match bytes.get(at)? {
            b'\\' => at += 1,
            b']' => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

/// The position of the `}` that ends a group, whose `{` is before this text. `None` if the group is not closed.
pub(crate) fn group_end(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The end of the first alternative of a group. `None` if it is the last one.
pub(crate) fn alternative_end(text: &str) -> Option<usize> {
    let mut depth = 1_usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 1 => return Some(at),
            _ => {}
        }
    }
    None
}

/// One pattern for each alternative of the group whose `{` is at `open`, together with the text before and after the
/// group. `None` if the group is not closed.
fn alternatives(pattern: &str, open: usize) -> Option<Vec<String>> {
    let before = pattern.get(..open)?;
    let inner = pattern.get(open + 1..)?;
    let end = group_end(inner)?;
    let behind = inner.get(end + 1..)?;
    let mut rest = inner.get(..end)?;
    let mut all = Vec::new();
    while let Some(comma) = alternative_end(rest) {
        all.push([before, rest.get(..comma)?, behind].concat());
        rest = rest.get(comma + 1..)?;
    }
    all.push([before, rest, behind].concat());
    Some(all)
}

/// A position to which matching returns if it fails later.
#[derive(Debug, Clone, Copy)]
struct GlobBacktrackPoint {
    pattern_at: usize,
    path_at: usize,
}

/// A pattern in which an alternative was chosen for each group before [`PatternMatchAttempt::pattern_at`].
#[derive(Debug, Clone)]
struct PatternMatchAttempt {
    pattern: String,
    pattern_at: usize,
    path_at: usize,
    star: Option<GlobBacktrackPoint>,
    double_star: Option<GlobBacktrackPoint>,
}

enum PatternMatchAttemptResult {
    Match,
    Mismatch,
    /// The path matches if one of these attempts does.
    Alternatives(Vec<PatternMatchAttempt>),
}

/// The result of matching a part of a pattern with the path.
enum PatternPartResult {
    /// This part matches, and the next part follows.
    Next,
    /// This part does not match. An earlier part may match a different text.
    Stuck,
    /// The result of the whole attempt is known.
    Decided(PatternMatchAttemptResult),
}

impl PatternMatchAttempt {
    fn run(
        mut self,
        path: &str,
        check: PatternSyntaxCheck,
        meter: &mut WorkMeter,
    ) -> Result<PatternMatchAttemptResult, PatternMatchError> {
        let mut is_segment_start = true;
        while self.path_at < path.len() {
            meter.steps(1)?;
            match self.part(path, &mut is_segment_start, meter)? {
                PatternPartResult::Next => continue,
                PatternPartResult::Decided(result) => return Ok(result),
                PatternPartResult::Stuck => {}
            }
            if self.go_back_to_star(path) {
                is_segment_start = false;
                continue;
            }
            if self.go_back_to_double_star(path, meter)? {
                is_segment_start = true;
                continue;
            }
            let rest = self.pattern.get(self.pattern_at..).unwrap_or_default();
            if check == PatternSyntaxCheck::WholePattern && !is_well_formed(rest) {
                return Err(PatternMatchError::Malformed);
            }
            return Ok(PatternMatchAttemptResult::Mismatch);
        }
        let rest = self.pattern.get(self.pattern_at..).unwrap_or_default();
        Ok(match matches_nothing(rest, check, meter)? {
            true => PatternMatchAttemptResult::Match,
            false => PatternMatchAttemptResult::Mismatch,
        })
    }

    fn byte(&self) -> Option<u8> {
        self.pattern.as_bytes().get(self.pattern_at).copied()
    }

    /// Takes the next character of the pattern.
    fn take(&mut self) -> char {
        let (character, length) = character(&self.pattern, self.pattern_at);
        self.pattern_at += length;
        character
    }

    fn part(
        &mut self,
        path: &str,
        is_segment_start: &mut bool,
        meter: &mut WorkMeter,
    ) -> Result<PatternPartResult, PatternMatchError> {
        let (wanted, length) = character(path, self.path_at);
        let Some(first) = self.byte() else { return Ok(PatternPartResult::Stuck) };
        match first {
            b'*' => Ok(self.star(is_segment_start)),
            b'?' => {
                *is_segment_start = false;
                if wanted == '/' {
                    return Ok(PatternPartResult::Stuck);
                }
                self.pattern_at += 1;
                self.path_at += length;
                Ok(PatternPartResult::Next)
            }
            b'[' => {
                *is_segment_start = false;
                let begin = self.pattern_at;
                let result = self.class(wanted, length);
                meter.steps((self.pattern_at - begin) as u64)?;
                result
            }
            b'{' => {
                meter.steps(self.pattern.len() as u64)?;
                let all = alternatives(&self.pattern, self.pattern_at);
                let all = all.ok_or(PatternMatchError::Malformed)?;
                meter.steps(all.iter().map(|it| it.len() as u64).sum())?;
                let with = |pattern| Self { pattern, ..self.clone() };
                let all = all.into_iter().map(with).collect();
                Ok(PatternPartResult::Decided(PatternMatchAttemptResult::Alternatives(all)))
            }
            _ => {
                if first == b'\\' {
                    self.pattern_at += 1;
                    if self.byte().is_none() {
                        return Err(PatternMatchError::Malformed);
                    }
                }
                let (literal, literal_length) = character(&self.pattern, self.pattern_at);
                if literal != wanted {
                    let before = self.pattern_at.checked_sub(1);
                    let before = before.and_then(|at| self.pattern.as_bytes().get(at));
                    if before == Some(&b'\\') {
                        self.pattern_at -= 1;
                    }
                    return Ok(PatternPartResult::Stuck);
                }
                self.pattern_at += literal_length;
                self.path_at += length;
                *is_segment_start = literal == '/';
                Ok(PatternPartResult::Next)
            }
        }
    }

    fn star(&mut self, is_segment_start: &mut bool) -> PatternPartResult {
        self.pattern_at += 1;
        if self.byte() == Some(b'*') {
            self.pattern_at += 1;
            match self.byte() {
                None if *is_segment_start => {
                    return PatternPartResult::Decided(PatternMatchAttemptResult::Match);
                }
                Some(b'/') if *is_segment_start => {
                    self.pattern_at += 1;
                    self.double_star = Some(self.here());
                    self.star = None;
                    return PatternPartResult::Next;
                }
                // Anywhere else it is a single star.
                None | Some(_) => {}
            }
        }
        *is_segment_start = false;
        self.star = Some(self.here());
        PatternPartResult::Next
    }

    fn here(&self) -> GlobBacktrackPoint {
        GlobBacktrackPoint { pattern_at: self.pattern_at, path_at: self.path_at }
    }

    fn class(
        &mut self,
        wanted: char,
        length: usize,
    ) -> Result<PatternPartResult, PatternMatchError> {
        self.pattern_at += 1;
        let is_negated = matches!(self.byte(), Some(b'!' | b'^'));
        if is_negated {
            self.pattern_at += 1;
        }
        if matches!(self.byte(), None | Some(b']')) {
            return Err(PatternMatchError::Malformed);
        }
        let is_in = self.is_in_class(wanted);
        if is_in == is_negated {
            return match self.byte() {
                Some(_) => Ok(PatternPartResult::Stuck),
                None => Err(PatternMatchError::Malformed),
            };
        }
        let mut rest = self.pattern.bytes().enumerate().skip(self.pattern_at);
        while let Some((at, byte)) = rest.next() {
            match byte {
                b'\\' => drop(rest.next()),
                b']' => {
                    self.pattern_at = at + 1;
                    self.path_at += length;
                    return Ok(PatternPartResult::Next);
                }
                _ => {}
            }
        }
        Err(PatternMatchError::Malformed)
    }

    /// Whether a class contains a character. It reads the class up to that character, or to its end.
    fn is_in_class(&mut self, wanted: char) -> bool {
        let mut low = None;
        while self.byte().is_some_and(|byte| byte != b']') {
            let mut first = self.take();
            let is_range = first == '-' && self.byte().is_some_and(|byte| byte != b']');
            if let Some(low_end) = low.take()
                && is_range
            {
                if self.byte() == Some(b'\\') {
                    self.pattern_at += 1;
                }
                let high_end = self.take();
                if (low_end..=high_end).contains(&wanted) {
                    return true;
                }
                continue;
            }
            if first == '\\' {
                first = self.take();
            }
            if first == wanted {
                return true;
            }
            low = Some(first);
        }
        false
    }

    /// Lets the last star match one more character.
    fn go_back_to_star(&mut self, path: &str) -> bool {
        let Some(star) = &mut self.star else { return false };
        let (next, length) = character(path, star.path_at);
        if next == '/' {
            return false;
        }
        star.path_at += length;
        self.pattern_at = star.pattern_at;
        self.path_at = star.path_at;
        true
    }

    /// Lets the last double star match one more folder.
    fn go_back_to_double_star(
        &mut self,
        path: &str,
        meter: &mut WorkMeter,
    ) -> Result<bool, WorkLimitExceeded> {
        let Some(double_star) = &mut self.double_star else { return Ok(false) };
        let rest = path.get(double_star.path_at..).unwrap_or_default();
        let slash = rest.find('/');
        meter.steps(slash.unwrap_or(rest.len()) as u64)?;
        let Some(slash) = slash else { return Ok(false) };
        double_star.path_at += slash + 1;
        self.pattern_at = double_star.pattern_at;
        self.path_at = double_star.path_at;
        Ok(true)
    }
}

/// The character at a position, and its length. At the end, it is Go's replacement character with the length 0.
fn character(text: &str, at: usize) -> (char, usize) {
    let next = text.get(at..).and_then(|rest| rest.chars().next());
    next.map_or((char::REPLACEMENT_CHARACTER, 0), |it| (it, it.len_utf8()))
}

/// Whether a pattern matches an empty text. `a/**` matches `a`, because `a` may be a folder.
fn matches_nothing(
    pattern: &str,
    check: PatternSyntaxCheck,
    meter: &mut WorkMeter,
) -> Result<bool, PatternMatchError> {
    let mut waiting = vec![pattern.to_owned()];
    while let Some(pattern) = waiting.pop() {
        meter.steps(1 + pattern.len() as u64)?;
        if matches!(pattern.as_str(), "" | "*" | "**" | "/**" | "**/" | "/**/") {
            return Ok(true);
        }
        if pattern.starts_with('{') {
            let all = alternatives(&pattern, 0).ok_or(PatternMatchError::Malformed)?;
            waiting.extend(all.into_iter().rev());
        } else if check == PatternSyntaxCheck::WholePattern && !is_well_formed(&pattern) {
            return Err(PatternMatchError::Malformed);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};
    use proptest::prelude::*;

    use super::*;

    fn meter() -> WorkMeter {
        WorkMeter::new(WorkAllowance { steps: 10_000_000, bytes: 0 }, StopSignal::default())
    }

    fn matches(pattern: &str, path: &str) -> bool {
        is_match(pattern, path, PatternSyntaxCheck::PartThatWasRead, &mut meter()).unwrap()
    }

    #[test]
    fn patterns_match_as_the_library_says() {
        for (pattern, path) in [
            ("*", "a"),
            ("**", "a/b/c"),
            ("**/*.md", "x.md"),
            ("**/*.md", "a/b/x.md"),
            ("a/**", "a"),
            ("a/**/", "a"),
            ("a/**/d", "a/b/c/d"),
            ("a/**/d", "a/d"),
            ("a**", "ab"),
            ("{web,db}.yaml", "db.yaml"),
            ("{w,d}{eb,b}.yaml", "web.yaml"),
            ("{a/**,b}/c", "a/x/c"),
            ("x{**/a,b}", "xb"),
            ("[a-c]?", "bx"),
            ("[!a]", "b"),
            ("[^a-]", "b"),
            (r"\*.md", "*.md"),
            (r"[\]]", "]"),
            ("a{,b}", "a"),
            ("ü?", "üé"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*", "a/b"),
            ("a**", "a/b"),
            ("a/**/d", "a/b"),
            ("?", "/"),
            ("sub/", "sub"),
            ("/a", "a"),
            ("./a", "a"),
            ("A", "a"),
            ("!a", "a"),
            ("", "a"),
            (r"\*.md", "a.md"),
            ("{a,b}", "c"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_is_malformed_is_found_where_it_is_read() {
        let validated =
            |pattern: &str| is_match(pattern, ".", PatternSyntaxCheck::WholePattern, &mut meter());
        for pattern in ["[", "a][", "[]", "{a", "a}", r"\", ".{", "[a-"] {
            assert_eq!(validated(pattern), Err(PatternMatchError::Malformed), "{pattern}");
            assert!(!is_well_formed(pattern), "{pattern}");
        }
        // Parity(doublestar): a match ends the examination.
        assert_eq!(validated("{**,[}"), Ok(true));
        assert!(!is_well_formed("{**,[}"));
        assert!(is_well_formed("{a,[b}]}"));
    }

    #[test]
    fn groups_that_multiply_the_work_end_with_an_error() {
        let pattern = "{a,aa}".repeat(20);
        let mut meter =
            WorkMeter::new(WorkAllowance { steps: 100_000, bytes: 0 }, StopSignal::default());
        let answer =
            is_match(&pattern, &"a".repeat(60), PatternSyntaxCheck::PartThatWasRead, &mut meter);
        assert_eq!(answer, Err(PatternMatchError::Work(WorkLimitExceeded::Steps(100_000))));
        // Groups without alternatives cost no stack.
        assert!(matches(&"{a}".repeat(1_000), &"a".repeat(1_000)));
        assert!(matches(&("{".repeat(1_000) + "a" + &"}".repeat(1_000)), "a"));
    }

    #[test]
    fn a_pattern_and_each_scan_of_a_class_cost_their_length() {
        let costs_more_than = |steps: u64, pattern: &str, path: &str| {
            let mut meter =
                WorkMeter::new(WorkAllowance { steps, bytes: 0 }, StopSignal::default());
            let answer = is_match(pattern, path, PatternSyntaxCheck::PartThatWasRead, &mut meter);
            answer == Err(PatternMatchError::Work(WorkLimitExceeded::Steps(steps)))
        };
        assert!(costs_more_than(999, &"b".repeat(1_000), "a"));
        let class = format!("*[{}]", "b".repeat(1_000));
        assert!(costs_more_than(99_999, &class, &"a".repeat(100)));
    }

    proptest! {
        #[test]
        fn no_pattern_and_no_path_panics(
            pattern in r"[\[\]{},*?!^\\a-cé/.-]{0,20}",
            path in "[a-cé/.]{0,12}",
        ) {
            for check in [PatternSyntaxCheck::PartThatWasRead, PatternSyntaxCheck::WholePattern] {
                let _answer = is_match(&pattern, &path, check, &mut meter());
            }
            let _answer = is_well_formed(&pattern);
        }

        #[test]
        fn a_path_that_is_spelled_out_matches(path in "[a-cé*?\\[\\]{},/!-]{0,12}") {
            let spelled: String = path.chars().flat_map(|it| ['\\', it]).collect();
            let answer = is_match(&spelled, &path, PatternSyntaxCheck::WholePattern, &mut meter());
            prop_assert_eq!(answer, Ok(true));
        }
    }
}
