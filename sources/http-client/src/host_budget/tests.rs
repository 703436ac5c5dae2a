//! Requests to a server on loopback: how many at once, when none, and which callers share a pause.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::{TlsConfig, client};

#[derive(Default)]
struct RequestCounters {
    asked: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Answers the first requests with `first`, all others with 200; each takes a moment.
async fn serve(first: Vec<&'static str>) -> (Url, Arc<RequestCounters>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let seen = Arc::new(RequestCounters::default());
    let recorded = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = recorded.clone();
            let first = first.clone();
            tokio::spawn(async move {
                let mut asked = [0; 4096];
                let _length = stream.read(&mut asked).await.unwrap();
                let number = seen.asked.fetch_add(1, Ordering::SeqCst);
                let now = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
                seen.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
                seen.now.fetch_sub(1, Ordering::SeqCst);
                let status = first.get(number).copied().unwrap_or("200 OK\r\n");
                let answer =
                    format!("HTTP/1.1 {status}connection: close\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    (url, seen)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
}

#[test]
fn no_more_requests_are_under_way_than_may_be_and_all_get_their_turn() {
    run(async {
        let (url, seen) = serve(Vec::new()).await;
        let budgets = HostBudgets::new(HostLimits { at_once: 3, per_second: None });
        let client = client(&TlsConfig::default(), None).unwrap();
        let all = (0..20).map(|_| budgets.send(client.get(url.clone())));
        for answer in
            futures::future::join_all(all.map(|sent| async { drop(sent.await.unwrap()) })).await
        {
            let () = answer;
        }
        assert_eq!(seen.asked.load(Ordering::SeqCst), 20);
        assert_eq!(seen.most.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_host_that_says_later_is_not_asked_again_and_others_are() {
    run(async {
        let (url, seen) = serve(vec!["429 Too Many Requests\r\nretry-after: 1\r\n"]).await;
        let (other, _) = serve(Vec::new()).await;
        let budgets = HostBudgets::default();
        let client = client(&TlsConfig::default(), None).unwrap();
        let answer = budgets.send(client.get(url.clone())).await.unwrap();
        assert_eq!(answer.status(), 429);
        let busy = answer.check().unwrap_err();
        drop(answer);
        assert!(busy.to_string().contains("responded with HTTP status 429; next request at 2"));
        for _ in 0..3 {
            match budgets.send(client.get(url.clone())).await {
                Err(SendError::Busy(again)) => assert_eq!(again, busy),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen.asked.load(Ordering::SeqCst), 1);
        assert_eq!(budgets.send(client.get(other)).await.unwrap().status(), 200);
        while budgets.check(&url).is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(budgets.send(client.get(url.clone())).await.unwrap().status(), 200);
        assert_eq!(seen.asked.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn a_separate_client_can_report_what_it_learned() {
    let budgets = HostBudgets::default();
    let url = Url::parse("https://example.com/a").unwrap();
    let mut headers = http::HeaderMap::new();
    headers.insert("retry-after", http::HeaderValue::from_static("60"));
    budgets.learn(&url, http::StatusCode::TOO_MANY_REQUESTS, &headers);
    assert_eq!(budgets.check(&url).unwrap_err().host, "example.com:443");
    assert_eq!(budgets.check(&Url::parse("https://example.com:8443/").unwrap()), Ok(()));
    assert_eq!(budgets.check(&Url::parse("http://example.com:443/").unwrap()), Ok(()));
}

#[test]
fn hosts_of_which_there_is_nothing_to_remember_are_forgotten() {
    let budgets = HostBudgets::default();
    let host = |number: usize| Url::parse(&format!("https://h{number}.example/")).unwrap();
    let none = http::HeaderMap::new();
    budgets.learn(&host(0), http::StatusCode::TOO_MANY_REQUESTS, &none);
    for number in 1..3 * MANY_HOSTS {
        budgets.learn(&host(number), http::StatusCode::OK, &none);
    }
    assert!(budgets.hosts.lock().len() <= MANY_HOSTS);
    assert!(budgets.check(&host(0)).is_err());
}
