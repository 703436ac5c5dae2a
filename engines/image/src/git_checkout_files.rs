//! Finds the files of a repository that an update may change.
//!
//! Here: the path of the update, names of files, symbolic links, which never lead out of the repository. Elsewhere: reading
//! files (the sources), their content (`marker_value_rewrite.rs`).

use std::collections::BTreeMap;

use golang::work_meter::{StopSignal, WorkAllowance, WorkLimitExceeded, WorkMeter};

/// The allowed cost of finding files: about two seconds, and memory for lists of a million paths.
const SELECTION_ALLOWANCE: WorkAllowance = WorkAllowance { steps: 2_000_000_000, bytes: 256 << 20 };

/// The approximate steps for sorting, for each byte of a path.
const STEPS_PER_SORTED_BYTE: u64 = 16;

/// The approximate memory of a selected file besides its name and path, in bytes.
const BYTES_PER_FILE: u64 = 64;

/// The memory of a path part that is still to be followed, in bytes.
const BYTES_PER_PART: u64 = 16;

/// The most links that are followed for one path.
const MAX_LINKS: usize = 255;

/// The type of an entry in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckoutEntryType {
    /// A file, executable or not.
    File,
    /// A symbolic link with its target.
    Link(String),
}

/// The files and links of a repository by path, such as `apps/web.yaml`. Folders are implied by paths.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckoutFiles {
    entries: BTreeMap<String, CheckoutEntryType>,
}

/// A file that may have markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedFile {
    /// The path relative to the path of the update. Changes are listed under it.
    pub name: String,
    /// The path in the repository to read and write. For a link, it is the path of the link's target.
    pub path: String,
}

/// The files of an update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SelectedFiles {
    /// The files in the order in which they are read.
    pub files: Vec<MarkedFile>,
    /// The paths of links that lead out of the repository. Differs(flux): such a file would be read and written.
    pub outside: Vec<String>,
}

/// The path of an update leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdatePathError {
    /// There is nothing at the path.
    #[error("walking path for files: lstat {0}: no such file or directory")]
    NotFound(String),
    /// A path contains a file where a folder is expected.
    #[error("walking path for files: lstat {0}: not a directory")]
    NotADirectory(String),
    /// The path leads through too many links.
    #[error(
        "failed to secure join manifest path: SecureJoin {0}: too many levels of symbolic links"
    )]
    TooManyLinks(String),
    /// There are too many files, or links that are too long.
    #[error(
        "failed to find the files of spec.update.path: {0}; choose a folder with fewer files or links"
    )]
    Work(#[from] WorkLimitExceeded),
}

/// The target of a path.
enum PathResolution {
    /// Inside of the repository. The target need not exist.
    Inside(String),
    /// A link leads out.
    Outside,
    /// Links lead to each other.
    Loop,
}

/// How a step out of the repository is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathEscapePolicy {
    /// The step has no effect, as at the root of a file system.
    Stays,
    /// The path is not followed any further.
    Ends,
}

impl CheckoutFiles {
    /// A repository with these files and links.
    pub fn new(entries: BTreeMap<String, CheckoutEntryType>) -> Self {
        Self { entries }
    }

    /// The files in `spec.update.path`, which may itself be a file, in the order of Go's `filepath.Walk`. Only files named
    /// `Kustomization`, or with a name that ends in `.yaml` or `.yml`, are included.
    ///
    /// Links in `path` itself stay inside of the repository. Below it, links to files are followed and links to folders are
    /// not.
    ///
    /// # Errors
    /// Nothing exists at the path, or the search takes too long. `root` is the name of the repository's folder in that error.
    pub fn select(&self, root: &str, path: &str) -> Result<SelectedFiles, UpdatePathError> {
        self.select_within(
            root,
            path,
            &mut WorkMeter::new(SELECTION_ALLOWANCE, StopSignal::default()),
        )
    }

    fn select_within(
        &self,
        root: &str,
        path: &str,
        meter: &mut WorkMeter,
    ) -> Result<SelectedFiles, UpdatePathError> {
        let start = match self.resolve(path, PathEscapePolicy::Stays, meter)? {
            PathResolution::Inside(start) => start,
            PathResolution::Outside | PathResolution::Loop => {
                return Err(UpdatePathError::TooManyLinks(format!("{root}/{path}")));
            }
        };
        let mut selection = SelectedFiles::default();
        if self.entries.contains_key(&start) {
            self.add(&start, base_name(&start), &mut selection, meter)?;
            return Ok(selection);
        }
        let below = if start.is_empty() { String::new() } else { format!("{start}/") };
        let from_there = self.entries.range(below.clone()..).map(|(path, _)| path.as_str());
        let mut found: Vec<&str> = Vec::new();
        for path in from_there.take_while(|path| path.starts_with(&below)) {
            meter.steps(STEPS_PER_SORTED_BYTE * (1 + path.len() as u64))?;
            found.push(path);
        }
        if found.is_empty() && !start.is_empty() {
            let shown = format!("{root}/{start}");
            return Err(match self.is_below_file(&start) {
                true => UpdatePathError::NotADirectory(shown),
                false => UpdatePathError::NotFound(shown),
            });
        }
        found.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        for path in found {
            self.add(path, path.strip_prefix(&below).unwrap_or(path), &mut selection, meter)?;
        }
        Ok(selection)
    }

