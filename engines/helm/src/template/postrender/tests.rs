//! Post-renderers of several kinds. Recorded answers are those of Helm 4.2.4's `action` package with kyaml 0.21.1.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{PostRenderStep, PostRendererStrategy, apply};
use crate::manifests::{ManifestOrder, sort};
use crate::template::{Error, text};

const PATH: &str = "c/templates/a.yaml";

/// What is untidy here is all written differently by kyaml.
const UNTIDY: &str = "# of all\nkind: ConfigMap\nmetadata:\n    name: \"a\"   # a name\n    annotations: {}\n\
                      data: {k: 'v', n:   [1, 2]}\nlist:\n    - a\n    -  b: c\n";
const HOOK: &str = "kind: Job\nmetadata:\n  name: h\n  annotations: {helm.sh/hook: pre-install}\n";
const TIDY: &str = "---\n# Source: c/templates/a.yaml\n# of all\nkind: ConfigMap\nmetadata:\n  name: \"a\" # a name\n\
                    data: {k: 'v', n: [1, 2]}\nlist:\n- a\n- b: c\n\n";

fn both() -> String {
    format!("{UNTIDY}---\n{HOOK}")
}

type RenderedFiles = BTreeMap<String, Vec<u8>>;

fn files(
    strategy: PostRendererStrategy,
    given: &str,
    plugin: Option<&str>,
    run: impl Fn(String) -> Result<String, String> + Sync,
) -> Result<RenderedFiles, Error> {
    let run = |input: &[u8]| {
        run(String::from_utf8(input.to_vec()).expect("kyaml writes text")).map(String::into_bytes)
    };
    let post_render = PostRenderStep { strategy, run: &run, plugin };
    let given = BTreeMap::from([(PATH.to_owned(), given.as_bytes().to_vec())]);
    apply(&post_render, given, &mut Vec::new())
}

/// What is stored of a release, and path and text of its hooks.
fn release(
    strategy: PostRendererStrategy,
    run: impl Fn(String) -> Result<String, String> + Sync,
) -> (String, Vec<(String, String)>) {
    let files = files(strategy, &both(), None, run).expect("it can be post-rendered");
    let sorted = sort(&files, ManifestOrder::Install).expect("they are manifests");
    let manifests = sorted.manifests.iter().map(|it| (it.path.as_str(), it.content.as_bytes()));
    let manifests = String::from_utf8(text(manifests)).expect("text");
    (manifests, sorted.hooks.into_iter().map(|hook| (hook.path, hook.manifest)).collect())
}

fn error(given: &str, run: impl Fn(String) -> Result<String, String> + Sync) -> String {
    files(PostRendererStrategy::Combined, given, None, run).expect_err("it fails").to_string()
}

#[test]
fn a_post_renderer_that_changes_nothing_leaves_all_in_the_form_of_kyaml() {
    let hook = |text: &str| vec![(PATH.to_owned(), text.to_owned())];
    assert_eq!(release(PostRendererStrategy::Combined, Ok), (TIDY.to_owned(), hook(HOOK)));
    let apart = (TIDY.to_owned(), hook(&format!("{HOOK}\n")));
    assert_eq!(release(PostRendererStrategy::Separate, Ok), apart);
    assert_eq!(release(PostRendererStrategy::NoHooks, Ok), apart);
}

#[test]
fn documents_that_are_added_get_files_of_their_own() {
    let added = "---\nkind: A\nmetadata: {name: a}\n---\n# only\n---\nkind: B # b\nmetadata:\n  name: b\n  \
                 annotations: {helm.sh/hook: test}\n";
    let paths = |strategy| {
        let (manifests, hooks) = release(strategy, |text| Ok(text + added));
        let sources = manifests.lines().filter_map(|line| line.strip_prefix("# Source: "));
        let sources: Vec<String> = sources.map(str::to_owned).collect();
        (sources, hooks.into_iter().map(|(path, _)| path).collect::<Vec<_>>())
    };
    let generated = |names: &[&str]| {
        let names = names.iter().map(|name| format!("generated-by-postrender-{name}.yaml"));
        std::iter::once(PATH.to_owned()).chain(names).collect::<Vec<_>>()
    };
    assert_eq!(paths(PostRendererStrategy::Combined), (generated(&["2"]), generated(&["3"])));
    let separate = (generated(&["hooks-1", "manifests-1"]), generated(&["hooks-2", "manifests-2"]));
    assert_eq!(paths(PostRendererStrategy::Separate), separate);
    assert_eq!(
        paths(PostRendererStrategy::NoHooks),
        (generated(&["manifests-1"]), generated(&["manifests-2"]))
    );
}

