//! [`Nodes`]: identifies the node of an executable to which a record belongs.
//!
//! The runtime lists the nodes of an executable graph with the IDs that the driver assigned to the nodes of the
//! original graph. The nodes of the executable have different IDs. Nodes of the graph itself keep the lower half of
//! their IDs. Nodes of child graphs are either numbered after the graph's nodes, one child graph after another in the
//! order of the parts, or have their own upper half.
//! [`activity_node`](warpsmith_runtime::driver::activity::ActivityDriver::activity_node) describes this numbering.
//!
//! A driver can deviate from this scheme, and the numbers are unknown if CUPTI was not active when the executable was
//! created. Therefore, every assignment is checked against the work of the nodes. Nodes that share an upper half match
//! a part of the list, or the whole list, if that part contains, for each of these nodes, an entry with the same work.
//! If no part matches by number, parts are compared in order as soon as all nodes have been seen. The location of a
//! node is unknown if nothing matches, or if the matching parts were captured at different locations. An unknown
//! location is better than a wrong one.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry as MapEntry;

use foldhash::{HashMap, HashSet};
use warpsmith_trace::Name;

/// Work of a node, according to its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A kernel with this symbol.
    Kernel(Name),
    Copy,
    Memset,
}

/// Work of a node, according to the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Kernel(Name),
    Copy,
    Memset,
    /// The node produces no record.
    Nothing,
    Unknown,
}

/// Location where a node was captured or added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) line: Name,
    /// ID of the range; 0 outside of all ranges; `None` if the work was captured before the recording started.
    pub(crate) range: Option<u64>,
    /// Names of the ranges, outermost first.
    pub(crate) ranges: Name,
    /// Number of bytes that a kernel moves; 0 if unknown.
    pub(crate) bytes: u64,
}

/// Node in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Part of the list to which the node belongs; 0 for the graph itself.
    pub(crate) part: u32,
    /// ID of the original node.
    pub(crate) number: Option<u64>,
    pub(crate) work: Work,
    /// Location of the capture, or `None` if the capture was not observed.
    pub(crate) place: Option<Place>,
}

/// Result of the search for a record's location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    At(Place),
    /// The capture of the node was not observed.
    Unseen,
    /// The nodes in the records do not match those in the list.
    Unfit,
}

/// Identifies nodes of an executable. See the [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// ID of the executable in records.
    graph: Option<u32>,
    entries: Vec<Entry>,
    /// Kernels in the list.
    symbols: HashSet<Name>,
    /// Observed nodes, grouped by the upper half of their IDs.
    groups: HashMap<u32, Group>,
}

/// Nodes whose IDs have the same upper half.
#[derive(Debug, Default)]
struct Group {
    /// Observed work, keyed by the lower half of the node's ID.
    seen: HashMap<u32, Seen>,
    /// True if the same ID was seen with different work.
    is_broken: bool,
    /// True if nodes have been seen since the locations were last determined.
    is_new: bool,
    found: HashMap<u32, Found>,
}

fn halves(node: u64) -> (u32, u32) {
    ((node >> 32) as u32, node as u32)
}

impl Nodes {
    pub(crate) fn new(graph: Option<u32>, entries: Vec<Entry>) -> Self {
        let symbols = entries.iter().filter_map(|entry| match entry.work {
            Work::Kernel(symbol) => Some(symbol),
            _ => None,
        });
        Self { graph, symbols: symbols.collect(), entries, groups: HashMap::default() }
    }

    /// Registers the record of a node.
    pub(crate) fn see(&mut self, node: u64, seen: Seen) {
        let (upper, lower) = halves(node);
        let group = self.groups.entry(upper).or_default();
        match group.seen.entry(lower) {
            MapEntry::Vacant(new) => {
                new.insert(seen);
                group.is_new = true;
            }
            MapEntry::Occupied(before) if *before.get() != seen && !group.is_broken => {
                (group.is_broken, group.is_new) = (true, true);
            }
            MapEntry::Occupied(_) => {}
        }
    }

