//! Determines which lifecycles hold an object, and in which order. Bindings and the namespace of the object select them.
//! Elsewhere: how a hold ends (`operation_verdict.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lifecycle_hold_phase::LifecycleHoldPhase;

/// The most lifecycles that may hold one object.
pub(crate) const MAX_HOLDS: usize = 16;

type LabelMap = BTreeMap<String, String>;

/// The reaction if an event is not answered in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LifecycleTimeoutPolicy {
    /// The operation fails.
    #[default]
    Fail,
    /// The operation continues.
    Continue,
    /// The operation waits until the event is answered.
    Hold,
}

/// A requirement on labels, in the words of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    pub values: Vec<String>,
}

/// A label selector. An empty one selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubjectLabelSelector {
    /// Labels with exactly these values.
    pub labels: LabelMap,
    /// Further requirements on the labels.
    pub expressions: Vec<LabelRequirement>,
}

impl SubjectLabelSelector {
    /// Whether the selector matches labels. An unknown operator counts as a match, so that a value windlass cannot read does
    /// not weaken a requirement.
    pub fn selects(&self, labels: &LabelMap) -> bool {
        let meets = |it: &LabelRequirement| {
            let value = labels.get(&it.key);
            match it.operator.as_str() {
                "In" => value.is_some_and(|value| it.values.contains(value)),
                "NotIn" => value.is_none_or(|value| !it.values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => true,
            }
        };
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(meets)
    }
}

/// The fields of a Lifecycle that matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    /// The name of the Lifecycle.
    pub name: String,
    /// The label of its events.
    pub key: String,
    /// The phases at which the Lifecycle holds.
    pub phases: Vec<LifecycleHoldPhase>,
    /// How long an event may stay unanswered.
    pub timeout: Duration,
    /// The reaction to a timeout.
    pub on_timeout: LifecycleTimeoutPolicy,
    /// How many users must approve; 0 if a controller answers instead.
    pub approvals: u16,
    /// Selects the namespaces that require the Lifecycle.
    pub required: Option<SubjectLabelSelector>,
    /// Why the Lifecycle cannot be read. If it is set, every operation that the Lifecycle holds keeps waiting.
    pub broken: Option<String>,
}

/// The objects that a binding means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectSelector {
    /// The kind of the objects.
    pub kind: String,
    /// The name of one object; none means all objects of the kind.
    pub name: Option<String>,
    /// Labels with exactly these values.
    pub labels: LabelMap,
}

/// A LifecycleBinding of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLifecycleBinding {
    /// The name of the binding.
    pub name: String,
    /// The Lifecycle that the binding refers to.
    pub lifecycle: String,
    /// The objects that the binding selects.
    pub subjects: Vec<SubjectSelector>,
    /// The phases at which the binding holds; empty means all phases of the Lifecycle.
    pub phases: Vec<LifecycleHoldPhase>,
    /// Parameters that events pass to the users or controllers that answer them.
    pub parameters: BTreeMap<String, String>,
    /// The position among other bindings. Lower numbers come first.
    pub order: i64,
}

/// An object that may be held.
#[derive(Debug, Clone, Copy)]
pub struct HoldSubject<'a> {
    /// The kind of the object.
    pub kind: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The labels of the object.
    pub labels: &'a LabelMap,
    /// The labels of its namespace.
    pub namespace_labels: &'a LabelMap,
}

impl ObservedLifecycleBinding {
    fn binds(&self, subject: &HoldSubject<'_>) -> bool {
        self.subjects.iter().any(|it| {
            it.kind == subject.kind
                && it.name.as_deref().is_none_or(|name| name == subject.name)
                && it.labels.iter().all(|(key, value)| subject.labels.get(key) == Some(value))
        })
    }
}

/// A lifecycle that holds an object, in its state at the beginning of the operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldingLifecycle {
    /// The Lifecycle.
    pub lifecycle: String,
    /// The label of its events.
    pub key: String,
    /// At which phases.
    pub phases: Vec<LifecycleHoldPhase>,
    /// How long an event may stay unanswered, in milliseconds.
    pub timeout_ms: u64,
    /// The reaction to a timeout.
    #[serde(default)]
    pub on_timeout: LifecycleTimeoutPolicy,
    /// How many users must approve; 0 if a controller answers instead.
    #[serde(default)]
    pub approvals: u16,
    /// Parameters that events pass to the users or controllers that answer them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Whether the namespace requires the lifecycle. Users of the namespace then cannot release its hold.
    #[serde(default)]
    pub required: bool,
}

/// Why the holds on an object cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LifecycleSelectError {
    /// A binding names a Lifecycle that does not exist.
    #[error(
        "LifecycleBinding {binding} names Lifecycle {lifecycle}, which does not exist; create it, or delete the binding"
    )]
    Missing {
        /// The binding.
        binding: String,
        /// The Lifecycle.
        lifecycle: String,
    },
    /// One that holds the object cannot be read.
    #[error("Lifecycle {lifecycle} cannot be used: {problem}")]
    Broken {
        /// The Lifecycle.
        lifecycle: String,
        /// The problem in the Lifecycle.
        problem: String,
    },
    /// There are too many.
    #[error("{0} Lifecycles hold this object; at most {MAX_HOLDS} are allowed")]
    TooMany(usize),
}

