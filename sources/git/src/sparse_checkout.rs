//! Sparse checkouts: selects the folders of a commit that become part of the artifact.
//!
//! Elsewhere: the files themselves (`commit_snapshot`), putting the parts together (`commit_with_submodules`).

use tree::RelPath;

use super::Error;

/// The most folders. A user needs fewer, and each file is compared with each of them.
const MOST_FOLDERS: usize = 1000;

/// The folders that are taken; without any, everything is.
///
/// Parity(flux): a path is taken if its text begins with that of a folder, so `app` takes `app/`, `apps/` and
/// `app.yaml`, and `app/` takes what is in that folder alone. Files above the folders are not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SparseCheckout {
    folders: Vec<SparseFolder>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SparseFolder {
    /// The folder as it was given.
    text: String,
    path: RelPath,
    /// The prefix of the paths of the folder's files.
    prefix: String,
}

impl SparseCheckout {
    /// Cleans paths relative to the root of the repository; `./a//b/../c` is `a/c`.
    ///
    /// Differs(flux): in Flux a path that is not clean, or begins with `/`, takes nothing, and `.` takes what begins
    /// with a dot; here a path is cleaned, one that leaves the repository is refused, and `.` takes everything.
    ///
    /// # Errors
    /// [`Error::InvalidSparse`] for a path that is absolute, leaves the repository or can be none.
    pub fn parse(folders: &[String]) -> Result<Self, Error> {
        let invalid = |folder: &str, reason: String| {
            let folder = folder.chars().filter(|c| !c.is_control()).take(200).collect();
            Error::InvalidSparse { folder, reason }
        };
        if folders.len() > MOST_FOLDERS {
            let reason = format!("there are more than {MOST_FOLDERS} directories");
            return Err(invalid(&folders[MOST_FOLDERS], reason));
        }
        let folder = |text: &String| {
            let path = RelPath::parse(text).map_err(|error| invalid(text, error.to_string()))?;
            let mut prefix = path.as_str().to_owned();
            if !path.is_root() && (text.ends_with('/') || text.ends_with("/.")) {
                prefix.push('/');
            }
            Ok(SparseFolder { text: text.clone(), path, prefix })
        };
        Ok(Self { folders: folders.iter().map(folder).collect::<Result<_, _>>()? })
    }

    /// Whether a file is taken.
    pub(super) fn takes(&self, path: &str) -> bool {
        self.folders.is_empty() || self.folders.iter().any(|it| path.starts_with(&it.prefix))
    }

    /// Whether anything below a folder can be taken.
    pub(super) fn reaches(&self, folder: &str) -> bool {
        let leads_in = |it: &SparseFolder| {
            it.prefix.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        self.takes(folder) || self.folders.iter().any(leads_in)
    }

    /// The first folder that is missing among the paths of a commit, in the user's spelling. `None` if none is missing.
    pub(super) fn missing<'p>(&self, paths: impl Iterator<Item = &'p str>) -> Option<&str> {
        if self.folders.is_empty() {
            return None;
        }
        let mut paths: Vec<&str> = paths.collect();
        paths.sort_unstable();
        let exists = |folder: &SparseFolder| {
            let name = folder.path.as_str();
            let inside = format!("{}/", folder.path.as_str());
            let first = |text: &str| paths.get(paths.partition_point(|path| *path < text)).copied();
            folder.path.is_root()
                || first(name) == Some(name)
                || first(&inside).is_some_and(|path| path.starts_with(&inside))
        };
        self.folders.iter().find(|folder| !exists(folder)).map(|folder| folder.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const PATHS: [&str; 7] =
        [".hidden", "a.yaml", "app-b/c", "app.yaml", "app/a", "app/deep/b", "lib/x"];

    fn sparse(folders: &[&str]) -> Result<SparseCheckout, Error> {
        SparseCheckout::parse(&folders.iter().map(|&folder| folder.to_owned()).collect::<Vec<_>>())
    }

    fn check(folders: &[&str], expected: &Expect) {
        expected.assert_eq(&match sparse(folders) {
            Err(error) => error.to_string(),
            Ok(sparse) => match sparse.missing(PATHS.into_iter()) {
                Some(folder) => format!("no `{folder}`"),
                None => PATHS.map(|it| if sparse.takes(it) { it } else { "-" }).join(" "),
            },
        });
    }

    #[test]
    fn a_path_is_taken_by_how_it_begins() {
        check(&[], &expect![".hidden a.yaml app-b/c app.yaml app/a app/deep/b lib/x"]);
        check(&["app"], &expect!["- - app-b/c app.yaml app/a app/deep/b -"]);
        check(&["app/"], &expect!["- - - - app/a app/deep/b -"]);
        check(&["./app/deep", "lib"], &expect!["- - - - - app/deep/b lib/x"]);
        check(&["app.yaml"], &expect!["- - - app.yaml - - -"]);
    }

    #[test]
    fn paths_are_cleaned_and_stay_in_the_repository() {
        check(&["lib/../app//deep/"], &expect!["- - - - - app/deep/b -"]);
        check(&["."], &expect![".hidden a.yaml app-b/c app.yaml app/a app/deep/b lib/x"]);
        check(&[""], &expect![".hidden a.yaml app-b/c app.yaml app/a app/deep/b lib/x"]);
        check(
            &["../etc"],
            &expect![
                "`../etc` cannot be checked out sparsely: `../etc`, seen from `.`, leaves the tree"
            ],
        );
        check(
            &["app/../../etc"],
            &expect![
                "`app/../../etc` cannot be checked out sparsely: `app/../../etc`, seen from `.`, leaves the tree"
            ],
        );
        check(
            &["/app"],
            &expect![
                "`/app` cannot be checked out sparsely: `/app` is absolute, and only paths inside the tree can be used"
            ],
        );
        check(
            &["app\0"],
            &expect![[r#"`app` cannot be checked out sparsely: "app\0" contains a NUL byte"#]],
        );
        assert!(sparse(&["a"; MOST_FOLDERS]).is_ok());
        assert!(sparse(&["a"; MOST_FOLDERS + 1]).is_err());
    }

    #[test]
    fn a_folder_that_is_not_there_is_named_even_if_others_begin_so() {
        check(&["app", "ap"], &expect!["no `ap`"]);
        check(&["lib/x/y"], &expect!["no `lib/x/y`"]);
    }

    #[test]
    fn a_submodule_is_reached_by_what_lies_in_it() {
        let sparse = sparse(&["vendor/lib/charts"]).unwrap();
        let reached = ["vendor", "vendor/lib", "vendor/lib/charts", "vendor/li", "other"];
        assert_eq!(reached.map(|it| sparse.reaches(it)), [true, true, true, false, false]);
        assert!(SparseCheckout::default().reaches("anything"));
    }
}
