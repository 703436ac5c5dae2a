//! Policies and filters; the recorded cases of Flux are replayed in `tests/recorded_flux_answers.rs`.

use golang::work_meter::{StopSignal, WorkAllowance};
use proptest::prelude::*;

use super::*;

fn latest(
    choice: &PolicyChoice,
    filter: Option<&FilterTags>,
    tags: &[&str],
) -> Result<String, PolicyError> {
    let tags: Vec<String> = tags.iter().map(|it| (*it).to_owned()).collect();
    let allowance = WorkAllowance { steps: 10_000_000, bytes: 1 << 20 };
    TagPolicy::new(choice)?.latest(
        filter,
        &tags,
        &mut WorkMeter::new(allowance, StopSignal::default()),
    )
}

fn semver(range: &str) -> PolicyChoice {
    PolicyChoice { semver: Some(range.to_owned()), ..PolicyChoice::default() }
}

fn numerical(order: &str) -> PolicyChoice {
    PolicyChoice { numerical: Some(order.to_owned()), ..PolicyChoice::default() }
}

fn filter(pattern: &str, extract: &str) -> FilterTags {
    FilterTags { pattern: pattern.to_owned(), extract: extract.to_owned() }
}

#[test]
fn of_equal_ones_the_list_decides() {
    assert_eq!(latest(&semver("*"), None, &["v1.0.0", "1.0.0", "1.0"]).unwrap(), "v1.0.0");
    assert_eq!(latest(&numerical("asc"), None, &["1", "01", "1.0", "0"]).unwrap(), "1.0");
    let build = filter(r"^main-(?P<n>\d+)-", "$n");
    let tags = ["main-2-b", "main-2-a", "main-1-z", "other"];
    assert_eq!(latest(&numerical(""), Some(&build), &tags).unwrap(), "main-2-a");
}

fn meter() -> WorkMeter {
    WorkMeter::new(WorkAllowance { steps: 10_000_000, bytes: 1 << 20 }, StopSignal::default())
}

fn alphabetical(order: &str) -> PolicyChoice {
    PolicyChoice { alphabetical: Some(order.to_owned()), ..PolicyChoice::default() }
}

