//! Reads lists of any size page by page, and counts objects.
//!
//! Elsewhere: small lists (`objects`), and watched lists (`watch`).

use std::marker::PhantomData;

use http::Request;
use serde_json::Value;

use super::discovery::ApiResourceLocation;
use super::object_decode::{
    DepthPrunedObject, LIST_LIMIT, METADATA_LIST, OBJECTS_PER_PAGE, ObjectDecodeForm,
    ObjectListPage, RawObject,
};
use super::untyped_objects::url_encode;
use super::{ClusterConnection, ClusterError};

const WHOLE: &str = "application/json";

/// Whether whole objects or only their metadata are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectProjection {
    /// Whole objects.
    Whole,
    /// Only the metadata.
    Metadata,
}

impl ObjectProjection {
    fn accept(self) -> &'static str {
        match self {
            Self::Whole => WHOLE,
            Self::Metadata => METADATA_LIST,
        }
    }
}

/// The page size of [`ClusterConnection::verbatim_pages`]. Each object of a page is in memory up to three times until it is
/// packed.
const RAW_OBJECTS_PER_PAGE: usize = 64;

/// The smallest page size.
const MIN_OBJECTS_PER_PAGE: usize = 8;

/// The most pages in a row without an object. A list may have some empty pages, but must end.
const MOST_EMPTY: usize = 1000;

/// A reader that returns a list of any size page by page.
pub struct ListPager<'a, T> {
    cluster: &'a ClusterConnection,
    path: String,
    /// The selector, as a part of the query.
    selector: String,
    accept: &'static str,
    /// How many objects the next page may have.
    limit: usize,
    place: PageCursor,
    read: usize,
    empty: usize,
    items: PhantomData<T>,
}

/// The position of the next page in the list.
enum PageCursor {
    First,
    After(String),
    End,
}

impl<T: ObjectDecodeForm> ListPager<'_, T> {
    /// Reads the next page, or returns `None` after the last page. If a page is too large to read, this and the later pages
    /// become smaller. If the API server is busy, the request is repeated a few times after the delay of its `Retry-After`.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It answers 410 if the list changed too much since it began. A
    /// list without an end is [`ClusterError::Unreadable`].
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, ClusterError> {
        let after = match &self.place {
            PageCursor::First => String::new(),
            PageCursor::After(at) => format!("&continue={}", url_encode(at)),
            PageCursor::End => return Ok(None),
        };
        let page = loop {
            let path = format!("{}?limit={}{}{after}", self.path, self.limit, self.selector);
            match self.cluster.page_at::<T>(&path, self.accept).await {
                // A few objects of the largest size need more memory than many usual ones.
                Err(ClusterError::NoAnswer(_)) if self.limit > MIN_OBJECTS_PER_PAGE => {
                    self.limit /= 8;
                }
                answer => break answer?,
            }
        };
        self.read += page.items.len();
        self.empty = if page.items.is_empty() { self.empty + 1 } else { 0 };
        let path = &self.path;
        if self.empty > MOST_EMPTY {
            let text = format!("{path}: {MOST_EMPTY} pages of the list in a row have no objects");
            return Err(ClusterError::Unreadable(text));
        }
        if self.read > LIST_LIMIT {
            let text = format!("{path}: the list has more than {LIST_LIMIT} objects");
            return Err(ClusterError::Unreadable(text));
        }
        self.place = page.next.map_or(PageCursor::End, PageCursor::After);
        Ok(Some(page.items))
    }

    /// Whether the last page was read.
    pub fn is_over(&self) -> bool {
        matches!(self.place, PageCursor::End)
    }
}

