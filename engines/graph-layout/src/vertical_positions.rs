//! The height of each place. A place is as near as possible to the middle of its neighbours, in the order of its
//! column, and covers no other place.

use super::GraphSpacing;
use super::columns::Columns;

/// How often heights are adjusted, from right to left and back.
const ADJUSTING_SWEEPS: usize = 2;

/// Places of a column that touch each other and are moved together.
#[derive(Debug, Clone, Copy)]
struct TouchingPlaces {
    /// The sum of the positions that these places would have, each without the places above it.
    sum: i64,
    count: i64,
}

impl TouchingPlaces {
    /// The common position of the places, rounded down.
    fn top(self) -> i64 {
        self.sum.div_euclid(self.count.max(1))
    }
}

/// The upper side of each place. The highest place is at 0.
pub(super) fn tops(columns: &Columns, spacing: GraphSpacing) -> Vec<i64> {
    let step = i64::from(spacing.node_height) + i64::from(spacing.row_gap);
    let mut tops = vec![0_i64; columns.places()];
    for column in columns.order() {
        let mut top = 0;
        for place in column {
            set(&mut tops, *place, top);
            top += step;
        }
    }
    let last = columns.order().len();
    for _ in 0..ADJUSTING_SWEEPS {
        for column in (0..last.saturating_sub(1)).rev() {
            adjust(columns, column, &mut tops, step, Columns::behind_of);
        }
        for column in 1..last {
            adjust(columns, column, &mut tops, step, Columns::before_of);
        }
    }
    // What has more places decides last: nodes are in the middle of what is behind them.
    for column in (0..last.saturating_sub(1)).rev() {
        adjust(columns, column, &mut tops, step, Columns::behind_of);
    }
    let highest = tops.iter().copied().min().unwrap_or_default();
    tops.iter_mut().for_each(|top| *top -= highest);
    tops
}

/// Moves the places of a column near their neighbours.
fn adjust(
    columns: &Columns,
    column: usize,
    tops: &mut [i64],
    step: i64,
    neighbours: fn(&Columns, usize) -> &[usize],
) {
    let places = columns.order().get(column).map(Vec::as_slice).unwrap_or_default();
    let mut groups: Vec<TouchingPlaces> = Vec::new();
    let mut above = 0;
    for place in places {
        let wanted = wanted(tops, *place, neighbours(columns, *place));
        let mut group = TouchingPlaces { sum: wanted - above, count: 1 };
        // A place that would cover the places above it moves together with them.
        while let Some(upper) = groups.pop_if(|upper| upper.top() > group.top()) {
            group = TouchingPlaces { sum: group.sum + upper.sum, count: group.count + upper.count };
        }
        groups.push(group);
        above += step;
    }
    let tops_of_groups = groups.iter().flat_map(|group| {
        let count = usize::try_from(group.count).unwrap_or_default();
        std::iter::repeat_n(group.top(), count)
    });
    let mut above = 0;
    for (place, top) in places.iter().zip(tops_of_groups) {
        set(tops, *place, top + above);
        above += step;
    }
}

/// Where a place would be without others in its column: at the middle of its neighbours. Without neighbours, it stays
/// where it is.
fn wanted(tops: &[i64], place: usize, neighbours: &[usize]) -> i64 {
    let of = |place: usize| tops.get(place).copied().unwrap_or_default();
    let count = i64::try_from(neighbours.len()).unwrap_or(i64::MAX);
    match count {
        0 => of(place),
        count => neighbours.iter().map(|it| of(*it)).sum::<i64>().div_euclid(count),
    }
}

fn set(tops: &mut [i64], place: usize, top: i64) {
    if let Some(slot) = tops.get_mut(place) {
        *slot = top;
    }
}
