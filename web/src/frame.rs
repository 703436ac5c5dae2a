//! The frame of all pages, and the parts of a page. While a page is open, each of its parts can be replaced on its own.
//!
//! Elsewhere: the content of the parts (`pages.rs`), replacing them (`live_updates.rs`, `assets/live.js`).

use std::time::Duration;

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use objects::clean_line;
use sha2::{Digest as _, Sha256};

use super::assets;
use super::href::Href;
use super::login::{LOGOUT_PATH, NAMESPACE_PATH};
use super::page_elements::{sprite, text};
use super::route::Route;

/// How many hexadecimal digits of the digest distinguish two versions of a part.
const DIGEST_DIGITS: usize = 16;

/// Facts that all pages of a server show.
#[derive(Debug, Clone)]
pub(crate) struct SiteFacts {
    /// The namespace that the pages read, or a text for all namespaces.
    pub(crate) place: String,
    /// The name of the cluster in the user's kubeconfig. Without a kubeconfig of the user, the address of the API server.
    pub(crate) cluster: String,
    /// The address of the API server. It tells a user with several clusters which cluster the page is about.
    pub(crate) server: String,
    /// The user's name according to the API server. Without a login, it is empty if the API server does not return a name.
    pub(crate) user: String,
    /// The flags that a command needs to reach the same cluster as the same user. Empty if it needs none.
    pub(crate) flags: String,
    /// Whether the user logged in at this server. Otherwise the pages use the user's kubeconfig.
    pub(crate) has_login: bool,
}

impl SiteFacts {
    /// Adds the flags that a command needs to reach this cluster, because the current kubeconfig context may be another one.
    pub(crate) fn command(&self, command: &str) -> String {
        match self.flags.as_str() {
            "" => command.to_owned(),
            flags => format!("{command} {flags}"),
        }
    }
}

/// The position of a part on a wide screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartColumn {
    /// Above the columns, over the whole width.
    Whole,
    Main,
    Side,
}

/// A part of a page. Every rendering of a page has the same parts in the same order, including empty parts.
#[derive(Debug, Clone)]
pub(crate) struct PagePart {
    /// The name of the part, unique within its page.
    pub(crate) id: &'static str,
    column: PartColumn,
    pub(crate) content: Markup,
}

impl PagePart {
    /// A part over the whole width of the page.
    pub(crate) fn whole(id: &'static str, content: Markup) -> Self {
        Self { id, column: PartColumn::Whole, content }
    }

    /// A part in the wide column.
    pub(crate) fn main(id: &'static str, content: Markup) -> Self {
        Self { id, column: PartColumn::Main, content }
    }

    /// A part in the narrow column.
    pub(crate) fn side(id: &'static str, content: Markup) -> Self {
        Self { id, column: PartColumn::Side, content }
    }

    /// A digest of the content, which changes when the content changes.
    pub(crate) fn digest(&self) -> String {
        let digest = hex::encode(Sha256::digest(self.content.0.as_bytes()));
        digest.chars().take(DIGEST_DIGITS).collect()
    }
}

/// The content of a page without the frame.
#[derive(Debug)]
pub(crate) struct PageParts {
    pub(crate) route: Route,
    /// The title in the tab of the browser.
    pub(crate) title: String,
    /// The command that prints the same information.
    pub(crate) command: String,
    /// When the information was read.
    pub(crate) read_at: Timestamp,
    pub(crate) parts: Vec<PagePart>,
    /// How soon the page has to be read again although no watch reports a change.
    pub(crate) renew_after: Option<Duration>,
    /// The resourceVersion of the object that the page shows. Empty for pages that are not about one object.
    pub(crate) version: String,
}

impl PageParts {
    /// How soon a browser without scripts loads the page again. `None` for all pages except one that waits for a plan.
    fn reload_seconds(&self) -> Option<u64> {
        let after = self.renew_after?;
        matches!(self.route, Route::BranchPlan { .. }).then(|| after.as_secs())
    }
}

