//! Registries on loopback that ask for tokens, lead elsewhere, lie, or do not answer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use parking_lot::Mutex;

use super::*;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// One request as a server saw it.
struct RegistryRequest {
    line: String,
    authorization: Option<String>,
}

type RegistryRequestLog = Arc<Mutex<Vec<String>>>;

/// Answers requests until the test ends; the log holds their first lines with their authorization.
fn serve(
    answer: impl Fn(&RegistryRequest) -> String + Send + Sync + 'static,
) -> (SocketAddr, RegistryRequestLog) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let log = RegistryRequestLog::default();
    let answer = Arc::new(answer);
    let lines = log.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = answer.clone();
            let lines = lines.clone();
            thread::spawn(move || converse(stream.unwrap(), &*answer, &lines));
        }
    });
    (address, log)
}

fn converse(
    mut stream: TcpStream,
    answer: &dyn Fn(&RegistryRequest) -> String,
    log: &RegistryRequestLog,
) {
    let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
    // A TLS handshake is not text, which ends the conversation as a registry without TLS does.
    let Some(Ok(line)) = head.next() else { return };
    let line = line.trim_end_matches(" HTTP/1.1").to_owned();
    let mut authorization = None;
    for field in head.map_while(Result::ok).take_while(|field| !field.is_empty()) {
        if let Some(value) = field.to_ascii_lowercase().strip_prefix("authorization: ") {
            authorization = Some(field[field.len() - value.len()..].to_owned());
        }
    }
    let asked = RegistryRequest { line, authorization };
    let who = asked.authorization.as_deref().unwrap_or("-").to_owned();
    log.lock().push(format!("{} {who}", asked.line));
    stream.write_all(answer(&asked).as_bytes()).unwrap_or_default();
}

