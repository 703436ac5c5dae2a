//! The changes that a run would make to a cluster, before it writes anything. A user reads and approves them. The
//! identity of the result says what the approval is for.
//!
//! Here: which modes wait for approval of which changes, the bounded list of changes, and when an approval covers a
//! run. Elsewhere: finding the changes by dry-runs and renderings, the key of the digest, and Plans (the program);
//! deletions beyond a budget ([`crate::deletion_budget`]).

use std::collections::{BTreeMap, BTreeSet};

use objects::ObjectId;
use sha2::{Digest as _, Sha256};

/// How many changed objects a Plan lists.
const MAX_LISTED_OBJECTS: usize = 1000;

/// How many changed fields of an object a Plan lists.
const MAX_FIELDS_PER_OBJECT: usize = 16;

/// How long a field's pointer may be, in bytes.
const MAX_FIELD_BYTES: usize = 240;

/// How long the id of a listed object may be, in bytes. Kubernetes has no longer names.
const MAX_ID_BYTES: usize = 640;

/// How long the list may be as JSON, in bytes. A Plan has 256 KiB, and its deletions take a part of them.
const MAX_LIST_BYTES: usize = 112 << 10;

/// How many bytes the JSON keys of one listed object take.
const ENTRY_OVERHEAD_BYTES: usize = 80;

/// How many hooks, and how many tests, a Plan lists. It has room for one more entry, which counts the rest.
const MAX_LISTED_HOOKS: usize = 99;

/// How long the list of hooks may be as JSON, in bytes. The list of tests has the same limit.
const MAX_HOOK_LIST_BYTES: usize = 12 << 10;

/// How many removed or recreated objects a message names.
const MAX_NAMED_OBJECTS: usize = 5;

/// Which changes wait for an approval. The later variants are stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum PlanMode {
    /// No change waits.
    #[default]
    Automatic,
    /// Changes wait that remove or recreate an object, or uninstall a release.
    ApproveDestructive,
    /// All changes wait.
    Approve,
}

impl PlanMode {
    /// The stricter of this mode and the mode in an annotation. An annotation that cannot be read requires approval for
    /// all changes, so that a typing error never loosens the guard.
    #[must_use]
    pub fn tightened(self, annotation: Option<&str>) -> Self {
        let Some(text) = annotation else { return self };
        self.max(match text.trim() {
            "ApproveDestructive" => Self::ApproveDestructive,
            _ => Self::Approve,
        })
    }
}

/// What would happen to an object. Changes that lose something come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlannedChangeKind {
    /// The object would be deleted.
    Removed,
    /// The object would be deleted and created again.
    Recreated,
    /// The object would be changed.
    Changed,
    /// The object would be created.
    Added,
}

/// A change that a run would make to one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// The id of the object.
    pub id: ObjectId,
    /// What would happen to the object.
    pub kind: PlannedChangeKind,
    /// JSON pointers of the fields that would change.
    pub fields: Vec<String>,
    /// Whether the change could not be tried by a dry-run, because other objects have to be applied before it.
    pub is_unverified: bool,
}

impl PlannedChange {
    /// A change that was tried by a dry-run, without its fields.
    pub fn new(id: ObjectId, kind: PlannedChangeKind) -> Self {
        Self { id, kind, fields: Vec::new(), is_unverified: false }
    }
}

/// Everything that a run would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedChanges {
    /// The changed objects.
    pub objects: Vec<PlannedChange>,
    /// Removed objects for which the result has a newer version under another name. They are former versions of
    /// generated objects.
    pub replaced: BTreeSet<ObjectId>,
    /// The hooks that would run, as text for users.
    pub hooks: Vec<String>,
    /// The tests that would run, as text for users.
    pub tests: Vec<String>,
    /// Whether a release is uninstalled.
    pub uninstalls: bool,
}

impl PlannedChanges {
    /// Whether something is lost: an object is removed or recreated, or a release uninstalled. Former versions of generated
    /// objects are no loss.
    pub fn is_destructive(&self) -> bool {
        let loses = |it: &PlannedChange| match it.kind {
            PlannedChangeKind::Removed => !self.replaced.contains(&it.id),
            PlannedChangeKind::Recreated => true,
            PlannedChangeKind::Changed | PlannedChangeKind::Added => false,
        };
        self.uninstalls || self.objects.iter().any(loses)
    }

    /// Whether these changes wait for an approval in this mode.
    pub fn waits_under(&self, mode: PlanMode) -> bool {
        match mode {
            PlanMode::Automatic => false,
            PlanMode::ApproveDestructive => self.is_destructive(),
            PlanMode::Approve => true,
        }
    }

