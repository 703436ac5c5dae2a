//! Chooses the random operations of the soak test.
//!
//! `super::soak_environment` performs them, and `super::soak_model` has the state that they should lead to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use e2e::api_server_fault_proxy::ApiFault;
use e2e::random_sequence::RandomSequence;

use super::soak_model::{KustomizationState, ROOT_KUSTOMIZATION_COUNT, SoakModel};

/// A random operation of the soak test.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SoakOperation {
    /// A commit changes an object in a folder, adds one, or removes one.
    Push(String, CommitChange),
    /// A user changes the value of an object by hand.
    Edit(String),
    /// A user deletes an object by hand.
    Delete(String),
    /// A user suspends a Kustomization.
    Suspend(String),
    /// A user resumes a Kustomization.
    Resume(String),
    /// A user deletes a Kustomization.
    Remove(String),
    /// A user creates a deleted Kustomization again.
    Recreate(String),
    /// The proxy makes the API server seem to fail in this way, for this long.
    Fault(ApiFault, Duration),
    /// The proxy answers as if the API server had compacted its history.
    Compact,
    /// The proxy ends all watches.
    EndWatches,
    /// The proxy closes all connections.
    Disconnect,
    /// windlass is killed.
    Kill,
}

/// The change in a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommitChange {
    /// The commit gives an object another value.
    Value(String),
    /// The commit adds an object.
    More,
    /// The commit removes an object.
    Less(String),
}

impl SoakOperation {
    /// Chooses the next random operation that is possible now. `may_kill` allows that windlass is killed.
    pub(super) fn choose(model: &SoakModel, random: &mut RandomSequence, may_kill: bool) -> Self {
        loop {
            if let Some(operation) = Self::try_choose(model, random, may_kill) {
                return operation;
            }
        }
    }

    /// Chooses a commit, an edit by hand or a deletion by hand.
    pub(super) fn choose_change(model: &SoakModel, random: &mut RandomSequence) -> Self {
        loop {
            let operation = Self::choose(model, random, false);
            if matches!(operation, Self::Push(..) | Self::Edit(_) | Self::Delete(_)) {
                return operation;
            }
        }
    }

    /// Chooses a random operation. `None` if that operation is not possible now.
    fn try_choose(model: &SoakModel, random: &mut RandomSequence, may_kill: bool) -> Option<Self> {
        let there = [KustomizationState::Active, KustomizationState::Suspended];
        Some(match random.below(100) {
            0..12 => {
                let folder = one_of(model.folders.keys().cloned().collect(), random)?;
                let change = change(model, &folder, random)?;
                Self::Push(folder, change)
            }
            12..47 => Self::Edit(object(model, random)?),
            47..68 => Self::Delete(object(model, random)?),
            68..75 => Self::Suspend(one_of(model.those(&[KustomizationState::Active]), random)?),
            75..83 => Self::Resume(one_of(model.those(&[KustomizationState::Suspended]), random)?),
            83..87 => {
                // The deletion of a suspended Kustomization leaves its objects behind. The first Kustomizations stay,
                // because others depend on them.
                let mut active = model.those(&[KustomizationState::Active]);
                active.retain(|name| {
                    model.folders.keys().position(|it| it == name) >= Some(ROOT_KUSTOMIZATION_COUNT)
                });
                Self::Remove(one_of(active, random)?)
            }
            87..92 => Self::Recreate(one_of(model.those(&[KustomizationState::Deleted]), random)?),
            92..95 => fault(random),
            95 => Self::Compact,
            96..98 => Self::EndWatches,
            98 => Self::Disconnect,
            _ if may_kill && !model.those(&there).is_empty() => Self::Kill,
            _ => return None,
        })
    }

    fn sort(&self) -> &'static str {
        match self {
            Self::Push(..) => "pushes",
            Self::Edit(_) => "edits",
            Self::Delete(_) => "deletions",
            Self::Suspend(_) | Self::Resume(_) => "suspends and resumes",
            Self::Remove(_) | Self::Recreate(_) => "Kustomizations deleted and created",
            Self::Fault(..) | Self::Compact | Self::EndWatches | Self::Disconnect => "faults",
            Self::Kill => "kills",
        }
    }
}

fn one_of<T>(all: Vec<T>, random: &mut RandomSequence) -> Option<T> {
    let at = random.below(all.len());
    all.into_iter().nth(at)
}

fn object(model: &SoakModel, random: &mut RandomSequence) -> Option<String> {
    one_of(model.objects().into_keys().collect(), random)
}

fn change(model: &SoakModel, folder: &str, random: &mut RandomSequence) -> Option<CommitChange> {
    let objects: Vec<String> = model.folders.get(folder)?.objects.keys().cloned().collect();
    Some(match random.below(10) {
        0..6 => CommitChange::Value(one_of(objects, random)?),
        // A folder never becomes empty, and has at most eight objects.
        6 | 7 if objects.len() < 8 => CommitChange::More,
        8 | 9 if objects.len() > 2 => CommitChange::Less(one_of(objects, random)?),
        _ => return None,
    })
}

fn fault(random: &mut RandomSequence) -> SoakOperation {
    let lasts = Duration::from_millis(500 + random.below(6000) as u64);
    let percent = [30, 100][random.below(2)];
    let fault = match random.below(5) {
        0 => ApiFault::Gone,
        1 => ApiFault::Slow(Duration::from_millis(300)),
        2 => ApiFault::Refusing { status: 429, percent },
        3 => ApiFault::Refusing { status: 503, percent },
        _ => ApiFault::Unauthorized,
    };
    SoakOperation::Fault(fault, lasts)
}

/// How many operations of each kind there were.
#[derive(Debug, Default)]
pub(super) struct OperationCounts(BTreeMap<&'static str, usize>);

impl OperationCounts {
    /// Counts an operation by its sort.
    pub(super) fn add(&mut self, operation: &SoakOperation) {
        *self.0.entry(operation.sort()).or_default() += 1;
    }
}

impl fmt::Display for OperationCounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.0.iter().map(|(sort, count)| format!("{count} {sort}")).collect();
        out.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_happens_and_nothing_that_cannot() {
        let mut model = SoakModel::new(20);
        model.put("k012", KustomizationState::Suspended);
        model.put("k013", KustomizationState::Deleted);
        let mut random = RandomSequence::new(3);
        let mut counts = OperationCounts::default();
        for _ in 0..3000 {
            let operation = SoakOperation::choose(&model, &mut random, true);
            counts.add(&operation);
            match operation {
                SoakOperation::Remove(name) => {
                    assert!(name.as_str() > "k009" && name != "k012", "{name}");
                }
                SoakOperation::Resume(name) => assert_eq!(name, "k012"),
                SoakOperation::Recreate(name) => assert_eq!(name, "k013"),
                SoakOperation::Edit(name) | SoakOperation::Delete(name) => {
                    assert!(!name.starts_with("k013"), "{name}");
                }
                _ => {}
            }
        }
        assert_eq!(counts.0.len(), 7, "{counts}");
        let kills = (0..3000)
            .filter(|_| SoakOperation::choose(&model, &mut random, false) == SoakOperation::Kill);
        assert_eq!(kills.count(), 0);
    }
}