/// Arranges the parts in their columns.
fn arranged(parts: &[PagePart]) -> Markup {
    let of = |column: PartColumn| parts.iter().filter(move |part| part.column == column);
    let has_columns = of(PartColumn::Main).chain(of(PartColumn::Side)).next().is_some();
    html! {
        @for part in of(PartColumn::Whole) { (framed_part(part)) }
        @if has_columns {
            div class="cols" {
                div class="stack" { @for part in of(PartColumn::Main) { (framed_part(part)) } }
                div class="stack" { @for part in of(PartColumn::Side) { (framed_part(part)) } }
            }
        }
    }
}

fn framed_part(part: &PagePart) -> Markup {
    html! { div class="part" data-part=(part.id) data-digest=(part.digest()) { (part.content) } }
}

/// The pages in the navigation of every page.
const SECTIONS: [(Route, &str); 8] = [
    (Route::Overview, "Overview"),
    (Route::Objects, "Objects"),
    (Route::Incidents, "Incidents"),
    (Route::Changes, "Changes"),
    (Route::Approvals, "Approvals"),
    (Route::Calendar, "Calendar"),
    (Route::Audits, "Audits"),
    (Route::Me, "Me"),
];

/// Renders a whole page. `live` is the address from which the open page receives its changed parts.
pub(crate) fn framed(page: &PageParts, site: &SiteFacts, live: Option<&Href>) -> String {
    let is_current = |route: &Route| match page.route {
        Route::Object { .. } | Route::BranchPlan { .. } => *route == Route::Objects,
        Route::Incident { .. } => *route == Route::Incidents,
        Route::Commit(_) => *route == Route::Changes,
        ref current => route == current,
    };
    let current = |route: &Route| is_current(route).then_some("page");
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head_reloading(&page.title, page.reload_seconds()))
            body data-live=[live] {
                (sprite())
                a class="skip" href="#main" { "To the content" }
                div class="rail" {
                    a class="brand" href=(Href::inside(&Route::Overview)) { "windlass" }
                    div class="where" {
                        (text(&site.place))
                        // The header names the cluster already, also on a phone.
                        @if site.server != site.cluster { small { (text(&site.server)) } }
                        @if site.has_login { (namespace_form()) } @else {
                            small { "read with your kubeconfig" @if !site.flags.is_empty() { ", " (text(&site.flags)) } }
                        }
                    }
                    nav aria-label="Pages" {
                        @for (route, title) in &SECTIONS {
                            a href=(Href::inside(route)) aria-current=[current(route)] { (title) }
                        }
                    }
                    footer {
                        (text(&site.user)) br;
                        "What you change here is changed with your rights."
                        @if site.has_login { (logout_form()) }
                    }
                }
                div {
                    header class="top" {
                        strong { (text(&page.title)) }
                        span class="cluster" { (text(&site.cluster)) }
                        form class="find" action="/objects" method="get" role="search" {
                            input type="search" name="q" aria-label="Search objects" placeholder="Search objects" maxlength="200";
                            button class="btn" type="submit" { "Search" }
                        }
                        span class="asof" {
                            "as of " span id="read-at" { (clock(page.read_at)) }
                            // The element stays empty without a script. That is correct, because the page then does not change.
                            " " span id="live" role="status" {}
                        }
                    }
                    main id="main" {
                        (arranged(&page.parts))
                        div class="cmd" { span { "The same on the command line" } code { (clean_line(&site.command(&page.command))) } }
                    }
                }
            }
        }
    };
    markup.into_string()
}

/// The form in which a user names one namespace. Users who may not list all namespaces need it.
fn namespace_form() -> Markup {
    html! {
        form action=(NAMESPACE_PATH) method="get" {
            input name="name" aria-label="Namespace; empty for all" placeholder="All namespaces" maxlength="63";
            button class="btn" type="submit" { "Go" }
        }
    }
}

fn logout_form() -> Markup {
    html! {
        form action=(LOGOUT_PATH) method="post" { button class="btn" type="submit" { "Log out" } }
    }
}

/// A page that says why no reader of a session answers. The user can reload it, or log out.
pub(crate) fn session_refusal(title: &str, why: &str) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body { main id="main" { h1 { (title) } p { (text(why)) } (logout_form()) } }
        }
    };
    markup.into_string()
}

