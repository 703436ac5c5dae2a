//! Sets values in the files of a repository. It says which files may change, and which changed files are committed.
//!
//! Elsewhere: the update, its markers and values (engine `image`), fetching the files (`push_round_base`), committing them
//! (`push_round_commits`).

use std::collections::{BTreeMap, BTreeSet};

use git::TreeEntryKind;
use git::push::{GitFileChange, GitFileMode};
use image::{
    CheckoutEntryType, CheckoutFiles, FileUpdate, FileUpdateRequest, ImageSetterValues,
    UpdateResult,
};
use windlass_runtime::audit::cut;

/// Files and markers without effect that are named.
const MAX_LISTED_FINDINGS: usize = 10;

/// The most bytes of the message about one finding.
const MAX_FINDING_BYTES: usize = 300;

/// Bytes of the targets of all symbolic links of a repository.
const MAX_LINK_BYTES: usize = 16 << 20;

/// The changes by an update to the files of a repository.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RewrittenFiles {
    /// The changes, by the paths of the files from the root.
    pub(super) changes: BTreeMap<String, GitFileChange>,
    /// The values that change.
    pub(super) result: UpdateResult,
    /// Files that were left out and markers that set nothing.
    pub(super) findings: IgnoredMarkers,
    /// The places of tags of verified images that would have no digest, for people. If there are any, nothing may be
    /// committed.
    pub(super) without_digest: Vec<String>,
}

/// Files that were left out and markers that set nothing, for people. Only the first ones are kept, so that a round can hold
/// the findings of all its automations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct IgnoredMarkers {
    pub(super) listed: Vec<String>,
    /// The number of further findings.
    more: usize,
}

impl IgnoredMarkers {
    pub(super) fn of(findings: &[String]) -> Self {
        let listed = findings.iter().take(MAX_LISTED_FINDINGS).map(|it| shown(it)).collect();
        Self { listed, more: findings.len().saturating_sub(MAX_LISTED_FINDINGS) }
    }

    /// The message about the findings. Empty if there are none.
    pub(super) fn text(&self) -> String {
        let Self { listed, more } = self;
        match *more {
            _ if listed.is_empty() => String::new(),
            0 => format!("markers without effect: {}", listed.join("; ")),
            more => format!("markers without effect: {}; and {more} more", listed.join("; ")),
        }
    }
}

/// A text of a repository for statuses, logs and events.
pub(super) fn shown(text: &str) -> String {
    cut(&text.replace(char::is_control, " "), MAX_FINDING_BYTES)
}

/// The files of a repository, and the paths that are updated.
pub(super) struct RepositoryFiles<'f> {
    /// All files, links and submodules by their paths.
    pub(super) kinds: &'f BTreeMap<&'f str, TreeEntryKind>,
    /// `spec.update.path`.
    pub(super) path: &'f str,
    /// Policies that the selector leaves out, as `namespace:name`. Their markers belong to other automations.
    pub(super) others: &'f BTreeSet<String>,
    /// Policies whose images have to be verified and whose latest version is not, as `namespace:name`, and why.
    pub(super) unverified: &'f BTreeMap<String, String>,
}