fn owned(tags: &[&str]) -> Vec<String> {
    tags.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn the_best_tags_are_in_order_and_no_more_than_asked_for() {
    let build = filter(r"^main-(?P<n>\d+)-", "$n");
    for (choice, filter, tags, count, expected) in [
        (
            semver("<2"),
            None,
            vec!["1.0.0", "2.0.0", "v1.2.0", "latest", "1.10.0", "1.2.0"],
            3,
            vec!["1.10.0", "v1.2.0", "1.2.0"],
        ),
        (alphabetical("asc"), None, vec!["b", "c", "a", "c"], 3, vec!["c", "b"]),
        (alphabetical("desc"), None, vec!["b", "c", "a"], 9, vec!["a", "b", "c"]),
        (numerical("asc"), None, vec!["1", "01", "3", "2"], 9, vec!["3", "2", "01", "1"]),
        (numerical("desc"), None, vec!["1", "3", "2"], 2, vec!["1", "2"]),
        // Those with the same number follow each other, the last first.
        (
            numerical("asc"),
            Some(&build),
            vec!["main-2-b", "main-3-a", "main-2-a", "other"],
            9,
            vec!["main-3-a", "main-2-a", "main-2-b"],
        ),
    ] {
        let policy = TagPolicy::new(&choice).unwrap();
        let best = policy.best_tags(filter, &owned(&tags), count, &mut meter()).unwrap();
        assert_eq!(best, owned(&expected), "{choice:?}");
    }
}

#[test]
fn what_is_lower_is_decided_by_the_order_of_the_policy() {
    let build = filter(r"^main-(?P<n>\d+)-", "$n");
    for (choice, filter, than, others, lower) in [
        (semver("*"), None, "1.2.0", vec!["1.3.0", "1.2.0", "v1.2.0", "x"], vec!["1.1.9"]),
        (semver("*"), None, "latest", vec!["1.0.0"], vec![]),
        (alphabetical("asc"), None, "b", vec!["c", "b"], vec!["a"]),
        (alphabetical("desc"), None, "b", vec!["a", "b"], vec!["c"]),
        (numerical("asc"), None, "10", vec!["11", "10"], vec!["9"]),
        (numerical("desc"), None, "10", vec!["9", "10"], vec!["11"]),
        (numerical("asc"), Some(&build), "main-10-b", vec!["main-10-a", "x"], vec!["main-9-z"]),
        // It is none that the filter lets through.
        (numerical("asc"), Some(&build), "10", vec!["main-10-a", "main-9-z"], vec![]),
    ] {
        let policy = TagPolicy::new(&choice).unwrap();
        let all = owned(&[others.clone(), lower].concat());
        let left = policy.not_lower(filter, &all, than, &mut meter()).unwrap();
        assert_eq!(left, owned(&others), "{choice:?}");
    }
}

#[test]
fn each_tag_has_a_verdict_and_those_that_count_come_first_and_in_order() {
    use std::cmp::Ordering::{Equal, Greater, Less};

    use TagEligibility::{Counts, NotANumber, NotAVersion, NotMatched, OutsideRange};

    let build = filter(r"^main-(?P<n>.+)-", "$n");
    for (choice, filter, chosen, tags, expected) in [
        (
            semver("<2"),
            None,
            Some("1.1.0"),
            vec!["1.0.0", "2.0.0", "v1.1.0", "1.2.0-rc.1", "latest", "1.10.0", "1.0.0", "0.1"],
            vec![
                ("1.10.0", Counts, Some(Greater)),
                ("v1.1.0", Counts, Some(Equal)),
                ("1.0.0", Counts, Some(Less)),
                ("2.0.0", OutsideRange, Some(Greater)),
                ("1.2.0-rc.1", OutsideRange, Some(Greater)),
                ("latest", NotAVersion, None),
                ("0.1", NotAVersion, None),
            ],
        ),
        // What cannot be compared with the tags is neither higher nor lower than they are.
        (semver("*"), None, Some("latest"), vec!["1.0.0"], vec![("1.0.0", Counts, None)]),
        (semver("*"), None, None, vec!["1.0.0"], vec![("1.0.0", Counts, None)]),
        (
            alphabetical("desc"),
            None,
            Some("b"),
            vec!["c", "a"],
            vec![("a", Counts, Some(Greater)), ("c", Counts, Some(Less))],
        ),
        (
            numerical("asc"),
            Some(&build),
            Some("main-2-b"),
            vec!["main-x-a", "main-10-a", "main-2-a", "v1", "main-1-a"],
            vec![
                ("main-10-a", Counts, Some(Greater)),
                ("main-2-a", Counts, Some(Equal)),
                ("main-1-a", Counts, Some(Less)),
                ("main-x-a", NotANumber, None),
                ("v1", NotMatched, None),
            ],
        ),
        (semver("*"), None, None, vec![], vec![]),
    ] {
        let policy = TagPolicy::new(&choice).unwrap();
        let verdicts = policy.verdicts(filter, &owned(&tags), chosen, &mut meter()).unwrap();
        let found: Vec<_> =
            verdicts.iter().map(|it| (it.tag.as_str(), it.standing, it.order)).collect();
        assert_eq!(found, expected, "{choice:?}");
    }
}

#[test]
fn verdicts_say_what_is_compared_and_their_cost_is_counted() {
    let policy = TagPolicy::new(&numerical("asc")).unwrap();
    let build = filter(r"^main-(?P<n>\d+)$", "$n");
    let tags = owned(&["main-7", "other"]);
    let verdicts = policy.verdicts(Some(&build), &tags, None, &mut meter()).unwrap();
    let compared: Vec<_> = verdicts.iter().map(|it| it.compared.as_deref()).collect();
    assert_eq!(compared, [Some("7"), None]);
    let few = WorkAllowance { steps: 10, bytes: 1 << 20 };
    let error = policy.verdicts(None, &tags, None, &mut WorkMeter::new(few, StopSignal::default()));
    assert_eq!(error, Err(PolicyError::Comparison(WorkLimitExceeded::Steps(10))));
    let bad = policy.verdicts(Some(&filter("[", "")), &tags, None, &mut meter());
    assert!(matches!(bad, Err(PolicyError::Pattern { .. })), "{bad:?}");
}

#[test]
fn a_tag_that_is_no_number_fails_the_policy() {
    let error = latest(&numerical("desc"), None, &["1", "latest"]).unwrap_err();
    assert_eq!(error.to_string(), "failed to parse invalid numeric value 'latest'");
    assert!(!error.is_terminal());
    let error = latest(&numerical("sideways"), None, &["1"]).unwrap_err();
    assert!(error.is_terminal());
    assert!(
        error
            .to_string()
            .starts_with("invalid policy: invalid order argument provided: 'SIDEWAYS'")
    );
}

#[test]
fn a_filter_that_costs_too_much_is_an_error() {
    let long = "a".repeat(1 << 20);
    let error = latest(&semver("*"), Some(&filter("(a|b)*c", "")), &[long.as_str()]).unwrap_err();
    assert!(matches!(error, PolicyError::Work(_)) && !error.is_terminal(), "{error}");
    let error = latest(&semver("*"), Some(&filter("a", &"$0".repeat(4096))), &["a"]).unwrap_err();
    assert!(matches!(error, PolicyError::Extract) && error.is_terminal(), "{error}");
    let doubled = filter("(?s).*", &"$0".repeat(2048));
    let error = latest(&semver("*"), Some(&doubled), &[&long[..4096]]).unwrap_err();
    assert!(matches!(error, PolicyError::Work(_)), "{error}");
}

#[test]
fn comparing_and_keeping_tags_is_counted() {
    let tags: Vec<String> = (0..1_000).map(|at| format!("1.0.{at}")).collect();
    let mut meter =
        WorkMeter::new(WorkAllowance { steps: 200_000, bytes: 0 }, StopSignal::default());
    let range = vec!["1.0.0"; 30].join("||");
    let error = TagPolicy::new(&semver(&range)).unwrap().latest(None, &tags, &mut meter);
    assert_eq!(error, Err(PolicyError::Comparison(WorkLimitExceeded::Steps(200_000))));
    let bytes = 1_000 * BYTES_PER_CANDIDATE;
    let mut meter = WorkMeter::new(WorkAllowance { steps: u64::MAX, bytes }, StopSignal::default());
    let filter = filter(".", "");
    let error = TagPolicy::new(&semver("*")).unwrap().latest(Some(&filter), &tags, &mut meter);
    assert_eq!(error, Err(PolicyError::Work(WorkLimitExceeded::Bytes(bytes))));
}

proptest! {
    #[test]
    fn what_is_chosen_is_one_of_the_tags(
        tags in prop::collection::vec("[v0-9.a-z-]{0,10}", 0..8),
        pattern in "[a-z0-9.*+()\\^$|-]{0,8}",
        extract in "[$0-9{}a-z]{0,6}",
        range in "[0-9.*x~^<>= |-]{0,10}",
    ) {
        let known: Vec<&str> = tags.iter().map(String::as_str).collect();
        let alphabetical = PolicyChoice { alphabetical: Some(String::new()), ..PolicyChoice::default() };
        for choice in [semver(&range), numerical("desc"), alphabetical] {
            for filter in [None, Some(&filter(&pattern, &extract))] {
                if let Ok(tag) = latest(&choice, filter, &known) {
                    prop_assert!(tags.contains(&tag));
                }
                // Each of the best is the latest of what is left without those before it.
                let Ok(policy) = TagPolicy::new(&choice) else { continue };
                // What has a verdict that it is the first of those that count is chosen.
                if let Ok(verdicts) = policy.verdicts(filter, &tags, None, &mut meter()) {
                    let is_of_numbers =
                        verdicts.iter().all(|it| it.standing != TagEligibility::NotANumber);
                    let first = verdicts.iter().find(|it| it.counts()).map(|it| it.tag.clone());
                    if is_of_numbers {
                        prop_assert_eq!(first, latest(&choice, filter, &known).ok());
                    }
                }
                let mut left = tags.clone();
                left.sort();
                left.dedup();
                let Ok(best) = policy.best_tags(filter, &left, 3, &mut meter()) else { continue };
                for tag in best {
                    let latest = policy.latest(filter, &left, &mut meter());
                    prop_assert_eq!(latest.as_ref(), Ok(&tag));
                    left.retain(|it| *it != tag);
                }
            }
        }
    }
}
