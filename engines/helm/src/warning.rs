//! The warnings that Helm would log, as data.
//!
//! Elsewhere: the code that adds warnings (`values`, `manifests`, `render`), and printing them (the caller).

use std::fmt;

use golang::strconv::{QuotingStyle, quote};

/// The log level of a warning in Helm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum WarningLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl WarningLevel {
    fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// A warning that Helm would log, in its words.
///
/// It may contain values of the user, which may be secrets. [`HelmWarning::line`] and the `Display` text leave them
/// out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelmWarning {
    /// The log level of the warning.
    pub level: WarningLevel,
    message: WarningTextWithSecrets,
    attributes: Vec<(&'static str, WarningTextWithSecrets)>,
}

/// A text of which parts may be secret.
#[derive(Clone, PartialEq, Eq)]
struct WarningTextWithSecrets {
    whole: String,
    /// The text with its values replaced. `None` if it has no values.
    without: Option<String>,
}

/// The text that replaces a value.
const HIDDEN: &str = "****";

impl WarningTextWithSecrets {
    fn shown(&self) -> &str {
        self.without.as_deref().unwrap_or(&self.whole)
    }
}

impl fmt::Debug for WarningTextWithSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown().fmt(f)
    }
}

impl HelmWarning {
    /// A warning without attributes and values.
    pub fn new(level: WarningLevel, message: impl Into<String>) -> Self {
        let message = WarningTextWithSecrets { whole: message.into(), without: None };
        Self { level, message, attributes: Vec::new() }
    }

    /// A warning that shows a value between the two parts of its text.
    pub fn about(level: WarningLevel, before: &str, value: &str, after: &str) -> Self {
        let message = WarningTextWithSecrets {
            whole: format!("{before}{value}{after}"),
            without: Some(format!("{before}{HIDDEN}{after}")),
        };
        Self { level, message, attributes: Vec::new() }
    }

    /// Adds an attribute that does not come from the user's values.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((name, WarningTextWithSecrets { whole: value.into(), without: None }));
        self
    }

    /// Adds an attribute that may contain values of the user.
    #[must_use]
    pub(crate) fn with_value(mut self, name: &'static str, value: impl Into<String>) -> Self {
        let value =
            WarningTextWithSecrets { whole: value.into(), without: Some(HIDDEN.to_owned()) };
        self.attributes.push((name, value));
        self
    }

    /// The line that Helm prints, with its values replaced. It has the form of Go's `log/slog`, without the time.
    pub fn line(&self) -> String {
        self.written(WarningTextWithSecrets::shown)
    }

    /// The line that Helm prints, for users who may see the values.
    pub fn line_with_values(&self) -> String {
        self.written(|text| &text.whole)
    }

    /// The text of the warning, for users who may see the values.
    pub fn text_with_values(&self) -> String {
        self.text(|text| &text.whole)
    }

    fn text(&self, show: fn(&WarningTextWithSecrets) -> &str) -> String {
        let attributes = self.attributes.iter();
        let attributes = attributes.map(|(name, value)| format!(" {name}={}", show(value)));
        std::iter::once(show(&self.message).to_owned()).chain(attributes).collect()
    }

    fn written(&self, show: fn(&WarningTextWithSecrets) -> &str) -> String {
        let mut line = format!("level={} msg={}", self.level.as_str(), quoted(show(&self.message)));
        for (name, value) in &self.attributes {
            line.push(' ');
            line.push_str(name);
            line.push('=');
            line.push_str(&quoted(show(value)));
        }
        line
    }
}

impl fmt::Display for HelmWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(WarningTextWithSecrets::shown))
    }
}

/// A text as `log/slog` writes it. It is quoted if it is empty or could be mistaken for something else.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| match c {
        ' ' | '"' | '=' | '\u{fffd}' => false,
        c if c.is_ascii() => !c.is_ascii_control(),
        c => golang::unicode::is_print(c) && !c.is_whitespace(),
    };
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    String::from_utf8_lossy(&quote(text.as_bytes(), QuotingStyle::Printable)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_quotes_what_could_be_taken_for_something_else() {
        let warning =
            HelmWarning::new(WarningLevel::Info, "skipping unknown hooks").with("hookTypes", "");
        assert_eq!(warning.line(), r#"level=INFO msg="skipping unknown hooks" hookTypes="""#);
        let warning =
            HelmWarning::new(WarningLevel::Warn, "no").with("error", "\"a\" is b").with("é", "x,y");
        assert_eq!(warning.line(), r#"level=WARN msg=no error="\"a\" is b" é=x,y"#);
        assert_eq!(warning.to_string(), r#"no error="a" is b é=x,y"#);
    }

    #[test]
    fn values_are_shown_on_request_only() {
        let before = "cannot overwrite table for a.password (";
        let warning = HelmWarning::about(WarningLevel::Info, before, "map[s3cret:1]", ")");
        let warning = warning.with_value("error", "s3cret");
        for shown in [warning.line(), warning.to_string(), format!("{warning:?}")] {
            assert!(shown.contains("a.password (****)") && !shown.contains("s3cret"), "{shown}");
        }
        assert_eq!(
            warning.text_with_values(),
            "cannot overwrite table for a.password (map[s3cret:1]) error=s3cret"
        );
        assert_eq!(
            warning.line_with_values(),
            r#"level=INFO msg="cannot overwrite table for a.password (map[s3cret:1])" error=s3cret"#
        );
    }
}
