//! Converts the selectors with which Flux's controllers divide the objects. windlass has one selector for all kinds.
//!
//! Elsewhere: all other flags ([`super`]).

use std::collections::BTreeSet;

/// The flag with the selector.
pub(super) const FLAG: &str = "watch-label-selector";

/// The controller that may lack a selector although others have one.
const NOTIFYING: &str = "notification-controller";

/// A controller, and its selector of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControllerSelector {
    /// The name of the controller's Deployment.
    pub(super) name: String,
    /// The name of the controller without the shard.
    pub(super) controller: &'static str,
    /// Empty if the controller selects all objects.
    pub(super) selector: String,
}

/// The objects that several controllers select together.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ControllerObjectSelection {
    /// All objects, divided by the values of this label.
    Shards(String),
    /// The objects that this selector matches.
    Part(String),
    /// The kinds have different selections. Contains what each controller selects.
    Different(String),
}

/// Combines the selectors of controllers. At least one of them has a selector.
pub(super) fn of(mut dividers: Vec<ControllerSelector>) -> ControllerObjectSelection {
    dividers.retain(|it| it.controller != NOTIFYING || !it.selector.is_empty());
    let selectors: BTreeSet<&str> = dividers.iter().map(|it| it.selector.as_str()).collect();
    if selectors.len() == 1 {
        return ControllerObjectSelection::Part(selectors.into_iter().collect());
    }
    let labels: BTreeSet<&str> =
        selectors.iter().filter(|it| !it.is_empty()).map(|it| label(it)).collect();
    let kinds: BTreeSet<&str> = dividers.iter().map(|it| it.controller).collect();
    let has_rest = |kind: &&str| {
        let mut of_kind = dividers.iter().filter(|it| it.controller == *kind);
        of_kind.any(|it| it.selector.is_empty() || it.selector.starts_with('!'))
    };
    match labels.first() {
        Some(label) if labels.len() == 1 && kinds.iter().all(has_rest) => {
            ControllerObjectSelection::Shards((*label).to_owned())
        }
        _ => ControllerObjectSelection::Different(in_words(&dividers)),
    }
}

/// The label of a selector with a single requirement.
fn label(selector: &str) -> &str {
    let selector = selector.trim_start_matches('!');
    let end = selector.find(|letter: char| "=! ,".contains(letter)).unwrap_or(selector.len());
    selector.get(..end).unwrap_or(selector)
}

fn in_words(dividers: &[ControllerSelector]) -> String {
    let each = dividers.iter().map(|it| match it.selector.as_str() {
        "" => format!("{} has no --{FLAG}", it.name),
        selector => format!("{} has `--{FLAG}={selector}`", it.name),
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divider(name: &str, controller: &'static str, selector: &str) -> ControllerSelector {
        ControllerSelector { name: name.to_owned(), controller, selector: selector.to_owned() }
    }

    #[test]
    fn shards_are_distinguished_from_controllers_that_leave_objects_to_others() {
        let source = |selector| divider("source-controller", "source-controller", selector);
        let apply = |name, selector| divider(name, "kustomize-controller", selector);
        let shard = "sharding.fluxcd.io/key=shard1";
        let rest = "!sharding.fluxcd.io/key";
        let notifying = || divider(NOTIFYING, NOTIFYING, "");
        let selected = of(vec![source(rest), apply("main", rest), apply("one", shard)]);
        assert_eq!(
            selected,
            ControllerObjectSelection::Shards("sharding.fluxcd.io/key".to_owned())
        );
        let selected = of(vec![source(""), apply("main", rest), apply("one", shard), notifying()]);
        assert_eq!(
            selected,
            ControllerObjectSelection::Shards("sharding.fluxcd.io/key".to_owned())
        );
        // It is unknown which controller reconciles the other objects.
        let selected = of(vec![source(""), apply("one", shard)]);
        let text = "source-controller has no --watch-label-selector, one has \
                    `--watch-label-selector=sharding.fluxcd.io/key=shard1`";
        assert_eq!(selected, ControllerObjectSelection::Different(text.to_owned()));
        let selected = of(vec![source("env=prod"), apply("main", "env=prod"), notifying()]);
        assert_eq!(selected, ControllerObjectSelection::Part("env=prod".to_owned()));
        let selected = of(vec![source("env=prod"), apply("main", "team=a")]);
        assert!(matches!(selected, ControllerObjectSelection::Different(_)));
        assert_eq!(label("key in (a, b)"), "key");
    }
}
