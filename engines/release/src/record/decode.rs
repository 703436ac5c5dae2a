//! Reads a record from the JSON that Helm 3 or 4 stored. Every number is a `float64`, null counts as absent, and unknown fields
//! are skipped.
//!
//! Differs(helm 4): names of fields are compared letter for letter, where Go folds their case.
//! Elsewhere: unpacking the Secret (`crate::storage`), JSON syntax (`golang::json`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::GoRuntimeValue;
use golang::value::GoMap;
use helm::chart::{ChartDependency, ChartMaintainer, ChartMetadata};

use super::{
    GoTimestamp, HookRecord, HookRunRecord, ReleaseRecord, RevisionInfo, RevisionStatus,
    StoredChart, StoredChartLock, StoredFile,
};

/// The most commas and opening brackets in the JSON, because values take much more memory than their text.
const MAX_MARKS: usize = 4 << 20;

/// Why a text is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordDecodeError {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    Json(golang::json::Error),
    /// A field has the wrong type.
    #[error("its field `{field}` is not {wanted}")]
    Shape {
        /// The field.
        field: &'static str,
        /// The expected type.
        wanted: &'static str,
    },
    /// A field is not a time.
    #[error("its field `{field}` is not a time: {problem}")]
    Time {
        /// The field.
        field: &'static str,
        /// Go's text.
        problem: String,
    },
    /// The JSON has too many values.
    #[error("it has more than {MAX_MARKS} values")]
    TooMany,
}

impl ReleaseRecord {
    /// Reads the JSON of a record; its labels stay empty.
    ///
    /// # Errors
    /// The text is not JSON, or a field that Helm reads has another type than Helm expects.
    pub fn from_json(text: &[u8]) -> Result<Self, RecordDecodeError> {
        if is_too_much(text) {
            return Err(RecordDecodeError::TooMany);
        }
        let decoded = golang::json::decode(text).map_err(RecordDecodeError::Json)?;
        if let Some(misfit) = decoded.misfit {
            return Err(RecordDecodeError::Json(misfit));
        }
        let GoRuntimeValue::Map(record) = decoded.value else {
            return Err(RecordDecodeError::Shape { field: "release", wanted: "an object" });
        };
        let record = RecordFields(record);
        Ok(Self {
            name: record.text("name")?,
            namespace: record.text("namespace")?,
            version: record.number("version")?,
            info: record
                .object("info")?
                .map_or_else(|| Ok(RevisionInfo::default()), |it| info(&it))?,
            chart: record.object("chart")?.map(|it| chart(&it)).transpose()?,
            config: record.object("config")?.map(|it| it.0).unwrap_or_default(),
            manifest: record.text("manifest")?,
            hooks: record.list("hooks", hook)?.unwrap_or_default(),
            apply_method: record.text("apply_method")?,
            labels: BTreeMap::new(),
        })
    }
}

/// Whether reading the text would take much more memory than the text itself. Strings in it are skipped.
fn is_too_much(text: &[u8]) -> bool {
    let mut marks = 0usize;
    let mut in_text = false;
    let mut escaped = false;
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => marks += 1,
            _ => {}
        }
    }
    marks > MAX_MARKS
}

/// An object of the record.
struct RecordFields(GoMap);

impl RecordFields {
    fn get(&self, field: &'static str) -> GoRuntimeValue {
        self.0.get(field.as_bytes()).unwrap_or_default()
    }

    fn text(&self, field: &'static str) -> Result<String, RecordDecodeError> {
        text(field, &self.get(field))
    }

    fn strings(&self, field: &'static str) -> Result<Vec<String>, RecordDecodeError> {
        Ok(self.items(field, |it| text(field, it))?.unwrap_or_default())
    }

    fn truth(&self, field: &'static str) -> Result<bool, RecordDecodeError> {
        match self.get(field) {
            GoRuntimeValue::Nil => Ok(false),
            GoRuntimeValue::Bool(truth) => Ok(truth),
            _ => Err(RecordDecodeError::Shape { field, wanted: "true or false" }),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "whole, and in bounds")]
    fn number(&self, field: &'static str) -> Result<i64, RecordDecodeError> {
        match self.get(field) {
            GoRuntimeValue::Nil => Ok(0),
            GoRuntimeValue::Float(float) if float.fract() == 0.0 && float.abs() < 9.0e15 => {
                Ok(float as i64)
            }
            _ => Err(RecordDecodeError::Shape { field, wanted: "an integer" }),
        }
    }

    fn time(&self, field: &'static str) -> Result<Option<GoTimestamp>, RecordDecodeError> {
        GoTimestamp::parse(&self.text(field)?)
            .map_err(|problem| RecordDecodeError::Time { field, problem })
    }

    fn object(&self, field: &'static str) -> Result<Option<Self>, RecordDecodeError> {
        match self.get(field) {
            GoRuntimeValue::Nil => Ok(None),
            GoRuntimeValue::Map(map) => Ok(Some(Self(map))),
            _ => Err(RecordDecodeError::Shape { field, wanted: "an object" }),
        }
    }

    fn bytes(&self, field: &'static str) -> Result<Option<Arc<[u8]>>, RecordDecodeError> {
        match self.get(field) {
            GoRuntimeValue::Nil => Ok(None),
            GoRuntimeValue::String(text) => {
                // Go's decoder skips line ends.
                let text: Vec<u8> =
                    text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
                let bytes = STANDARD.decode(text);
                let wanted = "base64";
                Ok(Some(bytes.map_err(|_| RecordDecodeError::Shape { field, wanted })?.into()))
            }
            _ => Err(RecordDecodeError::Shape { field, wanted: "base64" }),
        }
    }

