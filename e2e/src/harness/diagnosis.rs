//! The information that a failing story prints by itself.
//!
//! Here: the status of an object, the events of a namespace, and the end of the operator's log. Elsewhere: when it is printed
//! (`super::story`).

use std::fmt::Write;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};

/// The generation, deletion and status of an object, as readable YAML.
pub(super) fn status(object: &DynamicObject) -> String {
    let mut text = String::new();
    if let Some(generation) = object.metadata.generation {
        writeln!(text, "  generation: {generation}").ok();
    }
    if object.metadata.deletion_timestamp.is_some() {
        writeln!(text, "  being deleted; finalizers: {}", object.finalizers().join(", ")).ok();
    }
    let status = object.data.get("status").unwrap_or(&serde_json::Value::Null);
    let shown = serde_saphyr::to_string(status).unwrap_or_else(|_| status.to_string());
    for line in shown.lines() {
        writeln!(text, "  {line}").ok();
    }
    text
}

/// The events of a namespace, oldest first, and the end of the log of each running operator.
pub(super) async fn surroundings(client: &Client, namespace: &str) -> String {
    let mut text = String::from("events:\n");
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    match events.list(&ListParams::default()).await {
        Ok(list) => {
            let mut items = list.items;
            items.sort_by_key(|event| event.metadata.creation_timestamp.clone().map(|time| time.0));
            for event in items.iter().rev().take(40).rev() {
                let about = &event.involved_object;
                let word = |value: &Option<String>| value.clone().unwrap_or_default();
                writeln!(
                    text,
                    "  {} {} {}/{}: {}",
                    word(&event.type_),
                    word(&event.reason),
                    word(&about.kind),
                    word(&about.name),
                    word(&event.message),
                )
                .ok();
            }
        }
        Err(error) => {
            writeln!(text, "  (cannot be read: {error})").ok();
        }
    }
    let log = crate::operator_process::tails(60);
    if !log.is_empty() {
        write!(text, "the operator's log ends:\n{log}").ok();
    }
    text
}
