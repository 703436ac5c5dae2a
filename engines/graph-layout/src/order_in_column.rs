//! The order of the places in a column. A place is as near as possible to the median of its neighbours.

use super::columns::Columns;

/// How often the columns are sorted, from left to right and back.
const SORTING_SWEEPS: usize = 2;

/// Sorts the places of all columns.
pub(super) fn sort(columns: &mut Columns) {
    let last = columns.order().len();
    for _ in 0..SORTING_SWEEPS {
        for column in 1..last {
            sort_column(columns, column, column - 1);
        }
        for column in (1..last).rev() {
            sort_column(columns, column - 1, column);
        }
    }
}

/// A place, with the median position of its neighbours in the other column.
#[derive(Debug, Clone, Copy)]
struct MedianPlace {
    /// Twice the median position, so that it is a whole number.
    median: usize,
    place: usize,
}

/// Sorts one column by the positions in another one. A place without a neighbour in the other column stays where it is.
fn sort_column(columns: &mut Columns, column: usize, by: usize) {
    let mut positions = vec![0_usize; columns.places()];
    for (position, place) in columns.order().get(by).into_iter().flatten().enumerate() {
        if let Some(slot) = positions.get_mut(*place) {
            *slot = position;
        }
    }
    let places = columns.order().get(column).cloned().unwrap_or_default();
    let connected = places.iter().filter_map(|place| {
        let neighbours = match by < column {
            true => columns.before_of(*place),
            false => columns.behind_of(*place),
        };
        let mut at: Vec<usize> =
            neighbours.iter().filter_map(|it| positions.get(*it).copied()).collect();
        at.sort_unstable();
        Some(MedianPlace { median: doubled_median(&at)?, place: *place })
    });
    let mut connected: Vec<MedianPlace> = connected.collect();
    let is_connected = {
        let mut all = vec![false; columns.places()];
        for it in &connected {
            if let Some(slot) = all.get_mut(it.place) {
                *slot = true;
            }
        }
        all
    };
    // The sort is stable, so places with the same median keep their order.
    connected.sort_by_key(|it| it.median);
    let mut next = connected.into_iter().map(|it| it.place);
    let sorted: Vec<usize> = places
        .into_iter()
        .map(|place| match is_connected.get(place) {
            Some(true) => next.next().unwrap_or(place),
            _ => place,
        })
        .collect();
    if let Some(order) = columns.order_mut().get_mut(column) {
        *order = sorted;
    }
}

/// Twice the median of sorted numbers; `None` if there are none.
fn doubled_median(sorted: &[usize]) -> Option<usize> {
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get((sorted.len() - 1) / 2)?;
    Some(upper + lower)
}
