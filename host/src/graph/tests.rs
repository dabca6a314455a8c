//! Every graph of four nodes, and one test for each thing that can be wrong.

mod branches;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::id::Name;
use crate::protocol::{Guarantee, MaxParallelism, OnError};

fn name(text: &str) -> Name {
    Name::new(text).expect("a usable name")
}

/// Inputs from texts such as "a" and "a:late", numbered in order.
fn inputs(texts: &[&str]) -> Vec<InputRef> {
    let input = |(number, text): (u32, &&str)| {
        let (from, port) = text.split_once(':').map_or((*text, None), |(from, port)| (from, Some(port.to_owned())));
        InputRef { from: name(from), port, input: InputPlace::Number(number) }
    };
    (0u32..).zip(texts).map(input).collect()
}

fn operator(text: &str, parallelism: u32, from: &[&str]) -> OperatorSpec {
    OperatorSpec { name: name(text), parallelism, inputs: inputs(from), exchange: None, on_error: OnError::Fail }
}

fn sink(text: &str, parallelism: u32, from: &[&str]) -> SinkSpec {
    SinkSpec { name: name(text), parallelism, inputs: inputs(from), commit: SinkCommit::TwoPhase, ordered: false }
}

fn source(text: &str, parallelism: u32) -> SourceSpec {
    let event_time = SourceTime { watermarks: false, falls_idle: false, silent_splits: false };
    SourceSpec { name: name(text), parallelism, replayable: true, event_time }
}

fn graph(sources: Vec<SourceSpec>, operators: Vec<OperatorSpec>, sinks: Vec<SinkSpec>) -> Graph {
    let max_parallelism = MaxParallelism::new(128).expect("in range");
    Graph { max_parallelism, guarantee: Guarantee::ExactlyOnce, sources, operators, sinks }
}

/// Facts for all operators: outputs `main` and `late`, as many inputs as they are given, keyed if named in `keyed`.
fn facts(graph: &Graph, keyed: &[&str]) -> BTreeMap<Name, OperatorFacts> {
    let fact = |operator: &OperatorSpec| {
        let keyed = keyed.contains(&operator.name.as_str());
        let numbers = operator.inputs.iter().map(|input| match input.input {
            InputPlace::Number(number) => number,
            InputPlace::Name(_) => 0,
        });
        let input = |number| InputFacts { name: format!("in{number}"), broadcast: false };
        let inputs = (0..=numbers.max().unwrap_or_default()).map(input).collect();
        (operator.name.clone(), OperatorFacts { outputs: vec!["main".into(), "late".into()], inputs, keyed })
    };
    graph.operators.iter().map(fact).collect()
}

fn plan(graph: &Graph, keyed: &[&str]) -> Result<Plan, GraphError> {
    Plan::new(graph, &facts(graph, keyed))
}

/// source text → split → count (keyed) → out
fn word_count(parallelism: u32) -> Graph {
    let operators = vec![operator("count", parallelism, &["split"]), operator("split", parallelism, &["text"])];
    graph(vec![source("text", parallelism)], operators, vec![sink("out", parallelism, &["count"])])
}

fn chains_by_name(plan: &Plan) -> Vec<Vec<&str>> {
    let names = |chain: &Chain| chain.nodes.iter().map(|&id| plan.node(id).name.as_str()).collect();
    plan.chains.iter().map(names).collect()
}

#[test]
fn a_word_count_becomes_two_chains_with_a_hash_exchange_between_all_their_tasks() {
    let plan = plan(&word_count(2), &["count"]).expect("a plan");
    assert_eq!(chains_by_name(&plan), [vec!["text", "split"], vec!["count", "out"]]);
    assert_eq!(
        plan.edges.iter().map(|edge| edge.exchange).collect::<Vec<_>>(),
        [Exchange::Forward, Exchange::Hash, Exchange::Forward]
    );
    let channels = plan.channels().iter().map(|channel| (channel.from.0, channel.to.0)).collect::<Vec<_>>();
    assert_eq!(channels, [(0, 2), (0, 3), (1, 2), (1, 3)]);
    assert!(plan.is_source(ChainId(0)) && !plan.is_source(ChainId(1)));
    assert_eq!(plan.edge_within(ChainId(0), 0).map(|edge| edge.to), Some(NodeId(1)));
    assert_eq!(plan.edge_within(ChainId(0), 1), None);
}

#[test]
fn an_unequal_parallelism_is_rebalanced() {
    let graph = graph(vec![source("s", 1)], vec![operator("a", 2, &["s"])], vec![sink("out", 2, &["a"])]);
    let plan = plan(&graph, &[]).expect("a plan");
    assert_eq!(plan.edges[0].exchange, Exchange::Rebalance);
    assert_eq!(chains_by_name(&plan), [vec!["s"], vec!["a", "out"]]);
    assert_eq!(plan.channels().len(), 2);
}

