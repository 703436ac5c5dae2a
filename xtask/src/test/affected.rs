//! Finds which crates and stories a change can break.
//!
//! Crates are found by the dependencies that cargo reports. Stories are found by a table of folders. A folder that is
//! not in the table stands for all stories.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, ensure};
use cargo_metadata::{Metadata, MetadataCommand};
use testbed::root;

use crate::developer_tool::{CONFORMANCE, E2E, STRESS};

/// The package with the tests of the project's rules. They run for every change.
const TIDY: &str = "xtask";

/// The package of windlass.
const WINDLASS: &str = "windlass";

/// The package with the commands that install windlass.
const INSTALLATION: &str = "windlass-cli-installation";

/// Packages whose tests and commands start the program.
const STARTING_WINDLASS: [&str; 3] = [CONFORMANCE.0, STRESS.0, E2E.0];

/// The folders whose files only the root package reads.
const OF_ROOT: [&str; 2] = ["src/", "config/"];

/// Folders whose files only the named package reads, although another package is above them.
const READERS: [(&str, &str); 5] = [
    // The commands of the installation have these files built in.
    ("deploy/", INSTALLATION),
    ("e2e/charts/", CONFORMANCE.0),
    ("e2e/overlays/", CONFORMANCE.0),
    ("e2e/conformance/", CONFORMANCE.0),
    ("e2e/fuzz/", STRESS.0),
];