impl ClusterConnection {
    /// Pages of the objects of a kind in a namespace, or in all namespaces (`""`). Values that are nested too deeply become
    /// null.
    ///
    /// # Errors
    /// The namespace is not a valid name.
    pub fn pages(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        part: ObjectProjection,
    ) -> Result<ListPager<'_, DepthPrunedObject>, ClusterError> {
        Ok(self.pages_of(resource.path(namespace, None)?, part.accept(), OBJECTS_PER_PAGE))
    }

    /// Pages of the metadata of the objects in a namespace that match a label selector.
    ///
    /// # Errors
    /// The namespace is not a valid name.
    pub fn metadata_pages(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        label_selector: &str,
    ) -> Result<ListPager<'_, DepthPrunedObject>, ClusterError> {
        let mut pages = self.pages(resource, namespace, ObjectProjection::Metadata)?;
        pages.selector = format!("&labelSelector={}", url_encode(label_selector));
        Ok(pages)
    }

    /// Pages of the objects of a kind in all namespaces, each object as the API server sent it.
    ///
    /// # Errors
    /// As those of [`ClusterConnection::pages`].
    pub fn verbatim_pages(
        &self,
        resource: &ApiResourceLocation,
    ) -> Result<ListPager<'_, RawObject>, ClusterError> {
        Ok(self.pages_of(resource.path("", None)?, WHOLE, RAW_OBJECTS_PER_PAGE))
    }

    fn pages_of<T>(&self, path: String, accept: &'static str, limit: usize) -> ListPager<'_, T> {
        let place = PageCursor::First;
        let items = PhantomData;
        let selector = String::new();
        ListPager { cluster: self, path, selector, accept, limit, place, read: 0, empty: 0, items }
    }

    /// The metadata of up to 500 objects in a namespace that match a label selector, and whether there are more.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn labelled(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        selector: &str,
    ) -> Result<(Vec<Value>, bool), ClusterError> {
        let path = resource.path(namespace, None)?;
        let selector = url_encode(selector);
        let path = format!("{path}?limit={OBJECTS_PER_PAGE}&labelSelector={selector}");
        let page = self.page_at::<DepthPrunedObject>(&path, METADATA_LIST).await?;
        Ok((
            page.items.into_iter().map(|DepthPrunedObject(item)| item).collect(),
            page.next.is_some(),
        ))
    }

    /// How many objects of a kind exist in all namespaces.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn count(&self, resource: &ApiResourceLocation) -> Result<u64, ClusterError> {
        let path = format!("{}?limit=1", resource.path("", None)?);
        let page = self.page_at::<DepthPrunedObject>(&path, METADATA_LIST).await?;
        Ok(page.items.len() as u64 + page.remaining)
    }

    /// Whether an object exists, by a list with its name. This serves users who may list objects but not get them.
    ///
    /// # Errors
    /// The API server refuses the request, or does not respond.
    pub async fn is_listed(
        &self,
        resource: &ApiResourceLocation,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ClusterError> {
        let selector = url_encode(&format!("metadata.name={name}"));
        let path = format!("{}?fieldSelector={selector}", resource.path(namespace, None)?);
        Ok(!self.page_at::<DepthPrunedObject>(&path, METADATA_LIST).await?.items.is_empty())
    }

    async fn page_at<T: ObjectDecodeForm>(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<ObjectListPage<T>, ClusterError> {
        let request = Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new());
        let request = request
            .map_err(|error| ClusterError::NoAnswer(format!("{path} is not a path: {error}")))?;
        // No answer may mean that the page is too large. Then the caller asks again for a smaller page.
        let text = self.send_while_busy(&request, 0).await?;
        ObjectListPage::read(text.as_bytes())
            .map_err(|error| ClusterError::Unreadable(format!("{path}: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use axum::body::Body;
    use futures::stream;
    use objects::Gvk;

    use super::*;
    use crate::fake_cluster::answering;

    fn widgets() -> ApiResourceLocation {
        let gvk = Gvk::new("acme.io/v1", "Widget");
        let plural = "widgets".to_owned();
        ApiResourceLocation { gvk, plural, namespaced: true, watchable: true }
    }

    /// A fake server with a list of two pages, and a record of the queries. A page of more than `most` objects is interrupted.
    async fn server(most: usize) -> (ClusterConnection, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let recorded = asked.clone();
        let cluster = answering(move |(request, _)| {
            let query = request.split_once('?').map(|it| it.1.to_owned()).unwrap_or_default();
            recorded.lock().push(query.clone());
            let limit: usize = query
                .split('&')
                .find_map(|it| it.strip_prefix("limit="))
                .and_then(|it| it.parse().ok())
                .unwrap();
            if limit > most {
                // The answer ends in the middle.
                let broken =
                    stream::iter([Ok("{\"items\": ["), Err(std::io::Error::other("too long"))]);
                return (200, Body::from_stream(broken));
            }
            let next = if query.contains("continue=") { "" } else { "second" };
            let item = r#"{"metadata": {"name": "a"}}"#;
            let page = format!(r#"{{"metadata": {{"continue": "{next}"}}, "items": [{item}]}}"#);
            (200, Body::from(page))
        });
        (cluster.await, asked)
    }

    #[tokio::test]
    async fn pages_that_are_too_large_are_made_smaller_once() {
        let (cluster, asked) = server(100).await;
        let mut pages = cluster.pages(&widgets(), "", ObjectProjection::Whole).unwrap();
        let mut read = 0;
        while let Some(page) = pages.next().await.unwrap() {
            read += page.len();
        }
        assert!(read == 2 && pages.is_over());
        let asked = asked.lock().join(" ");
        assert_eq!(asked, "limit=500 limit=62 limit=62&continue=second");
    }

    #[tokio::test]
    async fn a_server_that_is_busy_is_asked_for_a_page_again_a_few_times() {
        let server = |busy: u32| {
            let asked = Arc::new(Mutex::new(0));
            answering(move |_| {
                let mut asked = asked.lock();
                *asked += 1;
                if *asked > busy {
                    return (200, Body::from(r#"{"metadata": {}, "items": []}"#));
                }
                let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 429, "reason": "TooManyRequests", "message": "too many requests"});
                (429, Body::from(status.to_string()))
            })
        };
        let cluster = server(2).await;
        let mut pages = cluster.pages(&widgets(), "", ObjectProjection::Metadata).unwrap();
        assert!(pages.next().await.unwrap().is_some() && pages.is_over());
        let cluster = server(u32::MAX).await;
        let mut pages = cluster.pages(&widgets(), "", ObjectProjection::Metadata).unwrap();
        assert_eq!(pages.next().await.err().and_then(|error| error.code()), Some(429));
    }

    #[tokio::test]
    async fn objects_that_are_kept_as_they_are_come_in_small_pages() {
        let (cluster, asked) = server(500).await;
        let mut pages = cluster.verbatim_pages(&widgets()).unwrap();
        while pages.next().await.unwrap().is_some() {}
        assert_eq!(asked.lock()[0], "limit=64");
    }

    #[tokio::test]
    async fn a_list_that_does_not_end_is_an_error() {
        let endless = r#"{"metadata": {"continue": "x"}, "items": []}"#;
        let cluster = answering(move |_| (200, Body::from(endless))).await;
        let mut pages = cluster.pages(&widgets(), "", ObjectProjection::Metadata).unwrap();
        let error = loop {
            match pages.next().await {
                Ok(page) => assert!(page.is_some()),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("1000 pages of the list in a row"), "{error}");
    }
}
