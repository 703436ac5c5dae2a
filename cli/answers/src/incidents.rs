//! Lists Incidents: which failures are open and since when, which objects are affected, and who was notified.
//!
//! windlass keeps Incidents only for some Alerts and only for failures that objects report. So a missing Incident does not mean
//! that all is well.
//! Therefore this module also counts objects that are not ready without an Incident. It also counts ready objects whose applied
//! objects fail (`applied_object_health.rs`).
//! Elsewhere: the fields of an Incident (`crds::windlass_notification`), opening and resolving Incidents
//! (`notification_controller::incident`).

use std::collections::{BTreeMap, BTreeSet};

use crds::windlass_notification::{Incident, IncidentNotification, IncidentState, IncidentStep};
use crds::windlass_release::ChangeSet;
use objects::{Object, ObjectId};
use reconcile::Time;
use serde_json::Value;

use super::applied_object_health::{AlreadyReportedObjects, AppliedObjects};
use super::cause_facts::ClusterFactReader;
use super::command_scope::CommandScope;
use super::failed_change_hints;
use super::kind_argument;
use super::object_row::{ObjectRow, is_silent, unsaid};
use super::typed_objects::{self, TypedObjects};
use notification_controller::delivery::incident_notifications::INCIDENTS;
use notification_controller::incident::incident_silence::silence_end;
use windlass_changes::failed_change_advice::advice;
use windlass_cli_installation::cluster_operators;
use windlass_cli_runtime::connection::ProgressGlyph;
use windlass_cli_runtime::table::cut;
use windlass_runtime::lifecycle::watched_object_cache::resource;

/// The maximum number of objects without an Incident that are named.
const MOST_NAMED: usize = 5;

/// The longest message in the table on a terminal, in characters.
const MAX_MESSAGE_CHARACTERS: usize = 80;

/// Incidents, the oldest first. Resolved Incidents come before open ones.
#[derive(Debug, Default)]
pub struct ListedIncidents {
    /// The incidents.
    pub incidents: Vec<Incident>,
    /// Facts about other objects. After [`ObjectReadinessSummary::read`], they include the failing objects.
    pub summary: ObjectReadinessSummary,
}

/// Lists the open Incidents with matching labels. With `all`, resolved Incidents are included.
///
/// # Errors
/// The kind is not installed, an incident cannot be read, or the API server did not respond.
pub async fn find(site: &CommandScope, labels: &str, all: bool) -> anyhow::Result<ListedIncidents> {
    let listed = typed_objects::list(site, resource::<Incident>(), labels).await?;
    let TypedObjects { objects, left_out } = listed;
    let summary = ObjectReadinessSummary {
        hides_incidents: !left_out.is_empty(),
        left_out,
        place: site.in_words(),
        ..ObjectReadinessSummary::default()
    };
    Ok(ListedIncidents { incidents: selected(objects, all), summary })
}

/// Converts Incidents to a Kubernetes `List`.
///
/// # Errors
/// An object cannot be written as JSON.
pub fn to_list(incidents: &[Incident]) -> anyhow::Result<Value> {
    typed_objects::to_list(incidents)
}

/// Facts about objects in addition to the Incidents.
#[derive(Debug, Default)]
pub struct ObjectReadinessSummary {
    /// Objects that are not ready and not suspended, as `Kind/namespace/name`.
    failing: BTreeSet<String>,
    /// How many objects are suspended and not ready. windlass opens no Incidents for them.
    suspended: usize,
    /// How many objects were read.
    objects: usize,
    /// How many objects do not report whether they are ready.
    silent: usize,
    /// Whether at least one object reports its readiness. Then an operator has reconciled it.
    has_reports: bool,
    /// How many objects are ready although an object that they applied is missing or not healthy.
    degraded: usize,
    /// Messages about applied objects that were not examined.
    unexamined: Vec<String>,
    /// Whether an Alert requests Incidents with its annotation.
    is_asked: bool,
    /// Whether an Alert would request Incidents if `windlass serve` runs with `--incidents`.
    is_asked_by_flag: bool,
    /// Whether there may be Incidents or Alerts that this user may not list.
    hides_incidents: bool,
    hides_alerts: bool,
    /// Messages about objects that could not be listed.
    pub left_out: Vec<String>,
    /// The scope in words, for messages.
    place: String,
    /// Why windlass doubts that an operator is running.
    doubt: Option<String>,
    /// The newest failed changes of sources that can be rolled back.
    failed_changes: Vec<ChangeSet>,
}

