//! What Flux's own chain answered, and how it is handed to Helm.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::helm::HelmRelease;
use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use golang::work_meter::StopSignal;
use helm::RenderEnvironment;
use helm::capabilities::Capabilities;
use helm::chart::{Chart, ChartFile, ChartMetadata};
use helm::render::{REQUIRED_STACK_BYTES, ReleaseToRender, RenderMode};
use helm::template::{RenderRequest, RenderedRelease};
use serde::Deserialize;

use super::*;

/// Answers of Flux's chain.
const RECORDED: &str = include_str!("recorded.json");

#[derive(Deserialize)]
struct RecordedCases {
    cases: Vec<RecordedPostRenderCase>,
}

#[derive(Deserialize)]
struct RecordedPostRenderCase {
    about: String,
    spec: Value,
    stream: String,
    answer: String,
}

/// Errors in which Go shows the whole object, and what is said here.
const WORDED_OTHERWISE: [(&str, &str); 2] = [
    (
        "anchors and a key that is no text",
        "ConfigMap.v1.[noGrp]/a.[noNs]: json: unsupported type: map[interface {}]interface {}",
    ),
    ("a number that JSON has not", "ConfigMap.v1.[noGrp]/a.[noNs]: json: unsupported value: +Inf"),
];

fn object(more: &Value) -> HelmRelease {
    let mut spec = json!({"interval": "10m", "chartRef": {"kind": "HelmChart", "name": "c"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let mut object = HelmRelease::new("web", serde_json::from_value(spec).unwrap());
    object.metadata.namespace = Some("apps".to_owned());
    object
}

fn renderers(more: &Value, strategy: PostRendererStrategy) -> PostRenderers {
    let object = object(more);
    let origin = [("name", "web"), ("namespace", "apps")]
        .map(|(key, value)| (format!("helm.toolkit.fluxcd.io/{key}"), value.to_owned()));
    let spec = &object.spec;
    PostRenderers::of(&spec.post_renderers, spec.common_metadata.as_ref(), origin.into(), strategy)
}

fn rendered(more: &Value, stream: &str) -> Result<String, String> {
    let done = renderers(more, PostRendererStrategy::Combined).run(stream.as_bytes());
    done.map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn answers_are_those_of_flux() {
    let RecordedCases { cases } = serde_json::from_str(RECORDED).unwrap();
    let mut otherwise = BTreeMap::from(WORDED_OTHERWISE);
    assert!(cases.len() > 20);
    for RecordedPostRenderCase { about, spec, stream, answer } in cases {
        let wanted = match (answer.strip_prefix("Error: "), otherwise.remove(about.as_str())) {
            (None, None) => Ok(answer),
            (Some(error), None) => Err(error.to_owned()),
            (Some(_), Some(error)) => Err(error.to_owned()),
            (None, Some(_)) => panic!("{about}: there is no error"),
        };
        let got = rendered(&spec, &stream).map_err(|error| {
            let start =
                ["labels and annotations: ", "spec.postRenderers[0]: ", "spec.postRenderers[1]: "];
            let end = start.iter().find_map(|start| error.strip_prefix(start));
            end.unwrap_or_else(|| panic!("{about}: {error}")).to_owned()
        });
        assert_eq!(got, wanted, "{about}");
    }
    assert_eq!(otherwise, BTreeMap::new());
}

/// A chart with a Service and a hook, rendered with the post-renderers of a spec.
fn released(more: &Value, strategy: PostRendererStrategy) -> Result<RenderedRelease, String> {
    let post_renderers = renderers(more, strategy);
    let data = "kind: Service\napiVersion: v1\nmetadata: {name: web}\n---\nkind: Job\napiVersion: batch/v1\n\
                metadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n";
    let file = ChartFile { name: "templates/a.yaml".to_owned(), data: data.as_bytes().into() };
    let chart = Chart {
        metadata: ChartMetadata { name: "c".to_owned(), ..ChartMetadata::default() },
        templates: vec![file],
        ..Chart::default()
    };
    let work = move || {
        let local = GoTimeZone::fixed("UTC", 0);
        let env = RenderEnvironment {
            now: GoTime::from_unix(0, 0, local.clone()),
            local,
            random: Arc::new(|buffer| buffer.fill(7)),
            capabilities: Arc::new(Capabilities::default()),
            cluster: None,
            stop: StopSignal::default(),
            names: None,
        };
        let name = "web".to_owned();
        let namespace = "apps".to_owned();
        let rendered = post_renderers.with(|post_render| {
            let request = RenderRequest {
                chart,
                values: &GoMap::default(),
                release: ReleaseToRender { name, namespace, revision: 1, is_upgrade: false },
                mode: RenderMode::default(),
                skip_schema: false,
                sub_notes: false,
                templates: None,
                post_render,
            };
            helm::template::render(request, &env, &mut Vec::new())
        });
        rendered.map_err(|error| error.to_string())
    };
    std::thread::Builder::new()
        .stack_size(REQUIRED_STACK_BYTES)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap()
}

#[test]
fn the_strategy_says_who_gets_the_labels() {
    let labelled = |strategy| {
        let rendered = released(&json!({}), strategy).unwrap();
        assert_eq!((rendered.manifests.len(), rendered.hooks.len()), (1, 1));
        let has = |text: &str| text.contains("helm.toolkit.fluxcd.io/name: web\n");
        (has(&rendered.manifests[0].content), has(&rendered.hooks[0].manifest))
    };
    assert_eq!(labelled(PostRendererStrategy::Combined), (true, true));
    assert_eq!(labelled(PostRendererStrategy::Separate), (true, true));
    assert_eq!(labelled(PostRendererStrategy::NoHooks), (true, false));
}

#[test]
fn a_patch_reaches_hooks_only_where_it_sees_them() {
    let patch = "{apiVersion: batch/v1, kind: Job, metadata: {name: hook}, spec: {suspend: true}}";
    let more = json!({"postRenderers": [{}, {"kustomize": {"patches": [{ "patch": patch }]}}]});
    let rendered = released(&more, PostRendererStrategy::Combined).unwrap();
    assert!(rendered.hooks[0].manifest.contains("suspend: true"));
    assert_eq!(
        released(&more, PostRendererStrategy::NoHooks).unwrap_err(),
        "error while running post render on manifests: spec.postRenderers[1]: no resource matches strategic merge \
         patch \"Job.v1.batch/hook.[noNs]\": no matches for Id Job.v1.batch/hook.[noNs]; failed to find unique \
         target for patch Job.v1.batch/hook.[noNs]"
    );
}

#[test]
fn a_value_of_a_secret_is_in_no_error() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: hunter2, 1: hunter2}\n\
                  more: {b: .inf}\n";
    for more in [json!({}), json!({"postRenderers": [{"kustomize": {}}]})] {
        let error = rendered(&more, secret).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
