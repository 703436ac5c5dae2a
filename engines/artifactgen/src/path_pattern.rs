//! The path pattern: it repeats a generator's artifacts for each folder that it matches.
//!
//! Here: reading the pattern, finding the folders, and rendering names and copies. Elsewhere: building an artifact
//! (`build.rs`).
//!
//! Source of the semantics: source-watcher 2.2 `artifactgenerator_pathpattern.go`.

use std::collections::{BTreeMap, BTreeSet};

use golang::regexp::{self, GoRegexp};
use golang::unicode;
use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use tree::{FileKind, FileTree, RelPath, TreeError};

use crate::build::SourceTrees;
use crate::glob::{BYTES_PER_PATH, STEPS_PER_LISTED_ENTRY};
use crate::object_name_validation::{label_name_problem, label_value_problem, subdomain_problem};
use crate::spec::{CopyOperation, GeneratorSpec, OutputArtifact};
use crate::validate::quoted;

/// The most artifacts of one generator with a pattern of paths. Differs(flux): it has no limit.
pub(crate) const MAX_REQUESTS: usize = 5_000;

/// The most bytes of an inventory: with the spec and the rest of the status it has to be within what etcd accepts, 1.5 MiB.
/// Differs(flux): it has no limit there, and a status that is larger is never written.
const MAX_INVENTORY_BYTES: usize = 1_200_000;

/// How many bytes an entry of the inventory takes without its name: the keys, a digest, and the longest file name and
/// namespace.
const BYTES_PER_INVENTORY_ENTRY: usize = 204;

/// About how many steps it takes to examine a folder, without matching its path.
const STEPS_PER_FOLDER: u64 = 64;

/// About how many bytes a text of a request takes in addition to its characters.
const BYTES_PER_TEXT: u64 = 48;

/// A request to build one artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRequest {
    /// The artifact to build, with rendered names and copies.
    pub artifact: OutputArtifact,
    /// The labels of its ExternalArtifact: the captured parts of the path, in lower case.
    pub labels: BTreeMap<String, String>,
}

/// Why the requests of a generator cannot be made, in Flux's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternError {
    /// The pattern names no source.
    #[error("invalid pathPattern format: {0}")]
    Format(String),
    /// The pattern is invalid, or does not work with these folders.
    #[error("pathPattern {pattern}: {problem}")]
    Pattern {
        /// The pattern, in quotes.
        pattern: String,
        /// Why the pattern cannot be used.
        problem: PathPatternProblem,
    },
    /// A folder of the source cannot be listed.
    #[error("failed to list the directories for pathPattern: {0}")]
    List(#[from] TreeError),
    /// The expansion costs more than the meter allows.
    #[error(transparent)]
    Work(#[from] WorkLimitExceeded),
}

impl PathPatternError {
    /// Whether a retry cannot help, because only another spec or other sources would.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Work(WorkLimitExceeded::Time))
    }
}

/// What is wrong with a path pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathPatternProblem {
    /// No source has the alias in the pattern.
    #[error("source alias {0} not found in local sources")]
    UnknownAlias(String),
    /// A `{` has no `}`. The number is its offset.
    #[error("invalid capture starting at offset {0}: missing closing brace")]
    Unclosed(usize),
    /// A `}` has no `{`. The number is its offset.
    #[error("invalid capture ending at offset {0}: missing opening brace")]
    Unopened(usize),
    /// A capture `{}` has no name.
    #[error("empty capture variable")]
    Empty,
    /// The name of a variable is invalid. It is in quotes.
    #[error("capture variable {0} must be a valid capture name matching [A-Za-z_][A-Za-z0-9_]*")]
    Variable(String),
    /// Two captures have the same variable. It is in quotes.
    #[error("duplicate capture variable {0}")]
    Duplicate(String),
    /// The name of a variable is not a valid label key.
    #[error("capture variable {name} is not a valid Kubernetes label key: {problem}")]
    LabelKey {
        /// The variable, in quotes.
        name: String,
        /// Kubernetes' message about it.
        problem: String,
    },
    /// A captured value is not a valid label value.
    #[error(
        "captured value {value} for variable {name} is not a valid Kubernetes label value: {problem}"
    )]
    LabelValue {
        /// The value, in quotes.
        value: String,
        /// The variable, in quotes.
        name: String,
        /// Kubernetes' message about it.
        problem: String,
    },
    /// The pattern is too large for a regular expression.
    #[error("failed to compile path pattern: {0}")]
    Compile(#[from] regexp::Error),
    /// An artifact uses variables that the pattern does not capture.
    #[error("failed to render artifact {artifact} for match {folder}: {error}")]
    Render {
        /// The name of the artifact, before rendering.
        artifact: String,
        /// The folder.
        folder: RelPath,
        /// Why.
        error: VariableTemplateError,
    },
    /// A rendered name is not a valid name of an object.
    #[error("rendered artifact name {name} is not a valid Kubernetes object name: {problem}")]
    Name {
        /// The name, in quotes.
        name: String,
        /// Kubernetes' message about it.
        problem: String,
    },
    /// Two folders give the same artifact name.
    #[error("directories {first} and {second} both resolve to artifact name {name}")]
    Collision {
        /// The first folder with that name, in quotes.
        first: String,
        /// The other folder, in quotes.
        second: String,
        /// The name, in quotes.
        name: String,
    },
    /// The pattern gives more than 5000 artifacts.
    #[error("it resolves to more than {MAX_REQUESTS} artifacts")]
    TooMany,
    /// The list of artifacts is too large for a status.
    #[error(
        "it resolves to so many artifacts with names so long that a status cannot list them in {MAX_INVENTORY_BYTES} bytes"
    )]
    InventoryTooLarge,
}