/// Failing objects without an Incident.
struct FailingObjectsWithoutIncident {
    count: usize,
    /// The names of the objects. Empty if they are not known.
    names: Vec<String>,
}

/// A line of the table for users.
pub struct IncidentTableLine {
    /// The symbol of the line.
    pub mark: ProgressGlyph,
    /// The text of the line.
    pub text: String,
}

impl ObjectReadinessSummary {
    /// Reads the facts about objects.
    ///
    /// # Errors
    /// The API server did not respond.
    pub async fn read(&mut self, site: &CommandScope) -> anyhow::Result<()> {
        let now = jiff::Timestamp::now();
        let targets = kind_argument::targets(&site.cluster, &["all".to_owned()]).await?;
        let mut applied = AppliedObjects::default();
        for target in &targets {
            let left_out = site.list(target, "", |objects| {
                for object in &objects {
                    self.add(object, now);
                    if ObjectRow::of(object, now).ready == "True" {
                        applied.add(object);
                    }
                }
                Ok(())
            });
            let left_out = left_out.await?;
            self.hides_alerts |= target.resource.gvk.kind == "Alert" && !left_out.is_empty();
            self.left_out.extend(left_out);
        }
        let reported = AlreadyReportedObjects::of(site, &targets, "");
        let live =
            applied.examine(&mut ClusterFactReader::new(&site.cluster), site, &reported).await?;
        self.degraded = live.suspects.len();
        self.unexamined = live.remarks;
        self.left_out.extend(live.left_out);
        self.failed_changes = failed_change_hints::newest(site, None).await;
        self.failed_changes.retain(|change| failed_change_hints::way_back(change).is_some());
        self.doubt = cluster_operators::remark(&site.cluster, now).await;
        if self.silent > 0 && !self.has_reports && self.doubt.is_none() {
            self.doubt = cluster_operators::unseen(&site.cluster).await;
        }
        Ok(())
    }

    fn add(&mut self, object: &Object, now: Time) {
        let row = ObjectRow::of(object, now);
        match row.ready.as_str() {
            "False" if row.is_suspended() => self.suspended += 1,
            "False" => {
                self.failing.insert(object.id().subject());
            }
            _ => {}
        }
        self.objects += 1;
        self.has_reports |= !row.ready.is_empty();
        self.silent += usize::from(is_silent(object) && !row.is_suspended());
        let asks = object.annotation(INCIDENTS).map(str::trim);
        let is_alert = object.kind() == "Alert";
        self.is_asked |= is_alert && asks == Some("true");
        self.is_asked_by_flag |= is_alert && asks != Some("false");
    }

    /// The failing objects that belong to none of the Incidents. An Incident names only some of its affected objects, but it
    /// counts all of them.
    fn without_incident(&self, incidents: &[Incident]) -> FailingObjectsWithoutIncident {
        let open = || incidents.iter().filter(|it| state(it) == Some(IncidentState::Open));
        let mut named = BTreeSet::new();
        let mut unnamed = 0;
        for incident in open() {
            let namespace = incident.metadata.namespace.clone().unwrap_or_default();
            let subject = &incident.spec.subject;
            named.insert(format!("{}/{namespace}/{}", subject.kind, subject.name));
            let affected = incident.status.clone().unwrap_or_default().affected.unwrap_or_default();
            let count = usize::try_from(affected.count).unwrap_or_default();
            unnamed += count.saturating_sub(affected.objects.len());
            named.extend(affected.objects);
        }
        let names: Vec<String> =
            self.failing.iter().filter(|it| !named.contains(*it)).cloned().collect();
        let count = names.len().saturating_sub(unnamed);
        // If an Incident does not name all its objects, it is unknown which failing objects belong to it.
        FailingObjectsWithoutIncident {
            count,
            names: if unnamed == 0 { names } else { Vec::new() },
        }
    }