/// A page that explains an error. It needs no cluster connection, so it says nothing about the cluster.
pub(crate) fn refusal(title: &str, text: &str) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body { (sprite()) main id="main" { h1 { (title) } p { (text) } } }
        }
    };
    markup.into_string()
}

/// The answer to a form whose session has ended. `login` is the address at which the user logs in again.
pub(crate) fn no_session(login: &Href) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head("Log in again"))
            body {
                main id="main" {
                    h1 { "Not done: your session has ended" }
                    p { "Nothing was done. Log in again, see the object as it is then, and decide again." }
                    p { a class="btn" href=(login) { "Log in" } }
                }
            }
        }
    };
    markup.into_string()
}

/// A page that sends the browser to another server without a redirect. The search of a page leads here when the session has
/// ended. For forms, the policy `form-action` stops browsers from following redirects to other servers.
pub(crate) fn onward(link: &Href) -> String {
    let refresh = format!("0; url={}", link.as_str());
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content=(refresh);
                title { "Log in · windlass" }
            }
            body { main id="main" { h1 { "Log in" } p { a href=(link) { "To the issuer of logins" } } } }
        }
    };
    markup.into_string()
}

fn head(title: &str) -> Markup {
    head_reloading(title, None)
}

/// The head of a page. A browser without scripts loads the page again after this many seconds.
fn head_reloading(title: &str, reload_seconds: Option<u64>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (clean_line(title)) " · windlass" }
            @if let Some(seconds) = reload_seconds {
                noscript { meta http-equiv="refresh" content=(seconds); }
            }
            link rel="stylesheet" href=(Href::asset(assets::style_path()));
            link rel="icon" type="image/svg+xml" href=(Href::asset(assets::icon_path()));
            @for path in assets::script_paths() { script type="module" src=(Href::asset(path)) {} }
        }
    }
}

