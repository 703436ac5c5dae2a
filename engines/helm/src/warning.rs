//! What Helm would log: warnings as data.
//!
//! Elsewhere: where they arise (`values`, `manifests`, `render`), and printing them (the caller).

use std::fmt;

use golang::strconv::{Quoting, quote};

/// How much a warning matters to Helm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// Something that Helm would log, in its words. Values of the user may be part of it, and those may be secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub message: String,
    /// Names and values behind it.
    pub attributes: Vec<(&'static str, String)>,
}

impl Warning {
    /// A warning without attributes.
    pub fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, message: message.into(), attributes: Vec::new() }
    }

    /// With one more attribute.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// The line that Helm prints: what Go's `log/slog` writes as text, without the time.
    pub fn line(&self) -> String {
        let mut line = format!("level={} msg={}", self.level.as_str(), quoted(&self.message));
        for (name, value) in &self.attributes {
            line.push(' ');
            line.push_str(name);
            line.push('=');
            line.push_str(&quoted(value));
        }
        line
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.attributes.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// A text as `log/slog` writes it: quoted where it is empty or holds what would be taken for something else.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| match c {
        ' ' | '"' | '=' | '\u{fffd}' => false,
        c if c.is_ascii() => !c.is_ascii_control(),
        c => golang::unicode::is_print(c) && !c.is_whitespace(),
    };
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    String::from_utf8_lossy(&quote(text.as_bytes(), Quoting::Printable)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_quotes_what_could_be_taken_for_something_else() {
        let warning = Warning::new(Level::Info, "skipping unknown hooks").with("hookTypes", "");
        assert_eq!(warning.line(), r#"level=INFO msg="skipping unknown hooks" hookTypes="""#);
        let warning = Warning::new(Level::Warn, "no").with("error", "\"a\" is b").with("é", "x,y");
        assert_eq!(warning.line(), r#"level=WARN msg=no error="\"a\" is b" é=x,y"#);
        assert_eq!(warning.to_string(), r#"no error="a" is b é=x,y"#);
    }
}
