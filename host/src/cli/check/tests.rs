//! Drawings of a job with branches, unions, a broadcast and dead letters, as text and for Graphviz.

use std::collections::{BTreeMap, BTreeSet};

use super::policies::PolicyReport;
use super::shape::Shape;
use super::times::TimeReport;
use super::{dot, drawing};
use crate::config::JobFile;
use crate::graph::{InputFacts, OperatorFacts, Plan};
use crate::id::Name;

const JOB: &str = r#"
[job]
name = "shop"
parallelism = 2
[source.orders]
type = "generator"
[source.rules]
type = "generator"
parallelism = 1
[operator.parse]
wasm = "parse.wasm"
input = "orders"
on_error = "dead-letter"
[operator.join]
wasm = "join.wasm"
inputs = { orders = "parse", rules = "rules" }
parallelism = 4
[sink.out]
type = "null"
input = "join"
parallelism = 4
[sink.rest]
type = "null"
inputs = [["parse:late", "parse:dead-letters", "join:late"]]
"#;

fn shape() -> Shape {
    let file = JobFile::parse("job.toml".as_ref(), JOB).expect("a good job file");
    let facts = |inputs: &[(&str, bool)], keyed| OperatorFacts {
        outputs: vec!["main".to_owned(), "late".to_owned()],
        inputs: inputs.iter().map(|&(name, broadcast)| InputFacts { name: name.to_owned(), broadcast }).collect(),
        keyed,
    };
    let name = |text| Name::new(text).expect("a name");
    let facts = BTreeMap::from([
        (name("parse"), facts(&[("in", false)], false)),
        (name("join"), facts(&[("orders", false), ("rules", true)], true)),
    ]);
    let graph = file.graph();
    Shape::new(&graph, &Plan::new(&graph, &facts).expect("a plan"))
}

#[test]
fn a_branching_plan_can_be_read_in_a_terminal() {
    let expected = "\
job shop

┌ 2 tasks ───────┐
│ source orders  │
│   │ forward    │
│ operator parse │
└────────────────┘
  ├─ main         hash 2→4 ────▶ join.orders
  ├─ late         forward 2→2 ─▶ rest
  └─ dead-letters forward 2→2 ┄▷ rest

┌ 1 task ──────┐
│ source rules │
└──────────────┘
  └─ broadcast 1→4 ─▶ join.rules

┌ 4 tasks ────────────────────────┐
│ orders ◀─ parse:main (hash 2→4) │
│ rules ◀─ rules (broadcast 1→4)  │
│ operator join                   │
└─────────────────────────────────┘
  ├─ main forward 4→4 ───▶ out
  └─ late rebalance 4→2 ─▶ rest

┌ 4 tasks ───────────────────┐
│ ◀─ join:main (forward 4→4) │
│ sink out                   │
└────────────────────────────┘

┌ 2 tasks ────────────────────────────┐
│ ◀─ parse:late (forward 2→2)         │
│ ◀─ parse:dead-letters (forward 2→2) │
│ ◀─ join:late (rebalance 4→2)        │
│ sink rest                           │
└─────────────────────────────────────┘
";
    let drawn = drawing::text("shop", &shape());
    let widths_agree = |lines: &[&str]| {
        let widths = lines.iter().map(|line| line.chars().count()).collect::<BTreeSet<_>>();
        assert_eq!(widths.len(), 1, "{lines:?}");
    };
    let lines = drawn.lines().collect::<Vec<_>>();
    for boxed in lines.split(|line| !line.starts_with(['┌', '│', '└'])).filter(|boxed| !boxed.is_empty()) {
        widths_agree(boxed);
    }
    assert_eq!(drawn, expected);
}

/// What a DOT text says, read by its grammar: nodes, and edges with their attributes.
#[derive(Debug, Default)]
struct Read {
    nodes: BTreeSet<String>,
    edges: Vec<(String, String, String)>,
}

/// Splits into quoted identifiers (unquoted, with a mark before), words and signs.
fn tokens(text: &str) -> Vec<String> {
    let (mut tokens, mut chars) = (Vec::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let mut token = String::from("\"");
                loop {
                    match chars.next().expect("a quoted name ends") {
                        '"' => break,
                        '\\' => token.push(chars.next().expect("something is escaped")),
                        c => token.push(c),
                    }
                }
                tokens.push(token);
            }
            '-' => {
                assert_eq!(chars.next(), Some('>'), "an arrow");
                tokens.push("->".to_owned());
            }
            c if c.is_whitespace() => {}
            c if c.is_alphanumeric() || c == '_' => {
                let mut token = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '_') {
                    token.push(c);
                }
                tokens.push(token);
            }
            c => {
                assert!("{}[]=;,".contains(c), "{c:?} means nothing");
                tokens.push(c.to_string());
            }
        }
    }
    tokens
}

