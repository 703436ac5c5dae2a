//! Orders releases by their needs. The releases of a group need only releases of earlier groups.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::spec::Release;

/// How releases are treated that selected releases need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeedsPolicy {
    /// The needed releases are included, and also the releases that these need.
    Include,
    /// The needed releases are left out.
    Skip,
    /// The needed releases are an error.
    Refuse,
}

/// The groups of releases. Needed releases come first. With `only`, the result has only these releases.
///
/// # Errors
/// A needed release does not exist, releases need each other in a cycle, a release names a need twice, or needs are refused.
pub(crate) fn groups(
    releases: &[Release],
    only: &[Release],
    needs: NeedsPolicy,
) -> Result<Vec<Vec<Release>>> {
    let mut places: BTreeMap<String, Vec<&Release>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    let mut needed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for release in releases {
        let id = release.id();
        let known = places.entry(id.clone()).or_default();
        if known.is_empty() {
            order.push(id.clone());
        }
        known.push(release);
        needed.entry(id).or_default().extend(release.needs.iter().cloned());
    }
    check(&needed)?;
    let places_in_order: BTreeMap<&String, usize> =
        order.iter().enumerate().map(|(at, id)| (id, at)).collect();
    let levels = levels(&order, &needed)?;
    let mut wanted: Option<SelectedReleases> =
        (!only.is_empty()).then(|| SelectedReleases::of(only, &needed));
    let mut groups: Vec<Vec<Release>> = Vec::new();
    for level in levels.iter().rev() {
        let mut group: Vec<&String> = Vec::new();
        for id in level {
            let Some(wanted) = &mut wanted else {
                group.push(id);
                continue;
            };
            if wanted.ids.contains(id) {
                group.push(id);
                continue;
            }
            match needs {
                _ if !wanted.needed.contains(id) => {}
                NeedsPolicy::Skip => {}
                NeedsPolicy::Include => {
                    wanted.add(id, &needed);
                    group.push(id);
                }
                NeedsPolicy::Refuse => return Err(unhandled(id, &wanted.dependents(id, &needed))),
            }
        }
        group.sort_by_key(|id| places_in_order.get(id).copied());
        let members = group.into_iter().filter_map(|id| places.get(id)).flatten();
        let members: Vec<Release> = members.map(|release| (*release).clone()).collect();
        if !members.is_empty() {
            groups.push(members);
        }
    }
    groups.reverse();
    Ok(groups)
}

/// The selected releases, and the releases that they need.
struct SelectedReleases {
    ids: BTreeSet<String>,
    needed: BTreeSet<String>,
}

impl SelectedReleases {
    fn of(only: &[Release], needed: &BTreeMap<String, Vec<String>>) -> Self {
        let mut wanted = Self { ids: BTreeSet::new(), needed: BTreeSet::new() };
        only.iter().for_each(|release| wanted.add(&release.id(), needed));
        wanted
    }

    fn add(&mut self, id: &str, needed: &BTreeMap<String, Vec<String>>) {
        if self.ids.insert(id.to_owned()) {
            self.needed.extend(needed.get(id).into_iter().flatten().cloned());
        }
    }

    /// The releases that need a given release.
    fn dependents<'w>(
        &'w self,
        id: &String,
        needed: &BTreeMap<String, Vec<String>>,
    ) -> Vec<&'w String> {
        let needs = |of: &&String| needed.get(*of).is_some_and(|needs| needs.contains(id));
        self.ids.iter().filter(needs).collect()
    }
}

fn check(needed: &BTreeMap<String, Vec<String>>) -> Result<()> {
    for (id, needs) in needed {
        let mut seen = BTreeSet::new();
        for need in needs {
            if !seen.insert(need) {
                return Err(format!("release \"{id}\" needs {need:?} twice: name it once").into());
            }
        }
    }
    for need in needed.values().flatten() {
        if needed.contains_key(need) {
            continue;
        }
        let dependents: Vec<String> = needed
            .iter()
            .filter(|(_, needs)| needs.contains(need))
            .map(|(id, _)| format!("{id:?}"))
            .collect();
        let name = need.rsplit('/').next().unwrap_or_default();
        return Err(format!(
            "release(s) {} depend(s) on an undefined release {need:?}. Perhaps you made a typo in \"needs\" or \
             forgot defining a release named {name:?} with appropriate \"namespace\" and \"kubeContext\"?",
            dependents.join(", ")
        )
        .into());
    }
    Ok(())
}

