//! Tests which repository is read, and where the search in it begins.

use super::*;

/// A bare clone of a repository.
fn bare_clone(repository: &FleetRepository) -> FleetRepository {
    let clone = tempfile::tempdir().unwrap();
    repository.git(&["clone", "-q", "--bare", ".", clone.path().to_str().unwrap()]);
    FleetRepository(clone)
}

#[test]
fn revisions_of_a_bare_repository_are_compared_without_a_work_tree() {
    let repository = FleetRepository::new(&[("cluster/map.yaml", &config_map("map", "1"))]);
    repository.commit(&[("cluster/map.yaml", &config_map("map", "2"))]);
    let bare = bare_clone(&repository);
    let plan = bare.plan();
    assert_eq!(plan, repository.plan());
    assert_eq!(plan.summary.changed, 1);
    let error = bare.try_plan("cluster", &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        "a bare repository has no work tree: name the revision with the change with --head"
    );
    assert!(LocalGitRepository::around(bare.0.path()).unwrap().work_tree().is_err());
}

#[test]
fn files_like_those_of_a_bare_repository_do_not_choose_which_repository_is_read() {
    let repository = FleetRepository::new(&[("cluster/map.yaml", &config_map("map", "1"))]);
    let decoy = bare_clone(&repository);
    let folder = repository.0.path().join("cluster/decoy");
    fs::rename(decoy.0.path(), &folder).unwrap();
    let found = LocalGitRepository::around(&folder).unwrap();
    assert!(!found.is_bare());
    assert_eq!(found.path_of(&folder).unwrap().as_str(), "cluster/decoy");
}

#[test]
fn a_flux_instance_names_the_entry_point_of_both_revisions() {
    let instance = |path: &str| {
        format!(
            "apiVersion: fluxcd.controlplane.io/v1\nkind: FluxInstance\n\
             metadata: {{name: flux, namespace: flux-system}}\nspec: {{sync: {{path: {path}}}}}\n"
        )
    };
    let repository = FleetRepository::new(&[
        ("cluster/map.yaml", &config_map("map", "1")),
        ("decoy/map.yaml", &config_map("map", "1")),
        ("instance/flux.yaml", &instance("./cluster")),
    ]);
    repository.commit(&[("cluster/map.yaml", &config_map("map", "2"))]);
    repository.commit(&[("instance/flux.yaml", &instance("./decoy"))]);
    let bare = bare_clone(&repository);
    let read = LocalGitRepository::around(bare.0.path()).unwrap();
    let manifests = |revision: &str| {
        let files = read.revision(revision).unwrap().artifact(None).unwrap();
        ApplierManifests::of(&files.files)
    };
    let entry = common_entry(&manifests("HEAD~2"), &manifests("HEAD~1")).unwrap();
    assert_eq!(entry, ApplierSearchRoot::named(RelPath::parse("cluster").unwrap()));
    let error = common_entry(&manifests("HEAD~1"), &manifests("HEAD")).unwrap_err().to_string();
    assert!(error.contains("`cluster` first in the base, and `decoy` in the head"), "{error}");
}