    /// Adds an entry to the files if its name matches and it can be read.
    fn add(
        &self,
        path: &str,
        name: &str,
        selection: &mut SelectedFiles,
        meter: &mut WorkMeter,
    ) -> Result<(), WorkLimitExceeded> {
        if !is_candidate(base_name(path)) {
            return Ok(());
        }
        let read = match self.entries.get(path) {
            Some(CheckoutEntryType::File) => PathResolution::Inside(path.to_owned()),
            Some(CheckoutEntryType::Link(_)) => {
                self.resolve(path, PathEscapePolicy::Ends, meter)?
            }
            None => return Ok(()),
        };
        match read {
            PathResolution::Inside(read) => {
                if self.entries.get(&read) == Some(&CheckoutEntryType::File) {
                    meter.bytes(BYTES_PER_FILE + (name.len() + read.len()) as u64)?;
                    selection.files.push(MarkedFile { name: name.to_owned(), path: read });
                }
            }
            PathResolution::Outside => {
                meter.bytes(BYTES_PER_FILE + path.len() as u64)?;
                selection.outside.push(path.to_owned());
            }
            PathResolution::Loop => {}
        }
        Ok(())
    }

    /// Resolves a path and the links in it.
    fn resolve(
        &self,
        path: &str,
        escape: PathEscapePolicy,
        meter: &mut WorkMeter,
    ) -> Result<PathResolution, WorkLimitExceeded> {
        let left = meter.left().bytes;
        let resolution = self.follow(path, escape, meter)?;
        // The memory for path parts still to follow is given back.
        meter.free(left - meter.left().bytes);
        Ok(resolution)
    }

    fn follow(
        &self,
        path: &str,
        escape: PathEscapePolicy,
        meter: &mut WorkMeter,
    ) -> Result<PathResolution, WorkLimitExceeded> {
        let mut place = String::new();
        let mut links = 0;
        let mut left: Vec<&str> = Vec::new();
        add_parts(path, &mut left, meter)?;
        while let Some(part) = left.pop() {
            meter.steps(1 + (place.len() + part.len()) as u64)?;
            let above = place.len();
            match part {
                "" | "." => continue,
                ".." if place.is_empty() => match escape {
                    PathEscapePolicy::Ends => return Ok(PathResolution::Outside),
                    PathEscapePolicy::Stays => continue,
                },
                ".." => {
                    place.truncate(place.rfind('/').unwrap_or_default());
                    continue;
                }
                part => {
                    place.push_str(if place.is_empty() { "" } else { "/" });
                    place.push_str(part);
                }
            }
            let Some(CheckoutEntryType::Link(target)) = self.entries.get(&place) else {
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Ok(PathResolution::Loop);
            }
            place.truncate(above);
            if target.starts_with('/') {
                if escape == PathEscapePolicy::Ends {
                    return Ok(PathResolution::Outside);
                }
                place.clear();
            }
            add_parts(target, &mut left, meter)?;
        }
        Ok(PathResolution::Inside(place))
    }

    fn is_below_file(&self, path: &str) -> bool {
        path.match_indices('/').any(|(at, _)| self.entries.contains_key(&path[..at]))
    }
}

