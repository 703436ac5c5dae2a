//! Generates a large chart with many templates, each with many objects. It is always the same.
//!
//! `e2e/charts` has charts that are small enough for the checkout.

use std::collections::BTreeMap;
use std::fmt::Write as _;

const HELPERS: &str = r#"{{- define "fleet.name" -}}
{{- printf "%s-%s" .root.Release.Name .unit.name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "fleet.labels" -}}
app.kubernetes.io/name: {{ .unit.name | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fleet.resources" -}}
{{- $preset := dict "small" (dict "cpu" "50m" "memory" "64Mi") "large" (dict "cpu" "2" "memory" "4Gi") -}}
{{- $wanted := get $preset (default "small" .size) -}}
requests:
  {{- toYaml $wanted | nindent 2 }}
limits:
  memory: {{ $wanted.memory }}
{{- end }}
"#;

/// The text of each template. It makes objects of three kinds in turn.
const TEMPLATE: &str = r#"{{- $units := index .Values.groups "GROUP" -}}
{{- range $index, $unit := $units }}
{{- $scope := dict "root" $ "unit" $unit }}
---
{{- if eq $unit.kind "Deployment" }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "fleet.name" $scope }}
  labels:
    {{- include "fleet.labels" $scope | nindent 4 }}
spec:
  replicas: {{ $unit.replicas | default 1 | int }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ $unit.name | quote }}
  template:
    metadata:
      annotations:
        checksum/settings: {{ toJson $unit.settings | sha256sum }}
      labels:
        {{- include "fleet.labels" $scope | nindent 8 }}
    spec:
      containers:
        - name: {{ $unit.name | lower }}
          image: "{{ $.Values.registry }}/{{ $unit.image }}:{{ default $.Chart.AppVersion $unit.tag }}"
          resources:
            {{- include "fleet.resources" $unit | nindent 12 }}
          {{- with $unit.settings }}
          env:
            {{- range $key, $value := . }}
            - name: {{ $key | upper | replace "-" "_" }}
              value: {{ $value | toString | quote }}
            {{- end }}
          {{- end }}
{{- else if eq $unit.kind "Service" }}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "fleet.name" $scope }}
  labels:
    {{- include "fleet.labels" $scope | nindent 4 }}
spec:
  type: {{ ternary "LoadBalancer" "ClusterIP" (default false $unit.public) }}
  ports:
    {{- range $port := $unit.ports }}
    - port: {{ $port }}
      name: {{ printf "port-%d" (int $port) }}
    {{- end }}
{{- else }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "fleet.name" $scope }}
  labels:
    {{- include "fleet.labels" $scope | nindent 4 }}
data:
  index: {{ $index | quote }}
  text: |
    {{- tpl $unit.text $ | nindent 4 }}
  settings.yaml: |
    {{- toYaml $unit.settings | nindent 4 }}
{{- end }}
{{- end }}
"#;

/// The files of the chart below `chart/`.
pub(super) fn chart(templates: u16, objects: u16) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut add = |path: String, text: String| files.insert(path, text.into_bytes());
    let about = "apiVersion: v2\nname: fleet\nversion: 1.2.3+build.4\nappVersion: \"7.8\"\n";
    add("chart/Chart.yaml".to_owned(), about.to_owned());
    add("chart/templates/_helpers.tpl".to_owned(), HELPERS.to_owned());
    let mut values =
        "registry: registry.example.com/fleet\nlabels:\n  team: harbour\ngroups:\n".to_owned();
    for group in 0..templates {
        let name = format!("group-{group:03}");
        add(format!("chart/templates/{name}.yaml"), TEMPLATE.replace("GROUP", &name));
        // Writing to a String cannot fail.
        let _ = writeln!(values, "  {name}:");
        for unit in 0..objects {
            values.push_str(&self::unit(group, unit));
        }
    }
    add("chart/values.yaml".to_owned(), values);
    files
}

/// The values for one object.
fn unit(group: u16, unit: u16) -> String {
    let number = u32::from(group) * 31 + u32::from(unit) * 7;
    let name = format!("unit-{group}-{unit}");
    let size = if number % 5 == 0 { "large" } else { "small" };
    let kind = match unit % 3 {
        0 => "Deployment",
        1 => "Service",
        _ => "ConfigMap",
    };
    let specific = match kind {
        "Deployment" => format!(
            "      image: crane/{}\n      replicas: {}\n      size: {size}\n",
            number % 13,
            number % 4 + 1
        ),
        "Service" => format!(
            "      public: {}\n      ports: [{}, {}]\n",
            number % 3 == 0,
            8000 + number % 100,
            9000 + number % 100
        ),
        _ => format!(
            "      text: 'release {{{{ .Release.Name }}}} of {{{{ .Chart.Name }}}}, number {number}'\n"
        ),
    };
    format!(
        "    - kind: {kind}\n      name: {name}\n{specific}      settings:\n        log-level: {}\n        \
         window: {}\n        ratio: {}.{}\n        hosts: [a-{number}.example.com, b-{number}.example.com]\n",
        if number % 2 == 0 { "info" } else { "debug" },
        number * 1000,
        number % 7,
        number % 9 + 1,
    )
}
