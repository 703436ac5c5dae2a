//! Derives from audits which source revisions were applied, and what each revision did to which objects.
//!
//! Elsewhere: listing audits (`audit.rs`), writing audits (`windlass_runtime::audit`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crds::windlass_release::{AuditCauseKind, AuditOutcome, ReleaseAudit};
use reconcile::Time;

use super::audit::ended;

/// The minimum number of digits that identify a commit.
const MIN_COMMIT_DIGITS: usize = 7;

/// A revision of a source, and the operations that it caused.
#[derive(Debug)]
pub struct RevisionOperations<'a> {
    /// The source as `Kind/namespace/name`. Empty if no audit names the source.
    pub source: String,
    /// The revision of the source.
    pub revision: String,
    /// The operations, in the order in which they began.
    pub audits: Vec<&'a ReleaseAudit>,
}

impl RevisionOperations<'_> {
    /// When the first operation of the revision began. `None` if no audit contains a time.
    pub fn began(&self) -> Option<Time> {
        self.audits.iter().filter_map(|audit| started(audit)).min()
    }

    /// When the last operation of the revision ended. `None` if no audit contains a time.
    pub fn ended(&self) -> Option<Time> {
        self.audits.iter().filter_map(|audit| ended(audit)).max()
    }

    /// The last operation on each object. The objects are in the order in which the revision reached them.
    pub fn last_of_each(&self) -> Vec<&ReleaseAudit> {
        let mut last: Vec<&ReleaseAudit> = Vec::new();
        let mut places: BTreeMap<AuditedSubject<'_>, usize> = BTreeMap::new();
        for audit in self.audits.iter().copied() {
            match places.entry(AuditedSubject::of(audit)) {
                Entry::Occupied(place) => {
                    if let Some(before) = last.get_mut(*place.get()) {
                        *before = audit;
                    }
                }
                Entry::Vacant(place) => {
                    place.insert(last.len());
                    last.push(audit);
                }
            }
        }
        last
    }

    /// How many objects have a failed last operation.
    pub fn failures(&self) -> usize {
        let last = self.last_of_each();
        last.iter().filter(|audit| audit.spec.outcome == AuditOutcome::Failed).count()
    }
}

/// When an audited operation began. If that is unknown, when it ended. `None` if the audit contains neither time.
pub fn started(audit: &ReleaseAudit) -> Option<Time> {
    audit.spec.started.as_ref().map(|at| at.0).or_else(|| ended(audit))
}

/// The target of an operation: an object, or one release of a Helmfile.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct AuditedSubject<'a> {
    namespace: &'a str,
    kind: &'a str,
    name: &'a str,
    /// The namespace, the name and the cluster of the release.
    release: Option<[&'a str; 3]>,
}

impl<'a> AuditedSubject<'a> {
    fn of(audit: &'a ReleaseAudit) -> Self {
        let subject = &audit.spec.subject;
        let release = subject.release.as_ref();
        Self {
            namespace: audit.metadata.namespace.as_deref().unwrap_or_default(),
            kind: &subject.kind,
            name: &subject.name,
            release: release.map(|it| [it.namespace.as_str(), &it.name, &it.kube_context]),
        }
    }
}

/// The indexes of a revision's changes in a list, by source.
#[derive(Default)]
struct RevisionIndexesBySource<'a> {
    first: usize,
    by_source: BTreeMap<&'a str, usize>,
}

/// Groups audits by revision, the newest revision first.
pub fn revisions(audits: &[ReleaseAudit]) -> Vec<RevisionOperations<'_>> {
    let mut all: Vec<RevisionOperations<'_>> = Vec::new();
    let mut places: BTreeMap<&str, RevisionIndexesBySource<'_>> = BTreeMap::new();
    // Audits that name their source come first. So an audit of the same revision without a source joins the change of that
    // source.
    let (named, others): (Vec<&ReleaseAudit>, Vec<&ReleaseAudit>) =
        audits.iter().partition(|audit| source(audit).is_some());
    for audit in named.into_iter().chain(others) {
        let Some(revision) = revision(audit) else { continue };
        let source = source(audit).unwrap_or_default();
        let known = places.get(revision).and_then(|places| match source {
            "" => Some(places.first),
            source => places.by_source.get(source).copied(),
        });
        if let Some(change) = known.and_then(|at| all.get_mut(at)) {
            change.audits.push(audit);
            continue;
        }
        let at = all.len();
        let of_revision = places.entry(revision).or_insert_with(|| RevisionIndexesBySource {
            first: at,
            ..RevisionIndexesBySource::default()
        });
        of_revision.by_source.insert(source, at);
        let [source, revision] = [source, revision].map(str::to_owned);
        all.push(RevisionOperations { source, revision, audits: vec![audit] });
    }
    for change in &mut all {
        change.audits.sort_by_key(|audit| started(audit));
    }
    all.sort_by_key(|change| std::cmp::Reverse(change.began()));
    all
}