/// Groups ids by the length of the longest chain of needs that begins at each.
fn levels(order: &[String], needed: &BTreeMap<String, Vec<String>>) -> Result<Vec<Vec<String>>> {
    let mut followers: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
    let mut open: BTreeMap<&String, usize> = BTreeMap::new();
    for id in order {
        let needs = needed.get(id).map(Vec::as_slice).unwrap_or_default();
        open.insert(id, needs.len());
        for need in needs {
            followers.entry(need).or_default().push(id);
        }
    }
    let places: BTreeMap<&String, usize> =
        order.iter().enumerate().map(|(at, id)| (id, at)).collect();
    let mut levels: Vec<Vec<String>> = Vec::new();
    let mut ready: Vec<&String> = order.iter().filter(|id| open.get(id) == Some(&0)).collect();
    while !ready.is_empty() {
        let mut next: Vec<&String> = Vec::new();
        for id in &ready {
            open.remove(id);
            for follower in followers.remove(*id).into_iter().flatten() {
                let Some(left) = open.get_mut(follower) else { continue };
                *left -= 1;
                if *left == 0 {
                    next.push(follower);
                }
            }
        }
        levels.push(ready.into_iter().cloned().collect());
        next.sort_by_key(|id| places.get(id).copied());
        ready = next;
    }
    if !open.is_empty() {
        let waiting: Vec<&String> = order.iter().filter(|id| open.contains_key(id)).collect();
        return Err(cycle(&waiting, needed));
    }
    Ok(levels)
}

/// The error for ids that need each other in a cycle.
fn cycle(waiting: &[&String], needed: &BTreeMap<String, Vec<String>>) -> Error {
    let all: BTreeSet<&String> = waiting.iter().copied().collect();
    let mut path: Vec<&String> = Vec::new();
    let mut places: BTreeMap<&String, usize> = BTreeMap::new();
    let mut current = waiting.first().copied();
    while let Some(id) = current {
        if let Some(start) = places.get(id) {
            path.drain(..*start);
            path.push(id);
            break;
        }
        places.insert(id, path.len());
        path.push(id);
        let needs = needed.get(id);
        current = needs.and_then(|needs| needs.iter().find(|need| all.contains(need)));
    }
    // helmfile writes the path so that each release is needed by the next one.
    path.reverse();
    let names: Vec<&str> = path.into_iter().map(String::as_str).collect();
    format!("cycle detected: {}", names.join(" -> ")).into()
}

fn unhandled(id: &str, dependents: &[&String]) -> Error {
    let quoted: Vec<String> = dependents.iter().map(|id| format!("{id:?}")).collect();
    let names = match quoted.as_slice() {
        [others @ .., last] if others.len() > 1 => format!("{}, and {last}", others.join(", ")),
        few => few.join(" and "),
    };
    let verb = if dependents.len() == 1 { "depends" } else { "depend" };
    let name = id.rsplit('/').next().unwrap_or_default();
    format!(
        "release {names} {verb} on {id:?} which does not match the selectors. Please add a selector like \
         \"--selector name={name}\", or indicate whether to skip (--skip-needs) or include (--include-needs) these \
         dependencies"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(name: &str, needs: &[&str]) -> Release {
        let needs = needs.iter().map(|need| (*need).to_owned()).collect();
        Release { name: name.to_owned(), needs, ..Release::default() }
    }

    fn names(groups: &[Vec<Release>]) -> Vec<Vec<&str>> {
        groups
            .iter()
            .map(|group| group.iter().map(|release| release.name.as_str()).collect())
            .collect()
    }

    #[test]
    fn what_is_needed_comes_first_and_groups_keep_the_order_of_the_file() {
        let all = [
            release("web", &["db", "cache"]),
            release("db", &[]),
            release("cache", &[]),
            release("x", &[]),
        ];
        let found = groups(&all, &[], NeedsPolicy::Refuse).unwrap();
        assert_eq!(names(&found), [vec!["db", "cache", "x"], vec!["web"]]);
        let only = [all[0].clone()];
        assert_eq!(names(&groups(&all, &only, NeedsPolicy::Skip).unwrap()), [["web"]]);
        assert_eq!(
            names(&groups(&all, &only, NeedsPolicy::Include).unwrap()),
            [vec!["db", "cache"], vec!["web"]]
        );
        assert!(groups(&all, &only, NeedsPolicy::Refuse).is_err());
    }

    #[test]
    fn a_long_chain_is_put_in_order_in_time_that_grows_with_its_length() {
        // Each pass over all that is left, for each of its members, would take hours.
        const LENGTH: usize = 20_000;
        let name = |at: usize| format!("r{at}");
        let all: Vec<Release> = (0..LENGTH)
            .map(|at| match at.checked_sub(1) {
                None => release("r0", &[]),
                Some(before) => release(&name(at), &[&name(before)]),
            })
            .collect();
        let found = groups(&all, &all, NeedsPolicy::Refuse).unwrap();
        assert_eq!(found.len(), LENGTH);
        assert!(found.iter().enumerate().all(|(at, group)| group[0].name == name(at)));
    }

    #[test]
    fn a_cycle_names_its_path() {
        let all = [release("a", &["b"]), release("b", &["a"]), release("c", &["a"])];
        let error = groups(&all, &[], NeedsPolicy::Include).unwrap_err().to_string();
        assert_eq!(error, "cycle detected: a -> b -> a");
        assert!(groups(&[release("a", &["a"])], &[], NeedsPolicy::Include).is_err());
        assert!(groups(&[release("a", &["zz"])], &[], NeedsPolicy::Include).is_err());
    }
}
