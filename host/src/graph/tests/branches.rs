//! Operators with several inputs and outputs, broadcasts, dead letters, and what a job may promise.

use super::*;

/// Sources `orders` and `rules`, an operator `join` of two subtasks with inputs `orders` and `rules` (a broadcast), a sink `out`.
fn join() -> Graph {
    let join = OperatorSpec { inputs: named(&[("orders", "orders"), ("rules", "rules")]), ..operator("join", 2, &[]) };
    graph(vec![source("orders", 2), source("rules", 1)], vec![join], vec![sink("out", 2, &["join"])])
}

/// Inputs by name, each with what feeds it.
fn named(feeds: &[(&str, &str)]) -> Vec<InputRef> {
    let feed = |(input, from): &(&str, &str)| InputRef {
        input: InputPlace::Name((*input).to_owned()),
        ..inputs(&[from]).remove(0)
    };
    feeds.iter().map(feed).collect()
}

fn join_facts(keyed: bool) -> BTreeMap<Name, OperatorFacts> {
    let input = |name: &str, broadcast| InputFacts { name: name.to_owned(), broadcast };
    let facts = OperatorFacts {
        outputs: vec!["joined".into(), "late".into()],
        inputs: vec![input("orders", false), input("rules", true)],
        keyed,
    };
    BTreeMap::from([(name("join"), facts)])
}

/// The plan of a join that was changed.
fn planned(change: impl FnOnce(&mut Graph), keyed: bool) -> Result<Plan, GraphError> {
    let mut graph = join();
    change(&mut graph);
    Plan::new(&graph, &join_facts(keyed))
}

fn edges(plan: &Plan) -> Vec<String> {
    let edge = |edge: &Edge| {
        let (from, to) = (plan.node(edge.from), plan.node(edge.to));
        let output = from.output_name(edge.port).map(|output| format!(":{output}")).unwrap_or_default();
        let input = to.input_name(edge.input).map(|input| format!(".{input}")).unwrap_or_default();
        format!("{}{output} {} {}{input}", from.name, edge.exchange, to.name)
    };
    plan.edges.iter().map(edge).collect()
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Graph), keyed: bool, message: &str, help: &str) {
    let error = planned(change, keyed).expect_err("a refusal");
    assert_eq!(error.to_string(), message);
    assert!(error.help().contains(help), "help is: {}", error.help());
}

#[test]
fn inputs_are_fed_by_name_or_by_number_and_the_plan_chooses_each_exchange() {
    let expected = ["orders hash join.orders", "rules broadcast join.rules", "join:joined forward out"];
    let by_name = planned(|_| (), true).expect("a plan");
    let by_number = planned(|graph| graph.operators[0].inputs = inputs(&["orders", "rules"]), true).expect("a plan");
    assert_eq!(edges(&by_name), expected);
    assert_eq!(by_name, by_number);
    let unkeyed = planned(|_| (), false).expect("a plan");
    assert_eq!(edges(&unkeyed)[0], "orders forward join.orders");
    let joined = unkeyed.channels().iter().filter(|channel| channel.edge == EdgeId(1)).count();
    assert_eq!(joined, 2, "both subtasks get all rules");
    let dropped = Warning::OutputNotRead { name: name("join"), port: "late".into() };
    assert_eq!(by_name.warnings, [dropped]);
}

#[test]
fn several_can_feed_one_input_and_one_can_feed_several() {
    let union = |graph: &mut Graph| {
        let feeds = [("orders", "orders"), ("orders", "rules"), ("rules", "rules")];
        graph.operators[0].inputs = named(&feeds);
        graph.sinks.push(sink("copy", 2, &["orders", "join:late"]));
    };
    let plan = planned(union, true).expect("a plan");
    assert_eq!(
        edges(&plan),
        [
            "orders hash join.orders",
            "orders forward copy",
            "rules hash join.orders",
            "rules broadcast join.rules",
            "join:joined forward out",
            "join:late forward copy",
        ]
    );
    assert_eq!(plan.warnings, []);
}

