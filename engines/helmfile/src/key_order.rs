//! Checks the order of top-level keys that helmfile requires. It reads plain lines, before the file is rendered or parsed.

use crate::error::Result;
use crate::pre_v1_helmfile::HelmfileDialect;

/// A top-level key, or the line that separates parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopLevelLine<'t> {
    Key(&'t str),
    Separator,
}

fn lines(text: &str) -> impl Iterator<Item = TopLevelLine<'_>> {
    text.split('\n').filter_map(|line| {
        let line = line.trim_end();
        if line == "---" {
            return Some(TopLevelLine::Separator);
        }
        let (key, _) = line.split_once(':')?;
        let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphabetic());
        is_key.then_some(TopLevelLine::Key(key))
    })
}

/// Checks the keys of a helmfile.
///
/// # Errors
/// There is no key at all. Since 1.0 also: `environments` or `bases` come after `releases`, or `environments` and `releases`
/// are in one part.
pub(crate) fn check(path: &str, text: &str, dialect: HelmfileDialect) -> Result<()> {
    let keys: Vec<&str> = lines(text)
        .filter_map(|line| if let TopLevelLine::Key(key) = line { Some(key) } else { None })
        .collect();
    if keys.is_empty() {
        return Err(format!("no top-level config keys are found in {path}").into());
    }
    if dialect == HelmfileDialect::V0 {
        return Ok(());
    }
    let ordered: Vec<&str> = keys
        .into_iter()
        .filter(|key| matches!(*key, "bases" | "environments" | "releases"))
        .collect();
    for pair in ordered.windows(2) {
        if let ["releases", later @ ("bases" | "environments")] = pair {
            return Err(format!(
                "top-level config key {later} must be defined before releases in {path}"
            )
            .into());
        }
    }
    // Parity(helmfile 1.8): of each key only the first occurrence counts, of separators all.
    let mut known: Vec<TopLevelLine<'_>> = Vec::new();
    for line in lines(text) {
        let is_wanted = matches!(
            line,
            TopLevelLine::Separator | TopLevelLine::Key("environments" | "releases")
        );
        if is_wanted && (line == TopLevelLine::Separator || !known.contains(&line)) {
            known.push(line);
        }
    }
    if known.windows(2).any(|pair| !pair.contains(&TopLevelLine::Separator)) {
        return Err("environments and releases cannot be defined within the same YAML part. \
                    Use --- to extract the environments into a dedicated part"
            .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{HelmfileDialect, check};

    #[test]
    fn environments_and_releases_need_parts_of_their_own() {
        assert!(
            check("f", "environments:\n  a: {}\n---\nreleases: []\n", HelmfileDialect::V1).is_ok()
        );
        assert!(check("f", "environments:\n  a: {}\nreleases: []\n", HelmfileDialect::V1).is_err());
        assert!(check("f", "releases: []\n---\nbases: []\n", HelmfileDialect::V1).is_err());
        assert!(check("f", "environments:\n  a: {}\nreleases: []\n", HelmfileDialect::V0).is_ok());
        assert!(check("f", "# nothing\n- a\n", HelmfileDialect::V1).is_err());
    }
}
