//! What all pages are made of: the frame, states in six shapes with a word beside each, text from anywhere made harmless.
//!
//! Elsewhere: where links may lead (`href.rs`), colours and sizes (`assets/style.css`).

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};
use objects::clean_line;
use reconcile::Time;
use windlass_cli_runtime::table::{age, cut};

use super::href::Href;
use super::route::{ObjectPlace, ObjectTab, Route};
use super::style;

/// How long a message in a row may be, in characters; the whole of it is one click away.
const MAX_ROW_CHARACTERS: usize = 240;

/// How much of a long text is shown at all, in characters.
const MAX_WHOLE_CHARACTERS: usize = 64 << 10;

/// How many remarks are listed.
const MAX_REMARKS: usize = 40;

/// How many of them are seen without a click.
const MAX_OPEN_REMARKS: usize = 2;

/// How an object is, as a shape, a colour and a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ObjectState {
    Failing,
    Waiting,
    Progressing,
    Suspended,
    Unknown,
    Ready,
}

impl ObjectState {
    /// All of them, what needs a person first.
    pub(crate) const ALL: [Self; 6] = [
        Self::Failing,
        Self::Waiting,
        Self::Progressing,
        Self::Suspended,
        Self::Unknown,
        Self::Ready,
    ];

    /// The word beside the shape, which is also the value of a filter.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Waiting => "waiting",
            Self::Progressing => "in progress",
            Self::Suspended => "suspended",
            Self::Unknown => "not known",
            Self::Ready => "ready",
        }
    }

    /// The class of its colour, which names its shape, too.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Failing => "bad",
            Self::Waiting => "wait",
            Self::Progressing => "prog",
            Self::Suspended => "susp",
            Self::Unknown => "unknown",
            Self::Ready => "ok",
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Failing => "#s-bad",
            Self::Waiting => "#s-wait",
            Self::Progressing => "#s-prog",
            Self::Suspended => "#s-susp",
            Self::Unknown => "#s-unknown",
            Self::Ready => "#s-ok",
        }
    }
}

/// The shape of a state. The word beside it says the same, so that nothing reads it twice.
pub(crate) fn shape(state: ObjectState) -> Markup {
    html! {
        svg class={ "i " (state.class()) } aria-hidden="true" { use href=(state.symbol()) {} }
    }
}

/// The shape with its word.
pub(crate) fn pill(state: ObjectState) -> Markup {
    html! { span class={ "pill " (state.class()) } { (shape(state)) (state.word()) } }
}

/// The six shapes, once a page: octagon, clock, ring, pause, triangle, tick.
fn sprite() -> Markup {
    html! {
        svg class="sprite" aria-hidden="true" {
            symbol id="s-bad" viewBox="0 0 16 16" {
                path fill="currentColor" d="M5 1h6l4 4v6l-4 4H5l-4-4V5zM5.6 4.5 4.5 5.6 6.9 8l-2.4 2.4 1.1 1.1L8 9.1l2.4 2.4 1.1-1.1L9.1 8l2.4-2.4-1.1-1.1L8 6.9z" fill-rule="evenodd" {}
            }
            symbol id="s-wait" viewBox="0 0 16 16" {
                circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.6" {}
                path d="M8 4.3V8l2.6 1.7" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" {}
            }
            symbol id="s-prog" viewBox="0 0 16 16" {
                path d="M8 1.8a6.2 6.2 0 1 0 6.2 6.2" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" {}
            }
            symbol id="s-susp" viewBox="0 0 16 16" {
                rect x="1.8" y="1.8" width="12.4" height="12.4" rx="3" fill="none" stroke="currentColor" stroke-width="1.6" {}
                path d="M6.2 5.4v5.2M9.8 5.4v5.2" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" {}
            }
            symbol id="s-unknown" viewBox="0 0 16 16" {
                path d="M8 2 14.6 13.6H1.4z" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linejoin="round" {}
                path d="M8 6.4v3.2M8 11.4v.4" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" {}
            }
            symbol id="s-ok" viewBox="0 0 16 16" {
                circle cx="8" cy="8" r="6.2" fill="none" stroke="currentColor" stroke-width="1.6" {}
                path d="m5.2 8.2 2 2 3.7-4.2" fill="none" stroke="currentColor" stroke-width="1.6" stroke-linecap="round" stroke-linejoin="round" {}
            }
        }
    }
}

