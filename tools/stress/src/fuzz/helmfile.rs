//! Helmfiles (`helmfile`) and the files that they name. They are loaded, selected, printed and prepared for
//! rendering.

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::time::{GoTime, GoTimeZone};
use helmfile::{
    ChartRenderRequest, HelmChartRenderer, HelmfileHostEnvironment, HelmfilePlanSettings,
    HelmfileProcessingPlan, PrintEnvFormat, ReleaseListFormat, RenderCommandFlags,
};
use tree::MemoryTree;

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "helmfile",
    stack: helm::render::REQUIRED_STACK_BYTES,
    words: &[
        FILE_SEPARATOR,
        b"\n---\n",
        b"{{",
        b"}}",
        b"{{ .Values }}",
        b"{{ toYaml .Values }}",
        b"{{ readFile \"helmfile.yaml.gotmpl\" }}",
        b"{{ tpl (readFile \"a.gotmpl\") . }}",
        b"{{ range $i := until 100000000 }}x{{ end }}",
        b"{{ repeat 100000000 \"x\" }}",
        b"{{ readDirEntries \"/\" }}",
        b"{{ isFile \"../../etc\" }}",
        b"{{ exec \"sh\" (list \"-c\" \"id\") }}",
        b"{{ env \"HOME\" | get \"a.b\" . }}",
        b"{{ setValueAtPath \"a.b\" 1 .Values }}",
        b"{{`{{ .Release.Name }}`}}",
        b"bases: [b.yaml.gotmpl]\n",
        b"bases: [helmfile.yaml.gotmpl]\n",
        b"environments:\n  default:\n    values: [v.yaml, a.gotmpl, v.hcl]\n",
        b"    mergeStrategy: fallback\n",
        b"    missingFileHandler: Warn\n",
        b"values: [{a: {b: [1, {c: null}]}}]\n",
        b"helmfiles: [sub/helmfile.yaml]\n",
        b"helmfiles: [{path: helmfile.yaml.gotmpl, selectors: [a=b], selectorsInherited: true}]\n",
        b"helmfiles: ['**/*.yaml']\n",
        b"helmDefaults: {wait: true, args: ['--set', 'a=b']}\n",
        b"templates:\n  t: &t {chart: ./chart, values: ['{{ .Release.Name }}.yaml']}\n",
        b"releases:\n",
        b"- {name: a, chart: ./chart}\n",
        b"- {name: '{{`{{ .Release.Name }}x`}}', chart: ./chart}\n",
        b"- name: b\n  inherit: [{template: t}]\n",
        b"  <<: *t\n",
        b"  needs: [a, n/b, c/n/b]\n",
        b"  condition: a.b.enabled\n",
        b"  installed: false\n",
        b"  labels: {a: b}\n",
        b"  set: [{name: a.b[9999999], value: 1}, {name: c, file: v.yaml}]\n",
        b"  setTemplate: [{name: a, value: '{{ .Values }}'}]\n",
        b"  valuesTemplate: [{a: '{{ .Release }}'}]\n",
        b"  values: [v.yaml, a.gotmpl, {a: 1}]\n",
        b"  secrets: [s.yaml]\n",
        b"  jsonPatches: [{target: {kind: ConfigMap}, patch: [{op: remove, path: /data}]}]\n",
        b"  strategicMergePatches: [{kind: ConfigMap}]\n",
        b"  dependencies: [{chart: ./chart, alias: x, version: '>=0'}]\n",
        b"  forceNamespace: n\n",
        b"  hooks: [{events: [presync], command: id}]\n",
        b"locals { a = [for x in range(100000): x] }\n",
        b"values { b = local.a\n c = \"${local.a}\" }\n",
        b"for k, v in hv.a : k => v...",
        b"ref+vault://a#/b",
        b"git::https://example.com/a.git@helmfile.yaml?ref=v1",
        b"../../../../etc/passwd",
        b"&a [*a, *a]",
        b"!!binary",
        b".inf",
        b"1e309",
        b"'",
        b"\"",
        b"\t",
        b"\0",
        b"\xff",
    ],
    recorded: &["helmfile/own.jsonl"],
    read,
};

/// The separator between the files of an input. The first file is the helmfile, and [`FILES`] has the names of the
/// others in order.
const FILE_SEPARATOR: &[u8] = b"\n=====\n";

const FILES: [&str; 7] = [
    "helmfile.yaml.gotmpl",
    "a.gotmpl",
    "v.yaml",
    "v.hcl",
    "b.yaml.gotmpl",
    "sub/helmfile.yaml",
    "chart/templates/a.yaml",
];

/// Reads the input like `windlass helmfile`.
fn read(input: &[u8]) {
    let mut files =
        BTreeMap::from([("chart/Chart.yaml", &b"{apiVersion: v2, name: c, version: 1.0.0}"[..])]);
    let mut rest = Some(input);
    for name in FILES {
        let Some(text) = rest else { break };
        let end = text.windows(FILE_SEPARATOR.len()).position(|part| part == FILE_SEPARATOR);
        files.insert(name, end.and_then(|end| text.get(..end)).unwrap_or(text));
        rest = end.and_then(|end| text.get(end + FILE_SEPARATOR.len()..));
    }
    let Ok(files) = MemoryTree::from_files(files) else { return };
    let files = Arc::new(files);
    for selectors in [vec![], vec!["a=b".to_owned(), "name!=a".to_owned()]] {
        let utc = GoTimeZone::fixed("UTC", 0);
        let now = GoTime::from_unix(0, 0, utc.clone());
        let random = Arc::new(|bytes: &mut [u8]| bytes.fill(7));
        let helmfile_environment = HelmfileHostEnvironment::new(
            Arc::clone(&files) as _,
            BTreeMap::new(),
            now,
            utc,
            random,
        );
        let environment = "default".to_owned();
        let settings =
            HelmfilePlanSettings { environment, selectors, ..HelmfilePlanSettings::default() };
        let helmfile_environment = Arc::new(helmfile_environment);
        let plan = || HelmfileProcessingPlan::load(&helmfile_environment, "/", &settings);
        drop(plan().and_then(|plan| plan.list(ReleaseListFormat::Json)));
        drop(plan().and_then(|plan| plan.build(true, "/tmp")));
        drop(plan().and_then(|plan| plan.show_dag()));
        drop(plan().and_then(|plan| plan.print_env(PrintEnvFormat::Yaml)));
        drop(
            plan().and_then(|plan| {
                plan.renderings(&RenderCommandFlags::default(), &EmptyChartFetcher)
            }),
        );
    }
}

/// Fetches no charts, because the target `template` reads them.
struct EmptyChartFetcher;

impl HelmChartRenderer for EmptyChartFetcher {
    fn template(&self, _: &ChartRenderRequest<'_>) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(vec![("c/templates/a.yaml".to_owned(), b"kind: ConfigMap\n".to_vec())])
    }
}
