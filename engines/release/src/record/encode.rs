//! Writes a record like Go's `encoding/json`: the order of fields, omitted fields, escapes, numbers.
//!
//! Elsewhere: reading it (`decode.rs`), which parts of it are hashed (`crate::release_snapshot`).

use golang::GoRuntimeValue;
use golang::json::{JsonEncodeError, JsonLayout, encode};
use golang::value::{GoMap, GoString};
use helm::chart::{ChartDependency, ChartMaintainer, ChartMetadata};

use super::{
    GoTimestamp, HookRecord, ReleaseRecord, RevisionInfo, StoredChart, StoredChartLock, StoredFile,
};

/// The longest JSON of a record, in bytes. Differs(helm 4): its limit is what a Secret holds.
pub(super) const MAX_JSON: usize = 64 << 20;

/// Go's zero time, where it is not left out.
const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// A JSON object whose fields are written in the order in which they are added.
pub(crate) struct OrderedJsonFields(String);

impl OrderedJsonFields {
    pub(crate) fn new() -> Self {
        Self("{".to_owned())
    }

    /// Adds a field whose value is already JSON.
    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        // No name of a field has a character that JSON escapes.
        self.0.extend(["\"", name, "\":", json]);
    }

    pub(crate) fn value(
        &mut self,
        name: &str,
        value: &GoRuntimeValue,
    ) -> Result<(), JsonEncodeError> {
        self.raw(name, &go_json(value)?);
        Ok(())
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) -> Result<(), JsonEncodeError> {
        self.value(name, &GoRuntimeValue::string(text))
    }

    /// Writes a text field of the record, unless the text is empty: Go's `omitempty`.
    pub(crate) fn some_text(&mut self, name: &str, text: &str) -> Result<(), JsonEncodeError> {
        if text.is_empty() { Ok(()) } else { self.text(name, text) }
    }

    /// Writes a list of strings as a field of the record, unless the list is empty: Go's `omitempty`.
    pub(crate) fn some_strings(
        &mut self,
        name: &str,
        strings: &[String],
    ) -> Result<(), JsonEncodeError> {
        if strings.is_empty() {
            return Ok(());
        }
        self.value(name, &GoRuntimeValue::strings(strings.iter().map(String::as_str)))
    }

    /// Writes a time as a field of the record, unless there is none: Go's `omitzero`.
    fn some_time(&mut self, name: &str, time: Option<&GoTimestamp>) -> Result<(), JsonEncodeError> {
        time.map_or(Ok(()), |time| self.text(name, &time.text()))
    }

    fn time(&mut self, name: &str, time: Option<&GoTimestamp>) -> Result<(), JsonEncodeError> {
        self.text(name, &time.map_or_else(|| ZERO_TIME.to_owned(), GoTimestamp::text))
    }

    pub(crate) fn number(&mut self, name: &str, number: i64) {
        self.raw(name, &number.to_string());
    }

    /// Writes a number as a field of the record, unless it is 0: Go's `omitempty`.
    fn some_number(&mut self, name: &str, number: i64) {
        if number != 0 {
            self.number(name, number);
        }
    }

    /// Writes a boolean as a field of the record, unless it is false: Go's `omitempty`.
    fn some_truth(&mut self, name: &str, truth: bool) {
        if truth {
            self.raw(name, "true");
        }
    }

    pub(crate) fn end(mut self) -> Result<String, JsonEncodeError> {
        self.0.push('}');
        if self.0.len() > MAX_JSON { Err(JsonEncodeError::TooLong(MAX_JSON)) } else { Ok(self.0) }
    }
}

fn go_json(value: &GoRuntimeValue) -> Result<String, JsonEncodeError> {
    encode(value, JsonLayout::default(), MAX_JSON)
}

/// A list, or `null` where Go has none.
pub(crate) fn list<T>(
    items: Option<&[T]>,
    item: impl Fn(&T) -> Result<String, JsonEncodeError>,
) -> Result<String, JsonEncodeError> {
    let Some(items) = items else { return Ok("null".to_owned()) };
    let strings = items.iter().map(item).collect::<Result<Vec<_>, _>>()?;
    let text = format!("[{}]", strings.join(","));
    if text.len() > MAX_JSON { Err(JsonEncodeError::TooLong(MAX_JSON)) } else { Ok(text) }
}

fn table(values: Option<&GoMap>) -> Result<String, JsonEncodeError> {
    values.map_or(Ok("null".to_owned()), |values| go_json(&GoRuntimeValue::Map(values.clone())))
}

impl ReleaseRecord {
    /// The JSON that Helm stores, without its labels.
    ///
    /// # Errors
    /// A value that JSON has not, or more than 64 MiB.
    pub fn to_json(&self) -> Result<String, JsonEncodeError> {
        let mut fields = OrderedJsonFields::new();
        fields.some_text("name", &self.name)?;
        fields.raw("info", &info(&self.info)?);
        if let Some(it) = &self.chart {
            fields.raw("chart", &chart(it)?);
        }
        if !self.config.is_empty() {
            fields.value("config", &GoRuntimeValue::Map(self.config.clone()))?;
        }
        fields.some_text("manifest", &self.manifest)?;
        if !self.hooks.is_empty() {
            fields.raw("hooks", &list(Some(&self.hooks), hook)?);
        }
        fields.some_number("version", self.version);
        fields.some_text("namespace", &self.namespace)?;
        fields.some_text("apply_method", &self.apply_method)?;
        fields.end()
    }
}