#[test]
fn where_the_order_within_keys_counts_unequal_parallelisms_exchange_by_key_all_the_way() {
    let operators = || vec![operator("a", 2, &["s"]), operator("b", 3, &["a"]), operator("c", 3, &["s"])];
    let sinks = || vec![SinkSpec { ordered: true, ..sink("out", 1, &["b"]) }, sink("files", 1, &["c"])];
    let exchanges = |operators: Vec<OperatorSpec>| {
        let plan = plan(&graph(vec![source("s", 1)], operators, sinks()), &[]).expect("a plan");
        let name = |node: NodeId| plan.node(node).name.to_string();
        plan.edges.iter().map(|edge| ((name(edge.from), name(edge.to)), edge.exchange)).collect::<BTreeMap<_, _>>()
    };
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let planned = exchanges(operators());
    for (from, to) in [("s", "a"), ("a", "b"), ("b", "out")] {
        assert_eq!(planned[&pair(from, to)], Exchange::Hash, "{from} to {to}");
    }
    for (from, to) in [("s", "c"), ("c", "files")] {
        assert_eq!(planned[&pair(from, to)], Exchange::Rebalance, "nothing behind {to} has an order");
    }
    // Who says rebalance gives the order up.
    let mut asked = operators();
    asked[1].exchange = Some(Exchange::Rebalance);
    assert_eq!(exchanges(asked)[&pair("a", "b")], Exchange::Rebalance);
}

#[test]
fn inputs_keep_their_numbers_and_those_of_a_sink_are_one() {
    let operators = vec![operator("join", 1, &["b", "a"])];
    let graph = graph(vec![source("a", 1), source("b", 1)], operators, vec![sink("out", 1, &["join", "join:late"])]);
    let plan = plan(&graph, &[]).expect("a plan");
    let edges = plan
        .edges
        .iter()
        .map(|edge| (plan.node(edge.from).name.as_str(), edge.port, plan.node(edge.to).name.as_str(), edge.input));
    assert_eq!(
        edges.collect::<Vec<_>>(),
        [("a", 0, "join", 1), ("b", 0, "join", 0), ("join", 0, "out", 0), ("join", 1, "out", 0)]
    );
    assert_eq!(plan.warnings, []);
}

#[test]
fn an_output_that_nobody_reads_is_a_warning_if_another_one_is_read() {
    let plan = plan(&word_count(1), &[]).expect("a plan");
    let dropped = |text: &str| Warning::OutputNotRead { name: name(text), port: "late".into() };
    assert_eq!(plan.warnings, [dropped("split"), dropped("count")]);
}

#[test]
fn the_guarantee_of_each_path_is_told() {
    let mut graph = word_count(1);
    graph.guarantee = Guarantee::AtMostOnce;
    graph.sources.push(SourceSpec { replayable: false, ..source("socket", 1) });
    graph.operators[1].inputs.push(inputs(&["socket"]).remove(0));
    graph.sinks.push(SinkSpec { commit: SinkCommit::Discarded, ..sink("null", 1, &["split"]) });
    let plan = plan(&graph, &["count"]).expect("a plan");
    let (paths, more) = guarantees(&graph, &plan);
    let told = paths.iter().map(|path| {
        let names = path.names.iter().map(Name::as_str).collect::<Vec<_>>();
        (names.join(" "), path.delivery)
    });
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            ("socket split count out".to_owned(), Delivery::AtMostOnce),
            ("socket split null".to_owned(), Delivery::Nothing),
            ("text split count out".to_owned(), Delivery::AtMostOnce),
            ("text split null".to_owned(), Delivery::Nothing),
        ]
    );
    assert!(!more);
}

#[test]
fn a_ladder_of_branches_does_not_tell_its_million_paths() {
    let mut operators = Vec::new();
    let mut before = vec!["s".to_owned()];
    for step in 0..20 {
        let now = vec![format!("a{step}"), format!("b{step}")];
        let from = before.iter().map(String::as_str).collect::<Vec<_>>();
        operators.extend(now.iter().map(|text| operator(text, 1, &from)));
        before = now;
    }
    let graph = graph(vec![source("s", 1)], operators, vec![sink("out", 1, &["a19", "b19"])]);
    let plan = plan(&graph, &[]).expect("a plan");
    let (paths, more) = guarantees(&graph, &plan);
    assert_eq!((paths.len(), more), (64, true));
}

/// Changes a good word count and expects an error that says `message`, with a help that says `help`.
#[track_caller]
fn refused(change: impl FnOnce(&mut Graph), message: &str, help: &str) {
    let mut graph = word_count(1);
    change(&mut graph);
    let error = plan(&graph, &["count"]).expect_err("a refusal");
    assert_eq!(error.to_string(), message);
    assert!(error.help().contains(help), "help is: {}", error.help());
}

