//! Log lines: where they go, what they look like, which crates they come from.
//!
//! JSON lines carry the keys that `flux logs` reads: `level`, `ts`, `msg`, `controllerKind`, `name`, `namespace`, `error`.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, fmt as layer};

use crate::settings::{LogEncoding, LogLevel};

/// Our crates that log; engines do not.
const CRATES: [&str; 2] = ["windlass", "sources"];

/// Starts logging to standard error.
///
/// # Errors
/// When logging was started before.
pub(crate) fn start(level: LogLevel, encoding: LogEncoding) -> anyhow::Result<()> {
    let level = match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Error => "error",
    };
    let ours: Vec<String> = CRATES.iter().map(|name| format!("{name}={level}")).collect();
    let filter = EnvFilter::try_new(format!("error,{}", ours.join(",")))?;
    let builder = layer().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match encoding {
        LogEncoding::Json => builder.event_format(FluxJson).try_init(),
        LogEncoding::Console => builder.try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))
}

/// One flat JSON object a line.
struct FluxJson;

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(key(field), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(key(field), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(key(field), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(key(field), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(key(field), format!("{value:?}").into());
    }
}

fn key(field: &Field) -> String {
    match field.name() {
        "message" => "msg".to_owned(),
        // A Rust field cannot hold capitals without a lint, Flux's key does.
        "controller_kind" => "controllerKind".to_owned(),
        name => name.to_owned(),
    }
}

impl<S, N> FormatEvent<S, N> for FluxJson
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
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            // Flux's loggers know no warning.
            Level::WARN | Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        fields.0.insert("level".into(), level.into());
        fields.0.insert("ts".into(), format!("{:.3}", jiff::Timestamp::now()).into());
        fields.0.insert("logger".into(), event.metadata().target().into());
        writeln!(out, "{}", Value::Object(fields.0))
    }
}