fn read(text: &str) -> Read {
    let tokens = tokens(text);
    let (head, body) = tokens.split_at(3);
    assert_eq!((head[0].as_str(), head[2].as_str()), ("digraph", "{"));
    let mut read = Read::default();
    let (mut depth, mut statement) = (1, Vec::<String>::new());
    for token in body {
        match token.as_str() {
            "{" => {
                assert!(matches!(&statement[..], [word, name] if word == "subgraph" && name.starts_with("cluster_")));
                (depth, statement) = (depth + 1, Vec::new());
            }
            "}" => {
                assert!(statement.is_empty(), "a statement ends with its sign: {statement:?}");
                depth -= 1;
            }
            ";" => {
                let parts = statement.iter().map(String::as_str).collect::<Vec<_>>();
                match &parts[..] {
                    [from, "->", to, "[", attributes @ .., "]"] => {
                        read.edges.push(((*from).to_owned(), (*to).to_owned(), attributes.join(" ")));
                    }
                    [node, "[", "label", "=", _, "]"] => drop(read.nodes.insert((*node).to_owned())),
                    ["node", "[", .., "]"] | [_, "=", _] => {}
                    other => panic!("no statement: {other:?}"),
                }
                statement.clear();
            }
            _ => statement.push(token.clone()),
        }
    }
    assert_eq!(depth, 0, "every brace is closed");
    read
}

#[test]
fn the_dot_form_has_every_node_and_edge_and_nothing_that_dot_does_not_know() {
    let shape = shape();
    let read = read(&dot::dot("shop", &shape));
    assert_eq!(read.nodes.iter().collect::<Vec<_>>(), ["\"join", "\"orders", "\"out", "\"parse", "\"rest", "\"rules"]);
    assert_eq!(read.edges.len(), shape.exchanges.len());
    assert!(read.edges.iter().all(|(from, to, _)| read.nodes.contains(from) && read.nodes.contains(to)));
    let of_style = |style: &str| read.edges.iter().filter(|(.., attributes)| attributes.contains(style)).count();
    assert_eq!((of_style("dashed"), of_style("bold")), (1, 1));
}

#[test]
fn names_in_dot_stay_names_whatever_they_hold() {
    let mut shape = shape();
    let evil = "\"];\n} digraph \\";
    shape.chains[0].nodes[0].name = evil.to_owned();
    shape.exchanges.iter_mut().filter(|edge| edge.from == "orders").for_each(|edge| edge.from = evil.to_owned());
    let text = dot::dot(evil, &shape);
    let read = read(&text);
    assert_eq!(read.nodes.len(), 6, "{text}");
    assert_eq!(read.edges.len(), shape.exchanges.len());
}

#[test]
fn json_says_what_the_drawing_does() {
    let json = serde_json::to_value(shape()).expect("plain data");
    let letters = json["exchanges"].as_array().expect("a list").iter().find(|edge| edge["dead_letters"] == true);
    let letters = letters.expect("an edge of dead letters");
    assert_eq!((letters["output"].as_str(), letters["to"].as_str()), (Some("dead-letters"), Some("rest")));
    let rules = json["exchanges"].as_array().expect("a list").iter().find(|edge| edge["input_name"] == "rules");
    assert_eq!(rules.expect("a broadcast")["exchange"], "broadcast");
}

#[test]
fn what_a_source_does_for_event_time_is_told() {
    let time = "[source.orders.event_time]\nfrom = 'json'\nfield = '/at'\nunit = 's'\n[source.orders.watermark]\n\
                strategy = 'bounded'\nidle_timeout = '30s'\n[source.rules]";
    let file = JobFile::parse("job.toml".as_ref(), &JOB.replace("[source.rules]", time)).expect("a good job file");
    let told = file.sources.iter().map(|(name, source)| {
        let TimeReport { source, event_time, watermark } = TimeReport::new(name.as_str(), source);
        format!("{source}: {event_time}; {watermark}")
    });
    let expected = ["orders: json /at (s); 5s behind, idle after 30s", "rules: none; none, never idle"];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn what_becomes_of_barriers_and_failures_is_told() {
    let told = |job: &str| PolicyReport::new(&JobFile::parse("job.toml".as_ref(), job).expect("a good job file"));
    let as_it_is = told(JOB);
    assert_eq!(as_it_is.alignment, "aligned");
    let often = "5 in a row at most, counted anew after 10m without a failure";
    assert_eq!(as_it_is.restart, format!("exponential-backoff, after 1s to 1m; {often}"));
    let with = |lines: &str| told(&format!("{JOB}\n{lines}"));
    let patient = with("[checkpoint]\nalignment = 'unaligned'\nalignment_timeout = '3s'\n[restart]\nstrategy = 'none'");
    assert_eq!((&*patient.alignment, &*patient.restart), ("aligned, after 3s unaligned", "none"));
    let hasty = with("[checkpoint]\nalignment = 'unaligned'\n[restart]\nstrategy = 'fixed-delay'\ndelay = '2s'");
    assert_eq!(hasty.alignment, "unaligned, at once");
    assert_eq!(hasty.restart, format!("fixed-delay, each after 2s; {often}"));
    let policies = as_it_is.on_error.iter().map(|report| format!("{}: {}", report.operator, report.on_error));
    assert_eq!(policies.collect::<Vec<_>>(), ["join: fail", "parse: dead-letter"]);
}
