//! Tests of watch events, with an API server that gives scripted answers.

mod initial_event_lists;

use crds::helm::HelmRelease;
use http::Response;
use kube::Client;
use parking_lot::Mutex;

use super::*;

/// A fake API server that gives these answers one after the other, and then none. It records the requests.
struct ScriptedApiServer {
    answers: VecDeque<(u16, String)>,
    asked: Vec<String>,
}

type ScriptedAnswers = Vec<Result<WatcherEvent<String>, Option<u16>>>;

fn metadata(name: &str, version: u64) -> String {
    format!(
        r#"{{"metadata":{{"namespace":"shop","name":"{name}","resourceVersion":"{version}"}}}}"#
    )
}

fn page(items: &[String], more: &str) -> (u16, String) {
    let items = items.join(",");
    (200, format!(r#"{{"metadata":{{"resourceVersion":"10"{more}}},"items":[{items}]}}"#))
}

fn events(lines: &[(&str, String)]) -> (u16, String) {
    let line =
        |(kind, object): &(&str, String)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    (200, lines.iter().map(line).collect())
}

fn pool(script: &Arc<Mutex<ScriptedApiServer>>) -> ConnectionPool {
    let script = script.clone();
    ConnectionPool::new(move || {
        let script = script.clone();
        let server = tower::service_fn(move |request: http::Request<Body>| {
            let next = {
                let mut script = script.lock();
                script.asked.push(request.uri().to_string());
                script.answers.pop_front()
            };
            async move {
                let Some((code, text)) = next else { return std::future::pending().await };
                let answer = Response::builder().status(code).body(Body::from(text.into_bytes()));
                Ok::<_, std::io::Error>(answer.unwrap())
            }
        });
        Ok(Client::new(server, "default"))
    })
}

/// Follows a watch of metadata that lists by pages, until `count` events came.
async fn watched(answers: Vec<(u16, String)>, count: usize) -> (ScriptedAnswers, Vec<String>) {
    watched_with(ListMethods::pages(), answers, count).await
}

/// Follows a watch of metadata until `count` events came.
async fn watched_with(
    lists: ListMethods,
    answers: Vec<(u16, String)>,
    count: usize,
) -> (ScriptedAnswers, Vec<String>) {
    let script =
        Arc::new(Mutex::new(ScriptedApiServer { answers: answers.into(), asked: Vec::new() }));
    let path = "/api/v1/secrets".to_owned();
    let watch = KindWatch::<MetadataOnly>::new(pool(&script), path, String::new(), METADATA_ONLY)
        .listing_by(lists);
    let name = |seen: WatcherEvent<MetadataOnly>| match seen {
        WatcherEvent::Listing => WatcherEvent::Listing,
        WatcherEvent::Listed(object) => WatcherEvent::Listed(object.name),
        WatcherEvent::ListEnded => WatcherEvent::ListEnded,
        WatcherEvent::Live => WatcherEvent::Live,
        WatcherEvent::Applied(object) => WatcherEvent::Applied(object.name),
        WatcherEvent::Deleted(object) => WatcherEvent::Deleted(object.name),
        WatcherEvent::Interrupted => WatcherEvent::Interrupted,
    };
    let story = watch.follow().take(count).map(|seen| seen.map(name).map_err(|it| it.code()));
    let story = story.collect().await;
    let asked = script.lock().asked.clone();
    (story, asked)
}

fn is(
    name: &str,
    seen: impl Fn(String) -> WatcherEvent<String>,
) -> Result<WatcherEvent<String>, Option<u16>> {
    Ok(seen(name.to_owned()))
}

#[tokio::test]
async fn a_list_of_pages_is_complete_and_the_watch_is_live_once_it_is_answered() {
    let deep = format!("{}1{}", "{\"a\":".repeat(400), "}".repeat(400));
    let deep =
        metadata("deep", 3).replace("\"name\"", &format!("\"managedFields\":{deep},\"name\""));
    let answers = vec![
        page(&[metadata("a", 1), deep], r#","continue":"next one""#),
        page(&[metadata("b", 2)], ""),
        events(&[("MODIFIED", metadata("a", 11)), ("DELETED", metadata("b", 12))]),
    ];
    let (story, asked) = watched(answers, 9).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        is("deep", WatcherEvent::Listed),
        is("b", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        is("a", WatcherEvent::Applied),
        is("b", WatcherEvent::Deleted),
        Ok(WatcherEvent::Interrupted),
    ];
    assert_eq!(story, expected);
    assert!(asked[1].ends_with("limit=500&continue=next%20one"), "{asked:?}");
    assert!(
        asked[2].contains("watch=true") && asked[2].contains("resourceVersion=10"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_watch_that_ended_goes_on_where_it_was_and_is_not_live_in_between() {
    let bookmark = r#"{"metadata":{"resourceVersion":"20"}}"#.to_owned();
    let answers = vec![
        page(&[], ""),
        events(&[("ADDED", metadata("a", 11)), ("BOOKMARK", bookmark)]),
        (503, "busy".to_owned()),
        events(&[("DELETED", metadata("a", 21))]),
    ];
    let (story, asked) = watched(answers, 8).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        is("a", WatcherEvent::Applied),
        Ok(WatcherEvent::Interrupted),
        Err(Some(503)),
        Ok(WatcherEvent::Live),
        is("a", WatcherEvent::Deleted),
    ];
    assert_eq!(story, expected);
    assert!(asked[2].ends_with("resourceVersion=20"), "{asked:?}");
    assert!(asked[3].ends_with("resourceVersion=20"), "{asked:?}");
}

#[tokio::test]
async fn what_is_too_old_is_listed_again_whether_an_answer_or_an_event_says_so() {
    let gone = r#"{"kind":"Status","code":410,"message":"too old"}"#.to_owned();
    let answers = vec![
        page(&[], ""),
        (410, gone.clone()),
        page(&[metadata("a", 9)], ""),
        events(&[("ERROR", gone)]),
        page(&[], ""),
    ];
    let (story, _) = watched(answers, 10).await;
    let expected = [
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
        Err(Some(410)),
        Ok(WatcherEvent::Listing),
        is("a", WatcherEvent::Listed),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        Err(Some(410)),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
    ];
    assert_eq!(story, expected);
}

#[tokio::test]
async fn what_is_no_list_and_no_event_is_an_error_and_asked_again() {
    let answers = vec![
        (200, "<html>".to_owned()),
        (403, r#"{"kind":"Status","code":403,"message":"may not"}"#.to_owned()),
        page(&[], ""),
        (200, "<html>\n".to_owned()),
        page(&[], ""),
    ];
    let (story, _) = watched(answers, 8).await;
    let expected = [
        Err(None),
        Err(Some(403)),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
        Ok(WatcherEvent::Live),
        Err(None),
        Ok(WatcherEvent::Listing),
        Ok(WatcherEvent::ListEnded),
    ];
    assert_eq!(story, expected);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_an_event_like_the_others() {
    let release = |name: &str, interval: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"3"}},
                "spec":{{"interval":{interval}}}}}"#
        )
        .replace('\n', " ")
    };
    let answers = vec![
        page(&[release("odd", "{}"), release("well", "\"1m\"")], ""),
        events(&[("MODIFIED", release("well", "{}")), ("DELETED", release("odd", "{}"))]),
    ];
    let script =
        Arc::new(Mutex::new(ScriptedApiServer { answers: answers.into(), asked: Vec::new() }));
    let path = "/x".to_owned();
    let script = pool(&script);
    let watch =
        KindWatch::<DecodedObject<HelmRelease>>::new(script, path, String::new(), FULL_OBJECTS);
    let watcher_events: Vec<_> = watch.follow().take(7).collect().await;
    let unreadable = |it: &DecodedObject<HelmRelease>| match it {
        DecodedObject::Unreadable(object) => object.meta.name.clone(),
        DecodedObject::Read(object) => panic!("{object:?}"),
    };
    let (Ok(WatcherEvent::Listed(odd)), Ok(WatcherEvent::Listed(DecodedObject::Read(_)))) =
        (&watcher_events[1], &watcher_events[2])
    else {
        panic!("{watcher_events:?}")
    };
    assert_eq!(unreadable(odd), "odd");
    let (Ok(WatcherEvent::Applied(well)), Ok(WatcherEvent::Deleted(odd))) =
        (&watcher_events[5], &watcher_events[6])
    else {
        panic!("{watcher_events:?}")
    };
    assert_eq!((unreadable(well), unreadable(odd)), ("well".to_owned(), "odd".to_owned()));
}
