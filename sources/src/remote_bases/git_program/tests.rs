//! Repositories on this disk, checked out by the real program through builds and alone.

use std::fs;
use std::process::Command;

use kustomize::{BuildBudget, KustomizeBuildOptions, build};

use super::*;
use crate::workstation_build_files::WorkstationBuildFiles;

/// Runs the program without the Git configuration of the user who runs the tests.
fn git(folder: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(folder)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")])
        .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@example.com")])
        .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@example.com")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn commit(folder: &Path, files: &[(&str, &str)]) -> String {
    for (path, content) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    git(folder, &["add", "."]);
    git(folder, &["commit", "-qm", "change"]);
    git(folder, &["rev-parse", "HEAD"])
}

/// A repository with a base in a folder, of which the tag `v1` has another name than the branch.
fn repository() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q", "-b", "main"]);
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}";
    let base = "resources: [../other]";
    let other = "resources: [a.yaml]";
    commit(
        folder.path(),
        &[
            ("base/kustomization.yaml", base),
            ("other/kustomization.yaml", other),
            ("other/a.yaml", object),
        ],
    );
    git(folder.path(), &["tag", "v1"]);
    commit(folder.path(), &[("other/a.yaml", &object.replace("one", "two"))]);
    folder
}

fn built(disk: &WorkstationBuildFiles, resources: &str) -> Result<String, String> {
    let overlay = tempfile::tempdir().unwrap();
    let text = format!("namePrefix: my-\nresources: [{resources}]");
    fs::write(overlay.path().join("kustomization.yaml"), text).unwrap();
    let path = overlay.path().to_str().unwrap();
    let built = build(
        disk,
        path,
        &KustomizeBuildOptions::default(),
        &BuildBudget::default(),
        &mut Vec::new(),
    );
    built.and_then(|built| built.yaml()).map_err(|error| error.to_string())
}

#[test]
fn an_overlay_has_its_base_in_a_repository() {
    let repository = repository();
    let url = format!("file://{}", repository.path().display());
    let disk = WorkstationBuildFiles::default();
    let text = built(&disk, &format!("\"{url}//base\"")).unwrap();
    assert_eq!(text, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: my-two\n");
    let text = built(&disk, &format!("\"{url}//base?ref=v1\"")).unwrap();
    assert!(text.contains("name: my-one"), "{text}");
    let error = built(&disk, &format!("\"{url}//none\"")).unwrap_err();
    assert!(error.contains("/none: no such file or directory"), "{error}");
}

#[test]
fn a_base_does_not_leave_its_repository() {
    let repository = repository();
    fs::write(repository.path().join("base/kustomization.yaml"), "resources: [../..]").unwrap();
    std::os::unix::fs::symlink("/", repository.path().join("root")).unwrap();
    commit(repository.path(), &[]);
    let url = format!("file://{}", repository.path().display());
    let outside =
        built(&WorkstationBuildFiles::default(), &format!("\"{url}//base\"")).unwrap_err();
    assert!(outside.contains("must be within the repo"), "{outside}");
    let link = built(&WorkstationBuildFiles::default(), &format!("\"{url}//root\"")).unwrap_err();
    assert!(link.contains("refers to directory outside of repo"), "{link}");
}

#[test]
fn checkouts_are_removed_with_the_disk() {
    use kustomize::BuildFiles as _;
    let repository = repository();
    let url = format!("file://{}", repository.path().display());
    let disk = WorkstationBuildFiles::default();
    let path = disk.checkout(&RepositoryAddress::parse(&url).unwrap()).unwrap();
    assert!(Path::new(&path).join("base").is_dir());
    drop(disk);
    assert!(!Path::new(&path).exists());
}

#[test]
fn a_submodule_comes_too_unless_it_is_not_wanted() {
    let outer = repository();
    let inner = repository();
    let from = inner.path().to_str().unwrap();
    let allowed = ["-c", "protocol.file.allow=always"];
    let add = [&allowed[..], &["submodule", "--quiet", "add", from, "inner"]].concat();
    git(outer.path(), &add);
    commit(outer.path(), &[]);
    let url = format!("file://{}", outer.path().display());
    let without = RepositoryAddress::parse(&format!("{url}?submodules=false")).unwrap();
    let clone = checkout(&without).unwrap();
    assert_eq!(fs::read_dir(clone.path().join("inner")).unwrap().count(), 0);
    // Git itself refuses submodules on disks unless its configuration allows them.
    match checkout(&RepositoryAddress::parse(&url).unwrap()) {
        Ok(clone) => assert!(clone.path().join("inner/base").is_dir()),
        Err(error) => assert!(error.to_string().contains("submodule update --init --recursive")),
    }
}

#[test]
fn what_the_program_says_is_said() {
    let missing = RepositoryAddress::parse("file:///not/a/real/repo?ref=v1").unwrap();
    let error = checkout(&missing).unwrap_err().to_string();
    let program = program().unwrap();
    let begin = format!(
        "failed to run '{} fetch --depth=1 file:///not/a/real/repo v1': fatal: ",
        program.display()
    );
    assert!(error.starts_with(&begin), "{error}");
    assert!(error.ends_with(": exit status 128"), "{error}");
}

#[test]
fn a_reference_is_no_option_of_the_program() {
    let folder = repository();
    let trace = folder.path().join("run");
    let option = format!("--upload-pack=touch%20{}%3B", trace.display());
    let address = format!("file://{}?ref={option}", folder.path().display());
    let error = checkout(&RepositoryAddress::parse(&address).unwrap()).unwrap_err();
    assert!(error.to_string().contains("is not a branch, tag or commit"), "{error}");
    assert!(!trace.exists());
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let slow = folder.path().join("git");
    testbed::script::write_executable(&slow, "#!/bin/sh\nexec sleep 600\n").unwrap();
    let git =
        GitProgram { program: &slow, folder: folder.path(), timeout: Duration::from_millis(1500) };
    let error = git.run(&["init"]).unwrap_err().to_string();
    assert_eq!(error, format!("hit 1.5s timeout running '{} init'", slow.display()));
}