/// A text from anywhere on one line: what would steer a reader, or turn the text around, is seen.
pub(crate) fn text(text: &str) -> Markup {
    html! { bdi { (clean_line(text.trim())) } }
}

/// A text from anywhere, cut if it is long, with the whole of it behind the cut.
pub(crate) fn message(whole: &str) -> Markup {
    let line = clean_line(whole.trim());
    if line.chars().count() <= MAX_ROW_CHARACTERS {
        return html! { bdi { (line) } };
    }
    html! {
        details {
            summary { bdi { (cut(&line, MAX_ROW_CHARACTERS)) } }
            pre { bdi { (lines(whole)) } }
        }
    }
}

/// A text with its lines: each is made harmless, and what is beyond the bound is counted.
pub(crate) fn lines(text: &str) -> String {
    lines_within(text, MAX_WHOLE_CHARACTERS)
}

/// The same with another bound, for pages that have many such texts.
pub(crate) fn lines_within(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    let length = text.chars().count();
    let lines: Vec<String> = shown.lines().map(clean_line).collect();
    shown = lines.join("\n");
    if length > most {
        shown.push_str(&format!("\n… {} more characters", length - most));
    }
    shown
}

/// How long ago a time is, with the time itself behind it.
pub(crate) fn ago(at: Option<Time>, now: Time) -> Markup {
    html! {
        @if let Some(at) = at {
            time datetime=(format!("{at:.0}")) title=(format!("{at:.0}")) { (age(Some(at), now)) }
        }
    }
}

/// An object as `Kind/namespace/name`, as a link if it is one.
pub(crate) fn subject(named: &str) -> Markup {
    let route =
        ObjectPlace::of_subject(named).map(|place| Route::Object { place, tab: ObjectTab::Why });
    html! {
        @match route {
            Some(route) => a href=(Href::inside(&route)) { (text(named)) },
            None => (text(named)),
        }
    }
}

