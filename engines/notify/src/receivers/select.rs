//! Which objects a request wakes: those that a Receiver names and its filters let through.

use gocel::Expression;
use serde_json::{Value, json};

use super::payload::first;
use super::{Accepted, Receiver, Settings};
use crate::objects::Source;

/// API versions of kinds that need none in a spec.
const API_VERSIONS: [(&str, &str); 7] = [
    ("Bucket", "source.toolkit.fluxcd.io/v1"),
    ("HelmChart", "source.toolkit.fluxcd.io/v1"),
    ("HelmRepository", "source.toolkit.fluxcd.io/v1"),
    ("GitRepository", "source.toolkit.fluxcd.io/v1"),
    ("OCIRepository", "source.toolkit.fluxcd.io/v1"),
    ("ImageRepository", "image.toolkit.fluxcd.io/v1"),
    ("ArtifactGenerator", "source.extensions.fluxcd.io/v1beta1"),
];

/// An object to annotate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The objects of the cluster, as far as Receivers read them: API version, kind and metadata.
pub trait Targets {
    /// An object.
    fn object(&self, target: &Target) -> Option<Value>;
    /// All objects of a kind in a namespace.
    fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Vec<Value>;
}

/// What comes of a request that was let in.
#[derive(Debug, Default)]
pub struct Selection {
    /// The status of the answer.
    pub status: u16,
    /// The objects to annotate, each once.
    pub targets: Vec<Target>,
    /// What went wrong; for logs.
    pub errors: Vec<String>,
}

/// The filters that hold for an entry of a spec.
type Filters = Vec<Expression>;

/// Numbers as JSON decoded by Go has them: all are floating.
pub(super) fn doubles(value: &mut Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
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
}

impl Accepted {
    /// Selects the objects to annotate.
    pub fn select(
        &self,
        receiver: &Receiver,
        targets: &dyn Targets,
        settings: Settings,
    ) -> Selection {
        let (filters, request) = match self.filters(receiver) {
            Ok(found) => found,
            Err(error) => {
                return Selection { status: 500, errors: vec![error], ..Selection::default() };
            }
        };
        let mut selection = Selection { status: 200, ..Selection::default() };
        for (resource, filters) in receiver.spec.resources.iter().zip(&filters) {
            let wake = |object: &Value| self.passes(filters, object, &request);
            let own = &receiver.metadata.namespace;
            let outcome = entry(resource, own, targets, settings, &wake, &mut selection.targets);
            if let Err(error) = outcome {
                selection.status = 500;
                selection.errors.push(error);
            }
        }
        selection
    }

    /// Reads all filters before any object is touched; without any, the body is not read.
    fn filters(&self, receiver: &Receiver) -> Result<(Vec<Filters>, Value), String> {
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
        let read =
            |text: &str| Expression::compile(text, &scope).map_err(|error| error.to_string());
        if !top.is_empty() {
            read(top)?;
        }
        let entry = |resource: &Source| {
            let written = [top, &resource.filter].into_iter().filter(|text| !text.is_empty());
            written.map(|text| read(text)).collect()
        };
        let filters = spec.resources.iter().map(entry).collect::<Result<_, String>>()?;
        Ok((filters, request))
    }

    fn passes(&self, filters: &Filters, object: &Value, request: &Value) -> Result<bool, String> {
        let claims = self.claims.clone().map(Value::Object);
        let mut variables = vec![("res", object), ("req", request)];
        variables.extend(claims.as_ref().map(|claims| ("claims", claims)));
        for filter in filters {
            if !filter.evaluate_bool(&variables).map_err(|error| error.to_string())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn entry(
    resource: &Source,
    own: &str,
    targets: &dyn Targets,
    settings: Settings,
    passes: &dyn Fn(&Value) -> Result<bool, String>,
    selected: &mut Vec<Target>,
) -> Result<(), String> {
    let kind = &resource.kind;
    let namespace = if resource.namespace.is_empty() { own } else { &resource.namespace };
    if settings.no_cross_namespace && namespace != own {
        return Err("cross-namespace references are not allowed".to_owned());
    }
    let known = API_VERSIONS.iter().find(|(known, _)| known == kind).map(|(_, version)| *version);
    let version = Some(&*resource.api_version).filter(|version| !version.is_empty()).or(known);
    let version =
        version.ok_or_else(|| format!("apiVersion must be specified for kind \"{kind}\""))?;
    let target = |name: &str| Target {
        api_version: version.to_owned(),
        kind: kind.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let mut wake = |name: &str, object: &Value| {
        if passes(&partial(version, kind, object))? && !selected.contains(&target(name)) {
            selected.push(target(name));
        }
        Ok(())
    };
    if resource.name != "*" {
        let name = &resource.name;
        let object = targets.object(&target(name)).ok_or_else(|| {
            format!("unable to read {kind} \"{namespace}/{name}\": it was not found")
        })?;
        return wake(name, &object);
    }
    let wanted = resource
        .match_labels
        .as_ref()
        .ok_or("matchLabels field not set when using wildcard '*' as name")?;
    for object in targets.list(version, kind, namespace) {
        let labels = &object["metadata"]["labels"];
        let is_wanted = wanted.iter().all(|(key, value)| labels[key] == **value);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if is_wanted {
            wake(name, &object)?;
        }
    }
    Ok(())
}

/// What filters see of an object: its metadata.
fn partial(version: &str, kind: &str, object: &Value) -> Value {
    let mut partial = json!({"apiVersion": version, "kind": kind, "metadata": object["metadata"]});
    doubles(&mut partial);
    partial
}
