//! The files that pages need, embedded in the program: a style sheet, an icon, and two scripts. Every page also works without
//! the scripts.
//!
//! The server sends the files unchanged. Their paths contain a digest of their content, so browsers can cache them.

use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

/// The style sheet.
const STYLE: &str = include_str!("assets/style.css");

/// The icon of the pages.
const ICON: &str = include_str!("assets/icon.svg");

/// The script that replaces parts of a page while the page is open.
const LIVE_SCRIPT: &str = include_str!("assets/live.js");

/// The script that adds keyboard shortcuts for links.
const KEYS_SCRIPT: &str = include_str!("assets/keys.js");

/// The content type of a script.
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// How many hexadecimal digits of the digest are in a path.
const DIGEST_DIGITS: usize = 12;

/// A file that the server sends.
pub(crate) struct AssetFile {
    pub(crate) content_type: &'static str,
    pub(crate) text: &'static str,
}

/// The path of the style sheet.
pub(crate) fn style_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path("style", STYLE, "css"))
}

/// The path of the icon.
pub(crate) fn icon_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| path("icon", ICON, "svg"))
}

/// The paths of the scripts.
pub(crate) fn script_paths() -> [&'static str; 2] {
    static PATHS: OnceLock<[String; 2]> = OnceLock::new();
    let paths =
        PATHS.get_or_init(|| [path("live", LIVE_SCRIPT, "js"), path("keys", KEYS_SCRIPT, "js")]);
    paths.each_ref().map(String::as_str)
}

/// Finds the file at a path.
pub(crate) fn find(path: &str) -> Option<AssetFile> {
    let [live, keys] = script_paths();
    match path {
        path if path == style_path() => {
            Some(AssetFile { content_type: "text/css; charset=utf-8", text: STYLE })
        }
        path if path == icon_path() => {
            Some(AssetFile { content_type: "image/svg+xml", text: ICON })
        }
        path if path == live => Some(AssetFile { content_type: JAVASCRIPT, text: LIVE_SCRIPT }),
        path if path == keys => Some(AssetFile { content_type: JAVASCRIPT, text: KEYS_SCRIPT }),
        _ => None,
    }
}

fn path(name: &str, text: &str, extension: &str) -> String {
    let digest = hex::encode(Sha256::digest(text.as_bytes()));
    let digest: String = digest.chars().take(DIGEST_DIGITS).collect();
    format!("/_/assets/{name}.{digest}.{extension}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small_and_name_nothing_of_other_servers() {
        let scripts = LIVE_SCRIPT.len() + KEYS_SCRIPT.len();
        assert!(STYLE.len() + ICON.len() <= 24 << 10, "{} bytes", STYLE.len() + ICON.len());
        assert!(scripts <= 40 << 10, "{scripts} bytes");
        for foreign in ["http://", "https://", "url(", "@import", "javascript", "expression("] {
            let without_namespace = ICON.replace("http://www.w3.org/2000/svg", "");
            assert!(!STYLE.contains(foreign) && !without_namespace.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn scripts_make_no_code_and_no_markup_out_of_text() {
        for script in [LIVE_SCRIPT, KEYS_SCRIPT] {
            for foreign in
                ["http://", "https://", "eval(", "Function(", "document.write", "outerHTML"]
            {
                assert!(!script.contains(foreign), "{foreign}");
            }
        }
        // The script sets HTML in one place only, through its one Trusted Types policy.
        assert_eq!(LIVE_SCRIPT.matches("innerHTML").count(), 1);
        assert!(LIVE_SCRIPT.contains("template.innerHTML = trusted(html)"));
        assert!(!KEYS_SCRIPT.contains("innerHTML") && !KEYS_SCRIPT.contains("insertAdjacentHTML"));
    }

    #[test]
    fn a_file_is_found_by_its_digest_only() {
        assert!(find(style_path()).is_some_and(|it| it.content_type.starts_with("text/css")));
        assert!(find(icon_path()).is_some_and(|it| it.content_type == "image/svg+xml"));
        for path in script_paths() {
            assert!(find(path).is_some_and(|it| it.content_type.starts_with("text/javascript")));
        }
        for path in
            ["/_/assets/style.css", "/_/assets/live.js", "/_/assets/../Cargo.toml", "/_/assets/"]
        {
            assert!(find(path).is_none(), "{path}");
        }
    }
}