#[test]
fn what_is_wrong_is_named_with_what_to_do() {
    refused(|g| g.sources.clear(), "the job has no source", "[source.NAME]");
    refused(|g| g.sinks.clear(), "the job has no sink", "[sink.NAME]");
    refused(
        |g| g.sinks[0].name = name("text"),
        "the name 'text' is used for a source and for a sink",
        "rename one of them",
    );
    refused(
        |g| g.operators[0].parallelism = 129,
        "operator 'count' has a parallelism of 129, outside of 1 to 128 (job.max_parallelism)",
        "raise job.max_parallelism",
    );
    refused(
        |g| g.sinks[0].parallelism = 0,
        "sink 'out' has a parallelism of 0, outside of 1 to 128 (job.max_parallelism)",
        "parallelism",
    );
    refused(|g| g.operators[1].inputs.clear(), "operator 'split' has no input: nobody feeds it", "[operator.split]");
    refused(|g| g.sinks[0].inputs.clear(), "sink 'out' has no input: nobody feeds it", "[sink.out]");
    refused(
        |g| g.operators[0].inputs = inputs(&["splt"]),
        "operator 'count' reads 'splt', which does not exist",
        "did you mean 'split'?",
    );
    refused(
        |g| g.sinks[0].inputs = inputs(&["elsewhere"]),
        "sink 'out' reads 'elsewhere', which does not exist",
        "the name of a source or operator",
    );
    refused(
        |g| g.operators[0].inputs = inputs(&["out"]),
        "operator 'count' reads sink 'out', and a sink has no output",
        "read what that sink reads",
    );
    refused(
        |g| g.sinks[0].inputs = inputs(&["count:lat"]),
        "sink 'out' reads output 'lat' of 'count', which has no such output",
        "did you mean 'late'? Its outputs are: main, late",
    );
    refused(
        |g| g.operators[1].inputs = inputs(&["text:main"]),
        "operator 'split' reads output 'main' of 'text', which has no such output",
        "write 'text'",
    );
    refused(
        |g| g.sinks[0].inputs = inputs(&["count", "count:main"]),
        "sink 'out' reads the same output of 'count' twice in one input",
        "remove one",
    );
    refused(
        |g| g.operators[1].inputs = inputs(&["split"]),
        "operator 'split' reads its own output",
        "remove one of these inputs",
    );
    refused(
        |g| g.operators[1].inputs = inputs(&["text", "count"]),
        "the graph has a cycle: count → split → count",
        "from the sources to the sinks",
    );
    refused(|g| g.sources.push(source("extra", 1)), "nobody reads source 'extra'", "[source.extra]");
    refused(|g| g.operators.push(operator("extra", 1, &["text"])), "nobody reads operator 'extra'", "type null");
    refused(
        |g| g.operators[0].exchange = Some(Exchange::Rebalance),
        "operator 'count' has keyed state, so its exchange is hash and can't be rebalance",
        "the plan chooses hash",
    );
    refused(
        |g| {
            g.operators[1].parallelism = 2;
            g.operators[1].exchange = Some(Exchange::Forward);
        },
        "operator 'split' has a parallelism of 2 and 'text' one of 1, so its exchange can't be forward",
        "rebalance",
    );
}

#[test]
fn a_long_cycle_is_told_in_the_direction_of_the_stream() {
    let operators = vec![
        operator("d", 1, &["c"]),
        operator("b", 1, &["s", "e"]),
        operator("c", 1, &["b"]),
        operator("e", 1, &["d"]),
        operator("after", 1, &["e"]),
    ];
    let graph = graph(vec![source("s", 1)], operators, vec![sink("out", 1, &["after"])]);
    let error = plan(&graph, &[]).expect_err("a cycle");
    assert_eq!(error.to_string(), "the graph has a cycle: b → c → d → e → b");
}