    /// Returns the location of a node that has been [seen](Self::see).
    pub(crate) fn find(&mut self, node: u64) -> Found {
        let (upper, lower) = halves(node);
        let Some(group) = self.groups.get_mut(&upper) else { return Found::Unfit };
        if !group.is_new {
            return group.found.get(&lower).copied().unwrap_or(Found::Unfit);
        }
        let mut group = std::mem::take(group);
        group.is_new = false;
        group.found = if group.is_broken { HashMap::default() } else { self.fit(upper, &group.seen) };
        let found = group.found.get(&lower).copied();
        self.groups.insert(upper, group);
        found.unwrap_or(Found::Unfit)
    }

    /// Returns the locations of all nodes with this upper half. The map is empty if nothing matches.
    fn fit(&self, upper: u32, seen: &HashMap<u32, Seen>) -> HashMap<u32, Found> {
        let parts = self.parts(upper);
        let mut by_number: Vec<_> =
            parts.iter().filter_map(|part| self.by_number(&numbered(part)?, seen)).collect();
        if upper != 0 && self.graph.is_none_or(|graph| graph == upper) {
            by_number.extend(self.in_line().and_then(|line| self.by_number(&line, seen)));
        }
        if !by_number.is_empty() {
            return agreed(&by_number);
        }
        let by_order: Vec<_> = parts.iter().filter_map(|part| self.by_order(part, seen)).collect();
        agreed(&by_order)
    }

    /// Returns the parts of the list to which the nodes with this upper half may belong.
    fn parts(&self, upper: u32) -> Vec<Vec<&Entry>> {
        if upper == 0 {
            return vec![self.entries.iter().collect()];
        }
        let mut parts: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
        for entry in &self.entries {
            let may_be = self.graph.is_none_or(|graph| (graph == upper) == (entry.part == 0));
            if may_be {
                parts.entry(entry.part).or_default().push(entry);
            }
        }
        parts.into_values().collect()
    }

    /// Returns the entries of the graph itself and of the child graphs numbered after them, keyed by the lower half of
    /// their numbers.
    fn in_line(&self) -> Option<HashMap<u32, &Entry>> {
        let (own, mut within): (Vec<&Entry>, Vec<&Entry>) =
            self.entries.iter().partition(|entry| entry.part == 0);
        if within.iter().any(|entry| entry.number.is_none()) {
            // Without the part's number, the number of nodes is unknown.
            return None;
        }
        let mut line = numbered(&own)?;
        let first = line.keys().max()?.checked_add(1)?;
        within.sort_by_key(|entry| (entry.part, entry.number));
        for (number, entry) in (first..).zip(within) {
            line.insert(number, entry);
        }
        Some(line)
    }

    /// Matches each node with the entry that has the node's number.
    fn by_number(
        &self,
        numbered: &HashMap<u32, &Entry>,
        seen: &HashMap<u32, Seen>,
    ) -> Option<Vec<(u32, Found)>> {
        let fits = seen.iter().map(|(lower, seen)| {
            let entry = numbered.get(lower).filter(|entry| self.is(entry.work, *seen))?;
            Some((*lower, found(entry)))
        });
        fits.collect()
    }

    /// Matches the entries with the nodes in order, provided that all nodes have been seen.
    fn by_order(&self, part: &[&Entry], seen: &HashMap<u32, Seen>) -> Option<Vec<(u32, Found)>> {
        let entries: Vec<&Entry> = part.iter().copied().filter(|entry| entry.work != Work::Nothing).collect();
        // The order of nodes in different graphs is unknown.
        let is_one = part.windows(2).all(|pair| pair[0].part == pair[1].part);
        if entries.len() != seen.len() || !is_one {
            return None;
        }
        let mut seen: Vec<(u32, Seen)> = seen.iter().map(|(lower, seen)| (*lower, *seen)).collect();
        seen.sort_unstable_by_key(|(lower, _)| *lower);
        let pairs = seen.into_iter().zip(entries);
        pairs.map(|((lower, seen), entry)| self.is(entry.work, seen).then(|| (lower, found(entry)))).collect()
    }