/// Why the variables cannot be put into a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid template {template}: {problem}")]
pub struct VariableTemplateError {
    template: String,
    problem: String,
}

/// The artifacts that a generator requests, with the captured variables put into their names and copies.
///
/// # Errors
/// The pattern is invalid or does not fit these folders, or the expansion costs more than the meter allows.
pub fn artifact_requests(
    spec: &GeneratorSpec,
    sources: &SourceTrees<'_>,
    meter: &mut WorkMeter,
) -> Result<Vec<ArtifactRequest>, PathPatternError> {
    let whole = &spec.path_pattern;
    if whole.is_empty() {
        let request = |artifact: &OutputArtifact| ArtifactRequest {
            artifact: artifact.clone(),
            labels: BTreeMap::new(),
        };
        return Ok(spec.artifacts.iter().map(request).collect());
    }
    let parts = whole.strip_prefix('@').and_then(|rest| rest.split_once('/'));
    let (alias, pattern) = parts.ok_or_else(|| PathPatternError::Format(whole.clone()))?;
    let failed = |problem| PathPatternError::Pattern { pattern: quoted(whole), problem };
    let unknown = || failed(PathPatternProblem::UnknownAlias(alias.to_owned()));
    let tree = *sources.get(alias).ok_or_else(unknown)?;
    let matcher = matcher(pattern).map_err(failed)?;
    let mut requests = Vec::new();
    let mut names: BTreeMap<String, RelPath> = BTreeMap::new();
    let mut inventory_bytes = 0;
    for folder in folders(tree, meter)? {
        meter.steps(STEPS_PER_FOLDER + (matcher.work() * folder.as_str().len()) as u64)?;
        let Some(captures) = captures(&matcher, &folder).map_err(failed)? else { continue };
        for artifact in &spec.artifacts {
            let request = rendered(artifact, &captures).map_err(|error| {
                failed(PathPatternProblem::Render {
                    artifact: artifact.name.clone(),
                    folder: folder.clone(),
                    error,
                })
            })?;
            let bytes = request_bytes(&request) + BYTES_PER_PATH + folder.as_str().len() as u64;
            meter.steps(bytes)?;
            meter.bytes(bytes)?;
            let name = &request.artifact.name;
            if let Some(problem) = subdomain_problem(name) {
                return Err(failed(PathPatternProblem::Name { name: quoted(name), problem }));
            }
            if let Some(first) = names.insert(name.clone(), folder.clone()) {
                return Err(failed(PathPatternProblem::Collision {
                    first: quoted(first.as_str()),
                    second: quoted(folder.as_str()),
                    name: quoted(name),
                }));
            }
            if requests.len() >= MAX_REQUESTS {
                return Err(failed(PathPatternProblem::TooMany));
            }
            inventory_bytes += BYTES_PER_INVENTORY_ENTRY + name.len();
            if inventory_bytes > MAX_INVENTORY_BYTES {
                return Err(failed(PathPatternProblem::InventoryTooLarge));
            }
            requests.push(request);
        }
    }
    Ok(requests)
}

