//! Which requests a search needs.

use super::*;

const SUBJECT: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn answer(body: &str) -> Option<ImageRegistryResponse> {
    Some(ImageRegistryResponse { media_type: String::new(), body: body.as_bytes().to_vec() })
}

fn tag(suffix: &str) -> ImageRegistryRequest {
    ImageRegistryRequest::Manifest(format!("{}{suffix}", SUBJECT.replace(':', "-")))
}

#[test]
fn a_registry_without_referrers_is_asked_for_the_fallback_tag() {
    let mut search = SignatureSearch::for_cosign(SUBJECT);
    let api = ImageRegistryRequest::Referrers(SUBJECT.to_owned());
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
    let mut search = SignatureSearch::for_cosign(SUBJECT);
    search.answer(tag(".sig"), None).unwrap();
    search.answer(ImageRegistryRequest::Referrers(SUBJECT.to_owned()), answer(&index)).unwrap();
    let request = ImageRegistryRequest::Manifest(digest);
    assert_eq!(search.open(), std::slice::from_ref(&request));
    search.answer(request, answer(&manifest)).unwrap();
    let request = ImageRegistryRequest::Blob { digest: digest_of(blob.as_bytes()), size: 2 };
    assert_eq!(search.open(), std::slice::from_ref(&request));
    let wrong = search.answer(request.clone(), answer("{} "));
    assert!(matches!(wrong, Err(DigestMismatchError(_))));
    search.answer(request, answer(blob)).unwrap();
    assert_eq!(search.open(), []);
    assert_eq!(search.attached().len(), 1);
}

#[test]
fn what_is_too_large_is_not_asked_for() {
    let layers = format!(r#"{{"layers":[{{"digest":"{SUBJECT}","size":{}}}]}}"#, MOST_BLOB + 1);
    let mut search = SignatureSearch::for_cosign(SUBJECT);
    search.answer(tag(".sig"), answer(&layers)).unwrap();
    search.answer(ImageRegistryRequest::Referrers(SUBJECT.to_owned()), answer("{}")).unwrap();
    assert_eq!(search.open(), []);
}

#[test]
fn too_many_bytes_hide_no_smaller_signature_and_nothing_under_the_tag() {
    let small = "{}".to_owned();
    let large = "x".repeat(4 << 20);
    let bodies: Vec<String> =
        (0..9).map(|at| format!("{at}{}", &large[1..])).chain([small.clone()]).collect();
    let manifest = |body: &String| {
        let layer = format!(r#""digest":"{}","size":{}"#, digest_of(body.as_bytes()), body.len());
        format!(r#"{{"layers":[{{"mediaType":"{BUNDLE}.v0.3+json",{layer}}}]}}"#)
    };
    let manifests: Vec<String> = bodies.iter().map(manifest).collect();
    let referrer = |it: &String| format!(r#"{{"digest":"{}","size":1}}"#, digest_of(it.as_bytes()));
    let index: Vec<String> = manifests.iter().map(referrer).collect();
    let old = r#"{"critical":{}}"#;
    let old_layer = format!(r#""digest":"{}","size":{}"#, digest_of(old.as_bytes()), old.len());
    let mut had = vec![
        (tag(".sig"), format!(r#"{{"layers":[{{{old_layer}}}]}}"#)),
        (
            ImageRegistryRequest::Referrers(SUBJECT.to_owned()),
            format!(r#"{{"manifests":[{}]}}"#, index.join(",")),
        ),
    ];
    for text in &manifests {
        had.push((ImageRegistryRequest::Manifest(digest_of(text.as_bytes())), text.clone()));
    }
    for text in bodies.iter().chain([&old.to_owned()]) {
        let digest = digest_of(text.as_bytes());
        let size = text.len() as u64;
        had.push((ImageRegistryRequest::Blob { digest, size }, text.clone()));
    }
    let mut search = SignatureSearch::for_cosign(SUBJECT);
    for _ in 0..3 {
        for request in search.open() {
            let (_, body) = had.iter().find(|(it, _)| *it == request).unwrap();
            search.answer(request, answer(body)).unwrap();
        }
    }
    assert_eq!(search.open(), []);
    let attached = search.attached();
    let read: Vec<&[u8]> =
        attached.iter().filter_map(|(_, it)| search.blob(it.as_ref()?)).collect();
    assert!(read.contains(&small.as_bytes()) && read.len() < 10, "{}", read.len());
    let layers = search.old_layers();
    assert_eq!(search.blob(&layers[0]), Some(old.as_bytes()));
}

#[test]
fn more_referrers_than_the_limit_cost_no_more_requests() {
    let referrer = |n: usize| format!(r#"{{"digest":"sha256:{n:064x}","size":1}}"#);
    let all: Vec<String> = (0..1000).map(referrer).collect();
    let mut search = SignatureSearch::for_cosign(SUBJECT);
    search.answer(tag(".sig"), None).unwrap();
    let index = format!(r#"{{"manifests":[{}]}}"#, all.join(","));
    search.answer(ImageRegistryRequest::Referrers(SUBJECT.to_owned()), answer(&index)).unwrap();
    assert_eq!(search.open().len(), MOST_REFERRERS);
}
