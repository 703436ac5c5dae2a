//! Judges a changed definition by the objects that exist, one object after the other.
//!
//! Here: the versions in which objects have to be read, judging one object, and comparing the definitions themselves.
//! Elsewhere: defaulting, pruning, validation and rules (`field_defaults`, `field_pruning`, `object_validation`,
//! `validation_rules`).

use std::collections::{BTreeMap, BTreeSet};

use golang::work_meter::StopSignal;
use serde_json::Value;

use crate::crd_change_verdict::{
    CrdChangeFindings, CrdChangeProblem, CrdChangeVerdict, GuardedObjectKey, ObjectFindingSink,
};
use crate::crd_definition::{
    CrdConversion, CrdDefinition, CrdDefinitionError, WebhookServiceReference,
};
use crate::field_path::FieldPath;
use crate::schema::{CrdVersionSchema, SchemaNodeWithPrevious};
use crate::storage_version_migration::StoredVersionMigration;
use crate::{field_defaults, field_pruning, object_validation, validation_rules};

/// How many field managers the judge remembers.
const MAX_MANAGERS: usize = 64;

/// Whether the Service of a conversion webhook exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookServicePresence {
    /// The Service exists.
    Present,
    /// The Service does not exist.
    Absent,
    /// It could not be found out whether the Service exists.
    Unknown,
}

/// Facts about a cluster that the judge needs besides the objects.
#[derive(Debug, Clone, Copy)]
pub struct CrdGuardFacts {
    /// How many objects of the kind there are.
    pub total: u64,
    /// Whether the Service of the new conversion webhook exists ([`CrdChangeJudge::service`]).
    pub service: WebhookServicePresence,
    /// Whether the judge got all objects.
    pub is_complete: bool,
}

/// A comparison of two schemas: objects are read in one version and judged by the schema of another one.
#[derive(Debug)]
struct SchemaVersionPair {
    read: String,
    by: String,
    before: CrdVersionSchema,
    after: CrdVersionSchema,
    /// Whether only dropped fields count. The other version may have fields that this version cannot show.
    losses_only: bool,
    /// Whether `status` is a subresource before and after.
    has_status: [bool; 2],
}

impl SchemaVersionPair {
    /// Whether a finding counts. A finding about the subresource `status` does not count, because a controller reports
    /// its status again. Such a finding also does not make the API server refuse other changes of the object.
    fn counts(&self, problem: CrdChangeProblem, path: &str) -> bool {
        let is_status = path
            .strip_prefix("status")
            .is_some_and(|it| it.is_empty() || it.starts_with('.') || it.starts_with('['));
        let [before, after] = self.has_status;
        !(is_status && before && (after || problem == CrdChangeProblem::Lost))
    }
}

/// A comparison of two schemas that the judge has to make if they differ.
#[derive(PartialEq, Eq)]
struct SchemaComparison {
    read: String,
    by: String,
    /// Whether the other schema belongs to the live definition, too. Objects are then written back before the new
    /// definition is applied.
    is_live: bool,
    losses_only: bool,
}

/// Judges a changed definition. The caller gives it the objects page by page, and the judge keeps none of them.
#[derive(Debug)]
pub struct CrdChangeJudge {
    old: CrdDefinition,
    new: CrdDefinition,
    pairs: Vec<SchemaVersionPair>,
    /// Versions in which objects may be stored and whose schema changes, but in which objects cannot be read.
    unseen: Vec<String>,
    sink: ObjectFindingSink,
    findings: CrdChangeFindings,
    judged: u64,
    /// The version in which objects are counted.
    first: Option<String>,
    /// For each field manager, the versions in which it wrote objects.
    managers: BTreeMap<String, BTreeSet<String>>,
}

