//! The manifests of the measured objects as text.
//!
//! The objects are applications of a ConfigMap and a Deployment, their namespaces, and the Flux objects that apply
//! them. `super::apply`, `super::kustomizations` and `super::idle` use them.

/// The namespace of the Flux objects.
pub(super) const NAMESPACE: &str = "flux-system";

/// A label that says to which piece of work an object belongs.
pub(super) const LABEL: &str = "windlass-bench";

/// An application: a ConfigMap and a Deployment of the same name.
#[derive(Debug, Clone)]
pub(super) struct WorkloadApp {
    /// The name of both objects.
    pub(super) name: String,
    /// The namespace of both objects.
    pub(super) namespace: String,
    /// The value of [`LABEL`].
    pub(super) work: String,
    /// How many Pods the Deployment has.
    pub(super) replicas: u32,
}

impl WorkloadApp {
    /// The manifests of both objects in a version. Another version changes the ConfigMap and replaces the Pods.
    pub(super) fn manifest(&self, version: u32) -> String {
        let Self { name, namespace, work, replicas } = self;
        let image = image(version);
        format!(
            "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: {namespace}
  labels:
    app: {name}
    {LABEL}: {work}
data:
  version: \"1.{version}.0\"
  settings.ini: |
    [server]
    port = 8080
    greeting = hello
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  namespace: {namespace}
  labels:
    app: {name}
    {LABEL}: {work}
spec:
  replicas: {replicas}
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      containers:
        - name: main
          image: {image}
          ports:
            - name: http
              containerPort: 8080
          envFrom:
            - configMapRef:
                name: {name}
          resources:
            requests:
              cpu: 10m
              memory: 16Mi
"
        )
    }
}

/// The image of an application in a version.
pub(super) fn image(version: u32) -> String {
    format!("registry.example.com/shop/app:1.{version}.0")
}

/// The manifest of a namespace.
pub(super) fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
}

/// The manifest of a GitRepository.
pub(super) fn source(name: &str, url: &str, interval: &str) -> String {
    format!(
        "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec: {{url: \"{url}\", ref: {{branch: main}}, interval: {interval}}}
"
    )
}

/// The manifest of a Kustomization for a folder of a GitRepository. It may be in another namespace than its objects.
pub(super) fn kustomization(
    name: &str,
    source: &str,
    path: &str,
    interval: &str,
    is_waiting: bool,
) -> String {
    format!(
        "\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
  sourceRef: {{kind: GitRepository, name: {source}}}
  path: ./{path}
  prune: true
  wait: {is_waiting}
  interval: {interval}
  timeout: 10m
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<String> {
        let documents = goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()).unwrap();
        documents.iter().map(|it| it.value["kind"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_strings_are_manifests_and_a_version_changes_both_objects_of_an_app() {
        let app = WorkloadApp {
            name: "a".into(),
            namespace: "b".into(),
            work: "raw-1".into(),
            replicas: 1,
        };
        assert_eq!(kinds(&app.manifest(1)), ["ConfigMap", "Deployment"]);
        let one = app.manifest(1);
        let two = app.manifest(2);
        for (one, two) in one.split("---").zip(two.split("---")) {
            assert_ne!(one, two);
        }
        assert_eq!(kinds(&namespace("a")), ["Namespace"]);
        assert_eq!(kinds(&source("a", "http://x", "30s")), ["GitRepository"]);
        assert_eq!(kinds(&kustomization("a", "b", "c", "30s", true)), ["Kustomization"]);
    }
}