    fn items<T>(
        &self,
        field: &'static str,
        item: impl Fn(&GoRuntimeValue) -> Result<T, RecordDecodeError>,
    ) -> Result<Option<Vec<T>>, RecordDecodeError> {
        match self.get(field) {
            GoRuntimeValue::Nil => Ok(None),
            GoRuntimeValue::List(list) => {
                list.items().iter().map(item).collect::<Result<_, _>>().map(Some)
            }
            _ => Err(RecordDecodeError::Shape { field, wanted: "a list" }),
        }
    }

    /// A list of objects, without entries that are null.
    fn list<T>(
        &self,
        field: &'static str,
        item: impl Fn(&Self) -> Result<T, RecordDecodeError>,
    ) -> Result<Option<Vec<T>>, RecordDecodeError> {
        let items = self.items(field, |value| match value {
            GoRuntimeValue::Nil => Ok(None),
            GoRuntimeValue::Map(map) => item(&Self(map.clone())).map(Some),
            _ => Err(RecordDecodeError::Shape { field, wanted: "a list of objects" }),
        })?;
        Ok(items.map(|items| items.into_iter().flatten().collect()))
    }
}

fn text(field: &'static str, value: &GoRuntimeValue) -> Result<String, RecordDecodeError> {
    match value {
        GoRuntimeValue::Nil => Ok(String::new()),
        GoRuntimeValue::String(text) => Ok(text.lossy().into_owned()),
        _ => Err(RecordDecodeError::Shape { field, wanted: "a text" }),
    }
}

fn info(info: &RecordFields) -> Result<RevisionInfo, RecordDecodeError> {
    Ok(RevisionInfo {
        first_deployed: info.time("first_deployed")?,
        last_deployed: info.time("last_deployed")?,
        deleted: info.time("deleted")?,
        description: info.text("description")?,
        status: RevisionStatus::parse(&info.text("status")?),
        notes: info.text("notes")?,
        resources: info.object("resources")?.map(|it| it.0),
    })
}

fn chart(chart: &RecordFields) -> Result<StoredChart, RecordDecodeError> {
    Ok(StoredChart {
        metadata: chart.object("metadata")?.map(|it| metadata(&it)).transpose()?,
        lock: chart.object("lock")?.map(|it| lock(&it)).transpose()?,
        templates: chart.list("templates", file)?,
        values: chart.object("values")?.map(|it| it.0),
        schema: chart.bytes("schema")?,
        schema_changed: chart.time("schemamodtime")?,
        files: chart.list("files", file)?,
        changed: chart.time("modtime")?,
    })
}

fn file(file: &RecordFields) -> Result<StoredFile, RecordDecodeError> {
    Ok(StoredFile {
        name: file.text("name")?,
        data: file.bytes("data")?.unwrap_or_default(),
        changed: file.time("modtime")?,
    })
}

fn lock(lock: &RecordFields) -> Result<StoredChartLock, RecordDecodeError> {
    Ok(StoredChartLock {
        generated: lock.time("generated")?,
        digest: lock.text("digest")?,
        dependencies: lock.list("dependencies", dependency)?,
    })
}

fn metadata(metadata: &RecordFields) -> Result<ChartMetadata, RecordDecodeError> {
    let annotations = metadata.object("annotations")?.map(|it| {
        let field = "annotations";
        let entries = it.0.entries().into_iter();
        entries.map(|(key, value)| Ok((key.lossy().into_owned(), text(field, &value)?))).collect()
    });
    Ok(ChartMetadata {
        name: metadata.text("name")?,
        home: metadata.text("home")?,
        sources: metadata.strings("sources")?,
        version: metadata.text("version")?,
        description: metadata.text("description")?,
        keywords: metadata.strings("keywords")?,
        maintainers: metadata.list("maintainers", maintainer)?.unwrap_or_default(),
        icon: metadata.text("icon")?,
        api_version: metadata.text("apiVersion")?,
        condition: metadata.text("condition")?,
        tags: metadata.text("tags")?,
        app_version: metadata.text("appVersion")?,
        deprecated: metadata.truth("deprecated")?,
        annotations: annotations.transpose()?,
        kube_version: metadata.text("kubeVersion")?,
        dependencies: metadata.list("dependencies", dependency)?,
        kind: metadata.text("type")?,
    })
}

fn maintainer(maintainer: &RecordFields) -> Result<ChartMaintainer, RecordDecodeError> {
    Ok(ChartMaintainer {
        name: maintainer.text("name")?,
        email: maintainer.text("email")?,
        url: maintainer.text("url")?,
    })
}

fn dependency(dependency: &RecordFields) -> Result<ChartDependency, RecordDecodeError> {
    Ok(ChartDependency {
        name: dependency.text("name")?,
        version: dependency.text("version")?,
        repository: dependency.text("repository")?,
        condition: dependency.text("condition")?,
        tags: dependency.strings("tags")?,
        import_values: dependency.items("import-values", |it| Ok(it.clone()))?.unwrap_or_default(),
        alias: dependency.text("alias")?,
        enabled: dependency.truth("enabled")?,
    })
}

fn hook(hook: &RecordFields) -> Result<HookRecord, RecordDecodeError> {
    let last_run = hook.object("last_run")?.map(|run| {
        Ok(HookRunRecord {
            started: run.time("started_at")?,
            completed: run.time("completed_at")?,
            phase: run.text("phase")?,
        })
    });
    Ok(HookRecord {
        name: hook.text("name")?,
        kind: hook.text("kind")?,
        path: hook.text("path")?,
        manifest: hook.text("manifest")?,
        events: hook.strings("events")?,
        last_run: last_run.transpose()?.unwrap_or_default(),
        weight: hook.number("weight")?,
        delete_policies: hook.strings("delete_policies")?,
        output_log_policies: hook.strings("output_log_policies")?,
    })
}
