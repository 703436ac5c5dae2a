//! Listing tags, page by page.

use std::collections::BTreeSet;
use std::fmt;

use reqwest::Method;
use reqwest::header::{HeaderMap, LINK};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

use super::oci_names::is_tag;
use super::registry_response::{accepted, read};
use super::{Error, RegistrySession};

/// The path of the first page of tags. It requests a thousand tags, and registries may send fewer.
const FIRST: &str = "tags/list?n=1000";

/// The longest path of a page. Typical ones contain a tag or a token of up to two kilobytes.
const MAX_PAGE_PATH_BYTES: usize = 8 << 10;

/// The most tags of one page. In memory, a short tag takes ten times its bytes in the answer.
const MAX_TAGS_OF_PAGE: usize = 200_000;

#[derive(Deserialize)]
struct TagListPage {
    #[serde(default)]
    tags: Option<PageTags>,
}

/// The tags of a page, without names that no tag can have.
struct PageTags(Vec<String>);

impl<'de> Deserialize<'de> for PageTags {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(PageTagsVisitor)
    }
}

struct PageTagsVisitor;

impl<'de> Visitor<'de> for PageTagsVisitor {
    type Value = PageTags;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tags")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<PageTags, A::Error> {
        let mut tags = Vec::new();
        while let Some(name) = names.next_element::<String>()? {
            if !is_tag(&name) {
                continue;
            }
            if tags.len() >= MAX_TAGS_OF_PAGE {
                return Err(A::Error::custom(format!("it has more than {MAX_TAGS_OF_PAGE} tags")));
            }
            tags.push(name);
        }
        Ok(PageTags(tags))
    }
}

/// Lists all tags. Names that are not valid as tags are left out.
pub(super) async fn list(client: &RegistrySession<'_>) -> Result<Vec<String>, Error> {
    let limits = &client.remote.limits;
    let what = || format!("the list of tags of {}", client.remote.repository);
    let mut tags = Vec::new();
    let mut known = BTreeSet::from([FIRST.to_owned()]);
    let mut path = FIRST.to_owned();
    for _ in 0..limits.pages {
        let asked = client.ask(Method::GET, &path, "application/json").await?;
        let answer = accepted(client, Method::GET, &path, asked).await?;
        let next = next(answer.headers(), &client.url(&path)?, &client.url("tags/list")?);
        let next = next.map_err(|reason| Error::Protocol { request: what(), reason })?;
        let bytes = read(client, "tags/list", answer, limits.page).await?;
        let page: TagListPage = serde_json::from_slice(&bytes).map_err(|error| {
            Error::Protocol { request: what(), reason: format!("a page is not a list: {error}") }
        })?;
        tags.extend(page.tags.into_iter().flat_map(|it| it.0));
        if tags.len() > limits.tags {
            return Err(Error::TooLarge { what: what(), limit: limits.tags as u64 });
        }
        match next {
            // The next page is not known, so the list is not complete.
            Some(next) if !known.insert(next.clone()) => {
                let reason = "its `Link` leads back to an earlier page".to_owned();
                return Err(Error::Protocol { request: what(), reason });
            }
            Some(next) => path = next,
            None => return Ok(tags),
        }
    }
    Err(Error::TooLarge { what: format!("{}, in pages,", what()), limit: limits.pages as u64 })
}

/// The path of the next page, RFC 8288: `<…>; rel="next"`, among others or not. It has to be a page of the same list.
///
/// # Errors
/// A `Link` header is invalid, so it is not known whether a page follows.
fn next(headers: &HeaderMap, here: &Url, list: &Url) -> Result<Option<String>, String> {
    for link in headers.get_all(LINK) {
        let mut rest = link.to_str().map_err(|_| "its `Link` header is no text")?.trim();
        while !rest.is_empty() {
            let (target, after) = rest
                .strip_prefix('<')
                .and_then(|it| it.split_once('>'))
                .ok_or("its `Link` header is invalid")?;
            // The next link begins after a comma.
            let (parameters, more) = after.split_once(",").map_or((after, ""), |it| it);
            rest = more.trim_start();
            let is_next = |it: &str| it.replace(['"', ' '], "").eq_ignore_ascii_case("rel=next");
            if parameters.split(';').any(is_next) {
                return page(target, here, list).map(Some);
            }
        }
    }
    Ok(None)
}

