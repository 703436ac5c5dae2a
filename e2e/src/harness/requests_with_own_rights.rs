//! Records the requests that windlass sends with its own rights. So a check can compare the rights of an installation with the
//! rights that windlass uses.
//!
//! A request is written as `VERB GROUP/RESOURCE[/SUBRESOURCE]`. A request that windlass sends as a tenant counts as
//! `impersonate /serviceaccounts`, because its other rights are those of the tenant.
//! Elsewhere: the comparison (`cargo xtask test`).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use serde_json::Value;

use super::audit_log::AuditLogPosition;
use crate::control_plane::OPERATOR;

/// The environment variable with the folder for the records, one file for each process. Without it, nothing is recorded.
pub const FOLDER: &str = "WINDLASS_REQUESTS";

/// The lines of the audit log that this process has read, and the requests in them.
struct RequestsWithOwnRights {
    position: AuditLogPosition,
    requests: BTreeSet<String>,
}

static RECORDED: Mutex<Option<RequestsWithOwnRights>> = Mutex::new(None);

/// Reads the new lines of the audit log since the last call.
///
/// # Errors
/// The log or the folder cannot be used.
pub(super) fn collect(log: &Path) -> Result<()> {
    let Some(folder) = std::env::var_os(FOLDER) else { return Ok(()) };
    let mut recorded = RECORDED.lock();
    if recorded.is_none() {
        let position = AuditLogPosition::at_begin_of(log)?;
        *recorded = Some(RequestsWithOwnRights { position, requests: BTreeSet::new() });
    }
    let Some(RequestsWithOwnRights { position, requests }) = &mut *recorded else { return Ok(()) };
    let text = position.advance()?;
    // Most lines are about other users, and searching a line costs less than parsing its JSON.
    for line in text.lines().filter(|line| line.contains(OPERATOR)) {
        let event: Value = serde_json::from_str(line)?;
        requests.extend(request(&event));
    }
    let path = Path::new(&folder).join(format!("{}.txt", std::process::id()));
    let mut file = File::create(&path).with_context(|| path.display().to_string())?;
    for request in requests.iter() {
        writeln!(file, "{request}")?;
    }
    Ok(())
}

/// The verb and the target of an audited request that windlass sent with its own rights. `None` for the requests of other
/// users.
fn request(event: &Value) -> Option<String> {
    if event["user"]["username"] != OPERATOR {
        return None;
    }
    if !event["impersonatedUser"].is_null() {
        return Some("impersonate /serviceaccounts".to_owned());
    }
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verb = word(&event["verb"]);
    let object = &event["objectRef"];
    let Some(resource) = object["resource"].as_str() else {
        let path = word(&event["requestURI"]);
        let path = path.split('?').next().unwrap_or_default();
        return Some(format!("{verb} {path}"));
    };
    let mut text = format!("{verb} {}/{resource}", word(&object["apiGroup"]));
    if let Some(subresource) = object["subresource"].as_str() {
        text.push('/');
        text.push_str(subresource);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_named_by_what_a_rule_names() {
        let event = |more: Value| {
            let mut event = json!({"verb": "patch", "user": {"username": OPERATOR}});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            request(&event)
        };
        let status =
            json!({"apiGroup": "apps", "resource": "deployments", "subresource": "status"});
        assert_eq!(
            event(json!({"objectRef": status})).as_deref(),
            Some("patch apps/deployments/status")
        );
        let secret = json!({"resource": "secrets", "name": "a"});
        assert_eq!(event(json!({"objectRef": secret})).as_deref(), Some("patch /secrets"));
        let tenant = json!({"objectRef": secret, "impersonatedUser": {"username": "tenant"}});
        assert_eq!(event(tenant).as_deref(), Some("impersonate /serviceaccounts"));
        let path = json!({"verb": "get", "requestURI": "/version?timeout=32s"});
        assert_eq!(event(path).as_deref(), Some("get /version"));
    }
}
