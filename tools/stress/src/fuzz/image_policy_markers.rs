//! Files with markers, in which policies set values (`image`).

use image::{
    ImageRef, ImageSetterValues, MarkerRewriter, PolicyResult, RewriteLimits, RewriteMode,
};

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "setters",
    stack: USUAL_STACK,
    words: &[
        b" # {\"$imagepolicy\": \"apps:web\"}\n",
        b" # {\"$imagepolicy\": \"apps:web:tag\"}\n",
        b"# {\"$imagepolicy\": \"apps:web:digest\"}\n",
        b" # {\"$ref\": \"#/definitions/io.k8s.cli.setters.apps:web\"}\n",
        b" # {\"x-k8s-cli\": {\"setter\": {\"name\": \"a\", \"value\": \"b\\nc\"}}}\n",
        b"\"$imagepolicy\"",
        b"a: old",
        b"- old",
        b"image: 1.10",
        b"a: |",
        b"a: >2-",
        b"\n  old\n\n",
        b"'it''s'",
        b"\"a\\\n  b\"",
        b"[",
        b"]",
        b"{",
        b"}",
        b", ",
        b"&x ",
        b"*x",
        b"!!str ",
        b"!custom ",
        b"~",
        b"\n---\n",
        b"--- # c\n",
        b"...\n",
        b"\r\n",
        b"\r",
        b"\xef\xbb\xbf",
        b"\xc2\x85",
        b"\t",
        b"  ",
        b"# c\n",
        b"kind: List\nitems:\n",
        b"metadata:\n  annotations:\n    config.kubernetes.io/path: x\n",
        b"metadata: {}\n",
        b"? ",
        b"<<: *x\n",
    ],
    recorded: &["image/setters.jsonl"],
    read,
};

/// Updates the file in both modes. In the mode that keeps bytes, a second update must change nothing.
fn read(input: &[u8]) {
    let [name, tag, namespace, policy] =
        ["ghcr.io/acme/web", "1.10", "apps", "web"].map(str::to_owned);
    let latest = Some(ImageRef { name, tag, digest: String::new() });
    let Ok(setters) = ImageSetterValues::new(&[PolicyResult { namespace, name: policy, latest }])
    else {
        return;
    };
    let run = |input: &[u8], mode| {
        let mut rewriter = MarkerRewriter::new(&setters, mode, RewriteLimits::default());
        rewriter.file("a.yaml", input);
        rewriter.finish("/")
    };
    drop(run(input, RewriteMode::AsFlux));
    let kept = run(input, RewriteMode::KeepBytes);
    if let Ok(kept) = kept
        && let Some(new) = kept.files.get("a.yaml")
        && let Ok(again) = run(new.as_bytes(), RewriteMode::KeepBytes)
    {
        assert!(again.files.is_empty(), "a second update changes {again:?}");
    }
}