impl CrdChangeJudge {
    /// Prepares to judge a change from a live definition to a manifest. `stop` ends a judgement that takes too long.
    ///
    /// # Errors
    /// One of the two definitions cannot be judged.
    pub fn new(old: &Value, new: &Value, stop: &StopSignal) -> Result<Self, CrdDefinitionError> {
        let was = CrdDefinition::read(old)?;
        let is = CrdDefinition::read(new)?;
        let mut pairs = Vec::new();
        for SchemaComparison { read, by, is_live, losses_only } in wanted(&was, &is) {
            let before = CrdDefinition::schema(old, &read)?;
            let mut after = CrdDefinition::schema(if is_live { old } else { new }, &by)?;
            after.mark(&before);
            if !after.root.is_same {
                let has = |it: &CrdDefinition, name: &str| {
                    it.version(name).is_some_and(|version| version.has_status)
                };
                let has_status = [has(&was, &read), has(if is_live { &was } else { &is }, &by)];
                pairs.push(SchemaVersionPair { read, by, before, after, losses_only, has_status });
            }
        }
        let mut unseen = Vec::new();
        for name in kept_in_store(&was, &is).filter(|it| !was.serves(it)) {
            let mut after = CrdDefinition::schema(new, name)?;
            after.mark(&CrdDefinition::schema(old, name)?);
            if !after.root.is_same {
                unseen.push(name.to_owned());
            }
        }
        let sink = ObjectFindingSink::new(stop);
        let findings = CrdChangeFindings::default();
        let managers = BTreeMap::new();
        let old = was;
        let new = is;
        let judged = 0;
        let first = None;
        let mut judge = Self { old, new, pairs, unseen, sink, findings, judged, first, managers };
        judge.first = judge.versions().into_iter().next();
        Ok(judge)
    }

    /// The live definition, before the change.
    pub fn old(&self) -> &CrdDefinition {
        &self.old
    }

    /// The versions in which the caller has to read all objects and give them to [`CrdChangeJudge::object`].
    pub fn versions(&self) -> Vec<String> {
        let mut all: BTreeSet<&str> = self.pairs.iter().map(|it| it.read.as_str()).collect();
        let is_dropped = self.unserved().next().is_some();
        if let (true, true, Some(version)) = (all.is_empty(), is_dropped, self.old.readable()) {
            all.insert(&version.name);
        }
        all.into_iter().map(str::to_owned).collect()
    }

    /// A version in which the caller has to count the objects. `None` if the number does not matter.
    pub fn counted(&self) -> Option<String> {
        let is_other = self.old.conversion != self.new.conversion;
        let matters = is_other
            || self.is_moved()
            || !self.unseen.is_empty()
            || self.dropped().next().is_some();
        let version = self.old.readable().filter(|_| matters || !self.versions().is_empty());
        version.map(|it| it.name.clone())
    }

    /// The Service that the new conversion webhook needs. `None` if the old definition needed the same one.
    pub fn service(&self) -> Option<&WebhookServiceReference> {
        match &self.new.conversion {
            CrdConversion::Webhook(Some(service)) if self.old.conversion != self.new.conversion => {
                Some(service)
            }
            CrdConversion::Webhook(_) | CrdConversion::None => None,
        }
    }

    /// Versions in which objects may be stored, but which the new definition does not have.
    fn dropped(&self) -> impl Iterator<Item = &str> {
        let all = self.old.stored.iter().map(String::as_str);
        all.filter(|name| self.new.version(name).is_none())
    }

    /// Versions that are not served any more.
    fn unserved(&self) -> impl Iterator<Item = &str> {
        let all = self.old.versions.iter().filter(|it| it.is_served);
        all.map(|it| it.name.as_str()).filter(|name| !self.new.serves(name))
    }

    fn is_moved(&self) -> bool {
        let name = |it: &CrdDefinition| it.storage().map(|it| it.name.clone());
        name(&self.old) != name(&self.new)
    }

    /// Judges one object that was read in this version.
    pub fn object(&mut self, version: &str, object: &Value) {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let key = GuardedObjectKey { namespace: text("namespace"), name: text("name") };
        if self.first.as_deref() == Some(version) {
            self.judged += 1;
        }
        self.note_managers(object);
        // Two schemas may give the same finding.
        let mut found = BTreeSet::new();
        for pair in self.pairs.iter().filter(|it| it.read == version) {
            let of = judge(object, pair, &mut self.sink).into_iter();
            let of = of.filter(|(problem, path, _)| pair.counts(*problem, path));
            found.extend(of.map(|(problem, path, why)| (problem, pair.by.as_str(), path, why)));
        }
        for (problem, by, path, why) in found {
            self.findings.add(problem, by, path, why, Some(&key));
        }
    }

    fn note_managers(&mut self, object: &Value) {
        let entries = object["metadata"]["managedFields"].as_array();
        for entry in entries.into_iter().flatten() {
            let (Some(manager), Some(version)) =
                (entry["manager"].as_str(), entry["apiVersion"].as_str())
            else {
                continue;
            };
            let version = version.rsplit('/').next().unwrap_or_default();
            if self.managers.len() < MAX_MANAGERS || self.managers.contains_key(manager) {
                let versions = self.managers.entry(manager.to_owned()).or_default();
                versions.insert(version.to_owned());
            }
        }
    }