    /// The message about failing objects without an Incident.
    fn uncovered(&self, found: &FailingObjectsWithoutIncident, none: Option<&str>) -> String {
        let count = found.count;
        let (objects, are) = if count == 1 { ("object", "is") } else { ("objects", "are") };
        let which = match found.names.is_empty() {
            true => String::new(),
            false => format!(" ({})", first_names(&found.names)),
        };
        let objects = format!("{count} {objects}");
        let begin = match none {
            _ if self.hides_incidents => {
                format!(
                    "whether incidents are open is not known: they may not be listed; {objects}"
                )
            }
            Some(none) => format!("{none}, but {objects} without an incident"),
            None => format!("{objects} without an incident"),
        };
        format!("{begin} {are} not ready{which}: windlass get all -A --status-selector ready=false")
    }

    /// The lines in addition to the Incidents. `all` says whether the list includes resolved Incidents.
    pub fn lines(&self, incidents: &[Incident], all: bool) -> Vec<IncidentTableLine> {
        let others = self.without_incident(incidents);
        let none = if all { "no incidents" } else { "no open incidents" };
        let line = |mark, text: String| IncidentTableLine { mark, text };
        let mut lines = Vec::new();
        match (others.count, incidents.is_empty()) {
            (0, false) => {}
            (0, true) => lines.push(self.calm(none)),
            (_, is_empty) => {
                let text = self.uncovered(&others, is_empty.then_some(none));
                lines.push(line(ProgressGlyph::Warning, text));
            }
        }
        let changes = self.failed_changes.iter();
        let changes = changes.filter_map(|change| failed_with(change, incidents));
        let changes = failed_change_hints::first_of(changes).into_iter();
        lines.extend(changes.map(|text| line(ProgressGlyph::Warning, text)));
        if self.degraded > 0 {
            let count = self.degraded;
            let [are, they] = match count {
                1 => ["object is", "it"],
                _ => ["objects are", "they"],
            };
            let text = format!(
                "{count} {are} ready while something that {they} applied does not exist or is not healthy: `windlass why -A` \
                 says why"
            );
            lines.push(line(ProgressGlyph::Warning, text));
        }
        lines.extend(self.unexamined.iter().map(|text| line(ProgressGlyph::Warning, text.clone())));
        lines.extend(unsaid(self.silent).map(|text| line(ProgressGlyph::Warning, text)));
        if incidents.is_empty() {
            lines.extend(self.unasked().map(|text| line(ProgressGlyph::Warning, text)));
        }
        lines.extend(self.doubt.iter().map(|text| line(ProgressGlyph::Warning, text.clone())));
        lines
    }

    /// The message that no Alert requests Incidents for failing objects. `None` if an Alert does, or if not all Alerts could be
    /// seen.
    fn unasked(&self) -> Option<String> {
        if self.is_asked || self.hides_alerts {
            return None;
        }
        let annotation = format!("the annotation {INCIDENTS}: \"true\"");
        Some(match self.is_asked_by_flag {
            true => format!(
                "no Alert here has {annotation}, so no incident is opened unless `windlass serve` runs with --incidents"
            ),
            // `--incidents` applies to Alerts, so an Alert is needed as well.
            false => format!(
                "no Alert here gets incidents, so none is opened: create an Alert with {annotation}"
            ),
        })
    }

    /// The message if neither an Incident nor a failure was found. It claims only what was read and what objects report.
    fn calm(&self, none: &str) -> IncidentTableLine {
        let is_unsure = self.silent > 0
            || self.degraded > 0
            || !self.unexamined.is_empty()
            || self.doubt.is_some();
        let (mark, text) = match () {
            () if self.hides_incidents => (
                ProgressGlyph::Warning,
                "whether incidents are open is not known: they may not be listed".to_owned(),
            ),
            () if !self.left_out.is_empty() => {
                (ProgressGlyph::Warning, format!("{none} among the objects that you may read"))
            }
            () if self.objects == 0 => (
                ProgressGlyph::Action,
                format!("{none}, and no objects of windlass {}", self.place),
            ),
            () if is_unsure => (
                ProgressGlyph::Warning,
                format!("{none}, and no object reports that it is failing"),
            ),
            () if self.suspended > 0 => {
                let count = self.suspended;
                let objects = if count == 1 { "object is" } else { "objects are" };
                let text = format!(
                    "{none}, and no object is failing, but {count} suspended {objects} not ready: `windlass why -A` says why"
                );
                (ProgressGlyph::Warning, text)
            }
            () => (ProgressGlyph::Success, format!("{none}, and no object is failing")),
        };
        IncidentTableLine { mark, text }
    }
}