/// The time of day, in the format that all pages use.
pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile_strings::assert_text_only;
    use crate::page_elements::remarks;

    #[test]
    fn a_page_has_the_scripts_of_this_server_only() {
        let page = PageParts {
            route: Route::Objects,
            title: "</title><script>alert(1)</script>".to_owned(),
            command: "windlass get \"><script>".to_owned(),
            read_at: "2026-11-24T12:00:00Z".parse().unwrap(),
            parts: vec![PagePart::whole("a", remarks(&["<script>alert(2)</script>".to_owned()]))],
            renew_after: None,
            version: String::new(),
        };
        let site = SiteFacts {
            place: "<b>apps".to_owned(),
            cluster: "<u>prod".to_owned(),
            server: "<u>server".to_owned(),
            user: "\" onmouseover=\"x".to_owned(),
            flags: "--context '<prod>'".to_owned(),
            has_login: false,
        };
        let live = Href::live("/objects?q=\"><script>", "1");
        let html = framed(&page, &site, Some(&live));
        let scripts: Vec<&str> = html.split("<script").skip(1).collect();
        assert_eq!(scripts.len(), assets::script_paths().len(), "{html}");
        for script in scripts {
            assert!(script.starts_with(" type=\"module\" src=\"/_/assets/"), "{script}");
        }
        let of_live = "data-live=\"/_/live?page=%2Fobjects%3Fq%3D%22%3E%3Cscript%3E&amp;at=1\"";
        assert!(html.contains(of_live), "{html}");
        for absent in
            ["<script>", "style=", "http://", "https://", "\" onmouseover", "<b>apps", "<u>"]
        {
            assert!(!html.contains(absent), "{absent}: {html}");
        }
        assert!(html.contains("<title>&lt;/title&gt;&lt;script&gt;"), "{html}");
        let cluster = "<span class=\"cluster\"><bdi>&lt;u&gt;prod</bdi></span>";
        assert!(html.contains(cluster), "{html}");
        assert!(html.contains("<a href=\"/objects\" aria-current=\"page\">Objects</a>"), "{html}");
        let command = "<code>windlass get &quot;&gt;&lt;script&gt; --context '&lt;prod&gt;'</code>";
        assert!(html.contains(command), "{html}");
    }

    #[test]
    fn hostile_strings_are_text_only() {
        assert_text_only(|hostile| {
            let page = PageParts {
                route: Route::Objects,
                title: hostile.to_owned(),
                command: hostile.to_owned(),
                read_at: "2026-11-24T12:00:00Z".parse().unwrap(),
                parts: vec![PagePart::whole("a", remarks(&[hostile.to_owned()]))],
                renew_after: None,
                version: String::new(),
            };
            let site = SiteFacts {
                place: hostile.to_owned(),
                cluster: hostile.to_owned(),
                server: format!("https://{hostile}"),
                user: hostile.to_owned(),
                flags: hostile.to_owned(),
                has_login: false,
            };
            let live = Href::live(hostile, hostile);
            framed(&page, &site, Some(&live))
        });
        assert_text_only(|hostile| session_refusal("a", hostile));
    }

    #[test]
    fn a_user_who_has_logged_in_can_log_out_and_is_not_that_of_a_kubeconfig() {
        let page = |has_login: bool| {
            let site = SiteFacts {
                place: "in all namespaces".to_owned(),
                cluster: "prod".to_owned(),
                server: "https://cluster.example".to_owned(),
                user: "alice".to_owned(),
                flags: String::new(),
                has_login,
            };
            let page = PageParts {
                route: Route::Objects,
                title: "Objects".to_owned(),
                command: "windlass get".to_owned(),
                read_at: "2026-11-24T12:00:00Z".parse().unwrap(),
                parts: Vec::new(),
                renew_after: None,
                version: String::new(),
            };
            framed(&page, &site, None)
        };
        let logout = "<form action=\"/logout\" method=\"post\">";
        assert!(page(true).contains(logout) && !page(true).contains("kubeconfig"));
        assert!(!page(false).contains(logout) && page(false).contains("with your kubeconfig"));
    }

    #[test]
    fn a_page_leads_to_the_issuer_without_a_redirection() {
        let link = Href::outside("https://issuer.example/auth?a=\"><script>&b=2").unwrap();
        let html = onward(&link);
        let address = "https://issuer.example/auth?a=%22%3E%3Cscript%3E&amp;b=2\"";
        assert!(
            html.contains(&format!("http-equiv=\"refresh\" content=\"0; url={address}")),
            "{html}"
        );
        assert!(html.contains(&format!("<a href=\"{address}")), "{html}");
    }

    #[test]
    fn only_a_page_that_waits_for_a_plan_is_loaded_again_without_scripts() {
        let page = |route: Route, renew_after: Option<Duration>| {
            let page = PageParts {
                route,
                title: "Plan".to_owned(),
                command: "windlass plan".to_owned(),
                read_at: "2026-11-24T12:00:00Z".parse().unwrap(),
                parts: Vec::new(),
                renew_after,
                version: String::new(),
            };
            head_reloading(&page.title, page.reload_seconds()).into_string()
        };
        let plan = Route::BranchPlan { namespace: "apps".to_owned(), name: "web".to_owned() };
        let soon = Some(Duration::from_secs(5));
        let reload = "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>";
        assert!(page(plan.clone(), soon).contains(reload), "{}", page(plan.clone(), soon));
        assert!(!page(plan, None).contains("refresh"));
        assert!(!page(Route::Objects, soon).contains("refresh"));
    }

    #[test]
    fn parts_are_in_their_columns_and_their_digest_is_that_of_their_content() {
        let main = PagePart::main("m", html! { "1" });
        let side = PagePart::side("s", html! {});
        let digest = main.digest();
        assert_eq!(digest, "6b86b273ff34fce1", "of the text 1");
        let html = arranged(&[PagePart::whole("w", html! { "0" }), side.clone(), main]);
        let columns = format!(
            "<div class=\"cols\"><div class=\"stack\"><div class=\"part\" data-part=\"m\" data-digest=\"{digest}\">1</div>\
             </div><div class=\"stack\"><div class=\"part\" data-part=\"s\" data-digest=\"{}\"></div></div></div>",
            side.digest()
        );
        assert!(html.into_string().ends_with(&columns));
        assert!(!arranged(&[PagePart::whole("w", html! {})]).into_string().contains("cols"));
    }
}
