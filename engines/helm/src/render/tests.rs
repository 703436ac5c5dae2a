//! What the recorded cases do not cover: the order of files, limits, lint, the cluster, and that a render leaves
//! nothing behind.

mod limits;
mod parallel_files;

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use golang::work_meter::StopSignal;
use serde_json::{Value as Json, json};

use super::{ChartTemplates, Error, MAX_CODE, REQUIRED_STACK_BYTES, ReleaseToRender, RenderMode};
use crate::RenderEnvironment;
use crate::capabilities::Capabilities;
use crate::chart::{Chart, ChartFile, ChartMetadata};
use crate::render_environment::{ClusterLookup, LookupQuery};
use crate::warning::HelmWarning;

fn chart(name: &str, templates: &[(&str, &str)]) -> Chart {
    let file = |(name, text): &(&str, &str)| ChartFile {
        name: format!("templates/{name}"),
        data: text.as_bytes().into(),
    };
    Chart {
        metadata: ChartMetadata { name: name.to_owned(), ..ChartMetadata::default() },
        templates: templates.iter().map(file).collect(),
        ..Chart::default()
    }
}

fn env() -> RenderEnvironment {
    let local = GoTimeZone::fixed("UTC", 0);
    RenderEnvironment {
        now: GoTime::from_unix(0, 0, local.clone()),
        local,
        random: Arc::new(|buffer| buffer.fill(7)),
        capabilities: Arc::new(Capabilities::default()),
        cluster: None,
        stop: StopSignal::default(),
        names: None,
    }
}

fn values(json: Json) -> GoMap {
    match GoRuntimeValue::from_json(&json) {
        GoRuntimeValue::Map(map) => map,
        _ => GoMap::default(),
    }
}

fn release() -> ReleaseToRender {
    let name = "rel".to_owned();
    let namespace = "default".to_owned();
    ReleaseToRender { name, namespace, revision: 1, is_upgrade: false }
}

type RenderResult = Result<BTreeMap<String, Vec<u8>>, Error>;

/// Renders on a thread with the stack that it takes.
fn on_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES).spawn_scoped(scope, run);
        thread.unwrap().join().unwrap()
    })
}

fn render_with(
    chart: &Chart,
    values: &GoMap,
    env: &RenderEnvironment,
    mode: RenderMode,
) -> (RenderResult, Vec<HelmWarning>) {
    on_stack(|| {
        let mut warnings = Vec::new();
        let rendered = ChartTemplates::parse(chart).and_then(|templates| {
            templates.render(chart, values, &release(), env, mode, &mut warnings)
        });
        (rendered, warnings)
    })
}

fn render(chart: &Chart, json: Json) -> Result<String, String> {
    let rendered = render_with(chart, &values(json), &env(), RenderMode::default()).0;
    let strings = rendered.map_err(|error| error.to_string())?;
    let lines = strings
        .into_iter()
        .map(|(name, text)| format!("{name}: {}\n", String::from_utf8(text).unwrap()));
    Ok(lines.collect())
}

