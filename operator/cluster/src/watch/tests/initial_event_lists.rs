//! Tests of lists as the initial events of a watch.

use super::*;

const KIND: &str = "/api/v1/secrets";

fn initial_events(refusals: &Arc<InitialEventsRefusals>) -> ListMethods {
    ListMethods::initial_events(refusals.clone(), KIND.to_owned())
}

/// The bookmark after the last initial event.
fn end(version: u64) -> (&'static str, String) {
    let object = format!(
        r#"{{"metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
    );
    ("BOOKMARK", object)
}

fn bookmark(version: u64) -> (&'static str, String) {
    ("BOOKMARK", format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#))
}

fn status(code: u16) -> String {
    format!(r#"{{"kind":"Status","code":{code},"message":"no"}}"#)
}

/// Whether each request asks for initial events.
fn are_initial_events(requests: &[String]) -> Vec<bool> {
    requests.iter().map(|request| request.contains("sendInitialEvents=true")).collect()
}

#[tokio::test]
async fn the_bookmark_ends_the_list_and_the_stream_goes_on_as_the_watch() {
    let answers = vec![
        events(&[
            ("ADDED", metadata("a", 1)),
            ("ADDED", metadata("b", 2)),
            end(10),
            ("MODIFIED", metadata("a", 11)),
        ]),
        events(&[("DELETED", metadata("b", 12))]),
    ];
    let refusals = Arc::default();
    let (story, asked) = watched_with(initial_events(&refusals), answers, 9).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        is("b", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        is("a", WatcherEvent::Applied),
        Ok(WatcherEvent::Interrupted),
        Ok(WatcherEvent::Live),
        is("b", WatcherEvent::Deleted),
    ];
    assert_eq!(story, expected);
    assert_eq!(are_initial_events(&asked), [true, false]);
    assert!(
        asked[0].ends_with("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        "{asked:?}"
    );
    assert!(asked[0].contains("allowWatchBookmarks=true"), "{asked:?}");
    assert!(!asked[0].contains("resourceVersion="), "the list is the most recent: {asked:?}");
    assert!(asked[1].ends_with("resourceVersion=11"), "{asked:?}");
}

#[tokio::test]
async fn streams_that_end_before_the_bookmark_are_no_lists_and_pages_follow() {
    let answers = vec![
        events(&[("ADDED", metadata("a", 1))]),
        // A bookmark without the annotation ends no list.
        events(&[("ADDED", metadata("a", 1)), bookmark(9)]),
        page(&[metadata("a", 1), metadata("b", 2)], ""),
        events(&[("ERROR", status(410))]),
        page(&[], ""),
    ];
    let refusals = Arc::default();
    let (story, asked) = watched_with(initial_events(&refusals), answers, 12).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        is("b", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        Err(Some(410)),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
    ];
    assert_eq!(story, expected);
    assert_eq!(are_initial_events(&asked), [true, true, false, false, false]);
    assert!(!initial_events(&refusals).is_by_initial_events());
}

#[tokio::test]
async fn a_refusal_is_answered_by_pages_and_remembered_for_the_kind() {
    let answers = vec![
        (422, status(422)),
        page(&[metadata("a", 1)], ""),
        events(&[("ERROR", status(410))]),
        page(&[metadata("a", 1)], ""),
    ];
    let refusals = Arc::default();
    let (story, asked) = watched_with(initial_events(&refusals), answers, 8).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        Err(Some(410)),
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
    ];
    assert_eq!(story, expected);
    assert_eq!(are_initial_events(&asked), [true, false, false, false]);
    assert!(!initial_events(&refusals).is_by_initial_events());
    let other = ListMethods::initial_events(refusals.clone(), "/api/v1/configmaps".to_owned());
    assert!(other.is_by_initial_events(), "another kind");
}

#[tokio::test]
async fn an_api_server_that_cannot_send_initial_events_may_say_so_by_the_first_event() {
    let answers = vec![events(&[("ERROR", status(500))]), page(&[metadata("a", 1)], "")];
    let refusals = Arc::default();
    let (story, _) = watched_with(initial_events(&refusals), answers, 4).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
    ];
    assert_eq!(story, expected);
    assert!(!initial_events(&refusals).is_by_initial_events());
}

#[tokio::test]
async fn a_refusal_that_pages_get_as_well_is_not_about_initial_events() {
    let answers = vec![
        (403, status(403)),
        (403, status(403)),
        (403, status(403)),
        page(&[], ""),
        events(&[("ERROR", status(410))]),
        events(&[end(10)]),
    ];
    let refusals = Arc::default();
    let (story, asked) = watched_with(initial_events(&refusals), answers, 9).await;
    let expected = [
        Err(Some(403)),
        Err(Some(403)),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        Err(Some(410)),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
    ];
    assert_eq!(story, expected);
    assert_eq!(are_initial_events(&asked), [true, false, false, false, false, true]);
}

#[tokio::test]
async fn an_error_amid_the_initial_events_ends_no_list() {
    let answers = vec![
        events(&[("ADDED", metadata("a", 1)), ("ERROR", status(410))]),
        events(&[("ADDED", metadata("b", 2)), end(10)]),
    ];
    let refusals = Arc::default();
    let (story, asked) = watched_with(initial_events(&refusals), answers, 7).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Err(Some(410)),
        Ok(WatcherEvent::Listing),
        is("b", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
    ];
    assert_eq!(story, expected);
    assert_eq!(are_initial_events(&asked), [true, true]);
}

#[tokio::test]
async fn what_is_deleted_during_the_list_is_reported_after_it() {
    let answers = vec![events(&[
        ("ADDED", metadata("a", 1)),
        ("ADDED", metadata("b", 2)),
        ("DELETED", metadata("a", 11)),
        ("DELETED", metadata("b", 12)),
        ("ADDED", metadata("b", 13)),
        end(13),
    ])];
    let refusals = Arc::default();
    let (story, _) = watched_with(initial_events(&refusals), answers, 7).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        is("b", WatcherEvent::Listed),
        is("b", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        is("a", WatcherEvent::Deleted),
        Ok(WatcherEvent::Live),
    ];
    assert_eq!(story, expected);
}

#[tokio::test]
async fn an_api_server_that_is_busy_has_refused_nothing() {
    let answers = vec![(429, status(429)), (503, status(503)), events(&[end(10)])];
    let refusals = Arc::default();
    let (story, asked) = watched_with(initial_events(&refusals), answers, 5).await;
    let expected = [
        Err(Some(429)),
        Err(Some(503)),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
    ];
    assert_eq!(story, expected);
    assert_eq!(are_initial_events(&asked), [true, true, true]);
}
