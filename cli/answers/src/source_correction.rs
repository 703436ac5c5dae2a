//! How a revision that was rolled back comes back, and how a user corrects it at its source. Both depend on the field by which
//! the source chooses its revision: a branch, a tag, a range of versions, a commit or a digest.
//!
//! Elsewhere: when users are warned about such a revision (`rolled_back_commit_warning.rs`).

use cause::object_references::made_chart;
use objects::{Object, ObjectId};

use super::audited_revisions::commit;
use super::cause_facts;
use windlass_cluster::ClusterConnection;

/// The branch of a GitRepository whose spec names no revision.
const DEFAULT_BRANCH: &str = "master";

/// The tag of an OCIRepository whose spec names no revision.
const DEFAULT_TAG: &str = "latest";

/// The range of a HelmChart whose spec names none.
const DEFAULT_RANGE: &str = "*";

/// How a revision of a source comes back, and how a user corrects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceCorrection {
    /// Why a later revision applies it again.
    pub(crate) returns: String,
    /// What to do at the source.
    pub(crate) correction: String,
}

impl SourceCorrection {
    /// Why a later revision applies this one again, and what to do about that, in one sentence.
    pub(crate) fn warning(&self) -> String {
        format!("{}; {}", self.returns, self.correction)
    }
}

/// Reads a source.
///
/// # Errors
/// A message for the user: the source does not exist, or the API server refuses or does not respond.
pub(crate) async fn read_source(
    cluster: &ClusterConnection,
    id: &ObjectId,
) -> Result<Object, String> {
    let found = cause_facts::read(cluster, id).await?;
    found.ok_or_else(|| format!("{} does not exist", id.subject()))
}

/// The correction of a revision. `source` is the source, or why it is not known. `applier` is the applier that was rolled
/// back, if only one was.
pub(crate) fn of_revision(
    source: Result<&Object, &str>,
    applier: Option<&Object>,
    revision: &str,
) -> SourceCorrection {
    let source = match source {
        Ok(source) => source,
        Err(error) => return of_unknown_source(error, revision),
    };
    match source.kind() {
        "GitRepository" => match commit_of_git(revision) {
            Some(commit) => of_git_repository(source, revision, commit),
            None => of_other_source(source, revision),
        },
        "OCIRepository" => of_oci_repository(source, revision),
        "HelmChart" => of_helm_chart(source, applier, revision),
        "Bucket" => of_bucket(source, revision),
        _ => of_other_source(source, revision),
    }
}

/// The commit of a revision of a Git repository. `None` for other revisions, such as the digest of an OCI artifact.
fn commit_of_git(revision: &str) -> Option<&str> {
    let (before, _) = revision.rsplit_once(':')?;
    commit(revision).filter(|_| before == "sha1" || before.ends_with("@sha1"))
}

/// The tag or version in a revision such as `1.2.3@sha256:…`.
fn tag_of(revision: &str) -> &str {
    revision.split_once('@').map_or(revision, |(tag, _)| tag)
}

/// A text in the spec of a source. `None` if it is empty.
fn spec_text<'s>(source: &'s Object, field: &str) -> Option<&'s str> {
    source.get("spec")?.get(field)?.as_str().filter(|text| !text.is_empty())
}

/// A text in `spec.ref` of a source. `None` if it is empty.
fn ref_text<'s>(source: &'s Object, field: &str) -> Option<&'s str> {
    source.get("spec")?.get("ref")?.get(field)?.as_str().filter(|text| !text.is_empty())
}

fn of_unknown_source(error: &str, revision: &str) -> SourceCorrection {
    let unknown = format!(
        "whether the source follows a branch, a tag or a range of versions is not known ({error})"
    );
    match commit_of_git(revision) {
        Some(commit) => SourceCorrection {
            returns: format!(
                "{unknown}: each later revision with commit {commit} that changes the same manifests applies it again"
            ),
            correction: format!(
                "run `git revert {commit}` and push, or correct it in the next commit; if the source follows a tag or a range, \
                 the corrected commit needs a new tag as well"
            ),
        },
        None => SourceCorrection {
            returns: format!(
                "{unknown}: the next revision that changes the same manifests applies again what it still has of revision \
                 {revision}"
            ),
            correction: "correct that before you publish the next revision".to_owned(),
        },
    }
}

