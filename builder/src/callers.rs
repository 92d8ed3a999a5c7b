//! Reverse references between the functions of a module, which let a message about a deeply nested function name a
//! kernel that calls it.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::rewrite::{Kernel, text};

/// Maps each symbol to the functions and globals that mention it.
pub struct Callers<'a> {
    users: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Callers<'a> {
    /// Reads the module `ir`.
    pub fn of(ir: &'a str) -> Callers<'a> {
        let mut users: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut current = None;
        for line in ir.lines() {
            let body = match line.as_bytes().first() {
                Some(b'@') => {
                    let Some((name, rest)) = text::symbol(&line[1..]) else { continue };
                    current = Some(name);
                    rest
                }
                Some(b'd') if line.starts_with("define ") => {
                    current = text::function(line).map(|(name, _)| name);
                    continue;
                }
                Some(b' ') => line,
                _ => continue,
            };
            let Some(user) = current else { continue };
            for (at, _) in body.match_indices('@') {
                if let Some((name, _)) = text::symbol(&body[at + 1..]) {
                    users.entry(name).or_default().push(user);
                }
            }
        }
        Callers { users }
    }

    /// Returns every function and global that reaches `symbol`, and `symbol` itself.
    pub fn reaching(&self, symbol: &'a str) -> HashSet<&'a str> {
        let mut seen = HashSet::from([symbol]);
        let mut rest = vec![symbol];
        while let Some(name) = rest.pop() {
            let users = self.users.get(name).into_iter().flatten();
            rest.extend(users.copied().filter(|user| seen.insert(user)));
        }
        seen
    }

    /// Returns a kernel that reaches `symbol`.
    pub fn kernel_reaching(&self, symbol: &str, kernels: &[Kernel]) -> Option<String> {
        let kernels: HashSet<&str> = kernels.iter().map(|kernel| kernel.symbol.as_str()).collect();
        let mut seen = HashSet::from([symbol]);
        let mut queue = VecDeque::from([symbol]);
        while let Some(name) = queue.pop_front() {
            if kernels.contains(name) {
                return Some(name.to_owned());
            }
            for &user in self.users.get(name).into_iter().flatten() {
                if seen.insert(user) {
                    queue.push_back(user);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_through_functions_and_tables() {
        let ir = "@table = constant [1 x ptr] [ptr @leaf]\n\
                  define ptx_kernel void @other() {\n  ret void\n}\n\
                  define ptx_kernel void @kernel() {\n  call void @middle()\n  ret void\n}\n\
                  define void @middle() {\n  %1 = load ptr, ptr @table\n  call void @middle()\n  ret void\n}\n\
                  define void @leaf() {\n  call void @missing()\n  ret void\n}\n";
        let kernels: Vec<Kernel> =
            ["other", "kernel"].map(|name| Kernel { symbol: name.to_owned(), ..Kernel::default() }).into();
        let callers = Callers::of(ir);
        assert_eq!(callers.kernel_reaching("missing", &kernels).as_deref(), Some("kernel"));
        assert_eq!(callers.kernel_reaching("unknown", &kernels), None);
    }
}
