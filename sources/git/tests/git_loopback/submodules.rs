//! Submodules and sparse checkouts.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use git::{
    Error, FetchedCheckout, GitLimits, RequestedCommitContent, SparseCheckout, TreeEntryKind,
};

use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::test_repository::BareRepository;
use crate::{FetchCase, main_branch};

/// Moves `main` to a commit of files and of links to other commits.
pub(crate) fn commit(
    repository: &BareRepository,
    files: &[(&str, &str)],
    links: &[(&str, &str)],
) -> String {
    repository.git(&["read-tree", "--empty"], b"");
    let add = |mode: &str, id: &str, path: &str| {
        let entry = format!("{mode},{id},{path}");
        repository.git(&["update-index", "--add", "--cacheinfo", &entry], b"");
    };
    for (path, content) in files {
        add("100644", &repository.object("blob", content.as_bytes()), path);
    }
    for (path, sha) in links {
        add("160000", sha, path);
    }
    let tree = repository.git(&["write-tree"], b"");
    repository.commit_tree(&tree, "a commit", None, "main")
}

pub(crate) fn modules(entries: &[(&str, &str)]) -> String {
    let entry = |(path, url): &(&str, &str)| {
        format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {url}\n")
    };
    entries.iter().map(entry).collect()
}

/// Serves a repository beside another, as `/<name>.git`.
pub(crate) fn beside(root: &BareRepository, name: &str, other: &BareRepository) {
    let target = root.root.path().join(format!("{name}.git"));
    let status = std::process::Command::new("cp").arg("-r").arg(other.path()).arg(target).status();
    assert!(status.unwrap().success());
}

fn serve(root: &Path) -> GitHttpServer {
    GitHttpServer::start(root, GitHttpServerBehavior::default())
}

pub(crate) fn whole() -> RequestedCommitContent {
    RequestedCommitContent { submodules: true, ..RequestedCommitContent::default() }
}

fn sparse(folders: &[&str]) -> SparseCheckout {
    SparseCheckout::parse(&folders.iter().map(|&folder| folder.to_owned()).collect::<Vec<_>>())
        .unwrap()
}

pub(crate) fn check_out(
    case: &FetchCase,
    content: &RequestedCommitContent,
) -> Result<FetchedCheckout, Error> {
    git::checkout(&case.remote, &main_branch(), content, &case.context)
}

/// Paths and contents, by path.
pub(crate) fn listed(checkout: &FetchedCheckout) -> Vec<String> {
    let shown = checkout.items().iter().map(|item| match item.kind {
        TreeEntryKind::Submodule => format!("{}/", item.path),
        TreeEntryKind::File { .. } | TreeEntryKind::Symlink => {
            let bytes = checkout.read(item).unwrap();
            format!("{}={}", item.path, String::from_utf8_lossy(&bytes))
        }
    });
    let mut shown: Vec<String> = shown.filter(|line| !line.contains(".gitmodules")).collect();
    shown.sort();
    shown
}

/// `app` with `lib` in it, which has `deep` in it, each by a relative URL.
fn nested() -> BareRepository {
    let app = BareRepository::empty();
    let lib = BareRepository::empty();
    let deep = BareRepository::empty();
    let deep_sha = commit(&deep, &[("d", "deep")], &[]);
    let said = modules(&[("in/deep", "../deep.git")]);
    let lib_sha = commit(&lib, &[(".gitmodules", &said), ("l", "lib")], &[("in/deep", &deep_sha)]);
    let said = modules(&[("vendor/lib", "../lib.git")]);
    commit(&app, &[(".gitmodules", &said), ("a", "app")], &[("vendor/lib", &lib_sha)]);
    // What happens there later does not count.
    commit(&lib, &[("l", "newer")], &[]);
    beside(&app, "lib", &lib);
    beside(&app, "deep", &deep);
    app
}

#[test]
fn submodules_come_at_their_commits_with_their_own_submodules() {
    let app = nested();
    let server = serve(app.root.path());
    let case = FetchCase::new(&server.url(), &[]);
    let checkout = check_out(&case, &whole()).unwrap();
    assert_eq!(
        listed(&checkout),
        [
            "a=app",
            "vendor/lib/",
            "vendor/lib/in/deep/",
            "vendor/lib/in/deep/d=deep",
            "vendor/lib/l=lib"
        ]
    );
    assert_eq!(checkout.revision.to_string(), format!("main@sha1:{}", app.commit_of("main")));
    drop(checkout);
    assert_eq!(std::fs::read_dir(case.scratch.path()).unwrap().count(), 0);

    let alone = check_out(&case, &RequestedCommitContent::default()).unwrap();
    assert_eq!(listed(&alone), ["a=app", "vendor/lib/"]);
}

