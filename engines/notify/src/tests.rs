//! What the recorded answers do not show: conversations with an app, secrets on the way, and what is refused by default.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use crate::receivers::{
    Receiver, ReceiverControllerSettings, ReceiverRequestStep, ReceiverWebhookRequest,
    WebhookAuthentication,
};
use crate::{
    Alert, DeliveryFailure, DeliveryMessage, DeliveryStep, EventDelivery, FluxEvent, HttpResponse,
    Provider, ProviderRequest, SecretData, delivery,
};

mod incidents;
mod pull_request_checks;
mod pull_request_reviews;
mod pull_requests;

const NOW: i64 = 1_800_000_000;

fn event() -> FluxEvent {
    let text = json!({
        "involvedObject": {"kind": "Kustomization", "namespace": "apps", "name": "web"},
        "severity": "error",
        "message": "build failed",
        "reason": "BuildFailed",
        "metadata": {"revision": "main@sha1:b1a2c3d4e5f60718293a4b5c6d7e8f9001122334"},
    });
    FluxEvent::parse(text.to_string().as_bytes()).unwrap_or_default()
}

fn begin(spec: serde_json::Value, data: &[(&str, &str)]) -> EventDelivery {
    let object =
        json!({"metadata": {"name": "p", "namespace": "apps", "uid": "u-1"}, "spec": spec});
    let provider = Provider::new(object).unwrap_or_default();
    let data: BTreeMap<_, _> =
        data.iter().map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec())).collect();
    let secret = |namespace: &str, name: &str| {
        Some(SecretData { name: format!("{namespace}/{name}"), data: data.clone() })
    };
    delivery(&event(), &provider, &Alert::default(), NOW, &secret)
}

