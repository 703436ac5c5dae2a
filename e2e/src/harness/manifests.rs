//! Manifests that stories put into repositories, as YAML texts without a namespace.
//!
//! Elsewhere: the behaviour of Pods with the annotation (`testbed/kwok/stages.yaml`).

/// The behaviour of the Pods of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodBehavior {
    /// The Pods become ready at once. The Pods of Jobs complete.
    Ready,
    /// The Pods run but never become ready.
    Unready,
    /// The Pods end with an error.
    Fail,
    /// The Pods restart again and again.
    CrashLoop,
    /// The image of the Pods does not exist.
    ImagePull,
}

impl PodBehavior {
    fn annotation(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Unready => "unready",
            Self::Fail => "fail",
            Self::CrashLoop => "crash-loop",
            Self::ImagePull => "image-pull",
        }
    }
}

/// A PersistentVolumeClaim `claim` that stays unbound, and that no Pod uses.
pub const UNBOUND_CLAIM: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  storageClassName: ""
"#;

/// The manifest of a ConfigMap with one value, in `data.value`.
pub fn config_map(name: &str, value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{value: \"{value}\"}}}}\n"
    )
}

/// A ConfigMap with `data.value` and one annotation.
pub fn annotated(name: &str, value: &str, annotation: &str, says: &str) -> String {
    format!(
        "
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  annotations: {{{annotation}: \"{says}\"}}
data:
  value: \"{value}\"
"
    )
}

/// The selector label of a workload and its Pod template, indented for `spec`.
fn template(name: &str, pods: PodBehavior, restart: &str) -> String {
    let behaviour = pods.annotation();
    format!(
        "  template:
    metadata:
      labels: {{app: {name}}}
      annotations: {{windlass.dev/testbed: {behaviour}}}
    spec:
      restartPolicy: {restart}
      containers: [{{name: main, image: example.com/app:1}}]
"
    )
}

/// A workload of `apps/v1`: `Deployment`, `StatefulSet` or `DaemonSet`.
pub fn workload(kind: &str, name: &str, pods: PodBehavior) -> String {
    let more = match kind {
        "StatefulSet" => "  replicas: 1\n  serviceName: none\n",
        "DaemonSet" => "",
        _ => "  replicas: 1\n",
    };
    let template = template(name, pods, "Always");
    format!(
        "
apiVersion: apps/v1
kind: {kind}
metadata: {{name: {name}}}
spec:
{more}  selector: {{matchLabels: {{app: {name}}}}}
{template}"
    )
}

/// A Deployment of one pod.
pub fn deployment(name: &str, pods: PodBehavior) -> String {
    workload("Deployment", name, pods)
}

/// A Job of one Pod without retries.
pub fn job(name: &str, pods: PodBehavior) -> String {
    let template = template(name, pods, "Never");
    format!(
        "\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n  backoffLimit: 0\n{template}"
    )
}

/// The CRD of the kind `Widget` in a group. It allows any spec, and has a status subresource.
pub fn widget_crd(group: &str) -> String {
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: widgets.{group}}}
spec:
  group: {group}
  scope: Namespaced
  names: {{kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {{status: {{}}}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
            status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"
    )
}

/// A Widget of that CRD.
pub fn widget(group: &str, name: &str) -> String {
    format!(
        "{{apiVersion: {group}/v1, kind: Widget, metadata: {{name: {name}}}, spec: {{size: 1}}}}\n"
    )
}
