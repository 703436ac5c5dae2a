//! Limits which files may delete objects without the removal gate (`engines/reconcile/src/removal_gate.rs`). Each
//! file is listed with its reason, so a new one needs a decision.

use super::{assert_none, files, read};

/// A call that deletes without the removal gate, and the files that may have it.
struct UngatedDeletionCall {
    call: &'static str,
    files: &'static [&'static str],
}

const UNGATED: [UngatedDeletionCall; 2] = [
    UngatedDeletionCall {
        call: ".delete_unmanaged(",
        files: &[
            // The user of the command names the objects to delete.
            "cli/installation/src/migrate/migration_backup.rs",
            "cli/installation/src/uninstall.rs",
            // These objects belong to windlass itself.
            "operator/runtime/src/audit/retention.rs",
            "operator/runtime/src/crd_guard/custom_resource_export.rs",
            "operator/notification/src/incident/incident_store.rs",
            "operator/runtime/src/lifecycle.rs",
            "operator/runtime/src/approval_plan.rs",
            "operator/quarantine/src/lib.rs",
            "operator/changes/src/change_set_writer.rs",
            // These are Helm's release records. They are old, or belong to a removal that has ended.
            "operator/helm/src/release_runner/storage.rs",
            // These sources were made for one HelmRelease. Nothing that was applied is deleted with them.
            "operator/helm/src/helm_release/chart_template.rs",
            "operator/source/src/http_archive/external_artifact.rs",
            // Helm's policy deletes the objects of hooks. The gate permitted the operation that runs the hook.
            "operator/helm/src/release_runner/hooks.rs",
        ],
    },
    // A journal shows that the operation is already under way.
    UngatedDeletionCall {
        call: "RemovalGate::permit_under_way(",
        files: &["engines/release/src/operation/next_step.rs"],
    },
];

/// Files with such a call that are not listed, and files that are listed without having one.
fn faults(ungated: &UngatedDeletionCall, texts: &[(String, String)]) -> Vec<String> {
    let UngatedDeletionCall { call, files } = ungated;
    let calling: Vec<&str> = texts
        .iter()
        .filter(|(_, text)| text.contains(call))
        .map(|(file, _)| file.as_str())
        .collect();
    let unlisted = calling.iter().filter(|file| !files.contains(file)).map(|file| {
        format!(
            "{file}: `{call}` asks no gate; take a RemovalPermit, or list the file with a reason"
        )
    });
    let in_vain = files.iter().filter(|file| !calling.contains(file));
    unlisted.chain(in_vain.map(|file| format!("{file}: has no `{call}`"))).collect()
}

#[test]
fn only_listed_files_delete_without_asking_the_gate() {
    let all = ["src", "cli", "operator", "engines", "web"]
        .into_iter()
        .flat_map(|folder| files(folder, ".rs"));
    let texts: Vec<(String, String)> = all.map(|file| (file.clone(), read(&file))).collect();
    let found: Vec<String> = UNGATED.iter().flat_map(|it| faults(it, &texts)).collect();
    assert_none(&found);
}

#[test]
fn a_file_that_is_not_listed_and_one_that_is_listed_in_vain_are_found() {
    let ungated = UngatedDeletionCall { call: ".delete_unmanaged(", files: &["src/a.rs"] };
    let text = |file: &str, text: &str| (file.to_owned(), text.to_owned());
    let listed = text("src/a.rs", "cluster.delete_unmanaged(&it)");
    assert!(faults(&ungated, std::slice::from_ref(&listed)).is_empty());
    let other = text("src/b.rs", "cluster.delete_unmanaged(&it)");
    assert_eq!(faults(&ungated, &[listed, other]).len(), 1);
    assert_eq!(faults(&ungated, &[text("src/a.rs", "")]).len(), 1);
}