#[test]
fn only_submodules_that_a_sparse_checkout_reaches_are_fetched() {
    let app = nested();
    let server = serve(app.root.path());
    let case = FetchCase::new(&server.url(), &[]);
    let part = |folders: &[&str]| {
        check_out(&case, &RequestedCommitContent { submodules: true, sparse: sparse(folders) })
    };
    assert_eq!(
        listed(&part(&["vendor/lib/in/"]).unwrap()),
        ["vendor/lib/in/deep/", "vendor/lib/in/deep/d=deep"]
    );
    let before = server.seen().len();
    assert_eq!(listed(&part(&["a"]).unwrap()), ["a=app"]);
    let asked = server.seen().len() - before;
    assert!(asked <= 3, "{asked} requests, some of them to submodules");
    let error = part(&["a", "vendor/other"]).unwrap_err();
    assert!(matches!(&error, Error::SparseMissing { folder, .. } if folder == "vendor/other"));
}

fn basic() -> String {
    format!("Basic {}", BASE64_STANDARD.encode("me:hunter2"))
}

const SECRET: [(&str, &str); 2] = [("username", "me"), ("password", "hunter2")];

#[test]
fn the_server_of_the_repository_gets_the_credentials_for_submodules_too() {
    let app = nested();
    let manners =
        GitHttpServerBehavior { authorization: Some(basic()), ..GitHttpServerBehavior::default() };
    let server = GitHttpServer::start(app.root.path(), manners);
    let checkout = check_out(&FetchCase::new(&server.url(), &SECRET), &whole()).unwrap();
    assert_eq!(listed(&checkout).len(), 5);
}

#[test]
fn no_other_server_gets_the_credentials() {
    let app = BareRepository::empty();
    let lib = BareRepository::empty();
    let sha = commit(&lib, &[("l", "lib")], &[]);
    let open = serve(lib.root.path());
    let closed =
        GitHttpServerBehavior { authorization: Some(basic()), ..GitHttpServerBehavior::default() };
    let closed = GitHttpServer::start(lib.root.path(), closed);
    let manners =
        GitHttpServerBehavior { authorization: Some(basic()), ..GitHttpServerBehavior::default() };
    let home = GitHttpServer::start(app.root.path(), manners);
    let case = FetchCase::new(&home.url(), &SECRET);

    let said = modules(&[("lib", &open.url())]);
    commit(&app, &[(".gitmodules", &said)], &[("lib", &sha)]);
    assert_eq!(listed(&check_out(&case, &whole()).unwrap()), ["lib/", "lib/l=lib"]);
    assert!(!open.seen().is_empty());
    assert!(open.seen().iter().all(|seen| seen.authorization.is_none()), "{:?}", open.seen());

    let said = modules(&[("lib", &closed.url())]);
    commit(&app, &[(".gitmodules", &said)], &[("lib", &sha)]);
    let error = check_out(&case, &whole()).unwrap_err();
    assert!(matches!(error, Error::BadSubmodule { .. }), "{error:?}");
    assert!(
        error.to_string().contains("only") && !error.to_string().contains("hunter2"),
        "{error}"
    );
    assert!(closed.seen().iter().all(|seen| seen.authorization.is_none()));

    // Not even if the server of the repository sends us there.
    let said = modules(&[("lib", "../moved/app.git")]);
    commit(&app, &[(".gitmodules", &said)], &[("lib", &sha)]);
    home.change(|manners| {
        manners.redirect_prefix = Some("/moved".to_owned());
        manners.redirect_to = Some(format!("http://{}", open.address));
    });
    let before = open.seen().len();
    assert_eq!(listed(&check_out(&case, &whole()).unwrap()), ["lib/", "lib/l=lib"]);
    let seen = open.seen().split_off(before);
    assert!(!seen.is_empty() && seen.iter().all(|seen| seen.authorization.is_none()), "{seen:?}");
}