    /// Returns true if a node with this work could have produced this record. A driver may implement copies and memsets
    /// with kernels of its own.
    fn is(&self, work: Work, seen: Seen) -> bool {
        match (work, seen) {
            (Work::Unknown, _) | (Work::Copy, Seen::Copy) | (Work::Memset, Seen::Memset) => true,
            (Work::Kernel(symbol), Seen::Kernel(seen)) => symbol == seen,
            (Work::Copy | Work::Memset, Seen::Kernel(seen)) => !self.symbols.contains(&seen),
            _ => false,
        }
    }
}

/// Returns the entries keyed by the lower half of their numbers, provided that all numbers are known and unique.
fn numbered<'a>(part: &[&'a Entry]) -> Option<HashMap<u32, &'a Entry>> {
    let mut numbered = HashMap::default();
    for entry in part {
        if numbered.insert(halves(entry.number?).1, *entry).is_some() {
            return None;
        }
    }
    Some(numbered)
}

fn found(entry: &Entry) -> Found {
    entry.place.map_or(Found::Unseen, Found::At)
}

/// Returns the location of each node according to the matches. If the matches disagree on a node, the node is
/// [`Found::Unfit`].
fn agreed(fits: &[Vec<(u32, Found)>]) -> HashMap<u32, Found> {
    let mut agreed: HashMap<u32, Found> = HashMap::default();
    for (lower, found) in fits.iter().flatten() {
        let known = agreed.entry(*lower).or_insert(*found);
        if known != found {
            *known = Found::Unfit;
        }
    }
    agreed
}

#[cfg(test)]
mod tests {
    use warpsmith_trace::Names;

    use super::*;

    /// Kernels of the tests.
    fn kernels<const N: usize>() -> [Name; N] {
        let mut names = Names::default();
        std::array::from_fn(|at| names.intern(&format!("kernel {at}")))
    }

    /// Returns a location whose range has the given ID.
    fn place(range: u64) -> Place {
        Place { range: Some(range), ..Place::default() }
    }

    /// Returns the entries of a part. Their numbers start at 100 and the IDs of their ranges at `range`.
    fn part(part: u32, range: u64, work: &[Work]) -> Vec<Entry> {
        let entry = |(at, work): (usize, &Work)| Entry {
            part,
            number: Some(77 << 32 | (100 + at as u64)),
            work: *work,
            place: Some(place(range + at as u64)),
        };
        work.iter().enumerate().map(entry).collect()
    }

    fn without_numbers(mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.iter_mut().for_each(|entry| entry.number = None);
        entries
    }

    fn number(graph: u64, node: u64) -> u64 {
        graph << 32 | node
    }

    /// Registers all nodes and returns their locations.
    fn answers(nodes: &mut Nodes, seen: &[(u64, Seen)]) -> Vec<Found> {
        seen.iter().for_each(|(node, seen)| nodes.see(*node, *seen));
        seen.iter().map(|(node, _)| nodes.find(*node)).collect()
    }

    fn at<const N: usize>(ranges: [u64; N]) -> Vec<Found> {
        ranges.map(|range| Found::At(place(range))).to_vec()
    }

    #[test]
    fn nodes_keep_the_lower_half_of_their_numbers() {
        let [a, b] = kernels();
        let entries = part(0, 1, &[Work::Kernel(a), Work::Nothing, Work::Kernel(b), Work::Memset]);
        let mut nodes = Nodes::new(Some(9), entries);
        // Nodes can match even if not all of them have been seen.
        let seen = [(number(9, 103), Seen::Memset), (number(9, 100), Seen::Kernel(a))];
        assert_eq!(answers(&mut nodes, &seen), at([4, 1]));
        assert_eq!(answers(&mut nodes, &[(number(9, 102), Seen::Kernel(b))]), at([3]));
    }

    #[test]
    fn numbers_decide_between_equal_nodes() {
        let [a] = kernels();
        let mut entries = part(0, 1, &[Work::Kernel(a); 3]);
        entries.reverse();
        let mut nodes = Nodes::new(None, entries);
        let seen = [100, 101, 102].map(|node| (number(9, node), Seen::Kernel(a)));
        assert_eq!(answers(&mut nodes, &seen), at([1, 2, 3]));
    }

