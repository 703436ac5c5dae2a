//! Sets up logging: the output, the format, and the crates that log.
//!
//! JSON lines have the keys that `flux logs` reads, in a fixed order: `ts`, `level`, `msg`, then `controllerKind`, `namespace`
//! and `name` of the object. All other fields follow in their original order, and `logger` is the last.

use std::fmt;
use std::io::IsTerminal as _;

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, fmt as layer};

use crate::settings::{LogEncoding, LogLevel};

/// The crates of windlass that log. Engines do not log.
const CRATES: [&str; 8] = [
    "windlass",
    "sources",
    "image_controller",
    "notification_controller",
    "source_controller",
    "kustomize_controller",
    "helm_controller",
    "helmfile_controller",
];

/// Starts logging to standard error.
///
/// # Errors
/// Logging was started before.
pub fn start(level: LogLevel, encoding: LogEncoding) -> anyhow::Result<()> {
    let level = match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Error => "error",
    };
    let ours: Vec<String> = CRATES.iter().map(|name| format!("{name}={level}")).collect();
    let filter = EnvFilter::try_new(format!("error,{}", ours.join(",")))?;
    let is_terminal = std::io::stderr().is_terminal();
    let builder =
        layer().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal);
    let started = match encoding {
        LogEncoding::Json => builder.event_format(FluxJsonFormat).try_init(),
        LogEncoding::Console => builder.try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))
}

/// A format with one flat JSON object per line.
struct FluxJsonFormat;

/// The fields of a log event, in their original order.
#[derive(Default)]
struct LogEventFields(Vec<(String, Value)>);

impl LogEventFields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.push((key(field), value.into()));
    }
}

impl Visit for LogEventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }
}

/// The keys that come first in a line, in this order.
const FIRST: [&str; 4] = ["msg", "controllerKind", "namespace", "name"];

/// The position of a key in a line. Keys that are not in [`FIRST`] keep their original order after these.
fn rank(key: &str) -> usize {
    FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len())
}

fn key(field: &Field) -> String {
    match field.name() {
        "message" => "msg".to_owned(),
        // A lint forbids capitals in the name of a Rust field, but Flux's key has one.
        "controller_kind" => "controllerKind".to_owned(),
        name => name.to_owned(),
    }
}

impl<S, N> FormatEvent<S, N> for FluxJsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            // Flux's loggers have no level for warnings.
            Level::WARN | Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        let mut fields = LogEventFields::default();
        event.record(&mut fields);
        fields.0.sort_by_key(|(key, _)| rank(key));
        fields.0.push(("logger".to_owned(), event.metadata().target().into()));
        write!(out, r#"{{"ts":"{:.3}","level":"{level}""#, jiff::Timestamp::now())?;
        for (key, value) in fields.0 {
            write!(out, ",{}:{value}", Value::from(key))?;
        }
        writeln!(out, "}}")
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// The log output of the closure `log` in this encoding.
    fn logged(encoding: LogEncoding, log: impl FnOnce()) -> String {
        let buffer = LogBuffer::default();
        let writer = buffer.clone();
        let builder = layer().with_writer(move || writer.clone()).with_ansi(false);
        match encoding {
            LogEncoding::Json => {
                tracing::subscriber::with_default(
                    builder.event_format(FluxJsonFormat).finish(),
                    log,
                );
            }
            LogEncoding::Console => tracing::subscriber::with_default(builder.finish(), log),
        }
        String::from_utf8(buffer.0.lock().clone()).unwrap()
    }

    fn fail() {
        let name = "app";
        let namespace = "shop";
        tracing::error!(
            error = "no \"route\"",
            attempts = 3,
            name,
            namespace,
            controller_kind = "Kustomization",
            "request failed, retrying"
        );
    }

    #[test]
    fn a_line_gives_time_level_message_and_object_before_everything_else() {
        let line = logged(LogEncoding::Json, fail);
        let read: Value = serde_json::from_str(&line).unwrap();
        let after_time = line.split_once("\",").unwrap();
        assert!(after_time.0.starts_with("{\"ts\":\"20"), "{line}");
        assert_eq!(
            after_time.1,
            "\"level\":\"error\",\"msg\":\"request failed, retrying\",\"controllerKind\":\"Kustomization\",\
             \"namespace\":\"shop\",\"name\":\"app\",\"error\":\"no \\\"route\\\"\",\"attempts\":3,\
             \"logger\":\"windlass_serve::logging_setup::tests\"}\n"
        );
        assert_eq!(read["error"], "no \"route\"");
    }

    #[test]
    fn the_console_encoding_is_a_readable_line() {
        let line = logged(LogEncoding::Console, fail);
        assert!(
            line.contains("ERROR windlass_serve::logging_setup::tests: request failed, retrying"),
            "{line}"
        );
        assert!(line.contains("name=\"app\" namespace=\"shop\""), "{line}");
    }
}