#[test]
fn places_that_are_no_remotes_are_refused() {
    let app = BareRepository::empty();
    let server = serve(app.root.path());
    let case = FetchCase::new(&server.url(), &[]);
    let sha = "0123456789012345678901234567890123456789";
    let disk = format!("file://{}", app.path().display());
    let urls = [disk.as_str(), "ext::touch /tmp/windlass-must-not", "/etc", "../../../../etc"];
    for url in urls.into_iter().chain(["ssh://git@127.0.0.1/lib.git", "lib"]) {
        commit(&app, &[(".gitmodules", &modules(&[("lib", url)]))], &[("lib", sha)]);
        let error = check_out(&case, &whole()).unwrap_err();
        assert!(matches!(error, Error::BadSubmodule { .. }), "{url}: {error:?}");
    }
    for path in ["../lib", "/lib", "a/.git/hooks"] {
        let said = modules(&[("lib", "../lib.git"), (path, "../lib.git")]);
        commit(&app, &[(".gitmodules", &said)], &[("lib", sha)]);
        let error = check_out(&case, &whole()).unwrap_err();
        assert!(matches!(error, Error::BadSubmodule { .. }), "{path}: {error:?}");
    }
    assert!(server.seen().iter().all(|seen| seen.target.starts_with("/app.git/")));
}

#[test]
fn a_submodule_that_the_file_does_not_name_stays_empty() {
    let app = BareRepository::empty();
    let server = serve(app.root.path());
    let sha = "0123456789012345678901234567890123456789";
    commit(&app, &[("a", "app"), (".gitmodules", "[core]\n")], &[("lib", sha)]);
    let case = FetchCase::new(&server.url(), &[]);
    assert_eq!(listed(&check_out(&case, &whole()).unwrap()), ["a=app", "lib/"]);
}

#[test]
fn a_submodule_that_is_missing_is_named_with_the_reason() {
    let app = BareRepository::empty();
    let server = serve(app.root.path());
    let sha = "0123456789012345678901234567890123456789";
    commit(&app, &[(".gitmodules", &modules(&[("lib", "./none.git")]))], &[("lib", sha)]);
    let error = check_out(&FetchCase::new(&server.url(), &[]), &whole()).unwrap_err();
    let Error::Submodule { path, source } = &error else { panic!("{error:?}") };
    assert_eq!(path, "lib");
    assert!(matches!(**source, Error::RepositoryNotFound { .. }), "{source:?}");
}

#[test]
fn depth_number_size_and_time_have_limits() {
    // Each of the repositories has the one before it as a submodule.
    let app = BareRepository::empty();
    let mut sha = commit(&app, &[("end", "")], &[]);
    for level in 0..11 {
        beside(&app, &level.to_string(), &app);
        let said = modules(&[("in", &format!("../{level}.git"))]);
        sha = commit(&app, &[(".gitmodules", &said)], &[("in", &sha)]);
    }
    let server = serve(app.root.path());
    let too_large = |case: &FetchCase, what: &str| {
        let error = check_out(case, &whole()).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    };
    too_large(&FetchCase::new(&server.url(), &[]), "depth");

    let wide = BareRepository::empty();
    let small = BareRepository::empty();
    let sha = commit(&small, &[("x", &"x".repeat(1000))], &[]);
    let paths: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
    let said: Vec<_> = paths.iter().map(|path| (path.as_str(), "../small.git")).collect();
    let links: Vec<_> = paths.iter().map(|path| (path.as_str(), sha.as_str())).collect();
    commit(&wide, &[(".gitmodules", &modules(&said))], &links);
    beside(&wide, "small", &small);
    let server = serve(wide.root.path());
    let mut case = FetchCase::new(&server.url(), &[]);
    case.remote.limits = GitLimits { entries: 30, ..GitLimits::default() };
    too_large(&case, "entries");
    case.remote.limits = GitLimits { received: 3000, ..GitLimits::default() };
    let error = check_out(&case, &whole()).unwrap_err();
    let Error::Submodule { source, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(**source, Error::TooLarge { .. }), "{source:?}");
    case.remote.limits = GitLimits { total: 5000, ..GitLimits::default() };
    let checkout = check_out(&case, &whole()).unwrap();
    let read: Result<Vec<_>, _> = checkout.items().iter().map(|item| checkout.read(item)).collect();
    assert!(matches!(read, Err(Error::TooLarge { .. })));
}