/// The holds on an object, ordered by their bindings' `order` and then by name. A Lifecycle that only the namespace requires
/// has the order 0.
///
/// A Lifecycle with several bindings holds once, at the phases of all bindings and with the parameters of the first. A
/// Lifecycle that the namespace requires holds at all of its phases, and bindings cannot limit that.
///
/// # Errors
/// A binding names a missing Lifecycle, a Lifecycle that holds the object cannot be read, or there are too many.
pub fn holds(
    subject: &HoldSubject<'_>,
    lifecycles: &[Lifecycle],
    bindings: &[ObservedLifecycleBinding],
) -> Result<Vec<HoldingLifecycle>, LifecycleSelectError> {
    let mut binding: Vec<&ObservedLifecycleBinding> =
        bindings.iter().filter(|it| it.binds(subject)).collect();
    binding.sort_by_key(|it| (it.order, it.name.as_str()));
    if let Some(it) = binding.iter().find(|it| !lifecycles.iter().any(|of| of.name == it.lifecycle))
    {
        let binding = it.name.clone();
        let lifecycle = it.lifecycle.clone();
        return Err(LifecycleSelectError::Missing { binding, lifecycle });
    }
    let mut found: Vec<(i64, HoldingLifecycle)> = Vec::new();
    for lifecycle in lifecycles {
        let its: Vec<&&ObservedLifecycleBinding> =
            binding.iter().filter(|it| it.lifecycle == lifecycle.name).collect();
        let is_required =
            lifecycle.required.as_ref().is_some_and(|it| it.selects(subject.namespace_labels));
        if its.is_empty() && !is_required {
            continue;
        }
        if let Some(problem) = lifecycle.broken.clone() {
            return Err(LifecycleSelectError::Broken {
                lifecycle: lifecycle.name.clone(),
                problem,
            });
        }
        let is_whole = is_required || its.iter().any(|it| it.phases.is_empty());
        let bound: BTreeSet<LifecycleHoldPhase> =
            its.iter().flat_map(|it| it.phases.iter().copied()).collect();
        let phases = lifecycle.phases.iter().copied();
        let first = its.first();
        let hold = HoldingLifecycle {
            lifecycle: lifecycle.name.clone(),
            key: lifecycle.key.clone(),
            phases: phases.filter(|phase| is_whole || bound.contains(phase)).collect(),
            timeout_ms: u64::try_from(lifecycle.timeout.as_millis()).unwrap_or(u64::MAX),
            on_timeout: lifecycle.on_timeout,
            approvals: lifecycle.approvals,
            parameters: first.map(|it| it.parameters.clone()).unwrap_or_default(),
            required: is_required,
        };
        found.push((first.map_or(0, |it| it.order), hold));
    }
    found.retain(|(_, hold)| !hold.phases.is_empty());
    if found.len() > MAX_HOLDS {
        return Err(LifecycleSelectError::TooMany(found.len()));
    }
    found.sort_by(|(a, one), (b, other)| (a, &one.lifecycle).cmp(&(b, &other.lifecycle)));
    Ok(found.into_iter().map(|(_, hold)| hold).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use LifecycleHoldPhase::{PostUpgrade, PreUpgrade, Promote};

    fn labels(all: &[(&str, &str)]) -> LabelMap {
        all.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn lifecycle(name: &str) -> Lifecycle {
        Lifecycle {
            name: name.to_owned(),
            key: "k".to_owned(),
            phases: vec![PreUpgrade, PostUpgrade],
            timeout: Duration::from_secs(60),
            on_timeout: LifecycleTimeoutPolicy::Fail,
            approvals: 0,
            required: None,
            broken: None,
        }
    }

    fn binding(name: &str, lifecycle: &str, order: i64) -> ObservedLifecycleBinding {
        ObservedLifecycleBinding {
            name: name.to_owned(),
            lifecycle: lifecycle.to_owned(),
            subjects: vec![SubjectSelector {
                kind: "HelmRelease".to_owned(),
                name: None,
                labels: labels(&[("tier", "web")]),
            }],
            phases: Vec::new(),
            parameters: BTreeMap::new(),
            order,
        }
    }

    fn of(
        lifecycles: &[Lifecycle],
        bindings: &[ObservedLifecycleBinding],
    ) -> Result<Vec<HoldingLifecycle>, LifecycleSelectError> {
        let own = labels(&[("tier", "web")]);
        let namespace = labels(&[("env", "prod")]);
        let subject = HoldSubject {
            kind: "HelmRelease",
            name: "app",
            labels: &own,
            namespace_labels: &namespace,
        };
        holds(&subject, lifecycles, bindings)
    }

    fn names(holds: &[HoldingLifecycle]) -> Vec<&str> {
        holds.iter().map(|it| it.lifecycle.as_str()).collect()
    }

    #[test]
    fn bindings_hold_in_their_order_and_then_by_name() {
        let lifecycles = [lifecycle("a"), lifecycle("b"), lifecycle("c"), lifecycle("unbound")];
        let bindings = [binding("x", "a", 5), binding("y", "c", 1), binding("z", "b", 1)];
        let found = of(&lifecycles, &bindings).unwrap();
        assert_eq!(names(&found), ["b", "c", "a"]);
        assert!(found.iter().all(|it| !it.required && it.phases == [PreUpgrade, PostUpgrade]));
        assert_eq!(of(&lifecycles, &[]), Ok(Vec::new()));
    }

    #[test]
    fn a_binding_means_kind_name_and_labels() {
        let lifecycles = [lifecycle("a")];
        let changed = |change: &dyn Fn(&mut SubjectSelector)| {
            let mut binding = binding("x", "a", 0);
            binding.subjects.iter_mut().for_each(change);
            of(&lifecycles, &[binding]).unwrap().len()
        };
        assert_eq!(changed(&|_| ()), 1);
        assert_eq!(changed(&|it| it.name = Some("app".to_owned())), 1);
        assert_eq!(changed(&|it| it.name = Some("other".to_owned())), 0);
        assert_eq!(changed(&|it| it.kind = "Kustomization".to_owned()), 0);
        assert_eq!(changed(&|it| it.labels = labels(&[("tier", "db")])), 0);
        let nothing = ObservedLifecycleBinding { subjects: Vec::new(), ..binding("x", "a", 0) };
        assert_eq!(of(&lifecycles, &[nothing]).unwrap().len(), 0);
    }

    #[test]
    fn a_binding_of_a_lifecycle_that_does_not_exist_is_an_error() {
        let error = of(&[], &[binding("x", "gone", 0)]).unwrap_err().to_string();
        assert!(error.starts_with("LifecycleBinding x names Lifecycle gone, which"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_holds_back_only_what_it_holds() {
        let broken = Lifecycle { broken: Some("no".to_owned()), ..lifecycle("a") };
        let all = [broken, lifecycle("b")];
        assert_eq!(names(&of(&all, &[binding("x", "b", 0)]).unwrap()), ["b"]);
        let error = of(&all, &[binding("x", "a", 0)]).unwrap_err().to_string();
        assert_eq!(error, "Lifecycle a cannot be used: no");
    }

    #[test]
    fn a_subset_of_phases_holds_unless_the_namespace_requires_all() {
        let mut lifecycle = lifecycle("a");
        let one =
            ObservedLifecycleBinding { phases: vec![PreUpgrade, Promote], ..binding("x", "a", 0) };
        let phases = |lifecycle: &Lifecycle| {
            let found = of(std::slice::from_ref(lifecycle), std::slice::from_ref(&one)).unwrap();
            (found[0].phases.clone(), found[0].required)
        };
        assert_eq!(phases(&lifecycle), (vec![PreUpgrade], false));
        lifecycle.required = Some(SubjectLabelSelector::default());
        assert_eq!(phases(&lifecycle), (vec![PreUpgrade, PostUpgrade], true));
        let elsewhere = SubjectLabelSelector {
            labels: labels(&[("env", "dev")]),
            ..SubjectLabelSelector::default()
        };
        lifecycle.required = Some(elsewhere);
        assert_eq!(phases(&lifecycle), (vec![PreUpgrade], false));
        let other = ObservedLifecycleBinding { phases: vec![Promote], ..binding("x", "a", 0) };
        assert_eq!(of(&[lifecycle], &[other]), Ok(Vec::new()), "no phase is left");
    }

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        let own = labels(&[("env", "prod")]);
        let meets = |key: &str, operator: &str, values: &[&str]| {
            let values = values.iter().map(|it| (*it).to_owned()).collect();
            let requirement =
                LabelRequirement { key: key.to_owned(), operator: operator.to_owned(), values };
            SubjectLabelSelector {
                expressions: vec![requirement],
                ..SubjectLabelSelector::default()
            }
            .selects(&own)
        };
        assert!(meets("env", "In", &["dev", "prod"]) && !meets("env", "In", &["dev"]));
        assert!(meets("env", "NotIn", &["dev"]) && !meets("env", "NotIn", &["prod"]));
        assert!(!meets("no", "In", &["prod"]) && meets("no", "NotIn", &["prod"]));
        assert!(meets("env", "Exists", &[]) && !meets("no", "Exists", &[]));
        assert!(meets("no", "DoesNotExist", &[]) && !meets("env", "DoesNotExist", &[]));
        assert!(meets("env", "Future", &[]), "it is not weakened");
        assert!(SubjectLabelSelector::default().selects(&LabelMap::new()));
    }

    #[test]
    fn too_many_are_an_error() {
        let lifecycles: Vec<Lifecycle> = (0..=MAX_HOLDS)
            .map(|at| Lifecycle {
                required: Some(SubjectLabelSelector::default()),
                ..lifecycle(&format!("l{at}"))
            })
            .collect();
        assert_eq!(of(&lifecycles, &[]), Err(LifecycleSelectError::TooMany(MAX_HOLDS + 1)));
        assert_eq!(of(&lifecycles[1..], &[]).unwrap().len(), MAX_HOLDS);
    }
}
