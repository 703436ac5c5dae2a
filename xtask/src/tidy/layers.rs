//! Who may use whom, as the tables in ARCHITECTURE.md say it: crates of the workspace, and modules of `src`.
//!
//! Here: both tables are the rules. A module of `src` uses modules of the rows above its own, and in its row those to its
//! left, so no import leads back. Elsewhere: what crates never reach through others (`dependencies`).

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::dependencies::metadata;
use super::{assert_none, files, read};

/// Folders of `src` whose files are modules of their own; any other folder is one module with its file.
const OPEN: [&str; 2] = ["controllers", "serve"];

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

// ---- crates

/// Which crates a crate may use; those of `everything` are not limited.
fn allowed(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut allowed = BTreeMap::new();
    for row in rows(text, "| crate | may use |") {
        let [crates, uses] = &row[..] else { panic!("a row of the table of crates: {row:?}") };
        for name in crates {
            let short = |name: &String| name.rsplit('/').next().unwrap_or_default().to_owned();
            allowed.insert(short(name), uses.iter().map(short).collect());
        }
    }
    allowed
}

/// Engines use what the table says.
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

/// The engines, and which of them each uses as it is shipped.
fn engines() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let folder = metadata.workspace_root.join("engines");
    let members = metadata.workspace_packages();
    let engines: Vec<_> =
        members.into_iter().filter(|it| it.manifest_path.starts_with(&folder)).collect();
    let names: BTreeSet<String> = engines.iter().map(|it| it.name.to_string()).collect();
    let uses = |package: &cargo_metadata::Package| {
        let shipped = package
            .dependencies
            .iter()
            .filter(|it| it.kind == cargo_metadata::DependencyKind::Normal);
        shipped.map(|it| it.name.clone()).filter(|name| names.contains(name)).collect()
    };
    engines.iter().map(|it| (it.name.to_string(), uses(it))).collect()
}

// ---- modules of src

/// The module that stands for a path of names: itself, or the folder that hides it.
fn module_of(path: &[String]) -> Option<String> {
    let [first, rest @ ..] = path else { return None };
    match rest.first() {
        Some(second) if OPEN.contains(&first.as_str()) => Some(format!("{first}::{second}")),
        _ => Some(first.clone()),
    }
}

/// Names of the modules that the tokens of a file reach by `crate::`, `self::` and `super::`, one path after the other.
/// `own` is the path of the file's own module. Modules of tests are left out.
fn paths(tokens: TokenStream, own: &[String], found: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_of_tests(&tokens[at..]) {
            // `#`, `[cfg(test)]`, `mod`, its name, its body or `;`.
            at += 5;
            continue;
        }
        match &tokens[at] {
            TokenTree::Ident(name) if ["crate", "self", "super"].contains(&&*name.to_string()) => {
                at = path(&tokens, at, own, found);
            }
            TokenTree::Group(group) => {
                paths(group.stream(), own, found);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

pub(super) fn is_of_tests(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(hash), TokenTree::Group(attribute), TokenTree::Ident(word), ..] = tokens
    else {
        return false;
    };
    let attribute = attribute.stream().to_string().replace(' ', "");
    hash.as_char() == '#' && attribute == "cfg(test)" && word == "mod"
}

/// Follows one path from its first word; returns where it ends.
fn path(
    tokens: &[TokenTree],
    mut at: usize,
    own: &[String],
    found: &mut Vec<Vec<String>>,
) -> usize {
    let mut base = own.to_vec();
    let mut names = Vec::new();
    let mut is_first = true;
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        match name.to_string().as_str() {
            "crate" => base.clear(),
            "self" if is_first => {}
            "super" => drop(base.pop()),
            name => names.push(name.to_owned()),
        }
        (is_first, at) = (false, at + 1);
        let is_colon =
            |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(it)) if it.as_char() == ':');
        if !(is_colon(at) && is_colon(at + 1)) {
            break;
        }
        at += 2;
        if let Some(TokenTree::Group(group)) = tokens.get(at)
            && group.delimiter() == Delimiter::Brace
        {
            let whole = base.iter().chain(&names).cloned().collect::<Vec<_>>();
            tree(group.stream(), &whole, found);
            return at + 1;
        }
    }
    found.push(base.into_iter().chain(names).collect());
    at
}

