//! Assigns appliers to the waves of a rollout.

use std::collections::BTreeSet;

/// Which appliers are in a wave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaveSelection {
    /// The appliers whose label has one of these values.
    Values(Vec<String>),
    /// This percentage of all units, beginning after the units of the earlier waves.
    Percent(u8),
}

/// The data of an applier that decides about its wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaveAssignmentInput<'m> {
    /// The value of the label.
    pub label: Option<&'m str>,
    /// The unit that percentages count. It is the cluster of the applier if the applier names one, so that all appliers of a
    /// cluster are in the same wave. Otherwise it is the applier itself.
    pub unit: &'m str,
}

/// Returns the index of each applier's wave. An applier whose label is missing or matches no wave is in the last wave, so that
/// dropping a label never moves an applier to an earlier wave.
#[must_use]
pub fn assign(waves: &[WaveSelection], members: &[WaveAssignmentInput<'_>]) -> Vec<usize> {
    let units: BTreeSet<&str> = members.iter().map(|it| it.unit).collect();
    let ordered: Vec<&str> = units.into_iter().collect();
    let ends = wave_ends(waves, ordered.len());
    let last = waves.len().saturating_sub(1);
    let wave_of = |member: &WaveAssignmentInput<'_>| {
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

/// For each wave, the number of units in this and all earlier waves, by percentages. Fractions are rounded up.
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
        let members = labels.map(|label| WaveAssignmentInput { label, unit: "u" });
        assert_eq!(assign(&waves, &members), [0, 1, 2, 2, 2]);
    }

    #[test]
    fn percentages_are_of_units_and_what_is_left_is_in_the_last_wave() {
        let waves = [10, 40, 20].map(WaveSelection::Percent);
        let units = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let members = units.map(|unit| WaveAssignmentInput { label: None, unit });
        assert_eq!(assign(&waves, &members), [0, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
        let few = ["a", "b"].map(|unit| WaveAssignmentInput { label: None, unit });
        assert_eq!(assign(&waves, &few), [0, 2], "a part of a unit counts as one");
    }

    #[test]
    fn a_cluster_that_several_appliers_name_counts_once() {
        let waves = [50, 50].map(WaveSelection::Percent);
        let units = ["east", "west", "east", "east"];
        let members = units.map(|unit| WaveAssignmentInput { label: None, unit });
        assert_eq!(assign(&waves, &members), [0, 1, 0, 0]);
    }
}