fn reply(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn remote(address: SocketAddr, auth: RegistryAuth) -> RemoteOciRepository {
    RemoteOciRepository {
        repository: OciRepositoryName::parse(&format!("oci://{address}/team/app")).unwrap(),
        auth,
        tls: TlsConfig::default(),
        proxy: None,
        insecure: false,
        timeout: Duration::from_secs(20),
        limits: RegistryLimits::default(),
    }
}

fn user() -> RegistryAuth {
    RegistryAuth::Basic {
        username: "me".to_owned(),
        password: RedactedValue::new("hunter2".to_owned()),
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn taken(log: &RegistryRequestLog) -> Vec<String> {
    std::mem::take(&mut *log.lock())
}

fn resolve(remote: &RemoteOciRepository, known: &RegistrySessionCache) -> Result<OciDigest, Error> {
    run(async {
        RegistrySession::new(remote, known)?.resolve(&ManifestReference::tag("v1")?).await
    })
}

fn head(digest: &OciDigest) -> String {
    reply(
        "200 OK",
        &[("docker-content-digest", &digest.to_string()), ("content-type", MANIFEST)],
        "",
    )
}

/// A registry that wants tokens, which last `life` seconds, and the token service that gives them to `me`.
fn with_tokens(life: u64) -> (SocketAddr, RegistryRequestLog) {
    let own = Arc::new(Mutex::new(String::new()));
    let place = own.clone();
    let (address, log) = serve(move |asked| {
        let place = place.lock().clone();
        if asked.line.starts_with("GET /token?") {
            return match asked.authorization.as_deref() {
                // `me:hunter2`
                Some("Basic bWU6aHVudGVyMg==") | None => {
                    reply("200 OK", &[], &format!("{{\"token\":\"t0ken\",\"expires_in\":{life}}}"))
                }
                Some(_) => {
                    let body =
                        r#"{"errors":[{"code":"UNAUTHORIZED","message":"no xunter2, no token"}]}"#;
                    reply("401 Unauthorized", &[], body)
                }
            };
        }
        match asked.authorization.as_deref() {
            Some("Bearer t0ken") => head(&OciDigest::of(b"x")),
            _ => {
                let asks = format!("Bearer realm=\"http://{place}/token\",service=\"registry\"");
                reply("401 Unauthorized", &[("www-authenticate", &asks)], "")
            }
        }
    });
    *own.lock() = address.to_string();
    (address, log)
}

#[test]
fn a_token_is_fetched_once_and_then_each_check_is_one_request() {
    let (address, log) = with_tokens(300);
    let remote = remote(address, user());
    let known = RegistrySessionCache::default();
    assert_eq!(resolve(&remote, &known).unwrap(), OciDigest::of(b"x"));
    let asked = taken(&log);
    // The first connection tried TLS, which is not a line of text.
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(asked[0], "HEAD /v2/team/app/manifests/v1 -");
    let token =
        "GET /token?scope=repository%3Ateam%2Fapp%3Apull&service=registry Basic bWU6aHVudGVyMg==";
    assert_eq!(asked[1], token);
    assert_eq!(asked[2], "HEAD /v2/team/app/manifests/v1 Bearer t0ken");
    resolve(&remote, &known).unwrap();
    assert_eq!(taken(&log), ["HEAD /v2/team/app/manifests/v1 Bearer t0ken"]);
}

#[test]
fn many_who_need_a_token_wait_for_one() {
    let (address, log) = with_tokens(300);
    let remote = remote(address, RegistryAuth::Anonymous);
    let known = RegistrySessionCache::default();
    let tag = ManifestReference::tag("v1").unwrap();
    run(async {
        let clients: Vec<_> =
            (0..8).map(|_| RegistrySession::new(&remote, &known).unwrap()).collect();
        let found =
            futures::future::join_all(clients.iter().map(|client| client.resolve(&tag))).await;
        assert!(found.iter().all(Result::is_ok), "{found:?}");
    });
    let tokens = taken(&log).iter().filter(|line| line.starts_with("GET /token")).count();
    assert_eq!(tokens, 1);
}

#[test]
fn a_token_that_is_nearly_over_is_replaced_before_it_is_refused() {
    let (address, log) = with_tokens(1);
    let remote = remote(address, user());
    let known = RegistrySessionCache::default();
    resolve(&remote, &known).unwrap();
    taken(&log);
    thread::sleep(Duration::from_millis(900));
    resolve(&remote, &known).unwrap();
    let asked = taken(&log);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked[0].starts_with("GET /token?") && asked[1].ends_with("Bearer t0ken"), "{asked:?}");
}

#[test]
fn a_server_without_a_token_is_reported_without_the_password() {
    let (address, _) = with_tokens(300);
    let auth = RegistryAuth::Basic {
        username: "me".into(),
        password: RedactedValue::new("xunter2".into()),
    };
    let error = resolve(&remote(address, auth), &RegistrySessionCache::default()).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error:?}");
    let expected = format!(
        "GET http://{address}/token: UNAUTHORIZED: no ****, no token; check the registry credentials"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_password_goes_to_a_registry_that_asks_for_it_and_is_not_asked_for_twice() {
    let (address, log) = serve(|asked| match asked.authorization.as_deref() {
        Some("Basic bWU6aHVudGVyMg==") => head(&OciDigest::of(b"x")),
        _ => reply(
            "401 Unauthorized",
            &[("www-authenticate", "Basic realm=\"x\"")],
            if asked.line.starts_with("HEAD") {
                ""
            } else {
                r#"{"errors":[{"code":"DENIED","message":"no"}]}"#
            },
        ),
    });
    let known = RegistrySessionCache::default();
    resolve(&remote(address, user()), &known).unwrap();
    taken(&log);
    resolve(&remote(address, user()), &known).unwrap();
    assert_eq!(taken(&log), ["HEAD /v2/team/app/manifests/v1 Basic bWU6aHVudGVyMg=="]);
    // What one may, another may not.
    let error = resolve(&remote(address, RegistryAuth::Anonymous), &known).unwrap_err().to_string();
    let expected = format!(
        "GET http://{address}/v2/team/app/manifests/v1: DENIED: no; check the registry credentials"
    );
    assert_eq!(error, expected);
}

#[test]
fn a_layer_comes_from_where_the_registry_leads_without_credentials() {
    let (elsewhere, far) = serve(|_| reply("200 OK", &[], "layer"));
    let (address, _) = serve(move |asked| match asked.authorization.as_deref() {
        Some(_) => {
            let to = format!("http://you:secret@{elsewhere}/storage?signature=s");
            reply("307 Temporary Redirect", &[("location", &to)], "")
        }
        None => reply("401 Unauthorized", &[("www-authenticate", "Basic realm=\"x\"")], ""),
    });
    let remote = remote(address, user());
    let known = RegistrySessionCache::default();
    let layer = |bytes: &[u8], size| {
        let layer =
            LayerDescriptor { media_type: String::new(), digest: OciDigest::of(bytes), size };
        run(async { RegistrySession::new(&remote, &known)?.layer(&layer).await })
    };
    let mut found = layer(b"layer", 5).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut found.file, &mut text).unwrap();
    assert_eq!((text.as_str(), found.size), ("layer", 5));
    assert_eq!(taken(&far), ["GET /storage?signature=s -"]);
    assert!(matches!(layer(b"other", 5), Err(Error::Mismatch { what: "layer", .. })));
    assert!(matches!(layer(b"layer", 4), Err(Error::TooLarge { .. })));
    assert!(matches!(layer(b"layer", 1 << 40), Err(Error::TooLarge { .. })));
}

#[test]
fn no_redirect_leads_to_an_address_that_no_registry_may_have() {
    for to in ["file:///etc/passwd", "http://169.254.169.254/latest", "ftp://h/a", "//[fe80::1]/"] {
        let (address, _) = serve(move |asked| match asked.line.as_str() {
            "GET /v2/" => reply("200 OK", &[], ""),
            _ => reply("302 Found", &[("location", to)], ""),
        });
        let error =
            resolve(&remote(address, user()), &RegistrySessionCache::default()).unwrap_err();
        assert!(matches!(error, Error::Redirected { .. }), "{to}: {error:?}");
    }
    let realm = r#"Bearer realm="http://169.254.169.254/token?x=secret""#;
    let (address, _) =
        serve(move |_| reply("401 Unauthorized", &[("www-authenticate", realm)], ""));
    let error = resolve(&remote(address, user()), &RegistrySessionCache::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("to `http://169.254.169.254/token` not allowed"), "{error}");
    let (address, _) = serve(|asked| {
        let to = asked.line.trim_start_matches("HEAD ").to_owned();
        reply("302 Found", &[("location", &to)], "")
    });
    let error = resolve(&remote(address, user()), &RegistrySessionCache::default()).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
}

#[test]
fn a_manifest_is_what_its_digest_says() {
    let body = format!(
        r#"{{"layers":[{{"mediaType":"m","digest":"{}","size":3}}],"annotations":{{"a":"b"}}}}"#,
        OciDigest::of(b"abc")
    );
    let digest = OciDigest::of(body.as_bytes());
    let index = format!(r#"{{"manifests":[{{"digest":"{digest}"}}]}}"#);
    let index_digest = OciDigest::of(index.as_bytes());
    let good = digest.to_string();
    let other = index_digest.to_string();
    let (address, _) = serve(move |asked| match &asked.line {
        line if line.ends_with(&good) || line.ends_with("/v1") => reply(
            "200 OK",
            &[("content-type", MANIFEST)],
            if line.starts_with("HEAD") { "" } else { &body },
        ),
        line if line.ends_with(&other) => {
            reply("200 OK", &[("content-type", "application/vnd.oci.image.index.v1+json")], &index)
        }
        _ => reply("200 OK", &[("content-type", MANIFEST)], "{}"),
    });
    let remote = remote(address, RegistryAuth::Anonymous);
    let known = RegistrySessionCache::default();
    // This registry sends no digest with a HEAD.
    assert_eq!(resolve(&remote, &known).unwrap(), digest);
    let manifest = |digest: &OciDigest| {
        run(async { RegistrySession::new(&remote, &known)?.manifest(digest).await })
    };
    assert_eq!(manifest(&digest).unwrap().layers[0].size, 3);
    assert_eq!(manifest(&index_digest).unwrap().annotations["a"], "b");
    let wrong = manifest(&OciDigest::of(b"wrong")).unwrap_err();
    assert!(matches!(wrong, Error::Mismatch { what: "manifest", .. }), "{wrong:?}");
}

#[test]
fn tags_are_listed_page_by_page_and_not_without_end() {
    let (address, log) = serve(|asked| {
        let next = |last: &str| format!("</v2/team/app/tags/list?n=2&last={last}>; rel=\"next\"");
        match asked.line.as_str() {
            "GET /v2/team/app/tags/list?n=1000" => {
                reply("200 OK", &[("link", &next("b"))], r#"{"tags":["a","b","../c"]}"#)
            }
            "GET /v2/team/app/tags/list?n=2&last=b" => reply("200 OK", &[], r#"{"tags":["c"]}"#),
            line if line.starts_with("GET /v2/team/endless") => {
                let last = line.len();
                let link = format!(
                    "</v2/team/endless/tags/list?last={}>; rel=\"next\"",
                    "x".repeat(last % 100)
                );
                reply("200 OK", &[("link", &link)], r#"{"tags":["a"]}"#)
            }
            _ => reply("200 OK", &[], r#"{"tags":null}"#),
        }
    });
    let mut remote = remote(address, RegistryAuth::Anonymous);
    let known = RegistrySessionCache::default();
    let tags = |remote: &RemoteOciRepository| {
        run(async { RegistrySession::new(remote, &known)?.tags().await })
    };
    assert_eq!(tags(&remote).unwrap(), ["a", "b", "c"]);
    assert_eq!(taken(&log).len(), 2);
    remote.repository = OciRepositoryName::parse(&format!("oci://{address}/team/endless")).unwrap();
    remote.limits.pages = 7;
    let error = tags(&remote).unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit: 7, .. }), "{error:?}");
}

#[test]
fn pages_that_lead_in_a_circle_end_with_the_first_that_was_there() {
    let (address, log) = serve(|asked| {
        let last = if asked.line.ends_with("last=a") { "b" } else { "a" };
        let link = format!("</v2/team/app/tags/list?last={last}>; rel=\"next\"");
        reply("200 OK", &[("link", &link)], r#"{"tags":["a"]}"#)
    });
    let remote = remote(address, RegistryAuth::Anonymous);
    let known = RegistrySessionCache::default();
    let error = run(async { RegistrySession::new(&remote, &known)?.tags().await }).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
    assert_eq!(taken(&log).len(), 3, "the first page, and one of each other");
}

#[test]
fn silence_and_a_closed_port_are_errors() {
    let (address, _) = serve(|asked| {
        if asked.line.starts_with("HEAD") {
            thread::sleep(Duration::from_secs(5));
        }
        reply("503 Service Unavailable", &[("retry-after", "7")], "")
    });
    let mut silent = remote(address, RegistryAuth::Anonymous);
    silent.timeout = Duration::from_millis(500);
    let error = resolve(&silent, &RegistrySessionCache::default()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    let busy = run(async {
        RegistrySession::new(&silent, &RegistrySessionCache::default())?
            .manifest(&OciDigest::of(b"x"))
            .await
    });
    let after = Some(Duration::from_secs(7));
    assert!(
        matches!(&busy, Err(Error::Unavailable { retry_after, .. }) if *retry_after == after),
        "{busy:?}"
    );
    let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error =
        resolve(&remote(closed_port, RegistryAuth::Anonymous), &RegistrySessionCache::default())
            .unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn signatures_are_missing_only_where_the_registry_says_so() {
    use signatures::referrers::SignatureSearch;

    let image = OciDigest::of(b"image");
    let paths = |log: &RegistryRequestLog| -> Vec<String> {
        let line = |line: String| {
            let path = line.split(' ').nth(1).unwrap_or_default();
            path.strip_prefix("/v2/team/app/").map(str::to_owned)
        };
        taken(log).into_iter().filter_map(line).collect()
    };
    let gather = |status: &'static str, kind: &'static str| {
        let (address, log) = serve(move |asked| match asked.line.contains("/referrers/") {
            true => reply(status, &[("content-type", kind)], "{\"manifests\":[]}"),
            false => reply("404 Not Found", &[], ""),
        });
        let remote = remote(address, RegistryAuth::Anonymous);
        let known = RegistrySessionCache::default();
        let gathered = run(async {
            let session = RegistrySession::new(&remote, &known)?;
            session.gather(SignatureSearch::for_cosign(&image.to_string())).await.map(drop)
        });
        (gathered, paths(&log))
    };
    let index = "application/vnd.oci.image.index.v1+json";
    let tag = image.to_string().replace(':', "-");
    let first = [format!("manifests/{tag}.sig"), format!("referrers/{image}")];
    let (gathered, asked) = gather("200 OK", index);
    assert!(gathered.is_ok());
    assert_eq!(asked, first);
    for (status, kind) in [("404 Not Found", ""), ("400 Bad Request", ""), ("200 OK", "text/html")]
    {
        let (gathered, asked) = gather(status, kind);
        assert!(gathered.is_ok(), "{status}");
        assert_eq!(asked, [&first[..], &[format!("manifests/{tag}")]].concat(), "{status}");
    }
    let (gathered, _) = gather("500 Internal Server Error", "");
    assert!(matches!(gathered, Err(Error::Unavailable { .. })), "{gathered:?}");
    let (gathered, _) = gather("403 Forbidden", "");
    assert!(matches!(gathered, Err(Error::Unauthorized { .. })), "{gathered:?}");
}

#[test]
fn a_signature_of_a_registry_is_gathered_and_counts_for_its_image_alone() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
    use signatures::image_verification::{ImageTrust, ImageVerification, SignatureSecretData};

    let key = KeyPair::generate().unwrap();
    let image = OciDigest::of(b"image");
    let other = OciDigest::of(b"other");
    let payload = format!(r#"{{"critical":{{"image":{{"docker-manifest-digest":"{image}"}}}}}}"#);
    let signature = STANDARD.encode(key.sign(payload.as_bytes()).unwrap());
    let layer = OciDigest::of(payload.as_bytes());
    let manifest = format!(
        r#"{{"layers":[{{"digest":"{layer}","size":{},"annotations":{{"dev.cosignproject.cosign/signature":"{signature}"}}}}]}}"#,
        payload.len()
    );
    // A user who may push attaches a bundle that is longer than its manifest says.
    let long = "x".repeat(1000);
    let kind = "application/vnd.dev.sigstore.bundle.v0.3+json";
    let liar = format!(
        r#"{{"layers":[{{"mediaType":"{kind}","digest":"{}","size":10}}]}}"#,
        OciDigest::of(long.as_bytes())
    );
    let index = format!(
        r#"{{"manifests":[{{"digest":"{}","size":{},"artifactType":"{kind}"}}]}}"#,
        OciDigest::of(liar.as_bytes()),
        liar.len()
    );
    let (address, _) = serve(move |asked| {
        let is_for = |text: &str| asked.line.contains(&OciDigest::of(text.as_bytes()).to_string());
        if asked.line.contains("/referrers/") {
            let kind = [("content-type", "application/vnd.oci.image.index.v1+json")];
            reply("200 OK", &kind, &index)
        } else if is_for(&liar) {
            reply("200 OK", &[("content-type", MANIFEST)], &liar)
        } else if is_for(&long) {
            reply("200 OK", &[], &long)
        } else if asked.line.ends_with(".sig") {
            reply("200 OK", &[("content-type", MANIFEST)], &manifest)
        } else if asked.line.ends_with(&layer.to_string()) {
            reply("200 OK", &[], &payload)
        } else {
            reply("404 Not Found", &[], "")
        }
    });
    let public = STANDARD.encode(key.subject_public_key_info());
    let public = format!("-----BEGIN PUBLIC KEY-----\n{public}\n-----END PUBLIC KEY-----\n");
    let trust = ImageTrust::Keys(SignatureSecretData::from([(
        "cosign.pub".to_owned(),
        public.into_bytes(),
    )]));
    let remote = remote(address, RegistryAuth::Anonymous);
    let verify = |image: &OciDigest| {
        let search = trust.search(&image.to_string());
        let search = run(async {
            RegistrySession::new(&remote, &RegistrySessionCache::default())?.gather(search).await
        });
        trust.verify(&search.unwrap(), "r.io/app", 0)
    };
    assert_eq!(verify(&image), Ok(ImageVerification::By("cosign.pub".to_owned())));
    let none = format!("no matching signatures were found for 'r.io/app@{other}'");
    assert_eq!(verify(&other), Err(none));
}

#[test]
fn platforms_come_from_a_configuration_with_the_digest_that_the_manifest_names() {
    let config = r#"{"os":"linux","architecture":"arm64"}"#;
    let config_digest = OciDigest::of(config.as_bytes());
    let image =
        format!(r#"{{"mediaType":"{MANIFEST}","config":{{"digest":"{config_digest}","size":1}}}}"#);
    let digest = OciDigest::of(image.as_bytes());
    let (address, log) = serve(move |asked| match asked.line.contains("/manifests/") {
        true => reply("200 OK", &[("content-type", MANIFEST)], &image),
        false => reply("200 OK", &[], config),
    });
    let remote = remote(address, RegistryAuth::Anonymous);
    let known = RegistrySessionCache::default();
    let required = ["linux/amd64", "linux/arm64"].map(|text| OciPlatform::parse(text).unwrap());
    let support = |digest: &OciDigest| {
        run(async {
            RegistrySession::new(&remote, &known)?.platform_support(digest, &required).await
        })
    };
    let missing = OciPlatform::parse("linux/amd64").unwrap();
    assert_eq!(support(&digest), Ok(PlatformSupport::Lacks(vec![missing])));
    let asked = taken(&log);
    assert!(
        asked.iter().any(|line| line.contains(&format!("/blobs/{config_digest}"))),
        "{asked:?}"
    );
    // What the registry sends instead of another image says nothing of that.
    let other = support(&OciDigest::of(b"other"));
    assert!(matches!(other, Err(Error::Mismatch { what: "manifest", .. })), "{other:?}");
}
