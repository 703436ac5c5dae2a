//! Reads lists of any size page by page, for callers that check each object and keep only a few.
//!
//! Elsewhere: lists that are kept as a whole (`objects`), and lists of metadata or undecoded objects (`list_pager`).

use objects::Object;

use super::discovery::ApiResourceLocation;
use super::untyped_objects::ObjectPage;
use super::{ClusterConnection, ClusterError};

/// How many objects a page has.
const OBJECTS_PER_REQUEST: usize = 64;

/// How many objects a page has if larger pages cannot be read.
const LEAST_OBJECTS_PER_REQUEST: usize = 8;

/// The most requests for one list, because an API server may send empty pages.
const MOST_REQUESTS: usize = 10_000;

/// A query for the objects of a kind.
#[derive(Debug, Clone, Copy)]
pub struct ObjectQuery<'a> {
    /// The kind of the objects.
    pub resource: &'a ApiResourceLocation,
    /// The namespace of the objects. Empty for all namespaces.
    pub namespace: &'a str,
    /// The label selector. Empty for any labels.
    pub label_selector: &'a str,
    /// The field selector. Empty for any fields.
    pub field_selector: &'a str,
}

impl<'a> ObjectQuery<'a> {
    /// A query for all objects of a kind.
    #[must_use]
    pub fn all(resource: &'a ApiResourceLocation) -> Self {
        Self { resource, namespace: "", label_selector: "", field_selector: "" }
    }
}

/// A reader that returns a list of any size page by page.
pub struct ObjectPageReader<'a> {
    cluster: &'a ClusterConnection,
    query: ObjectQuery<'a>,
    limit: usize,
    /// The token of the next page.
    from: Option<String>,
    is_over: bool,
    requests: usize,
}

impl ObjectPageReader<'_> {
    /// Reads the next page, or returns `None` after the last page. If a page is too large to read, this and the later pages
    /// become smaller.
    ///
    /// # Errors
    /// The API server refuses the request or does not respond. It answers 410 if the list changed too much since it began.
    /// [`ClusterError::NoSuchKind`] if discovery says that the kind is no longer served. [`ClusterError::Unreadable`] for a
    /// list without an end.
    pub async fn next(&mut self) -> Result<Option<ObjectPage>, ClusterError> {
        if self.is_over {
            return Ok(None);
        }
        let page = loop {
            self.requests += 1;
            if self.requests > MOST_REQUESTS {
                let plural = &self.query.resource.plural;
                let text = format!("the list of {plural} does not end after {MOST_REQUESTS} pages");
                return Err(ClusterError::Unreadable(text));
            }
            let from = self.from.as_deref();
            match self.cluster.list_at_most(self.query, from, self.limit).await {
                // A few objects of the largest size need more memory than many usual ones.
                Err(ClusterError::NoAnswer(_)) if self.limit > LEAST_OBJECTS_PER_REQUEST => {
                    self.limit = LEAST_OBJECTS_PER_REQUEST;
                }
                page => break page?,
            }
        };
        self.from.clone_from(&page.next);
        self.is_over = self.from.is_none();
        Ok(Some(page))
    }
}

impl ClusterConnection {
    /// The objects that a query selects, page by page. Values that are nested too deeply become null.
    #[must_use]
    pub fn object_pages<'a>(&'a self, query: ObjectQuery<'a>) -> ObjectPageReader<'a> {
        let limit = OBJECTS_PER_REQUEST;
        ObjectPageReader { cluster: self, query, limit, from: None, is_over: false, requests: 0 }
    }

    /// Calls `check` for each object and returns its first result. It stops after about `most` objects. Only one page is in
    /// memory at a time.
    ///
    /// # Errors
    /// As those of [`ObjectPageReader::next`].
    pub async fn find_object<T>(
        &self,
        query: ObjectQuery<'_>,
        most: usize,
        mut check: impl FnMut(&Object) -> Option<T>,
    ) -> Result<Option<T>, ClusterError> {
        let mut pages = self.object_pages(query);
        let mut read = 0;
        while let Some(page) = pages.next().await? {
            if let Some(found) = page.objects.iter().find_map(&mut check) {
                return Ok(Some(found));
            }
            read += page.objects.len();
            if read >= most {
                break;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use objects::Gvk;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::fake_cluster::answering;

    fn widgets() -> ApiResourceLocation {
        let gvk = Gvk::new("acme.io/v1", "Widget");
        let plural = "widgets".to_owned();
        ApiResourceLocation { gvk, plural, namespaced: true, watchable: true }
    }

    #[tokio::test]
    async fn an_object_is_found_on_a_later_page_and_not_beyond_the_bound() {
        let requests = Arc::new(Mutex::new(0));
        let counted = requests.clone();
        let cluster = answering(move |(request, _)| {
            *counted.lock() += 1;
            let page: usize =
                request.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
            let items = [json!({"metadata": {"name": format!("w-{page}")}})];
            let list = json!({"metadata": {"continue": (page + 1).to_string()}, "items": items});
            (200, Body::from(list.to_string()))
        })
        .await;
        let resource = widgets();
        let find = |name: &'static str, most| {
            let is_it = move |it: &Object| (it.name() == name).then(|| it.kind().to_owned());
            cluster.find_object(ObjectQuery::all(&resource), most, is_it)
        };
        assert_eq!(find("w-3", 10).await.unwrap().as_deref(), Some("Widget"));
        assert_eq!(std::mem::take(&mut *requests.lock()), 4, "it stops where it has found it");
        assert_eq!(find("w-3", 2).await.unwrap(), None);
        assert_eq!(*requests.lock(), 2);
    }

    #[tokio::test]
    async fn a_list_of_which_nothing_is_kept_may_have_any_number_of_bytes() {
        let large = "x".repeat(9 << 20);
        let cluster = answering(move |(request, _)| {
            let page: usize =
                request.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
            let next = if page < 8 { (page + 1).to_string() } else { String::new() };
            let items = [json!({"metadata": {"name": format!("w-{page}")}, "spec": large})];
            let list = json!({"metadata": {"continue": next}, "items": items});
            (200, Body::from(list.to_string()))
        })
        .await;
        let resource = widgets();
        let mut pages = cluster.object_pages(ObjectQuery::all(&resource));
        let mut read = 0;
        while let Some(page) = pages.next().await.unwrap() {
            read += page.objects.len();
        }
        assert_eq!(read, 9);
        assert!(cluster.list(&resource, "", "").await.is_err(), "what is kept has a bound");
    }
}
