//! Wrong answers of a server, or of what is between it and its client: errors, pages for browsers, lists that lack something.
//!
//! Here: which there are, and how a right answer becomes one. Elsewhere: which requests get them (`crate::api_proxy`,
//! `crate::fault_proxy`).

use anyhow::Result;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;

/// The largest answer that is changed.
const ANSWER_LIMIT: usize = 64 << 20;

/// What a portal shows to a browser. It is well-formed XML: a parser that ignores elements that it does not know finds a
/// document without contents.
const HTML_PAGE: &str = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\
    <body><p>Sign in to continue.</p></body></html>\n";

/// What the Git server's answers to a listing of references, and to a fetch, have as their type.
const UPLOAD_PACK: &str = "application/x-git-upload-pack-result";

/// The fields that hold the entries of a list: of the API server, of its discovery, of a registry.
const LIST_FIELDS: [&str; 4] = ["items", "groups", "resources", "tags"];

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseFault {
    /// It is an error with this status, and the request is not carried out; 429 comes with `Retry-After: 1`.
    Status(u16),
    /// It is a page for browsers with status 200, and the request is not carried out.
    HtmlPage,
    /// It has status 200 and no body, and the request is not carried out.
    EmptyBody,
    /// Its body ends after the first half, without what ends a body.
    Truncated,
    /// It is a list without entries, and says that it is complete. An answer that is not a list stays right.
    EmptyList,
    /// It is a list without its second half, and says that it is complete. An answer that is not a list stays right.
    WithoutLastPage,
}

impl ResponseFault {
    /// Every fault.
    pub const ALL: [Self; 7] = [
        Self::Status(500),
        Self::Status(429),
        Self::HtmlPage,
        Self::EmptyBody,
        Self::Truncated,
        Self::EmptyList,
        Self::WithoutLastPage,
    ];

    /// The answer, if it does not depend on the right one.
    pub(crate) fn replacement(self) -> Option<Response> {
        match self {
            Self::Status(status) => {
                let code =
                    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let mut answer = (code, format!("the test bed answers {status}\n")).into_response();
                if code == StatusCode::TOO_MANY_REQUESTS {
                    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                }
                Some(answer)
            }
            Self::HtmlPage => {
                let of_html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
                Some((of_html, HTML_PAGE).into_response())
            }
            Self::EmptyBody => Some(StatusCode::OK.into_response()),
            Self::Truncated | Self::EmptyList | Self::WithoutLastPage => None,
        }
    }

    /// The answer that a right one becomes, and whether it differs from that.
    ///
    /// # Errors
    /// The right answer is interrupted or too large.
    pub(crate) async fn damage(self, answer: Response) -> Result<(Response, bool)> {
        let (mut parts, body) = answer.into_parts();
        let whole = to_bytes(body, ANSWER_LIMIT).await?;
        if self == Self::Truncated && whole.len() > 1 {
            let half = whole.slice(..whole.len() / 2);
            let end = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            let body = Body::from_stream(stream::iter([Ok(half), Err(end)]));
            return Ok((Response::from_parts(parts, body), true));
        }
        let is_packed = parts.headers.contains_key(header::CONTENT_ENCODING);
        let is_of_git = parts.headers.get(header::CONTENT_TYPE).is_some_and(|it| it == UPLOAD_PACK);
        let shorter = match self {
            _ if is_packed || !parts.status.is_success() => None,
            // Pkt-lines that end at once.
            Self::EmptyList if is_of_git => Some("0000".to_owned()),
            _ => std::str::from_utf8(&whole).ok().and_then(|text| self.shorten(text)),
        };
        let Some(shorter) = shorter else {
            return Ok((Response::from_parts(parts, Body::from(whole)), false));
        };
        parts.headers.remove(header::CONTENT_LENGTH);
        Ok((Response::from_parts(parts, Body::from(shorter)), true))
    }

    /// How many entries a list keeps; none if this fault is not one of lists.
    fn kept(self, entries: usize) -> Option<usize> {
        match self {
            Self::EmptyList => Some(0),
            Self::WithoutLastPage => Some(entries / 2),
            Self::Status(_) | Self::HtmlPage | Self::EmptyBody | Self::Truncated => None,
        }
    }

