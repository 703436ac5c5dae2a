//! Checks that the tree has no files that editors and merges leave behind.

use std::process::Command;

use super::assert_none;
use testbed::root;

/// The ends of the names of such files.
const ENDINGS: [&str; 6] = [".orig", ".rej", ".bak", ".swp", ".tmp", "~"];

/// Folders where charts and overlays have such files on purpose.
const MEANT: [&str; 2] = ["e2e/charts/", "e2e/overlays/"];

fn is_leftover(path: &str) -> bool {
    ENDINGS.iter().any(|ending| path.ends_with(ending))
        && !MEANT.iter().any(|folder| path.starts_with(folder))
}

#[test]
fn no_leftovers_of_editors_and_merges_are_committed() {
    let listed = Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.lines().count() > 500, "the tree is larger than that");
    let faults: Vec<String> =
        listed.lines().filter(|it| is_leftover(it)).map(str::to_owned).collect();
    assert_none(&faults);
}

#[test]
fn leftovers_are_known_by_their_names() {
    for bad in ["src/wish.rs.orig", "a.rej", "b.swp", "notes~"] {
        assert!(is_leftover(bad), "{bad}");
    }
    assert!(!is_leftover("src/original.rs") && !is_leftover("e2e/charts/a/chart/b.bak"));
}
