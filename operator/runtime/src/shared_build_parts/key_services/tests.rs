//! Tests with a fake Vault on loopback: how often a build asks it, and which permits the build holds until it answers.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use golang::work_meter::StopSignal;
use http_client::EgressRules;
use sops::DecryptionKeys;
use tokio::runtime::Runtime;

use super::*;
use crate::shared_build_parts::remote_base_access::{BuildPermits, HeldBuildPermits};
use crate::time_limit::TIME_LIMIT;
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_cluster::run_permits::RunPermits;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A server that reports each request, and answers it when the test permits it.
fn server() -> (SocketAddr, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ((asked, is_asked), (answer, answered)) = (channel(), channel());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"}") {
                let read = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..read]);
            }
            asked.send(()).unwrap();
            if answered.recv().is_err() {
                return;
            }
            let body = r#"{"data": {"plaintext": "a2V5"}}"#;
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
            let head = format!("{head} {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    (address, is_asked, answer)
}

fn key(address: SocketAddr, encrypted: &str) -> KeyServiceMasterKey {
    KeyServiceMasterKey::Vault {
        address: format!("http://{address}"),
        engine_path: "sops".to_owned(),
        key_name: "one".to_owned(),
        encrypted: encrypted.to_owned(),
    }
}

/// The key services for a build that holds the only build permit.
fn services(
    building: &RunPermits,
    limit: Duration,
    cancel: &CancellationToken,
) -> KeyServiceAccess {
    let permit = RUNTIME.block_on(building.acquire("shop"));
    let permits = BuildPermits {
        building: building.clone(),
        reaching: RunPermits::new(1),
        namespace: "shop".to_owned(),
        runtime: RUNTIME.handle().clone(),
        cancel: cancel.clone(),
        held: HeldBuildPermits { building: Some(permit), reaching: None },
        preparing: PreparingPermit::default(),
    };
    let egress = EgressRules::with_loopback();
    let budgets = Arc::new(HostBudgets::within(egress.clone()));
    KeyServiceAccess::Reached(Box::new(KeyServiceContext {
        clients: Arc::new(HttpClientCache::within(egress)),
        budgets,
        without_identity: None,
        limit,
        permits: SharedBuildPermits::new(permits),
        runtime: RUNTIME.handle().clone(),
        cancel: cancel.clone(),
    }))
}

fn with_token() -> DecryptionKeys {
    DecryptionKeys::import("apps/keys", [("sops.vault-token", b"t".as_slice())]).unwrap()
}

#[test]
fn a_data_key_is_asked_for_once_and_meanwhile_others_build() {
    let (address, is_asked, answer) = server();
    let building = RunPermits::new(1);
    let services = services(&building, KEY_SERVICES_TIMEOUT, &CancellationToken::new());
    let work = std::thread::spawn(move || {
        let keys = with_token();
        let time = TimeLimit::start(TIME_LIMIT, &StopSignal::default());
        let asked = services.asked(keys.credentials(), &time);
        let mut ask =
            ["one", "one", "two"].into_iter().map(|text| asked.decrypt(&key(address, text)));
        assert!(ask.all(|answer| answer.unwrap().as_slice() == b"key"));
    });
    for _ in 0..2 {
        is_asked.recv().unwrap();
        assert_eq!(building.free(), 1);
        answer.send(()).unwrap();
    }
    work.join().unwrap();
    assert!(is_asked.try_recv().is_err());
    assert_eq!(building.free(), 1);
}

#[test]
fn services_that_take_too_long_together_are_given_up_and_so_are_those_of_a_canceled_build() {
    let (address, _is_asked, _answer) = server();
    let keys = with_token();
    let time = TimeLimit::start(TIME_LIMIT, &StopSignal::default());
    let error_of = |limit, cancel: &CancellationToken| {
        let services = services(&RunPermits::new(1), limit, cancel);
        let asked = services.asked(keys.credentials(), &time);
        asked.decrypt(&key(address, "one")).unwrap_err()
    };
    let why = error_of(Duration::from_millis(100), &CancellationToken::new());
    assert_eq!(
        why,
        "failed to decrypt sops data key with Vault: the services of this build did not respond within 100ms"
    );
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(error_of(KEY_SERVICES_TIMEOUT, &cancel).ends_with("the build was canceled"));
}

#[test]
fn where_no_service_is_called_the_reason_is_reported() {
    let services = KeyServiceAccess::Refused("there are none");
    let keys = DecryptionKeys::default();
    let time = TimeLimit::start(TIME_LIMIT, &StopSignal::default());
    let asked = services.asked(keys.credentials(), &time);
    let key = key("127.0.0.1:1".parse().unwrap(), "one");
    let why = asked.decrypt(&key).unwrap_err();
    assert_eq!(why, "failed to decrypt sops data key with Vault: there are none");
}
