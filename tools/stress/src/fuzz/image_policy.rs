//! Image policies with their filters, and the tags of a registry (`image`).

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use image::{FilterTags, ImageName, PolicyChoice, TagList, TagPolicy};

use super::FuzzTarget;
use super::USUAL_STACK;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "policy",
    stack: USUAL_STACK,
    words: &[
        b"\n",
        b"v1.2.3",
        b"1.2.3-rc.1+build",
        b"01.02.03",
        b">=1.0.0-0 <2 || ^3.x",
        b"1.2 - 2.x",
        b"~",
        b"*",
        b"main-0a1b2c3-1700000000",
        b"^main-(?P<sha>[a-f0-9]+)-(?P<ts>[0-9]+)$",
        b"$ts",
        b"${ts}",
        b"$0$0$0",
        b"$$",
        b"(a|b)*c",
        b"(?i)",
        b"[a-z",
        b"a{1000}",
        b"\\pL{100}",
        b"1e309",
        b"NaN",
        b"-Inf",
        b"0x1p4",
        b"1_000",
        b"18446744073709551616",
        b"99999999999999999999.1.1",
        b"latest",
        b".sig",
        b"ghcr.io/acme/app",
        b"[::1]:5000/a",
        b"@sha256:",
        b"\xc5\xbf",
        b"\xff",
        b"\0",
    ],
    recorded: &["image/policy.jsonl", "image/tags.jsonl", "image/reference.jsonl"],
    read,
};

/// The first lines of an input are a pattern, the part to extract, and a range or an order. All other lines are tags.
fn read(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.split('\n').map(str::to_owned);
    let [pattern, extract, range] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let tags: Vec<String> = lines.collect();
    let meter = || {
        WorkMeter::new(
            WorkAllowance { steps: 1_000_000_000, bytes: 64 << 20 },
            StopSignal::default(),
        )
    };
    drop(ImageName::parse(&pattern, false));
    let Ok(list) = TagList::of_scan(tags, std::slice::from_ref(&extract), &mut meter()) else {
        return;
    };
    let filter = FilterTags { pattern, extract };
    let choices = [
        PolicyChoice { semver: Some(range.clone()), ..PolicyChoice::default() },
        PolicyChoice { alphabetical: Some(range.clone()), ..PolicyChoice::default() },
        PolicyChoice { numerical: Some(range), ..PolicyChoice::default() },
    ];
    for policy in choices.iter().filter_map(|choice| TagPolicy::new(choice).ok()) {
        for filter in [None, Some(&filter)] {
            if let Ok(tag) = policy.latest(filter, list.tags(), &mut meter()) {
                assert!(list.tags().contains(&tag), "{tag} is none of the tags");
                let verdicts = policy.verdicts(filter, list.tags(), Some(&tag), &mut meter());
                if let Ok(verdicts) = verdicts {
                    let first = verdicts.first().map(|verdict| &verdict.tag);
                    assert_eq!(first, Some(&tag), "{verdicts:?}");
                }
                let best = policy.best_tags(filter, list.tags(), 4, &mut meter());
                if let Ok(best) = best {
                    assert_eq!(best.first(), Some(&tag), "{best:?}");
                    let left = policy.not_lower(filter, &best, &tag, &mut meter());
                    assert!(
                        left.is_ok_and(|left| left.contains(&tag)),
                        "{tag} is lower than itself"
                    );
                }
            }
        }
    }
}
