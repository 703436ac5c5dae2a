//! The flags of Flux's controllers: which of them windlass gets when it takes over, and what becomes of the others.
//!
//! Flux's flags are flags of `windlass serve`, where each is for all kinds. Elsewhere: the flags themselves (`windlass_serve::settings`),
//! how the manifests get them (`install/manifests.rs`).

mod selectors;

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgAction, Args as _, Command};
use objects::Object;
use serde_json::Value;

use self::selectors::{ControllerObjectSelection, ControllerSelector};
use crate::check::containers;
use crate::cluster_operators::replaced;
use crate::install::manifests::workloads;
use windlass_cli_runtime::serve_flags;
use windlass_serve::settings::{OperatorSettings, is_without_effect};

/// Flags that say where a controller runs, which windlass has of its own.
const OF_INSTALLATION: [&str; 9] = [
    "enable-leader-election",
    "events-addr",
    "health-addr",
    "log-encoding",
    "metrics-addr",
    "receiverAddr",
    "storage-addr",
    "storage-adv-addr",
    "storage-path",
];

/// Flags about rights and results: controllers that differ in one are not taken over without a decision.
const DECISIVE: [&str; 8] = [
    "default-kubeconfig-service-account",
    "default-service-account",
    GATES,
    "insecure-kubeconfig-exec",
    "insecure-kubeconfig-tls",
    "no-cross-namespace-refs",
    "no-remote-bases",
    "watch-all-namespaces",
];

/// The flag whose values are gates, separated by commas.
const GATES: &str = "feature-gates";

/// What the names of flags begin with that permit what is not permitted by default.
const PERMISSIVE: &str = "insecure-";

/// The controllers that apply objects.
const APPLIERS: [&str; 2] = ["kustomize-controller", "helm-controller"];

/// A restriction, and the controllers that know it.
struct RestrictiveControllerFlag {
    flag: &'static str,
    controllers: &'static [&'static str],
}

/// Restrictions that some controllers may have and others not.
const RESTRICTIONS: [RestrictiveControllerFlag; 3] = [
    RestrictiveControllerFlag {
        flag: "no-cross-namespace-refs",
        controllers: &[
            "kustomize-controller",
            "helm-controller",
            "image-automation-controller",
            "image-reflector-controller",
            "notification-controller",
        ],
    },
    RestrictiveControllerFlag { flag: "default-service-account", controllers: &APPLIERS },
    RestrictiveControllerFlag {
        flag: "default-kubeconfig-service-account",
        controllers: &APPLIERS,
    },
];

/// What becomes of the flags of Flux's controllers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MigratedFlags {
    /// Flags that windlass gets.
    pub(super) flags: Vec<String>,
    /// What these flags mean, and which others mean nothing.
    pub(super) notes: Vec<String>,
    /// What does not count any more.
    pub(super) warnings: Vec<String>,
    /// What has to be decided before.
    pub(super) obstacles: Vec<String>,
}

/// One flag as a controller has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ControllerFlag {
    controller: String,
    name: String,
    value: String,
}

impl ControllerFlag {
    fn text(&self) -> String {
        format!("--{}={}", self.name, self.value)
    }
}

/// What becomes of the flags of some controllers in an installation with these objects.
pub(super) fn carried(controllers: &[Object], installation: &[Object]) -> MigratedFlags {
    let known = OperatorSettings::augment_args(Command::new("serve").no_binary_name(true));
    let installed = installation_flags(installation, &known);
    let mut groups: BTreeMap<String, Vec<ControllerFlag>> = BTreeMap::new();
    for flag in controllers.iter().flat_map(|it| flags_of(it, &known)) {
        groups.entry(key(&flag, &known)).or_default().push(flag);
    }
    let mut carried = MigratedFlags::default();
    for (key, flags) in groups {
        match installed.get(&key) {
            Some(own) => carried.replaced(&flags, own),
            // Controllers that have none count as well.
            None if key == selectors::FLAG => carried.take_selectors(controllers, &flags),
            None => carried.add(&flags, controllers, &known),
        }
    }
    carried
}

/// The flags of the installation itself, by their keys.
fn installation_flags(installation: &[Object], known: &Command) -> BTreeMap<String, String> {
    let flags = workloads(installation).flat_map(|it| flags_of(it, known));
    flags.map(|flag| (key(&flag, known), flag.value)).collect()
}

/// What is one decision: a flag, or one value of a flag that may be repeated; of gates, each.
fn key(flag: &ControllerFlag, known: &Command) -> String {
    let ControllerFlag { name, value, .. } = flag;
    let value = match name.as_str() {
        GATES => value.split_once('=').map_or(value.as_str(), |(gate, _)| gate.trim()),
        _ => value.as_str(),
    };
    match is_repeatable(name, known) {
        true => format!("{name}={value}"),
        false => name.clone(),
    }
}

