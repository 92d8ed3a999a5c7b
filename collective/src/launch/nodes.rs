//! Parses Slurm's compact host lists, such as `gpu[01-04,7],login`, and count lists, such as `4(x2),3`.

/// Returns the first host in a host list, or `None` if the list is malformed.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    // A name can contain several bracketed lists, as in `rack[1-2]node[1-4]`.
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        match rest[end..].strip_prefix('[') {
            None => break,
            Some(inner) => {
                let (ranges, after) = inner.split_once(']')?;
                let is_range = |range: &str| {
                    let (low, high) = range.split_once('-').unwrap_or((range, range));
                    is_number(low) && is_number(high)
                };
                if !ranges.split(',').all(is_range) {
                    return None;
                }
                host.push_str(ranges.split(['-', ',']).next()?);
                rest = after;
            }
        }
    }
    let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.' | '_' | ':');
    (!host.is_empty() && host.chars().all(is_name)).then_some(host)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the count for the node with the zero-based index `node` in a list of counts. Returns `None` if the list is
/// malformed or too short.
pub(super) fn count_of_node(list: &str, node: usize) -> Option<usize> {
    let mut before = 0usize;
    for part in list.split(',') {
        let (count, times) = match part.split_once("(x") {
            None => (part, 1),
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
        };
        let count = count.parse().ok()?;
        before = before.checked_add(times)?;
        if node < before {
            return Some(count);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_of_a_list() {
        for (list, first) in [
            ("gpu01", "gpu01"),
            ("gpu[01-04,7]", "gpu01"),
            ("gpu[7,01-04]", "gpu7"),
            ("login,gpu[1-2]", "login"),
            ("gpu[003]-ib,x", "gpu003-ib"),
            ("rack[1-2]node[08-09]", "rack1node08"),
            ("a.cluster.example", "a.cluster.example"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(first), "{list}");
        }
        for list in
            ["", ",a", "gpu[", "gpu[]", "gpu[1-]", "gpu[1-2", "gpu[a]", "gpu 1", "gpu[1--2]", "gpu/1", "]"]
        {
            assert_eq!(first_host(list), None, "{list}");
        }
    }

    #[test]
    fn counts_of_nodes() {
        assert_eq!(
            [0, 1, 2, 3].map(|node| count_of_node("4(x2),3", node)),
            [Some(4), Some(4), Some(3), None]
        );
        for list in ["", "x", "4(x", "4(x2", "4(xy)", "-1"] {
            assert_eq!(count_of_node(list, 0), None, "{list}");
        }
        assert_eq!(count_of_node("1(x18446744073709551615),1(x2)", usize::MAX), None);
    }
}
