//! Graphviz output of a graph.

use std::collections::HashMap;
use std::fmt::Write;

use super::Graph;
use crate::driver::{DriverError, GraphHandle, LaunchConfig, NodeHandle, NodeInfo};
use crate::error::Result;

impl Graph {
    /// Returns the graph's nodes and edges in Graphviz's DOT language, for `dot -Tsvg`. Nested graphs are drawn as
    /// boxes.
    ///
    /// ```
    /// # use warpsmith_runtime::{Device, DeviceBuffer, Stream, graph::Graph};
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let mut x = DeviceBuffer::<f32>::uninit(&stream, 256)?;
    /// let graph = Graph::capture(&stream, || stream.memset(&mut x, 0))?;
    /// assert!(graph.to_dot()?.contains("set 1024 bytes"));
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn to_dot(&self) -> Result<String> {
        let mut text = String::from("digraph {\n  node [shape=box, fontname=\"monospace\"];\n");
        let mut names = HashMap::new();
        self.write_dot(self.handle, "  ", &mut names, &mut text)?;
        text.push_str("}\n");
        Ok(text)
    }

    fn write_dot(
        &self,
        graph: GraphHandle,
        indent: &str,
        names: &mut HashMap<NodeHandle, usize>,
        text: &mut String,
    ) -> Result<()> {
        let (nodes, edges) = self.device.call(|driver, context| {
            Ok::<_, DriverError>((driver.graph_nodes(context, graph)?, driver.graph_edges(context, graph)?))
        })?;
        for node in nodes {
            let number = names.len();
            names.insert(node, number);
            let info = self.device.call(|driver, context| driver.graph_node(context, node))?;
            let label = self.describe(&info);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{indent}n{number} [label=\"{}\"];", label.replace('"', "\\\""));
            if let NodeInfo::Child(child) = info {
                let _ = writeln!(text, "{indent}subgraph cluster_{number} {{");
                self.write_dot(child, &format!("{indent}  "), names, text)?;
                let _ = writeln!(text, "{indent}}}");
            }
        }
        for edge in edges {
            let (from, to) = (names.get(&edge.from), names.get(&edge.to));
            if let (Some(from), Some(to)) = (from, to) {
                let style = if edge.early { " [style=dashed]" } else { "" };
                let _ = writeln!(text, "{indent}n{from} -> n{to}{style};");
            }
        }
        Ok(())
    }

    fn describe(&self, info: &NodeInfo) -> String {
        match info {
            NodeInfo::Empty => "empty".to_owned(),
            NodeInfo::Kernel { function, config } => {
                let symbol = self.device.kernel_symbol(*function).unwrap_or("kernel");
                let LaunchConfig { grid, block, .. } = config;
                format!("{symbol}\\n{grid:?} x {block:?}")
            }
            NodeInfo::Copy { bytes } => format!("copy {bytes} bytes"),
            NodeInfo::Set { bytes } => format!("set {bytes} bytes"),
            NodeInfo::Host => "host function".to_owned(),
            NodeInfo::Child(_) => "graph".to_owned(),
            NodeInfo::Conditional => "conditional".to_owned(),
            NodeInfo::Event => "event".to_owned(),
            NodeInfo::Other => "other".to_owned(),
        }
    }
}
