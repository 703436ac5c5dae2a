//! Templates of a chart and of the charts in it become strings.
//!
//! A chart's templates are parsed once ([`ChartTemplates::parse`]) and rendered any number of times, from any thread,
//! each time with values, a release and an environment ([`RenderEnvironment`]) of its own.
//! Running needs a thread with a stack of [`REQUIRED_STACK_BYTES`].
//!
//! Here: what is offered, and the order of files. Elsewhere: what templates see (`render/scope.rs`), the functions that
//! need the chart (`render/functions.rs`), errors in Helm's words (`render/template_error.rs`), manifests
//! (`crate::manifests`).

mod capabilities;
mod error_trace;
mod functions;
mod metadata;
mod named_map;
mod parallel_files;
mod render_function_context;
mod scope;
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
pub use error_trace::TemplateTrailStep;
pub use functions::functions;
pub use gotemplate::REQUIRED_STACK_BYTES;
use render_function_context::RenderFunctionContext;

/// The release that is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseToRender {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its number, from one.
    pub revision: i64,
    /// Whether there is an earlier revision; else it is installed.
    pub is_upgrade: bool,
}

/// What is rendered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RenderInput<'r> {
    /// Its dependencies were processed.
    pub(crate) chart: &'r Chart,
    /// Those of [`crate::values::coalesce`].
    pub(crate) values: &'r GoMap,
    pub(crate) release: &'r ReleaseToRender,
}

/// How templates are run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenderMode {
    /// A missing value is an error.
    pub strict: bool,
    /// `required` and `fail` only warn, and `lookup` finds nothing.
    pub lint: bool,
}

/// Why a chart could not be rendered. Its text is Helm's, and may hold values of the user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is not a template.
    #[error("{}", template_error::of_parse_error(.error))]
    Parse {
        /// What is wrong with it.
        error: TemplateParseError,
        /// Where.
        trail: Vec<TemplateTrailStep>,
    },
    /// A template failed.
    #[error("{}", template_error::of_failure(.file, .failure))]
    Exec {
        /// The file that was rendered.
        file: String,
        /// What went wrong.
        failure: TemplateFunctionError,
        /// The templates that led to it, from the outermost.
        trail: Vec<TemplateTrailStep>,
    },
    /// All templates of the chart together are larger than [`MAX_CODE`].
    #[error(
        "the actions of all templates are longer than {MAX_CODE} bytes; keep large strings outside of braces"
    )]
    TooMuchCode,
    /// A fault of this program.
    #[error("rendering template failed: {0}")]
    Fault(String),
}

/// How many bytes may stand between braces in the templates of a chart, and in one text for `tpl`.
///
/// Differs(helm 4): it has no limit. What is parsed takes some fifty times the room of its text.
pub const MAX_CODE: usize = 4 << 20;

/// The templates of a chart and of the charts in it, parsed. A clone is cheap.
#[derive(Debug, Clone)]
pub struct ChartTemplates {
    set: TemplateSet,
    /// In the order in which they are parsed and run.
    files: Arc<[ChartTemplateFile]>,
    /// A render has shown that files have to be rendered one after the other (`parallel_files`).
    is_ordered: Arc<AtomicBool>,
}

#[derive(Debug)]
struct ChartTemplateFile {
    name: String,
    text: Arc<[u8]>,
    /// The place of the chart it belongs to, in the order of [`scope::walk`].
    chart: usize,
}

impl ChartTemplateFile {
    /// Whether it has definitions only.
    fn is_partial(&self) -> bool {
        self.name.rsplit('/').next().is_some_and(|base| base.starts_with('_'))
    }
}

impl ChartTemplates {
    /// Parses the templates of a chart whose dependencies were processed.
    ///
    /// # Errors
    /// At the first file that is not a template, in the order in which Helm reads them.
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

    /// Whether these are the templates of a chart, in the shape that processing its dependencies has given it.
    pub fn are_of(&self, chart: &Chart) -> bool {
        let files = files(chart);
        files.len() == self.files.len()
            && files.iter().zip(&*self.files).all(|(a, b)| {
                a.name == b.name
                    && a.chart == b.chart
                    && (Arc::ptr_eq(&a.text, &b.text) || a.text == b.text)
            })
    }

    /// Renders all files but those whose name begins with `_`, and gives their strings by their names.
    ///
    /// `values` are those of [`crate::values::coalesce`]; templates may change them.
    ///
    /// # Errors
    /// At the first template that fails, in the order in which Helm runs them.
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

    /// [`ChartTemplates::render`] within the rest of a budget.
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
        let scopes = scope::all(chart, values, release, &host.env.capabilities);
        let mut rendered = BTreeMap::new();
        let files: Vec<&ChartTemplateFile> =
            self.files.iter().filter(|file| !file.is_partial()).collect();
        // The scopes of other charts in this one are the same for all files of a run of one chart.
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
    /// The templates that led to the error, from the outermost.
    pub fn trail(&self) -> &[TemplateTrailStep] {
        match self {
            Self::Parse { trail, .. } | Self::Exec { trail, .. } => trail,
            Self::TooMuchCode | Self::Fault(_) => &[],
        }
    }
}

/// The text of one file.
///
/// Later uses of the text count here: it becomes a manifest, and is joined with the others.
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

/// Runs a text that belongs to no chart, with nothing as its data.
pub(crate) fn text(name: &str, text: &str, env: &RenderEnvironment) -> Result<String, String> {
    let mut set = TemplateSet::new(name, sprig::functions::<RenderFunctionContext>());
    let template = set.parse(name, text.as_bytes()).map_err(|error| error.to_string())?;
    let host = RenderFunctionContext::new(env.clone(), RenderMode::default());
    let mut budget = TemplateBudget::with_stop(TemplateLimits::default(), env.stop.clone());
    let output = set.run_within(template.name(), GoRuntimeValue::Nil, &host, &mut budget);
    let output = output.map_err(|failure| failure.to_string())?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// The templates of a chart and of those in it. Of a library chart only partials count.
fn files(chart: &Chart) -> Vec<ChartTemplateFile> {
    let mut files = BTreeMap::new();
    for (index, (chart, path)) in scope::walk(chart).into_iter().enumerate() {
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
    // What is deepest comes first, and of those the last by name, so that the last definition of a name, which
    // counts, is that of the outermost chart.
    files.sort_by_cached_key(|file| Reverse((file.name.matches('/').count(), file.name.clone())));
    files
}

/// How many bytes a byte between braces takes when it is parsed, and about how many steps that takes.
pub(crate) const PARSED_BYTES_PER_BYTE: usize = 50;

/// How many bytes of a text stand between braces.
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

/// Helm's way of hiding values that are missing, which also removes these words where an author wrote them.
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

/// Where a word begins first.
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
