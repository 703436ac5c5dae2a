//! Through a proxy.

use std::collections::BTreeMap;

use git::Error;

use crate::http_server::{GitHttpServer, GitHttpServerBehavior};
use crate::proxy_server::{HttpProxyServer, PASSWORD, USER};
use crate::test_repository::BareRepository;
use crate::{FetchCase, main_branch};

fn through(case: &mut FetchCase, address: &str, password: &str) {
    let keys = [("address", address), ("username", USER), ("password", password)];
    let data = keys.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    case.remote.proxy = Some(http_client::HttpProxy::from_secret(&BTreeMap::from(data)).unwrap());
}

#[test]
fn everything_goes_through_the_proxy_that_is_given() {
    let repository = BareRepository::with_history();
    let server = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    for scheme in ["http", "socks5"] {
        let proxy = HttpProxyServer::start();
        let mut case = FetchCase::new(&server.url(), &[]);
        through(&mut case, &format!("{scheme}://{}", proxy.address), PASSWORD);
        case.tip(&main_branch()).unwrap();
        let fetched = case.fetch(&main_branch()).unwrap();
        assert_eq!(fetched.commit.summary, "third");
        assert!(!proxy.passed().is_empty(), "{scheme}: it went by another way");
    }
}

#[test]
fn tls_goes_through_a_tunnel_and_the_proxy_sees_nothing_of_it() {
    let repository = BareRepository::with_history();
    let pki = crate::http::pki(false);
    let manners =
        GitHttpServerBehavior { tls: Some(pki.server), ..GitHttpServerBehavior::default() };
    let server = GitHttpServer::start(repository.root.path(), manners);
    let secret = [("ca.crt", pki.ca.as_str()), ("username", "me"), ("password", "hunter2")];
    let mut case = FetchCase::new(&crate::http::tls_url(&server), &secret);
    let proxy = HttpProxyServer::start();
    through(&mut case, &format!("http://{}", proxy.address), PASSWORD);
    case.fetch(&main_branch()).unwrap();
    let expected = format!("CONNECT localhost:{} HTTP/1.1", server.address.port());
    assert!(proxy.passed().iter().all(|line| *line == expected), "{:?}", proxy.passed());
    assert!(!proxy.passed().is_empty());

    // Names are resolved by the proxy.
    through(&mut case, &format!("socks5://{}", proxy.address), PASSWORD);
    case.fetch(&main_branch()).unwrap();
    assert!(proxy.passed().contains(&"localhost".to_owned()), "{:?}", proxy.passed());
}

#[test]
fn a_proxy_that_rejects_the_request_differs_from_the_server_and_no_password_is_repeated() {
    let repository = BareRepository::with_history();
    let pki = crate::http::pki(false);
    let manners =
        GitHttpServerBehavior { tls: Some(pki.server), ..GitHttpServerBehavior::default() };
    let closed = GitHttpServer::start(repository.root.path(), manners);
    let open = GitHttpServer::start(repository.root.path(), GitHttpServerBehavior::default());
    let proxy = HttpProxyServer::start();
    for scheme in ["http", "socks5"] {
        for url in [open.url(), crate::http::tls_url(&closed)] {
            let mut case = FetchCase::new(&url, &[("ca.crt", &pki.ca)]);
            let address = format!("{scheme}://{}", proxy.address);
            through(&mut case, &address, "wrong-hunter2");
            let error = case.refused(&main_branch());
            assert!(matches!(error, Error::ProxyRefused { .. }), "{address} {url}: {error:?}");
            assert!(error.to_string().contains(&address), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
    assert_eq!(proxy.passed(), [""; 0]);
    assert!(open.seen().is_empty() && closed.seen().is_empty());
}

#[test]
fn a_proxy_that_is_not_there_is_named() {
    let mut case = FetchCase::new("http://127.0.0.1:1/app.git", &[]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    through(&mut case, &format!("http://{free}"), PASSWORD);
    let error = case.refused(&main_branch());
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("through the proxy http://{free}")), "{error}");
}