    /// The ids of the objects with this kind of change.
    pub fn ids(&self, kind: PlannedChangeKind) -> BTreeSet<ObjectId> {
        self.objects.iter().filter(|it| it.kind == kind).map(|it| it.id.clone()).collect()
    }

    /// How many objects have each kind of change, as text for users: `1 removed, 3 changed`.
    pub fn summary(&self) -> String {
        let mut counts: BTreeMap<PlannedChangeKind, usize> = BTreeMap::new();
        for change in &self.objects {
            let count = counts.entry(change.kind).or_default();
            *count = count.saturating_add(1);
        }
        let mut parts: Vec<String> = Vec::new();
        for (kind, count) in counts {
            let word = match kind {
                PlannedChangeKind::Removed => "removed",
                PlannedChangeKind::Recreated => "recreated",
                PlannedChangeKind::Changed => "changed",
                PlannedChangeKind::Added => "added",
            };
            parts.push(format!("{count} {word}"));
        }
        let unverified = self.objects.iter().filter(|it| it.is_unverified).count();
        if unverified > 0 {
            parts.push(format!("{unverified} of them unverified"));
        }
        for (count, word) in [(self.hooks.len(), "hooks"), (self.tests.len(), "tests")] {
            if count > 0 {
                parts.push(format!("{word}: {count}"));
            }
        }
        match parts.is_empty() {
            true => "no object changes".to_owned(),
            false => parts.join(", "),
        }
    }

    /// The end of a message about changes that wait: what they are, and how to read and approve their Plan. `plan` is its name,
    /// if Plans are installed.
    pub fn waits_for_approval(&self, namespace: &str, plan: Option<&str>) -> String {
        let lost = self.objects.iter().filter(|it| it.kind <= PlannedChangeKind::Recreated);
        let mut names: Vec<String> =
            lost.clone().take(MAX_NAMED_OBJECTS).map(|it| it.id.subject()).collect();
        let more = lost.count().saturating_sub(names.len());
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let lost = match names.is_empty() {
            true => String::new(),
            false => format!("; removed or recreated: {}", names.join(", ")),
        };
        let approval = match plan {
            Some(plan) => format!(
                "to read its Plan, run `windlass plan show {plan} -n {namespace}`; to approve it, run \
                 `windlass approve plan/{plan} -n {namespace}`"
            ),
            None => "to approve it, install the CustomResourceDefinitions planpolicies.release.windlass.dev and \
                     plans.release.windlass.dev"
                .to_owned(),
        };
        format!("waits for approval: {}{lost}; {approval}", self.summary())
    }

    /// The list of changes for a Plan, as far as a Plan has room. Changes that lose something come first.
    pub fn listing(&self) -> PlannedChangeListing {
        let mut ordered: Vec<&PlannedChange> = self.objects.iter().collect();
        ordered.sort_by(|a, b| (a.kind, &a.id).cmp(&(b.kind, &b.id)));
        let mut listing = PlannedChangeListing {
            hooks: listed_names(&self.hooks),
            tests: listed_names(&self.tests),
            ..PlannedChangeListing::default()
        };
        let mut left = MAX_LIST_BYTES;
        for change in ordered {
            let change = shortened(change);
            let bare = PlannedChange { fields: Vec::new(), ..change.clone() };
            let has_room = listing.listed.len() < MAX_LISTED_OBJECTS
                && change.id.to_string().len() <= MAX_ID_BYTES;
            let fitting = [change, bare].into_iter().find(|it| cost(it) <= left);
            match fitting.filter(|_| has_room) {
                Some(change) => {
                    left = left.saturating_sub(cost(&change));
                    listing.listed.push(change);
                }
                None => listing.omitted = listing.omitted.saturating_add(1),
            }
        }
        listing
    }
}

/// The part of the changes that a Plan lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedChangeListing {
    /// The first changed objects.
    pub listed: Vec<PlannedChange>,
    /// How many changed objects are not listed.
    pub omitted: usize,
    /// The first hooks.
    pub hooks: Vec<String>,
    /// The first tests.
    pub tests: Vec<String>,
}

fn listed_names(names: &[String]) -> Vec<String> {
    let mut left = MAX_HOOK_LIST_BYTES;
    let fitting = names.iter().take(MAX_LISTED_HOOKS).map(|it| cut(it)).take_while(|it| {
        let rest = left.checked_sub(quoted_bytes(it));
        left = rest.unwrap_or_default();
        rest.is_some()
    });
    let mut listed: Vec<String> = fitting.collect();
    let more = names.len().saturating_sub(listed.len());
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    listed
}

