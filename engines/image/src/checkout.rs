//! Which files of a repository an update goes over.
//!
//! Here: the path of the update, the names of files, symbolic links, which never lead out. Elsewhere: the files themselves
//! (the sources), what is in them (`rewrite.rs`).

use std::collections::BTreeMap;

/// How many links a path may lead through.
const MAX_LINKS: usize = 255;

/// What a path of a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckoutEntry {
    /// A file, executable or not.
    File,
    /// A symbolic link, with what it points at.
    Link(String),
}

/// The files and links of a repository by their path, such as `apps/web.yaml`. Folders are what paths imply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checkout {
    entries: BTreeMap<String, CheckoutEntry>,
}

/// A file that may have markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedFile {
    /// Its path from where the update begins, which is what changes are listed under.
    pub name: String,
    /// The path in the repository of what is to be read and written: another one behind a link.
    pub path: String,
}

/// The files of an update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SelectedFiles {
    /// In the order in which they are read.
    pub files: Vec<MarkedFile>,
    /// Links that lead out of the repository, by their path. Differs(flux): such a file would be read and written.
    pub outside: Vec<String>,
}

/// The path of an update leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckoutError {
    /// There is nothing at the path.
    #[error("walking path for files: lstat {0}: no such file or directory")]
    NotFound(String),
    /// A file stands where a folder is expected.
    #[error("walking path for files: lstat {0}: not a directory")]
    NotADirectory(String),
    /// The path leads through too many links.
    #[error(
        "failed to secure join manifest path: SecureJoin {0}: too many levels of symbolic links"
    )]
    TooManyLinks(String),
}

/// Where a path leads to.
enum Resolution {
    /// Inside of the repository, whether something is there or not.
    Inside(Vec<String>),
    /// A link leads out.
    Outside,
    /// Links lead to each other.
    Loop,
}

/// How a step that leads out of the repository is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// It stays at the top, as if there were nothing above.
    Stays,
    /// It is not followed.
    Ends,
}

impl Checkout {
    /// A repository with these files and links.
    pub fn new(entries: BTreeMap<String, CheckoutEntry>) -> Self {
        Self { entries }
    }

    /// The files of an update of `spec.update.path`, which may be a file, in the order of Go's `filepath.Walk`. Those count
    /// whose names end in `.yaml` or `.yml`, and those named `Kustomization`.
    ///
    /// Links in the path stay inside of the repository. Links to folders are not followed in what is below, links to files
    /// are.
    ///
    /// # Errors
    /// There is nothing at the path. `root` is the name of the repository's folder in that error.
    pub fn select(&self, root: &str, path: &str) -> Result<SelectedFiles, CheckoutError> {
        let start = match self.resolve(path, Escape::Stays) {
            Resolution::Inside(start) => start,
            Resolution::Outside | Resolution::Loop => {
                return Err(CheckoutError::TooManyLinks(format!("{root}/{path}")));
            }
        };
        let start = start.join("/");
        let mut selection = SelectedFiles::default();
        if self.entries.contains_key(&start) {
            self.add(&start, base_name(&start), &mut selection);
            return Ok(selection);
        }
        let below = if start.is_empty() { String::new() } else { format!("{start}/") };
        let from_there = self.entries.range(below.clone()..).map(|(path, _)| path.as_str());
        let mut found: Vec<&str> = from_there.take_while(|path| path.starts_with(&below)).collect();
        if found.is_empty() && !start.is_empty() {
            let shown = format!("{root}/{start}");
            return Err(match self.is_below_file(&start) {
                true => CheckoutError::NotADirectory(shown),
                false => CheckoutError::NotFound(shown),
            });
        }
        found.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        for path in found {
            self.add(path, path.strip_prefix(&below).unwrap_or(path), &mut selection);
        }
        Ok(selection)
    }

    /// Adds an entry to the files if it has a name and something to be read.
    fn add(&self, path: &str, name: &str, selection: &mut SelectedFiles) {
        if !is_candidate(base_name(path)) {
            return;
        }
        let read = match self.entries.get(path) {
            Some(CheckoutEntry::File) => Resolution::Inside(vec![path.to_owned()]),
            Some(CheckoutEntry::Link(_)) => self.resolve(path, Escape::Ends),
            None => return,
        };
        match read {
            Resolution::Inside(parts) => {
                let read = parts.join("/");
                if self.entries.get(&read) == Some(&CheckoutEntry::File) {
                    selection.files.push(MarkedFile { name: name.to_owned(), path: read });
                }
            }
            Resolution::Outside => selection.outside.push(path.to_owned()),
            Resolution::Loop => {}
        }
    }

    /// Follows a path and the links in it.
    fn resolve(&self, path: &str, escape: Escape) -> Resolution {
        let mut place = Vec::new();
        let mut links = 0;
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        while let Some(part) = left.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    if place.pop().is_none() && escape == Escape::Ends {
                        return Resolution::Outside;
                    }
                    continue;
                }
                _ => place.push(part),
            }
            let Some(CheckoutEntry::Link(target)) = self.entries.get(&place.join("/")) else {
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Resolution::Loop;
            }
            place.pop();
            if target.starts_with('/') {
                if escape == Escape::Ends {
                    return Resolution::Outside;
                }
                place.clear();
            }
            left.extend(target.split('/').rev().map(str::to_owned));
        }
        Resolution::Inside(place)
    }

    fn is_below_file(&self, path: &str) -> bool {
        path.match_indices('/').any(|(at, _)| self.entries.contains_key(&path[..at]))
    }
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

    fn checkout() -> Checkout {
        let file = |path: &str| (path.to_owned(), CheckoutEntry::File);
        let link =
            |path: &str, target: &str| (path.to_owned(), CheckoutEntry::Link(target.to_owned()));
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
        Checkout::new(entries.into())
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

    #[test]
    fn links_that_lead_out_are_named_and_not_followed() {
        let selection = checkout().select("/r", "").unwrap();
        assert_eq!(selection.outside, ["c/out.yaml", "c/root.yaml"]);
        let linked = selection.files.iter().find(|file| file.name == "c/up.yaml").unwrap();
        assert_eq!(linked.path, "a.yaml");
    }
}