/// All graphs of a source `s`, operators `a` and `b`, and a sink `out`: which reads which, parallelism 1 or 2, keyed or not, and
/// whether all that `b` reads is a broadcast.
#[test]
fn every_small_graph_is_refused_or_planned_whole() {
    let (mut planned, mut refused) = (0, 0);
    let subset = |bits: u32| {
        let all = ["s", "a", "b"];
        (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| all[bit]).collect::<Vec<_>>()
    };
    for reads in 0..8u32.pow(3) {
        let (of_a, of_b, of_out) = (subset(reads & 7), subset(reads >> 3 & 7), subset(reads >> 6 & 7));
        let good = fits([&of_a, &of_b, &of_out]);
        for flags in 0..128u32 {
            let bit = |place: u32| flags >> place & 1;
            let operators = vec![operator("a", 1 + bit(0), &of_a), operator("b", 1 + bit(1), &of_b)];
            let graph = graph(vec![source("s", 1 + bit(2))], operators, vec![sink("out", 1 + bit(3), &of_out)]);
            let keyed = ["a", "b"].into_iter().zip([bit(4), bit(5)]).filter(|(_, bit)| *bit == 1);
            let mut facts = facts(&graph, &keyed.map(|(name, _)| name).collect::<Vec<_>>());
            let of_b = facts.get_mut(&name("b")).expect("facts of every operator");
            of_b.inputs.iter_mut().for_each(|input| input.broadcast = bit(6) == 1);
            let plan = Plan::new(&graph, &facts);
            assert_eq!(plan.is_ok(), good, "{graph:?} {plan:?}");
            assert_eq!(Plan::check_shape(&graph).is_ok(), good);
            match plan {
                Ok(plan) => {
                    is_whole(&plan);
                    planned += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(planned > 500 && refused > 500, "{planned} planned, {refused} refused");
}

/// Whether a graph fits together, told another way: everybody reads, everybody is read, and nobody reaches himself.
fn fits(reads: [&Vec<&str>; 3]) -> bool {
    let [of_a, of_b, of_out] = reads;
    let fed = reads.iter().all(|inputs| !inputs.is_empty());
    let read = ["s", "a", "b"].iter().all(|name| reads.iter().any(|inputs| inputs.contains(name)));
    let loops = of_a.contains(&"a") || of_b.contains(&"b") || (of_a.contains(&"b") && of_b.contains(&"a"));
    fed && read && !loops && !of_out.is_empty()
}

/// The invariants of a plan.
fn is_whole(plan: &Plan) {
    let in_chains = plan.chains.iter().flat_map(|chain| &chain.nodes).collect::<Vec<_>>();
    let nodes = (0..plan.nodes.len()).map(NodeId).collect::<BTreeSet<_>>();
    assert_eq!(in_chains.len(), plan.nodes.len(), "no node is in two chains");
    assert_eq!(in_chains.into_iter().copied().collect::<BTreeSet<_>>(), nodes, "every node is in a chain");

    let mut carried = BTreeMap::<EdgeId, usize>::new();
    let tasks = plan.tasks();
    for channel in plan.channels() {
        *carried.entry(channel.edge).or_default() += 1;
        let edge = plan.edge(channel.edge);
        let (from, to) = (tasks[channel.from.0 as usize], tasks[channel.to.0 as usize]);
        assert_eq!((from.id, to.id), (channel.from, channel.to));
        assert_eq!(plan.chain(from.chain).end(), edge.from, "channels leave from the end of a chain");
        assert_eq!(plan.chain(to.chain).head(), edge.to, "channels enter at the head of a chain");
    }
    for (place, edge) in plan.edges.iter().enumerate() {
        assert!(edge.from < edge.to, "nodes are in the order of the stream");
        let (from, to) = (plan.node(edge.from), plan.node(edge.to));
        let links = carried.get(&EdgeId(place)).copied().unwrap_or(0) as u32;
        let inside = plan.chain_of(edge.from) == plan.chain_of(edge.to);
        match (inside, edge.exchange) {
            (true, Exchange::Forward) => assert_eq!(links, 0, "an edge inside a chain has no channel"),
            (true, Exchange::Hash | Exchange::Rebalance | Exchange::Broadcast) => {
                panic!("only forward edges are chained")
            }
            (false, Exchange::Forward) => assert_eq!(links, from.parallelism),
            (false, Exchange::Hash | Exchange::Rebalance | Exchange::Broadcast) => {
                assert_eq!(links, from.parallelism * to.parallelism);
            }
        }
        let broadcast = to.inputs[edge.input as usize].broadcast;
        assert_eq!(edge.exchange == Exchange::Broadcast, broadcast, "a broadcast goes to all, and nothing else does");
        let by_key = to.keyed && !broadcast;
        assert_eq!(edge.exchange == Exchange::Hash, by_key, "keyed state gets its records by key, and nobody else");
        assert!(edge.exchange != Exchange::Forward || from.parallelism == to.parallelism);
    }
    for chain in plan.chain_ids() {
        let members = &plan.chain(chain).nodes;
        assert!(members.iter().all(|&id| plan.node(id).parallelism == plan.chain(chain).parallelism));
        for (position, pair) in members.windows(2).enumerate() {
            let edge = plan.edge_within(chain, position).expect("neighbours in a chain are joined");
            assert_eq!((edge.from, edge.to), (pair[0], pair[1]));
            assert_eq!(plan.edges.iter().filter(|other| other.from == edge.from || other.to == edge.to).count(), 1);
        }
        assert_eq!(plan.is_source(chain), plan.edges_in(chain).count() == 0);
    }
}
