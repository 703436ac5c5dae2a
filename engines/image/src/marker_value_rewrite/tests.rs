//! Files beyond the recorded ones: which bytes stay, what is left out, limits.

use proptest::prelude::*;

use super::*;
use crate::image_reference::ImageRef;
use crate::image_setter::PolicyResult;

/// A policy `apps:web` with this tag.
fn setters(tag: &str) -> ImageSetterValues {
    let [name, tag, digest] = ["ghcr.io/acme/web", tag, ""].map(str::to_owned);
    let latest = Some(ImageRef { name, tag, digest });
    let [namespace, name] = ["apps", "web"].map(str::to_owned);
    ImageSetterValues::new(&[PolicyResult { namespace, name, latest }]).unwrap()
}

fn run(mode: RewriteMode, tag: &str, files: &[(&str, &str)]) -> MarkerRewriteResult {
    let setters = setters(tag);
    let mut rewriter = MarkerRewriter::new(&setters, mode, RewriteLimits::default());
    for (name, content) in files {
        rewriter.file(name, content.as_bytes());
    }
    rewriter.finish("/r").unwrap()
}

/// The result for a file of which all other bytes are kept.
fn kept(text: &str) -> String {
    let rewrite = run(RewriteMode::KeepBytes, "v2", &[("a.yaml", text)]);
    assert_eq!(rewrite.problems, [], "{text}");
    rewrite.files.get("a.yaml").cloned().unwrap_or_else(|| text.to_owned())
}

/// A marker for the tag.
const TAG: &str = "# {\"$imagepolicy\": \"apps:web:tag\"}";

#[track_caller]
fn check_kept(old: &str, new: &str) {
    assert_eq!(kept(&old.replace("TAG", TAG)), new.replace("TAG", TAG));
}

#[test]
fn only_the_bytes_of_values_change() {
    check_kept(
        "\u{feff}---\r\n\r\na:   old   TAG\r\n\r\nb: {c: 'é',   d: [e,f] }\r\n...\r\n",
        "\u{feff}---\r\n\r\na:   v2   TAG\r\n\r\nb: {c: 'é',   d: [e,f] }\r\n...\r\n",
    );
    check_kept("a: \"old\"\tTAG\nb: 'old' TAG", "a: \"v2\"\tTAG\nb: 'v2' TAG");
    check_kept("a: &x !!str old TAG\nb: *x\n", "a: &x !!str v2 TAG\nb: *x\n");
    check_kept("a: one\n  two\n\n  three TAG\nb: c\n", "a: v2 TAG\nb: c\n");
    check_kept("a: [old, TAG\n  b\n]\n", "a: [v2, TAG\n  b\n]\n");
    check_kept("- x: old TAG\n- y\n", "- x: v2 TAG\n- y\n");
    check_kept("a: 5 TAG\nb: ~ TAG\nc: '' TAG\n", "a: v2 TAG\nb: v2 TAG\nc: 'v2' TAG\n");
}

#[test]
fn blocks_stay_blocks() {
    check_kept(
        "a: |  TAG\r\n\r\n    old\r\n     more\r\n\r\n# c\r\nb: c\r\n",
        "a: |-  TAG\r\n    v2\r\n\r\n# c\r\nb: c\r\n",
    );
    check_kept("a: >+2 TAG\n     old\n\n\nb: c\n", "a: >- TAG\n     v2\n\n\nb: c\n");
    check_kept("a: |- TAG\n  old", "a: |- TAG\n  v2");
    check_kept("a: | TAG\nb: c\n", "a: \"v2\" TAG\nb: c\n");
    let literal = "# {\"x-k8s-cli\": {\"setter\": {\"name\": \"apps:web\", \"value\": \"x\\ny\"}}} \"$imagepolicy\"";
    assert_eq!(kept(&format!("a: | {literal}\n")), format!("a: | {literal}\n"));
    let literal = literal.strip_suffix(" \"$imagepolicy\"").unwrap();
    let text = format!("a: | {literal}\n  old\n  more\nb: c # \"$imagepolicy\"\n");
    assert_eq!(kept(&text), format!("a: \"x\\ny\" {literal}\nb: c # \"$imagepolicy\"\n"));
}

#[test]
fn a_number_becomes_a_text_and_a_text_that_is_like_one_is_quoted() {
    let text = format!("a: 1.0 {TAG}\nb: old {TAG}\nc: |\n  x\n");
    let rewrite = run(RewriteMode::KeepBytes, "1.10", &[("a.yaml", &text)]);
    assert_eq!(
        rewrite.files["a.yaml"],
        format!("a: \"1.10\" {TAG}\nb: \"1.10\" {TAG}\nc: |\n  x\n")
    );
    // `1.10` is equal to the number, but written otherwise; that alone is not a change.
    let equal = format!("a: 1.10 {TAG}\n");
    assert!(run(RewriteMode::KeepBytes, "1.10", &[("a.yaml", &equal)]).files.is_empty());
    let both = format!("a: 1.10 {TAG}\nb: old {TAG}\n");
    let rewrite = run(RewriteMode::KeepBytes, "1.10", &[("a.yaml", &both)]);
    assert_eq!(rewrite.files["a.yaml"], format!("a: \"1.10\" {TAG}\nb: \"1.10\" {TAG}\n"));
    assert_eq!(rewrite.result.len(), 1);
}

