//! Checks which crate uses which by the table in ARCHITECTURE.md.
//!
//! The table is the rule, and it may not name a use that does not exist. `dependencies` checks what crates must not
//! use through others.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Package};

use super::dependencies::metadata;
use super::{assert_none, read};

/// The beginnings of the folders of the program's crates. The root crate has the folder `src`.
const PROGRAM: [&str; 7] = ["src", "cli", "crds", "sources", "operator/", "engines/", "web"];

/// The folder of the engines. The table names engines without it where an engine uses another one. For other crates
/// it does not tell engines apart.
const ENGINES: &str = "engines/";

/// The rows of the table with this head in ARCHITECTURE.md. Each cell has the names in its backticks.
fn rows(text: &str, head: &str) -> Vec<Vec<Vec<String>>> {
    let table = text.lines().skip_while(|line| *line != head).skip(2);
    let table = table.take_while(|line| line.starts_with('|'));
    let names =
        |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    table.map(|row| row.trim_matches('|').split('|').map(names).collect()).collect()
}

fn architecture() -> String {
    read("ARCHITECTURE.md")
}

/// For each crate, the crates that it may use by the table.
fn allowed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed = BTreeMap::new();
    for row in rows(text, "| crate | may use |") {
        let [crates, uses] = &row[..] else { panic!("a row of the table of crates: {row:?}") };
        let uses: BTreeSet<String> = uses.iter().cloned().collect();
        allowed.extend(crates.iter().map(|name| (name.clone(), uses.clone())));
    }
    allowed
}

/// The uses that the table does not allow, and the entries of the table that no crate uses.
fn crate_faults(
    allowed: &BTreeMap<String, BTreeSet<String>>,
    used: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, uses) in used {
        let Some(may) = allowed.get(name) else {
            faults.push(format!("{name} is not in the table of crates in ARCHITECTURE.md"));
            continue;
        };
        let strangers = uses.iter().filter(|it| !may.contains(*it));
        faults.extend(strangers.map(|it| format!("{name} uses {it}, against the table")));
        let unused = may.iter().filter(|it| !uses.contains(*it));
        faults.extend(unused.map(|it| format!("{name} does not use {it}, which the table says")));
    }
    faults
}

/// The crates of the program by their folders, each with the crates that it uses in a shipped build. The names are
/// those of the table.
pub(super) fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let members = metadata.workspace_packages();
    let folder = |package: &Package| {
        let folder = package.manifest_path.parent();
        let folder = folder.and_then(|it| it.strip_prefix(&metadata.workspace_root).ok());
        let folder = folder.map(|it| it.as_str()).unwrap_or_default();
        if folder.is_empty() { "src".to_owned() } else { folder.to_owned() }
    };
    let folders: BTreeMap<&str, String> =
        members.iter().map(|it| (it.name.as_str(), folder(it))).collect();
    let is_of_program = |folder: &str| PROGRAM.iter().any(|it| folder.starts_with(it));
    let mut all = BTreeMap::new();
    for package in &members {
        let own = folder(package);
        if !is_of_program(&own) {
            continue;
        }
        let shipped = package.dependencies.iter().filter(|it| it.kind == DependencyKind::Normal);
        let used = shipped.filter_map(|it| {
            let other = folders.get(it.name.as_str()).filter(|it| is_of_program(it))?;
            match (own.starts_with(ENGINES), other.strip_prefix(ENGINES)) {
                (true, engine) => engine.map(str::to_owned),
                (false, None) => Some(other.clone()),
                (false, Some(_)) => None,
            }
        });
        let used = used.collect::<BTreeSet<String>>();
        all.insert(own, used);
    }
    all
}

#[test]
fn crates_use_what_the_table_says() {
    let allowed = allowed(&architecture());
    let uses = uses();
    assert!(uses["cli"].contains("operator/kinds"), "{uses:?}");
    assert_none(&crate_faults(&allowed, &uses));
}

#[test]
fn a_crate_that_uses_another_or_is_in_no_row_is_found() {
    let text = "| crate | may use |\n|---|---|\n| `engines/a`, `engines/b` | `c` |\n\n| other |";
    let allowed = allowed(text);
    let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let used = |name: &str, uses: &[&str]| BTreeMap::from([(name.to_owned(), set(uses))]);
    assert_none(&crate_faults(&allowed, &used("engines/a", &["c"])));
    assert_eq!(crate_faults(&allowed, &used("engines/a", &["c", "d"])).len(), 1);
    assert_eq!(crate_faults(&allowed, &used("engines/b", &[])).len(), 1);
    assert_eq!(crate_faults(&allowed, &used("engines/d", &[])).len(), 1);
}
