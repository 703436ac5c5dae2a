//! Which crate may use which, as the table in ARCHITECTURE.md says.
//!
//! Here: the table is the rule, and says no more than there is. Elsewhere: what crates never reach through others
//! (`dependencies`).

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Package};

use super::dependencies::metadata;
use super::{assert_none, read};

/// The crates of the program, by how their folders begin; that of the root has its folder `src`.
const PROGRAM: [&str; 7] = ["src", "cli", "crds", "sources", "operator/", "engines/", "web"];

/// Where the engines are; the table names those that engines use without it, and for others it does not tell them apart.
const ENGINES: &str = "engines/";

/// The rows of the table in ARCHITECTURE.md whose head is this, as the names in backticks of each cell.
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

/// Which crates a crate may use.
fn allowed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed = BTreeMap::new();
    for row in rows(text, "| crate | may use |") {
        let [crates, uses] = &row[..] else { panic!("a row of the table of crates: {row:?}") };
        let uses: BTreeSet<String> = uses.iter().cloned().collect();
        allowed.extend(crates.iter().map(|name| (name.clone(), uses.clone())));
    }
    allowed
}

/// Crates use what the table says.
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

/// The crates of the program by their folders, and which of them each uses as it is shipped, as the table names them.
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
