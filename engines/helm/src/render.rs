//! Renders the templates of a chart and its sub-charts.
//!
//! A chart's templates are parsed once ([`ChartTemplates::parse`]). They can be rendered any number of times and from
//! any thread, each time with other values, another release and another environment ([`RenderEnvironment`]). Rendering
//! needs a thread with a stack of [`REQUIRED_STACK_BYTES`].
//!
//! Here: the types, and the order of files. Elsewhere: the data of templates (`render/root_template_data.rs`), the functions
//! that need the chart (`render/functions.rs`), errors in Helm's words (`render/template_error.rs`), and manifests
//! (`crate::manifests`).

mod capabilities;
mod chart_metadata;
mod common_values;
mod error_trace;
mod functions;
mod parallel_files;
mod render_function_context;
mod root_template_data;
mod template_error;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use golang::GoRuntimeValue;
use golang::value::GoMap;
use gotemplate::{
    MissingKeyPolicy, TemplateBudget, TemplateFunctionError, TemplateLimits, TemplateParseError,
    TemplateSet,
};

use crate::chart::Chart;
use crate::parallel_work;
use crate::render_environment::RenderEnvironment;
use crate::warning::HelmWarning;
pub use error_trace::TemplateErrorTraceEntry;
pub use functions::functions;
pub use gotemplate::REQUIRED_STACK_BYTES;
use render_function_context::RenderFunctionContext;

/// The release for which a chart is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseToRender {
    /// The name of the release.
    pub name: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The revision of the release, counted from one.
    pub revision: i64,
    /// Whether an earlier revision exists. Otherwise the release is installed.
    pub is_upgrade: bool,
}

/// The input of a render.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenderInput<'r> {
    /// The chart, with processed dependencies.
    pub(crate) chart: &'r Chart,
    /// The values from [`crate::values::coalesce`].
    pub(crate) values: &'r GoMap,
    pub(crate) release: &'r ReleaseToRender,
}

/// Options for running templates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenderMode {
    /// Whether a missing value is an error.
    pub strict: bool,
    /// Whether the chart is linted: `required` and `fail` only warn, and `lookup` finds nothing.
    pub lint: bool,
}

/// Why a chart could not be rendered. The message is Helm's, and may contain values of the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is not a template.
    #[error("{}", template_error::of_parse_error(.error))]
    Parse {
        /// What is wrong with the file.
        error: TemplateParseError,
        /// The position of the error.
        trail: Vec<TemplateErrorTraceEntry>,
    },
    /// A template failed.
    #[error("{}", template_error::of_failure(.file, .failure))]
    Exec {
        /// The file that was rendered.
        file: String,
        /// What went wrong.
        failure: TemplateFunctionError,
        /// The templates that led to the error, the outermost first.
        trail: Vec<TemplateErrorTraceEntry>,
    },
    /// All templates of the chart together are larger than [`MAX_CODE`].
    #[error(
        "the actions of all templates are longer than {MAX_CODE} bytes; keep large strings outside of braces"
    )]
    TooMuchCode,
    /// An internal error of this program.
    #[error("rendering template failed: {0}")]
    Fault(String),
}

/// How many bytes of template code, between braces, a chart may have. A text for `tpl` has the same limit.
///
/// Differs(helm 4): it has no limit. Parsed code takes about fifty times the memory of its text.
pub const MAX_CODE: usize = 4 << 20;

/// The parsed templates of a chart and its sub-charts. A clone is cheap.
#[derive(Debug, Clone)]
pub struct ChartTemplates {
    set: TemplateSet,
    /// The template files, in the order in which they are parsed and run.
    files: Arc<[ChartTemplateFile]>,
    /// Whether a render has shown that the files have to be rendered one after the other (`parallel_files`).
    is_ordered: Arc<AtomicBool>,
}

#[derive(Debug)]
struct ChartTemplateFile {
    name: String,
    text: Arc<[u8]>,
    /// The index of the chart to which the file belongs, in the order of [`root_template_data::walk`].
    chart: usize,
}

impl ChartTemplateFile {
    /// Whether the file only has definitions.
    fn is_partial(&self) -> bool {
        self.name.rsplit('/').next().is_some_and(|base| base.starts_with('_'))
    }
}

