//! Secrets that are large, damaged, or of older versions. Secrets that Helm writes are covered by recorded answers
//! (`cargo xtask conformance`).

use proptest::prelude::*;

use super::*;

fn none() -> BTreeMap<String, String> {
    BTreeMap::new()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

fn problem(data: &[u8]) -> String {
    unpack(&[data], &none(), &none()).unwrap_err().to_string()
}

fn base64(data: &[u8]) -> Vec<u8> {
    STANDARD.encode(data).into_bytes()
}

/// Bytes that do not get shorter by packing.
fn noise(length: usize) -> String {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + ((seed >> 33) % 94) as u8)
    };
    (0..length).map(|_| next()).collect()
}

fn record(manifest: String) -> ReleaseRecord {
    let mut record = ReleaseRecord::from_json(
        br#"{"name":"web","namespace":"apps","version":3,"info":{"status":"deployed"}}"#,
    )
    .unwrap();
    record.manifest = manifest;
    record
}

#[test]
fn a_record_that_fits_is_one_secret_and_another_one_is_cut() {
    let small = pack(&record("a: 1\n".to_owned())).unwrap();
    assert_eq!((small.parts.len(), small.annotations()), (1, none()));
    let manifest = noise(3 << 20);
    let packed = pack(&record(manifest.clone())).unwrap();
    assert!(packed.parts.len() > 1);
    assert!(packed.parts.iter().all(|part| part.len() <= MAX_PART));
    let parts: Vec<&[u8]> = packed.parts.iter().map(Vec::as_slice).collect();
    let annotations = packed.annotations();
    assert_eq!(part_count(&annotations), Ok(parts.len()));
    let whole = unpack(&parts, &none(), &annotations).unwrap();
    assert_eq!((whole.manifest, whole.version), (manifest, 3));
    let name = part_name("web", 3, &packed.digest, 1);
    assert!(name.starts_with("sh.helm.release.v1.web.v3.") && name.ends_with(".1"), "{name}");
    assert!(name.starts_with(&part_prefix("web", 3, &packed.digest)));
    assert!(!name.starts_with(&part_prefix("web", 3, "sha256:0123456789abcdef")));
}

#[test]
fn a_part_is_known_by_its_release() {
    assert!(is_part_of("web", &part_of("web", 12)));
    for other in ["web.v", "web.vx", "web.v1.v2", "website.v1", "we.v1", "v1", ""] {
        assert!(!is_part_of("web", other), "{other}");
    }
    assert!(is_part_of("web.v1", "web.v1.v2"));
}

#[test]
fn parts_that_do_not_belong_together_are_reported() {
    let packed = pack(&record(noise(2 << 20))).unwrap();
    let mut parts: Vec<&[u8]> = packed.parts.iter().map(Vec::as_slice).collect();
    let annotations = packed.annotations();
    let text = |parts: &[&[u8]], annotations: &BTreeMap<String, String>| {
        unpack(parts, &none(), annotations).unwrap_err().to_string()
    };
    assert!(text(&parts[..1], &annotations).ends_with("some are missing"));
    parts.swap(0, 1);
    assert!(text(&parts, &annotations).ends_with("the digest of all of them is another one"));
    for count in ["", "0", "-1", "65", "x"] {
        let annotations = BTreeMap::from([(PARTS.to_owned(), count.to_owned())]);
        assert!(text(&[b""], &annotations).contains("is no number from 1 to 64"), "{count}");
    }
}

#[test]
fn a_record_that_does_not_fit_at_all_is_reported_with_its_size() {
    let mut large = record(noise(20 << 20));
    let chunk: std::sync::Arc<[u8]> = noise(20 << 20).into_bytes().into();
    let file = |name: &str| crate::record::StoredFile {
        name: name.to_owned(),
        data: std::sync::Arc::clone(&chunk),
        changed: None,
    };
    let files = Some(vec![file("a"), file("b")]);
    large.chart = Some(crate::record::StoredChart { files, ..Default::default() });
    let error = pack(&large).err().unwrap().to_string();
    assert!(error.starts_with("release apps/web.v3 cannot be stored: "), "{error}");
}

