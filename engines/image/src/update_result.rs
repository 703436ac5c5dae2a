//! The changes of an update: values of objects in files.
//!
//! Elsewhere: making the changes (`marker_value_rewrite.rs`), the message of the commit (`commit_message_template.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The object in a document of a file. Missing fields are empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ObjectIdentifier {
    /// `apiVersion`.
    pub api_version: String,
    /// `kind`.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
}

/// A value that was set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageValueChange {
    /// The value before the change.
    pub old_value: String,
    /// The value after the change.
    pub new_value: String,
    /// The setter that set the value: namespace and name of a policy, and a part of its image, separated by colons.
    pub setter: String,
}

/// The changes of image values, grouped by the object in which they are.
pub type ObjectChanges<'r> = BTreeMap<&'r ObjectIdentifier, Vec<&'r ImageValueChange>>;

/// A change, and its file and object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageValueChangeInFile {
    file: Arc<str>,
    object: Arc<ObjectIdentifier>,
    change: ImageValueChange,
}

/// The changes of an update, in the order in which they were made.
///
/// Differs(flux): where Flux goes over its maps in random order, this is the order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpdateResult {
    changes: Vec<ImageValueChangeInFile>,
}

impl UpdateResult {
    /// Adds a change. All changes of a file or an object share the memory for its names.
    pub fn add(
        &mut self,
        file: &Arc<str>,
        object: &Arc<ObjectIdentifier>,
        change: ImageValueChange,
    ) {
        let file = Arc::clone(file);
        let object = Arc::clone(object);
        self.changes.push(ImageValueChangeInFile { file, object, change });
    }

    /// The number of changed values in the result.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Groups consecutive changes in the same object of a file, so that long names are compared once for each group.
    fn runs(&self) -> impl Iterator<Item = &[ImageValueChangeInFile]> {
        let is_same = |a: &ImageValueChangeInFile, b: &ImageValueChangeInFile| {
            Arc::ptr_eq(&a.file, &b.file) && Arc::ptr_eq(&a.object, &b.object)
        };
        self.changes.chunk_by(is_same)
    }

    /// Changes by file and object.
    pub fn files(&self) -> BTreeMap<&str, ObjectChanges<'_>> {
        let mut files: BTreeMap<&str, ObjectChanges<'_>> = BTreeMap::new();
        for run in self.runs() {
            let Some(ImageValueChangeInFile { file, object, .. }) = run.first() else { continue };
            let changes = run.iter().map(|it| &it.change);
            files.entry(file).or_default().entry(object).or_default().extend(changes);
        }
        files
    }

    /// Changes by object, in all files.
    pub fn objects(&self) -> ObjectChanges<'_> {
        let mut objects = ObjectChanges::new();
        for run in self.runs() {
            let Some(ImageValueChangeInFile { object, .. }) = run.first() else { continue };
            objects.entry(object).or_default().extend(run.iter().map(|it| &it.change));
        }
        objects
    }

    /// The distinct changes. Each one is listed once, even if it was made several times.
    pub fn changes(&self) -> Vec<&ImageValueChange> {
        let mut known = BTreeSet::new();
        self.changes.iter().map(|it| &it.change).filter(|change| known.insert(*change)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_was_made_twice_is_counted_once_but_stays_in_both_objects() {
        let change = |new: &str| {
            let [old_value, new_value, setter] = ["a", new, "ns:p"].map(str::to_owned);
            ImageValueChange { old_value, new_value, setter }
        };
        let object =
            |name: &str| Arc::new(ObjectIdentifier { name: name.to_owned(), ..Default::default() });
        let mut result = UpdateResult::default();
        result.add(&"z.yaml".into(), &object("b"), change("2"));
        result.add(&"a.yaml".into(), &object("a"), change("1"));
        result.add(&"a.yaml".into(), &object("b"), change("2"));
        let new = |changes: &[&ImageValueChange]| {
            changes.iter().map(|it| it.new_value.clone()).collect::<Vec<_>>()
        };
        assert_eq!(new(&result.changes()), ["2", "1"]);
        assert_eq!(new(&result.objects()[&*object("b")]), ["2", "2"]);
        assert_eq!(result.files()["a.yaml"].len(), 2);
        assert_eq!(result.files().into_keys().collect::<Vec<_>>(), ["a.yaml", "z.yaml"]);
    }

    #[test]
    fn the_names_of_an_object_are_compared_once_for_all_its_changes() {
        let file: Arc<str> = "a.yaml".into();
        let objects = [Arc::new(ObjectIdentifier::default()), Arc::default()];
        let mut result = UpdateResult::default();
        for object in &objects {
            for at in 0..10 {
                let [old_value, setter] = ["a", "ns:p"].map(str::to_owned);
                result.add(
                    &file,
                    object,
                    ImageValueChange { old_value, new_value: at.to_string(), setter },
                );
            }
        }
        assert_eq!(result.runs().count(), 2);
        let count = |objects: ObjectChanges<'_>| objects.values().map(Vec::len).sum::<usize>();
        assert_eq!(count(result.objects()), 20);
        assert_eq!(result.files().into_values().map(count).sum::<usize>(), 20);
    }
}
