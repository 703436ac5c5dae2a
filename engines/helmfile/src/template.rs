//! Renders templates of helmfiles, of releases and of values files.
//!
//! Here: rendering, and the data for templates. Elsewhere: functions (`template/functions.rs`), Go's templates (`gotemplate`),
//! sprig (`sprig`).

mod functions;

use std::sync::{Arc, LazyLock};

use golang::GoRuntimeValue;
use golang::time::{GoTime, GoTimeZone};
use golang::value::{GoMap, GoObject, GoType, IntegerKind, ReflectKind, SizedInteger};
use gotemplate::{MissingKeyPolicy, TemplateSet};
use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::helmfile_host_environment::{HelmfileHostEnvironment, RandomFill};
use crate::named_environment::NamedEnvironment;
use crate::state_values_merge::{ListMergeMode, ValuesMap, merge};
use crate::working_directory::WorkingDirectory;
use golang::path::join;

/// The name under which every text is parsed.
const NAME: &str = "stringTemplate";

/// The context that is available to template functions.
pub(crate) struct TemplateFunctionContext {
    helmfile_environment: Arc<HelmfileHostEnvironment>,
    place: WorkingDirectory,
    base: String,
    /// Whether unknown values are empty instead of errors. This is so in the first rendering of a helmfile for versions before
    /// 1.0.
    is_lenient: bool,
}

impl sprig::TemplateEnvironment for TemplateFunctionContext {
    fn now(&self) -> GoTime {
        self.helmfile_environment.now.clone()
    }

    fn local(&self) -> &GoTimeZone {
        &self.helmfile_environment.local
    }

    fn randomness(&self) -> Option<&RandomFill> {
        Some(&*self.helmfile_environment.random)
    }

    // Differs(helmfile 1.8): host names are not looked up, so that a template cannot leak its data through DNS queries.
    fn address_of(&self, _: &str) -> Result<String, String> {
        Ok(String::new())
    }

    fn drew(&self, function: &'static str) {
        self.helmfile_environment.note(function);
    }
}

/// Renders strings in a directory. They can include the `_*.tpl` files of that directory.
pub(crate) struct TemplateStringRenderer {
    host: TemplateFunctionContext,
    data: GoRuntimeValue,
}

impl TemplateStringRenderer {
    /// `base` is the directory to which paths in templates are relative.
    pub(crate) fn new(
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        place: &WorkingDirectory,
        base: &str,
        data: GoRuntimeValue,
    ) -> Self {
        let helmfile_environment = Arc::clone(helmfile_environment);
        let place = place.clone();
        let base = base.to_owned();
        Self {
            host: TemplateFunctionContext { helmfile_environment, place, base, is_lenient: false },
            data,
        }
    }

    /// Treats unknown values as empty instead of as errors.
    pub(crate) fn lenient(mut self) -> Self {
        self.host.is_lenient = true;
        self
    }

    /// Renders the text of a template with the data of this context.
    pub(crate) fn render(&self, text: &[u8]) -> Result<Vec<u8>> {
        // Most fields of releases are not templates.
        if !text.windows(2).any(|two| two == b"{{") {
            return Ok(text.to_vec());
        }
        let mut set = with_helpers(&self.host)?;
        set.parse(NAME, text).map_err(|error| Error::from(error.to_string()))?;
        self.host
            .helmfile_environment
            .spend(|budget| set.run_within(NAME, self.data.clone(), &self.host, budget))
            .map_err(|failure| failure.to_string().into())
    }

    /// Renders a text and returns a string.
    pub(crate) fn render_text(&self, text: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.render(text.as_bytes())?).into_owned())
    }

    /// The content of a file, rendered if its name ends in `.gotmpl`.
    pub(crate) fn file(&self, path: &str) -> Result<Vec<u8>> {
        if path.rsplit('.').next() != Some("gotmpl") {
            let data = self.host.place.read(path);
            return Ok(data
                .map_err(|error| error.at(&format!("failed to load [{path}]")))?
                .to_vec());
        }
        let text = self.host.place.read(path)?;
        self.render(&text)
            .map_err(|error| format!("failed to render [{path}], because of {error}").into())
    }
}

/// All functions, and the templates of `_*.tpl`.
fn with_helpers(host: &TemplateFunctionContext) -> Result<TemplateSet> {
    static EMPTY: LazyLock<TemplateSet> = LazyLock::new(|| {
        TemplateSet::new(NAME, functions::functions()).with_missing_key(MissingKeyPolicy::Error)
    });
    let mut set = EMPTY.clone();
    if host.is_lenient {
        set = set.with_missing_key(MissingKeyPolicy::Zero);
    }
    for path in host.place.glob(&join(&host.base, "_*.tpl"))? {
        let text = host.place.read(&path)?;
        set.parse(NAME, &text)
            .map_err(|error| format!("failed to parse helper template {path}: {error}"))?;
    }
    Ok(set)
}

