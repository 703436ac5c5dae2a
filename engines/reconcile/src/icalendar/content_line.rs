//! Joins the folded lines of an iCalendar file, and splits each line into name, parameters and value (RFC 5545, section 3.1).
//!
//! Elsewhere: which lines are used, and their meaning (`icalendar.rs`).

use std::collections::BTreeSet;

/// A line of the file: the begin or end of a component, or a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ICalendarContentLine {
    /// The number of its first line in the file.
    pub(super) number: usize,
    /// The whole unfolded line.
    pub(super) text: String,
    /// The name of the property, in upper case.
    pub(super) name: String,
    /// The value, which follows the name and its parameters.
    pub(super) value: String,
    parameters: Vec<ICalendarParameter>,
}

/// A parameter of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ICalendarParameter {
    /// The name of the parameter, in upper case.
    name: String,
    value: String,
}

impl ICalendarContentLine {
    /// Reads an unfolded line. `None` if it has no name, no value, or a forbidden character. Some programs treat such a
    /// character as the end of the line, and would read the text after it as another property.
    pub(super) fn parse(number: usize, text: &str) -> Option<Self> {
        if text.contains(|c: char| c.is_ascii_control() && c != '\t') {
            return None;
        }
        let colon = text.find(outside_quotes(':'))?;
        let (head, value) = text.split_at(colon);
        let mut parts = head.split(outside_quotes(';'));
        let name = parts.next()?.to_ascii_uppercase();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return None;
        }
        let parameter = |part: &str| {
            let (name, value) = part.split_once('=')?;
            let value = value.trim_matches('"').to_owned();
            Some(ICalendarParameter { name: name.to_ascii_uppercase(), value })
        };
        let parameters = parts.map(parameter).collect::<Option<Vec<_>>>()?;
        let value = value.strip_prefix(':').unwrap_or_default().trim().to_owned();
        Some(Self { number, name, value, parameters, text: text.to_owned() })
    }

    /// The value of a parameter of the line. `None` if the line does not have the parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|it| it.name == name).map(|it| it.value.as_str())
    }

    /// Whether a parameter occurs twice, so that its value is ambiguous.
    pub(super) fn repeats_a_parameter(&self) -> bool {
        let names: BTreeSet<&str> = self.parameters.iter().map(|it| it.name.as_str()).collect();
        names.len() < self.parameters.len()
    }
}

/// Returns a test for a character outside of quotes. The test must be called for one character after the other.
fn outside_quotes(wanted: char) -> impl FnMut(char) -> bool {
    let mut is_quoted = false;
    move |c| {
        is_quoted ^= c == '"';
        c == wanted && !is_quoted
    }
}

/// Joins the folded lines of a file. Each result has the number of its first line. A line that begins with a blank continues
/// the previous line.
pub(super) fn unfolded(text: &str) -> impl Iterator<Item = (usize, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().zip(1..).peekable();
    std::iter::from_fn(move || {
        let (first, number) = lines.find(|(line, _)| !line.trim().is_empty())?;
        let mut whole = first.trim_end_matches('\r').to_owned();
        while let Some((next, _)) = lines.next_if(|(line, _)| line.starts_with([' ', '\t'])) {
            whole.extend(next.trim_end_matches('\r').chars().skip(1));
        }
        Some((number, whole))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_unfolded_and_keep_their_numbers() {
        let text = "\u{feff}A:1\r\nB:2\r\n 3\r\n\t4\r\n\r\nC:5\n";
        let lines: Vec<(usize, String)> = unfolded(text).collect();
        let of = |number: usize, text: &str| (number, text.to_owned());
        assert_eq!(lines, [of(1, "A:1"), of(2, "B:234"), of(6, "C:5")]);
    }

    #[test]
    fn a_line_has_a_name_parameters_and_a_value() {
        let text = "dtstart;tzid=\"a:b;c\";X=1:20261224T180000 ";
        let line = ICalendarContentLine::parse(7, text).unwrap();
        assert_eq!((line.number, line.text.as_str()), (7, text));
        assert_eq!((line.name.as_str(), line.value.as_str()), ("DTSTART", "20261224T180000"));
        assert_eq!(line.parameter("TZID"), Some("a:b;c"));
        assert_eq!(line.parameter("VALUE"), None);
        assert!(!line.repeats_a_parameter());
        assert!(ICalendarContentLine::parse(1, "A;B=1;C=2;b=3:4").unwrap().repeats_a_parameter());
    }

    #[test]
    fn what_is_no_line_is_not_read() {
        for text in
            ["", "DTSTART", ":1", "A B:1", "A;B:1", "A;B=\"1:2", "A:1\rB:2", "A:1\0", "A\0:1"]
        {
            assert_eq!(ICalendarContentLine::parse(1, text), None, "{text}");
        }
    }
}