impl RepositoryFiles<'_> {
    /// Sets values at markers. `read` returns the bytes of a file or the target of a link.
    ///
    /// # Errors
    /// The outcome says in Flux's words why nothing is updated.
    pub(super) fn rewrite(
        &self,
        setters: &ImageSetterValues,
        read: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<RewrittenFiles, String> {
        let checkout = self.checkout(&read)?;
        let Self { path, others, unverified, .. } = self;
        let request = FileUpdateRequest { path, setters, others, unverified };
        let FileUpdate { files, result, findings, without_digest, .. } =
            request.run(&checkout, read)?;
        let changes = files.into_iter().map(|(path, text)| {
            let bytes = text.into_bytes();
            (path, GitFileChange::Write { bytes, mode: GitFileMode::AsBefore })
        });
        let findings = IgnoredMarkers::of(&findings);
        Ok(RewrittenFiles { changes: changes.collect(), result, findings, without_digest })
    }

    /// The files and links of the repository. Files in a submodule belong to another repository.
    fn checkout(
        &self,
        read: &impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<CheckoutFiles, String> {
        let mut entries = BTreeMap::new();
        let mut link_bytes = 0;
        for (path, kind) in self.kinds {
            let entry = match kind {
                TreeEntryKind::File { .. } => CheckoutEntryType::File,
                TreeEntryKind::Symlink => {
                    let target = read(path)?;
                    link_bytes += target.len();
                    if link_bytes > MAX_LINK_BYTES {
                        return Err(format!(
                            "the targets of the symbolic links together exceed {MAX_LINK_BYTES} bytes"
                        ));
                    }
                    CheckoutEntryType::Link(String::from_utf8_lossy(&target).into_owned())
                }
                TreeEntryKind::Submodule => continue,
            };
            entries.insert((*path).to_owned(), entry);
        }
        Ok(CheckoutFiles::new(entries))
    }
}

#[cfg(test)]
mod tests {
    use image::{ImageRef, PolicyResult};

    use super::*;

    const WEB: &str = "image: r.io/web:1 # {\"$imagepolicy\": \"apps:web\"}\n";

    fn setters() -> ImageSetterValues {
        let [name, tag, digest] = ["r.io/web", "2", ""].map(str::to_owned);
        let latest = Some(ImageRef { name, tag, digest });
        let policy = |name: &str, latest: Option<ImageRef>| PolicyResult {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
            latest,
        };
        ImageSetterValues::new(&[policy("web", latest), policy("new", None)]).unwrap()
    }

    fn rewrite(files: &[(&str, &str)], path: &str) -> Result<RewrittenFiles, String> {
        let content: BTreeMap<&str, &str> =
            files.iter().map(|(path, text)| (path.trim_end_matches('@'), *text)).collect();
        let kind = |path: &str| match path.ends_with('@') {
            true => TreeEntryKind::Symlink,
            false => TreeEntryKind::File { is_executable: false },
        };
        let kinds = files.iter().map(|(path, _)| (path.trim_end_matches('@'), kind(path)));
        let kinds = kinds.collect();
        let others = BTreeSet::from(["apps:db".to_owned()]);
        let unverified = BTreeMap::from([("apps:new".to_owned(), "no key".to_owned())]);
        let files =
            RepositoryFiles { kinds: &kinds, path, others: &others, unverified: &unverified };
        files.rewrite(&setters().requiring_digests(["apps:web".to_owned()]), |path| {
            let text = content.get(path).ok_or_else(|| format!("{path} is not there"))?;
            Ok(text.as_bytes().to_vec())
        })
    }

    fn written(files: &RewrittenFiles) -> Vec<(&str, String)> {
        let text = |change: &GitFileChange| match change {
            GitFileChange::Write { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
            GitFileChange::Remove => "removed".to_owned(),
        };
        files.changes.iter().map(|(path, change)| (path.as_str(), text(change))).collect()
    }

    #[test]
    fn values_at_markers_are_set_in_the_files_of_the_path_only() {
        let expected = WEB.replace("web:1", "web:2");
        let all = [("apps/a.yaml", WEB), ("apps/b.txt", WEB), ("infra/c.yaml", WEB)];
        let files = rewrite(&all, "./apps").unwrap();
        assert_eq!(written(&files), [("apps/a.yaml", expected.clone())]);
        let changes = files.result.changes();
        let [change] = changes[..] else { unreachable!("one value changes") };
        assert_eq!(change.setter, "apps:web");
        assert_eq!(
            (change.old_value.as_str(), change.new_value.as_str()),
            ("r.io/web:1", "r.io/web:2")
        );
        assert_eq!(written(&rewrite(&all, "").unwrap()).len(), 2);
        assert!(rewrite(&[("a.yaml", expected.as_str())], "").unwrap().changes.is_empty());
        let error = rewrite(&all, "none").unwrap_err();
        assert_eq!(error, "walking path for files: lstat /none: no such file or directory");
    }

    #[test]
    fn a_tag_of_a_verified_image_does_not_stand_alone() {
        let marked = |part: &str| WEB.replace("apps:web", &format!("apps:web{part}"));
        let alone = marked(":tag");
        let both = format!("{alone}---\n{}", marked(":digest"));
        let files = [("a.yaml", alone.as_str()), ("b.yaml", both.as_str()), ("c.yaml", WEB)];
        let expected =
            "a.yaml has a marker `apps:web:tag` and none for `apps:web` or `apps:web:digest`";
        assert_eq!(rewrite(&files, "").unwrap().without_digest, [expected]);
    }

    #[test]
    fn a_link_is_followed_inside_of_the_repository_and_not_out_of_it() {
        let expected = WEB.replace("web:1", "web:2");
        let all = [
            ("apps/in.yaml@", "../base/text"),
            ("apps/out.yaml@", "../../etc/passwd.yaml"),
            ("apps/root.yaml@", "/etc/passwd.yaml"),
            ("base/text", WEB),
        ];
        let files = rewrite(&all, "apps").unwrap();
        assert_eq!(written(&files), [("base/text", expected)]);
        let out = "the symbolic link leads out of the repository";
        let findings = ["apps/out.yaml", "apps/root.yaml"].map(|path| format!("{path}: {out}"));
        assert_eq!(files.findings.listed, findings);
        let target = "x".repeat(MAX_LINK_BYTES + 1);
        let error = rewrite(&[("a.yaml@", target.as_str())], "").unwrap_err();
        assert!(error.contains("symbolic links together exceed"), "{error}");
    }

    #[test]
    fn markers_that_set_nothing_are_found_unless_another_automation_has_their_policy() {
        let marked = |policy: &str| format!("image: x:1 # {{\"$imagepolicy\": \"{policy}\"}}\n");
        let of = |policy: &str| {
            rewrite(&[("a.yaml", marked(policy).as_str())], "").unwrap().findings.listed
        };
        assert_eq!(of("apps:db:tag"), Vec::<String>::new());
        assert_eq!(of("apps:none"), ["a.yaml:1: no policy of the automation sets `apps:none`"]);
        let unverified = "a.yaml:1: the latest version of `apps:new` is not verified: no key";
        assert_eq!(of("apps:new:tag"), [unverified]);
        let broken = format!("{WEB}---\na: [\n");
        let files = rewrite(&[("a.yaml", broken.as_str())], "").unwrap();
        let findings = files.findings.listed;
        assert!(findings.iter().any(|it| it.starts_with("a.yaml")), "{findings:?}");
    }

    #[test]
    fn of_what_has_no_effect_a_round_holds_the_first_ones_and_their_number() {
        let findings: Vec<String> = (0..12).map(|n| format!("{n}\n{}", "x".repeat(1000))).collect();
        let ignored = IgnoredMarkers::of(&findings);
        assert_eq!((ignored.listed.len(), ignored.more), (MAX_LISTED_FINDINGS, 2));
        assert!(ignored.listed.iter().all(|it| it.len() < MAX_FINDING_BYTES + 4));
        let text = ignored.text();
        assert!(text.starts_with("markers without effect: 0 xxx"), "{text}");
        assert!(text.ends_with("; and 2 more"), "{text}");
        assert_eq!(IgnoredMarkers::of(&findings[..1]).text().find("more"), None);
        assert_eq!(IgnoredMarkers::default().text(), "");
    }
}