/// The first names of a list, and how many more there are.
fn first_names(all: &[String]) -> String {
    let named = all.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The message about a failed change: its members with open Incidents, and the command that rolls the change back. `None` if
/// the change did not fail or cannot be rolled back.
fn failed_with(change: &ChangeSet, incidents: &[Incident]) -> Option<String> {
    let advice = advice(change)?;
    let open = incidents.iter().filter(|it| state(it) == Some(IncidentState::Open));
    let of_change = open.filter(|it| failed_change_hints::is_of(change, &subject(it)));
    let named: Vec<String> = of_change.map(|it| subject(it).subject()).collect();
    Some(match named.is_empty() {
        true => advice,
        false => format!("{} failed with {advice}", first_names(&named)),
    })
}

/// The object whose failure the Incident reports.
fn subject(incident: &Incident) -> ObjectId {
    let subject = &incident.spec.subject;
    let namespace = incident.metadata.namespace.as_deref().unwrap_or_default();
    let group = subject.api_version.split_once('/').map_or("", |(group, _)| group);
    ObjectId::new(namespace, &subject.name, group, &subject.kind)
}

/// Whether an Incident is open or resolved. `None` if its status does not say so yet.
pub fn state(incident: &Incident) -> Option<IncidentState> {
    incident.status.as_ref().and_then(|status| status.state)
}

fn opened(incident: &Incident) -> Option<Time> {
    incident.status.as_ref()?.opened_at.as_ref().map(|at| at.0)
}

/// Since when the object of an Incident fails, or else when the Incident was opened. `None` if neither time is known.
pub fn since(incident: &Incident) -> Option<Time> {
    let since = incident.status.as_ref()?.since.as_ref().map(|at| at.0);
    since.or_else(|| opened(incident))
}

/// The open Incidents, the oldest first. With `all`, resolved Incidents come before them.
fn selected(mut incidents: Vec<Incident>, all: bool) -> Vec<Incident> {
    let is_open = |it: &Incident| state(it) == Some(IncidentState::Open);
    incidents.retain(|it| all || is_open(it));
    incidents.sort_by_key(|it| (is_open(it), opened(it), it.metadata.name.clone()));
    incidents
}

/// Incidents in one namespace with the same message, which share a row.
pub struct IncidentGroup<'i> {
    /// The first Incident of the group.
    pub first: &'i Incident,
    /// How many further Incidents the group has.
    pub more: usize,
    /// How many objects the Incidents of the group affect together.
    pub affected: i64,
}

/// The fields that Incidents of a group have in common. The object, the age and the number of affected objects may differ.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct IncidentGroupKey {
    namespace: Option<String>,
    state: &'static str,
    kind: String,
    reason: String,
    sent: String,
    silenced_until: Option<Time>,
    message: String,
}

impl IncidentGroupKey {
    fn of(incident: &Incident) -> Self {
        let status = incident.status.clone().unwrap_or_default();
        let silence = status.silence.unwrap_or_default();
        Self {
            namespace: incident.metadata.namespace.clone(),
            state: status.state.map(IncidentState::as_str).unwrap_or_default(),
            silenced_until: silence.until.map(|until| until.0),
            kind: incident.spec.subject.kind.clone(),
            reason: incident.spec.cause.reason.clone(),
            sent: sent(incident),
            message: message(incident),
        }
    }
}

/// Groups Incidents with the same message. The groups are in the order of their first Incidents.
pub fn groups(incidents: &[Incident]) -> Vec<IncidentGroup<'_>> {
    let mut all: Vec<IncidentGroup<'_>> = Vec::new();
    let mut known: BTreeMap<IncidentGroupKey, usize> = BTreeMap::new();
    for incident in incidents {
        let status = incident.status.as_ref();
        let affected = status.and_then(|it| it.affected.as_ref()).map_or(0, |it| it.count);
        let place = *known.entry(IncidentGroupKey::of(incident)).or_insert(all.len());
        match all.get_mut(place) {
            Some(group) => {
                group.more += 1;
                group.affected += affected;
            }
            None => all.push(IncidentGroup { first: incident, more: 0, affected }),
        }
    }
    all
}

/// The first line of a message, shortened for a terminal.
pub fn message(incident: &Incident) -> String {
    cut(&first_line(incident), MAX_MESSAGE_CHARACTERS)
}

