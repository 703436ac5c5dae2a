//! The files that pages need: one style sheet and one icon, in the program.
//!
//! Their paths have a digest of what is in them, so that browsers keep them.

use std::sync::OnceLock;

use sha2::{Digest as _, Sha256};

/// The style sheet.
const STYLE: &str = include_str!("assets/style.css");

/// The icon of the pages.
const ICON: &str = include_str!("assets/icon.svg");

/// How many digits of a digest a path has.
const DIGEST_DIGITS: usize = 12;

/// A file.
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

/// The file at a path.
pub(crate) fn find(path: &str) -> Option<AssetFile> {
    match path {
        path if path == style_path() => {
            Some(AssetFile { content_type: "text/css; charset=utf-8", text: STYLE })
        }
        path if path == icon_path() => {
            Some(AssetFile { content_type: "image/svg+xml", text: ICON })
        }
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
        assert!(STYLE.len() + ICON.len() <= 24 << 10, "{} bytes", STYLE.len() + ICON.len());
        for foreign in ["http://", "https://", "url(", "@import", "javascript", "expression("] {
            let without_namespace = ICON.replace("http://www.w3.org/2000/svg", "");
            assert!(!STYLE.contains(foreign) && !without_namespace.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_file_is_found_by_its_digest_only() {
        assert!(find(style_path()).is_some_and(|it| it.content_type.starts_with("text/css")));
        assert!(find(icon_path()).is_some_and(|it| it.content_type == "image/svg+xml"));
        for path in ["/_/assets/style.css", "/_/assets/../Cargo.toml", "/_/assets/"] {
            assert!(find(path).is_none(), "{path}");
        }
    }
}
