//! Converts the flags of Flux's controllers for windlass, and explains flags that are not converted.
//!
//! Flux's flags are also flags of `windlass serve`, where each applies to all kinds.
//! Elsewhere: the flags themselves (`windlass_serve::settings`), adding them to the manifests (`install/manifests.rs`).

mod selectors;

use std::collections::{BTreeMap, BTreeSet};

use clap::{ArgAction, Args as _, Command};
use objects::Object;
use serde_json::Value;

use self::selectors::{ControllerObjectSelection, ControllerSelector};
use crate::check::containers;
use crate::cluster_operators::replaced;
use crate::install::manifests::workloads;
use windlass_cli_runtime::trailing_serve_flags;
use windlass_serve::settings::{OperatorSettings, is_without_effect};

/// Flags about the place of a controller. The installation of windlass has its own values.
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

/// Flags about rights and results. If controllers have different values, the user has to decide before the migration.
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

/// The flag with feature gates, separated by commas.
const GATES: &str = "feature-gates";

/// The prefix of flags that permit what is forbidden by default.
const PERMISSIVE: &str = "insecure-";

/// The controllers that apply objects.
const APPLIERS: [&str; 2] = ["kustomize-controller", "helm-controller"];

/// A flag that restricts controllers, and the controllers that know it.
struct RestrictiveControllerFlag {
    flag: &'static str,
    controllers: &'static [&'static str],
}

/// The restricting flags that some controllers may have and others not.
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

/// The result of converting the flags of Flux's controllers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MigratedFlags {
    /// The flags for windlass.
    pub(super) flags: Vec<String>,
    /// Remarks about the meaning of these flags, and about flags without effect.
    pub(super) notes: Vec<String>,
    /// Warnings about flags that no longer apply.
    pub(super) warnings: Vec<String>,
    /// Decisions that the user has to make before the migration.
    pub(super) obstacles: Vec<String>,
}

/// A flag of a controller.
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

/// Converts the flags of some controllers for an installation with these objects.
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
            // Controllers without a selector matter, too.
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

/// The key under which values are compared. It is a flag, or one value of a flag that may be repeated, or one feature gate.
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

/// The flags of a workload that differ from their defaults, parsed like in Go.
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

/// Whether a flag needs no value.
fn is_boolean(name: &str, known: &Command) -> bool {
    let values = argument(name, known).and_then(clap::Arg::get_num_args);
    values.is_some_and(|it| it.min_values() == 0)
}

/// The name of a controller's flag in windlass. Each Flux controller has the same flag for its concurrency.
fn own_name<'n>(name: &'n str, controller: Option<&str>) -> &'n str {
    match (name, controller) {
        ("concurrent", Some("source-controller")) => "concurrent-source",
        ("concurrent", Some("kustomize-controller")) => "concurrent-kustomize",
        ("concurrent", Some("helm-controller")) => "concurrent-helm",
        _ => name,
    }
}

/// The scope in windlass of a flag that only some controllers had.
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

/// The controllers that have these flags, as text.
fn owners(flags: &[ControllerFlag]) -> String {
    let names: BTreeSet<&str> = flags.iter().map(|it| it.controller.as_str()).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

impl MigratedFlags {
    /// Handles a flag of controllers for which the installation has its own value.
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

    /// Handles a flag of controllers for which the installation has no value.
    fn add(&mut self, flags: &[ControllerFlag], controllers: &[Object], known: &Command) {
        let Some(first) = flags.first() else { return };
        let name = first.name.as_str();
        let text = first.text();
        let owners = owners(flags);
        if OF_INSTALLATION.contains(&name) {
            return flags.iter().for_each(|it| self.events(it));
        }
        // Only the notification-controller has this flag.
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

    /// windlass sends notifications itself. If events go to another address, windlass does not see them.
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

    /// Reports a flag with different values in several controllers, because windlass has one value for all.
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

    /// Converts the selectors with which controllers divide the objects.
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

/// The controllers that know a restriction but do not have it, while other controllers have it.
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

/// Why a flag changes nothing. `None` if it changes something.
///
/// # Errors
/// windlass refuses the flag, with the reason.
fn effect(flag: &str) -> Result<Option<&'static str>, String> {
    match trailing_serve_flags::settings(&[flag.to_owned()]) {
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
