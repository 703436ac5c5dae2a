//! Reads `deny.toml`, which `cargo deny` reads too, and checks the licences of dependencies.
//!
//! `super::dependencies` checks the packages, the bans and the registries.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use spdx::{Expression, Licensee, ParseMode};

use super::{assert_none, dependencies, read};

/// The parts of `deny.toml` that the checks use.
#[derive(Debug, Deserialize)]
pub(super) struct LicencePolicy {
    licenses: LicenceRules,
    pub(super) bans: CrateBans,
    pub(super) sources: CrateSources,
}

#[derive(Debug, Deserialize)]
struct LicenceRules {
    #[serde(deserialize_with = "licences")]
    allow: Vec<Licensee>,
    exceptions: Vec<LicenceException>,
}

/// Further licences that are allowed for one crate only.
#[derive(Debug, Deserialize)]
struct LicenceException {
    #[serde(rename = "crate")]
    name: String,
    #[serde(deserialize_with = "licences")]
    allow: Vec<Licensee>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CrateBans {
    pub(super) deny: Vec<CrateBan>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CrateBan {
    #[serde(rename = "crate")]
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CrateSources {
    pub(super) allow_registry: Vec<String>,
}

fn licences<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Licensee>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names.iter().map(|name| Licensee::parse(name).map_err(D::Error::custom)).collect()
}

impl LicencePolicy {
    pub(super) fn load() -> Self {
        toml::from_str(&read("deny.toml")).unwrap()
    }

    /// Whether a crate may be used under a licence expression. Old crates write `A/B` for `A OR B`.
    fn covers(&self, name: &str, expression: &str) -> bool {
        let exceptions = self.licenses.exceptions.iter().filter(|it| it.name == name);
        let allowed: Vec<&Licensee> =
            self.licenses.allow.iter().chain(exceptions.flat_map(|it| &it.allow)).collect();
        Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| {
            expression.evaluate(|required| allowed.iter().any(|it| it.satisfies(required)))
        })
    }
}

/// The packages whose licence the policy does not allow.
fn faults<'a>(
    policy: &LicencePolicy,
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
    let packages = dependencies::packages();
    assert!(packages.len() > 100, "only {} packages", packages.len());
    let licences = packages.iter().map(|it| (it.name.as_str(), it.license.as_deref()));
    assert_none(&faults(&LicencePolicy::load(), licences));
}

#[test]
fn every_entry_of_the_policy_is_needed() {
    let packages = dependencies::packages();
    let policy = LicencePolicy::load();
    let exceptions = policy.licenses.exceptions.iter().map(|it| it.name.as_str());
    let stale = exceptions.filter(|name| !packages.iter().any(|it| it.name == *name));
    assert_none(&stale.map(|name| format!("{name} is not in the tree")).collect::<Vec<_>>());
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let policy: LicencePolicy = toml::from_str(
        r#"
        licenses.allow = ["MIT", "Apache-2.0"]
        licenses.exceptions = [{ crate = "odd", allow = ["MPL-2.0"] }]
        bans.deny = [{ crate = "ring", reason = "no" }]
        sources.allow-registry = []
        "#,
    )
    .unwrap();
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