/// The first line of a message.
pub fn first_line(incident: &Incident) -> String {
    let message = incident.status.as_ref().and_then(|it| it.message.as_deref()).unwrap_or_default();
    message.lines().next().unwrap_or_default().to_owned()
}

/// The Providers that received the Incident. If a Provider last received something other than the opening, the text says so.
pub fn sent(incident: &Incident) -> String {
    let status = incident.status.as_ref();
    let all = status.into_iter().flat_map(|it| &it.notifications);
    all.map(sent_to).collect::<Vec<_>>().join(",")
}

/// When the silence of an Incident ends. Returns `None` if none is in force.
pub fn silenced_until(incident: &Incident, now: Time) -> Option<String> {
    silence_end(incident.status.as_ref()?, now).map(in_seconds)
}

/// Describes the silence of an Incident: its user, its end and its reason. Returns `None` if none is in force.
pub fn silence(incident: &Incident, now: Time) -> Option<String> {
    let status = incident.status.as_ref()?;
    let end = silence_end(status, now)?;
    let silence = status.silence.as_ref()?;
    Some(silence_words(&silence.user, end, &silence.reason))
}

/// The lines about the silences in force, for below a table that says only when each of them ends.
pub fn silences(incidents: &[Incident], now: Time) -> Vec<IncidentTableLine> {
    let silenced = incidents.iter().filter_map(|incident| {
        let words = silence(incident, now)?;
        let namespace = incident.metadata.namespace.as_deref().unwrap_or_default();
        let name = incident.metadata.name.as_deref().unwrap_or_default();
        let text = format!("Incident/{namespace}/{name} is {words}");
        Some(IncidentTableLine { mark: ProgressGlyph::Action, text })
    });
    silenced.collect()
}

/// The words for a silence, after the name of its Incident and "is".
pub(crate) fn silence_words(user: &str, end: Time, reason: &str) -> String {
    format!(
        "silenced by {user} until {}, when the silence ends by itself: {reason}",
        in_seconds(end)
    )
}