impl ChartTemplates {
    /// Parses the templates of a chart whose dependencies were processed.
    ///
    /// # Errors
    /// The first file that is not a template, in the order in which Helm reads the files.
    pub fn parse(chart: &Chart) -> Result<Self, Error> {
        let files = files(chart);
        let mut code = 0;
        for file in &files {
            code += code_length(&file.text);
        }
        if code > MAX_CODE {
            return Err(Error::TooMuchCode);
        }
        let mut set = functions::empty_set();
        let bytes = files.iter().map(|file| file.text.len()).sum();
        let parsed = parallel_work::map(&files, bytes, |file| set.read(&file.name, &file.text));
        for (file, parsed) in files.iter().zip(parsed) {
            let parsed = parsed.map_err(|error| Error::Parse {
                trail: error_trace::of_parse_error(&error, &file.text),
                error,
            })?;
            set.add(parsed);
        }
        Ok(Self { set, files: files.into(), is_ordered: Arc::default() })
    }

    /// Whether these are the templates of a chart whose dependencies were processed.
    pub fn are_of(&self, chart: &Chart) -> bool {
        let files = files(chart);
        files.len() == self.files.len()
            && files.iter().zip(&*self.files).all(|(a, b)| {
                a.name == b.name
                    && a.chart == b.chart
                    && (Arc::ptr_eq(&a.text, &b.text) || a.text == b.text)
            })
    }

    /// Renders all files, except those whose name begins with `_`. Returns the rendered text of each file, keyed by file name.
    ///
    /// `values` are those of [`crate::values::coalesce`]. Templates may change them.
    ///
    /// # Errors
    /// The first template that fails, in the order in which Helm runs the templates.
    ///
    /// # Assumes
    /// These are the templates of this chart ([`ChartTemplates::are_of`]).
    pub fn render(
        &self,
        chart: &Chart,
        values: &GoMap,
        release: &ReleaseToRender,
        env: &RenderEnvironment,
        mode: RenderMode,
        warnings: &mut Vec<HelmWarning>,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let mut budget = TemplateBudget::with_stop(TemplateLimits::default(), env.stop.clone());
        let input = RenderInput { chart, values, release };
        self.render_within(input, env, mode, &mut budget, warnings)
    }

    /// Like [`ChartTemplates::render`], within the rest of a budget.
    pub(crate) fn render_within(
        &self,
        input: RenderInput<'_>,
        env: &RenderEnvironment,
        mode: RenderMode,
        budget: &mut TemplateBudget,
        warnings: &mut Vec<HelmWarning>,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let host = RenderFunctionContext::new(env.clone(), mode);
        let run = AssertUnwindSafe(|| self.run(input, &host, budget));
        let rendered = catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(Error::Fault(text.unwrap_or("a panic").to_owned()))
        });
        warnings.append(&mut host.into_warnings());
        rendered
    }

    fn failed(&self, file: &ChartTemplateFile, failure: TemplateFunctionError) -> Error {
        let text = |name: &str| {
            let file = self.files.iter().find(|file| file.name == name)?;
            Some(Arc::clone(&file.text))
        };
        Error::Exec { file: file.name.clone(), trail: error_trace::of(&failure, text), failure }
    }

    fn run(
        &self,
        input: RenderInput<'_>,
        host: &RenderFunctionContext,
        budget: &mut TemplateBudget,
    ) -> Result<BTreeMap<String, Vec<u8>>, Error> {
        let missing =
            if host.mode.strict { MissingKeyPolicy::Error } else { MissingKeyPolicy::Zero };
        let set = self.set.clone().with_missing_key(missing);
        let RenderInput { chart, values, release } = input;
        let scopes = root_template_data::all(chart, values, release, &host.env.capabilities);
        let mut rendered = BTreeMap::new();
        let files: Vec<&ChartTemplateFile> =
            self.files.iter().filter(|file| !file.is_partial()).collect();
        // All files of the same chart see the same data of other charts.
        for files in files.chunk_by(|a, b| a.chart == b.chart) {
            let strings =
                parallel_files::render(&set, files, &scopes, host, budget, &self.is_ordered);
            if let Some(strings) = strings {
                let strings = strings.map_err(|(file, failure)| self.failed(file, failure))?;
                let names = files.iter().map(|file| file.name.clone());
                rendered.extend(names.zip(strings));
                continue;
            }
            for file in files {
                let Some(scope) = scopes.get(file.chart) else { continue };
                let shown = scope.shown_to(&file.name, &scope.top);
                let text = rendered_file(&set, file, shown, host, budget)
                    .map_err(|failure| self.failed(file, failure))?;
                rendered.insert(file.name.clone(), text);
            }
        }
        Ok(rendered)
    }
}