/// The path of a page of the same list.
fn page(target: &str, here: &Url, list: &Url) -> Result<String, String> {
    let next = here.join(target).map_err(|_| "its `Link` names no URL".to_owned())?;
    // A registry behind a proxy may not know its own scheme and name, but it knows the path.
    if next.path() != list.path() {
        return Err("its `Link` leads elsewhere".to_owned());
    }
    let path = format!("tags/list?{}", next.query().unwrap_or_default());
    if path.len() > MAX_PAGE_PATH_BYTES {
        return Err(format!("its `Link` is longer than {MAX_PAGE_PATH_BYTES} bytes"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn a_page_has_so_many_tags_at_most_and_names_that_are_none_do_not_count() {
        let count = |text: &str| {
            let page: TagListPage = serde_json::from_str(text).ok()?;
            Some(page.tags.map_or(0, |tags| tags.0.len()))
        };
        assert_eq!(count(r#"{"tags":["a","","../b","__","1.0"]}"#), Some(3));
        assert_eq!(count(r#"{"tags":null}"#), Some(0));
        assert_eq!(count("{}"), Some(0));
        assert_eq!(count(r#"{"tags":"a"}"#), None);
        let page = |name: &str, names: usize| {
            format!(r#"{{"tags":[{}]}}"#, vec![format!("\"{name}\""); names].join(","))
        };
        assert_eq!(count(&page("a", MAX_TAGS_OF_PAGE)), Some(MAX_TAGS_OF_PAGE));
        assert_eq!(count(&page("a", MAX_TAGS_OF_PAGE + 1)), None);
        assert_eq!(count(&page("", MAX_TAGS_OF_PAGE + 1)), Some(0));
    }

    #[test]
    fn the_next_page_is_one_of_the_same_list() {
        let list = Url::parse("http://h:1/v2/a/tags/list").unwrap();
        let all = |links: &[&str]| {
            let links = links.iter().map(|link| (LINK, HeaderValue::from_str(link).unwrap()));
            next(&links.collect::<HeaderMap>(), &list, &list)
        };
        let next = |link: &str| all(&[link]);
        let found = Ok(Some("tags/list?n=2&last=b".to_owned()));
        assert_eq!(next(r#"</v2/a/tags/list?n=2&last=b>; rel="next""#), found);
        assert_eq!(next("<http://other/v2/a/tags/list?n=2&last=b>;rel=next"), found);
        assert_eq!(next(r#"</v2/a/tags/list?n=2>; rel="prev""#), Ok(None));
        assert!(next(r#"</v2/b/tags/list?n=2>; rel="next""#).is_err());
        assert!(next(r#"</v2/a/tags/list/../../../b?x>; rel="next""#).is_err());
        assert!(next("nonsense").is_err());
        let long = "x".repeat(MAX_PAGE_PATH_BYTES);
        assert!(next(&format!(r#"</v2/a/tags/list?last={long}>; rel="next""#)).is_err());
        // One among several, in one header or in two.
        let before = "</v2/a/tags/list?n=2>; rel=\"prev\"";
        let after = "</v2/a/tags/list?n=2&last=b>; rel=next";
        assert_eq!(next(&format!("{before}, {after}")), found);
        assert_eq!(next(&format!("{after}; x=y, {before}")), found);
        assert_eq!(all(&[before, after]), found);
        assert!(next(&format!("{before}, nonsense")).is_err());
        let mut headers = HeaderMap::new();
        headers.insert(LINK, HeaderValue::from_bytes(b"<\xff>; rel=next").unwrap());
        assert!(super::next(&headers, &list, &list).is_err());
    }
}