/// The paths of `{…}` in a `use`, each after what stands before it.
fn tree(tokens: TokenStream, before: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    for token in tokens {
        match token {
            TokenTree::Ident(name) if name != "self" && name != "as" => path.push(name.to_string()),
            TokenTree::Punct(comma) if comma.as_char() == ',' => {
                found.push(std::mem::replace(&mut path, before.to_vec()));
            }
            TokenTree::Group(group) => tree(group.stream(), &path, found),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found.push(path);
}

/// Which modules each module uses. A folder's own file and its children count as one towards each other.
fn uses(sources: &BTreeMap<Vec<String>, String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (own, text) in sources {
        let Some(module) = module_of(own) else { continue };
        let mut found = Vec::new();
        paths(text.parse().unwrap(), own, &mut found);
        let used = uses.entry(module.clone()).or_default();
        for path in found {
            // The longest beginning of a path that is a file.
            let known = (1..=path.len()).rev().find(|to| sources.contains_key(&path[..*to]));
            let Some(other) = known.and_then(|to| module_of(&path[..to])) else { continue };
            let is_child = |child: &str, of: &str| child.starts_with(&format!("{of}::"));
            if other != module && !is_child(&other, &module) && !is_child(&module, &other) {
                used.insert(other);
            }
        }
    }
    uses
}

/// The files of `src` by the path of their modules.
fn sources() -> BTreeMap<Vec<String>, String> {
    let of = |path: &String| {
        let inner = path.strip_prefix("src/")?.strip_suffix(".rs")?;
        let names: Vec<String> = inner.split('/').map(str::to_owned).collect();
        let is_module = inner != "main" && names.last().is_some_and(|name| name != "tests");
        is_module.then(|| (names, read(path)))
    };
    files("src", ".rs").iter().filter_map(of).collect()
}

/// What stands in the table for the kinds that no other kind uses: the modules of `controllers` without a place of their own.
const ANY_KIND: &str = "controllers::*";

/// The table with those modules in the place of [`ANY_KIND`].
fn completed(order: &[String], uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let is_any = |name: &&String| name.starts_with("controllers::") && !order.contains(name);
    let one = |name: &String| match name == ANY_KIND {
        true => uses.keys().filter(is_any).cloned().collect(),
        false => vec![name.clone()],
    };
    order.iter().flat_map(one).collect()
}

fn module_faults(order: &[String], uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let place = |name: &str| order.iter().position(|it| it == name);
    let mut faults = Vec::new();
    for (module, used) in uses {
        let Some(own) = place(module) else {
            faults.push(format!("{module} is not in the table of modules in ARCHITECTURE.md"));
            continue;
        };
        let back = used.iter().filter(|other| place(other).is_some_and(|other| other > own));
        faults.extend(back.map(|other| format!("{module} uses {other}, which comes after it")));
    }
    let gone = order.iter().filter(|name| !uses.contains_key(*name));
    faults.extend(gone.map(|name| format!("{name} is in the table of modules and not in src")));
    faults
}

#[test]
fn engines_use_what_the_table_of_crates_says() {
    let allowed = allowed(&architecture());
    assert_none(&crate_faults(&allowed, &engines()));
}

#[test]
fn an_engine_that_uses_another_or_is_in_no_row_is_found() {
    let text = "| crate | may use |\n|---|---|\n| `engines/a`, `engines/b` | `c` |\n\n| other |";
    let allowed = allowed(text);
    let set = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let used = |name: &str, uses: &[&str]| BTreeMap::from([(name.to_owned(), set(uses))]);
    assert_none(&crate_faults(&allowed, &used("a", &["c"])));
    assert_eq!(crate_faults(&allowed, &used("a", &["c", "d"])).len(), 1);
    assert_eq!(crate_faults(&allowed, &used("b", &[])).len(), 1);
    assert_eq!(crate_faults(&allowed, &used("d", &[])).len(), 1);
}

#[test]
fn modules_of_the_program_use_those_before_them() {
    let order: Vec<String> = rows(&architecture(), "| layer | modules of `src` |")
        .into_iter()
        .flat_map(|row| row.into_iter().last().unwrap_or_default())
        .collect();
    let uses = uses(&sources());
    assert!(uses["cli"].contains("controllers::kinds"), "{uses:?}");
    assert_none(&module_faults(&completed(&order, &uses), &uses));
}

#[test]
fn an_import_that_leads_back_is_found_wherever_it_stands() {
    let file = |path: &str, text: &str| {
        (path.split("::").map(str::to_owned).collect::<Vec<_>>(), text.to_owned())
    };
    let sources = BTreeMap::from([
        file("metrics", "pub struct Metrics;"),
        file("controllers", "mod work_queue; mod run;"),
        file(
            "controllers::work_queue",
            "use crate::metrics::{self, Metrics}; fn f() { super::run::go() }",
        ),
        file(
            "controllers::run",
            "use super::{work_queue::{WorkQueue, Wake as It}, run::x};\n#[cfg(test)]\nmod tests { use crate::cli::x; }",
        ),
        file("controllers::run::keeper", "use super::super::work_queue; use super::Notices;"),
        file("cli", "fn f() { assert!(crate::controllers::run::go()) }"),
    ]);
    let uses = uses(&sources);
    let of = |name: &str| uses[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("controllers::work_queue"), ["controllers::run", "metrics"]);
    assert_eq!(of("controllers::run"), ["controllers::work_queue"]);
    assert_eq!(of("cli"), ["controllers::run"]);
    let order = ["metrics", "controllers", "controllers::work_queue", "controllers::run", "gone"];
    let faults = module_faults(&order.map(str::to_owned), &uses);
    let any = ["metrics", "controllers", "controllers::run", ANY_KIND].map(str::to_owned);
    let all = ["metrics", "controllers", "controllers::run", "controllers::work_queue"];
    assert_eq!(completed(&any, &uses), all);
    assert_eq!(
        faults,
        [
            "cli is not in the table of modules in ARCHITECTURE.md",
            "controllers::work_queue uses controllers::run, which comes after it",
            "gone is in the table of modules and not in src",
        ]
    );
}