impl Error {
    /// The templates that led to the error, the outermost first.
    pub fn trail(&self) -> &[TemplateErrorTraceEntry] {
        match self {
            Self::Parse { trail, .. } | Self::Exec { trail, .. } => trail,
            Self::TooMuchCode | Self::Fault(_) => &[],
        }
    }
}

/// Renders one file.
///
/// Later copies of the text are charged here, because it becomes a manifest and is joined with the others.
fn rendered_file(
    set: &TemplateSet,
    file: &ChartTemplateFile,
    shown: GoRuntimeValue,
    host: &RenderFunctionContext,
    budget: &mut TemplateBudget,
) -> Result<Vec<u8>, TemplateFunctionError> {
    let text = set.run_within(&file.name, shown, host, budget)?;
    budget.meter().steps(text.len() as u64)?;
    budget.meter().bytes(text.len() as u64 * 2)?;
    Ok(without_no_value(text))
}

/// Runs a template that belongs to no chart and has no data.
pub(crate) fn text(name: &str, text: &str, env: &RenderEnvironment) -> Result<String, String> {
    let mut set = TemplateSet::new(name, sprig::functions::<RenderFunctionContext>());
    let template = set.parse(name, text.as_bytes()).map_err(|error| error.to_string())?;
    let host = RenderFunctionContext::new(env.clone(), RenderMode::default());
    let mut budget = TemplateBudget::with_stop(TemplateLimits::default(), env.stop.clone());
    let output = set.run_within(template.name(), GoRuntimeValue::Nil, &host, &mut budget);
    let output = output.map_err(|failure| failure.to_string())?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// The template files of a chart and its sub-charts. Of a library chart, only partials count.
fn files(chart: &Chart) -> Vec<ChartTemplateFile> {
    let mut files = BTreeMap::new();
    for (index, (chart, path)) in root_template_data::walk(chart).into_iter().enumerate() {
        let is_library = chart.metadata.kind.eq_ignore_ascii_case("library");
        for template in &chart.templates {
            let base = template.name.rsplit('/').next().unwrap_or_default();
            if !is_library || base.starts_with('_') {
                let name = format!("{path}/{}", template.name);
                let file = ChartTemplateFile {
                    name: name.clone(),
                    text: Arc::clone(&template.data),
                    chart: index,
                };
                files.insert(name, file);
            }
        }
    }
    let mut files: Vec<ChartTemplateFile> = files.into_values().collect();
    // The deepest files come first, and files of the same depth in reverse order of their names. If a name is defined
    // several times, the last definition counts, so the outermost chart wins.
    files.sort_by_cached_key(|file| Reverse((file.name.matches('/').count(), file.name.clone())));
    files
}

/// How many bytes a byte of template code takes when it is parsed. It is also the approximate number of steps.
pub(crate) const PARSED_BYTES_PER_BYTE: usize = 50;

/// How many bytes of a text are between braces.
pub(crate) fn code_length(text: &[u8]) -> usize {
    let mut length = 0;
    let mut rest = text;
    while let Some(begin) = find(rest, b"{{") {
        rest = &rest[begin + 2..];
        let end = find(rest, b"}}").unwrap_or(rest.len());
        length += end + 4;
        rest = &rest[end..];
    }
    length
}

/// Removes the words `<no value>`, by which Helm hides missing values. It also removes them if an author wrote them.
fn without_no_value(text: Vec<u8>) -> Vec<u8> {
    const NO_VALUE_TEXT: &[u8] = b"<no value>";
    let Some(mut at) = find(&text, NO_VALUE_TEXT) else { return text };
    let mut kept = Vec::with_capacity(text.len());
    let mut rest = &text[..];
    loop {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + NO_VALUE_TEXT.len()..];
        match find(rest, NO_VALUE_TEXT) {
            Some(next) => at = next,
            None => break,
        }
    }
    kept.extend_from_slice(rest);
    kept
}

/// The first position of a word.
fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    let first = *word.first()?;
    let mut from = 0;
    while let Some(at) = memchr::memchr(first, &text[from..]) {
        if text[from + at..].starts_with(word) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}