pub(crate) fn info(info: &RevisionInfo) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    fields.some_time("first_deployed", info.first_deployed.as_ref())?;
    fields.some_time("last_deployed", info.last_deployed.as_ref())?;
    fields.some_time("deleted", info.deleted.as_ref())?;
    fields.some_text("description", &info.description)?;
    fields.some_text("status", info.status.as_str())?;
    fields.some_text("notes", &info.notes)?;
    if let Some(resources) = info.resources.as_ref().filter(|it| !it.is_empty()) {
        fields.value("resources", &GoRuntimeValue::Map(resources.clone()))?;
    }
    fields.end()
}

fn chart(chart: &StoredChart) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    let null = || Ok("null".to_owned());
    fields.raw("metadata", &chart.metadata.as_ref().map_or_else(null, metadata)?);
    fields.raw("lock", &chart.lock.as_ref().map_or_else(null, lock)?);
    fields.raw("templates", &list(chart.templates.as_deref(), file)?);
    fields.raw("values", &table(chart.values.as_ref())?);
    let schema = chart.schema.as_ref();
    let schema = schema.map_or(GoRuntimeValue::Nil, |schema| {
        GoRuntimeValue::Bytes(GoString::from(schema.as_ref()))
    });
    fields.value("schema", &schema)?;
    fields.time("schemamodtime", chart.schema_changed.as_ref())?;
    fields.raw("files", &list(chart.files.as_deref(), file)?);
    fields.some_time("modtime", chart.changed.as_ref())?;
    fields.end()
}

fn file(file: &StoredFile) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    fields.text("name", &file.name)?;
    fields.value("data", &GoRuntimeValue::Bytes(GoString::from(file.data.as_ref())))?;
    fields.some_time("modtime", file.changed.as_ref())?;
    fields.end()
}

fn lock(lock: &StoredChartLock) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    fields.time("generated", lock.generated.as_ref())?;
    fields.text("digest", &lock.digest)?;
    fields.raw("dependencies", &list(lock.dependencies.as_deref(), dependency)?);
    fields.end()
}

pub(crate) fn metadata(metadata: &ChartMetadata) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    fields.some_text("name", &metadata.name)?;
    fields.some_text("home", &metadata.home)?;
    fields.some_strings("sources", &metadata.sources)?;
    fields.some_text("version", &metadata.version)?;
    fields.some_text("description", &metadata.description)?;
    fields.some_strings("keywords", &metadata.keywords)?;
    if !metadata.maintainers.is_empty() {
        fields.raw("maintainers", &list(Some(&metadata.maintainers), maintainer)?);
    }
    fields.some_text("icon", &metadata.icon)?;
    fields.some_text("apiVersion", &metadata.api_version)?;
    fields.some_text("condition", &metadata.condition)?;
    fields.some_text("tags", &metadata.tags)?;
    fields.some_text("appVersion", &metadata.app_version)?;
    fields.some_truth("deprecated", metadata.deprecated);
    if let Some(annotations) = metadata.annotations.as_ref().filter(|it| !it.is_empty()) {
        let entries = annotations.iter().map(|(key, value)| {
            let value = GoRuntimeValue::string(value.as_str());
            (GoString::from(key.as_str()), value)
        });
        fields.value("annotations", &GoRuntimeValue::map(entries))?;
    }
    fields.some_text("kubeVersion", &metadata.kube_version)?;
    if let Some(dependencies) = metadata.dependencies.as_ref().filter(|it| !it.is_empty()) {
        fields.raw("dependencies", &list(Some(dependencies), dependency)?);
    }
    fields.some_text("type", &metadata.kind)?;
    fields.end()
}

fn maintainer(maintainer: &ChartMaintainer) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    fields.some_text("name", &maintainer.name)?;
    fields.some_text("email", &maintainer.email)?;
    fields.some_text("url", &maintainer.url)?;
    fields.end()
}

fn dependency(dependency: &ChartDependency) -> Result<String, JsonEncodeError> {
    let mut fields = OrderedJsonFields::new();
    fields.text("name", &dependency.name)?;
    fields.some_text("version", &dependency.version)?;
    fields.text("repository", &dependency.repository)?;
    fields.some_text("condition", &dependency.condition)?;
    fields.some_strings("tags", &dependency.tags)?;
    fields.some_truth("enabled", dependency.enabled);
    if !dependency.import_values.is_empty() {
        fields.value(
            "import-values",
            &GoRuntimeValue::list(dependency.import_values.iter().cloned()),
        )?;
    }
    fields.some_text("alias", &dependency.alias)?;
    fields.end()
}

pub(crate) fn hook(hook: &HookRecord) -> Result<String, JsonEncodeError> {
    let mut run = OrderedJsonFields::new();
    run.some_time("started_at", hook.last_run.started.as_ref())?;
    run.some_time("completed_at", hook.last_run.completed.as_ref())?;
    run.text("phase", &hook.last_run.phase)?;
    let mut fields = OrderedJsonFields::new();
    fields.some_text("name", &hook.name)?;
    fields.some_text("kind", &hook.kind)?;
    fields.some_text("path", &hook.path)?;
    fields.some_text("manifest", &hook.manifest)?;
    fields.some_strings("events", &hook.events)?;
    fields.raw("last_run", &run.end()?);
    fields.some_number("weight", hook.weight);
    fields.some_strings("delete_policies", &hook.delete_policies)?;
    fields.some_strings("output_log_policies", &hook.output_log_policies)?;
    fields.end()
}