/// The correction in a GitRepository. Of several fields the same one counts as when it is fetched.
fn of_git_repository(source: &Object, revision: &str, commit: &str) -> SourceCorrection {
    let subject = source.id().subject();
    if ref_text(source, "commit").is_some() {
        return SourceCorrection {
            returns: format!(
                "the source stays at the commit of `spec.ref.commit`, and each commit that still contains commit {commit} \
                 applies it again"
            ),
            correction: format!(
                "run `git revert {commit}`, push, and set `spec.ref.commit` of {subject} to the new commit"
            ),
        };
    }
    let name = ref_text(source, "name");
    let tag = match name {
        Some(name) => name.strip_prefix("refs/tags/").map(|tag| (tag, "name")),
        None => ref_text(source, "tag").map(|tag| (tag, "tag")),
    };
    if let Some((tag, field)) = tag {
        return SourceCorrection {
            returns: format!(
                "commit {commit} is part of tag `{tag}` (`spec.ref.{field}`), and each later tag that still contains it applies \
                 it again"
            ),
            correction: format!(
                "run `git revert {commit}`, give the corrected commit a new tag, and set `spec.ref.{field}` of {subject} to it"
            ),
        };
    }
    if let Some(range) = ref_text(source, "semver").filter(|_| name.is_none()) {
        let tag = tag_of(revision);
        return SourceCorrection {
            returns: format!(
                "the source takes the highest tag in the range `{range}` (`spec.ref.semver`), so the next higher tag that still \
                 contains commit {commit} applies it again"
            ),
            correction: format!(
                "run `git revert {commit}` and give the corrected commit a higher tag that `spec.ref.semver` of {subject} \
                 includes, or narrow that range so that it leaves out `{tag}`"
            ),
        };
    }
    let place = match name {
        Some(name) => match name.strip_prefix("refs/heads/") {
            Some(branch) => format!("branch `{branch}`"),
            None => format!("reference `{name}`"),
        },
        None => format!("branch `{}`", ref_text(source, "branch").unwrap_or(DEFAULT_BRANCH)),
    };
    SourceCorrection {
        returns: format!(
            "commit {commit} is still part of {place}, so the next commit that changes the same manifests applies it again, even \
             if that commit is about something else"
        ),
        correction: format!("run `git revert {commit}` and push, or correct it in the next commit"),
    }
}

/// The correction in an OCIRepository. Of several fields the same one counts as when it is fetched.
fn of_oci_repository(source: &Object, revision: &str) -> SourceCorrection {
    let subject = source.id().subject();
    if ref_text(source, "digest").is_some() {
        return SourceCorrection {
            returns: format!(
                "the source stays at the artifact of `spec.ref.digest`, and the next digest there applies again what its artifact \
                 still has of revision {revision}"
            ),
            correction: format!(
                "push a corrected artifact, and set `spec.ref.digest` of {subject} to its digest"
            ),
        };
    }
    if let Some(range) = ref_text(source, "semver") {
        let tag = tag_of(revision);
        return SourceCorrection {
            returns: format!(
                "the source takes the highest tag in the range `{range}` (`spec.ref.semver`), so the next higher tag applies \
                 again what its artifact still has of revision {revision}"
            ),
            correction: format!(
                "push a corrected artifact with a higher tag that `spec.ref.semver` of {subject} includes, or narrow that range \
                 so that it leaves out `{tag}`"
            ),
        };
    }
    let tag = ref_text(source, "tag").unwrap_or(DEFAULT_TAG);
    SourceCorrection {
        returns: format!(
            "the source follows tag `{tag}` (`spec.ref.tag`), so the next artifact with that tag applies again what it still has \
             of revision {revision}"
        ),
        correction: format!(
            "push a corrected artifact with that tag, or set `spec.ref.tag` of {subject} to another tag, or `spec.ref.digest` to \
             the digest of an artifact that works"
        ),
    }
}

