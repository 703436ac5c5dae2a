//! Building blocks of all pages: states as six shapes with a word beside each, and safe rendering of untrusted texts.
//!
//! Elsewhere: the frame of pages (`frame.rs`), the allowed targets of links (`href.rs`), colours and sizes
//! (`assets/style.css`).

use maud::{Markup, html};
use objects::{ObjectId, clean_line};
use reconcile::Time;
use windlass_cli_runtime::table::{age, cut};

use super::href::Href;
use super::route::{ObjectAddress, ObjectTab, Route};

/// The longest message in a row, in characters. The user sees the whole message after one click.
const MAX_ROW_CHARACTERS: usize = 240;

/// The maximum number of characters of a long text that a page shows.
const MAX_WHOLE_CHARACTERS: usize = 64 << 10;

/// How many remarks are listed.
const MAX_REMARKS: usize = 40;

/// How many remarks are visible without a click.
const MAX_OPEN_REMARKS: usize = 2;

/// The state of an object, which pages show as a shape, a colour and a word.
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
    /// All states. Those that need a person first come first.
    pub(crate) const ALL: [Self; 6] = [
        Self::Failing,
        Self::Waiting,
        Self::Progressing,
        Self::Suspended,
        Self::Unknown,
        Self::Ready,
    ];

    /// The word beside the shape. The filter for states uses the same word.
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

    /// The CSS class with the colour of the state.
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

    /// The link to the shape within the page.
    pub(crate) fn symbol(self) -> &'static str {
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

/// The shape of a state. Screen readers skip it, because the word beside it says the same.
pub(crate) fn shape(state: ObjectState) -> Markup {
    html! {
        svg class={ "i " (state.class()) } aria-hidden="true" { use href=(state.symbol()) {} }
    }
}

/// The shape of a state with its word.
pub(crate) fn pill(state: ObjectState) -> Markup {
    html! { span class={ "pill " (state.class()) } { (shape(state)) (state.word()) } }
}

/// The definitions of the six shapes, once for each page: octagon, clock, ring, pause, triangle, tick.
pub(crate) fn sprite() -> Markup {
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

/// Renders an untrusted text on one line. Control characters and characters that change the text direction are made visible.
pub(crate) fn text(text: &str) -> Markup {
    html! { bdi { (clean_line(text.trim())) } }
}

/// Renders an untrusted message. A long message is cut, and the user can expand the whole text.
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

/// Cleans a text line by line, up to the maximum length. The result says how many characters were cut off.
pub(crate) fn lines(text: &str) -> String {
    lines_within(text, MAX_WHOLE_CHARACTERS)
}

/// Cleans a text line by line, up to `most` characters. Pages with many texts use this smaller limit.
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

/// The age of a time, with the exact time as a tooltip.
pub(crate) fn ago(at: Option<Time>, now: Time) -> Markup {
    html! {
        @if let Some(at) = at {
            time datetime=(format!("{at:.0}")) title=(format!("{at:.0}")) { (age(Some(at), now)) }
        }
    }
}

/// An object as `Kind/namespace/name`. It is a link if the text is such a name.
pub(crate) fn subject(named: &str) -> Markup {
    let route =
        ObjectAddress::of_subject(named).map(|place| Route::Object { place, tab: ObjectTab::Why });
    html! {
        @match route {
            Some(route) => a href=(Href::inside(&route)) { (text(named)) },
            None => (text(named)),
        }
    }
}

/// A link to an object whose API group is known. So the link is right even if two groups have a kind with the same name.
pub(crate) fn object_link(id: &ObjectId) -> Markup {
    let route = Route::Object { place: ObjectAddress::of(id), tab: ObjectTab::Why };
    html! { a href=(Href::inside(&route)) { (text(&id.subject())) } }
}

/// A list of remarks, for example about objects that could not be read. Empty if there are no remarks. All but the first
/// remarks are folded, so that the user still sees the content of the page.
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

/// An error in the words of the API server or of windlass. The page draws no conclusion from it.
pub(crate) fn failure(what: &str, error: &str) -> Markup {
    html! {
        div class="alert bad" role="alert" {
            (shape(ObjectState::Failing))
            div { strong { (what) } br; (message(error)) }
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
}
