//! Lists of any size, page by page, and how long they are.
//!
//! Elsewhere: lists that are small (`objects`), lists that are followed (`watch`).

use http::Request;
use serde_json::Value;

use super::discovery::Resource;
use super::item::{METADATA_LIST, PAGE, Page, Shallow, Verbatim, Wire};
use super::objects::url_encode;
use super::{Cluster, ClusterError};

const WHOLE: &str = "application/json";

/// What of the objects is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of them.
    Whole,
    /// Their metadata.
    Metadata,
}

impl Part {
    fn accept(self) -> &'static str {
        match self {
            Self::Whole => WHOLE,
            Self::Metadata => METADATA_LIST,
        }
    }
}

/// A page of a list.
pub(crate) struct Objects {
    /// What lies too deep in one is null.
    pub(crate) items: Vec<Value>,
    /// Where the next page begins; none after the last.
    pub(crate) next: Option<String>,
}

impl Objects {
    fn of(page: Page<Shallow>) -> Self {
        let items = page.items.into_iter().map(|Shallow(item)| item).collect();
        Self { items, next: page.next }
    }
}

impl Cluster {
    /// A page of the objects of a kind, in a namespace or in all of them (`""`); `from` is where the page before ended. A page that is too
    /// large to be read is made smaller.
    ///
    /// # Errors
    /// Every refusal, such as that of a list that has changed too much since it began, and no answer.
    pub(crate) async fn page(
        &self,
        resource: &Resource,
        namespace: &str,
        part: Part,
        from: Option<&str>,
    ) -> Result<Objects, ClusterError> {
        let page = self.page_as::<Shallow>(resource, namespace, part.accept(), from).await?;
        Ok(Objects::of(page))
    }

    /// A page of the objects of a kind in all namespaces, each as the API server sent it.
    ///
    /// # Errors
    /// As those of [`Cluster::page`].
    pub(crate) async fn verbatim_page(
        &self,
        resource: &Resource,
        from: Option<&str>,
    ) -> Result<(Vec<Verbatim>, Option<String>), ClusterError> {
        let page = self.page_as::<Verbatim>(resource, "", WHOLE, from).await?;
        Ok((page.items, page.next))
    }

    async fn page_as<T: Wire>(
        &self,
        resource: &Resource,
        namespace: &str,
        accept: &str,
        from: Option<&str>,
    ) -> Result<Page<T>, ClusterError> {
        let more = from.map(|at| format!("&continue={}", url_encode(at))).unwrap_or_default();
        let path = resource.path(namespace, None)?;
        let mut limit = PAGE;
        loop {
            match self.page_at(&format!("{path}?limit={limit}{more}"), accept).await {
                // Few objects of the largest size are more than many usual ones.
                Err(ClusterError::NoAnswer(_)) if limit > 8 => limit /= 8,
                answer => return answer,
            }
        }
    }

    /// The metadata of the objects in a namespace that a label selector matches: of at most 500, and whether there are
    /// more.
    ///
    /// # Errors
    /// Every refusal, and no answer.
    pub(crate) async fn labelled(
        &self,
        resource: &Resource,
        namespace: &str,
        selector: &str,
    ) -> Result<(Vec<Value>, bool), ClusterError> {
        let (path, selector) = (resource.path(namespace, None)?, url_encode(selector));
        let path = format!("{path}?limit={PAGE}&labelSelector={selector}");
        let page = Objects::of(self.page_at(&path, METADATA_LIST).await?);
        Ok((page.items, page.next.is_some()))
    }

    /// How many objects of a kind there are.
    ///
    /// # Errors
    /// Every refusal, and no answer.
    pub(crate) async fn count(&self, resource: &Resource) -> Result<u64, ClusterError> {
        let path = format!("{}?limit=1", resource.path("", None)?);
        let page = self.page_at::<Shallow>(&path, METADATA_LIST).await?;
        Ok(page.items.len() as u64 + page.remaining)
    }

    /// Whether an object is in a list by its name, for those who may list and not get.
    ///
    /// # Errors
    /// Every refusal, and no answer.
    pub(crate) async fn is_listed(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<bool, ClusterError> {
        let selector = url_encode(&format!("metadata.name={name}"));
        let path = format!("{}?fieldSelector={selector}", resource.path(namespace, None)?);
        Ok(!self.page_at::<Shallow>(&path, METADATA_LIST).await?.items.is_empty())
    }

    async fn page_at<T: Wire>(&self, path: &str, accept: &str) -> Result<Page<T>, ClusterError> {
        let request = Request::get(path).header(http::header::ACCEPT, accept).body(Vec::new());
        let request = request
            .map_err(|error| ClusterError::NoAnswer(format!("{path} is not a path: {error}")))?;
        let text = self.unary.request_text(request).await?;
        Page::read(text.as_bytes())
            .map_err(|error| ClusterError::Unreadable(format!("{path}: {error}")))
    }
}
