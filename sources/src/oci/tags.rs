//! Listing tags, page by page.

use reqwest::Method;
use reqwest::header::{HeaderMap, LINK};
use serde::Deserialize;
use url::Url;

use super::answer::{accepted, read};
use super::name::is_tag;
use super::{Error, Session};

/// How many tags are asked for at once; registries may give fewer.
const FIRST: &str = "tags/list?n=1000";

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

/// All tags; names that no tag can have are left out.
pub(super) async fn list(client: &Session<'_>) -> Result<Vec<String>, Error> {
    let limits = &client.remote.limits;
    let what = || format!("the list of tags of {}", client.remote.repository);
    let mut tags = Vec::new();
    let mut path = FIRST.to_owned();
    for _ in 0..limits.pages {
        let asked = client.ask(Method::GET, &path, "application/json").await?;
        let answer = accepted(client, Method::GET, &path, asked).await?;
        let next = next(answer.headers(), &client.url(&path)?, &client.url("tags/list")?);
        let next = next.map_err(|reason| Error::Protocol { request: what(), reason })?;
        let bytes = read(client, &path, answer, limits.page).await?;
        let page: Page = serde_json::from_slice(&bytes).map_err(|error| Error::Protocol {
            request: what(),
            reason: format!("a page is not a list: {error}"),
        })?;
        tags.extend(page.tags.unwrap_or_default().into_iter().filter(|tag| is_tag(tag)));
        if tags.len() > limits.tags {
            return Err(Error::TooLarge { what: what(), limit: limits.tags as u64 });
        }
        match next {
            Some(next) if next != path => path = next,
            _ => return Ok(tags),
        }
    }
    Err(Error::TooLarge { what: format!("{}, in pages,", what()), limit: limits.pages as u64 })
}

/// The path of the next page, RFC 8288: `<…>; rel="next"`. It has to be a page of the same list.
fn next(headers: &HeaderMap, here: &Url, list: &Url) -> Result<Option<String>, String> {
    let Some(link) = headers.get(LINK).and_then(|link| link.to_str().ok()) else { return Ok(None) };
    let Some((target, parameters)) =
        link.trim().strip_prefix('<').and_then(|it| it.split_once('>'))
    else {
        return Err("its `Link` header is invalid".to_owned());
    };
    if !parameters.replace(['"', ' '], "").contains("rel=next") {
        return Ok(None);
    }
    let next = here.join(target).map_err(|_| "its `Link` names no URL".to_owned())?;
    // A registry behind a proxy may not know by which scheme it is asked, nor under which name; the path it does know.
    if next.path() != list.path() {
        return Err("its `Link` leads elsewhere".to_owned());
    }
    Ok(Some(format!("tags/list?{}", next.query().unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_one_of_the_same_list() {
        let list = Url::parse("http://h:1/v2/a/tags/list").unwrap();
        let next = |link: &'static str| {
            next(&HeaderMap::from_iter([(LINK, link.parse().unwrap())]), &list, &list)
        };
        let found = Ok(Some("tags/list?n=2&last=b".to_owned()));
        assert_eq!(next(r#"</v2/a/tags/list?n=2&last=b>; rel="next""#), found);
        assert_eq!(next("<http://other/v2/a/tags/list?n=2&last=b>;rel=next"), found);
        assert_eq!(next(r#"</v2/a/tags/list?n=2>; rel="prev""#), Ok(None));
        assert!(next(r#"</v2/b/tags/list?n=2>; rel="next""#).is_err());
        assert!(next(r#"</v2/a/tags/list/../../../b?x>; rel="next""#).is_err());
        assert!(next("nonsense").is_err());
    }
}