/// The paths whose changes only these stories test, by the beginning of the path. The longest path that fits counts.
const PLACES: [(&str, &[&str]); 82] = [
    ("cli/src/", &["cli::", "leader::without_operator", "migration", "bootstrap", "installation"]),
    ("cli/src/image_plan", &["cli::", "leader::without_operator", "images::"]),
    ("cli/answers/", &["cli::", "leader::without_operator"]),
    (
        "cli/answers/src/failed_change_hints",
        &["cli::", "leader::without_operator", "stories::on_call_rollback"],
    ),
    (
        "cli/answers/src/rollout_waves",
        &["cli::", "leader::without_operator", "stories::staged_rollouts"],
    ),
    ("cli/answers/src/why/image_tags", &["cli::", "images::"]),
    ("cli/src/ui", &["cli::windlass_ui", "cli::all_commands", "browser::"]),
    (
        "cli/runtime/",
        &["cli::", "leader::without_operator", "migration", "bootstrap", "installation"],
    ),
    (
        "cli/installation/",
        &["cli::", "leader::without_operator", "migration", "bootstrap", "installation"],
    ),
    ("cli/installation/src/bootstrap", &["bootstrap"]),
    ("cli/installation/src/migrate", &["migration"]),
    ("cli/installation/src/install", &["installation"]),
    ("cli/installation/src/uninstall", &["installation", "migration"]),
    ("cli/helm/", &["releases::helmfile", "stories::helmfile", "cli::", "migration"]),
    // `windlass plan` reads no cluster when it compares two revisions.
    ("cli/plan/", &["cli::plan_facts", "cli::plan_live", "cli::all_commands"]),
    (
        "cli/plan/src/object_prediction",
        &["cli::plan_live", "cli::diff", "cli::build_and_diff", "cli::diff_predictions"],
    ),
    ("cli/plan/src/pull_request_check", &["notification_services::plan_check"]),
    ("web/", &["cli::windlass_ui", "cli::multi_user_web_pages", "cli::all_commands", "browser::"]),
    ("cli/src/serve/pages", &["cli::multi_user_web_pages", "browser::logins"]),
    ("operator/serve/src/settings/web_pages", &["cli::multi_user_web_pages", "browser::logins"]),
    (
        "operator/runtime/src/audit",
        &["releases::audits", "releases_with_own_windlass::audit_retention", "cli::"],
    ),
    ("operator/notification/src/alert", &["notifications::", "notification_services::"]),
    (
        "operator/source/src/artifact_generator",
        &["sources::artifact_generator", "object_references::", "windlass_crds_removed::"],
    ),
    (
        "operator/source/src/bucket",
        &["bucket::", "data_loss_incidents::", "stories::bucket", "stories::git_sources"],
    ),
    ("operator/runtime/src/crd_guard", &["crd_exports::", "stories::crd", "releases::crd"]),
    ("operator/notification/src/delivery", &["notifications::", "notification_services::"]),
    (
        "operator/source/src/external_artifact",
        &["stories::git_sources", "object_references::", "windlass_crds_removed::"],
    ),
    (
        "operator/source/src/git_repository",
        &[
            "data_loss_incidents::",
            "stories::git",
            "stories::git_sources",
            "stories::signed_commits",
            "sources::",
        ],
    ),
    (
        "operator/source/src/helm_chart",
        &[
            "charts::",
            "data_loss_incidents::wrong_fetch_answers",
            "stories::helm_chart",
            "stories::verified_charts",
            "stories::chart_repositories",
        ],
    ),
    ("operator/helm/src/helm_release", &["releases::", "releases_with_own_windlass::"]),
    (
        "operator/runtime/src/chart_repository_access",
        &["charts::", "stories::helm_chart", "stories::chart_repositories", "stories::helmfile"],
    ),
    (
        "operator/source/src/helm_repository",
        &[
            "charts::",
            "data_loss_incidents::wrong_fetch_answers",
            "stories::helm_chart",
            "stories::chart_repositories",
            "sources::",
        ],
    ),
    (
        "operator/helmfile/",
        &[
            "releases::helmfile",
            "releases_with_own_windlass::",
            "stories::helmfile",
            "releases::release_moves",
        ],
    ),
    (
        "operator/source/src/http_archive",
        &["data_loss_incidents::wrong_fetch_answers", "stories::http_archive", "sources::"],
    ),
    (
        "operator/notification/src/incident",
        &["notifications::incidents", "notifications::leader_takeover", "cli::why_causes"],
    ),
    ("operator/image/", &["images::"]),
    (
        "operator/kustomize/src/kustomization",
        &["data_loss_incidents::", "stories::", "tenancy::", "restarts::"],
    ),
    (
        "operator/runtime/src/approval_plan",
        &[
            "data_loss_incidents::",
            "stories::deletion_budget",
            "stories::plan",
            "releases::deletion_budget",
            "releases::plans",
            "releases_with_own_windlass::plan_matrix",
            "restarts::",
            "cli::",
        ],
    ),
    (
        "operator/runtime/src/deletion_order",
        &[
            "stories::reverse_deletion",
            "stories::deletion_policies",
            "tenant_dependents_delay_platform_deletions::",
            "releases_with_own_windlass::dependency_matrix",
            "reverse_deletion_beside_flux::",
        ],
    ),
    (
        "operator/runtime/src/freeze",
        &[
            "stories::freeze",
            "releases::freezes",
            "releases_with_own_windlass::freeze_matrix",
            "stories::staged_rollouts",
            "images::automation",
            "restarts::",
            "api_server_faults::",
            "cli::",
        ],
    ),
    (
        "operator/runtime/src/pull_request_approval_cache",
        &["notification_services::pull_request_approval", "stories::deletion_budget"],
    ),
    (
        "operator/source/src/freeze_calendar",
        &["stories::freeze", "restarts::", "api_server_faults::", "cli::"],
    ),
    (
        "operator/source/src/pull_request_approval",
        &["notification_services::pull_request_approval"],
    ),
    (
        "operator/kustomize/src/kustomization/changes_in_reviewed_pull_request",
        &["notification_services::pull_request_approval"],
    ),
    (
        "operator/kustomize/src/kustomization/removals_in_reviewed_pull_request",
        &["notification_services::pull_request_approval"],
    ),
    (
        "operator/source/src/git_repository/commit_files",
        &["notification_services::pull_request_approval"],
    ),
    (
        "operator/runtime/src/lifecycle",
        &[
            "stories::lifecycles",
            "releases::lifecycle",
            "releases_with_own_windlass::lifecycle",
            "releases::helmfile_lifecycles",
            "releases::approvals",
        ],
    ),
    (
        "operator/quarantine/",
        &[
            "stories::quarantine",
            "releases::quarantines",
            "images::quarantines",
            "restarts::",
            "cli::",
        ],
    ),
    (
        "operator/changes/",
        &["stories::change_sets", "stories::on_call_rollback", "notifications::", "cli::"],
    ),
    (
        "operator/rollout/",
        &["stories::staged_rollouts", "stories::helmfile", "restarts::", "cli::"],
    ),
    (
        "operator/source/src/oci_repository",
        &[
            "data_loss_incidents::wrong_fetch_answers",
            "oci::",
            "stories::oci",
            "stories::image_signatures",
        ],
    ),
    ("operator/notification/src/provider", &["notifications::", "notification_services::"]),
    (
        "operator/notification/src/receiver",
        &[
            "notifications::receivers",
            "releases::admission_webhooks",
            "stories::suspension_owner_and_expiry",
        ],
    ),
    ("operator/helm/src/release_runner", &["releases::", "releases_with_own_windlass::", "cli::"]),
    (
        "engines/cause/",
        &["cli::", "notifications::incidents", "sources::hostile_servers::addresses"],
    ),
    ("engines/changes/", &["stories::change_sets", "stories::on_call_rollback"]),
    ("engines/crdguard/", &["crd_exports::", "stories::crd", "releases::crd"]),
    ("engines/envsubst/", &["stories::substitution"]),
    ("engines/graph-layout/", &["cli::windlass_ui"]),
    ("engines/health/", &["stories::health", "cli::", "notifications::incidents"]),
    ("engines/helm/", &["releases::", "releases_with_own_windlass::"]),
    ("engines/helmfile/", &["releases::helmfile", "stories::helmfile"]),
    ("engines/image/", &["images::"]),
    ("engines/kustomize/", &["stories::"]),
    (
        "engines/lifecycle/",
        &[
            "stories::lifecycles",
            "releases::lifecycle",
            "releases_with_own_windlass::lifecycle",
            "releases::approvals",
        ],
    ),
    ("engines/notify/", &["notifications::", "notification_services::"]),
    (
        "engines/plan/",
        &[
            "cli::diff",
            "cli::build_and_diff",
            "cli::diff_predictions",
            "notification_services::plan_check",
        ],
    ),
    (
        "engines/quarantine/",
        &["stories::quarantine", "releases::quarantines", "images::quarantines", "restarts::"],
    ),
    ("engines/release/", &["releases::", "releases_with_own_windlass::"]),
    ("engines/rollout/", &["stories::staged_rollouts"]),
    (
        "engines/signatures/",
        &["stories::signing_and_encryption", "stories::verif", "stories::image_signatures"],
    ),
    (
        "engines/sops/",
        &[
            "stories::decryption",
            "stories::signing_and_encryption",
            "cloud_credentials::",
            "releases::helmfile_secrets",
        ],
    ),
    ("engines/sprig/", &["releases::", "releases_with_own_windlass::"]),
    ("tools/", &[]),
    ("xtask/", &[]),
    ("deploy/gitlab/", &[]),
    ("docs/", &[]),
    ("docs/getting-started", &["installation"]),
    ("e2e/charts/", &[]),
    ("e2e/conformance/", &[]),
    ("e2e/fuzz/", &[]),
    ("e2e/overlays/", &[]),
];

