//! [`Points`]: configurations as points on axes, with an order of the values on some axes.

use crate::value::{Configuration, Value};

/// Axis of the search.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    name: String,
    /// Group and position of each value on the axis. The position of a number is its binary logarithm, so a number and
    /// its double are 1 apart. Values in different groups, such as `auto` and `waves:4`, have no order relative to each
    /// other.
    places: Vec<(usize, f64)>,
}

/// Candidates of a search. Each candidate is a point that has a position on every axis.
///
/// Numbers are ordered, as are strings that end with a colon and a number, such as `waves:4`. Other strings are not
/// ordered.
#[derive(Debug, Clone, PartialEq)]
pub struct Points {
    scales: Vec<Scale>,
    /// For each candidate, the index of the candidate's value on each axis.
    points: Vec<Vec<usize>>,
}

impl Points {
    /// Creates the points of the configurations, the first of which is the default. If a configuration lacks an axis,
    /// the missing value is treated as an additional value of the axis.
    pub fn of(configurations: &[Configuration]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in configurations.iter().flat_map(Configuration::iter) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut points = vec![Vec::with_capacity(names.len()); configurations.len()];
        let mut scales = Vec::with_capacity(names.len());
        for name in names {
            let mut values: Vec<Option<&Value>> = configurations.iter().map(|c| c.get(name)).collect();
            values.sort_by(|a, b| order(*a).partial_cmp(&order(*b)).unwrap_or(std::cmp::Ordering::Equal));
            values.dedup();
            let mut groups: Vec<String> = Vec::new();
            let places = values.iter().map(|value| {
                let (group, number) = order(*value);
                let known = groups.iter().position(|known| *known == group).unwrap_or_else(|| {
                    groups.push(group);
                    groups.len() - 1
                });
                (known, number.max(0.5).log2())
            });
            scales.push(Scale { name: name.to_owned(), places: places.collect() });
            for (point, configuration) in points.iter_mut().zip(configurations) {
                let value = configuration.get(name);
                point.push(values.iter().position(|known| *known == value).unwrap_or(0));
            }
        }
        Self { scales, points }
    }

    /// Returns the number of candidates.
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns true if there are no candidates.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Returns the number of axes.
    pub fn axes(&self) -> usize {
        self.scales.len()
    }

    /// Returns the candidates that differ from `candidate` only on this axis, nearest first. If the values are ordered,
    /// the distance is at most `radius` values.
    pub fn neighbors(&self, candidate: usize, axis: usize, radius: usize) -> Vec<usize> {
        let here = &self.points[candidate];
        let scale = &self.scales[axis];
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (other, there) in self.points.iter().enumerate() {
            let same_elsewhere = (0..self.axes()).all(|a| a == axis || here[a] == there[a]);
            if !same_elsewhere || here[axis] == there[axis] {
                continue;
            }
            let (a, b) = (scale.places[here[axis]].0, scale.places[there[axis]].0);
            let steps = if a == b { here[axis].abs_diff(there[axis]) } else { 1 };
            if steps <= radius {
                found.push((steps, other));
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, other)| other).collect()
    }

    /// Returns the distance between two candidates along an axis, in doublings, or `None` if their values have no
    /// order.
    pub(super) fn distance(&self, a: usize, b: usize, axis: usize) -> Option<f64> {
        let places = &self.scales[axis].places;
        let (a, b) = (places[self.points[a][axis]], places[self.points[b][axis]]);
        (a.0 == b.0).then_some((a.1 - b.1).abs())
    }

    /// Returns the number of axes on which two candidates differ.
    pub(super) fn differences(&self, a: usize, b: usize) -> usize {
        self.points[a].iter().zip(&self.points[b]).filter(|(a, b)| a != b).count()
    }
}

/// Returns the group of a value, and the value's number within this group. For plain numbers, the group is the empty
/// string.
fn order(value: Option<&Value>) -> (String, f64) {
    match value {
        Some(Value::Number(number)) => (String::new(), *number as f64),
        Some(Value::Text(text)) => match text.rsplit_once(':') {
            Some((group, number)) => match number.parse::<u32>() {
                Ok(number) => (group.to_owned(), number.into()),
                Err(_) => (text.clone(), 1.0),
            },
            None => (text.clone(), 1.0),
        },
        None => ("(none)".to_owned(), 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;

    fn space() -> Vec<Configuration> {
        Space::new()
            .axis("block", [64, 128, 256, 512])
            .axis("grid", ["auto", "waves:1", "waves:2", "waves:8"])
            .configurations("mine")
            .unwrap()
    }

    #[test]
    fn neighbors_are_near_on_ordered_axes() {
        let all = space();
        let points = Points::of(&all);
        let texts = |candidate: &str, axis, radius| -> Vec<String> {
            let index = all.iter().position(|c| c.to_string() == candidate).unwrap();
            points.neighbors(index, axis, radius).into_iter().map(|i| all[i].to_string()).collect()
        };
        assert_eq!(texts("block=64 grid=auto", 0, 1), ["block=128 grid=auto"]);
        assert_eq!(texts("block=64 grid=auto", 0, 2), ["block=128 grid=auto", "block=256 grid=auto"]);
        assert_eq!(texts("block=64 grid=auto", 1, 1).len(), 3, "auto has no order with the others");
        assert_eq!(texts("block=64 grid=waves:1", 1, 1), ["block=64 grid=auto", "block=64 grid=waves:2"],);
    }

    #[test]
    fn distances_are_in_doublings() {
        let points = Points::of(&space());
        // These configurations are 64 auto, 256 waves:1 and 256 waves:8.
        assert_eq!((points.distance(0, 9, 0), points.distance(0, 9, 1)), (Some(2.0), None));
        assert_eq!(points.distance(9, 11, 1), Some(3.0));
        assert_eq!((points.differences(9, 11), points.differences(0, 9)), (1, 2));
    }

    #[test]
    fn values_of_the_default_alone_count() {
        let mut all = space();
        all.insert(0, "block=96".parse().unwrap());
        let points = Points::of(&all);
        assert_eq!((points.len(), points.axes()), (17, 2));
        assert!(points.distance(0, 1, 1).is_none());
        assert!((points.distance(0, 1, 0).unwrap() - 1.5f64.log2()).abs() < 1e-12);
    }
}