/// The name of the source whose revision caused an audited operation. `None` if no cause is the revision of a source.
fn source(audit: &ReleaseAudit) -> Option<&str> {
    let mut causes = audit.spec.causes.iter();
    causes.find(|it| it.type_ == AuditCauseKind::Source && it.version.is_some())?.object.as_deref()
}

/// The source revision of an operation. `None` if the operation has only the number of a Helm release.
pub fn revision(audit: &ReleaseAudit) -> Option<&str> {
    let mut causes = audit.spec.causes.iter();
    let of_cause = causes.find(|it| it.type_ == AuditCauseKind::Source && it.version.is_some());
    let applied = audit.spec.to.as_ref().and_then(|it| it.revision.as_deref());
    let applied = applied.filter(|text| text.contains(':'));
    of_cause.and_then(|it| it.version.as_deref()).or(applied)
}

/// The commit in a revision such as `main@sha1:…`. Its digits may be shortened. `None` if the revision ends with no commit.
pub fn commit(revision: &str) -> Option<&str> {
    let (_, digest) = revision.rsplit_once(':')?;
    let is_hex = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && digest.len() >= MIN_COMMIT_DIGITS).then_some(digest)
}

/// Whether a revision belongs to a commit. Either of them may be shortened.
pub fn is_of_commit(of: &str, wanted: &str) -> bool {
    let wanted = wanted.to_ascii_lowercase();
    let is_enough = wanted.len() >= MIN_COMMIT_DIGITS;
    is_enough && commit(of).is_some_and(|it| it.starts_with(&wanted) || wanted.starts_with(it))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn audit(name: &str, second: u32, cause: &str, outcome: &str) -> ReleaseAudit {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-{second}"), "namespace": "apps"},
            "spec": {
                "subject": {"kind": "Kustomization", "name": name}, "operation": "Apply", "outcome": outcome,
                "to": {"revision": "main@sha1:0123456789abcdef"}, "started": at(second), "ended": at(second + 1),
                "causes": [{"type": cause, "object": "GitRepository/apps/git", "version": "main@sha1:0123456789abcdef"}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_revision_has_what_was_done_because_of_it_and_its_repetitions() {
        let mut other = audit("z", 40, "Source", "Succeeded");
        other.spec.causes[0].version = Some("main@sha1:fedcba9876543210".to_owned());
        let all = [
            audit("b", 20, "Source", "Failed"),
            audit("a", 10, "Source", "Succeeded"),
            audit("b", 30, "Failure", "Succeeded"),
            other,
        ];
        let found = revisions(&all);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].revision, "main@sha1:fedcba9876543210");
        let change = &found[1];
        assert_eq!(change.source, "GitRepository/apps/git");
        let names: Vec<&str> =
            change.last_of_each().iter().map(|it| it.spec.subject.name.as_str()).collect();
        assert_eq!((names, change.failures()), (vec!["a", "b"], 0));
        assert_eq!(change.began().unwrap().to_string(), "2026-01-01T00:00:10Z");
        assert_eq!(change.ended().unwrap().to_string(), "2026-01-01T00:00:31Z");
    }

    #[test]
    fn the_number_of_a_release_is_no_revision_of_a_source() {
        let mut release = audit("a", 1, "Values", "Succeeded");
        release.spec.to.as_mut().unwrap().revision = Some("7".to_owned());
        assert_eq!(revision(&release), None);
        assert!(revisions(&[release]).is_empty());
    }

    #[test]
    fn a_commit_is_named_by_its_first_digits() {
        let full = "main@sha1:0123456789abcdef";
        assert!(is_of_commit(full, "0123456") && is_of_commit(full, "0123456789ABCDEF"));
        assert!(is_of_commit("main@sha1:01234567", "0123456789abcdef"));
        for wanted in ["012345", "1234567", "", "0123457"] {
            assert!(!is_of_commit(full, wanted), "{wanted}");
        }
        assert_eq!(commit("1.2.3"), None);
        assert_eq!(commit("latest@sha256:xyz"), None);
    }
}