#[test]
fn what_flux_leaves_out_is_written_and_what_cannot_be_read_is_named() {
    let list =
        format!("kind: List\nitems:\n- kind: Pod\n  metadata:\n    name: a\n  image: old {TAG}\n");
    let broken = format!("a: old {TAG}\n---\nb: [\n---\nc: old {TAG}\n");
    let binary = "a: \u{1}\n# \"$imagepolicy\"";
    let files = [("list.yaml", list.as_str()), ("a..b.yaml", &broken), ("binary.yaml", binary)];
    let rewrite = run(RewriteMode::KeepBytes, "v2", &files);
    assert_eq!(rewrite.files["list.yaml"], list.replace("old", "v2"));
    assert_eq!(rewrite.files["a..b.yaml"], broken.replace("old", "v2"));
    let objects = rewrite.result.files();
    let pod = objects["list.yaml"].keys().next().unwrap();
    assert_eq!((pod.kind.as_str(), pod.name.as_str()), ("Pod", "a"));
    let problems: Vec<String> = rewrite.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("a..b.yaml:4: did not find"), "{problems:?}");
    assert!(problems[1].ends_with("control characters are not allowed"), "{problems:?}");
}

#[test]
fn markers_that_set_nothing_are_named() {
    let text = "a: b # {\"$imagepolicy\": \"apps:nope\"}\n# {\"$imagepolicy\": \"apps:web\"}\nc: d\ne: f # {\"$imagepolicy\": \"apps:web\"} x\ng: h # {\"$imagepolicy\": \"apps:web\"}\n";
    let rewrite = run(RewriteMode::KeepBytes, "v2", &[("a.yaml", text)]);
    let unread: Vec<String> = rewrite.unread.iter().map(ToString::to_string).collect();
    assert_eq!(
        unread,
        [
            "a.yaml:1: no policy of the automation sets `apps:nope`",
            "a.yaml:2: the marker is not the whole comment behind a value",
            "a.yaml:4: the marker is not the whole comment behind a value",
        ]
    );
    assert_eq!(rewrite.unread, run(RewriteMode::AsFlux, "v2", &[("a.yaml", text)]).unread);
}

#[test]
fn limits_leave_files_out_or_end_the_update() {
    let setters = setters("v2");
    let text = format!("a: old {TAG}\n");
    let limits =
        RewriteLimits { file_bytes: 100, all_bytes: 2 * text.len(), changes: 1, findings: 1 };
    let mut rewriter = MarkerRewriter::new(&setters, RewriteMode::KeepBytes, limits);
    rewriter.file("large.yaml", text.repeat(10).as_bytes());
    rewriter.file("a.yaml", text.as_bytes());
    let mut more = MarkerRewriter::new(&setters, RewriteMode::KeepBytes, limits);
    more.file("a.yaml", text.as_bytes());
    more.file("b.yaml", text.as_bytes());
    assert_eq!(more.finish("/r"), Err(RewriteError::Changes(1)));
    let rewrite = rewriter.finish("/r").unwrap();
    assert_eq!((rewrite.files.len(), rewrite.problems.len()), (1, 1));
    assert_eq!(rewrite.problems[0].file, "large.yaml");
    let no_changes = RewriteLimits { changes: 0, ..limits };
    let mut ended = MarkerRewriter::new(&setters, RewriteMode::KeepBytes, no_changes);
    ended.file("a.yaml", text.as_bytes());
    ended.file("b.yaml", text.as_bytes());
    assert_eq!(ended.bytes, text.len());
    assert_eq!(ended.finish("/r"), Err(RewriteError::Changes(0)));
}

#[test]
fn the_nodes_of_all_documents_that_change_are_bounded() {
    let problems = |text: &str, nodes: usize| {
        let limits = YamlLimits { nodes, ..YamlLimits::default() };
        let mut markers = SeenMarkers::default();
        let text = LineFeedText::new(text);
        let kept = value_replacement::rewrite(&text, &setters("v2"), &mut markers, &limits);
        (kept.changes.len(), kept.problems)
    };
    let changing = format!("a: old {TAG}\nb: [c, d]\n");
    // The document itself, its map, two keys, a value, and a list of two.
    let alone = 8;
    let both = format!("{changing}---\n{changing}");
    assert_eq!(problems(&both, 2 * alone), (2, Vec::new()));
    let (changes, found) = problems(&both, 2 * alone - 1);
    let reason = format!("it has more than {} nodes in documents that change", 2 * alone - 1);
    assert_eq!((changes, found), (1, vec![(None, reason)]));
    // One that stays is not kept.
    let mixed = format!("{changing}---\na: [b, c]\n");
    assert_eq!(problems(&mixed, alone), (1, Vec::new()));
    let (changes, found) = problems(&changing, 3);
    assert_eq!((changes, found.len()), (0, 1));
    assert!(found[0].1.contains("more than 3 nodes"), "{found:?}");
}