/// The correction in a HelmChart. The chart that is made for a HelmRelease has its range from there.
fn of_helm_chart(source: &Object, applier: Option<&Object>, version: &str) -> SourceCorrection {
    let repository = source.get("spec").and_then(|it| it.get("sourceRef"));
    let of_repository =
        |field: &str| repository.and_then(|it| it.get(field)?.as_str()).unwrap_or_default();
    let kind = of_repository("kind");
    if kind != "HelmRepository" {
        return SourceCorrection {
            returns: format!(
                "the next version of the chart is released with what it still has of version {version}"
            ),
            correction: format!(
                "correct the chart in {kind}/{}/{} or the values, and raise the version in its `Chart.yaml`",
                source.namespace(),
                of_repository("name")
            ),
        };
    }
    let id = source.id();
    let field = match applier.filter(|it| made_chart(it).as_ref() == Some(&id)) {
        Some(release) => format!("`spec.chart.spec.version` of {}", release.id().subject()),
        None => format!("`spec.version` of {}", id.subject()),
    };
    let range = spec_text(source, "version").unwrap_or(DEFAULT_RANGE);
    SourceCorrection {
        returns: format!(
            "the next higher version of the chart in the range `{range}` is released with what it still has of version {version}"
        ),
        correction: format!(
            "publish a corrected chart with a higher version that {field} includes, or change that range so that it leaves out \
             `{version}`; correct the values if they are the cause"
        ),
    }
}

fn of_bucket(source: &Object, revision: &str) -> SourceCorrection {
    let bucket = spec_text(source, "bucketName").unwrap_or_default();
    SourceCorrection {
        returns: format!(
            "the next upload to bucket `{bucket}` that changes the same manifests applies again what the bucket still has of \
             revision {revision}"
        ),
        correction: format!(
            "upload the corrected files to that bucket (`spec.bucketName` of {})",
            source.id().subject()
        ),
    }
}

