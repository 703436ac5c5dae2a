//! Checks which crates may depend on which (ARCHITECTURE.md, the dependency rules), and which must not be in the tree
//! at all.
//!
//! The rules are about the graph that cargo resolved. `deny.toml` has the list of bans, and `licence` checks
//! licences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::licence::LicencePolicy;
use super::{assert_none, read};
use testbed::root;

/// The packages that engines must not depend on, also not through others. A name that ends in `*` stands for all
/// names with that beginning.
///
/// `aws-lc-rs` is not in the list, because it only calculates (docs/decisions/0014-cryptography-of-templates.md).
const NOT_PURE: [&str; 17] = [
    "kube",
    "kube-*",
    "k8s-openapi",
    "tokio",
    "tokio-*",
    "reqwest",
    "gix",
    "gix-*",
    "git2",
    "aws-config",
    "aws-sdk-*",
    "aws-smithy-*",
    "aws-runtime",
    "tracing",
    "tracing-*",
    "hyper",
    "russh",
];

/// The crates that fetch and store artifacts.
const SOURCE_CRATES: [&str; 4] = ["artifacts", "git", "http-client", "sources"];

/// The packages that the crates of sources must not depend on.
const CLUSTER: [&str; 4] = ["crds", "kube", "kube-*", "k8s-openapi"];

/// The packages that may use `crds`. They are the program, tests of the program and of the client, and the tool that
/// writes CRDs.
const MAY_USE_CRDS: [&str; 25] = [
    "windlass-answers",
    "windlass-changes",
    "windlass-cli",
    "windlass-cli-installation",
    "windlass-cli-plan",
    "windlass-cli-runtime",
    "windlass-cluster",
    "windlass-expressions",
    "image-controller",
    "helm-controller",
    "helmfile-controller",
    "kustomize-controller",
    "notification-controller",
    "source-controller",
    "windlass-kinds",
    "windlass-quarantine",
    "windlass-rollout",
    "windlass-runtime",
    "windlass-web",
    "fake-cluster",
    "e2e",
    "bench",
    "conformance",
    "stress",
    "crd-manifests",
];

/// The client of kube, and the packages of kube that depend on it.
const CLIENT_PACKAGES: [&str; 3] = ["kube", "kube-client", "kube-runtime"];

/// The packages that may use the client. They are the crate that holds it for the program, and programs of tests.
const MAY_USE_CLIENT: [&str; 5] = ["windlass-cluster", "e2e", "bench", "conformance", "stress"];

/// The metadata of cargo about the workspace and its dependencies, for the platform that is shipped.
pub(super) fn metadata() -> &'static Metadata {
    static METADATA: OnceLock<Metadata> = OnceLock::new();
    METADATA.get_or_init(|| {
        let platform = ["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
        MetadataCommand::new()
            .manifest_path(root().join("Cargo.toml"))
            .other_options(platform.map(str::to_owned))
            .exec()
            .unwrap()
    })
}

/// The packages by name, and the names of their dependencies.
#[derive(Debug, Default)]
struct PackageGraph {
    /// The dependencies of the shipped program, without those of tests and build scripts.
    normal: BTreeMap<String, BTreeSet<String>>,
    /// Dependencies of every kind.
    all: BTreeMap<String, BTreeSet<String>>,
}

impl PackageGraph {
    fn load(metadata: &Metadata) -> Self {
        let packages: BTreeMap<_, _> = metadata.packages.iter().map(|it| (&it.id, it)).collect();
        let mut graph = Self::default();
        for node in &metadata.resolve.as_ref().unwrap().nodes {
            let package = packages[&node.id];
            let from = package.name.to_string();
            let features: Vec<&str> =
                node.features.iter().map(|feature| feature.as_str()).collect();
            for dependency in &node.deps {
                let to = packages[&dependency.pkg].name.to_string();
                if !is_switched_on(package, &to, &features) {
                    continue;
                }
                graph.all.entry(from.clone()).or_default().insert(to.clone());
                if dependency.dep_kinds.iter().any(|it| it.kind == DependencyKind::Normal) {
                    graph.normal.entry(from.clone()).or_default().insert(to);
                }
            }
        }
        graph
    }

    /// The packages, and everything that they depend on, directly or through others.
    fn in_use<'a>(&'a self, roots: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        let mut waiting: Vec<&str> = roots.collect();
        let mut used: BTreeSet<&str> = waiting.iter().copied().collect();
        while let Some(name) = waiting.pop() {
            let next = self.all.get(name).into_iter().flatten().map(String::as_str);
            waiting.extend(next.filter(|name| used.insert(*name)));
        }
        used
    }

    /// Everything that a package depends on by normal dependencies. Each has the package that depends on it.
    fn reach(&self, from: &str) -> BTreeMap<&str, String> {
        let mut reached = BTreeMap::new();
        let mut waiting = vec![from.to_owned()];
        while let Some(name) = waiting.pop() {
            for next in self.normal.get(&name).into_iter().flatten() {
                if reached.insert(next.as_str(), name.clone()).is_none() {
                    waiting.push(next.clone());
                }
            }
        }
        reached
    }

    /// The banned packages that a package depends on.
    fn faults(&self, from: &str, banned: &[&str]) -> Vec<String> {
        let reached = self.reach(from);
        let bad = reached.iter().filter(|(name, _)| banned.iter().any(|ban| matches(ban, name)));
        bad.map(|(name, by)| format!("{from} reaches {name} (through {by})")).collect()
    }
}

