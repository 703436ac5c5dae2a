//! `-o json|yaml|name`: writes objects one after the other, in formats for programs.

use clap::ValueEnum;
use objects::Object;
use serde::Serialize;

use super::command_scope::shown;
use windlass_cli_runtime::connection::print;

/// Formats of a command that lists objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ListOutputFormat {
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

/// Prints a report in a format for programs. Returns `None` if the format is for people.
///
/// # Errors
/// The reader of the output has closed it.
pub(super) fn report<T: Serialize>(value: &T, format: ReportFormat) -> anyhow::Result<Option<()>> {
    match format {
        ReportFormat::Text => return Ok(None),
        ReportFormat::Json => print(&format!("{}\n", serde_json::to_string_pretty(value)?))?,
        ReportFormat::Yaml => print(&goyaml::emit_with_escapes(&serde_json::to_value(value)?)?)?,
    }
    Ok(Some(()))
}

/// How several objects are combined in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputShape {
    /// There is one object, because the user named it.
    One,
    /// The objects are the items of a `List`.
    List,
    /// The objects are separate documents that follow one another without an end.
    Stream,
}

/// Writes objects one by one. The complete output is the same as kubectl's.
pub(super) struct ObjectStreamWriter {
    format: ListOutputFormat,
    shape: OutputShape,
    written: usize,
}

impl ObjectStreamWriter {
    pub(super) fn new(format: ListOutputFormat, shape: OutputShape) -> Self {
        Self { format, shape, written: 0 }
    }

    /// Writes an object.
    ///
    /// # Errors
    /// The reader of the output has closed it.
    pub(super) fn object(&mut self, object: Object) -> anyhow::Result<()> {
        print(&self.text(object)?)
    }

    fn text(&mut self, object: Object) -> anyhow::Result<String> {
        let is_first = self.written == 0;
        self.written += 1;
        let is_list = self.shape == OutputShape::List;
        Ok(match self.format {
            ListOutputFormat::Name => format!("{}\n", name(&object)),
            ListOutputFormat::Json if !is_list => {
                format!("{}\n", serde_json::to_string_pretty(&shown(object).into_value())?)
            }
            ListOutputFormat::Json => {
                let begin = if is_first {
                    "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n"
                } else {
                    ",\n"
                };
                format!("{begin}{}", serde_json::to_string(&shown(object).into_value())?)
            }
            ListOutputFormat::Yaml if !is_list => {
                let begin = if is_first { "" } else { "---\n" };
                format!("{begin}{}", goyaml::emit_with_escapes(&shown(object).into_value())?)
            }
            ListOutputFormat::Yaml => {
                let begin = if is_first { "apiVersion: v1\nkind: List\nitems:\n" } else { "" };
                format!("{begin}{}", item(&goyaml::emit_with_escapes(&shown(object).into_value())?))
            }
            ListOutputFormat::Table | ListOutputFormat::Wide => String::new(),
        })
    }

    /// Writes the end of the output.
    ///
    /// # Errors
    /// The reader of the output has closed it.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        let text = match (self.format, self.written) {
            _ if self.shape != OutputShape::List => "",
            (ListOutputFormat::Json, 0) => {
                "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[]}\n"
            }
            (ListOutputFormat::Json, _) => "\n]}\n",
            (ListOutputFormat::Yaml, 0) => "apiVersion: v1\nkind: List\nitems: []\n",
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

/// The name as `kind.group/name`, as kubectl prints it.
pub(super) fn name(object: &Object) -> String {
    let gvk = object.gvk();
    let kind = gvk.kind.to_lowercase();
    match gvk.group.as_str() {
        "" => format!("{kind}/{}", object.name()),
        group => format!("{kind}.{group}/{}", object.name()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(format: ListOutputFormat, shape: OutputShape) -> String {
        let mut writer = ObjectStreamWriter::new(format, shape);
        let object = |name: &str| {
            Object::new(json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name}}))
                .unwrap()
        };
        ["a", "b"].map(|name| writer.text(object(name)).unwrap()).concat()
    }

    #[test]
    fn an_object_with_a_control_character_is_written_with_an_escape() {
        let mut writer = ObjectStreamWriter::new(ListOutputFormat::Yaml, OutputShape::One);
        let metadata = json!({"name": "a", "annotations": {"note": "\u{9b}31m"}});
        let object = json!({"apiVersion": "v1", "kind": "X", "metadata": metadata});
        let text = writer.text(Object::new(object).unwrap()).unwrap();
        assert!(text.contains("    note: \"\\x9B31m\"\n"), "{text}");
    }

    #[test]
    fn what_a_watch_writes_is_read_document_by_document() {
        let json = written(ListOutputFormat::Json, OutputShape::Stream);
        let all = serde_json::Deserializer::from_str(&json).into_iter::<Value>();
        let names = all.map(|it| it.unwrap()["metadata"]["name"].clone()).collect::<Vec<_>>();
        assert_eq!(names, ["a", "b"]);
        let yaml = written(ListOutputFormat::Yaml, OutputShape::Stream);
        let documents: Vec<&str> = yaml.split("---\n").collect();
        assert_eq!(documents.len(), 2);
        assert!(documents.iter().all(|it| it.starts_with("apiVersion: v1\n")), "{yaml}");
    }
}