/// A list of what could not be read, or is worth knowing; nothing if there is nothing. All but the first are folded, so that
/// they do not push what a person came for off the screen.
pub(crate) fn remarks(all: &[String]) -> Markup {
    let folded = all.len().saturating_sub(MAX_OPEN_REMARKS);
    let more = all.len().saturating_sub(MAX_REMARKS);
    html! {
        @if !all.is_empty() {
            div class="alert" role="status" {
                (shape(ObjectState::Unknown))
                div {
                    ul { @for remark in all.iter().take(MAX_OPEN_REMARKS) { li { (message(remark)) } } }
                    @if folded > 0 {
                        details {
                            summary { (folded) " more of this" }
                            ul {
                                @for remark in all.iter().take(MAX_REMARKS).skip(MAX_OPEN_REMARKS) { li { (message(remark)) } }
                                @if more > 0 { li { (more) " more" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What went wrong, in the words of the API server or of windlass. Nothing is concluded from it.
pub(crate) fn failure(what: &str, error: &str) -> Markup {
    html! {
        div class="alert bad" role="alert" {
            (shape(ObjectState::Failing))
            div { strong { (what) } br; (message(error)) }
        }
    }
}

/// What is the same on all pages of a server.
#[derive(Debug, Clone)]
pub(crate) struct SiteFacts {
    /// The namespace, or that it is all of them.
    pub(crate) place: String,
    /// Where the API server is, by which a person with several clusters sees which one this is.
    pub(crate) server: String,
    /// How the API server names the user; empty if it does not say.
    pub(crate) user: String,
    /// The flags by which a command means the same cluster and user; empty if none is needed.
    pub(crate) flags: String,
}

impl SiteFacts {
    /// A command that is about this cluster, too, where the kubeconfig alone would lead to another one.
    pub(crate) fn command(&self, command: &str) -> String {
        match self.flags.as_str() {
            "" => command.to_owned(),
            flags => format!("{command} {flags}"),
        }
    }
}

/// A page without its frame.
pub(crate) struct PageParts {
    pub(crate) route: Route,
    /// What the tab of a browser says.
    pub(crate) title: String,
    /// The command that says the same.
    pub(crate) command: String,
    /// When what is shown was read.
    pub(crate) read_at: Timestamp,
    pub(crate) content: Markup,
}

/// The pages that every page leads to.
const SECTIONS: [(Route, &str); 6] = [
    (Route::Overview, "Overview"),
    (Route::Objects, "Objects"),
    (Route::Incidents, "Incidents"),
    (Route::Approvals, "Approvals"),
    (Route::Calendar, "Calendar"),
    (Route::Audits, "Audits"),
];

/// A whole page.
pub(crate) fn framed(page: &PageParts, site: &SiteFacts) -> String {
    let is_current = |route: &Route| match page.route {
        Route::Object { .. } => *route == Route::Objects,
        ref current => route == current,
    };
    let current = |route: &Route| is_current(route).then_some("page");
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&page.title))
            body {
                (sprite())
                a class="skip" href="#main" { "To the content" }
                div class="rail" {
                    a class="brand" href=(Href::inside(&Route::Overview)) { "windlass" }
                    div class="where" {
                        (text(&site.place))
                        small { (text(&site.server)) }
                        small { "read with your kubeconfig" @if !site.flags.is_empty() { ", " (text(&site.flags)) } }
                    }
                    nav aria-label="Pages" {
                        @for (route, title) in &SECTIONS {
                            a href=(Href::inside(route)) aria-current=[current(route)] { (title) }
                        }
                    }
                    footer { (text(&site.user)) br; "Nothing can be changed here." }
                }
                div {
                    header class="top" {
                        strong { (text(&page.title)) }
                        form class="find" action="/objects" method="get" role="search" {
                            input type="search" name="q" aria-label="Search objects" placeholder="Search objects" maxlength="200";
                            button class="btn" type="submit" { "Search" }
                        }
                        span class="asof" {
                            "as of "
                            time datetime=(format!("{:.0}", page.read_at)) { (page.read_at.strftime("%H:%M:%S UTC").to_string()) }
                        }
                    }
                    main id="main" {
                        (page.content)
                        div class="cmd" { span { "The same on the command line" } code { (clean_line(&site.command(&page.command))) } }
                    }
                }
            }
        }
    };
    markup.into_string()
}

/// A page that says why there is no other: without a cluster, so that it says nothing of one.
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

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (clean_line(title)) " · windlass" }
            link rel="stylesheet" href=(Href::asset(style::style_path()));
            link rel="icon" type="image/svg+xml" href=(Href::asset(style::icon_path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_anywhere_is_escaped_and_what_is_not_seen_is_shown() {
        let html = |of: &str| text(of).into_string();
        assert_eq!(
            html("<img src=x onerror=\"alert(1)\">&amp;"),
            "<bdi>&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;amp;</bdi>"
        );
        assert_eq!(
            html("a\u{202e}b\u{1b}[31m\u{200b}"),
            "<bdi>a\\u{202e}b\\u{1b}[31m\\u{200b}</bdi>"
        );
        assert_eq!(html("</bdi></td>\n<b>"), "<bdi>&lt;/bdi&gt;&lt;/td&gt; &lt;b&gt;</bdi>");
    }

    #[test]
    fn a_long_message_is_cut_and_the_whole_is_behind_it() {
        let whole =
            format!("{}\n<script>alert(1)</script>\u{202e}", "x".repeat(MAX_ROW_CHARACTERS));
        let html = message(&whole).into_string();
        let cut = format!("<summary><bdi>{}…</bdi></summary>", "x".repeat(MAX_ROW_CHARACTERS - 1));
        assert!(html.starts_with(&format!("<details>{cut}<pre><bdi>")), "{html}");
        assert!(html.contains("\n&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}</bdi>"), "{html}");
        assert!(!html.contains("<script") && !html.contains('\u{202e}'), "{html}");
        let endless = "y".repeat(MAX_WHOLE_CHARACTERS + 7);
        assert!(lines(&endless).ends_with("\n… 7 more characters"));
        assert_eq!(message("short").into_string(), "<bdi>short</bdi>");
    }

    #[test]
    fn of_many_remarks_the_first_are_seen_and_the_others_are_opened_by_a_click() {
        let html = |count: usize| remarks(&vec!["<b>".to_owned(); count]).into_string();
        assert_eq!(html(0), "");
        assert!(!html(2).contains("<details") && html(2).contains("<li><bdi>&lt;b&gt;</bdi></li>"));
        let many = html(MAX_REMARKS + 5);
        assert!(many.contains("<summary>43 more of this</summary>"), "{many}");
        assert_eq!(many.matches("&lt;b&gt;").count(), MAX_REMARKS);
        assert!(many.contains("<li>5 more</li>"), "{many}");
    }

    #[test]
    fn only_what_is_written_as_an_object_becomes_a_link() {
        let html = |of: &str| subject(of).into_string();
        assert_eq!(
            html("Pod/apps/web-1"),
            "<a href=\"/o/pod/apps/web-1\"><bdi>Pod/apps/web-1</bdi></a>"
        );
        assert_eq!(
            html("Pod/apps/\"><b>"),
            "<a href=\"/o/pod/apps/%22%3E%3Cb%3E\"><bdi>Pod/apps/&quot;&gt;&lt;b&gt;</bdi></a>"
        );
        assert_eq!(html("javascript:alert(1)"), "<bdi>javascript:alert(1)</bdi>");
    }

    #[test]
    fn every_state_has_a_word_a_colour_and_a_shape_of_its_own() {
        let sprite = sprite().into_string();
        for state in ObjectState::ALL {
            let id = state.symbol().trim_start_matches('#');
            assert_eq!(sprite.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
            assert!(pill(state).into_string().ends_with(&format!("{}</span>", state.word())));
        }
        let mut words = ObjectState::ALL.map(|it| [it.word(), it.class(), it.symbol()]).concat();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 18);
    }

    #[test]
    fn a_page_has_no_script_and_nothing_of_another_server() {
        let page = PageParts {
            route: Route::Objects,
            title: "</title><script>alert(1)</script>".to_owned(),
            command: "windlass get \"><script>".to_owned(),
            read_at: "2026-11-24T12:00:00Z".parse().unwrap(),
            content: remarks(&["<script>alert(2)</script>".to_owned()]),
        };
        let site = SiteFacts {
            place: "<b>apps".to_owned(),
            server: "<u>server".to_owned(),
            user: "\" onmouseover=\"x".to_owned(),
            flags: "--context '<prod>'".to_owned(),
        };
        let html = framed(&page, &site);
        for absent in
            ["<script", "style=", "http://", "https://", "\" onmouseover", "<b>apps", "<u>"]
        {
            assert!(!html.contains(absent), "{absent}: {html}");
        }
        assert!(html.contains("<title>&lt;/title&gt;&lt;script&gt;"), "{html}");
        assert!(html.contains("<a href=\"/objects\" aria-current=\"page\">Objects</a>"), "{html}");
        let command = "<code>windlass get &quot;&gt;&lt;script&gt; --context '&lt;prod&gt;'</code>";
        assert!(html.contains(command), "{html}");
    }
}