/// The packages and stories that a run tests.
#[derive(Debug)]
pub(super) struct TestSelection {
    /// The packages to test. None means all of them.
    packages: Option<BTreeSet<String>>,
    /// The beginnings of the names of stories to test. None means all of them.
    stories: Option<BTreeSet<&'static str>>,
}

impl TestSelection {
    /// Tests all packages and stories.
    pub(super) fn everything() -> Self {
        Self { packages: None, stories: None }
    }

    pub(super) fn is_everything(&self) -> bool {
        self.packages.is_none()
    }

    pub(super) fn has_stories(&self) -> bool {
        self.stories.as_ref().is_none_or(|stories| !stories.is_empty())
    }

    pub(super) fn has_story(&self, name: &str) -> bool {
        let stories = self.stories.as_ref();
        stories.is_none_or(|stories| stories.iter().any(|start| name.starts_with(start)))
    }

    /// Whether a package is tested.
    pub(super) fn has_package(&self, name: &str) -> bool {
        self.packages.as_ref().is_none_or(|packages| packages.contains(name))
    }

    /// The packages to compile. An empty list stands for the whole workspace.
    pub(super) fn packages(&self) -> Vec<String> {
        let mut packages: Vec<String> = self.packages.iter().flatten().cloned().collect();
        if packages.is_empty() {
            return packages;
        }
        if self.has_stories() {
            packages.push(E2E.0.to_owned());
        }
        if STARTING_WINDLASS.iter().any(|name| packages.iter().any(|it| it == name)) {
            packages.push(WINDLASS.to_owned());
        }
        packages.sort();
        packages.dedup();
        packages
    }
}

/// The packages and stories that the changes since a commit can break. Changes that are not committed count, too.
///
/// # Errors
/// Git or cargo fails.
pub(super) fn selection(revision: &str) -> anyhow::Result<TestSelection> {
    let metadata =
        MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec()?;
    let mut paths = git(&["diff", "--name-only", "--no-renames", revision])?;
    paths.extend(git(&["ls-files", "--others", "--exclude-standard"])?);
    let selection = concerned(&WorkspaceGraph::of(&metadata), &paths);
    let say = |all: Option<String>| all.unwrap_or_else(|| "all".to_owned());
    let packages =
        selection.packages.as_ref().map(|it| it.iter().cloned().collect::<Vec<_>>().join(" "));
    let stories =
        selection.stories.as_ref().map(|it| it.iter().copied().collect::<Vec<_>>().join(" "));
    eprintln!("{} files changed since {revision}", paths.len());
    eprintln!("packages: {}\nstories:  {}", say(packages), say(stories));
    Ok(selection)
}