/// How many bytes a text takes in a JSON list.
fn quoted_bytes(text: &str) -> usize {
    serde_json::Value::from(text).to_string().len().saturating_add(1)
}

fn shortened(change: &PlannedChange) -> PlannedChange {
    // For Secrets, not even the names of keys are listed.
    let is_secret = change.id.group.is_empty() && change.id.kind == "Secret";
    let fields = match is_secret {
        true => Vec::new(),
        false => change.fields.iter().take(MAX_FIELDS_PER_OBJECT).map(|it| cut(it)).collect(),
    };
    PlannedChange { fields, ..change.clone() }
}

/// The approximate length of a change as JSON.
fn cost(change: &PlannedChange) -> usize {
    let fields = change.fields.iter().map(|it| quoted_bytes(it));
    let id = quoted_bytes(&change.id.to_string());
    fields.fold(ENTRY_OVERHEAD_BYTES.saturating_add(id), usize::saturating_add)
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_FIELD_BYTES {
        return text.to_owned();
    }
    let end = (0..=MAX_FIELD_BYTES).rev().find(|at| text.is_char_boundary(*at));
    format!("{}…", text.get(..end.unwrap_or_default()).unwrap_or_default())
}

/// A digest of everything that does not change while a result is applied: its content, its target, its user, and the
/// result from which it starts.
#[derive(Debug, Clone)]
pub struct PlannedChangesHash(Sha256);

impl PlannedChangesHash {
    /// Begins a digest. `subject` is the uid of the applier's object, and `target` its target cluster and user. `base`
    /// names the result from which this one starts, because going back to an earlier result is a different change.
    pub fn begin(subject: &str, target: &str, base: &str) -> Self {
        let mut hash = Self(Sha256::new());
        for part in [subject, target, base] {
            hash.add(part.as_bytes());
        }
        hash
    }

    /// Adds a part. The digest includes its length, so two different lists of parts never look the same.
    pub fn add(&mut self, part: &[u8]) {
        self.0.update(part.len().to_le_bytes());
        self.0.update(part);
    }

    /// The digest of all that was added, in hexadecimal digits.
    pub fn finish(self) -> String {
        hex::encode(self.0.finalize())
    }
}

/// The parts that identify a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChangesIdentity {
    /// The digest of [`PlannedChangesHash`].
    pub content: String,
    /// Objects that the apply of the result deletes, and that still exist.
    pub removed: BTreeSet<ObjectId>,
    /// Objects that the apply of the result deletes and creates again, as far as they are known.
    pub recreated: BTreeSet<ObjectId>,
}

impl PlannedChangesIdentity {
    /// The digest of all parts. It is not published without a key, because a user who knows everything except the value
    /// of a Secret could guess that value.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.content);
        for (name, ids) in [("removed", &self.removed), ("recreated", &self.recreated)] {
            hash.update(format!("\n{name} {}", ids.len()));
            for id in ids {
                hash.update(format!("\n{id}"));
            }
        }
        hex::encode(hash.finalize())
    }
}

/// A result that a user approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedChanges {
    /// The digest of the [`PlannedChangesIdentity`], computed with the key of the cluster.
    pub digest: String,
    /// The removed objects that the approving user could read.
    pub removed: BTreeSet<ObjectId>,
    /// The recreated objects that the approving user could read.
    pub recreated: BTreeSet<ObjectId>,
    /// Whether `removed` and `recreated` are complete.
    pub is_complete: bool,
}