#[test]
fn inputs_that_do_not_fit_the_operator_are_refused_with_its_inputs() {
    refused(
        |graph| graph.operators[0].inputs = named(&[("ordres", "orders"), ("rules", "rules")]),
        true,
        "operator 'join' has no input 'ordres'",
        "did you mean 'orders'? Its inputs are: orders, rules",
    );
    refused(
        |graph| graph.operators[0].inputs = named(&[("x", "orders"), ("rules", "rules")]),
        true,
        "operator 'join' has no input 'x'",
        "its inputs are: orders, rules",
    );
    refused(
        |graph| {
            graph.sources.push(source("more", 1));
            graph.operators[0].inputs = inputs(&["orders", "rules", "more"]);
        },
        true,
        "operator 'join' is given 3 inputs and has 2: orders, rules",
        r#"inputs = { orders = "NAME", rules = "NAME" }"#,
    );
    refused(
        |graph| {
            graph.sources.truncate(1);
            graph.operators[0].inputs = inputs(&["orders"]);
        },
        true,
        "nobody feeds input 'rules' of operator 'join'",
        r#"feed each of them in [operator.join]: inputs = { orders = "NAME", rules = "NAME" }"#,
    );
    let mut graph = word_count(1);
    let facts = facts(&graph, &[]);
    graph.operators[1].inputs = inputs(&["text", "text"]);
    let error = Plan::new(&graph, &facts).expect_err("one input");
    assert_eq!(error.to_string(), "operator 'split' is given 2 inputs and has 1: in0");
    assert!(error.help().contains(r#"[["a", "b"]]"#), "{}", error.help());
}

#[test]
fn an_exchange_is_about_the_inputs_that_are_no_broadcast() {
    let asked = |exchange| move |graph: &mut Graph| graph.operators[0].exchange = Some(exchange);
    let plan = planned(asked(Exchange::Rebalance), false).expect("a plan");
    assert_eq!(edges(&plan)[..2], ["orders rebalance join.orders", "rules broadcast join.rules"]);
    refused(
        asked(Exchange::Broadcast),
        true,
        "operator 'join' has keyed state, so its exchange is hash and can't be broadcast",
        "the plan chooses hash",
    );
    let plan = planned(asked(Exchange::Broadcast), false).expect("a plan");
    assert_eq!(edges(&plan)[..2], ["orders broadcast join.orders", "rules broadcast join.rules"]);
    assert_eq!(plan.warnings[1..], [Warning::Multiplied { name: name("join"), from: name("orders"), times: 2 }]);
    let mut only_rules = join();
    only_rules.sources.remove(0);
    only_rules.operators[0].inputs = inputs(&["rules"]);
    only_rules.operators[0].exchange = Some(Exchange::Hash);
    let mut facts = join_facts(false);
    facts.values_mut().for_each(|facts| drop(facts.inputs.remove(0)));
    let error = Plan::new(&only_rules, &facts).expect_err("a broadcast");
    assert_eq!(error.to_string(), "input 'rules' of operator 'join' is a broadcast, so its exchange can't be hash");
    assert!(error.help().contains("the plan chooses broadcast"));
}

#[test]
fn keyed_records_are_forwarded_only_from_one_subtask_to_one() {
    let forward = |parallelism| {
        let mut graph = word_count(parallelism);
        graph.operators[0].exchange = Some(Exchange::Forward);
        plan(&graph, &["count"])
    };
    assert_eq!(chains_by_name(&forward(1).expect("a plan")), [vec!["text", "split", "count", "out"]]);
    let error = forward(2).expect_err("two subtasks");
    assert_eq!(error.to_string(), "operator 'count' has keyed state, so its exchange is hash and can't be forward");
    assert!(error.help().contains("from one subtask to one subtask"), "{}", error.help());
}

#[test]
fn dead_letters_are_an_output_that_must_be_read_and_is_there_only_if_asked_for() {
    let letters = |graph: &mut Graph| {
        graph.operators[0].on_error = OnError::DeadLetter;
        graph.sinks.push(sink("broken", 1, &["join:dead-letters"]));
    };
    let plan = planned(letters, true).expect("a plan");
    assert_eq!(edges(&plan)[2..], ["join:joined forward out", "join:dead-letters rebalance broken"]);
    let node = plan.nodes.iter().find(|node| node.kind == NodeKind::Operator).expect("an operator");
    assert_eq!((node.dead_letters, node.outputs.len()), (Some(2), 3));
    refused(
        |graph| graph.operators[0].on_error = OnError::DeadLetter,
        true,
        "nobody reads the dead letters of operator 'join'",
        "make 'join:dead-letters' the input of a sink",
    );
    for on_error in [OnError::Fail, OnError::Skip] {
        refused(
            |graph| {
                letters(graph);
                graph.operators[0].on_error = on_error;
            },
            true,
            "sink 'broken' reads the dead letters of 'join', which makes none",
            "set on_error = \"dead-letter\" in [operator.join]",
        );
    }
    let mut facts = join_facts(true);
    facts.values_mut().for_each(|facts| facts.outputs.push(DEAD_LETTERS.to_owned()));
    let error = Plan::new(&join(), &facts).expect_err("a name of the host's");
    assert_eq!(error.to_string(), "operator 'join' declares the output dead-letters, which is the host's own name");
    refused(
        |graph| graph.sinks[0].inputs = inputs(&["orders:dead-letters", "join"]),
        true,
        "sink 'out' reads output 'dead-letters' of 'orders', which has no such output",
        "write 'orders'",
    );
}

#[test]
fn a_job_that_asks_for_more_than_a_path_gives_is_refused_with_that_path() {
    for guarantee in [Guarantee::AtMostOnce, Guarantee::AtLeastOnce, Guarantee::ExactlyOnce] {
        let mut graph = join();
        graph.guarantee = guarantee;
        let plan = Plan::new(&graph, &join_facts(true)).expect("sources can be replayed");
        let (paths, _) = guarantees(&graph, &plan);
        assert!(paths.iter().all(|path| path.delivery == Delivery::from(guarantee)), "{paths:?}");
        graph.sources[1].replayable = false;
        let refused = Plan::new(&graph, &join_facts(true));
        if guarantee == Guarantee::AtMostOnce {
            refused.expect("nothing is replayed anyway");
            continue;
        }
        let error = refused.expect_err("a source that can't be replayed");
        let expected = format!(
            "the job asks for {guarantee}, and the path rules → join → out gives at-most-once: the source can't be replayed, so what \
             a failure interrupts is lost"
        );
        assert_eq!(error.to_string(), expected);
        assert!(error.help().contains("set guarantee = \"at-most-once\""), "{}", error.help());
        graph.sinks[0].commit = SinkCommit::Discarded;
        Plan::new(&graph, &join_facts(true)).expect("there is no output to promise anything of");
    }
}

#[test]
fn a_sink_that_decides_gives_exactly_once_and_one_that_shows_records_at_once_does_not() {
    let deciding = || SinkCommit::Deciding { place: "localhost:9092".to_owned() };
    for (commit, asked, given) in [
        (deciding(), Guarantee::ExactlyOnce, Some(Delivery::ExactlyOnce)),
        (deciding(), Guarantee::AtLeastOnce, Some(Delivery::AtLeastOnce)),
        (deciding(), Guarantee::AtMostOnce, Some(Delivery::AtMostOnce)),
        (SinkCommit::Plain, Guarantee::ExactlyOnce, None),
        (SinkCommit::Plain, Guarantee::AtLeastOnce, Some(Delivery::AtLeastOnce)),
        (SinkCommit::Plain, Guarantee::AtMostOnce, Some(Delivery::AtMostOnce)),
    ] {
        let mut graph = join();
        (graph.guarantee, graph.sinks[0].commit) = (asked, commit);
        match (Plan::new(&graph, &join_facts(true)), given) {
            (Ok(plan), Some(given)) => {
                let (paths, _) = guarantees(&graph, &plan);
                assert!(paths.iter().all(|path| path.delivery == given), "{paths:?}");
            }
            (Err(error), None) => {
                assert!(error.to_string().contains("shows records as they come"), "{error}");
                assert!(error.help().contains("set guarantee = \"at-least-once\""), "{}", error.help());
            }
            (planned, given) => panic!("{planned:?}, and not {given:?}"),
        }
    }
}

#[test]
fn two_places_that_decide_are_refused_and_two_sinks_in_one_are_not() {
    let deciding = |text: &str, place: &str| {
        let commit = SinkCommit::Deciding { place: place.to_owned() };
        SinkSpec { commit, ..sink(text, 1, &["join"]) }
    };
    let mut graph = join();
    graph.sinks.push(deciding("a", "one:9092"));
    graph.sinks.push(deciding("b", "one:9092"));
    Plan::check_shape(&graph).expect("one place, beside a sink that is two-phase");
    graph.sinks.push(deciding("c", "other:9092"));
    let error = Plan::check_shape(&graph).expect_err("two places");
    assert_eq!(
        error.to_string(),
        "sinks 'a' and 'c' would decide over checkpoints in two places, one:9092 and other:9092"
    );
    assert!(error.help().contains("the same brokers"), "{}", error.help());
}

#[test]
fn a_source_without_watermarks_beside_one_with_them_is_a_warning_unless_it_falls_idle() {
    let time = |watermarks, falls_idle| SourceTime { watermarks, falls_idle, silent_splits: false };
    let held = Warning::NoWatermark { name: name("join"), silent: name("rules") };
    for (rules, expected) in
        [(time(false, false), vec![held]), (time(false, true), vec![]), (time(true, false), vec![])]
    {
        let change = |graph: &mut Graph| {
            graph.sources[0].event_time = time(true, false);
            graph.sources[1].event_time = rules;
        };
        assert_eq!(planned(change, true).expect("a plan").warnings[1..], expected);
    }
    let silent = |graph: &mut Graph| {
        graph.sources[0].event_time = SourceTime { silent_splits: true, ..time(true, false) };
        graph.sources[1].event_time = SourceTime { silent_splits: true, ..time(true, true) };
    };
    let plan = planned(silent, true).expect("a plan");
    assert_eq!(plan.warnings[1..], [Warning::SilentSplits { name: name("orders") }]);
}