/// Adds the parts of a path in front of the parts that are still to be followed.
fn add_parts<'p>(
    path: &'p str,
    left: &mut Vec<&'p str>,
    meter: &mut WorkMeter,
) -> Result<(), WorkLimitExceeded> {
    meter.steps(path.len() as u64)?;
    meter.bytes(BYTES_PER_PART * (1 + path.matches('/').count() as u64))?;
    left.extend(path.split('/').rev());
    Ok(())
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a file of that name is read.
fn is_candidate(name: &str) -> bool {
    name.ends_with(".yaml") || name.ends_with(".yml") || name == "Kustomization"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkout() -> CheckoutFiles {
        let file = |path: &str| (path.to_owned(), CheckoutEntryType::File);
        let link = |path: &str, target: &str| {
            (path.to_owned(), CheckoutEntryType::Link(target.to_owned()))
        };
        let entries = [
            file("a.yaml"),
            file("a/z.yaml"),
            file("a-b.yml"),
            file("a/Kustomization"),
            file("a/x.YAML"),
            file("c/text"),
            link("c/text.yaml", "text"),
            link("c/up.yaml", "../a.yaml"),
            link("c/out.yaml", "../../etc/a.yaml"),
            link("c/root.yaml", "/a.yaml"),
            link("c/loop.yaml", "loop.yaml"),
            link("c/none.yaml", "nothing"),
            link("c/folder.yaml", "../a"),
            link("d", "/a"),
        ];
        CheckoutFiles::new(entries.into())
    }

    fn names(path: &str) -> Vec<String> {
        let selection = checkout().select("/r", path).unwrap();
        selection.files.into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn files_come_folder_by_folder_in_the_order_of_their_names() {
        let below =
            ["a/Kustomization", "a/z.yaml", "a-b.yml", "a.yaml", "c/text.yaml", "c/up.yaml"];
        for path in ["", ".", "..", "a/../.."] {
            assert_eq!(names(path), below, "{path}");
        }
        assert_eq!(names("./a/"), ["Kustomization", "z.yaml"]);
        assert_eq!((names("a/z.yaml"), names("c/text")), (vec!["z.yaml".to_owned()], Vec::new()));
    }

    #[test]
    fn links_in_the_path_of_an_update_stay_inside() {
        assert_eq!(names("d"), ["Kustomization", "z.yaml"]);
        let selection = checkout().select("/r", "c/up.yaml").unwrap();
        assert_eq!(selection.files[0].name, "a.yaml");
        let error = |path: &str| checkout().select("/r", path).unwrap_err().to_string();
        assert_eq!(
            error("none"),
            "walking path for files: lstat /r/none: no such file or directory"
        );
        assert_eq!(error("a.yaml/x"), "walking path for files: lstat /r/a.yaml/x: not a directory");
        assert!(error("c/loop.yaml").ends_with("too many levels of symbolic links"));
    }

    fn costs_too_much(entries: &[(&str, &str)], allowance: WorkAllowance) -> bool {
        let link = |(path, target): &(&str, &str)| {
            ((*path).to_owned(), CheckoutEntryType::Link((*target).to_owned()))
        };
        let checkout = CheckoutFiles::new(entries.iter().map(link).collect());
        let mut meter = WorkMeter::new(allowance, StopSignal::default());
        let selection = checkout.select_within("/r", "", &mut meter);
        matches!(selection, Err(UpdatePathError::Work(_)))
    }

    #[test]
    fn links_that_multiply_the_work_end_it() {
        let few = WorkAllowance { steps: 100_000, bytes: 100_000 };
        let around = |times: usize, end: &str| "x/../".repeat(times) + end;
        assert!(!costs_too_much(&[("a.yaml", &around(10, "none"))], few));
        // Each of 255 times the whole way is gone.
        assert!(costs_too_much(&[("a.yaml", &around(1_000, "a.yaml"))], few));
        // What is left to be followed grows with each link.
        let bytes = WorkAllowance { steps: u64::MAX, bytes: 100_000 };
        let growing = format!("a.yaml{}", "/x".repeat(1_000));
        assert!(costs_too_much(&[("a.yaml", &growing)], bytes));
        // Nothing of it stays: many links cost no more memory than one.
        let target = around(1_000, "none");
        let names: Vec<String> = (0..100).map(|at| format!("{at}.yaml")).collect();
        let many: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), target.as_str())).collect();
        assert!(!costs_too_much(&many, bytes));
    }

    #[test]
    fn files_that_are_selected_are_counted() {
        let entries = (0..100).map(|at| (format!("{at}.yaml"), CheckoutEntryType::File));
        let checkout = CheckoutFiles::new(entries.collect());
        let selected = |bytes: u64| {
            let allowance = WorkAllowance { steps: u64::MAX, bytes };
            checkout.select_within("/r", "", &mut WorkMeter::new(allowance, StopSignal::default()))
        };
        let exceeded = UpdatePathError::Work(WorkLimitExceeded::Bytes(100 * BYTES_PER_FILE));
        assert_eq!(selected(100 * BYTES_PER_FILE), Err(exceeded));
        assert_eq!(selected(10_000 + 100 * BYTES_PER_FILE).unwrap().files.len(), 100);
    }

    #[test]
    fn links_that_lead_out_are_named_and_not_followed() {
        let selection = checkout().select("/r", "").unwrap();
        assert_eq!(selection.outside, ["c/out.yaml", "c/root.yaml"]);
        let linked = selection.files.iter().find(|file| file.name == "c/up.yaml").unwrap();
        assert_eq!(linked.path, "a.yaml");
    }
}