#[test]
fn all_changes_of_an_object_share_its_names() {
    let text = format!("a: old {TAG}\nb: old {TAG}\n");
    let text = LineFeedText::new(&text);
    let mut markers = SeenMarkers::default();
    let kept =
        value_replacement::rewrite(&text, &setters("v2"), &mut markers, &YamlLimits::default());
    let [(first, _), (second, _)] = kept.changes.as_slice() else { panic!("{kept:?}") };
    assert!(Arc::ptr_eq(first, second));
}

/// Documents with markers in many places.
fn documents() -> impl Strategy<Value = String> {
    let value = prop::sample::select(vec![
        "old",
        "'old'",
        "\"old\"",
        "5",
        "~",
        "&x old",
        "!!str old",
        "|\n    old",
        ">-\n    old\n\n",
        "[a, b]",
        "{a: old}",
        "one\n    two",
        "*x",
        "",
    ]);
    let key = prop::sample::select(vec!["a", "b", "c", "\"d\"", "- e", "- ", "  f", "metadata"]);
    let line = (key, value, any::<bool>(), "\r?\n").prop_map(|(key, value, is_marked, end)| {
        let colon = if key == "- " { "" } else { ": " };
        match value.split_once('\n') {
            Some((first, rest)) if is_marked => {
                format!("{key}{colon}{first} {TAG}{end}{rest}{end}")
            }
            _ if is_marked => format!("{key}{colon}{value} {TAG}{end}"),
            _ => format!("{key}{colon}{value}{end}"),
        }
    });
    let part = prop_oneof![
        8 => line,
        1 => Just("---\n".to_owned()),
        1 => Just("# note\n\n".to_owned()),
        1 => Just(format!("  {TAG}\n")),
    ];
    prop::collection::vec(part, 1..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_second_update_changes_nothing_and_both_ways_set_the_same(text in documents()) {
        let kept = run(RewriteMode::KeepBytes, "1.10", &[("a.yaml", &text)]);
        let new = kept.files.get("a.yaml").cloned().unwrap_or_else(|| text.clone());
        let again = run(RewriteMode::KeepBytes, "1.10", &[("a.yaml", &new)]);
        prop_assert!(again.files.is_empty(), "{new:?} becomes {again:?}");
        let setters = setters("1.10");
        let mut as_flux = MarkerRewriter::new(&setters, RewriteMode::AsFlux, RewriteLimits::default());
        as_flux.file("a.yaml", text.as_bytes());
        if let Ok(as_flux) = as_flux.finish("/r")
            && as_flux.problems.is_empty()
            && kept.problems.is_empty()
        {
            prop_assert_eq!(as_flux.result, kept.result, "{:?}", text);
        }
    }
}

#[test]
fn a_tag_that_needs_its_digest_is_named_where_it_stands_alone() {
    let digest = format!("sha256:{}", "2".repeat(64));
    let [name, tag] = ["ghcr.io/acme/web", "v2"].map(str::to_owned);
    let latest = Some(ImageRef { name, tag, digest });
    let [namespace, name] = ["apps", "web"].map(str::to_owned);
    let setters = ImageSetterValues::new(&[PolicyResult { namespace, name, latest }]).unwrap();
    let marked = |part: &str| format!("a: old # {{\"$imagepolicy\": \"apps:web{part}\"}}\n");
    let both = format!("{}---\n{}", marked(":tag"), marked(":digest"));
    // A value of one's own under the name of the digest is not that of the policy.
    let setter = r#"{"x-k8s-cli":{"setter":{"name":"apps:web:digest","value":"any"}}}"#;
    let forged = format!("{}---\na: old # {setter}\n", marked(":tag"));
    let files = [
        ("tag.yaml", marked(":tag")),
        ("both.yaml", both),
        ("forged.yaml", forged),
        ("image.yaml", marked("")),
    ];
    let alone = |setters: &ImageSetterValues| {
        let mut rewriter =
            MarkerRewriter::new(setters, RewriteMode::KeepBytes, RewriteLimits::default());
        for (name, content) in &files {
            rewriter.file(name, content.as_bytes());
        }
        let rewrite = rewriter.finish("").unwrap();
        assert_eq!(rewrite.files.len(), 4);
        rewrite.without_digest.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(alone(&setters).is_empty(), "no policy needs it");
    let required = setters.clone().requiring_digests(["apps:web".to_owned()]);
    let expected = ["tag.yaml", "forged.yaml"].map(|file| {
        format!("{file} has a marker `apps:web:tag` and none for `apps:web` or `apps:web:digest`")
    });
    assert_eq!(alone(&required), expected);
}