    #[test]
    fn other_numbers_in_the_same_order_are_recognized() {
        let [a, b] = kernels();
        let work = [Work::Kernel(a), Work::Nothing, Work::Kernel(b), Work::Unknown];
        let seen = [(3, Seen::Kernel(a)), (5, Seen::Kernel(b)), (8, Seen::Copy)];
        let seen = seen.map(|(node, seen)| (number(9, node), seen));
        for entries in [part(0, 1, &work), without_numbers(part(0, 1, &work))] {
            let mut nodes = Nodes::new(Some(9), entries);
            // The order is inconclusive until all nodes have been seen.
            assert_eq!(answers(&mut nodes, &seen[..2]), [Found::Unfit; 2]);
            assert_eq!(answers(&mut nodes, &seen), at([1, 3, 4]));
        }
    }

    #[test]
    fn another_kernel_than_captured_has_no_place() {
        let [a, b] = kernels();
        for entries in [
            part(0, 1, &[Work::Kernel(a), Work::Kernel(b)]),
            without_numbers(part(0, 1, &[Work::Kernel(a), Work::Kernel(b)])),
        ] {
            let mut nodes = Nodes::new(Some(9), entries);
            let swapped = [(number(9, 100), Seen::Kernel(b)), (number(9, 101), Seen::Kernel(a))];
            assert_eq!(answers(&mut nodes, &swapped), [Found::Unfit; 2]);
        }
    }

    #[test]
    fn more_nodes_than_captured_have_no_place() {
        let [a] = kernels();
        let mut nodes = Nodes::new(Some(9), part(0, 1, &[Work::Kernel(a); 2]));
        let seen = [100, 101, 102].map(|node| (number(9, node), Seen::Kernel(a)));
        assert_eq!(answers(&mut nodes, &seen), [Found::Unfit; 3]);
    }

    #[test]
    fn a_number_with_changing_work_has_no_place() {
        let [a] = kernels();
        let mut nodes = Nodes::new(Some(9), part(0, 1, &[Work::Unknown, Work::Unknown]));
        assert_eq!(answers(&mut nodes, &[(number(9, 100), Seen::Copy)]), at([1]));
        assert_eq!(answers(&mut nodes, &[(number(9, 100), Seen::Kernel(a))]), [Found::Unfit]);
    }

    #[test]
    fn copies_may_run_as_kernels_of_the_driver() {
        let [a, internal] = kernels();
        let mut nodes = Nodes::new(Some(9), part(0, 1, &[Work::Kernel(a), Work::Copy]));
        let seen = [(number(9, 100), Seen::Kernel(a)), (number(9, 101), Seen::Kernel(internal))];
        assert_eq!(answers(&mut nodes, &seen), at([1, 2]));
        let mut nodes = Nodes::new(Some(9), part(0, 1, &[Work::Kernel(a), Work::Copy]));
        let seen = [(number(9, 100), Seen::Kernel(a)), (number(9, 101), Seen::Kernel(a))];
        assert_eq!(answers(&mut nodes, &seen), [Found::Unfit; 2]);
    }

    #[test]
    fn graphs_within_are_found_by_what_they_do() {
        let [a, b] = kernels();
        let entries = [
            part(0, 1, &[Work::Kernel(a), Work::Nothing, Work::Nothing]),
            part(1, 11, &[Work::Kernel(a), Work::Kernel(b)]),
            part(2, 21, &[Work::Kernel(a), Work::Kernel(a)]),
        ];
        let mut nodes = Nodes::new(Some(9), entries.concat());
        let seen = [
            (number(9, 100), Seen::Kernel(a)),
            (number(12, 100), Seen::Kernel(a)),
            (number(12, 101), Seen::Kernel(a)),
            (number(13, 100), Seen::Kernel(a)),
            (number(13, 101), Seen::Kernel(b)),
        ];
        assert_eq!(answers(&mut nodes, &seen), at([1, 21, 22, 11, 12]));
    }

