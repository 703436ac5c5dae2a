//! In which wave an applier is.

use std::collections::BTreeSet;

/// Which appliers are in a wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaveSelection {
    /// Those whose label has one of these values.
    Values(Vec<String>),
    /// So many percent of all, after those of the waves before.
    Percent(u8),
}

/// What of an applier says in which wave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AssignedMember<'m> {
    /// The value of the label.
    pub label: Option<&'m str>,
    /// What counts once for percentages: the cluster of an applier that names one, so that all appliers of a cluster are in one
    /// wave; the applier itself otherwise.
    pub unit: &'m str,
}

/// The wave of each applier, by its index. An applier without the label, or with a value that no wave has, is in the last wave:
/// no applier goes earlier because a label was dropped.
#[must_use]
pub fn assign(waves: &[WaveSelection], members: &[AssignedMember<'_>]) -> Vec<usize> {
    let units: BTreeSet<&str> = members.iter().map(|it| it.unit).collect();
    let ordered: Vec<&str> = units.into_iter().collect();
    let ends = wave_ends(waves, ordered.len());
    let last = waves.len().saturating_sub(1);
    let wave_of = |member: &AssignedMember<'_>| {
        let place = ordered.binary_search(&member.unit).unwrap_or(usize::MAX);
        let takes = |(wave, end): (&WaveSelection, &usize)| match wave {
            WaveSelection::Values(values) => {
                member.label.is_some_and(|label| values.iter().any(|value| value == label))
            }
            WaveSelection::Percent(_) => place < *end,
        };
        waves.iter().zip(&ends).position(takes).unwrap_or(last)
    };
    members.iter().map(wave_of).collect()
}

/// How many units are in each wave and those before it, by percentages. A part of a unit counts as one.
fn wave_ends(waves: &[WaveSelection], units: usize) -> Vec<usize> {
    let mut percent: usize = 0;
    let end_of = |wave: &WaveSelection| {
        if let WaveSelection::Percent(more) = wave {
            percent = percent.saturating_add(usize::from(*more)).min(100);
        }
        units.saturating_mul(percent).div_ceil(100)
    };
    waves.iter().map(end_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(of: &[&str]) -> WaveSelection {
        WaveSelection::Values(of.iter().map(|it| (*it).to_owned()).collect())
    }

    #[test]
    fn who_has_no_label_or_an_unknown_value_is_in_the_last_wave() {
        let waves = [values(&["canary"]), values(&["staging", "test"]), values(&["production"])];
        let labels = [Some("canary"), Some("test"), Some("production"), Some("typo"), None];
        let members = labels.map(|label| AssignedMember { label, unit: "u" });
        assert_eq!(assign(&waves, &members), [0, 1, 2, 2, 2]);
    }

    #[test]
    fn percentages_are_of_units_and_what_is_left_is_in_the_last_wave() {
        let waves = [10, 40, 20].map(WaveSelection::Percent);
        let units = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let members = units.map(|unit| AssignedMember { label: None, unit });
        assert_eq!(assign(&waves, &members), [0, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        let few = ["a", "b"].map(|unit| AssignedMember { label: None, unit });
        assert_eq!(assign(&waves, &few), [0, 2], "a part of a unit counts as one");
    }

    #[test]
    fn a_cluster_that_several_appliers_name_counts_once() {
        let waves = [50, 50].map(WaveSelection::Percent);
        let units = ["east", "west", "east", "east"];
        let members = units.map(|unit| AssignedMember { label: None, unit });
        assert_eq!(assign(&waves, &members), [0, 1, 0, 0]);
    }
}
