//! What the recorded cases do not cover.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::{ManifestHead, ManifestOrder, split};

#[test]
fn services_are_deleted_before_workloads_and_after_what_leads_to_them() {
    let order =
        ["ValidatingWebhookConfiguration", "Ingress", "IngressClass", "Service", "CronJob", "Pod"];
    let order = order.iter().chain(&["RoleBinding", "Namespace", "PriorityClass", "Aaa", "Bbb"]);
    let order: Vec<_> = order.collect();
    for pair in order.windows(2) {
        assert_eq!(ManifestOrder::Uninstall.compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        assert_eq!(
            ManifestOrder::Uninstall.compare(pair[1], pair[0]),
            Ordering::Greater,
            "{pair:?}"
        );
    }
}

#[test]
fn values_of_another_type_become_strings_as_go_writes_them() {
    let head = |text: &str| {
        ManifestHead::parse(text.as_bytes()).map(|head| head.kind).map_err(|e| e.to_string())
    };
    for (text, wanted) in [
        ("kind: 1.10", "1.1"),
        ("kind: 123456789.5", "1.2345679e+08"),
        ("kind: 0.00001", "1e-05"),
        ("kind: 9007199254740993", "9007199254740993"),
        ("kind: on", "true"),
        ("\u{212a}ind: x", "x"),
    ] {
        assert_eq!(head(text), Ok(wanted.to_owned()), "{text}");
    }
    assert_eq!(
        head("kind: [a]").unwrap_err(),
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go struct field SimpleHead.kind of type string"
    );
}

proptest! {
    #[test]
    fn no_document_keeps_a_marker_at_the_beginning_of_a_line_and_no_text_is_lost(
        text in "(---|[ab\n \t-]|\r\n|\u{a0}){0,40}"
    ) {
        let documents = split(text.as_bytes());
        let strings = documents.iter().map(|document| String::from_utf8(document.to_vec()).unwrap());
        let documents: Vec<String> = strings.collect();
        for document in &documents {
            prop_assert!(!document.trim().is_empty());
            prop_assert!(!document.contains("\n---"));
        }
        let letters = |text: &str| text.matches(['a', 'b']).count();
        prop_assert_eq!(letters(&text), documents.iter().map(|document| letters(document)).sum::<usize>());
    }
}
