//! Deletes old audits. It keeps a number of audits for each audited object, and none that are older than a limit.
//!
//! The audits are listed periodically and not watched, because there may be thousands and no run waits for them. Elsewhere:
//! writing audits (`audit`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reconcile::Time;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::archive::AuditArchive;
use super::{SUBJECT_UID, repay, resource};
use crate::run_context::RunContext;
use windlass_cluster::ClusterError;
use windlass_cluster::list_pager::ObjectProjection;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::object_pages::ObjectQuery;

/// How often the audits are listed.
const RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// After this many refused audits in a row, windlass assumes that the archive accepts none.
const REFUSED_IN_A_ROW: usize = 3;

/// The uid of an audit.
type AuditUid = String;

/// How often the deletion of each audit was refused.
type DeletionRefusals = BTreeMap<AuditUid, u32>;

/// The facts about an audit that decide whether it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AuditSummary {
    namespace: String,
    name: String,
    uid: AuditUid,
    /// The uid of the audited object.
    subject: String,
    created: Time,
}

impl AuditSummary {
    /// The summary of an audit. `None` if its time of creation is not valid.
    fn of(audit: &Value) -> Option<Self> {
        let metadata = &audit["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            uid: text(&metadata["uid"]),
            subject: text(&metadata["labels"][SUBJECT_UID]),
            created: metadata["creationTimestamp"].as_str()?.parse().ok()?,
        })
    }
}

/// The audits to delete: those from before `oldest`, and all but the newest `records` of each object.
fn surplus(all: Vec<AuditSummary>, oldest: Time, records: usize) -> Vec<AuditSummary> {
    let mut of_subjects: BTreeMap<(String, String), Vec<AuditSummary>> = BTreeMap::new();
    for audit in all {
        let subject = (audit.namespace.clone(), audit.subject.clone());
        of_subjects.entry(subject).or_default().push(audit);
    }
    let mut gone = Vec::new();
    for mut audits in of_subjects.into_values() {
        audits.sort_by(|a, b| (b.created, &b.name).cmp(&(a.created, &a.name)));
        let kept =
            |(place, audit): &(usize, AuditSummary)| *place < records && audit.created >= oldest;
        gone.extend(audits.into_iter().enumerate().filter(|it| !kept(it)).map(|(_, it)| it));
    }
    gone
}

/// Why an audit was not deleted.
#[derive(Debug, thiserror::Error)]
enum RetentionSweepError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("failed to archive ReleaseAudit {0}: {1}")]
    Archive(String, sources::bucket::Error),
}

impl RetentionSweepError {
    /// Whether the next audits would fail as well.
    fn is_general(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.is_busy())
    }

    /// Whether the kind is not served. Without its CRD there are no audits.
    fn is_unserved(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.is_unserved())
    }
}

/// Deletes old audits until `stop`, and retries audits that could not be created.
pub async fn run(context: Arc<RunContext>, stop: CancellationToken) {
    let delete = async {
        context.cluster.leadership.begun().await;
        let archive = match AuditArchive::of(&context.settings) {
            Ok(archive) => archive,
            Err(error) => {
                tracing::error!(error = %error, "no ReleaseAudit is deleted: --audit-archive cannot be used");
                return;
            }
        };
        let mut refused = DeletionRefusals::new();
        loop {
            if let Err(error) = sweep(&context, archive.as_ref(), &mut refused).await
                && !error.is_unserved()
            {
                tracing::error!(error = %error, "failed to delete old ReleaseAudits, retrying later");
            }
            tokio::time::sleep(RETENTION_CHECK_INTERVAL).await;
        }
    };
    let work = async { tokio::join!(delete, repay(&context)) };
    stop.run_until_cancelled(work).await;
}

async fn sweep(
    context: &RunContext,
    archive: Option<&AuditArchive>,
    refused: &mut DeletionRefusals,
) -> Result<(), RetentionSweepError> {
    let settings = &context.settings;
    let namespace = match settings.watch_all_namespaces {
        true => "",
        false => settings.runtime_namespace.as_str(),
    };
    let audits = resource();
    let mut all = Vec::new();
    let mut pages = context.cluster.pages(&audits, namespace, ObjectProjection::Metadata)?;
    while let Some(page) = pages.next().await? {
        all.extend(page.iter().filter_map(|DepthPrunedObject(item)| AuditSummary::of(item)));
    }
    let oldest = jiff::Timestamp::now().saturating_sub(settings.audit_retention_ttl);
    let gone = surplus(all, oldest.unwrap_or(Time::MIN), settings.audit_retention_records);
    let cluster = &context.cluster;
    let audits = &audits;
    let delete = move |AuditSummary { namespace, name, uid, created, .. }: AuditSummary| async move {
        if let Some(archive) = archive {
            let named = format!("metadata.name={name}");
            let query = ObjectQuery {
                namespace: &namespace,
                field_selector: &named,
                ..ObjectQuery::all(audits)
            };
            let part = cluster.list_part(query, None).await?;
            let Some(audit) = part.objects.first() else { return Ok(()) };
            let stored = archive.store(audit, created).await;
            stored.map_err(|error| {
                RetentionSweepError::Archive(format!("{namespace}/{name}"), error)
            })?;
        }
        Ok(cluster.delete_unmanaged(audits, &namespace, &name, &uid).await?)
    };
    delete_all(gone, refused, delete).await
}

