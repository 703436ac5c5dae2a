//! `-o json|yaml|name`: objects for machines, written one after the other.

use clap::ValueEnum;
use objects::Object;
use serde::Serialize;

use super::connection::print;
use super::place::shown;

/// Formats of a command that lists objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A table
    Table,
    /// A table with more columns
    Wide,
    /// JSON: one object, or a List
    Json,
    /// YAML: one object, or a List
    Yaml,
    /// Names, such as kustomization.kustomize.toolkit.fluxcd.io/app
    Name,
}

/// Formats of a command with a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// For people
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Prints a report for machines; `None` if it is for people.
///
/// # Errors
/// The reader is gone.
pub(super) fn report<T: Serialize>(value: &T, format: ReportFormat) -> anyhow::Result<Option<()>> {
    match format {
        ReportFormat::Text => return Ok(None),
        ReportFormat::Json => print(&format!("{}\n", serde_json::to_string_pretty(value)?))?,
        ReportFormat::Yaml => print(&goyaml::emit(&serde_json::to_value(value)?)?)?,
    }
    Ok(Some(()))
}

/// Writes objects one by one, as kubectl writes them together.
pub(super) struct Writer {
    format: Format,
    /// Whether there is one object, by its name.
    is_single: bool,
    written: usize,
}

impl Writer {
    pub(super) fn new(format: Format, is_single: bool) -> Self {
        Self { format, is_single, written: 0 }
    }

    /// # Errors
    /// The reader is gone.
    pub(super) fn object(&mut self, object: Object) -> anyhow::Result<()> {
        let is_first = self.written == 0;
        self.written += 1;
        let text = match self.format {
            Format::Name => format!("{}\n", name(&object)),
            Format::Json if self.is_single => {
                format!("{}\n", serde_json::to_string_pretty(&shown(object).into_value())?)
            }
            Format::Json => {
                let begin = if is_first {
                    "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n"
                } else {
                    ",\n"
                };
                format!("{begin}{}", serde_json::to_string(&shown(object).into_value())?)
            }
            Format::Yaml if self.is_single => goyaml::emit(&shown(object).into_value())?,
            Format::Yaml => {
                let begin = if is_first { "apiVersion: v1\nkind: List\nitems:\n" } else { "" };
                format!("{begin}{}", item(&goyaml::emit(&shown(object).into_value())?))
            }
            Format::Table | Format::Wide => String::new(),
        };
        print(&text)
    }

    /// # Errors
    /// The reader is gone.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        let text = match (self.format, self.written) {
            (Format::Json, _) if self.is_single => "",
            (Format::Json, 0) => "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[]}\n",
            (Format::Json, _) => "\n]}\n",
            (Format::Yaml, 0) if !self.is_single => "apiVersion: v1\nkind: List\nitems: []\n",
            _ => "",
        };
        print(text)
    }
}

/// A document as an item of a list.
fn item(document: &str) -> String {
    let mut out = String::with_capacity(document.len() + 64);
    for (at, line) in document.lines().enumerate() {
        out.push_str(if at == 0 { "- " } else { "  " });
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// `kind.group/name`, as kubectl prints it.
pub(super) fn name(object: &Object) -> String {
    let gvk = object.gvk();
    let kind = gvk.kind.to_lowercase();
    match gvk.group.as_str() {
        "" => format!("{kind}/{}", object.name()),
        group => format!("{kind}.{group}/{}", object.name()),
    }
}
