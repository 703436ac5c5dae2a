//! Health of objects that are judged by their Pods: StatefulSets and ReplicaSets.
//!
//! Here: which related objects are needed, selecting them by labels, and the judgement. Elsewhere: listing these
//! objects (the program).

use objects::{Gvk, Object};
use reconcile::Time;
use serde_json::{Map, Value};

use super::status_fields::{MalformedStatusError, mapping_strict};
use super::{HealthStatus, ObjectHealth, compute, pod};

/// The kind of the related objects that [`read`] needs to judge an object of this kind. They are in the same namespace.
/// `None` if [`read`] needs none.
///
/// Differs(flux): a Deployment's ReplicaSets are not asked for, because their state never changed the answer.
pub fn related_kinds(gvk: &Gvk) -> Option<Gvk> {
    is_pod_controller(&gvk.group, &gvk.kind).then(|| Gvk::new("v1", "Pod"))
}

/// The label selector that lists exactly the related objects of [`related_kinds`]. `None` if [`read`] needs none.
pub fn related_selector(object: &Object) -> Option<String> {
    related_kinds(&object.gvk())?;
    let PodLabelSelector(tests) = PodLabelSelector::of(object).ok()?;
    let text = |(key, test): &(&str, PodLabelRequirement<'_>)| match test {
        PodLabelRequirement::In(values) => format!("{key} in ({})", values.join(",")),
        PodLabelRequirement::NotIn(values) => format!("{key} notin ({})", values.join(",")),
        PodLabelRequirement::Exists => (*key).to_owned(),
        PodLabelRequirement::Absent => format!("!{key}"),
    };
    Some(tests.iter().map(text).collect::<Vec<_>>().join(","))
}

fn is_pod_controller(group: &str, kind: &str) -> bool {
    group == "apps" && matches!(kind, "StatefulSet" | "ReplicaSet")
}

/// Judges an object of any kind except Job, together with its related objects, as Flux's waits do.
///
/// `related` may hold more objects than needed. Objects of another kind, of another namespace, or with other labels are
/// ignored. If [`super::compute`] fails because it cannot understand the status, the result here is `Unknown`.
pub fn read(object: &Object, related: &[Object], now: Time) -> ObjectHealth {
    judge(object, related, now).unwrap_or_else(ObjectHealth::unknown)
}

fn judge(
    object: &Object,
    related: &[Object],
    now: Time,
) -> Result<ObjectHealth, MalformedStatusError> {
    let Gvk { group, kind, .. } = object.gvk();
    let is_controller = is_pod_controller(&group, &kind);
    let has_selector = is_controller || (group == "apps" && kind == "Deployment");
    if !has_selector {
        return compute(object, now);
    }
    let selector = PodLabelSelector::of(object)?;
    let report = compute(object, now)?;
    // A controller that is Current or has failed is not made worse by its Pods.
    if !is_controller || report.status != HealthStatus::InProgress {
        return Ok(report);
    }
    let is_its_pod = |o: &&Object| {
        o.kind() == "Pod" && o.api_version() == "v1" && o.namespace() == object.namespace()
    };
    let failed = related
        .iter()
        .filter(is_its_pod)
        .filter(|pod| selector.matches(pod))
        .filter(|pod| compute(pod, now).is_ok_and(|r| r.status == HealthStatus::Failed))
        .filter(|pod| !pod::is_transient_failure(pod))
        .count();
    if failed == 0 {
        return Ok(report);
    }
    Ok(ObjectHealth::plain(HealthStatus::Failed, format!("{failed} pods have failed")))
}

/// A label selector with `matchLabels` and `matchExpressions`. An empty one selects everything.
struct PodLabelSelector<'a>(Vec<(&'a str, PodLabelRequirement<'a>)>);

enum PodLabelRequirement<'a> {
    In(Vec<&'a str>),
    NotIn(Vec<&'a str>),
    Exists,
    Absent,
}

impl<'a> PodLabelSelector<'a> {
    fn of(object: &'a Object) -> Result<Self, MalformedStatusError> {
        let selector = mapping_strict(object, &["spec", "selector"])?
            .ok_or_else(|| MalformedStatusError("no selector found".into()))?;
        let mut tests = Vec::new();
        match selector.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(labels)) => {
                for (key, value) in labels {
                    tests.push((key.as_str(), PodLabelRequirement::In(vec![text(value)?])));
                }
            }
            Some(_) => return Err(malformed()),
        }
        match selector.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for expression in expressions {
                    tests.push(requirement(expression.as_object().ok_or_else(malformed)?)?);
                }
            }
            Some(_) => return Err(malformed()),
        }
        Ok(Self(tests))
    }

    fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|(key, test)| match (test, object.label(key)) {
            (PodLabelRequirement::In(values), Some(label)) => values.contains(&label),
            (PodLabelRequirement::NotIn(values), Some(label)) => !values.contains(&label),
            (PodLabelRequirement::In(_), None)
            | (PodLabelRequirement::Exists, None)
            | (PodLabelRequirement::Absent, Some(_)) => false,
            (PodLabelRequirement::NotIn(_), None)
            | (PodLabelRequirement::Exists, Some(_))
            | (PodLabelRequirement::Absent, None) => true,
        })
    }
}

fn requirement(
    expression: &Map<String, Value>,
) -> Result<(&str, PodLabelRequirement<'_>), MalformedStatusError> {
    let field = |name| expression.get(name).map_or(Ok(""), text);
    let key = field("key")?;
    let operator = field("operator")?;
    let values = match expression.get("values") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(values)) => values.iter().map(text).collect::<Result<_, _>>()?,
        Some(_) => return Err(malformed()),
    };
    let test = match operator {
        "In" | "NotIn" if values.is_empty() => {
            let text = "for 'in', 'notin' operators, values set can't be empty";
            return Err(MalformedStatusError(text.into()));
        }
        "In" => PodLabelRequirement::In(values),
        "NotIn" => PodLabelRequirement::NotIn(values),
        "Exists" => PodLabelRequirement::Exists,
        "DoesNotExist" => PodLabelRequirement::Absent,
        other => {
            return Err(MalformedStatusError(format!(
                "{other:?} is not a valid label selector operator"
            )));
        }
    };
    Ok((key, test))
}

fn text(value: &Value) -> Result<&str, MalformedStatusError> {
    value.as_str().ok_or_else(malformed)
}

fn malformed() -> MalformedStatusError {
    MalformedStatusError("spec.selector is not a label selector".into())
}