    /// A list with fewer entries; none of what is not a list or has no entries.
    fn shorten(self, text: &str) -> Option<String> {
        if text.contains("<ListBucketResult") {
            return self.shorten_bucket(text);
        }
        if let Some((head, _)) = text.split_once("\nentries:") {
            // The entries of an index of charts are its last field.
            return (self == Self::EmptyList).then(|| format!("{head}\nentries: {{}}\n"));
        }
        let mut list: Value = serde_json::from_str(text).ok()?;
        let field = LIST_FIELDS.into_iter().find(|field| list[*field].is_array())?;
        let entries = list.get_mut(field).and_then(Value::as_array_mut)?;
        if entries.is_empty() {
            return None;
        }
        entries.truncate(self.kept(entries.len())?);
        if let Some(metadata) = list.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("continue");
            metadata.remove("remainingItemCount");
        }
        Some(list.to_string())
    }

    /// The same of a listing of S3.
    fn shorten_bucket(self, text: &str) -> Option<String> {
        const END: &str = "</Contents>";
        let mut parts = text.split("<Contents>");
        let head = parts.next()?;
        let objects: Vec<&str> = parts.collect();
        let (_, tail) = objects.last()?.split_once(END)?;
        let mut shorter = head.to_owned();
        for object in objects.iter().take(self.kept(objects.len())?) {
            let (object, _) = object.split_once(END)?;
            shorter += &format!("<Contents>{object}{END}");
        }
        shorter += tail;
        let shorter =
            shorter.replace("<IsTruncated>true</IsTruncated>", "<IsTruncated>false</IsTruncated>");
        let token = shorter.split_once("<NextContinuationToken>").and_then(|(before, rest)| {
            let (_, after) = rest.split_once("</NextContinuationToken>")?;
            Some(format!("{before}{after}"))
        });
        Some(token.unwrap_or(shorter))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn damaged(fault: ResponseFault, body: &str) -> (String, bool) {
        let answer = (StatusCode::OK, body.to_owned()).into_response();
        let (answer, is_wrong) = fault.damage(answer).await.unwrap();
        let body = to_bytes(answer.into_body(), ANSWER_LIMIT).await.unwrap();
        (String::from_utf8(body.to_vec()).unwrap(), is_wrong)
    }

    #[tokio::test]
    async fn a_list_loses_entries_and_says_that_it_is_complete() {
        let list = json!({"kind": "SecretList", "items": [1, 2, 3],
            "metadata": {"resourceVersion": "7", "continue": "x", "remainingItemCount": 9}});
        let metadata = json!({"resourceVersion": "7"});
        for (fault, items) in
            [(ResponseFault::EmptyList, json!([])), (ResponseFault::WithoutLastPage, json!([1]))]
        {
            let (text, is_wrong) = damaged(fault, &list.to_string()).await;
            let found: Value = serde_json::from_str(&text).unwrap();
            assert!(is_wrong && found["items"] == items, "{text}");
            assert_eq!(found["metadata"], metadata);
        }
        let one = json!({"kind": "Secret", "data": {}}).to_string();
        assert_eq!(damaged(ResponseFault::EmptyList, &one).await, (one, false));
    }

    #[tokio::test]
    async fn a_listing_of_a_bucket_loses_objects_and_says_that_it_is_complete() {
        let of = |objects: &str, more: &str| {
            format!("<ListBucketResult><Name>a</Name>{objects}{more}</ListBucketResult>")
        };
        let objects = "<Contents><Key>a</Key></Contents><Contents><Key>b</Key></Contents>";
        let more =
            "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
        let end = "<IsTruncated>false</IsTruncated>";
        let listing = of(objects, more);
        let (text, is_wrong) = damaged(ResponseFault::EmptyList, &listing).await;
        assert_eq!((text, is_wrong), (of("", end), true));
        let (text, _) = damaged(ResponseFault::WithoutLastPage, &listing).await;
        assert_eq!(text, of("<Contents><Key>a</Key></Contents>", end));
        let empty = of("", end);
        assert_eq!(damaged(ResponseFault::EmptyList, &empty).await, (empty, false));
    }

    #[tokio::test]
    async fn a_truncated_body_ends_with_an_error() {
        let answer = (StatusCode::OK, "0123456789").into_response();
        let (answer, is_wrong) = ResponseFault::Truncated.damage(answer).await.unwrap();
        assert!(is_wrong && to_bytes(answer.into_body(), ANSWER_LIMIT).await.is_err());
    }

    #[test]
    fn a_page_for_browsers_comes_as_if_all_were_well() {
        let answer = ResponseFault::HtmlPage.replacement().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let answer = ResponseFault::Status(429).replacement().unwrap();
        assert_eq!(answer.headers()[header::RETRY_AFTER], "1");
    }
}
