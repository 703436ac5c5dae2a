//! The bucket that keeps audits after their deletion from the cluster.
//!
//! Elsewhere: which audits are deleted (`retention`), and the bucket protocol (`sources::bucket`).

use std::sync::Arc;
use std::time::Duration;

use http_client::{EgressRules, HostBudgets, TlsConfig};
use objects::Object;
use reconcile::Time;
use sources::bucket::{
    BucketClientCache, BucketCredentialSource, BucketEndpoint, BucketServerSettings, Error,
    RemoteBucket, store,
};

use windlass_serve::settings::OperatorSettings;

/// The time limit for storing one audit.
const AUDIT_UPLOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The S3 bucket that keeps audits after their deletion from the cluster. An administrator sets it by a flag, so any address
/// is allowed, and the credentials come from the environment.
pub(super) struct AuditArchive {
    remote: RemoteBucket,
    known: BucketClientCache,
}

/// The flag does not name a bucket in the right form.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuditArchiveError {
    #[error("`{0}` is not of the form s3://BUCKET/PREFIX")]
    Address(String),
    #[error(transparent)]
    Endpoint(#[from] Error),
}

impl AuditArchive {
    /// The archive that the flags name. `None` if they name none.
    pub(super) fn of(settings: &OperatorSettings) -> Result<Option<Self>, AuditArchiveError> {
        let Some(address) = &settings.audit_archive else { return Ok(None) };
        let endpoint = &settings.audit_archive_endpoint;
        Self::at(address, endpoint, settings.audit_archive_region.clone()).map(Some)
    }

    fn at(
        address: &str,
        endpoint: &str,
        region: Option<String>,
    ) -> Result<Self, AuditArchiveError> {
        let wrong = || AuditArchiveError::Address(address.to_owned());
        let path = address.strip_prefix("s3://").ok_or_else(wrong)?;
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() || path.contains(['?', '#', '@']) {
            return Err(wrong());
        }
        let (host, is_insecure) = match endpoint.strip_prefix("http://") {
            Some(host) => (host, true),
            None => (endpoint.strip_prefix("https://").unwrap_or(endpoint), false),
        };
        let server = BucketServerSettings {
            endpoint: BucketEndpoint::parse(host, is_insecure)?,
            region,
            identity: BucketCredentialSource::Environment { sts: None },
            tls: TlsConfig::default(),
            proxy: None,
        };
        let remote = RemoteBucket {
            server,
            bucket: bucket.to_owned(),
            prefix: prefix.trim_end_matches('/').to_owned(),
            timeout: AUDIT_UPLOAD_TIMEOUT,
            limits: tree::TreeLimits::default(),
        };
        let budgets = Arc::new(HostBudgets::within(EgressRules::Anywhere));
        Ok(Self { remote, known: BucketClientCache::default().sharing(budgets) })
    }

    /// The key of an audit in the bucket. It begins with namespace and day, so that a prefix lists the audits of a day.
    fn key(&self, audit: &Object, created: Time) -> String {
        let prefix = match self.remote.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let day = created.strftime("%Y/%m/%d");
        format!("{prefix}{}/{day}/{}.json", audit.namespace(), audit.name())
    }

    /// Stores an audit as the API server shows it. Storing it twice writes the same object.
    pub(super) async fn store(&self, audit: &Object, created: Time) -> Result<(), Error> {
        let mut audit = audit.clone();
        audit.metadata_mut().remove("managedFields");
        let key = self.key(&audit, created);
        let body = audit.into_value().to_string().into_bytes();
        store(&self.remote, &key, &body, &self.known).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn audits_are_kept_by_namespace_and_day() {
        let audit = json!({"apiVersion": "v1", "kind": "X", "metadata": {"namespace": "apps", "name": "web-1"}});
        let audit = Object::new(audit).unwrap();
        let created = "2026-11-27T05:00:00Z".parse().unwrap();
        let key = |address: &str| {
            AuditArchive::at(address, "http://127.0.0.1:9000", None).unwrap().key(&audit, created)
        };
        assert_eq!(key("s3://audits"), "apps/2026/11/27/web-1.json");
        assert_eq!(key("s3://audits/"), "apps/2026/11/27/web-1.json");
        assert_eq!(key("s3://audits/a/b/"), "a/b/apps/2026/11/27/web-1.json");
        for wrong in ["audits", "https://audits", "s3://", "s3:///a", "s3://a?b=c"] {
            assert!(AuditArchive::at(wrong, "s3.amazonaws.com", None).is_err(), "{wrong}");
        }
        assert!(AuditArchive::at("s3://audits", "a/b", None).is_err());
    }
}
