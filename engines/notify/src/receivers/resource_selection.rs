//! Selects the objects that a request causes to be reconciled: objects that a Receiver names and its filters accept.

use std::collections::BTreeSet;
use std::sync::Arc;

use gocel::{CelExpression, READING};
use golang::work_meter::{StopSignal, WorkLimitExceeded, WorkMeter};
use serde_json::{Value, json};

use super::payload::first;
use super::{
    AcceptedHookRequest, EVALUATING, Receiver, ReceiverControllerSettings, is_within_reach,
    too_many,
};
use crate::api_objects::EventSourceSelector;

/// The API versions of kinds for which a spec may omit it.
const API_VERSIONS: [(&str, &str); 7] = [
    ("Bucket", "source.toolkit.fluxcd.io/v1"),
    ("HelmChart", "source.toolkit.fluxcd.io/v1"),
    ("HelmRepository", "source.toolkit.fluxcd.io/v1"),
    ("GitRepository", "source.toolkit.fluxcd.io/v1"),
    ("OCIRepository", "source.toolkit.fluxcd.io/v1"),
    ("ImageRepository", "image.toolkit.fluxcd.io/v1"),
    ("ArtifactGenerator", "source.extensions.fluxcd.io/v1beta1"),
];

/// An object that a Receiver annotates, so that it is reconciled.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnotationTarget {
    /// The API version of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

/// The objects of the cluster, with the fields that Receivers read: API version, kind and metadata.
pub trait ReceiverClusterReader {
    /// The object as it is in the cluster. `None` if it cannot be read.
    fn object(&self, target: &AnnotationTarget) -> Option<Value>;
    /// All objects of a kind in a namespace.
    fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Arc<Vec<Value>>;
}

/// The result of a request that was accepted.
#[derive(Debug, Default)]
pub struct ReceiverSelection {
    /// The status of the answer.
    pub status: u16,
    /// The objects to annotate, each once.
    pub targets: Vec<AnnotationTarget>,
    /// The errors, for logs.
    pub errors: Vec<String>,
}

/// The filters of a Receiver.
struct ReceiverFilters {
    /// The filter for all entries.
    top: Option<CelExpression>,
    /// The filters of single entries.
    own: Vec<Option<CelExpression>>,
}

/// The selection of a Receiver's objects for one request, while it is under way.
struct ReceiverSelectionRun<'a> {
    targets: &'a dyn ReceiverClusterReader,
    request: Value,
    claims: Option<Value>,
    /// The allowance for all filters together.
    run: WorkMeter,
    selected: BTreeSet<AnnotationTarget>,
    selection: ReceiverSelection,
}

/// Converts all numbers to floats, as in JSON decoded by Go. Returns the number of values.
pub(super) fn doubles(value: &mut Value) -> u64 {
    let mut open = vec![value];
    let mut count = 0;
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Number(number) => {
                if let Some(double) = number.as_f64().and_then(serde_json::Number::from_f64) {
                    *number = double;
                }
            }
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values_mut()),
            _ => {}
        }
    }
    count
}

impl AcceptedHookRequest {
    /// Selects the objects to annotate.
    ///
    /// Differs(flux): the cost of all filters together is limited.
    pub fn select(
        &self,
        receiver: &Receiver,
        targets: &dyn ReceiverClusterReader,
        settings: ReceiverControllerSettings,
    ) -> ReceiverSelection {
        let (filters, request) =
            match too_many(receiver).map_or_else(|| self.filters(receiver), Err) {
                Ok(found) => found,
                Err(error) => {
                    return ReceiverSelection {
                        status: 500,
                        errors: vec![error],
                        ..ReceiverSelection::default()
                    };
                }
            };
        let mut selecting = ReceiverSelectionRun {
            targets,
            request,
            claims: self.claims.clone().map(Value::Object),
            run: WorkMeter::new(EVALUATING, StopSignal::default()),
            selected: BTreeSet::new(),
            selection: ReceiverSelection { status: 200, ..ReceiverSelection::default() },
        };
        for (resource, own) in receiver.spec.resources.iter().zip(&filters.own) {
            let filters = [filters.top.as_ref(), own.as_ref()];
            let namespace = &receiver.metadata.namespace;
            if let Err(error) = selecting.entry(resource, namespace, settings, filters) {
                selecting.selection.status = 500;
                selecting.selection.errors.push(error);
            }
        }
        selecting.selection
    }