#[test]
fn each_strategy_hands_out_what_it_says() {
    let streams = |strategy| {
        let seen = Mutex::new(Vec::new());
        release(strategy, |text| {
            let has = (text.contains("kind: ConfigMap"), text.contains("kind: Job"));
            seen.lock().push(has);
            Ok(text)
        });
        seen.into_inner()
    };
    assert_eq!(streams(PostRendererStrategy::Combined), [(true, true)]);
    assert_eq!(streams(PostRendererStrategy::Separate), [(false, true), (true, false)]);
    assert_eq!(streams(PostRendererStrategy::NoHooks), [(true, false)]);
}

#[test]
fn a_post_renderer_sees_of_which_file_a_document_is() {
    let seen = |text: String| {
        let annotated = "kind: A\nmetadata:\n  annotations:\n    \
                         postrenderer.helm.sh/postrender-filename: 'c/templates/a.yaml'\n";
        assert_eq!(text, annotated);
        Ok(text)
    };
    let files = files(PostRendererStrategy::Combined, "kind: A\n", None, seen).expect("it works");
    assert_eq!(files[PATH], b"kind: A\n");
}

#[test]
fn errors_are_those_of_helm() {
    assert_eq!(
        error("a: b: c\n", Ok),
        "error merging manifests: parsing c/templates/a.yaml: MalformedYAMLError: yaml: mapping values are not \
         allowed in this context"
    );
    assert_eq!(
        error("kind: A\n", |_| Err("it does not work".to_owned())),
        "error while running post render on files: it does not work"
    );
    assert_eq!(
        error("kind: A\n", |text| Ok(text + "---\njust text\n")),
        "error while parsing post rendered output: error parsing YAML: wrong node kind: expected MappingNode but got \
         ScalarNode: node contents:\njust text\n"
    );
    assert_eq!(
        error("kind: A\n", |text| Ok(text + "\n--- x\nkind: A\n")),
        "error while parsing post rendered output: error parsing YAML: invalid document separator: --- x"
    );
    let separate = files(PostRendererStrategy::Separate, HOOK, None, |_| Err("no".to_owned()));
    let separate = separate.expect_err("it fails");
    assert!(separate.is_of_release());
    assert_eq!(separate.to_string(), "error while running post render on hooks: no");
    let name = PostRendererStrategy::parse("twice").map_err(|error| error.to_string());
    assert_eq!(name, Err("unknown post-render strategy: 'twice'".to_owned()));
}

#[test]
fn only_a_plugin_may_not_answer_with_nothing() {
    let nothing = |_| Ok(" \n".to_owned());
    let files = |plugin| files(PostRendererStrategy::Combined, HOOK, plugin, nothing);
    assert_eq!(files(None).expect("it may"), BTreeMap::new());
    assert_eq!(
        files(Some("p")).expect_err("it may not").to_string(),
        r#"error while running post render on files: post-renderer "p" produced empty output"#
    );
}

#[test]
fn a_single_document_of_a_json_file_becomes_json() {
    let given = "kind: A\nmetadata:\n  annotations:\n    config.kubernetes.io/path: a.json\n\
                 big: 12345678901234567890\nn: 1e3\nhtml: <a>\n";
    let files = files(PostRendererStrategy::Combined, given, None, Ok).expect("it works");
    let text = String::from_utf8_lossy(&files[PATH]);
    assert!(text.contains("  \"big\": 12345678901234567890,\n"), "{text}");
    assert!(text.contains("  \"n\": 1000\n"), "{text}");
    assert!(text.contains(r#""html": "\u003ca\u003e""#), "{text}");
}

#[test]
fn a_document_may_ask_for_lists_that_are_further_in() {
    let wide = "  annotations:\n    internal.config.kubernetes.io/seqindent: wide\n";
    let run = |text: String| Ok(text.replacen("  annotations:\n", wide, 1));
    let given = "kind: A\nmetadata:\n  name: a\nl:\n- 1\n---\nkind: B\nl:\n- 1\n";
    let files = files(PostRendererStrategy::Combined, given, None, run).expect("it works");
    let wanted = "kind: A\nmetadata:\n  name: a\nl:\n  - 1\n---\nkind: B\nl:\n- 1\n";
    assert_eq!(String::from_utf8_lossy(&files[PATH]), wanted);
}