fn git(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let output = output.context("git cannot be started")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// The packages of the workspace and their dependencies.
#[derive(Debug, Default)]
struct WorkspaceGraph {
    /// Folders below the root, and the package in each.
    folders: BTreeMap<String, String>,
    /// For each package, the packages that depend on it.
    users: BTreeMap<String, BTreeSet<String>>,
}

impl WorkspaceGraph {
    fn of(metadata: &Metadata) -> Self {
        let mut graph = Self::default();
        for package in &metadata.packages {
            let folder = package
                .manifest_path
                .parent()
                .and_then(|it| it.strip_prefix(&metadata.workspace_root).ok());
            let folder = folder.map(|it| it.as_str().to_owned()).unwrap_or_default();
            graph.folders.insert(folder, package.name.to_string());
            for dependency in package.dependencies.iter().filter(|it| it.path.is_some()) {
                graph
                    .users
                    .entry(dependency.name.clone())
                    .or_default()
                    .insert(package.name.to_string());
            }
        }
        graph
    }

    /// The package to which a file belongs. It is the package that reads the file's folder, or else the one of the deepest
    /// folder above the file. `None` if the file belongs to no package.
    fn package(&self, path: &str) -> Option<&String> {
        let reader = READERS.iter().find(|(folder, _)| path.starts_with(folder));
        if let Some((_, reader)) = reader {
            return self.folders.values().find(|package| package == reader);
        }
        let above = self.folders.iter().filter(|(folder, _)| {
            !folder.is_empty()
                && path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
        });
        let deepest = above.max_by_key(|(folder, _)| folder.len());
        let is_of_root = OF_ROOT.iter().any(|folder| path.starts_with(folder));
        let root = || self.folders.get("").filter(|_| is_of_root || path == "Cargo.toml");
        deepest.map(|(_, package)| package).or_else(root)
    }

    /// The packages, and all packages that depend on them.
    fn with_users(&self, changed: BTreeSet<String>) -> BTreeSet<String> {
        let mut waiting: Vec<String> = changed.iter().cloned().collect();
        let mut all = changed;
        while let Some(package) = waiting.pop() {
            for user in self.users.get(&package).into_iter().flatten() {
                if all.insert(user.clone()) {
                    waiting.push(user.clone());
                }
            }
        }
        all
    }
}

fn concerned(graph: &WorkspaceGraph, paths: &[String]) -> TestSelection {
    let is_whole = |path: &&String| {
        let settings = ["Cargo.", ".cargo", ".ci", "rust-toolchain", "clippy.toml"];
        settings.iter().any(|start| path.starts_with(start))
    };
    if paths.iter().any(|path| is_whole(&path)) {
        return TestSelection::everything();
    }
    let changed = paths.iter().filter_map(|path| graph.package(path)).cloned().collect();
    let mut packages = graph.with_users(changed);
    packages.insert(TIDY.to_owned());
    let mut stories = Some(BTreeSet::new());
    for path in paths {
        let place = PLACES
            .iter()
            .filter(|(place, _)| path.starts_with(place))
            .max_by_key(|(place, _)| place.len());
        match (place, graph.package(path)) {
            (Some((_, names)), _) => stories.iter_mut().for_each(|all| all.extend(*names)),
            // The file is a page or a setting that belongs to no package.
            (None, None) => {}
            (None, Some(_)) if path.starts_with("e2e/tests/") => {
                let module = path.trim_start_matches("e2e/tests/").split(['/', '.']).next();
                let known = module.and_then(|module| {
                    MODULES.into_iter().find(|it| it.trim_end_matches(':') == module)
                });
                match known {
                    Some(known) => stories.iter_mut().for_each(|all| all.extend([known])),
                    None => stories = None,
                }
            }
            (None, Some(_)) => stories = None,
        }
    }
    TestSelection { packages: Some(packages), stories }
}

/// The modules of stories.
pub(super) const MODULES: [&str; 31] = [
    "api_server_faults::",
    "bootstrap::",
    "bootstrap_at_gitea::",
    "browser::",
    "bucket::",
    "charts::",
    "cli::",
    "cloud_credentials::",
    "crd_exports::",
    "data_loss_incidents::",
    "images::",
    "installation::",
    "leader::",
    "migration::",
    "migration_of_flux::",
    "nonsense_in_all_fields::",
    "notification_services::",
    "notifications::",
    "object_references::",
    "oci::",
    "releases::",
    "releases_with_own_windlass::",
    "restarts::",
    "reverse_deletion_beside_flux::",
    "shards::",
    "sources::",
    "stories::",
    "tenancy::",
    "tenant_dependents_delay_platform_deletions::",
    "test_bed::",
    "windlass_crds_removed::",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> WorkspaceGraph {
        let metadata =
            MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec();
        WorkspaceGraph::of(&metadata.unwrap())
    }

    fn of(paths: &[&str]) -> TestSelection {
        let paths: Vec<String> = paths.iter().map(|&path| path.to_owned()).collect();
        concerned(&graph(), &paths)
    }

    #[test]
    fn a_controller_concerns_the_program_and_its_own_stories() {
        let selection = of(&["operator/source/src/oci_repository/referenced_objects.rs"]);
        let packages = selection.packages.clone().unwrap();
        assert!(
            packages.contains("source-controller")
                && packages.contains("windlass")
                && packages.contains("xtask")
                && !packages.contains("helm")
        );
        assert!(
            selection.has_story("oci::a_tag_moves") && !selection.has_story("releases::drift::a")
        );
    }

    #[test]
    fn an_engine_concerns_the_crates_that_use_it() {
        let packages = of(&["engines/goyaml/src/lib.rs"]).packages.unwrap();
        for name in ["goyaml", "helm", "windlass", "conformance", "xtask"] {
            assert!(packages.contains(name), "{name}");
        }
        assert!(of(&["engines/goyaml/src/lib.rs"]).stories.is_none());
    }

    #[test]
    fn a_page_concerns_the_tidy_tests_only_and_a_lock_file_everything() {
        let page = of(&["CONTRIBUTING.md"]);
        assert_eq!(page.packages.clone().unwrap(), BTreeSet::from(["xtask".to_owned()]));
        assert!(!page.has_stories());
        for path in ["Cargo.lock", "rust-toolchain.toml", "clippy.toml"] {
            assert!(of(&[path]).is_everything(), "{path}");
        }
    }

    #[test]
    fn what_windlass_is_installed_from_concerns_all_stories() {
        for path in ["deploy/chart/files/base/rbac.yaml", "config/samples/kustomization.yaml"] {
            let selection = of(&[path]);
            assert!(selection.stories.is_none() && selection.has_package("windlass"), "{path}");
        }
    }

    #[test]
    fn recorded_charts_concern_the_package_that_reads_them_and_no_story() {
        let selection = of(&["e2e/charts/web/case.yaml"]);
        assert!(selection.has_package("conformance") && !selection.has_stories());
        let packages = selection.packages();
        assert!(packages.contains(&"windlass".to_owned()) && !packages.contains(&"e2e".to_owned()));
    }

    #[test]
    fn a_story_concerns_its_module() {
        let selection = of(&["e2e/tests/releases/drift.rs"]);
        assert!(
            selection.has_story("releases::drift::a")
                && !selection.has_story("releases_with_own_windlass::a")
        );
        assert!(of(&["e2e/src/harness/story.rs"]).stories.is_none());
    }

    #[test]
    fn every_place_exists_and_every_name_is_one_of_a_story() {
        let lines = std::fs::read_to_string(root().join("e2e/tests/main.rs")).unwrap();
        let modules: Vec<String> = lines
            .lines()
            .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'))
            .map(|it| format!("{it}::"))
            .collect();
        assert_eq!(modules, MODULES);
        for (place, names) in PLACES {
            let (folder, start) = place.rsplit_once('/').unwrap();
            let mut entries =
                std::fs::read_dir(root().join(folder)).unwrap().map(|it| it.unwrap().file_name());
            assert!(entries.any(|name| name.to_string_lossy().starts_with(start)), "{place}");
            for name in names {
                let module = name.split("::").next().unwrap();
                assert!(MODULES.iter().any(|it| it.starts_with(module)), "{name}");
                let Some(file) = name.split("::").nth(1).filter(|file| !file.is_empty()) else {
                    continue;
                };
                let mut files = std::fs::read_dir(root().join("e2e/tests").join(module)).unwrap();
                assert!(
                    files.any(|it| it.unwrap().file_name().to_string_lossy().starts_with(file)),
                    "{name}"
                );
            }
        }
    }
}