/// A struct of Go, as templates see it.
#[derive(Debug)]
struct GoStruct {
    name: &'static str,
    fields: Vec<(&'static str, GoRuntimeValue)>,
}

impl GoObject for GoStruct {
    fn type_name(&self) -> &str {
        self.name
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Struct
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        self.fields.clone()
    }
}

/// A plain value in the form that Go has after reading YAML.
pub(crate) fn go(json: &Json) -> GoRuntimeValue {
    match json {
        Json::Null => GoRuntimeValue::Nil,
        Json::Bool(truth) => GoRuntimeValue::Bool(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => GoRuntimeValue::int(int),
            (None, Some(uint)) => {
                GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Uint64, uint.cast_signed()))
            }
            (None, None) => GoRuntimeValue::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => GoRuntimeValue::from(text.as_str()),
        Json::Array(items) => GoRuntimeValue::list(items.iter().map(go)),
        Json::Object(map) => go_map(map),
    }
}

fn go_map(map: &ValuesMap) -> GoRuntimeValue {
    GoRuntimeValue::map(map.iter().map(|(key, value)| (key.as_str(), go(value))))
}

fn environment(environment: &NamedEnvironment, values: &ValuesMap) -> GoRuntimeValue {
    let name = "environment.Environment";
    let fields = vec![
        ("Name", GoRuntimeValue::from(environment.name.as_str())),
        ("KubeContext", GoRuntimeValue::from(environment.kube_context.as_str())),
        ("Values", go_map(values)),
        ("Defaults", go_map(&environment.defaults)),
        ("CLIOverrides", go_map(&environment.overrides)),
    ];
    GoRuntimeValue::object(GoStruct { name, fields })
}

/// The data for templates in helmfiles and in values files of environments.
pub(crate) fn environment_data(
    env: &NamedEnvironment,
    namespace: &str,
    values: &ValuesMap,
) -> GoRuntimeValue {
    let mut own = env.values.clone();
    merge(&mut own, &env.overrides, ListMergeMode::Items);
    let values = go_map(values);
    let fields = vec![
        ("Environment", environment(env, &own)),
        ("Namespace", GoRuntimeValue::from(namespace)),
        ("Values", values.clone()),
        ("StateValues", values),
    ];
    GoRuntimeValue::object(GoStruct { name: "*state.EnvironmentTemplateData", fields })
}

/// The data about a release for templates.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReleaseTemplateData<'r> {
    pub(crate) name: &'r str,
    pub(crate) namespace: &'r str,
    pub(crate) labels: Option<&'r std::collections::BTreeMap<String, String>>,
    pub(crate) chart: &'r str,
    pub(crate) version: &'r str,
    pub(crate) kube_context: &'r str,
}

/// The settings that override those of all releases, for templates.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReleaseOverrides<'s> {
    pub(crate) kube_context: &'s str,
    pub(crate) namespace: &'s str,
    pub(crate) chart: &'s str,
}

/// The data for templates of releases and their values files, as the fields of a struct.
pub(crate) fn release_fields(
    env: &NamedEnvironment,
    values: &ValuesMap,
    release: &ReleaseTemplateData<'_>,
    overrides: &ReleaseOverrides<'_>,
) -> Vec<(&'static str, GoRuntimeValue)> {
    let labels = release.labels.into_iter().flatten();
    let labels =
        labels.map(|(key, value)| (key.as_str().into(), GoRuntimeValue::from(value.as_str())));
    let release = vec![
        ("Name", GoRuntimeValue::from(release.name)),
        ("Namespace", GoRuntimeValue::from(release.namespace)),
        ("Labels", GoRuntimeValue::Map(GoMap::new(GoType::String, labels))),
        ("Chart", GoRuntimeValue::from(release.chart)),
        ("ChartVersion", GoRuntimeValue::from(release.version)),
        ("KubeContext", GoRuntimeValue::from(release.kube_context)),
    ];
    let values = go_map(values);
    vec![
        ("Environment", environment(env, &env.values)),
        (
            "Release",
            GoRuntimeValue::object(GoStruct {
                name: "state.releaseTemplateDataRelease",
                fields: release,
            }),
        ),
        ("Values", values.clone()),
        ("StateValues", values),
        ("KubeContext", GoRuntimeValue::from(overrides.kube_context)),
        ("Namespace", GoRuntimeValue::from(overrides.namespace)),
        ("Chart", GoRuntimeValue::from(overrides.chart)),
    ]
}

/// The data for templates of releases and their values files.
pub(crate) fn release_data(fields: Vec<(&'static str, GoRuntimeValue)>) -> GoRuntimeValue {
    GoRuntimeValue::object(GoStruct { name: "state.releaseTemplateData", fields })
}

/// The data for hooks of a release at an event.
///
/// Differs(helmfile): its map would call a key that is not there `<no value>`.
pub(crate) fn hook_data(
    mut fields: Vec<(&'static str, GoRuntimeValue)>,
    event: &str,
) -> GoRuntimeValue {
    let own = vec![("Name", GoRuntimeValue::from(event)), ("Error", GoRuntimeValue::Nil)];
    fields.push(("Event", GoRuntimeValue::object(GoStruct { name: "event.event", fields: own })));
    fields.push(("HelmfileCommand", GoRuntimeValue::from("apply")));
    GoRuntimeValue::object(GoStruct { name: "hook", fields })
}
