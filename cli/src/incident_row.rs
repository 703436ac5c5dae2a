//! The row of an Incident in `windlass get`: what fails, and since when. Incidents have no condition `Ready`.
//!
//! Elsewhere: affected objects and notifications (`incidents.rs`), rows of other kinds (`object_row.rs`).

use objects::{Gvk, Object};
use reconcile::Time;
use serde_json::Value;

use super::object_row::time;
use windlass_cli_runtime::table::{TableCell, TextColour, age};

/// The API group of Incidents.
const INCIDENT_GROUP: &str = "notification.windlass.dev";

/// The titles of the columns after the name.
pub(super) const INCIDENT_TITLES: [&str; 6] =
    ["STATE", "SUBJECT", "REASON", "SINCE", "AGE", "MESSAGE"];

/// Whether objects of a kind are Incidents.
pub(super) fn is_incident(gvk: &Gvk) -> bool {
    gvk.kind == "Incident" && gvk.group == INCIDENT_GROUP
}

/// The cells of an Incident, in the order of [`INCIDENT_TITLES`].
pub(super) fn cells(incident: &Object, now: Time) -> [TableCell; 6] {
    let spec = incident.get("spec").unwrap_or(&Value::Null);
    let status = incident.get("status").unwrap_or(&Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let state = text(&status["state"]);
    let colour = match state.as_str() {
        "Open" => TextColour::Bad,
        "Resolved" => TextColour::Good,
        _ => TextColour::Busy,
    };
    let of = &spec["subject"];
    let subject = format!("{}/{}", text(&of["kind"]), text(&of["name"]));
    let since = time(status.get("since")).or_else(|| time(status.get("openedAt")));
    let created = time(incident.meta("creationTimestamp"));
    [
        TableCell::coloured(&state, Some(colour)),
        TableCell::new(&subject),
        TableCell::new(&text(&spec["cause"]["reason"])),
        TableCell::new(&age(since, now)),
        TableCell::new(&age(created, now)),
        TableCell::new(&text(&status["message"])).vital(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_cli_runtime::table::{PagedTable, TerminalScreen};

    use super::*;

    #[test]
    fn an_incident_says_what_fails_and_since_when() {
        let incident = json!({"apiVersion": "notification.windlass.dev/v1alpha1", "kind": "Incident",
            "metadata": {"name": "a", "namespace": "apps", "creationTimestamp": "2026-11-24T11:30:00Z"},
            "spec": {"reason": "Build", "subject": {"kind": "Kustomization", "name": "shop"},
                "cause": {"reason": "BuildFailed"}},
            "status": {"state": "Open", "since": "2026-11-24T11:00:00Z", "message": "missing file"}});
        let incident = Object::new(incident).unwrap();
        assert!(is_incident(&incident.gvk()));
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let screen = TerminalScreen { width: None, is_coloured: false };
        let page =
            PagedTable::new(&INCIDENT_TITLES, screen).page(&[cells(&incident, now).to_vec()]);
        let row: Vec<&str> = page.lines().last().unwrap_or_default().split("  ").collect();
        let row: Vec<&str> = row.into_iter().map(str::trim).filter(|it| !it.is_empty()).collect();
        assert_eq!(
            row,
            ["Open", "Kustomization/shop", "BuildFailed", "60m", "30m", "missing file"]
        );
    }
}
