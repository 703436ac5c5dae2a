//! The log lines of windlass itself: selecting them, and formatting them for people.
//!
//! Elsewhere: writing the log (`windlass_serve::logging_setup`).

use clap::ValueEnum;
use objects::clean_line;
use serde_json::{Map, Value};

use windlass_cli_runtime::table::{TerminalScreen, TextColour};

/// How severe a line is, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum LogLevel {
    /// Something failed
    Error,
    /// What was done
    Info,
    /// How it was done
    Debug,
    /// Every step
    Trace,
}

/// The selection of log lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogLineSelection {
    /// The kinds of objects. Empty for all kinds.
    pub(super) kinds: Vec<String>,
    /// The namespace of objects.
    pub(super) namespace: Option<String>,
    /// The name of objects.
    pub(super) name: Option<String>,
    /// The least severe level. More severe lines are included.
    ///
    /// Differs(flux): Flux selects this level alone.
    pub(super) level: Option<LogLevel>,
}

impl LogLineSelection {
    fn is_about_objects(&self) -> bool {
        !self.kinds.is_empty() || self.namespace.is_some() || self.name.is_some()
    }

    /// Parses a log line. A line that is not a log entry, such as a panic, belongs to no object and counts as an error. `None`
    /// if the entry is not selected.
    pub(super) fn entry(&self, line: &str) -> Option<LogEntry> {
        let Some(fields) = fields_of(line) else {
            return (!self.is_about_objects()).then(|| LogEntry::Plain(line.to_owned()));
        };
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let level = LogLevel::from_str(text("level"), true).unwrap_or(LogLevel::Error);
        let is_kind = |kind: &String| kind.eq_ignore_ascii_case(text("controllerKind"));
        let is_wanted = (self.kinds.is_empty() || self.kinds.iter().any(is_kind))
            && self.namespace.as_ref().is_none_or(|it| it == text("namespace"))
            && self.name.as_ref().is_none_or(|it| it == text("name"))
            && self.level.is_none_or(|it| level <= it);
        is_wanted.then_some(LogEntry::Fields(fields))
    }
}

fn fields_of(line: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) if fields.contains_key("msg") => Some(fields),
        _ => None,
    }
}

/// One line in the log of windlass.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LogEntry {
    Fields(Map<String, Value>),
    Plain(String),
}

/// Fields that have a fixed place in the line, or are left out.
const PLACED: [&str; 7] = ["ts", "level", "msg", "controllerKind", "namespace", "name", "logger"];

impl LogEntry {
    /// The entry as one line for people: time, level, object, message, and then all other fields.
    pub(super) fn text(&self, on: TerminalScreen) -> String {
        let fields = match self {
            Self::Plain(line) => return clean_line(line),
            Self::Fields(fields) => fields,
        };
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let level = text("level");
        let colour = (level == "error").then_some(TextColour::Bad);
        let mut out = format!(
            "{} {}",
            clean_line(text("ts")),
            on.paint(&clean_line(&format!("{level:<5}")), colour)
        );
        let kind = text("controllerKind");
        if !kind.is_empty() {
            let parts = [kind, text("namespace"), text("name")];
            let parts: Vec<&str> = parts.into_iter().filter(|it| !it.is_empty()).collect();
            out.push_str(&format!(" {}:", clean_line(&parts.join("/"))));
        }
        out.push_str(&format!(" {}", clean_line(text("msg"))));
        for (key, value) in fields.iter().filter(|(key, _)| !PLACED.contains(&key.as_str())) {
            let value = match value {
                Value::String(text) if !text.contains([' ', '"']) => text.clone(),
                other => other.to_string(),
            };
            out.push_str(&clean_line(&format!(" {key}={value}")));
        }
        out
    }

    /// The log entry as a JSON object. A line that is not a log entry becomes its field `msg`.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Fields(fields) => Value::Object(fields.clone()),
            Self::Plain(line) => serde_json::json!({"msg": line}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"ts":"2026-11-24T12:00:00.000Z","level":"error","msg":"the build failed","controllerKind":"Kustomization","namespace":"apps","name":"web","error":"a.yaml: \u001b[2J","attempt":3,"logger":"windlass"}"#;
    const STARTED: &str =
        r#"{"ts":"2026-11-24T12:00:00.000Z","level":"info","msg":"started","version":"1.0.0"}"#;

    fn is_wanted(selection: &LogLineSelection, line: &str) -> bool {
        selection.entry(line).is_some()
    }

    #[test]
    fn a_line_has_time_level_object_and_message() {
        let text = |on: TerminalScreen| {
            let lines = [LINE, STARTED, "thread 'main' panicked\u{7}"].map(|line| {
                format!("{}\n", LogLineSelection::default().entry(line).unwrap().text(on))
            });
            lines.concat()
        };
        let on = |width| text(TerminalScreen { width, is_coloured: false });
        // Users search log lines with `grep`, so they are not shortened.
        assert_eq!(on(Some(80)), on(None));
        expect_test::expect_file!["../goldens/logs.txt"].assert_eq(&on(None));
        assert!(
            text(TerminalScreen { width: None, is_coloured: true }).contains("\u{1b}[31merror")
        );
    }

    #[test]
    fn lines_are_selected_by_object_and_level() {
        let all = LogLineSelection::default;
        let of = |kind: &str| LogLineSelection { kinds: vec![kind.to_owned()], ..all() };
        assert!(is_wanted(&of("kustomization"), LINE) && !is_wanted(&of("HelmRelease"), LINE));
        assert!(!is_wanted(&of("Kustomization"), STARTED));
        let within =
            |namespace: &str| LogLineSelection { namespace: Some(namespace.into()), ..all() };
        assert!(is_wanted(&within("apps"), LINE) && !is_wanted(&within("other"), LINE));
        let named = |name: &str| LogLineSelection { name: Some(name.into()), ..all() };
        assert!(is_wanted(&named("web"), LINE) && !is_wanted(&named("we"), LINE));
        let level = |level| LogLineSelection { level: Some(level), ..all() };
        assert!(
            is_wanted(&level(LogLevel::Error), LINE) && is_wanted(&level(LogLevel::Debug), LINE)
        );
        assert!(!is_wanted(&level(LogLevel::Error), STARTED));
        // A panic belongs to no object, and no level hides it.
        assert!(
            is_wanted(&level(LogLevel::Error), "panicked") && !is_wanted(&named("web"), "panicked")
        );
    }
}
