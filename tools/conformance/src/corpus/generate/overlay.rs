//! Generates a large overlay of applications with five objects, each in its own file. It is always the same.
//!
//! `e2e/overlays` has overlays that are small enough for the checkout.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How many objects an application has.
const OBJECTS_PER_APPLICATION: u16 = 5;

/// The manifests of one application, in which `NAME`, `NUMBER` and `PORT` are replaced.
const APPLICATION: &str = r#"apiVersion: v1
kind: ServiceAccount
metadata:
  name: NAME
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: NAME-settings
data:
  window: "NUMBER"
  settings.yaml: |
    # what the application reads at its start
    listen: 0.0.0.0:PORT
    hosts: [a.example.com, b.example.com]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: NAME
  labels:
    app.kubernetes.io/name: NAME
spec:
  replicas: 2
  selector:
    matchLabels:
      app.kubernetes.io/name: NAME
  template:
    metadata:
      labels:
        app.kubernetes.io/name: NAME
    spec:
      serviceAccountName: NAME
      containers:
        - name: server
          image: registry.example.com/fleet/server:1.0
          args: ["--port=PORT", "--verbose"]
          envFrom:
            - configMapRef:
                name: NAME-settings
          env:
            - name: TOKEN
              valueFrom:
                secretKeyRef:
                  name: fleet-token
                  key: token
          resources:
            requests: {cpu: 50m, memory: 64Mi}
            limits: {memory: 128Mi}
        - name: proxy
          image: proxy:2
          ports:
            - containerPort: PORT
      volumes:
        - name: shared
          configMap:
            name: fleet-shared
---
apiVersion: v1
kind: Service
metadata:
  name: NAME
spec:
  selector:
    app.kubernetes.io/name: NAME
  ports:
    - port: 80
      targetPort: PORT
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: NAME
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: NAME
  minReplicas: 2
  maxReplicas: 10
"#;

/// The kustomization of the overlay. It uses a bit of everything that overlays can do.
const OVERLAY: &str = r#"resources:
  - ../base
namespace: fleet
namePrefix: prod-
labels:
  - pairs: {environment: production}
    includeTemplates: true
commonAnnotations:
  example.com/owner: harbour
images:
  - name: registry.example.com/fleet/server
    newTag: "1.2.3"
  - name: proxy
    newName: registry.example.com/proxy
    digest: sha256:aa58b6bd3ee4f6d7b3d6d5a5c8a6d0c2f2b3f1c3a0f6f3f0b1c2d3e4f5a6b7c8
configMapGenerator:
  - name: fleet-shared
    literals: [region=north, tier=gold]
secretGenerator:
  - name: fleet-token
    literals: [token=open-sesame]
patches:
  - target: {kind: Deployment}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata:
        name: any
      spec:
        template:
          spec:
            containers:
              - name: server
                env:
                  - name: LEVEL
                    value: info
  - target: {kind: HorizontalPodAutoscaler, name: app-.*0}
    patch: |
      - op: replace
        path: /spec/maxReplicas
        value: 20
"#;

/// The files of `overlay/` and `base/`. A plain overlay has no base, because it only lists its resources.
pub(super) fn overlay(objects: u16, is_plain: bool) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let place = if is_plain { "overlay" } else { "base" };
    let mut listed = "resources:\n".to_owned();
    for number in 0..objects.div_ceil(OBJECTS_PER_APPLICATION) {
        let name = format!("app-{number:03}");
        let file = format!("{name}.yaml");
        let left = usize::from(objects - number * OBJECTS_PER_APPLICATION)
            .min(usize::from(OBJECTS_PER_APPLICATION));
        let text: Vec<&str> = APPLICATION.split("---\n").take(left).collect();
        let text = text.join("---\n").replace("NAME", &name);
        let text = text.replace("NUMBER", &(u32::from(number) * 1000).to_string());
        let text = text.replace("PORT", &(8000 + number % 1000).to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(listed, "  - {file}");
        files.insert(format!("{place}/{file}"), text.into_bytes());
    }
    files.insert(format!("{place}/kustomization.yaml"), listed.into_bytes());
    if !is_plain {
        files.insert("overlay/kustomization.yaml".to_owned(), OVERLAY.as_bytes().to_owned());
    }
    files
}
