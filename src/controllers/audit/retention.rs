//! Old audits are deleted: of each subject more than a number, and of all those that are older than a time.
//!
//! The audits are listed from time to time instead of being watched: there may be thousands, and nothing waits for them.
//! Elsewhere: writing them (`audit`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use reconcile::Time;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{SUBJECT_UID, resource};
use crate::cluster::ClusterError;
use crate::cluster::pages::Part;
use crate::controllers::context::Context;

/// How often audits are listed.
const EVERY: Duration = Duration::from_secs(600);

/// An audit, as far as its end depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    namespace: String,
    name: String,
    uid: String,
    /// Of whom.
    subject: String,
    created: Time,
}

impl Kept {
    /// None of what nobody can tell when it was made.
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

/// Which audits go: those from before `oldest`, and of each subject all but the newest `records`.
fn surplus(all: Vec<Kept>, oldest: Time, records: usize) -> Vec<Kept> {
    let mut of_subjects: BTreeMap<(String, String), Vec<Kept>> = BTreeMap::new();
    for audit in all {
        let subject = (audit.namespace.clone(), audit.subject.clone());
        of_subjects.entry(subject).or_default().push(audit);
    }
    let mut gone = Vec::new();
    for mut audits in of_subjects.into_values() {
        audits.sort_by(|a, b| (b.created, &b.name).cmp(&(a.created, &a.name)));
        let kept = |(place, audit): &(usize, Kept)| *place < records && audit.created >= oldest;
        gone.extend(audits.into_iter().enumerate().filter(|it| !kept(it)).map(|(_, it)| it));
    }
    gone
}

/// Deletes old audits until `stop`.
pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let work = async {
        context.cluster.leadership.begun().await;
        loop {
            if let Err(error) = sweep(&context).await {
                // Without the CRD there are none.
                if !error.is_unserved() {
                    tracing::error!(error = %error, "failed to delete old ReleaseAudits, retrying later");
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

async fn sweep(context: &Context) -> Result<(), ClusterError> {
    let settings = &context.settings;
    let namespace = match settings.watch_all_namespaces {
        true => "",
        false => settings.runtime_namespace.as_str(),
    };
    let audits = resource();
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let page =
            context.cluster.page(&audits, namespace, Part::Metadata, from.as_deref()).await?;
        all.extend(page.items.iter().filter_map(Kept::of));
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let oldest = jiff::Timestamp::now().saturating_sub(settings.audit_retention_ttl);
    let gone = surplus(all, oldest.unwrap_or(Time::MIN), settings.audit_retention_records);
    for Kept { namespace, name, uid, .. } in gone {
        context.cluster.delete(&audits, &namespace, &name, &uid).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept(subject: &str, name: &str, second: i64) -> Kept {
        Kept {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
            uid: String::new(),
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

    #[test]
    fn an_audit_without_a_time_is_not_deleted() {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u",
            "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {SUBJECT_UID: "s"}});
        let read = Kept::of(&json!({"metadata": metadata}));
        assert_eq!(read.map(|it| (it.subject, it.uid)), Some(("s".to_owned(), "u".to_owned())));
        assert_eq!(Kept::of(&json!({"metadata": {"name": "a"}})), None);
    }
}
