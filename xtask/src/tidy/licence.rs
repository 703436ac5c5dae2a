//! Which licences the tree may be under: `deny.toml` read line by line, and SPDX expressions.
//!
//! Elsewhere: the packages (`super::dependencies`).

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use super::{assert_none, dependencies, read};

/// What `deny.toml` says.
#[derive(Debug, Default)]
pub(super) struct Policy {
    /// Licences that may be used.
    allowed: BTreeSet<String>,
    /// Licences that one crate may be under besides.
    exceptions: BTreeMap<String, String>,
    /// Crates that must not be used.
    pub(super) banned: Vec<String>,
}

impl Policy {
    /// Reads the file; an entry of a list is a line of its own.
    pub(super) fn parse(text: &str) -> Self {
        let mut policy = Self::default();
        let (mut section, mut list) = ("", "");
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let quoted: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
            if line.starts_with('[') {
                (section, list) = (line, "");
            } else if line == "]" {
                list = "";
            } else if let Some(name) = line.strip_suffix(" = [") {
                list = name;
            } else {
                match (section, list, &*quoted) {
                    ("[licenses]", "allow", [licence]) => {
                        policy.allowed.insert((*licence).to_owned());
                    }
                    ("[licenses]", "exceptions", [name, licence]) => {
                        policy.exceptions.insert((*name).to_owned(), (*licence).to_owned());
                    }
                    ("[bans]", "deny", [name, _reason]) => policy.banned.push((*name).to_owned()),
                    _ => {}
                }
            }
        }
        policy
    }

    fn allows(&self, name: &str, licence: &str) -> bool {
        self.allowed.contains(licence) || self.exceptions.get(name).is_some_and(|it| it == licence)
    }

    /// Whether a crate may be used under an expression. `A/B` is how old crates write `A OR B`.
    fn covers(&self, name: &str, expression: &str) -> bool {
        let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let mut words = expression.split_whitespace().peekable();
        let covered = self.either(name, &mut words);
        covered && words.next().is_none()
    }

    fn either<'a>(&self, name: &str, words: &mut Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut covered = self.both(name, words);
        while words.next_if_eq(&"OR").is_some() {
            covered |= self.both(name, words);
        }
        covered
    }

    fn both<'a>(&self, name: &str, words: &mut Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut covered = self.one(name, words);
        while words.next_if_eq(&"AND").is_some() {
            covered &= self.one(name, words);
        }
        covered
    }

    fn one<'a>(&self, name: &str, words: &mut Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let Some(word) = words.next() else { return false };
        if word == "(" {
            return self.either(name, words) && words.next() == Some(")");
        }
        if words.next_if_eq(&"WITH").is_some() {
            let exception = words.next().unwrap_or_default();
            return self.allows(name, &format!("{word} WITH {exception}"));
        }
        self.allows(name, word)
    }
}

/// Packages whose licence is not covered.
fn faults<'a>(
    policy: &Policy,
    packages: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Vec<String> {
    let bad = packages.filter(|(name, licence)| {
        licence.is_none_or(|expression| !policy.covers(name, expression))
    });
    bad.map(|(name, licence)| {
        let licence = licence.unwrap_or("a licence that it does not name");
        format!("{name} is under {licence}, which deny.toml does not allow")
    })
    .collect()
}

#[test]
fn every_licence_of_the_tree_is_allowed() {
    let policy = Policy::parse(&read("deny.toml"));
    let packages = dependencies::packages();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let licences = packages.iter().map(|it| (it.name.as_str(), it.license.as_deref()));
    assert_none(&faults(&policy, licences));
}

#[test]
fn every_entry_of_the_policy_is_needed() {
    let policy = Policy::parse(&read("deny.toml"));
    let packages = dependencies::packages();
    let stale =
        policy.exceptions.keys().filter(|name| !packages.iter().any(|it| it.name == **name));
    assert_none(&stale.map(|name| format!("{name} is not in the tree")).collect::<Vec<_>>());
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let policy = Policy::parse(
        "[licenses]\nallow = [\n    \"MIT\",\n    \"Apache-2.0\",\n]\nexceptions = [\n    \
         { crate = \"odd\", allow = [\"MPL-2.0\"] },\n]\n[bans]\ndeny = [\n    \
         { crate = \"ring\", reason = \"no\" },\n]\n",
    );
    assert_eq!(policy.banned, ["ring"]);
    for (name, expression, expected) in [
        ("a", "MIT", true),
        ("a", "GPL-3.0", false),
        ("a", "GPL-3.0 OR MIT", true),
        ("a", "GPL-3.0/MIT", true),
        ("a", "GPL-3.0 AND MIT", false),
        ("a", "MIT OR GPL-3.0 AND BSD-3-Clause", true),
        ("a", "(MIT OR GPL-3.0) AND Apache-2.0", true),
        ("a", "(MIT OR GPL-3.0) AND BSD-3-Clause", false),
        ("a", "Apache-2.0 WITH LLVM-exception", false),
        ("a", "MPL-2.0", false),
        ("odd", "MPL-2.0", true),
        ("a", "MIT)", false),
        ("a", "", false),
    ] {
        assert_eq!(policy.covers(name, expression), expected, "{expression}");
    }
    let packages = [("good", Some("MIT")), ("bad", Some("GPL-3.0")), ("mute", None)];
    assert_eq!(faults(&policy, packages.into_iter()).len(), 2);
}
