//! Tests of the turns of namespaces, and that a waiting run keeps no permit.

use std::pin::pin;

use futures::FutureExt as _;

use super::*;

#[tokio::test]
async fn a_namespace_with_many_waits_for_itself_and_not_the_others() {
    let permits = RunPermits::new(1);
    let first = permits.acquire("greedy").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let waits: Vec<_> = ["greedy", "greedy", "greedy", "a", "b", "a"]
        .into_iter()
        .map(|namespace| {
            let permits = permits.clone();
            let order = order.clone();
            async move {
                let permit = permits.acquire(namespace).await;
                order.lock().push(namespace);
                drop(permit);
            }
        })
        .collect();
    let mut all = pin!(futures::future::join_all(waits));
    assert!(all.as_mut().now_or_never().is_none());
    drop(first);
    all.await;
    assert_eq!(*order.lock(), ["greedy", "a", "b", "greedy", "a", "greedy"]);
    assert_eq!(permits.free(), 1);
}

#[tokio::test]
async fn a_namespace_whose_work_takes_long_keeps_no_more_permits_than_another_that_waits() {
    let permits = RunPermits::new(4);
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(permits.acquire("slow").await);
    }
    let wait = |namespace: &'static str| {
        let permits = permits.clone();
        let mut waits = Box::pin(async move { permits.acquire(namespace).await });
        assert!(waits.as_mut().now_or_never().is_none(), "all permits are taken");
        waits
    };
    let mut slow_waits = wait("slow");
    let waiting = [wait("other"), wait("other"), wait("other")];
    let mut others = Vec::new();
    for other in waiting {
        slow.pop();
        others.push(other.now_or_never());
    }
    assert_eq!([true, true, false], [0, 1, 2].map(|at: usize| others[at].is_some()));
    assert!(slow_waits.as_mut().now_or_never().is_some(), "it has fewer than the other by now");
}

#[tokio::test]
async fn what_never_ends_in_one_namespace_leaves_permits_for_another() {
    let permits = RunPermits::shared(4, 2);
    let _endless = (permits.acquire("drip").await, permits.acquire("drip").await);
    assert!(permits.acquire("drip").now_or_never().is_none(), "it has all that it may have");
    let other = permits.acquire("other").now_or_never();
    assert!(other.is_some(), "a permit is free, and its namespace has none");
}

#[tokio::test]
async fn who_waits_no_more_takes_no_permit_with_it() {
    let permits = RunPermits::new(1);
    let first = permits.acquire("a").await;
    let mut gone = Box::pin(permits.acquire("a"));
    assert!(gone.as_mut().now_or_never().is_none());
    let mut stays = Box::pin(permits.acquire("a"));
    assert!(stays.as_mut().now_or_never().is_none());
    drop(gone);
    drop(first);
    drop(stays.await);
    // A permit comes back if its run stopped waiting at the moment of the grant.
    let first = permits.acquire("a").await;
    let mut gone = Box::pin(permits.acquire("b"));
    assert!(gone.as_mut().now_or_never().is_none());
    drop(first);
    drop(gone);
    assert_eq!(permits.free(), 1);
}

#[tokio::test]
async fn a_wait_for_the_network_lends_the_permit_to_others() {
    let permits = RunPermits::new(1);
    let permit = permits.run_permit("a").await;
    assert_eq!(permits.free(), 0);
    let (sender, receiver) = oneshot::channel::<()>();
    let (second_sender, second_receiver) = oneshot::channel::<()>();
    let mut one = Box::pin(permit.aside(receiver));
    let mut two = Box::pin(permit.aside(second_receiver));
    assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
    let other = permits.acquire("b").now_or_never().expect("nobody holds the permit");
    sender.send(()).unwrap();
    assert!(one.await.is_ok(), "another part still waits, so nothing is taken again");
    second_sender.send(()).unwrap();
    assert!(two.as_mut().now_or_never().is_none(), "it is the other's");
    drop(other);
    assert!(two.await.is_ok());
    assert_eq!(permits.free(), 0);
    drop(permit);
    assert_eq!(permits.free(), 1);
}

#[tokio::test]
async fn runs_that_go_on_and_runs_that_begin_take_turns() {
    let permits = RunPermits::new(1);
    let first = permits.acquire("a").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut runs = Vec::new();
    for (priority, name) in [
        (PermitPriority::New, "begin 1"),
        (PermitPriority::New, "begin 2"),
        (PermitPriority::New, "begin 3"),
        (PermitPriority::Resume, "go on 1"),
        (PermitPriority::Resume, "go on 2"),
    ] {
        let permits = permits.clone();
        let order = order.clone();
        let mut run = Box::pin(async move {
            let permit = permits.run_permit_in(priority, "a").await;
            order.lock().push(name);
            drop(permit);
        });
        assert!(run.as_mut().now_or_never().is_none(), "the only permit is taken");
        runs.push(run);
    }
    drop(first);
    futures::future::join_all(runs).await;
    let order = order.lock().clone();
    assert_eq!(order, ["go on 1", "begin 1", "go on 2", "begin 2", "begin 3"]);
}

#[tokio::test]
async fn a_pool_that_shrinks_takes_no_permit_away_and_one_that_grows_serves_those_that_wait() {
    let permits = RunPermits::new(4);
    let mut held = Vec::new();
    for namespace in ["a", "a", "b", "b"] {
        held.push(permits.acquire(namespace).await);
    }
    permits.resize(2, 1);
    assert_eq!(permits.free(), 0, "four are held, and two too many");
    let mut waits = Box::pin(permits.acquire("c"));
    held.truncate(2);
    assert!(waits.as_mut().now_or_never().is_none(), "both permits are held");
    held.truncate(1);
    let third = waits.as_mut().now_or_never();
    assert!(third.is_some(), "one of the two permits is free");
    let mut more = Box::pin(permits.acquire("a"));
    assert!(more.as_mut().now_or_never().is_none());
    permits.resize(3, 1);
    assert!(more.as_mut().now_or_never().is_none(), "its namespace has all that it may have");
    permits.resize(3, 2);
    assert!(more.as_mut().now_or_never().is_some());
}
