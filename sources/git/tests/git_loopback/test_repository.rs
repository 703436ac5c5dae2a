//! Repositories to fetch from, made by the real `git`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A bare repository below a folder that servers serve.
pub(crate) struct BareRepository {
    pub(crate) root: TempDir,
}

/// Runs `git` without anything of the user's or the system's.
pub(crate) fn isolated(program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_COUNT", "2")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .env("GIT_CONFIG_KEY_1", "init.defaultBranch")
        .env("GIT_CONFIG_VALUE_1", "main")
        .env("GIT_AUTHOR_NAME", "Ada")
        .env("GIT_AUTHOR_EMAIL", "ada@example.com")
        .env("GIT_AUTHOR_DATE", "1700000000 +0100")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.com")
        .env("GIT_COMMITTER_DATE", "1700000001 +0100");
    command
}

impl BareRepository {
    /// A repository without commits, served as `/app.git`.
    pub(crate) fn empty() -> Self {
        let repository = Self { root: tempfile::tempdir().unwrap() };
        repository.git(&["init", "--quiet", "--bare", "."], b"");
        repository
    }

    /// Three commits on `main`, the first of them tagged `v1` (annotated) and `light`,
    /// and one more on `side` that `main` does not lead to.
    pub(crate) fn with_history() -> Self {
        let repository = Self::empty();
        let one = repository.commit(&[("100644", "a.txt", b"one")], "first\n\nmore", None, "main");
        repository.git(&["tag", "-a", "-m", "a tag", "v1", &one], b"");
        repository.git(&["tag", "light", &one], b"");
        let two = repository.commit(&[("100644", "a.txt", b"two")], "second", Some(&one), "main");
        repository.commit(&[("100644", "s", b"side")], "aside", Some(&one), "side");
        repository.commit(
            &[
                ("100644", "a.txt", b"three"),
                ("100644", "a/z.yaml", b"z: 1\n"),
                ("100755", "a/run.sh", b"#!/bin/sh\n"),
                ("120000", "a/link", b"../a.txt"),
                ("100644", "B", b""),
            ],
            "third",
            Some(&two),
            "main",
        );
        repository
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.root.path().join("app.git")
    }

    /// Runs `git` in the repository and returns what it prints.
    pub(crate) fn git(&self, arguments: &[&str], input: &[u8]) -> String {
        let path = self.path();
        std::fs::create_dir_all(&path).unwrap();
        run(isolated("git").args(arguments).current_dir(&path), input)
    }

    /// The commit of a name.
    pub(crate) fn commit_of(&self, name: &str) -> String {
        self.git(&["rev-parse", &format!("{name}^{{commit}}")], b"")
    }

    /// Stores an object as it is, however broken.
    pub(crate) fn object(&self, kind: &str, bytes: &[u8]) -> String {
        self.git(&["hash-object", "-w", "--literally", "-t", kind, "--stdin"], bytes)
    }

    /// Moves a branch to a new commit of files, given as mode, path and content.
    pub(crate) fn commit(
        &self,
        files: &[(&str, &str, &[u8])],
        message: &str,
        parent: Option<&str>,
        branch: &str,
    ) -> String {
        self.git(&["read-tree", "--empty"], b"");
        for (mode, path, content) in files {
            let id = self.object("blob", content);
            self.git(
                &["update-index", "--add", "--cacheinfo", &format!("{mode},{id},{path}")],
                b"",
            );
        }
        let tree = self.git(&["write-tree"], b"");
        self.commit_tree(&tree, message, parent, branch)
    }

    /// Moves a branch to a new commit of a tree.
    pub(crate) fn commit_tree(
        &self,
        tree: &str,
        message: &str,
        parent: Option<&str>,
        branch: &str,
    ) -> String {
        let mut arguments = vec!["commit-tree", tree, "-m", message];
        arguments.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        let id = self.git(&arguments, b"");
        self.git(&["update-ref", &format!("refs/heads/{branch}"), &id], b"");
        id
    }
}

/// Runs a program to its end and returns what it prints.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git and openssh-client are installed");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Makes a key pair at a path and returns the private key.
pub(crate) fn ssh_key(path: &Path, kind: &str, passphrase: &str) -> String {
    let bits = if kind == "rsa" { "2048" } else { "256" };
    run(
        Command::new("ssh-keygen")
            .args(["-q", "-t", kind, "-b", bits, "-C", "", "-N", passphrase, "-f"])
            .arg(path),
        b"",
    );
    std::fs::read_to_string(path).unwrap()
}
