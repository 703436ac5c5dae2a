//! Updates a repository: reads its files, sets values at markers, and reports files and markers that have no effect.
//!
//! Elsewhere: which files a path selects (`git_checkout_files.rs`), values in a file (`marker_value_rewrite.rs`), reading and writing the
//! files (the controllers and the command line).

use std::collections::{BTreeMap, BTreeSet};

use crate::git_checkout_files::{CheckoutFiles, MarkedFile};
use crate::image_setter::ImageSetterValues;
use crate::marker_value_rewrite::{
    MarkerRewriteResult, MarkerRewriter, MarkerWithoutEffect, RewriteLimits, RewriteMode,
    SkippedFileProblem, TagWithoutDigest,
};
use crate::update_result::UpdateResult;

/// A request to update files: the path, the values and the limits.
#[derive(Debug, Clone, Copy)]
pub struct FileUpdateRequest<'u> {
    /// `spec.update.path`.
    pub path: &'u str,
    /// The values of policies.
    pub setters: &'u ImageSetterValues,
    /// Policies that the selector leaves out, as `namespace:name`. Their markers belong to other automations.
    pub others: &'u BTreeSet<String>,
    /// Policies whose images must be verified but whose latest version is not, as `namespace:name`, with the reason.
    pub unverified: &'u BTreeMap<String, String>,
}

/// The result of an update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileUpdate {
    /// The whole content of files that change, by their paths from the root.
    pub files: BTreeMap<String, String>,
    /// The paths of these files, keyed by their names in `result`.
    pub paths: BTreeMap<String, String>,
    /// The values that change. Files have their names from `spec.update.path` on.
    pub result: UpdateResult,
    /// Messages about files that were left out and markers that set nothing.
    pub findings: Vec<String>,
    /// Messages about tags of verified images that would be written without a digest. If there is one, nothing may be
    /// committed.
    pub without_digest: Vec<String>,
}

impl FileUpdateRequest<'_> {
    /// Sets values at markers. `read` returns the content of a file in the repository.
    ///
    /// # Errors
    /// Flux's message why nothing is updated.
    pub fn run(
        &self,
        checkout: &CheckoutFiles,
        read: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<FileUpdate, String> {
        let selection = checkout.select("", self.path).map_err(|error| error.to_string())?;
        let limits = RewriteLimits::default();
        let mut rewriter = MarkerRewriter::new(self.setters, RewriteMode::KeepBytes, limits);
        let mut places = BTreeMap::new();
        for MarkedFile { name, path } in &selection.files {
            rewriter.file(name, &read(path)?);
            places.insert(name.as_str(), path.as_str());
        }
        let rewrite = rewriter.finish("").map_err(|error| error.to_string())?;
        let outside = selection.outside.get(..limits.findings).unwrap_or(&selection.outside);
        let findings = self.findings(&rewrite, outside);
        let without_digest =
            rewrite.without_digest.iter().map(TagWithoutDigest::to_string).collect();
        let mut update = FileUpdate {
            result: rewrite.result,
            findings,
            without_digest,
            ..FileUpdate::default()
        };
        for (name, text) in rewrite.files {
            let path = places.get(name.as_str()).copied().unwrap_or(name.as_str()).to_owned();
            update.files.insert(path.clone(), text);
            update.paths.insert(name, path);
        }
        Ok(update)
    }

    /// The messages about files and markers that had no effect.
    ///
    /// Differs(flux): there nothing is said of them.
    fn findings(&self, rewrite: &MarkerRewriteResult, outside: &[String]) -> Vec<String> {
        let is_of_other = |marker: &&MarkerWithoutEffect| {
            let policy = marker.setter.as_deref().and_then(policy_of);
            policy.is_some_and(|policy| self.others.contains(policy))
        };
        let markers = rewrite.unread.iter().filter(|marker| !is_of_other(marker));
        let out = "the symbolic link leads out of the repository";
        let links = outside.iter().map(|path| format!("{path}: {out}"));
        let files = rewrite.problems.iter().map(SkippedFileProblem::to_string);
        files.chain(links).chain(markers.map(|marker| self.finding(marker))).collect()
    }

    /// The message about a marker that sets nothing.
    fn finding(&self, marker: &MarkerWithoutEffect) -> String {
        let MarkerWithoutEffect { file, line, setter, .. } = marker;
        let policy = setter.as_deref().and_then(policy_of);
        match policy.and_then(|policy| self.unverified.get_key_value(policy)) {
            Some((policy, why)) => {
                format!("{file}:{line}: the latest version of `{policy}` is not verified: {why}")
            }
            None => marker.to_string(),
        }
    }
}

