//! The order in which namespaces have their turn, if not all of their work can be done at once.
//!
//! The work of one namespace delays no other. The first item of each namespace comes first, then the second item of each. The
//! next pass begins after the namespace that was served last.

use std::collections::BTreeMap;

/// A round-robin order of namespaces, which begins behind the namespace that was served last.
#[derive(Debug, Default)]
pub(super) struct NamespaceRoundRobin {
    last: String,
}

impl NamespaceRoundRobin {
    /// Orders the work of namespaces, so that they take turns. The work of one namespace keeps its order.
    pub(super) fn order<T>(&self, all: Vec<(String, T)>) -> Vec<(String, T)> {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut turns: BTreeMap<(usize, bool, String), T> = BTreeMap::new();
        for (namespace, needed) in all {
            let count = counts.entry(namespace.clone()).or_default();
            let is_behind = namespace > self.last;
            turns.insert((*count, !is_behind, namespace), needed);
            *count += 1;
        }
        turns.into_iter().map(|((_, _, namespace), needed)| (namespace, needed)).collect()
    }

    /// Records that a namespace had its turn, so that the next namespace follows.
    pub(super) fn served(&mut self, namespace: &str) {
        namespace.clone_into(&mut self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_needs_much_is_served_as_often_as_the_others() {
        let mut turns = NamespaceRoundRobin::default();
        let needed = || {
            let mut all: Vec<_> = (0..500).map(|at| ("a".to_owned(), at)).collect();
            all.extend((0..2).map(|at| ("b".to_owned(), at)));
            all.push(("c".to_owned(), 0));
            all
        };
        let first = |turns: &NamespaceRoundRobin| {
            let order = turns.order(needed());
            assert_eq!(order.len(), 503);
            let shown = order.iter().take(6).map(|(namespace, at)| format!("{namespace}{at}"));
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(first(&turns), "a0 b0 c0 a1 b1 a2");
        turns.served("a");
        assert_eq!(first(&turns), "b0 c0 a0 b1 a1 a2");
        turns.served("c");
        assert_eq!(first(&turns), "a0 b0 c0 a1 b1 a2");
    }

    #[test]
    fn more_namespaces_than_a_pass_serves_all_come_to_their_turn() {
        let mut turns = NamespaceRoundRobin::default();
        let needed = || (0..10).map(|at| (format!("n{at}"), ())).collect::<Vec<_>>();
        let mut served = Vec::new();
        for _ in 0..5 {
            for (namespace, ()) in turns.order(needed()).into_iter().take(4) {
                turns.served(&namespace);
                served.push(namespace);
            }
        }
        let count = |at: usize| served.iter().filter(|it| **it == format!("n{at}")).count();
        assert!((0..10).all(|at| count(at) == 2), "{served:?}");
    }
}