    #[test]
    fn graphs_within_may_follow_with_the_next_numbers() {
        let [a, b, c] = kernels();
        let own = part(0, 1, &[Work::Kernel(a), Work::Nothing, Work::Kernel(a)]);
        let mut within =
            [part(1, 11, &[Work::Memset, Work::Kernel(b)]), part(2, 21, &[Work::Kernel(c)])].concat();
        within.iter_mut().for_each(|entry| entry.number = entry.number.map(|number| number - 100));
        let mut nodes = Nodes::new(Some(9), [own, within].concat());
        let seen = [
            (number(9, 100), Seen::Kernel(a)),
            (number(9, 103), Seen::Memset),
            (number(9, 104), Seen::Kernel(b)),
            (number(9, 105), Seen::Kernel(c)),
            (number(9, 102), Seen::Kernel(a)),
        ];
        assert_eq!(answers(&mut nodes, &seen), at([1, 11, 12, 21, 3]));
        // This kernel is not in the list.
        assert_eq!(answers(&mut nodes, &[(number(9, 106), Seen::Kernel(a))]), [Found::Unfit]);
    }

    #[test]
    fn a_graph_within_of_unknown_length_hides_those_after_it() {
        let [a] = kernels();
        let root = part(0, 1, &[Work::Nothing, Work::Nothing]);
        let unlisted = Entry { part: 1, number: None, work: Work::Unknown, place: None };
        let listed = part(2, 21, &[Work::Kernel(a)]);
        let mut nodes = Nodes::new(Some(9), [root.clone(), listed.clone()].concat());
        assert_eq!(answers(&mut nodes, &[(number(9, 102), Seen::Kernel(a))]), at([21]));
        let mut nodes = Nodes::new(Some(9), [root, vec![unlisted], listed].concat());
        assert_eq!(answers(&mut nodes, &[(number(9, 102), Seen::Kernel(a))]), [Found::Unfit]);
    }

    #[test]
    fn equal_graphs_within_agree_or_have_no_place() {
        let [a] = kernels();
        let once = |of: u32, range| part(of, range, &[Work::Kernel(a)]);
        let root = part(0, 1, &[Work::Nothing]);
        let seen = [(number(12, 100), Seen::Kernel(a)), (number(13, 100), Seen::Kernel(a))];
        // The graph contains the same child graph twice.
        let mut nodes = Nodes::new(Some(9), [root.clone(), once(1, 11), once(2, 11)].concat());
        assert_eq!(answers(&mut nodes, &seen), at([11, 11]));
        let mut nodes = Nodes::new(Some(9), [root, once(1, 11), once(2, 21)].concat());
        assert_eq!(answers(&mut nodes, &seen), [Found::Unfit; 2]);
    }

    #[test]
    fn nodes_that_nothing_saw_captured_are_known_as_such() {
        let mut entries = part(0, 1, &[Work::Unknown, Work::Copy]);
        entries[0].place = None;
        let mut nodes = Nodes::new(Some(9), entries);
        let seen = [(number(9, 100), Seen::Memset), (number(9, 101), Seen::Copy)];
        assert_eq!(answers(&mut nodes, &seen), [Found::Unseen, Found::At(place(2))]);
    }

    #[test]
    fn numbers_without_an_upper_half_are_of_all_parts() {
        let mut entries = [part(0, 1, &[Work::Copy]), part(1, 11, &[Work::Copy])].concat();
        for (at, entry) in entries.iter_mut().enumerate() {
            entry.number = Some(5 + at as u64);
        }
        let mut nodes = Nodes::new(Some(9), entries);
        assert_eq!(answers(&mut nodes, &[(6, Seen::Copy), (5, Seen::Copy)]), at([11, 1]));
        let entries = [part(0, 1, &[Work::Copy]), part(1, 11, &[Work::Copy])].concat();
        let mut nodes = Nodes::new(Some(9), without_numbers(entries));
        assert_eq!(answers(&mut nodes, &[(6, Seen::Copy), (5, Seen::Copy)]), [Found::Unfit; 2]);
    }
}