/// Deletes audits one after the other. Those that were `refused` most often come last. One refusal does not stop the others,
/// and is retried in the next round. A busy API server ends the round, and so does an archive that refuses several audits in a
/// row.
///
/// # Errors
/// The first refusal.
async fn delete_all<F>(
    mut gone: Vec<AuditSummary>,
    refused: &mut DeletionRefusals,
    delete: impl Fn(AuditSummary) -> F,
) -> Result<(), RetentionSweepError>
where
    F: Future<Output = Result<(), RetentionSweepError>>,
{
    *refused = gone.iter().filter_map(|it| refused.remove_entry(&it.uid)).collect();
    gone.sort_by_key(|audit| refused.get(&audit.uid).copied());
    let mut first = Ok(());
    let mut in_a_row = 0;
    for audit in gone {
        let uid = audit.uid.clone();
        let Err(error) = delete(audit).await else {
            refused.remove(&uid);
            in_a_row = 0;
            continue;
        };
        *refused.entry(uid).or_default() += 1;
        in_a_row += usize::from(matches!(error, RetentionSweepError::Archive(..)));
        let is_general = error.is_general();
        first = first.and(Err(error));
        if is_general || in_a_row == REFUSED_IN_A_ROW {
            break;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use serde_json::json;

    fn kept(subject: &str, name: &str, second: i64) -> AuditSummary {
        AuditSummary {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            subject: subject.to_owned(),
            created: Time::from_second(second).unwrap(),
        }
    }

    #[test]
    fn the_newest_of_each_subject_stay_while_they_are_young() {
        let all = vec![
            kept("web", "a", 100),
            kept("web", "b", 102),
            kept("web", "c", 101),
            kept("db", "d", 5),
            kept("db", "e", 100),
            kept("", "f", 100),
        ];
        let gone = |oldest: i64, records: usize| {
            let oldest = Time::from_second(oldest).unwrap();
            let gone = surplus(all.clone(), oldest, records);
            let mut names: Vec<String> = gone.into_iter().map(|it| it.name).collect();
            names.sort_unstable();
            names.concat()
        };
        assert_eq!(gone(0, 2), "a");
        assert_eq!(gone(0, 1), "acd");
        assert_eq!(gone(50, 10), "d");
        assert_eq!(gone(200, 10), "abcdef");
        assert_eq!(gone(0, 10), "");
    }

    #[tokio::test]
    async fn an_audit_that_cannot_be_deleted_keeps_no_other() {
        let refused = |code: u16, name: &str| {
            ClusterError::Refused(kube_core::Status::failure(name, "").with_code(code).boxed())
        };
        let run = async |code: u16| {
            let asked = Mutex::new(String::new());
            let delete = |audit: AuditSummary| {
                asked.lock().push_str(&audit.name);
                let is_refused = ["b", "c"].contains(&audit.name.as_str());
                let answer =
                    if is_refused { Err(refused(code, &audit.name).into()) } else { Ok(()) };
                std::future::ready(answer)
            };
            let gone = ["a", "b", "c", "d"].map(|name| kept("web", name, 0)).into();
            let refused = &mut DeletionRefusals::new();
            let error = delete_all(gone, refused, delete).await.unwrap_err().to_string();
            (asked.into_inner(), error)
        };
        assert_eq!(run(403).await, ("abcd".to_owned(), "b".to_owned()));
        assert_eq!(run(409).await, ("abcd".to_owned(), "b".to_owned()));
        assert_eq!(run(503).await, ("ab".to_owned(), "b".to_owned()), "the server is busy");
        let mut refused = DeletionRefusals::new();
        let done = |_| std::future::ready(Ok(()));
        assert!(delete_all(Vec::new(), &mut refused, done).await.is_ok());
    }

    #[tokio::test]
    async fn audits_that_the_archive_refuses_keep_no_other_however_many_they_are() {
        let mut refused = DeletionRefusals::new();
        let mut there: Vec<AuditSummary> =
            ('a'..='j').map(|name| kept("web", &name.to_string(), 0)).collect();
        let mut sweep = async |is_refused: fn(&str) -> bool| {
            let asked = Mutex::new(String::new());
            let delete = |audit: AuditSummary| {
                asked.lock().push_str(&audit.name);
                let error = || sources::bucket::Error::Account("no".to_owned());
                std::future::ready(match is_refused(&audit.name) {
                    true => Err(RetentionSweepError::Archive(audit.name, error())),
                    false => Ok(()),
                })
            };
            assert!(delete_all(there.clone(), &mut refused, delete).await.is_err());
            let asked = asked.into_inner();
            there.retain(|audit| is_refused(&audit.name) || !asked.contains(&audit.name));
            asked
        };
        // Audits whose names begin with an early letter are refused, as if the archive accepted none.
        let is_refused = |name: &str| name < "f";
        assert_eq!(sweep(is_refused).await, "abc");
        assert_eq!(sweep(is_refused).await, "defghijabc");
        assert_eq!(sweep(is_refused).await, "dea");
        assert!(there.iter().all(|audit| is_refused(&audit.name)) && there.len() == 5);
    }

    #[test]
    fn an_audit_without_a_time_is_not_deleted() {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u",
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {SUBJECT_UID: "s"}});
        let read = AuditSummary::of(&json!({"metadata": metadata}));
        assert_eq!(read.map(|it| (it.subject, it.uid)), Some(("s".to_owned(), "u".to_owned())));
        assert_eq!(AuditSummary::of(&json!({"metadata": {"name": "a"}})), None);
    }
}