    /// Compiles all filters before any object is read. If there are no filters, the body is not read.
    fn filters(&self, receiver: &Receiver) -> Result<(ReceiverFilters, Value), String> {
        let spec = &receiver.spec;
        let top = &spec.resource_filter;
        let has_any = !top.is_empty() || spec.resources.iter().any(|it| !it.filter.is_empty());
        let mut request = json!({});
        if has_any && self.is_json {
            match first(&self.body) {
                Ok(Value::Object(members)) => request = Value::Object(members),
                Ok(Value::Null) => {}
                Ok(_) => return Err("the body of the request is no JSON object".to_owned()),
                Err(error) => {
                    return Err(format!("failed to parse request body as JSON: {error}"));
                }
            }
            doubles(&mut request);
        }
        let mut scope = vec!["res", "req"];
        scope.extend(self.claims.as_ref().map(|_| "claims"));
        let run = &mut WorkMeter::new(READING, StopSignal::default());
        let mut read = |text: &String| {
            let read = (!text.is_empty()).then(|| CelExpression::compile_within(text, &scope, run));
            read.transpose().map_err(|error| error.to_string())
        };
        let top = read(top)?;
        let own = spec.resources.iter().map(|it| read(&it.filter)).collect::<Result<_, _>>()?;
        Ok((ReceiverFilters { top, own }, request))
    }
}

impl ReceiverSelectionRun<'_> {
    fn entry(
        &mut self,
        resource: &EventSourceSelector,
        own: &str,
        settings: ReceiverControllerSettings,
        filters: [Option<&CelExpression>; 2],
    ) -> Result<(), String> {
        let kind = &resource.kind;
        let namespace = if resource.namespace.is_empty() { own } else { &resource.namespace };
        if settings.no_cross_namespace && namespace != own {
            return Err("cross-namespace references are not allowed".to_owned());
        }
        let known =
            API_VERSIONS.iter().find(|(known, _)| known == kind).map(|(_, version)| *version);
        let version = Some(&*resource.api_version).filter(|version| !version.is_empty()).or(known);
        let version =
            version.ok_or_else(|| format!("apiVersion must be specified for kind \"{kind}\""))?;
        if !is_within_reach(version) {
            return Err(out_of_reach(version, kind));
        }
        let target = |name: &str| AnnotationTarget {
            api_version: version.to_owned(),
            kind: kind.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        if resource.name != "*" {
            let name = &resource.name;
            let object = self.targets.object(&target(name)).ok_or_else(|| {
                format!("unable to read {kind} \"{namespace}/{name}\": it was not found")
            })?;
            return self.wake(target(name), &object, filters);
        }
        let wanted = resource
            .match_labels
            .as_ref()
            .ok_or("matchLabels field not set when using wildcard '*' as name")?;
        for object in &*self.targets.list(version, kind, namespace) {
            self.run.steps(1 + wanted.len() as u64).map_err(too_much)?;
            let labels = &object["metadata"]["labels"];
            let is_wanted = wanted.iter().all(|(key, value)| labels[key] == **value);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if is_wanted {
                self.wake(target(name), object, filters)?;
            }
        }
        Ok(())
    }

    fn wake(
        &mut self,
        target: AnnotationTarget,
        object: &Value,
        filters: [Option<&CelExpression>; 2],
    ) -> Result<(), String> {
        let mut object = partial(&target, object);
        self.run.steps(doubles(&mut object)).map_err(too_much)?;
        let mut variables = vec![("res", &object), ("req", &self.request)];
        variables.extend(self.claims.as_ref().map(|claims| ("claims", claims)));
        for filter in filters.into_iter().flatten() {
            let passes = filter.evaluate_bool_within(&variables, &mut self.run);
            if !passes.map_err(|error| error.to_string())? {
                return Ok(());
            }
        }
        if self.selected.insert(target.clone()) {
            self.selection.targets.push(target);
        }
        Ok(())
    }
}

fn too_much(exhausted: WorkLimitExceeded) -> String {
    format!("the Receiver names too many objects for one request: {exhausted}")
}

/// The error about an entry whose kind is not allowed.
pub(super) fn out_of_reach(version: &str, kind: &str) -> String {
    format!(
        "kind \"{kind}\" of apiVersion \"{version}\" is not allowed: a Receiver names objects of Flux and of windlass only"
    )
}

/// The part of an object that filters can read: its metadata.
fn partial(target: &AnnotationTarget, object: &Value) -> Value {
    let AnnotationTarget { api_version, kind, .. } = target;
    json!({"apiVersion": api_version, "kind": kind, "metadata": object["metadata"]})
}