#[test]
fn a_damaged_secret_says_what_is_wrong_with_it_and_nothing_of_its_contents() {
    let json = br#"{"name":"web","manifest":"password: hunter2"}"#;
    assert_eq!(problem(b"%"), "its key `release` is not base64");
    assert_eq!(
        problem(&base64(&gzip(json)[..30])),
        "its key `release` is damaged: what is in it cannot be unpacked"
    );
    let shapes: [(&[u8], &str); 7] = [
        (b"", "it is not JSON: unexpected end of JSON input"),
        (b"[]", "its field `release` is not an object"),
        (br#"{"version":"1"}"#, "its field `version` is not an integer"),
        (br#"{"version":1.5}"#, "its field `version` is not an integer"),
        (br#"{"hooks":[1]}"#, "its field `hooks` is not a list of objects"),
        (br#"{"chart":{"schema":"%"}}"#, "its field `schema` is not base64"),
        (
            br#"{"name":"web","manifest":{"password":"hunter2"}}"#,
            "its field `manifest` is not a text",
        ),
    ];
    for (json, wanted) in shapes {
        assert_eq!(
            problem(&base64(&gzip(json))),
            format!("its key `release` holds no release: {wanted}")
        );
    }
    let text = problem(&base64(&gzip(br#"{"info":{"deleted":"hunter2"}}"#)));
    assert!(text.contains("its field `deleted` is not a time"), "{text}");
}

#[test]
fn what_swells_is_not_unpacked() {
    let bomb = vec![b' '; (64 << 20) + 1];
    assert_eq!(problem(&base64(&gzip(&bomb))), "its key `release` unpacks to more than 64 MiB");
    let many = format!("[{}0]", "0,".repeat(5 << 20));
    let many = format!(r#"{{"config":{{"a":{many}}}}}"#);
    assert!(problem(&base64(&gzip(many.as_bytes()))).ends_with("it has more than 4194304 values"));
    let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    assert!(problem(&base64(&gzip(deep.as_bytes()))).ends_with("exceeded max depth"));
}

#[test]
fn records_of_older_versions_of_helm_are_read() {
    let plain = br#"{"name":"old","version":2,"namespace":"apps","info":{"first_deployed":"2021-01-02T03:04:05.6+01:00","last_deployed":"2021-01-02T03:04:05.6+01:00","deleted":"","status":"superseded"},"chart":{"metadata":null,"lock":null,"templates":[],"values":{},"schema":null,"files":null},"hooks":null}"#;
    let labels = BTreeMap::from([
        ("owner".to_owned(), "helm".to_owned()),
        ("createdAt".to_owned(), "1".to_owned()),
        ("team".to_owned(), "a".to_owned()),
    ]);
    for data in [
        base64(plain),
        base64(&gzip(plain)),
        [&base64(plain)[..10], b"\n", &base64(plain)[10..]].concat(),
    ] {
        let record = unpack(&[&data], &labels, &none()).unwrap();
        assert_eq!(record.full_name(), "apps/old.v2");
        assert!(!record.is_server_side());
        assert_eq!(record.labels, BTreeMap::from([("team".to_owned(), "a".to_owned())]));
        let json = record.to_json().unwrap();
        assert!(json.contains(r#""first_deployed":"2021-01-02T03:04:05.6+01:00""#), "{json}");
        assert!(!json.contains("deleted"), "{json}");
    }
}

#[test]
fn a_secret_is_labelled_as_helm_selects() {
    let mut record = record(String::new());
    record.labels.insert("team".to_owned(), "a".to_owned());
    let now = Time::from_second(5).unwrap();
    let label_text = |written| {
        let labels = labels(&record, written, now);
        labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        label_text(RecordWriteMode::New),
        "createdAt=5 name=web owner=helm status=deployed team=a version=3"
    );
    assert_eq!(
        label_text(RecordWriteMode::Again),
        "modifiedAt=5 name=web owner=helm status=deployed team=a version=3"
    );
    assert_eq!(secret_name("web", 3), "sh.helm.release.v1.web.v3");
    assert_eq!(selector("web"), "owner=helm,name=web");
}

proptest! {
    #[test]
    fn no_data_breaks_the_reader(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        drop(unpack(&[&data], &none(), &none()));
        drop(unpack(&[&base64(&data)], &none(), &none()));
        drop(unpack(&[&base64(&gzip(&data))], &none(), &none()));
    }

    #[test]
    fn no_json_breaks_the_reader(text in r#"[{}\[\],:"a-z0-9.enulltruh]{0,80}"#) {
        drop(ReleaseRecord::from_json(text.as_bytes()));
    }
}