/// All folders of a tree except the root, in the order of a walk.
fn folders(tree: &dyn FileTree, meter: &mut WorkMeter) -> Result<Vec<RelPath>, PathPatternError> {
    let mut folders = Vec::new();
    let mut waiting = vec![RelPath::root()];
    while let Some(path) = waiting.pop() {
        let mut children = Vec::new();
        for (name, kind) in tree.list(&path)? {
            meter.steps(STEPS_PER_LISTED_ENTRY)?;
            if kind == FileKind::Dir {
                meter.bytes(BYTES_PER_PATH + (path.as_str().len() + name.len()) as u64)?;
                // The names of a tree lead nowhere else.
                children.extend(path.join(&name));
            }
        }
        waiting.extend(children.into_iter().rev());
        if !path.is_root() {
            folders.push(path);
        }
    }
    Ok(folders)
}

/// The regular expression for a path pattern. Everything except the variables is literal.
fn matcher(pattern: &str) -> Result<GoRegexp, PathPatternProblem> {
    let mut regex = String::from("^");
    let mut names = BTreeSet::new();
    let mut rest = pattern;
    let offset = |rest: &str| pattern.len() - rest.len();
    while let Some(character) = rest.chars().next() {
        match character {
            '{' => {
                let inner = rest.get(1..).unwrap_or_default();
                let Some((name, behind)) = inner.split_once('}') else {
                    return Err(PathPatternProblem::Unclosed(offset(rest)));
                };
                if name.is_empty() {
                    return Err(PathPatternProblem::Empty);
                }
                if !is_variable(name) {
                    return Err(PathPatternProblem::Variable(quoted(name)));
                }
                if !names.insert(name) {
                    return Err(PathPatternProblem::Duplicate(quoted(name)));
                }
                regex += &format!("(?P<{name}>[^/]+)");
                rest = behind;
            }
            '}' => return Err(PathPatternProblem::Unopened(offset(rest))),
            literal => {
                if r"\.+*?()|[]^$".contains(literal) {
                    regex.push('\\');
                }
                regex.push(literal);
                rest = rest.get(literal.len_utf8()..).unwrap_or_default();
            }
        }
    }
    regex.push('$');
    let matcher = GoRegexp::new(&regex)?;
    // The problems are reported in the order of the variables in the pattern.
    for name in matcher.names().iter().skip(1) {
        if let Some(problem) = label_name_problem(name) {
            return Err(PathPatternProblem::LabelKey { name: quoted(name), problem });
        }
    }
    Ok(matcher)
}

/// Whether a text is a valid name of a variable.
fn is_variable(name: &str) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.as_bytes().first().is_some_and(is_first)
        && name.bytes().all(|byte| is_first(&byte) || byte.is_ascii_digit())
}

/// The parts that a pattern captured from the path of a folder.
#[derive(Debug)]
struct PathCaptures {
    /// The captured parts as they are in the path.
    raw: BTreeMap<String, String>,
    /// The captured parts in lower case.
    normalized: BTreeMap<String, String>,
}

fn captures(
    matcher: &GoRegexp,
    folder: &RelPath,
) -> Result<Option<PathCaptures>, PathPatternProblem> {
    let Some(groups) = matcher.find_groups(folder.as_str()) else { return Ok(None) };
    let names = matcher.names().iter().zip(groups).skip(1);
    let raw: BTreeMap<String, String> =
        names.map(|(name, value)| (name.clone(), value.unwrap_or_default().to_owned())).collect();
    let lower = |(name, value): (&String, &String)| (name.clone(), unicode::lower(value));
    let normalized: BTreeMap<String, String> = raw.iter().map(lower).collect();
    for (name, value) in &normalized {
        if let Some(problem) = label_value_problem(value) {
            return Err(PathPatternProblem::LabelValue {
                value: quoted(value),
                name: quoted(name),
                problem,
            });
        }
    }
    Ok(Some(PathCaptures { raw, normalized }))
}

