//! The page about the user: the user's name for the API server, the user's rights, and the rules that grant them.

use jiff::Timestamp;
use maud::{Markup, html};
use windlass_answers::user_rights::{self, RightsOfKind, UserRight, UserRights, VERBS};

use super::{PageContent, PageRequest, plain_page};
use crate::frame::PagePart;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, message, shape, text};
use crate::route::Route;
use crate::shell_line::shell_line;

/// How many groups are named.
const MAX_NAMED_GROUPS: usize = 100;

/// Makes the page.
///
/// # Errors
/// The API server does not say who the user is.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let found = user_rights::read(&reader.site).await?;
    if request.wants_json {
        return Ok(PageContent::Json(serde_json::to_value(&found)?));
    }
    let parts =
        vec![PagePart::main("rights", rights(&found)), PagePart::side("user", user(&found))];
    let command = command(&found.namespace);
    Ok(PageContent::Html(plain_page(Route::Me, "Me", command, read_at, parts)))
}

/// The kubectl command that prints the same information.
fn command(namespace: &str) -> String {
    match namespace {
        "" => "kubectl auth can-i --list".to_owned(),
        namespace => format!("kubectl auth can-i --list {}", shell_line(&["-n", namespace])),
    }
}

fn user(found: &UserRights) -> Markup {
    let more = found.groups.len().saturating_sub(MAX_NAMED_GROUPS);
    html! {
        section class="panel" {
            header { h2 { "You" } }
            dl class="facts" {
                div { dt { "Name" } dd { (text(&found.user)) } }
                div { dt { "Groups" } dd {
                    @for group in found.groups.iter().take(MAX_NAMED_GROUPS) { div { (text(group)) } }
                    @if more > 0 { div { (more) " more" } }
                } }
            }
        }
    }
}

fn rights(found: &UserRights) -> Markup {
    html! {
        section class="panel" {
            header {
                h2 { "What you may do" }
                span class="more" {
                    @if found.namespace.is_empty() { "in all namespaces; you may do more in some of them" }
                    @else { "in namespace " (text(&found.namespace)) }
                }
            }
            div class="wide" { table class="list" {
                thead { tr { th { "Objects" } @for verb in VERBS { th { (verb) } } th { "By" } } }
                tbody { @for kind in &found.kinds { (row(kind)) } }
            } }
        }
    }
}

fn row(kind: &RightsOfKind) -> Markup {
    let mut reasons: Vec<&str> = kind.rights.iter().map(|it| it.reason.as_str()).collect();
    reasons.retain(|reason| !reason.is_empty());
    reasons.sort_unstable();
    reasons.dedup();
    html! {
        tr {
            td { (text(&kind.resource)) }
            @for right in &kind.rights { td { (answer(right)) } }
            td class="grow" { (message(&reasons.join("; "))) }
        }
    }
}

fn answer(right: &UserRight) -> Markup {
    let (state, word) = match right.allowed {
        Some(true) => (ObjectState::Ready, "yes"),
        Some(false) => (ObjectState::Suspended, "no"),
        None => (ObjectState::Unknown, "not known"),
    };
    html! { (shape(state)) " " (word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_that_is_not_known_is_not_denied_and_all_is_escaped() {
        let right = |verb: &'static str, allowed: Option<bool>, reason: &str| UserRight {
            verb,
            allowed,
            reason: reason.to_owned(),
        };
        let kind = RightsOfKind {
            resource: "pods".to_owned(),
            rights: vec![
                right("get", Some(true), "RBAC: by \"<b>\""),
                right("list", Some(false), ""),
                right("watch", None, "timed out"),
                right("patch", Some(true), "RBAC: by \"<b>\""),
            ],
        };
        let html = row(&kind).into_string();
        let words: Vec<&str> =
            html.split("</svg> ").skip(1).map(|it| it.split('<').next().unwrap()).collect();
        assert_eq!(words, ["yes", "no", "not known", "yes"]);
        let reasons =
            "<td class=\"grow\"><bdi>RBAC: by &quot;&lt;b&gt;&quot;; timed out</bdi></td>";
        assert!(html.contains(reasons), "{html}");
        let found = UserRights {
            user: "<script>".to_owned(),
            groups: vec!["dev\u{202e}".to_owned(); MAX_NAMED_GROUPS + 2],
            namespace: String::new(),
            kinds: vec![kind],
        };
        let html = user(&found).into_string();
        assert!(html.contains("<bdi>&lt;script&gt;</bdi>") && html.contains("<div>2 more</div>"));
        assert!(html.contains("dev\\u{202e}"), "{html}");
        assert!(rights(&found).into_string().contains("you may do more in some of them"));
        assert_eq!(command("a b"), "kubectl auth can-i --list -n 'a b'");
    }
}
