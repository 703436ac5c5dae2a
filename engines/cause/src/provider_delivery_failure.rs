//! Notifications that a service does not accept. A Provider has no status, so an Incident reports the failure.
//!
//! Elsewhere: the walk to the Provider (`cause_walk.rs`), and writing the Incident (the program).

use objects::{Gvk, Object, ObjectId};
use serde_json::Value;

use crate::cause_result::CauseKind;
use crate::cause_walk::{CausePath, CauseWalk, ResultOrFactQueries, cause, shortened};
use crate::condition::{text, time};
use crate::fact_query::FactQuery;

/// The API group of Providers. Other API groups have a kind of that name, too.
const GROUP: &str = "notification.toolkit.fluxcd.io";

impl CauseWalk<'_> {
    /// Why the service of a Provider does not accept notifications, if an Incident says so.
    pub(crate) fn undelivered(
        &mut self,
        object: &Object,
    ) -> ResultOrFactQueries<Option<CausePath>> {
        let id = object.id();
        let is_provider = id.group == GROUP && id.kind == "Provider";
        if !is_provider || !self.is_explaining {
            return Ok(None);
        }
        let query = FactQuery::Incidents { namespace: id.namespace.clone(), kind: id.kind.clone() };
        let incidents = self.listed(&query)?;
        let found = incidents.iter().find(|incident| is_open_about(incident, &id));
        Ok(found.and_then(|incident| incident.get("status")).map(|status| {
            let since = time(status, "since").or_else(|| time(status, "openedAt"));
            let said = shortened(text(status, "message"));
            let cause = cause(&id, CauseKind::Delivery, &said, since);
            CausePath { steps: Vec::new(), cause }
        }))
    }
}

/// Whether this Incident is open and reports that notifications of the Provider are not delivered.
fn is_open_about(incident: &Object, provider: &ObjectId) -> bool {
    let null = Value::Null;
    let spec = incident.get("spec").unwrap_or(&null);
    let status = incident.get("status").unwrap_or(&null);
    let subject = spec.get("subject").unwrap_or(&null);
    let gvk = Gvk::new(text(subject, "apiVersion"), text(subject, "kind"));
    let id = ObjectId::new(incident.namespace(), text(subject, "name"), &gvk.group, &gvk.kind);
    text(status, "state") == "Open"
        && text(spec, "reason") == CauseKind::Delivery.to_string()
        && id == *provider
}