impl ApprovedChanges {
    /// Whether the approval is for a result. The result may remove or recreate fewer objects than were approved,
    /// because some may be done already. This can be checked only if the approval lists all of them.
    ///
    /// `keyed` turns a digest into the keyed digest of a Plan. Users approve the lists that they can read, so these
    /// have to match the digest.
    pub fn covers(&self, result: &PlannedChangesIdentity, keyed: impl Fn(&str) -> String) -> bool {
        if !self.is_complete {
            return self.removed.is_subset(&result.removed)
                && self.recreated.is_subset(&result.recreated)
                && keyed(&result.digest()) == self.digest;
        }
        let approved = PlannedChangesIdentity {
            content: result.content.clone(),
            removed: self.removed.clone(),
            recreated: self.recreated.clone(),
        };
        keyed(&approved.digest()) == self.digest
            && result.removed.is_subset(&self.removed)
            && result.recreated.is_subset(&self.recreated)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    fn ids(names: &[&str]) -> BTreeSet<ObjectId> {
        names.iter().map(|name| id(name)).collect()
    }

    fn changes(all: &[(&str, PlannedChangeKind)]) -> PlannedChanges {
        let change = |(name, kind): &(&str, PlannedChangeKind)| PlannedChange::new(id(name), *kind);
        PlannedChanges { objects: all.iter().map(change).collect(), ..PlannedChanges::default() }
    }

    fn keyed(digest: &str) -> String {
        format!("key {digest}")
    }

    #[test]
    fn a_message_names_what_is_lost_and_both_commands() {
        let mut all = PlannedChanges::default();
        let removed =
            |at: usize| PlannedChange::new(id(&format!("r{at}")), PlannedChangeKind::Removed);
        all.objects.extend((0..7).map(removed));
        all.objects.push(PlannedChange::new(id("c"), PlannedChangeKind::Changed));
        let text = all.waits_for_approval("shop", Some("apps-1"));
        assert!(text.starts_with("waits for approval: 7 removed, 1 changed; removed or"), "{text}");
        assert!(text.contains("ConfigMap/shop/r4, 2 more"), "{text}");
        assert!(text.contains("`windlass plan show apps-1 -n shop`"), "{text}");
        assert!(text.ends_with("`windlass approve plan/apps-1 -n shop`"), "{text}");
        let none = changes(&[("c", PlannedChangeKind::Changed)]).waits_for_approval("shop", None);
        assert!(none.contains("1 changed; to approve it, install the Custom"), "{none}");
    }

    #[test]
    fn an_annotation_only_tightens_and_what_cannot_be_read_asks_for_everything() {
        use PlanMode::{Approve, ApproveDestructive, Automatic};
        assert_eq!(Automatic.tightened(None), Automatic);
        assert_eq!(Automatic.tightened(Some(" ApproveDestructive ")), ApproveDestructive);
        assert_eq!(Approve.tightened(Some("ApproveDestructive")), Approve);
        for text in ["Approve", "approve", "", "Automatic", "none"] {
            assert_eq!(Automatic.tightened(Some(text)), Approve, "{text}");
        }
    }

    #[test]
    fn what_loses_nothing_waits_only_where_everything_does() {
        use PlannedChangeKind::{Added, Changed, Recreated, Removed};
        let harmless = changes(&[("a", Added), ("b", Changed)]);
        assert!(!harmless.waits_under(PlanMode::ApproveDestructive));
        assert!(harmless.waits_under(PlanMode::Approve));
        assert!(!harmless.waits_under(PlanMode::Automatic));
        for kind in [Recreated, Removed] {
            assert!(changes(&[("a", kind)]).waits_under(PlanMode::ApproveDestructive));
        }
        let former = PlannedChanges { replaced: ids(&["a"]), ..changes(&[("a", Removed)]) };
        assert!(!former.is_destructive(), "the former version of a generated object");
        assert!(former.waits_under(PlanMode::Approve));
        let uninstall = PlannedChanges { uninstalls: true, ..PlannedChanges::default() };
        assert!(uninstall.waits_under(PlanMode::ApproveDestructive));
    }

    #[test]
    fn a_summary_counts_each_kind_of_change() {
        use PlannedChangeKind::{Added, Changed, Removed};
        let mut all = changes(&[("a", Added), ("b", Changed), ("c", Changed), ("d", Removed)]);
        all.objects[0].is_unverified = true;
        all.hooks.push("pre-install: Job/a".to_owned());
        let text = "1 removed, 2 changed, 1 added, 1 of them unverified, hooks: 1";
        assert_eq!(all.summary(), text);
        assert_eq!(PlannedChanges::default().summary(), "no object changes");
    }

    #[test]
    fn what_loses_something_is_listed_first_and_the_rest_is_counted() {
        use PlannedChangeKind::{Added, Removed};
        let mut all = PlannedChanges::default();
        let names: Vec<String> = (0..1100).map(|at| format!("c{at:04}")).collect();
        all.objects.extend(names.iter().map(|name| PlannedChange::new(id(name), Added)));
        all.objects.push(PlannedChange::new(id("gone"), Removed));
        let listing = all.listing();
        assert_eq!(listing.listed[0].id, id("gone"));
        assert_eq!(listing.listed.len() + listing.omitted, 1101);
        assert!(listing.omitted >= 101);
    }

    #[test]
    fn hooks_have_a_room_of_their_own_and_those_left_out_are_counted() {
        let of =
            |hooks: Vec<String>| PlannedChanges { hooks, ..PlannedChanges::default() }.listing();
        let few = of((0..150).map(|at| format!("pre-install: Job/{at}")).collect());
        assert_eq!((few.hooks.len(), few.hooks.last().unwrap().as_str()), (100, "51 more"));
        // Each of these characters takes six as JSON.
        let long = of(vec!["\u{1}".repeat(4096); 150]);
        let length: usize = long.hooks.iter().map(|it| quoted_bytes(it)).sum();
        assert!(length <= MAX_HOOK_LIST_BYTES + quoted_bytes("150 more"), "{length}");
        assert!(long.hooks.len() < 10 && long.hooks.last().unwrap().ends_with(" more"));
    }

    #[test]
    fn no_field_of_a_secret_is_listed() {
        let of = |group: &str| {
            let id = ObjectId::new("shop", "s", group, "Secret");
            let fields = vec!["/data/password".to_owned()];
            let kind = PlannedChangeKind::Changed;
            let change = PlannedChange { fields, ..PlannedChange::new(id, kind) };
            PlannedChanges { objects: vec![change], ..PlannedChanges::default() }.listing()
        };
        assert!(of("").listed[0].fields.is_empty());
        assert_eq!(of("example.com").listed[0].fields, ["/data/password"]);
    }

    #[test]
    fn an_approval_is_for_one_result_and_what_is_left_of_its_removals() {
        let content = PlannedChangesHash::begin("uid", "", "base").finish();
        let result = |removed: &[&str], recreated: &[&str]| PlannedChangesIdentity {
            content: content.clone(),
            removed: ids(removed),
            recreated: ids(recreated),
        };
        let planned = result(&["a", "b"], &["c"]);
        let approved = ApprovedChanges {
            digest: keyed(&planned.digest()),
            removed: ids(&["a", "b"]),
            recreated: ids(&["c"]),
            is_complete: true,
        };
        assert!(approved.covers(&planned, keyed));
        assert!(approved.covers(&result(&["b"], &[]), keyed), "something of it is done");
        assert!(!approved.covers(&result(&["a", "d"], &[]), keyed));
        assert!(!approved.covers(&result(&["a"], &["d"]), keyed), "found when it is applied");
        let other = PlannedChangesIdentity { content: "other".to_owned(), ..planned.clone() };
        assert!(!approved.covers(&other, keyed));
        let forged = ApprovedChanges { removed: ids(&["a", "b", "d"]), ..approved.clone() };
        assert!(!forged.covers(&result(&["d"], &[]), keyed), "the list is not that of the digest");
        let partly = ApprovedChanges { removed: ids(&["a"]), is_complete: false, ..approved };
        assert!(partly.covers(&planned, keyed) && !partly.covers(&result(&["a"], &[]), keyed));
    }

    #[test]
    fn a_result_is_another_one_elsewhere_for_another_subject_and_from_another_one() {
        let of = |[subject, target, base]: [&str; 3], parts: &[&str]| {
            let mut hash = PlannedChangesHash::begin(subject, target, base);
            parts.iter().for_each(|part| hash.add(part.as_bytes()));
            hash.finish()
        };
        let one = of(["uid", "", "a"], &["x", "y"]);
        assert_eq!(one, of(["uid", "", "a"], &["x", "y"]));
        for other in [
            of(["other", "", "a"], &["x", "y"]),
            of(["uid", "remote", "a"], &["x", "y"]),
            of(["uid", "", "b"], &["x", "y"]),
            of(["uid", "", "a"], &["xy"]),
            of(["uid", "", "a"], &["y", "x"]),
        ] {
            assert_ne!(one, other);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_listing_never_takes_more_than_its_room(
            names in prop::collection::vec(("\\PC{0,400}", prop::collection::vec("\\PC{0,400}", 0..20)), 0..60)
        ) {
            let count = names.len();
            let change = |(name, fields): (String, Vec<String>)| PlannedChange {
                fields, ..PlannedChange::new(id(&name), PlannedChangeKind::Changed)
            };
            let objects = names.into_iter().map(change).collect();
            let listing = PlannedChanges { objects, ..PlannedChanges::default() }.listing();
            prop_assert_eq!(listing.listed.len() + listing.omitted, count);
            let length: usize = listing.listed.iter().map(cost).sum();
            prop_assert!(length <= MAX_LIST_BYTES);
        }
    }
}
