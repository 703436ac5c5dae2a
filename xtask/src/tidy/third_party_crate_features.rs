//! Checks that every third-party crate is compiled with one set of features, whichever program is built. Otherwise
//! cargo would compile the crate several times.
//!
//! The check compares the crates of each program with the crates of all tests. If the features differ,
//! `workspace-hack/Cargo.toml` gets the missing ones.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::assert_none;
use testbed::root;

/// Programs that are built alone.
const PROGRAMS: [&str; 6] = ["windlass", "bench", "conformance", "demo", "e2e", "stress"];

/// For small programs, how many crates each may have, and how many of them with fewer features than in the tests.
/// Cargo compiles the latter once more, which takes seconds.
const MAX_CRATES_PER_PROGRAM: [(&str, usize, usize); 2] =
    [("xtask", 70, 15), ("crd-manifests", 90, 30)];

/// A crate with its version, and the sets of its features.
type CrateFeatures = BTreeMap<String, BTreeSet<String>>;

/// The crates that cargo compiles, without those of this workspace.
fn compiled(selection: &[&str]) -> CrateFeatures {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}"])
        .args(selection)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    crates(&String::from_utf8_lossy(&output.stdout))
}

/// Reads lines such as `serde v1.0.229|alloc,std (*)` of cargo's tree.
fn crates(tree: &str) -> CrateFeatures {
    let mut crates = CrateFeatures::new();
    let own = format!("({}", root().display());
    for line in tree.lines().filter(|line| !line.contains(&own)) {
        let line = line.replace(" (*)", "").replace(" (proc-macro)", "");
        if let Some((name, features)) = line.split_once('|') {
            crates.entry(name.to_owned()).or_default().insert(features.to_owned());
        }
    }
    crates
}

fn of_tests() -> CrateFeatures {
    compiled(&["--workspace", "--edges", "normal,build,dev", "--features", "e2e/stories"])
}

/// Crates with a set of features that the tests do not have.
fn others(of_tests: &CrateFeatures, crates: &CrateFeatures) -> Vec<String> {
    let all = crates.iter().flat_map(|(name, sets)| sets.iter().map(move |set| (name, set)));
    let is_other = |(name, set): &(&String, &String)| {
        of_tests.get(*name).is_none_or(|known| !known.contains(*set))
    };
    let describe = |(name, set): (&String, &String)| {
        let known =
            of_tests.get(name).map(|sets| sets.iter().cloned().collect::<Vec<_>>().join(" or "));
        format!("{name} has {set}; in the tests it has {}", known.unwrap_or_default())
    };
    all.filter(is_other).map(describe).collect()
}

#[test]
fn each_third_party_crate_is_compiled_once() {
    let of_tests = of_tests();
    let twice = of_tests.iter().filter(|(_, sets)| sets.len() > 1);
    let mut faults: Vec<String> = twice
        .map(|(name, sets)| format!("tests compile {name} more than once: {sets:?}"))
        .collect();
    for program in PROGRAMS {
        let crates = compiled(&["--package", program, "--edges", "normal,build"]);
        faults.extend(others(&of_tests, &crates).into_iter().map(|it| format!("{program}: {it}")));
    }
    assert_none(&faults);
}

#[test]
fn commands_that_everything_waits_for_need_little() {
    let of_tests = of_tests();
    for (program, most, most_others) in MAX_CRATES_PER_PROGRAM {
        let crates = compiled(&["--package", program, "--edges", "normal,build"]);
        assert!(crates.len() <= most, "{program} has {} crates", crates.len());
        let others = others(&of_tests, &crates);
        assert!(others.len() <= most_others, "{program}:\n{}", others.join("\n"));
        for large in ["kube-client", "gix", "aws-config", "tokio", "hyper"] {
            let start = format!("{large} ");
            assert!(!crates.keys().any(|name| name.starts_with(&start)), "{program} has {large}");
        }
    }
}

#[test]
fn a_crate_with_two_sets_of_features_is_found() {
    let of_tests = crates("a v1|std\nb v1|alloc,std (*)\nb v1|std\nc v1 (proc-macro)|\n");
    assert_eq!(of_tests["b v1"].len(), 2);
    let faults = others(&of_tests, &crates("a v1|std\nb v1|\n"));
    assert_eq!(faults, ["b v1 has ; in the tests it has alloc,std or std"]);
}