/// The wait and the request of a step.
#[track_caller]
fn sent(step: DeliveryStep) -> (Duration, ProviderRequest) {
    match step {
        DeliveryStep::Send(wait, DeliveryMessage::Http(request)) => (wait, *request),
        other => unreachable!("no request but {other:?}"),
    }
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> crate::MessageSendResult {
    let headers =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Ok(HttpResponse { status, headers, body: body.as_bytes().to_vec() })
}

/// A cluster that has one Provider.
struct OneProviderCluster;

impl crate::AlertClusterReader for OneProviderCluster {
    fn labels(&self, _: &crate::ObjectReference) -> Option<BTreeMap<String, String>> {
        None
    }

    fn provider(&self, namespace: &str, name: &str) -> Option<Provider> {
        let metadata = json!({"name": name, "namespace": namespace});
        Provider::new(json!({"metadata": metadata, "spec": {"type": "slack"}})).ok()
    }

    fn secret(&self, _: &str, _: &str) -> Option<SecretData> {
        None
    }
}

#[test]
fn patterns_that_are_too_much_work_are_ignored_and_named() {
    let event = FluxEvent { message: "x".repeat(30_000), ..event() };
    let routed = |included: &[String], excluded: &[String]| {
        let spec = json!({
            "providerRef": {"name": "p"},
            "eventSources": [{"kind": "Kustomization", "name": "*"}],
            "eventSeverity": "info",
            "inclusionList": included,
            "exclusionList": excluded,
        });
        let metadata = json!({"name": "a", "namespace": "apps"});
        let alert = Alert::new(json!({"metadata": metadata, "spec": spec})).unwrap();
        let routed = crate::route(
            &event,
            &alert,
            &OneProviderCluster,
            crate::alert_dispatch::AlertControllerSettings::default(),
        );
        (routed.route.is_some(), routed.warnings)
    };
    let plain = |text: &str| vec![text.to_owned()];
    assert_eq!(routed(&plain("^x+$"), &[]), (true, Vec::new()));
    assert_eq!(routed(&plain("^x+$"), &plain("xx")), (false, Vec::new()));
    // One that is large, and many of which each is small.
    let many = (0..400).map(|number| format!("[a-w]{{40}}{number}")).collect::<Vec<_>>();
    let broken = vec!["(".to_owned(); 100];
    let (is_sent, warnings) = routed(&broken, &[]);
    assert!(!is_sent && warnings.len() == 11, "{} warnings", warnings.len());
    for costly in [plain(r"\pL{100}y"), many] {
        let (is_sent, warnings) = routed(&costly, &[]);
        assert!(!is_sent, "{warnings:?}");
        let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
        assert!(warning.message.contains("the inclusion list are too large"), "{warning:?}");
        let (is_sent, warnings) = routed(&[], &costly);
        assert!(is_sent && warnings.len() == 1, "{warnings:?}");
    }
}

#[test]
fn a_namespace_whose_events_an_alert_must_not_get_costs_nothing() {
    let alert = |source: serde_json::Value| {
        let spec = json!({
            "providerRef": {"name": "p"},
            "eventSources": [source],
            "eventSeverity": "info",
            "inclusionList": ["("],
        });
        Alert::new(json!({"metadata": {"name": "a", "namespace": "own"}, "spec": spec})).unwrap()
    };
    let settings = crate::alert_dispatch::AlertControllerSettings {
        no_cross_namespace: true,
        ..crate::alert_dispatch::AlertControllerSettings::default()
    };
    let labelled = json!({"kind": "Kustomization", "name": "*", "namespace": "apps",
        "matchLabels": {"a": "b"}});
    // Neither the labels are read nor the pattern.
    let routed = crate::route(&event(), &alert(labelled), &OneProviderCluster, settings);
    let [warning] = &*routed.warnings else { panic!("{:?}", routed.warnings) };
    assert!(warning.message.contains("access denied to cross-namespace sources"), "{warning:?}");
    let other = json!({"kind": "HelmRelease", "name": "*", "namespace": "apps"});
    let routed = crate::route(&event(), &alert(other), &OneProviderCluster, settings);
    assert!(routed.route.is_none() && routed.warnings.is_empty(), "{:?}", routed.warnings);
}

#[test]
fn what_others_wrote_is_repeated_up_to_a_length() {
    let spec = json!({"type": "generic", "address": "https://a.example.com/x", "timeout": "9000h"});
    let provider = Provider::new(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
    let alert = Alert::default();
    let mut dispatch = crate::EventDispatch::new(event(), &provider, &alert, NOW, &|_, _| None);
    assert_eq!(dispatch.timeout, Duration::from_secs(600));
    let _first = dispatch.delivery.start();
    let DeliveryStep::Failed(failure) =
        dispatch.delivery.answer(answer(400, &[], &"ä".repeat(1 << 20)))
    else {
        panic!("it is delivered")
    };
    assert!(failure.message.len() < 17 << 10, "{}", failure.message.len());
    let failure = DeliveryFailure { message: "ä".repeat(1 << 20), ..failure };
    assert!(dispatch.warning(&failure).message.len() < 17 << 10);
}

#[test]
fn a_server_may_ask_for_any_pause() {
    let mut delivery = begin(json!({"type": "generic", "address": "https://a.example.com/x"}), &[]);
    let _first = delivery.start();
    let pause = u64::MAX.to_string();
    for _ in 0..2 {
        let step = delivery.answer(answer(503, &[("Retry-After", &pause)], ""));
        assert!(matches!(step, DeliveryStep::Failed(_)), "{step:?}");
    }
}

#[test]
fn a_commit_leads_to_no_other_path() {
    let letters = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz";
    let upwards = "../../../../../user/keys?a=0123456789012";
    for kind in ["github", "gitlab", "gitea", "bitbucket", "bitbucketserver", "azuredevops"] {
        let address = match kind {
            "azuredevops" => "https://dev.azure.com/acme/fleet/_git/app",
            "bitbucketserver" => "https://git.example.com/scm/acme/fleet.git",
            _ => "https://git.example.com/acme/fleet",
        };
        let spec = json!({"type": kind, "address": address, "secretRef": {"name": "s"}});
        let provider =
            Provider::new(json!({"metadata": {"name": "p", "uid": "u-1"}, "spec": spec})).unwrap();
        let data = BTreeMap::from([("token".to_owned(), b"a:b".to_vec())]);
        let secret =
            |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
        for (commit, is_sent) in [(letters, true), (upwards, false)] {
            assert_eq!(commit.len(), 40);
            let mut event = event();
            event.metadata.insert("commit".to_owned(), commit.to_owned());
            let mut delivery = delivery(&event, &provider, &Alert::default(), NOW, &secret);
            let mut step = delivery.start();
            if kind == "gitea" {
                let _version = sent(step);
                step = delivery.answer(answer(200, &[], r#"{"version": "1.22.0"}"#));
            }
            assert_eq!(
                matches!(step, DeliveryStep::Send(..)),
                is_sent,
                "{kind} {commit}: {step:?}"
            );
        }
    }
}

#[test]
fn a_message_gives_a_forge_no_commands() {
    let address = "https://gitlab.example.com/acme/fleet";
    let spec = json!({"type": "gitlabmergerequestcomment", "address": address, "secretRef": {"name": "s"}});
    let provider =
        Provider::new(json!({"metadata": {"name": "p", "uid": "u-1"}, "spec": spec})).unwrap();
    let data = BTreeMap::from([("token".to_owned(), b"t0ken".to_vec())]);
    let secret =
        |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
    let mut event = event();
    event.message = "pushed commit\n/merge\r\n  /approve".to_owned();
    event.metadata.insert("change_request".to_owned(), "17".to_owned());
    event.metadata.insert("key".to_owned(), "a\n/close".to_owned());
    let mut delivery = delivery(&event, &provider, &Alert::default(), NOW, &secret);
    let _user = sent(delivery.start());
    let _notes = sent(delivery.answer(answer(200, &[], r#"{"username": "bot"}"#)));
    let (_, note) = sent(delivery.answer(answer(200, &[], "[]")));
    assert_eq!(note.method, "POST");
    let body: serde_json::Value = serde_json::from_slice(&note.body).unwrap();
    let body = body["body"].as_str().unwrap_or_default();
    let escaped = "pushed commit\n\\/merge\r\n  \\/approve\n";
    assert!(body.contains(escaped) && body.contains("a\n\\/close\n"), "{body}");
    assert!(!body.lines().any(|line| line.trim_start().starts_with('/')), "{body}");
}

#[test]
fn a_server_that_fails_is_asked_again_until_the_time_is_over() {
    let mut delivery = begin(json!({"type": "generic", "address": "https://a.example.com/x"}), &[]);
    let mut waits = vec![sent(delivery.start()).0];
    let failure = loop {
        match delivery.answer(answer(503, &[], "")) {
            DeliveryStep::Send(wait, _) => waits.push(wait),
            DeliveryStep::Failed(DeliveryFailure { message, .. }) => break message,
            DeliveryStep::Done => unreachable!("it is not delivered"),
        }
    };
    assert_eq!(waits, [0, 2, 4, 8].map(Duration::from_secs));
    assert_eq!(failure, "postMessage failed: failed to execute request: context deadline exceeded");
}

#[test]
fn a_server_that_cannot_be_reached_until_the_time_is_over_is_reported_with_the_reason() {
    let mut delivery = begin(json!({"type": "generic", "address": "https://a.example.com/x"}), &[]);
    let mut step = delivery.start();
    let failure = loop {
        match step {
            DeliveryStep::Send(..) => {}
            DeliveryStep::Failed(DeliveryFailure { message, .. }) => break message,
            DeliveryStep::Done => unreachable!("it is not delivered"),
        }
        step = delivery.answer(Err(("cannot connect: Connection refused".to_owned(), true)));
    };
    let reason = "failed to execute request: cannot connect: Connection refused";
    assert_eq!(failure, format!("postMessage failed: {reason}"));
}

#[test]
fn a_server_says_when_to_come_back() {
    let mut delivery = begin(json!({"type": "generic", "address": "https://a.example.com/x"}), &[]);
    let _first = delivery.start();
    let (wait, _) = sent(delivery.answer(answer(429, &[("Retry-After", "7")], "")));
    assert_eq!(wait, Duration::from_secs(7));
}

#[test]
fn credentials_do_not_follow_to_another_host() {
    let spec = json!({
        "type": "slack",
        "address": "https://a.example.com/x",
        "secretRef": {"name": "s"},
    });
    for (to, keeps) in [
        ("https://b.example.com/", false),
        ("https://evil-a.example.com/", false),
        ("https://c.a.example.com/", true),
        ("/y", true),
    ] {
        let mut delivery = begin(spec.clone(), &[("token", "secret")]);
        let (_, first) = sent(delivery.start());
        assert_eq!(first.get("authorization"), Some("Bearer secret"));
        let (_, next) = sent(delivery.answer(answer(307, &[("Location", to)], "")));
        assert_eq!(next.get("authorization").is_some(), keeps, "{to}");
        assert_eq!((next.method, &next.body), ("POST", &first.body), "{to}");
    }
}

/// The private key of a GitHub App.
fn app_key() -> Result<String, aws_lc_rs::error::Unspecified> {
    let key = KeyPair::generate(KeySize::Rsa2048)?;
    let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&key)?;
    let encoded = STANDARD.encode(der.as_ref());
    Ok(format!("-----BEGIN PRIVATE KEY-----\n{encoded}\n-----END PRIVATE KEY-----\n"))
}

/// What a GitHub App sends whose Secret names an installation in this way.
fn begin_as_app(
    installation: (&str, &str),
) -> Result<EventDelivery, aws_lc_rs::error::Unspecified> {
    let pem = app_key()?;
    let spec = json!({
        "type": "github",
        "address": "https://ghe.example.com/acme/fleet",
        "secretRef": {"name": "s"},
    });
    let data = [
        ("githubAppID", "7"),
        installation,
        ("githubAppPrivateKey", &pem),
        ("githubAppBaseURL", "https://ghe.example.com/api/v3"),
    ];
    Ok(begin(spec, &data))
}

#[test]
fn the_installation_of_a_github_app_is_that_of_an_organization_or_else_of_a_user()
-> Result<(), aws_lc_rs::error::Unspecified> {
    const API: &str = "https://ghe.example.com/api/v3";
    let asked = |step| {
        let (_, request) = sent(step);
        let path = request.url.strip_prefix(API).unwrap_or_default().to_owned();
        format!("{} {path}", request.method)
    };
    for is_organization in [true, false] {
        let mut delivery = begin_as_app(("githubAppInstallationOwner", "acme"))?;
        assert_eq!(asked(delivery.start()), "GET /orgs/acme/installation");
        if !is_organization {
            let missing = answer(404, &[], r#"{"message": "Not Found"}"#);
            assert_eq!(asked(delivery.answer(missing)), "GET /users/acme/installation");
        }
        let found = answer(200, &[], r#"{"id": 789}"#);
        let login = asked(delivery.answer(found));
        assert_eq!(login, "POST /app/installations/789/access_tokens");
    }
    let mut delivery = begin_as_app(("githubAppInstallationOwner", "acme"))?;
    let missing = || answer(404, &[], r#"{"message": "Not Found"}"#);
    sent(delivery.start());
    sent(delivery.answer(missing()));
    let end = format!("{:?}", delivery.answer(missing()));
    for owner in ["organization", "user"] {
        let path = format!("{owner}s/acme").replace("organizations", "orgs");
        let text = format!(
            "failed to find {owner} installation: GET {API}/{path}/installation: 404 Not Found []"
        );
        assert!(end.contains(&text), "{end}");
    }
    Ok(())
}

#[test]
fn a_github_app_logs_in_before_it_asks() -> Result<(), aws_lc_rs::error::Unspecified> {
    let mut delivery = begin_as_app(("githubAppInstallationID", "42"))?;
    let (_, login) = sent(delivery.start());
    let url = "https://ghe.example.com/api/v3/app/installations/42/access_tokens";
    assert_eq!((login.method, &*login.url), ("POST", url));
    let jwt = login.get("authorization").and_then(|it| it.strip_prefix("Bearer "));
    assert_eq!(jwt.map(|jwt| jwt.split('.').count()), Some(3));
    let (_, list) = sent(delivery.answer(answer(201, &[], r#"{"token": "ghs_1"}"#)));
    assert_eq!(list.get("authorization"), Some("Bearer ghs_1"));
    let (_, write) = sent(delivery.answer(answer(200, &[], "[]")));
    assert_eq!(write.method, "POST");
    assert!(matches!(delivery.answer(answer(201, &[], "{}")), DeliveryStep::Done));
    Ok(())
}

#[test]
fn nothing_shows_credentials() {
    let spec = json!({
        "type": "slack",
        "address": "https://a.example.com/very-secret",
        "secretRef": {"name": "s"},
    });
    let mut delivery = begin(spec, &[("token", "very-secret")]);
    let shown = format!("{delivery:?} {:?}", delivery.start());
    assert!(!shown.contains("very-secret"), "{shown}");
}

#[test]
fn an_empty_token_rejects_every_request_unless_that_is_allowed() {
    let secret = SecretData {
        name: "apps/t".to_owned(),
        data: BTreeMap::from([("token".to_owned(), Vec::new())]),
    };
    for kind in ["github", "bitbucket", "gitlab", "harbor"] {
        let receiver = Receiver::new(&json!({
            "metadata": {"name": "r", "namespace": "apps"},
            "spec": {"type": kind, "secretRef": {"name": "t"}, "resources": []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
        let receiver = receiver.unwrap_or_default();
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let hook = ReceiverWebhookRequest { headers, body: b"{}".to_vec() };
        for allows_empty_token in [false, true] {
            let settings = ReceiverControllerSettings {
                allows_empty_token,
                ..ReceiverControllerSettings::default()
            };
            let (_, gate) =
                WebhookAuthentication::start(hook.clone(), &receiver, Some(&secret), settings);
            let is_in = matches!(gate, ReceiverRequestStep::Accepted(_));
            assert_eq!(is_in, allows_empty_token, "{kind}: {gate:?}");
        }
    }
}

proptest! {
    #[test]
    fn events_are_read_as_they_are_written(message in ".*", name in ".*", unix in 0_i64..4_000_000_000) {
        let mut event = event();
        (event.message, event.object.name, event.timestamp) = (message, name, Some(unix));
        let read = FluxEvent::parse(&event.to_json());
        prop_assert_eq!(read.ok(), Some(event));
    }

    #[test]
    fn no_address_stops_a_provider(address in ".{0,40}", channel in ".{0,20}", at in 0..crate::TYPES.len()) {
        let spec = json!({
            "type": crate::TYPES[at],
            "address": address,
            "channel": channel,
            "secretRef": {"name": "s"},
        });
        let mut delivery = begin(spec, &[("token", "a:b"), ("username", "u"), ("password", "p")]);
        let mut step = delivery.start();
        for _ in 0..20 {
            if !matches!(step, DeliveryStep::Send(..)) {
                break;
            }
            step = delivery.answer(answer(200, &[], "[]"));
        }
        prop_assert!(!matches!(step, DeliveryStep::Send(..)));
    }
}
