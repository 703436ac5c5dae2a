//! What the recorded cases do not cover: notes, earlier templates, and what there is of a release that failed.

use std::sync::Arc;

use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use golang::work_meter::StopSignal;

use super::{Error, RenderRequest, RenderedRelease, render};
use crate::RenderEnvironment;
use crate::capabilities::Capabilities;
use crate::chart::{Chart, ChartFile, ChartMetadata};
use crate::render::{ReleaseToRender, RenderMode};

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

fn run(chart: Chart, name: &str, sub_notes: bool) -> Result<RenderedRelease, Error> {
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
    let name = name.to_owned();
    let namespace = "default".to_owned();
    let request = RenderRequest {
        chart,
        values: &GoMap::default(),
        release: ReleaseToRender { name, namespace, revision: 1, is_upgrade: false },
        mode: RenderMode::default(),
        skip_schema: false,
        sub_notes,
        templates: None,
        post_render: None,
    };
    render(request, &env, &mut Vec::new())
}

#[test]
fn notes_are_those_of_the_chart_and_of_those_in_it_only_if_asked() {
    let mut parent = chart("p", &[("NOTES.txt", "own"), ("a", "kind: A")]);
    parent.charts.push(chart("s", &[("NOTES.txt", "sub")]));
    let rendered = run(parent.clone(), "r", false).unwrap();
    assert_eq!((rendered.notes.as_slice(), rendered.manifests.len()), (b"own".as_slice(), 1));
    assert_eq!(run(parent, "r", true).unwrap().notes, b"sub\nown");
}

#[test]
fn a_text_that_is_no_manifest_is_kept_with_what_was_read_before_it() {
    let hook = "kind: Job\nmetadata: {name: h, annotations: {helm.sh/hook: test}}";
    let error = run(chart("c", &[("a", hook), ("b", "a: b: c"), ("d", "kind: D")]), "r", false);
    let error = error.unwrap_err();
    assert!(error.is_of_release());
    let Error::Manifests { error, files } = error else { panic!("{error}") };
    assert_eq!((error.before.hooks.len(), files.len()), (1, 3));
    assert!(error.to_string().starts_with("YAML parse error on c/templates/b: "));
}

#[test]
fn a_name_is_checked_before_anything_else() {
    let error = run(chart("c", &[("a", "{{")]), "No", false).unwrap_err();
    assert!(!error.is_of_release());
    let text = error.to_string();
    assert!(text.starts_with("release name check failed: release name \"No\": invalid"), "{text}");
}