fn of_other_source(source: &Object, revision: &str) -> SourceCorrection {
    SourceCorrection {
        returns: format!(
            "the next revision of {} that changes the same manifests applies again what it still has of revision {revision}, even \
             if it is about something else",
            source.id().subject()
        ),
        correction: "correct that before you publish the next revision".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const COMMIT_DIGITS: &str = "5f0c9d0c2f6a3f1f8a110d9f6f4e3f434f0c9d0c";

    fn source(kind: &str, spec: &Value) -> Object {
        Object::new(json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
            "metadata": {"name": "fleet", "namespace": "apps"}, "spec": spec}))
        .unwrap()
    }

    fn warning(kind: &str, spec: &Value, revision: &str) -> String {
        of_revision(Ok(&source(kind, spec)), None, revision).warning()
    }

    #[test]
    fn a_commit_of_a_branch_is_reverted() {
        for (reference, place) in [
            (json!({"branch": "main"}), "branch `main`"),
            (json!({}), "branch `master`"),
            (json!({"name": "refs/heads/main", "semver": "*"}), "branch `main`"),
            (json!({"name": "refs/pull/7/head"}), "reference `refs/pull/7/head`"),
        ] {
            let revision = format!("main@sha1:{COMMIT_DIGITS}");
            let text = warning("GitRepository", &json!({"ref": reference}), &revision);
            assert!(text.contains(&format!("is still part of {place}, so")), "{text}");
            assert!(text.contains(&format!("run `git revert {COMMIT_DIGITS}` and push")), "{text}");
        }
    }

    #[test]
    fn a_tag_a_range_and_a_commit_are_changed_in_their_field() {
        for (reference, field) in [
            (json!({"commit": COMMIT_DIGITS, "branch": "main"}), "spec.ref.commit"),
            (json!({"tag": "v1.2.3", "semver": "1.x"}), "spec.ref.tag"),
            (json!({"name": "refs/tags/v1.2.3"}), "spec.ref.name"),
            (json!({"semver": "1.x", "branch": "main"}), "spec.ref.semver"),
        ] {
            let revision = format!("v1.2.3@sha1:{COMMIT_DIGITS}");
            let text = warning("GitRepository", &json!({"ref": reference}), &revision);
            let field = format!("`{field}` of GitRepository/apps/fleet");
            assert!(text.contains(&field) && !text.contains("and push,"), "{field}: {text}");
        }
        let semver = json!({"ref": {"semver": "1.x"}});
        let text = warning("GitRepository", &semver, &format!("v1.2.3@sha1:{COMMIT_DIGITS}"));
        assert!(text.contains("leaves out `v1.2.3`") && text.contains("a higher tag"), "{text}");
    }

    #[test]
    fn other_sources_name_the_field_by_which_they_choose() {
        let digest = "1.2.3@sha256:0123456789abcdef";
        for (kind, spec, field) in [
            (
                "OCIRepository",
                json!({"ref": {"digest": "sha256:0", "tag": "a"}}),
                "spec.ref.digest",
            ),
            ("OCIRepository", json!({"ref": {"semver": "1.x", "tag": "a"}}), "spec.ref.semver"),
            ("OCIRepository", json!({"ref": {"tag": "a"}}), "spec.ref.tag"),
            ("OCIRepository", json!({}), "spec.ref.tag"),
            ("HelmChart", json!({"sourceRef": {"kind": "HelmRepository"}}), "spec.version"),
            ("Bucket", json!({"bucketName": "b"}), "spec.bucketName"),
        ] {
            let text = warning(kind, &spec, digest);
            let field = format!("`{field}` of {kind}/apps/fleet");
            assert!(text.contains(&field) && !text.contains("git revert"), "{field}: {text}");
        }
        let git = json!({"sourceRef": {"kind": "GitRepository", "name": "charts"}, "version": "1"});
        let text = warning("HelmChart", &git, "1.2.3");
        assert!(
            text.contains("GitRepository/apps/charts") && text.contains("Chart.yaml"),
            "{text}"
        );
    }

    #[test]
    fn the_range_of_a_chart_that_was_made_for_a_release_is_in_the_release() {
        let chart = source("HelmChart", &json!({"sourceRef": {"kind": "HelmRepository"}}));
        let release = Object::new(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2",
            "kind": "HelmRelease", "metadata": {"name": "shop", "namespace": "apps"},
            "spec": {"chart": {"spec": {"chart": "shop"}}},
            "status": {"helmChart": "apps/fleet"}}))
        .unwrap();
        let text = of_revision(Ok(&chart), Some(&release), "1.2.3").warning();
        assert!(text.contains("`spec.chart.spec.version` of HelmRelease/apps/shop"), "{text}");
    }

    #[test]
    fn of_a_source_that_cannot_be_read_nothing_is_claimed() {
        let of = |revision: &str| of_revision(Err("forbidden"), None, revision).warning();
        for revision in ["main@sha1:", "refs/tags/v1@sha1:", "sha1:"] {
            let text = of(&format!("{revision}{COMMIT_DIGITS}"));
            assert!(text.contains(&format!("`git revert {COMMIT_DIGITS}`")), "{text}");
            assert!(text.contains("is not known (forbidden)"), "{text}");
        }
        for revision in
            ["latest@sha256:0123456789abcdef", "sha256:0123456789abcdef", "main@sha1:x", ""]
        {
            let text = of(revision);
            assert!(!text.contains("git") && text.contains("correct that"), "{revision}: {text}");
        }
    }
}