    /// The verdict, after the judge got all objects.
    pub fn finish(mut self, facts: CrdGuardFacts) -> CrdChangeVerdict {
        self.identity();
        if facts.total > 0 {
            self.conversion(facts.service);
            for version in std::mem::take(&mut self.unseen) {
                let why = "its schema changes, and objects may be stored in it, which cannot be read in it because it \
                           is not served";
                self.find(CrdChangeProblem::Unjudged, &version, why.to_owned());
            }
        }
        if !facts.is_complete {
            let why = format!("only {} of {} objects were read", self.judged, facts.total);
            self.find(CrdChangeProblem::Unjudged, "", why);
        }
        let (dropped, unserved): (Vec<String>, Vec<String>) = (
            self.dropped().map(str::to_owned).collect(),
            self.unserved().map(str::to_owned).collect(),
        );
        let migrates = StoredVersionMigration::between(&self.old, &self.new).is_some();
        for version in dropped.iter().filter(|_| !migrates) {
            let why = "is dropped, and objects may be stored in it (`status.storedVersions`); no version that is \
                       served now and then could take them";
            self.find(CrdChangeProblem::Stored, version, why.to_owned());
        }
        for version in unserved {
            let users = self.managers.iter().filter(|(_, versions)| {
                versions.contains(&version) && !versions.iter().any(|it| self.new.serves(it))
            });
            let why = "is no longer served, and is in use".to_owned();
            for (name, _) in users {
                let key = GuardedObjectKey { namespace: String::new(), name: name.clone() };
                let why = why.clone();
                self.findings.add(
                    CrdChangeProblem::Unserved,
                    &version,
                    String::new(),
                    why,
                    Some(&key),
                );
            }
        }
        self.findings.verdict(self.judged, facts.total)
    }

    fn find(&mut self, problem: CrdChangeProblem, version: &str, why: String) {
        self.findings.add(problem, version, String::new(), why, None);
    }

    fn identity(&mut self) {
        let scope = |it: &CrdDefinition| if it.is_namespaced { "Namespaced" } else { "Cluster" };
        let fields = [
            ("spec.group", self.old.group.clone(), self.new.group.clone()),
            ("spec.names.kind", self.old.kind.clone(), self.new.kind.clone()),
            ("spec.names.plural", self.old.plural.clone(), self.new.plural.clone()),
            ("spec.names.listKind", self.old.list_kind.clone(), self.new.list_kind.clone()),
            ("spec.scope", scope(&self.old).to_owned(), scope(&self.new).to_owned()),
        ];
        for (field, was, is) in fields {
            if was != is {
                let why =
                    format!("`{field}` changes from {was} to {is}, which needs a new definition");
                self.find(CrdChangeProblem::Identity, "", why);
            }
        }
    }

    fn conversion(&mut self, service: WebhookServicePresence) {
        let named = self.service().map(|it| format!("{}/{}", it.namespace, it.name));
        match (named, service) {
            (Some(name), WebhookServicePresence::Absent) => {
                let why = format!("the Service {name} of the conversion webhook is not there");
                self.find(CrdChangeProblem::Webhook, "", why);
            }
            (Some(name), WebhookServicePresence::Unknown) => {
                let why = format!("whether the Service {name} of the conversion webhook is there");
                self.find(CrdChangeProblem::Unjudged, "", why);
            }
            (Some(_), WebhookServicePresence::Present) | (None, _) => {}
        }
        let had_webhook = matches!(self.old.conversion, CrdConversion::Webhook(_));
        if had_webhook && self.new.conversion == CrdConversion::None && self.old.stored.len() > 1 {
            let why = "objects that are stored in several versions would be converted no more";
            self.find(CrdChangeProblem::Unjudged, "", why.to_owned());
        }
        let moved = self.is_moved().then(|| self.new.storage()).flatten();
        let to = moved.map(|it| it.name.clone());
        if let (Some(to), CrdConversion::Webhook(_)) = (to, &self.new.conversion)
            && !self.old.serves(&to)
        {
            let why = "objects would be stored as a webhook converts them, which was never done";
            self.find(CrdChangeProblem::Unjudged, &to, why.to_owned());
        }
    }
}