#[test]
fn the_outermost_chart_and_in_it_the_first_file_has_the_last_word_on_a_definition() {
    let mut parent = chart(
        "p",
        &[("a.yaml", r#"{{ include "x" . }}"#), ("_b", r#"{{ define "x" }}b{{ end }}"#)],
    );
    parent.templates.push(ChartFile {
        name: "templates/_c".to_owned(),
        data: br#"{{ define "x" }}c{{ end }}"#.as_slice().into(),
    });
    parent.charts.push(chart("s", &[("_z", r#"{{ define "x" }}sub{{ end }}"#)]));
    assert_eq!(render(&parent, json!({})).unwrap(), "p/templates/a.yaml: b\n");
}

#[test]
fn a_template_may_include_itself_a_thousand_times_and_no_more() {
    let text = r#"{{ define "x" }}{{ if .n }}{{ include "x" .n }}{{ end }}.{{ end }}{{ include "x" .Values.v }}"#;
    let nested = |depth| (0..depth).fold(json!({}), |inner, _| json!({ "n": inner }));
    let chart = chart("c", &[("a", text)]);
    let values = |depth| {
        let map = GoMap::default();
        map.insert("v", GoRuntimeValue::from_json(&nested(depth)));
        map
    };
    let run = |depth| render_with(&chart, &values(depth), &env(), RenderMode::default()).0;
    assert_eq!(run(1001).unwrap()["c/templates/a"].len(), 1001);
    let error = run(1002).unwrap_err().to_string();
    let wanted = "rendering template has a nested reference name: x: unable to execute template";
    assert!(error.ends_with(wanted), "{}", &error[error.len() - 200..]);
    assert!(error.starts_with("template: c/templates/a:1:"), "{}", &error[..60]);
}

#[test]
fn what_a_text_defines_is_seen_in_it_alone() {
    let text = r#"{{ tpl "{{ define \"own\" }}o{{ end }}{{ include \"own\" . }}" . }}{{ tpl "{{ include \"own\" . }}" . }}"#;
    let error = render(&chart("c", &[("a", text)]), json!({})).unwrap_err();
    assert!(error.contains(r#"no template "own" associated with template "gotpl""#), "{error}");
    let text = r#"{{ define "y" }}outer{{ end }}{{ tpl .Values.t . }}{{ include "y" . }}{{ tpl .Values.t . }}"#;
    let values = json!({"t": r#"{{ define "y" }}inner{{ end }}{{ include "y" . }} "#});
    let out = render(&chart("c", &[("a", text)]), values).unwrap();
    assert_eq!(out, "c/templates/a: inner outerinner \n");
}

#[test]
fn lint_warns_where_a_render_fails() {
    let text = r#"{{ required "no" .Values.x }}{{ fail "never" }}{{ required "empty" "" }}!"#;
    let chart = chart("c", &[("a", text)]);
    let lint = RenderMode { lint: true, ..RenderMode::default() };
    let (rendered, warnings) = render_with(&chart, &GoMap::default(), &env(), lint);
    assert_eq!(rendered.unwrap()["c/templates/a"], b"!");
    let lines: Vec<String> = warnings.iter().map(HelmWarning::line_with_values).collect();
    assert_eq!(
        lines,
        [
            r#"level=WARN msg="missing required value" message=no"#,
            r#"level=INFO msg="funcMap fail" message=never"#,
            r#"level=WARN msg="missing required values" message=empty"#,
        ]
    );
    let error = render(&chart, json!({})).unwrap_err();
    assert_eq!(error, "execution error at (c/templates/a:1:3): no");
}

#[test]
fn a_missing_value_is_nothing_unless_it_is_strict() {
    let chart = chart("c", &[("a", "[{{ .Values.x }}]<no value>")]);
    assert_eq!(render(&chart, json!({})).unwrap(), "c/templates/a: []\n");
    let strict = RenderMode { strict: true, ..RenderMode::default() };
    let error = render_with(&chart, &GoMap::default(), &env(), strict).0.unwrap_err();
    assert_eq!(
        error.to_string(),
        "c/templates/a:1:11\n  executing \"c/templates/a\" at <.Values.x>:\n    map has no entry for key \"x\""
    );
}

struct PodLookup;

impl ClusterLookup for PodLookup {
    fn lookup(&self, wanted: &LookupQuery<'_>) -> Result<Option<Json>, String> {
        match (wanted.kind, wanted.name) {
            ("Pod", "") => Ok(Some(json!({"items": [1, 2]}))),
            ("Pod", "there") => Ok(Some(json!({"where": wanted.namespace}))),
            ("Pod", _) => Ok(None),
            _ => Err("unable to get apiresource".to_owned()),
        }
    }
}

#[test]
fn lookup_finds_objects_lists_and_nothing() {
    let text = r#"{{ (lookup "v1" "Pod" "ns" "there").where }} {{ len (lookup "v1" "Pod" "" "").items }} {{ lookup "v1" "Pod" "" "no" }}"#;
    let with = |text| {
        let env = RenderEnvironment { cluster: Some(Arc::new(PodLookup)), ..env() };
        render_with(&chart("c", &[("a", text)]), &GoMap::default(), &env, RenderMode::default()).0
    };
    assert_eq!(with(text).unwrap()["c/templates/a"], b"ns 2 map[]");
    let error = with(r#"{{ lookup "v1" "Odd" "" "" }}"#).unwrap_err().to_string();
    assert!(error.ends_with("error calling lookup: unable to get apiresource"), "{error}");
    let alone = chart("c", &[("a", r#"{{ lookup "v1" "Pod" "" "" }}"#)]);
    assert_eq!(render(&alone, json!({})).unwrap(), "c/templates/a: map[]\n");
}

#[test]
fn a_chart_in_another_sees_its_own_values_and_the_parent_sees_it() {
    let mut parent = chart("p", &[("a", "{{ .Subcharts.s.Values.x }}{{ .Chart.IsRoot }}")]);
    let text = "{{ .Values.x }} {{ .Chart.IsRoot }} {{ .Template.BasePath }}";
    parent.charts.push(chart("s", &[("b", text)]));
    // Parity(helm 4): its name is taken for a path.
    parent.charts.push(chart("with.dot", &[("c", "{{ .Values }}")]));
    let out =
        render(&parent, json!({"s": {"x": 1}, "with.dot": {"y": 1}, "with": {"dot": {"z": 2}}}));
    assert_eq!(
        out.unwrap(),
        "p/charts/s/templates/b: 1 false p/charts/s/templates\np/charts/with.dot/templates/c: map[z:2]\np/templates/a: 1true\n"
    );
}

#[test]
fn of_a_library_only_partials_count() {
    let mut library = chart("l", &[("a", "text"), ("_b", "{{ define \"b\" }}x{{ end }}")]);
    library.metadata.kind = "Library".to_owned();
    let mut parent = chart("p", &[("a", "{{ include \"b\" . }}")]);
    parent.charts.push(library);
    assert_eq!(render(&parent, json!({})).unwrap(), "p/templates/a: x\n");
}

#[test]
fn templates_are_parsed_once_and_a_render_leaves_nothing_behind() {
    let first = chart("c", &[("a", "{{ .Release.Name }}{{ tpl .Values.t . }}")]);
    let templates = ChartTemplates::parse(&first).unwrap();
    assert!(templates.are_of(&first.clone()));
    assert!(!templates.are_of(&chart("d", &[("a", "{{ .Release.Name }}{{ tpl .Values.t . }}")])));
    assert!(!templates.are_of(&chart("c", &[("a", "other")])));
    for (text, wanted) in [("1", "rel1"), ("{{ .Values.t | len }}", "rel21"), ("1", "rel1")] {
        let values = values(json!({ "t": text }));
        let rendered = on_stack(|| {
            let mode = RenderMode::default();
            templates.render(&first, &values, &release(), &env(), mode, &mut Vec::new())
        });
        assert_eq!(rendered.unwrap()["c/templates/a"], wanted.as_bytes());
    }
}

#[test]
fn code_has_a_limit_and_text_has_none() {
    let much = "{{ . }}".repeat(MAX_CODE / 7 + 1);
    assert!(matches!(ChartTemplates::parse(&chart("c", &[("a", &much)])), Err(Error::TooMuchCode)));
    let long = "x".repeat(MAX_CODE + 1);
    assert!(ChartTemplates::parse(&chart("c", &[("a", &long)])).is_ok());
    let error = render(&chart("c", &[("a", "{{ tpl .Values.t . }}")]), json!({ "t": much }));
    assert!(error.unwrap_err().ends_with("the actions of a text are longer than 4194304 bytes"));
}

#[test]
fn the_way_to_an_error_has_its_lines_and_what_is_missing() {
    let text = "\n  {{ include \"x\" . }}{{ define \"x\" }}\nv: {{ .Values.a.b }}{{ end }}";
    let error =
        render_with(&chart("c", &[("a", text)]), &values(json!({})), &env(), RenderMode::default());
    let error = error.0.unwrap_err();
    let steps: Vec<_> = error.trail().iter().map(|step| (step.line, step.column)).collect();
    assert_eq!(steps, [(2, 5), (3, 13)]);
    let last = error.trail().last().unwrap();
    assert_eq!(last.text.as_deref(), Some("v: {{ .Values.a.b }}{{ end }}"));
    assert_eq!(last.missing.as_deref(), Some(".Values.a"));
}