fn argument<'k>(name: &str, known: &'k Command) -> Option<&'k clap::Arg> {
    known.get_arguments().find(|it| it.get_long() == Some(name))
}

fn is_repeatable(name: &str, known: &Command) -> bool {
    argument(name, known).is_some_and(|it| matches!(it.get_action(), ArgAction::Append))
}

/// The flags of a workload that differ from their defaults, as Go reads them.
fn flags_of(workload: &Object, known: &Command) -> Vec<ControllerFlag> {
    let all: Vec<_> = containers(workload).collect();
    let manager = all.iter().find(|it| it["name"] == "manager").or_else(|| all.first());
    let arguments = manager.and_then(|it| it["args"].as_array()).into_iter().flatten();
    let mut words = arguments.filter_map(Value::as_str).peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let Some(word) = word.strip_prefix("--") else { continue };
        let (name, value) = match word.split_once('=') {
            Some(given) => given,
            None if is_boolean(word, known) => (word, "true"),
            None => (word, words.next_if(|it| !it.starts_with('-')).unwrap_or_default()),
        };
        let values: Vec<&str> = match name {
            GATES => value.split(',').filter(|it| !it.trim().is_empty()).collect(),
            _ => vec![value],
        };
        let is_default = |value: &str| {
            let argument = argument(name, known);
            argument.is_some_and(|it| it.get_default_values().iter().any(|it| *it == *value))
        };
        let values = values.into_iter().filter(|it| !it.is_empty() && !is_default(it));
        found.extend(values.map(|value| ControllerFlag {
            controller: workload.name().to_owned(),
            name: own_name(name, replaced(workload)).to_owned(),
            value: value.trim().to_owned(),
        }));
    }
    found
}

/// Whether a flag may stand without a value.
fn is_boolean(name: &str, known: &Command) -> bool {
    let values = argument(name, known).and_then(clap::Arg::get_num_args);
    values.is_some_and(|it| it.min_values() == 0)
}

/// What a flag of a controller is called here: each controller of Flux has the same flag for what it does at once.
fn own_name<'n>(name: &'n str, controller: Option<&str>) -> &'n str {
    match (name, controller) {
        ("concurrent", Some("source-controller")) => "concurrent-source",
        ("concurrent", Some("kustomize-controller")) => "concurrent-kustomize",
        ("concurrent", Some("helm-controller")) => "concurrent-helm",
        _ => name,
    }
}

/// For what a flag counts in windlass that was one of some controllers.
fn scope(name: &str) -> &'static str {
    match name {
        "concurrent-source" => "for the sources and charts of each namespace",
        "concurrent-kustomize" => {
            "for building Kustomizations and rendering releases, all of them together"
        }
        "concurrent-ssa" => "for the objects of each Kustomization and release",
        _ => "for all kinds",
    }
}