/// Whether a dependency is compiled. The metadata of cargo also lists optional dependencies whose feature is off.
fn is_switched_on(package: &Package, name: &str, features: &[&str]) -> bool {
    package.dependencies.iter().filter(|dependency| dependency.name == name).any(|dependency| {
        let name = dependency.rename.as_deref().unwrap_or(name);
        let named = [name.to_owned(), format!("dep:{name}")];
        let turns_on =
            |entry: &String| named.contains(entry) || entry.starts_with(&format!("{name}/"));
        !dependency.optional
            || features.iter().any(|feature| {
                *feature == name
                    || package.features.get(*feature).is_some_and(|it| it.iter().any(turns_on))
            })
    })
}

/// The packages that are compiled into the program, its tests or its build.
pub(super) fn packages() -> Vec<&'static Package> {
    let metadata = metadata();
    let graph = PackageGraph::load(metadata);
    let members = metadata.workspace_packages();
    let used = graph.in_use(members.iter().map(|package| package.name.as_str()));
    metadata.packages.iter().filter(|package| used.contains(package.name.as_str())).collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// The names of the workspace's packages. The first set has those below `engines/`, the second one all others.
fn members() -> (BTreeSet<String>, BTreeSet<String>) {
    let metadata = metadata();
    let folder = metadata.workspace_root.join("engines");
    let (engines, others): (Vec<_>, Vec<_>) = metadata
        .workspace_packages()
        .into_iter()
        .partition(|package| package.manifest_path.starts_with(&folder));
    let names = |packages: Vec<&Package>| {
        packages.into_iter().map(|package| package.name.to_string()).collect()
    };
    (names(engines), names(others))
}

/// Checks rule 1 for one engine.
fn engine_faults(
    graph: &PackageGraph,
    engine: &str,
    other_members: &BTreeSet<String>,
) -> Vec<String> {
    let mut faults = graph.faults(engine, &NOT_PURE);
    let ours =
        graph.all.get(engine).into_iter().flatten().filter(|name| other_members.contains(*name));
    faults.extend(ours.map(|name| format!("{engine} depends on {name}, which is no engine")));
    faults
}

/// Checks rule 2, about the packages that use `crds`. Returns one message for each fault.
fn crds_faults(graph: &PackageGraph) -> Vec<String> {
    let users = graph.all.iter().filter(|(_, uses)| uses.contains("crds"));
    let strangers = users.filter(|(name, _)| !MAY_USE_CRDS.contains(&name.as_str()));
    strangers.map(|(name, _)| format!("{name} uses crds")).collect()
}

/// Checks rule 3, also for the tests of these crates.
fn sources_faults(graph: &PackageGraph) -> Vec<String> {
    let mut faults = Vec::new();
    for of in SOURCE_CRATES {
        faults.extend(graph.faults(of, &CLUSTER));
        let direct = graph.all.get(of).into_iter().flatten();
        let direct = direct.filter(|name| CLUSTER.iter().any(|ban| matches(ban, name)));
        faults.extend(direct.map(|name| format!("{of} depends on {name}")));
    }
    faults
}

/// Checks rule 4, about the packages that use the Kubernetes client. Returns one message for each fault.
fn client_faults(graph: &PackageGraph) -> Vec<String> {
    let may = |name: &str| MAY_USE_CLIENT.contains(&name) || CLIENT_PACKAGES.contains(&name);
    let others = graph.all.iter().filter(|(name, _)| !may(name));
    let users = others.filter(|(_, uses)| CLIENT_PACKAGES.iter().any(|part| uses.contains(*part)));
    users
        .map(|(name, _)| {
            format!("{name} uses kube: types are in kube-core, stores in windlass-cluster")
        })
        .collect()
}

fn graph(edges: &[(&str, &str)]) -> PackageGraph {
    let mut graph = PackageGraph::default();
    for (from, to) in edges {
        graph.normal.entry((*from).to_owned()).or_default().insert((*to).to_owned());
    }
    graph.all = graph.normal.clone();
    graph
}

#[test]
fn engines_depend_on_engines_and_pure_crates_only() {
    let graph = PackageGraph::load(metadata());
    let (engines, others) = members();
    assert!(engines.contains("reconcile") && others.contains("windlass"), "{engines:?} {others:?}");
    let faults: Vec<String> =
        engines.iter().flat_map(|engine| engine_faults(&graph, engine, &others)).collect();
    assert_none(&faults);
}

#[test]
fn an_engine_that_reaches_the_network_through_another_crate_is_found() {
    let others = BTreeSet::from(["sources".to_owned()]);
    let bad = graph(&[("helm", "charts"), ("charts", "kube-core"), ("helm", "sources")]);
    assert_eq!(engine_faults(&bad, "helm", &others).len(), 2);
    let good = graph(&[("helm", "tree"), ("tree", "sha2")]);
    assert_none(&engine_faults(&good, "helm", &others));
}