/// A time in whole seconds, as the API has it.
pub(crate) fn in_seconds(at: Time) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A Provider. If it last received something other than the opening, the text says so.
fn sent_to(of: &IncidentNotification) -> String {
    match of.state {
        IncidentStep::Opened => of.provider.clone(),
        IncidentStep::Resolved => format!("{} (resolved)", of.provider),
        IncidentStep::Failed => format!("{} (failed)", of.provider),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use fake_cluster::answer_examples::incident;

    fn listed(values: Vec<Value>, is_all: bool) -> Vec<Incident> {
        let incidents = values.into_iter().map(|it| serde_json::from_value(it).unwrap());
        selected(incidents.collect(), is_all)
    }

    fn all() -> Vec<Value> {
        vec![
            incident("shop", "Open", "2026-11-24T11:00:00Z"),
            incident("web", "Resolved", "2026-11-24T10:00:00Z"),
            incident("db", "Open", "2026-11-23T11:00:00Z"),
        ]
    }

    fn object(kind: &str, name: &str, ready: &str) -> Object {
        let version = match kind {
            "Alert" => "notification.toolkit.fluxcd.io/v1beta3",
            "GitRepository" => "source.toolkit.fluxcd.io/v1",
            _ => "kustomize.toolkit.fluxcd.io/v1",
        };
        let conditions = json!([{"type": "Ready", "status": ready, "reason": "R", "message": ""}]);
        let metadata = json!({"name": name, "namespace": "apps"});
        let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata,
            "spec": {}, "status": {"conditions": conditions}});
        Object::new(object).unwrap()
    }

    fn said(objects: &[Object], incidents: &[Incident]) -> Vec<String> {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let mut context = ObjectReadinessSummary::default();
        objects.iter().for_each(|it| context.add(it, now));
        let lines = context.lines(incidents, false);
        lines
            .iter()
            .map(|it| format!("{} {}", it.mark == ProgressGlyph::Success, it.text))
            .collect()
    }

    #[test]
    fn objects_that_fail_are_no_all_clear_where_no_alert_keeps_incidents() {
        let failing: Vec<Object> =
            (0..10).map(|at| object("Kustomization", &format!("k{at}"), "False")).collect();
        let lines = said(&failing, &[]);
        let expected = "false no open incidents, but 10 objects without an incident are not ready (Kustomization/apps/k0, \
                        Kustomization/apps/k1, Kustomization/apps/k2, Kustomization/apps/k3, Kustomization/apps/k4 and 5 \
                        more): windlass get all -A --status-selector ready=false";
        assert_eq!((lines.len(), lines[0].as_str()), (2, expected));
        let expected = "false no Alert here gets incidents, so none is opened: create an Alert with the annotation \
                        windlass.dev/incidents: \"true\"";
        assert_eq!(lines[1], expected);
        let mut suspended = failing[0].clone();
        suspended.fields_mut().insert("spec".to_owned(), json!({"suspend": true}));
        let mut alert = object("Alert", "a", "True");
        alert.metadata_mut().insert("annotations".to_owned(), json!({INCIDENTS: "true"}));
        let well = [alert, object("Kustomization", "k", "True")];
        assert_eq!(said(&well, &[]), ["true no open incidents, and no object is failing"]);
        let mut with_suspended = well.to_vec();
        with_suspended.push(suspended);
        let expected = "false no open incidents, and no object is failing, but 1 suspended object is not ready: `windlass why -A` \
                        says why";
        assert_eq!(said(&with_suspended, &[]), [expected]);
    }

    #[test]
    fn the_flag_of_serve_is_named_only_where_it_would_open_incidents() {
        let alert = |annotations: Value| {
            let mut alert = object("Alert", "a", "True");
            alert.metadata_mut().insert("annotations".to_owned(), annotations);
            said(&[alert], &[]).join("\n")
        };
        assert!(alert(json!({})).contains("unless `windlass serve` runs with --incidents"));
        let excluded = alert(json!({INCIDENTS: "false"}));
        assert!(excluded.contains("no Alert here gets incidents"), "{excluded}");
        assert!(!alert(json!({INCIDENTS: " true"})).contains("no Alert here"));
    }

    #[test]
    fn nothing_more_is_said_than_was_read_and_is_reported() {
        let of = |around: ObjectReadinessSummary| {
            let around = ObjectReadinessSummary { is_asked: true, ..around };
            let lines = around.lines(&[], false);
            lines.iter().map(|it| format!("{:?} {}", it.mark, it.text)).collect::<Vec<_>>()
        };
        let left_out = || vec!["alerts: forbidden".to_owned()];
        assert_eq!(
            of(ObjectReadinessSummary {
                hides_incidents: true,
                left_out: left_out(),
                ..ObjectReadinessSummary::default()
            }),
            ["Warning whether incidents are open is not known: they may not be listed"]
        );
        assert_eq!(
            of(ObjectReadinessSummary {
                left_out: left_out(),
                ..ObjectReadinessSummary::default()
            }),
            ["Warning no open incidents among the objects that you may read"]
        );
        assert_eq!(
            of(ObjectReadinessSummary {
                place: "in namespace a".to_owned(),
                ..ObjectReadinessSummary::default()
            }),
            ["Action no open incidents, and no objects of windlass in namespace a"]
        );
        let calm = "Warning no open incidents, and no object reports that it is failing";
        let silent = "Warning 1 object reports no condition Ready: `windlass why -A` says why";
        assert_eq!(
            of(ObjectReadinessSummary {
                objects: 3,
                silent: 1,
                ..ObjectReadinessSummary::default()
            }),
            [calm, silent]
        );
        let doubt = Some("no operator holds Lease a/b".to_owned());
        assert_eq!(
            of(ObjectReadinessSummary { objects: 3, doubt, ..ObjectReadinessSummary::default() }),
            [calm, "Warning no operator holds Lease a/b"]
        );
        let degraded = "Warning 1 object is ready while something that it applied does not exist or is not healthy: \
                        `windlass why -A` says why";
        assert_eq!(
            of(ObjectReadinessSummary {
                objects: 3,
                degraded: 1,
                ..ObjectReadinessSummary::default()
            }),
            [calm, degraded]
        );
        let unexamined =
            vec!["what 1 object applied in other clusters was not examined".to_owned()];
        assert_eq!(
            of(ObjectReadinessSummary {
                objects: 3,
                unexamined,
                ..ObjectReadinessSummary::default()
            }),
            [calm, "Warning what 1 object applied in other clusters was not examined"]
        );
        let failing = BTreeSet::from(["Kustomization/apps/k".to_owned()]);
        assert_eq!(
            of(ObjectReadinessSummary {
                hides_incidents: true,
                left_out: left_out(),
                failing,
                ..ObjectReadinessSummary::default()
            }),
            [
                "Warning whether incidents are open is not known: they may not be listed; 1 object is not ready \
              (Kustomization/apps/k): windlass get all -A --status-selector ready=false"
            ]
        );
        let around = ObjectReadinessSummary {
            hides_alerts: true,
            objects: 1,
            ..ObjectReadinessSummary::default()
        };
        assert_eq!(around.lines(&[], false).len(), 1, "nothing is said of Alerts");
    }

    #[test]
    fn objects_that_incidents_name_or_count_are_not_reported_again() {
        let open = listed(vec![incident("shop", "Open", "2026-11-24T11:00:00Z")], false);
        let mut objects = vec![object("GitRepository", "shop", "False")];
        objects.extend((0..200).map(|at| object("Kustomization", &format!("k{at}"), "False")));
        // The Incident affects 200 objects but names only one of them, which is not in this list.
        let line = "false 1 object without an incident is not ready: windlass get all -A --status-selector ready=false";
        assert_eq!(said(&objects, &open), [line]);
        assert!(said(&objects[..200], &open).is_empty());
    }

    #[test]
    fn incidents_of_members_name_the_change_and_the_command_that_takes_it_back() {
        let change: ChangeSet = serde_json::from_value(json!({
            "metadata": {"name": "fleet-2-a", "namespace": "apps"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:2", "digest": "d", "sequence": 2},
            "status": {"verdict": "Failed", "message": "2 members: 2 failed (ks/db, ks/shop)",
                "members": ["Failed ks/db", "Failed ks/shop"], "counts": {"members": 2, "failed": 2}}}))
        .unwrap();
        let of = |name: &str, kind: &str, group: &str| {
            let mut of = incident(name, "Open", "2026-11-24T11:00:00Z");
            of["spec"]["subject"] =
                json!({"apiVersion": format!("{group}/v1"), "kind": kind, "name": name});
            of
        };
        let kustomization = |name| of(name, "Kustomization", "kustomize.toolkit.fluxcd.io");
        let source = of("shop", "GitRepository", "source.toolkit.fluxcd.io");
        let open = listed(vec![kustomization("shop"), source], false);
        let advice = "change fleet-2-a of GitRepository/fleet (main@sha1:2) is Failed: 2 members: 2 failed (ks/db, ks/shop); to \
                      take it back: windlass rollback change/fleet-2-a -n apps";
        let expected = format!("Kustomization/apps/shop failed with {advice}");
        assert_eq!(failed_with(&change, &open).as_deref(), Some(expected.as_str()));
        assert_eq!(failed_with(&change, &[]).as_deref(), Some(advice));
        let failed_changes = vec![change];
        let summary = ObjectReadinessSummary { failed_changes, ..Default::default() };
        assert!(summary.lines(&open, false).iter().any(|it| it.text == expected));
    }

    #[test]
    fn incidents_that_say_the_same_share_a_row() {
        let of = |name: &str, namespace: &str, message: &str| {
            let mut of = incident(name, "Open", "2026-11-24T11:00:00Z");
            of["metadata"]["namespace"] = json!(namespace);
            of["status"]["message"] = json!(message);
            of
        };
        let all = vec![
            of("a", "apps", "refused"),
            of("b", "apps", "refused"),
            of("c", "apps", "other"),
            of("d", "apps", "refused"),
            of("e", "infra", "refused"),
        ];
        let all = listed(all, false);
        let rows: Vec<(&str, usize, i64)> = groups(&all)
            .iter()
            .map(|it| (it.first.spec.subject.name.as_str(), it.more, it.affected))
            .collect();
        assert_eq!(rows, [("a", 2, 600), ("c", 0, 200), ("e", 0, 200)]);
    }

    #[test]
    fn what_is_open_is_listed_and_the_rest_on_request() {
        let names = |all_of: bool| -> Vec<String> {
            let found = listed(all(), all_of);
            found.into_iter().map(|it| it.spec.subject.name).collect()
        };
        assert_eq!(names(false), ["db", "shop"]);
        assert_eq!(names(true), ["web", "db", "shop"]);
    }
}