/// Puts the captured parts into an artifact: in lower case into names, and unchanged into paths. Exclude patterns and
/// revisions are not rendered.
fn rendered(
    artifact: &OutputArtifact,
    captures: &PathCaptures,
) -> Result<ArtifactRequest, VariableTemplateError> {
    let copy = |operation: &CopyOperation| {
        Ok(CopyOperation {
            from: render(&operation.from, &captures.raw)?,
            to: render(&operation.to, &captures.raw)?,
            ..operation.clone()
        })
    };
    let name = render(&artifact.name, &captures.normalized)?;
    let copy = artifact.copy.iter().map(copy).collect::<Result<_, VariableTemplateError>>()?;
    Ok(ArtifactRequest {
        artifact: OutputArtifact { name, copy, ..artifact.clone() },
        labels: captures.normalized.clone(),
    })
}

fn render(
    template: &str,
    values: &BTreeMap<String, String>,
) -> Result<String, VariableTemplateError> {
    let mut text = String::new();
    let mut rest = template;
    let failed = |problem| VariableTemplateError { template: quoted(template), problem };
    while let Some(at) = rest.find(['{', '}']) {
        let (literal, brace) = rest.split_at(at);
        text += literal;
        let offset = template.len() - brace.len();
        let Some(inner) = brace.strip_prefix('{') else {
            let problem = format!("capture ending at offset {offset} is missing opening brace");
            return Err(failed(problem));
        };
        let Some((name, behind)) = inner.split_once('}') else {
            let problem = format!("capture starting at offset {offset} is missing closing brace");
            return Err(failed(problem));
        };
        if name.is_empty() {
            return Err(failed("empty capture variable".to_owned()));
        }
        let variable = || format!("capture variable {}", quoted(name));
        if !is_variable(name) {
            let what = "must be a valid capture name matching [A-Za-z_][A-Za-z0-9_]*";
            return Err(failed(format!("{} {what}", variable())));
        }
        let undefined = || failed(format!("{} is not defined by pathPattern", variable()));
        text += values.get(name).ok_or_else(undefined)?;
        rest = behind;
    }
    Ok(text + rest)
}

/// About how many bytes a request takes. Its name counts twice, because collisions are found by a copy of it.
fn request_bytes(request: &ArtifactRequest) -> u64 {
    let ArtifactRequest { artifact, labels } = request;
    let OutputArtifact { name, revision, origin_revision, copy } = artifact;
    let of_copy = |copy: &CopyOperation| {
        let CopyOperation { from, to, exclude, strategy: _ } = copy;
        // The list of patterns itself takes as much as an empty text.
        BYTES_PER_TEXT + string_bytes([from, to]) + string_bytes(exclude)
    };
    let copies: u64 = copy.iter().map(of_copy).sum();
    string_bytes([name, name, revision, origin_revision])
        + string_bytes(labels.keys())
        + string_bytes(labels.values())
        + copies
}