#[test]
fn crds_are_used_by_the_program_and_its_tests_only() {
    let graph = PackageGraph::load(metadata());
    assert!(graph.all["windlass-cli"].contains("crds"));
    assert_none(&crds_faults(&graph));
    assert_eq!(
        crds_faults(&self::graph(&[("apply", "crds"), ("windlass-cli", "crds")])),
        ["apply uses crds"]
    );
}

#[test]
fn sources_see_neither_crds_nor_the_cluster() {
    let graph = PackageGraph::load(metadata());
    for of in SOURCE_CRATES {
        assert!(graph.all.contains_key(of), "{of}");
    }
    assert_none(&sources_faults(&graph));
    let faults = |edges: &[(&str, &str)]| sources_faults(&self::graph(edges)).len();
    assert_eq!(faults(&[("sources", "fetch"), ("fetch", "kube-client")]), 1);
    assert_eq!(faults(&[("sources", "crds")]), 2);
    assert_eq!(faults(&[("git", "crds")]), 2);
}

#[test]
fn of_the_program_the_cluster_edge_alone_uses_the_client_of_kube() {
    let graph = PackageGraph::load(metadata());
    assert!(graph.all["windlass-cluster"].contains("kube"));
    assert!(graph.all["crds"].contains("kube-core"));
    assert_none(&client_faults(&graph));
    let edges = [("kube", "kube-client"), ("windlass-cluster", "kube"), ("crds", "kube-core")];
    assert_none(&client_faults(&self::graph(&edges)));
    for part in CLIENT_PACKAGES {
        assert_eq!(client_faults(&self::graph(&[("windlass-runtime", part)])).len(), 1, "{part}");
    }
}

/// Packages that are in the tree although `deny.toml` bans them.
fn banned<'a>(policy: &LicencePolicy, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let bad = names.filter(|name| policy.bans.deny.iter().any(|ban| ban.name == *name));
    bad.map(|name| format!("{name} is banned by deny.toml")).collect()
}

#[test]
fn nothing_that_is_banned_is_in_the_tree() {
    let policy = LicencePolicy::load();
    assert_none(&banned(&policy, packages().iter().map(|package| package.name.as_str())));
    assert_eq!(banned(&policy, ["serde", "ring"].into_iter()), ["ring is banned by deny.toml"]);
}

#[test]
fn what_is_in_use_is_what_the_members_reach() {
    let graph = graph(&[("windlass", "rustls"), ("rustls", "webpki"), ("quinn", "ring")]);
    assert_eq!(graph.in_use(["windlass"].into_iter()).len(), 3);
    let names: Vec<&str> = packages().iter().map(|package| package.name.as_str()).collect();
    assert!(names.contains(&"rustls") && names.contains(&"proptest"), "{names:?}");
}

#[test]
fn everything_comes_from_a_registry_that_is_allowed() {
    let known = LicencePolicy::load().sources.allow_registry;
    assert!(!known.is_empty());
    let foreign = packages().into_iter().filter_map(|package| {
        let source = package.source.as_ref()?;
        let registry = source.repr.strip_prefix("registry+");
        let is_known = registry.is_some_and(|it| known.iter().any(|known| known == it));
        (!is_known).then(|| format!("{} comes from {source}", package.name))
    });
    assert_none(&foreign.collect::<Vec<_>>());
}

/// The crates of which windlass logs only errors, because no name in its log filter is a beginning of theirs.
fn silent_crates(telemetry: &str, logging: &[String]) -> Vec<String> {
    let list = telemetry.split_once("const CRATES").and_then(|(_, rest)| rest.split_once('='));
    let list = list.and_then(|(_, rest)| rest.split_once(';')).map_or("", |(list, _)| list);
    let listed: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    let names = logging.iter().map(|name| name.replace('-', "_"));
    let silent = names.filter(|name| !listed.iter().any(|it| name.starts_with(*it)));
    silent
        .map(|name| {
            format!(
                "{name} logs, and `CRATES` of operator/serve/src/logging_setup.rs does not name it"
            )
        })
        .collect()
}

#[test]
fn the_filter_of_the_log_names_every_crate_that_logs() {
    let graph = PackageGraph::load(metadata());
    let (_, others) = members();
    let reached = graph.reach("windlass");
    let logs = |name: &&String| {
        reached.contains_key(name.as_str())
            && graph.normal.get(*name).is_some_and(|uses| uses.contains("tracing"))
    };
    let logging: Vec<String> = others.iter().filter(logs).cloned().collect();
    assert!(logging.iter().any(|name| name == "windlass-cluster"), "{logging:?}");
    assert_none(&silent_crates(&read("operator/serve/src/logging_setup.rs"), &logging));
    let two = ["windlass-cluster".to_owned(), "source-controller".to_owned()];
    assert_eq!(silent_crates("const CRATES: [&str; 1] = [\"windlass\"];", &two).len(), 1);
}