/// Whose flags these are.
fn owners(flags: &[ControllerFlag]) -> String {
    let names: BTreeSet<&str> = flags.iter().map(|it| it.controller.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

impl MigratedFlags {
    /// Flags of controllers with one key, which the installation has with a value of its own.
    fn replaced(&mut self, flags: &[ControllerFlag], own: &str) {
        for flag in flags {
            let is_covered = OF_INSTALLATION.contains(&flag.name.as_str()) || flag.value == own;
            if !is_covered {
                self.warnings.push(format!(
                    "`{}` of {} does not count any more: windlass is installed with `--{}={own}`",
                    flag.text(),
                    flag.controller,
                    flag.name
                ));
            }
        }
    }

    /// Flags of controllers with one key, of which the installation has none.
    fn add(&mut self, flags: &[ControllerFlag], controllers: &[Object], known: &Command) {
        let Some(first) = flags.first() else { return };
        let name = first.name.as_str();
        let text = first.text();
        let owners = owners(flags);
        if OF_INSTALLATION.contains(&name) {
            return flags.iter().for_each(|it| self.events(it));
        }
        // That of the notification-controller alone.
        if name == "concurrent" {
            return self.notes.push(format!("`{text}` of {owners} has no effect in windlass"));
        }
        if argument(name, known).is_none() {
            return self.warnings.push(format!(
                "`{text}` of {owners} does not count any more: windlass has no such flag, so check what it was for"
            ));
        }
        if flags.iter().any(|it| it.value != first.value) {
            return self.differ(flags);
        }
        let unrestricted = unrestricted(flags, controllers);
        if !unrestricted.is_empty() {
            return self.obstacles.push(format!(
                "`{text}` of {owners}, and not of {}: windlass has one value for all kinds; give the one that is to count, \
                 such as `-- {text}`",
                unrestricted.join(", ")
            ));
        }
        let effect = match effect(&text) {
            Ok(effect) => effect,
            Err(refusal) => {
                return self.obstacles.push(format!(
                    "`{text}` of {owners} is not possible with windlass: {refusal}; or give another value of it behind `--`"
                ));
            }
        };
        match effect {
            Some(why) => {
                self.notes.push(format!("`{text}` of {owners} has no effect in windlass: {why}"));
            }
            None if is_without_effect(name) => {}
            None if name.starts_with(PERMISSIVE) && !is_of_all_appliers(flags, controllers) => {
                self.warnings.push(format!(
                    "`{text}` of {owners} does not count any more, since windlass would have it for all kinds: add `-- \
                     {text}` if it is to"
                ));
            }
            None => {
                let scope = scope(name);
                self.notes
                    .push(format!("`{text}` of {owners} becomes a flag of windlass, {scope}"));
                self.flags.push(text);
            }
        }
    }

    /// Notifications are what windlass does itself: events that go elsewhere are missed there.
    fn events(&mut self, flag: &ControllerFlag) {
        let is_elsewhere =
            !flag.value.is_empty() && !flag.value.contains("notification-controller");
        if flag.name == "events-addr" && is_elsewhere {
            let text = flag.text();
            self.warnings.push(format!(
                "`{text}` of {} does not count any more: windlass sends notifications itself; add `-- {text}` to have it post \
                 its events there instead",
                flag.controller
            ));
        }
    }

    /// Reports a flag that controllers have with different values, while windlass has one value for all.
    fn differ(&mut self, flags: &[ControllerFlag]) {
        let each: Vec<String> =
            flags.iter().map(|it| format!("`{}` of {}", it.text(), it.controller)).collect();
        let Some(first) = flags.first() else { return };
        let name = &first.name;
        let text = each.join(" and ");
        match DECISIVE.contains(&name.as_str()) {
            true => self.obstacles.push(format!(
                "{text}: windlass has one value for all kinds; give the one that is to count, such as `-- {}`",
                first.text()
            )),
            false => self.warnings.push(format!(
                "{text} do not count any more: windlass has one value for all kinds; give it behind `--`"
            )),
        }
    }

    /// The selectors by which controllers divide the objects.
    fn take_selectors(&mut self, controllers: &[Object], flags: &[ControllerFlag]) {
        let divider = |controller: &Object| {
            let flag = flags.iter().find(|it| it.controller == controller.name());
            let selector = flag.map(|it| it.value.clone()).unwrap_or_default();
            Some(ControllerSelector {
                name: controller.name().to_owned(),
                controller: replaced(controller)?,
                selector,
            })
        };
        match selectors::of(controllers.iter().filter_map(divider).collect()) {
            ControllerObjectSelection::Part(selector) => {
                let text = format!("--{}={selector}", selectors::FLAG);
                self.notes.push(format!("`{text}` of Flux's controllers becomes a flag of windlass"));
                self.flags.push(text);
            }
            ControllerObjectSelection::Shards(key) => self.notes.push(format!(
                "windlass reconciles the objects of all shards: the selectors by {key} of Flux's controllers are not needed"
            )),
            ControllerObjectSelection::Different(text) => self.obstacles.push(format!(
                "{text}: windlass has one selector for all kinds; give the one that is to count, such as `-- \
                 --{}=SELECTOR`",
                selectors::FLAG
            )),
        }
    }
}

/// Whether each controller that applies objects has one of these flags.
fn is_of_all_appliers(flags: &[ControllerFlag], controllers: &[Object]) -> bool {
    let appliers = controllers
        .iter()
        .filter(|it| replaced(it).is_some_and(|controller| APPLIERS.contains(&controller)));
    appliers.map(Object::name).all(|name| flags.iter().any(|it| it.controller == name))
}

/// The controllers without a restriction that others have, and that they know.
fn unrestricted<'c>(flags: &[ControllerFlag], controllers: &'c [Object]) -> Vec<&'c str> {
    let restriction = RESTRICTIONS.iter().find(|it| flags.iter().any(|flag| flag.name == it.flag));
    let Some(RestrictiveControllerFlag { controllers: knowing, .. }) = restriction else {
        return Vec::new();
    };
    let know = controllers
        .iter()
        .filter(|it| replaced(it).is_some_and(|controller| knowing.contains(&controller)));
    let names = know.map(Object::name);
    names.filter(|name| !flags.iter().any(|it| it.controller == *name)).collect()
}

/// Why a flag changes nothing; none if it changes something.
///
/// # Errors
/// windlass refuses it: why.
fn effect(flag: &str) -> Result<Option<&'static str>, String> {
    match serve_flags::settings(&[flag.to_owned()]) {
        Ok(settings) => Ok(settings.without_meaning().into_iter().next().map(|(_, why)| why)),
        Err(error) => {
            let text = error.root_cause().to_string();
            let line = text.lines().next().unwrap_or_default();
            Err(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        }
    }
}

#[cfg(test)]
mod tests;