/// The policy in the name of a setter: `namespace:name`, without the part of the image that follows. `None` if the name
/// has no colon.
fn policy_of(setter: &str) -> Option<&str> {
    let (namespace, rest) = setter.split_once(':')?;
    let name = rest.split(':').next().unwrap_or_default();
    setter.get(..namespace.len() + 1 + name.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_checkout_files::CheckoutEntryType;
    use crate::image_reference::ImageRef;
    use crate::image_setter::PolicyResult;

    const WEB: &str = "image: r.io/web:1 # {\"$imagepolicy\": \"apps:web\"}\n";

    fn update(files: &[(&str, &str)], links: &[(&str, &str)]) -> FileUpdate {
        let [name, tag, digest] = ["r.io/web", "2", ""].map(str::to_owned);
        let latest = Some(ImageRef { name, tag, digest });
        let [namespace, name] = ["apps", "web"].map(str::to_owned);
        let setters = ImageSetterValues::new(&[PolicyResult { namespace, name, latest }]).unwrap();
        let others = BTreeSet::from(["apps:db".to_owned()]);
        let file = |(path, _): &(&str, &str)| ((*path).to_owned(), CheckoutEntryType::File);
        let link = |(path, target): &(&str, &str)| {
            ((*path).to_owned(), CheckoutEntryType::Link((*target).to_owned()))
        };
        let entries = files.iter().map(file).chain(links.iter().map(link)).collect();
        let unverified = BTreeMap::new();
        let request = FileUpdateRequest {
            path: "./apps",
            setters: &setters,
            others: &others,
            unverified: &unverified,
        };
        let read = |path: &str| {
            let found = files.iter().find(|(known, _)| *known == path);
            found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| path.to_owned())
        };
        request.run(&CheckoutFiles::new(entries), read).unwrap()
    }

    #[test]
    fn a_file_has_its_name_below_the_path_and_its_path_in_the_repository() {
        let files = [("apps/a.yaml", WEB), ("base/text", WEB), ("infra/c.yaml", WEB)];
        let update = update(&files, &[("apps/in.yaml", "../base/text")]);
        let expected = WEB.replace("web:1", "web:2");
        let written = ["apps/a.yaml", "base/text"].map(|path| (path.to_owned(), expected.clone()));
        assert_eq!(update.files, BTreeMap::from(written));
        let paths = [("a.yaml", "apps/a.yaml"), ("in.yaml", "base/text")];
        let paths = paths.map(|(name, path)| (name.to_owned(), path.to_owned()));
        assert_eq!(update.paths, BTreeMap::from(paths));
        assert_eq!(update.result.files().into_keys().collect::<Vec<_>>(), ["a.yaml", "in.yaml"]);
    }

    #[test]
    fn what_has_no_effect_is_named_unless_it_is_of_another_automation() {
        let marker =
            |key: &str, policy: &str| format!("{key}: x:1 # {{\"$imagepolicy\": \"{policy}\"}}\n");
        let text = [marker("a", "apps:db:tag"), marker("b", "apps:none")].concat();
        let links = [("apps/out.yaml", "../../x.yaml")];
        let update = update(&[("apps/a.yaml", text.as_str())], &links);
        assert_eq!(update.files, BTreeMap::new());
        let expected = [
            "apps/out.yaml: the symbolic link leads out of the repository",
            "a.yaml:2: no policy of the automation sets `apps:none`",
        ];
        assert_eq!(update.findings, expected);
    }
}
