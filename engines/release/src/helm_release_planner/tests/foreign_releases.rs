//! Releases in the place of the known one: of other owners, of other contexts of the same owner, of the stock helm.

use super::*;

/// A settled release whose last record and journal were changed by another owner, context or client, and that is to be removed.
fn removed(change: impl Fn(&mut ReleaseRecord, &mut Option<OperationJournal>)) -> SimulatedCluster {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.settle();
    let began = Time::from_second(1_800_000_000).unwrap();
    cluster.status.history.iter_mut().for_each(|known| known.first_deployed = Some(began));
    for (record, journal) in cluster.records.values_mut() {
        change(record, journal);
    }
    cluster.desired.deleted = true;
    cluster.log.clear();
    let outcome = cluster.settle();
    assert!(outcome.is_settled(), "{outcome:?}");
    cluster
}

#[test]
fn a_release_in_the_place_of_the_known_one_is_not_uninstalled() {
    let later = |record: &mut ReleaseRecord| {
        let at = Time::from_second(1_900_000_000).unwrap();
        record.info.first_deployed = Some(at.into());
        record.info.last_deployed = Some(at.into());
    };
    let of = |owner: &str, kube_context: &str, journal: &mut Option<OperationJournal>| {
        let journal = journal.as_mut().unwrap();
        (journal.owner, journal.kube_context) = (owner.to_owned(), kube_context.to_owned());
    };
    // Of another owner, of another context of the same owner, and of the stock helm.
    for cluster in [
        removed(|record, journal| {
            later(record);
            of("other", "", journal);
        }),
        removed(|record, journal| {
            later(record);
            of("uid", "east", journal);
        }),
        removed(|record, journal| {
            later(record);
            *journal = None;
        }),
    ] {
        assert!(cluster.applied.is_some() && cluster.records.len() == 1, "{:?}", cluster.log);
        let refusals = cluster.events.iter().filter(|it| it.contains("is not uninstalled")).count();
        assert_eq!(refusals, 1, "{:?}", cluster.events);
        assert!(cluster.status.history.is_empty(), "{:?}", cluster.status);
    }
    // A release that was adopted as it is, and one that another client upgraded, is the known one.
    for cluster in [
        removed(|_, journal| of("former", "", journal)),
        removed(|record, journal| {
            let at = Time::from_second(1_900_000_000).unwrap();
            record.info.last_deployed = Some(at.into());
            *journal = None;
        }),
    ] {
        assert!(cluster.records.is_empty(), "{:?}", cluster.log);
    }
}

#[test]
fn an_operation_of_another_context_is_not_taken_for_an_own_one() {
    let mut cluster = SimulatedCluster::new(desired("1.0.0", "a"));
    cluster.slow.insert("ready".to_owned());
    cluster.run();
    let journal = cluster.records[&1].1.clone().unwrap();
    assert!(journal.is_open() && cluster.desired.owns(&journal));
    cluster.desired.kube_context = "east".to_owned();
    assert!(!cluster.desired.owns(&journal));
    let owner = &cluster.desired.owner;
    assert!(!is_under_way(owner, "east", &cluster.status, &cluster.revisions()));
}
