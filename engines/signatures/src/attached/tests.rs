//! Which requests a search needs.

use super::*;

const SUBJECT: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn answer(body: &str) -> Option<Answer> {
    Some(Answer { media_type: String::new(), body: body.as_bytes().to_vec() })
}

fn tag(suffix: &str) -> Request {
    Request::Manifest(format!("{}{suffix}", SUBJECT.replace(':', "-")))
}

#[test]
fn a_registry_without_referrers_is_asked_for_the_fallback_tag() {
    let mut search = Search::for_cosign(SUBJECT);
    let api = Request::Referrers(SUBJECT.to_owned());
    assert_eq!(search.open(), [tag(".sig"), api.clone()]);
    search.answer(tag(".sig"), None).unwrap();
    search.answer(api, None).unwrap();
    assert_eq!(search.open(), [tag("")]);
    search.answer(tag(""), None).unwrap();
    assert_eq!(search.open(), []);
}

#[test]
fn a_referrer_is_asked_for_and_then_its_layer() {
    let blob = "{}";
    let manifest = format!(
        r#"{{"layers":[{{"mediaType":"{BUNDLE}.v0.3+json","digest":"{}","size":2}}]}}"#,
        digest_of(blob.as_bytes())
    );
    let digest = digest_of(manifest.as_bytes());
    let index =
        format!(r#"{{"manifests":[{{"digest":"{digest}","size":1}},{{"digest":"../x"}}]}}"#);
    let mut search = Search::for_cosign(SUBJECT);
    search.answer(tag(".sig"), None).unwrap();
    search.answer(Request::Referrers(SUBJECT.to_owned()), answer(&index)).unwrap();
    let request = Request::Manifest(digest);
    assert_eq!(search.open(), std::slice::from_ref(&request));
    search.answer(request, answer(&manifest)).unwrap();
    let request = Request::Blob { digest: digest_of(blob.as_bytes()), size: 2 };
    assert_eq!(search.open(), std::slice::from_ref(&request));
    let wrong = search.answer(request.clone(), answer("{} "));
    assert!(matches!(wrong, Err(Unusable::Mismatch(_))));
    search.answer(request, answer(blob)).unwrap();
    assert_eq!(search.open(), []);
    assert_eq!(search.attached().len(), 1);
}

#[test]
fn what_is_too_large_is_not_asked_for_and_too_much_is_refused() {
    let layers = format!(r#"{{"layers":[{{"digest":"{SUBJECT}","size":{}}}]}}"#, MOST_BLOB + 1);
    let mut search = Search::for_cosign(SUBJECT);
    search.answer(tag(".sig"), answer(&layers)).unwrap();
    search.answer(Request::Referrers(SUBJECT.to_owned()), answer("{}")).unwrap();
    assert_eq!(search.open(), []);
    let all = "x".repeat(MOST_BYTES);
    assert_eq!(search.answer(tag(".x"), answer(&all)), Err(Unusable::TooLarge));
}

#[test]
fn more_referrers_than_the_limit_cost_no_more_requests() {
    let referrer = |n: usize| format!(r#"{{"digest":"sha256:{n:064x}","size":1}}"#);
    let all: Vec<String> = (0..1000).map(referrer).collect();
    let mut search = Search::for_cosign(SUBJECT);
    search.answer(tag(".sig"), None).unwrap();
    let index = format!(r#"{{"manifests":[{}]}}"#, all.join(","));
    search.answer(Request::Referrers(SUBJECT.to_owned()), answer(&index)).unwrap();
    assert_eq!(search.open().len(), MOST_REFERRERS);
}