fn string_bytes<'a>(strings: impl IntoIterator<Item = &'a String>) -> u64 {
    strings.into_iter().map(|text| BYTES_PER_TEXT + text.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};
    use tree::MemoryTree;

    use super::*;

    fn expanded(pattern: &str, files: &[&str]) -> Result<Vec<ArtifactRequest>, PathPatternError> {
        let tree = MemoryTree::from_files(files.iter().map(|file| (file, ""))).unwrap();
        let sources = SourceTrees::from([("src", &tree as &dyn FileTree)]);
        let artifact = OutputArtifact { name: "a-{x}".to_owned(), ..OutputArtifact::default() };
        let spec = GeneratorSpec {
            path_pattern: pattern.to_owned(),
            artifacts: vec![artifact],
            ..GeneratorSpec::default()
        };
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        artifact_requests(&spec, &sources, &mut meter)
    }

    fn names(pattern: &str, files: &[&str]) -> Vec<String> {
        let requests = expanded(pattern, files).unwrap();
        requests.into_iter().map(|request| request.artifact.name).collect()
    }

    #[test]
    fn variables_take_parts_of_folders_and_all_else_is_literal() {
        let files = ["apps/Web/f", "apps/api/f", "apps/file", "a.b-c/f", "aXb-c/f", "*/d/f"];
        assert_eq!(names("@src/apps/{x}", &files), ["a-web", "a-api"]);
        assert_eq!(names("@src/a.b-{x}", &files), ["a-c"]);
        assert_eq!(names("@src/*/{x}", &files), ["a-d"]);
        assert_eq!(names("@src/{x}/d{y}", &["p/de/f", "p/d/f"]), ["a-p"]);
        assert!(names("@src/apps/{x}/", &files).is_empty());
    }

    #[test]
    fn what_a_pattern_cannot_be_is_said() {
        for (pattern, wanted) in [
            ("src/{x}", "invalid pathPattern format: src/{x}"),
            ("@src", "invalid pathPattern format: @src"),
            ("@b/{x}", "pathPattern \"@b/{x}\": source alias b not found in local sources"),
            (
                "@src/ü{x",
                "pathPattern \"@src/ü{x\": invalid capture starting at offset 2: missing closing brace",
            ),
            ("@src/{}", "pathPattern \"@src/{}\": empty capture variable"),
            ("@src/{x}{x}", "pathPattern \"@src/{x}{x}\": duplicate capture variable \"x\""),
        ] {
            assert_eq!(expanded(pattern, &["a/f"]).unwrap_err().to_string(), wanted);
        }
        let error = expanded("@src/{_x}", &["a/f"]).unwrap_err();
        assert!(
            error.is_terminal() && error.to_string().contains("not a valid Kubernetes label key")
        );
    }

    #[test]
    fn what_requests_and_folders_keep_is_counted() {
        let files: Vec<String> = (0..100).map(|at| format!("{at}/f")).collect();
        let tree = MemoryTree::from_files(files.iter().map(|file| (file, ""))).unwrap();
        let sources = SourceTrees::from([("src", &tree as &dyn FileTree)]);
        let refused = |copy: Vec<CopyOperation>, bytes: u64| {
            let artifact =
                OutputArtifact { name: "a-{x}".to_owned(), copy, ..OutputArtifact::default() };
            let spec = GeneratorSpec {
                path_pattern: "@src/{x}".to_owned(),
                artifacts: vec![artifact],
                ..GeneratorSpec::default()
            };
            let mut meter =
                WorkMeter::new(WorkAllowance { steps: u64::MAX, bytes }, StopSignal::default());
            let wanted = PathPatternError::Work(WorkLimitExceeded::Bytes(bytes));
            artifact_requests(&spec, &sources, &mut meter).is_err_and(|error| error == wanted)
        };
        assert!(refused(Vec::new(), 100 * BYTES_PER_PATH));
        // Patterns without a character take memory, too.
        let exclude = vec![String::new(); 1_000];
        let copy = CopyOperation { exclude, ..CopyOperation::default() };
        assert!(refused(vec![copy], 100 * 1_000 * BYTES_PER_TEXT));
    }

    #[test]
    fn too_many_folders_are_refused() {
        let files: Vec<String> = (0..=MAX_REQUESTS).map(|it| format!("{it}/f")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let error = expanded("@src/{x}", &files).unwrap_err().to_string();
        assert!(error.ends_with("it resolves to more than 5000 artifacts"), "{error}");
    }

    #[test]
    fn a_list_of_artifacts_that_no_status_can_have_is_refused() {
        let files: Vec<String> = (0..4_000).map(|it| format!("{it:0>63}/f")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        assert_eq!(names("@src/{x}", &files).len(), 4_000);
        let spelled = "n".repeat(60);
        let longer: Vec<String> = files.iter().map(|file| format!("{spelled}/{file}")).collect();
        let tree = MemoryTree::from_files(longer.iter().map(|file| (file, ""))).unwrap();
        let sources = SourceTrees::from([("src", &tree as &dyn FileTree)]);
        let artifact =
            OutputArtifact { name: "{y}-{y}.{x}".to_owned(), ..OutputArtifact::default() };
        let spec = GeneratorSpec {
            path_pattern: "@src/{y}/{x}".to_owned(),
            artifacts: vec![artifact],
            ..GeneratorSpec::default()
        };
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        let error = artifact_requests(&spec, &sources, &mut meter).unwrap_err();
        let is_too_large = matches!(
            &error,
            PathPatternError::Pattern { problem: PathPatternProblem::InventoryTooLarge, .. }
        );
        assert!(is_too_large && error.is_terminal(), "{error}");
    }

    #[test]
    fn an_entry_of_an_inventory_is_not_longer_than_it_counts() {
        let entry = crate::InventoryEntry {
            digest: format!("sha256:{}", "0".repeat(64)),
            filename: format!("{}.tar.gz", u32::MAX),
            name: String::new(),
            namespace: "n".repeat(63),
        };
        let bytes = serde_json::json!([entry, entry]).to_string().len();
        // Without the brackets.
        assert!(bytes - 2 <= 2 * BYTES_PER_INVENTORY_ENTRY, "{bytes}");
    }
}