/// The schemas that have to be compared for a change from one definition to another.
fn wanted(was: &CrdDefinition, is: &CrdDefinition) -> Vec<SchemaComparison> {
    let pair = |read: &str, by: &str| SchemaComparison {
        read: read.to_owned(),
        by: by.to_owned(),
        is_live: false,
        losses_only: false,
    };
    let served = || was.versions.iter().filter(|it| it.is_served).map(|it| it.name.as_str());
    let mut all: Vec<SchemaComparison> =
        served().filter(|it| is.serves(it)).map(|it| pair(it, it)).collect();
    all.extend(kept_in_store(was, is).filter(|it| was.serves(it)).map(|it| pair(it, it)));
    if is.conversion == CrdConversion::None {
        let storages = was.storage().zip(is.storage()).filter(|(from, to)| from.name != to.name);
        if let (Some((_, to)), Some(read)) = (storages, was.readable()) {
            all.push(pair(&read.name, &to.name));
        }
        // Fields that only such a version has are dropped when the object is next written in another version.
        if let Some(to) = is.storage() {
            let gone = served().filter(|it| !is.serves(it) && *it != to.name);
            all.extend(gone.map(|it| SchemaComparison { losses_only: true, ..pair(it, &to.name) }));
        }
    }
    if let (Some(migration), CrdConversion::None) =
        (StoredVersionMigration::between(was, is), &was.conversion)
    {
        let by = &migration.storage;
        let moved = migration.dropped.iter().filter(|it| was.serves(it) && *it != by);
        all.extend(moved.map(|it| SchemaComparison {
            is_live: true,
            losses_only: true,
            ..pair(it, by)
        }));
    }
    let mut unique: Vec<SchemaComparison> = Vec::new();
    for it in all {
        if !unique.contains(&it) {
            unique.push(it);
        }
    }
    unique
}

/// Versions that both definitions have and in which objects may be stored, but that are not served by both.
fn kept_in_store<'d>(
    was: &'d CrdDefinition,
    is: &'d CrdDefinition,
) -> impl Iterator<Item = &'d str> {
    let storage = was.storage().map(|it| it.name.as_str());
    let stored: BTreeSet<&str> = was.stored.iter().map(String::as_str).chain(storage).collect();
    let both = |it: &&str| was.version(it).is_some() && is.version(it).is_some();
    stored.into_iter().filter(both).filter(|it| !(was.serves(it) && is.serves(it)))
}

/// The findings about one object under another schema.
fn judge(
    object: &Value,
    pair: &SchemaVersionPair,
    sink: &mut ObjectFindingSink,
) -> BTreeSet<(CrdChangeProblem, String, String)> {
    let before = &pair.before.root;
    let after = &pair.after.root;
    let mut next = object.clone();
    field_defaults::fill(&mut next, after, sink);
    field_pruning::prune(&mut next, after, Some(before), sink);
    if pair.read == pair.by {
        field_defaults::changed(object, after, before, &mut FieldPath::default(), sink);
    }
    let mut found = sink.take();
    if pair.losses_only {
        found.retain(|it| matches!(it.0, CrdChangeProblem::Lost | CrdChangeProblem::Unjudged));
        return found;
    }
    object_validation::check(&next, after, &mut FieldPath::default(), sink);
    if !sink.has(CrdChangeProblem::Invalid) {
        let change = SchemaNodeWithPrevious { node: after, before: Some(before) };
        validation_rules::ask(&next, change, Some(object), &mut FieldPath::default(), sink);
    }
    let new = sink.take();
    if new.is_empty() {
        return found;
    }
    // If the old schema finds a problem at the same place, the problem does not count against the new definition.
    object_validation::check(object, before, &mut FieldPath::default(), sink);
    if !sink.has(CrdChangeProblem::Invalid) {
        let unchanged = SchemaNodeWithPrevious { node: before, before: None };
        validation_rules::ask(object, unchanged, None, &mut FieldPath::default(), sink);
    }
    let old = sink.take();
    found.extend(new.into_iter().filter(|(problem, path, why)| {
        let is_known = old.contains(&(*problem, path.clone(), why.clone()));
        let was_invalid = old.iter().any(|it| it.0 == CrdChangeProblem::Invalid && it.1 == *path);
        let is_invalid = *problem == CrdChangeProblem::Invalid;
        !(is_known || is_invalid && was_invalid)
    }));
    found
}
