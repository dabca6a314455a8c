//! From the tree of a document to a [`JobFile`]: defaults filled in, tables read, paths resolved.
//!
//! Invariant: every key of the document is read by somebody or refused.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::config::inputs::{Form, Inputs};
use crate::config::job_file::{CheckpointConfig, Component, JobFile, OperatorConfig, SinkConfig, SourceConfig};
use crate::config::problem::Problem;
use crate::config::raw::{RawCheckpoint, RawJob, RawOperator, RawRestart, RawSink, RawSource, SINK_KEYS, SOURCE_KEYS};
use crate::config::reader::read;
use crate::config::source_time;
use crate::config::standing::Standing;
use crate::config::tree::{Node, Table, Value, fill, parse, write_json};
use crate::config::typed::{Parts, read_own};
use crate::config::{largest_record, shared_transaction};
use crate::connector::{GeneratorOptions, NexmarkOptions, SinkOptions, SourceOptions};
use crate::graph::InputRef;
use crate::guest::Limits;
use crate::id::Name;
use crate::protocol::MaxParallelism;

const ROOT_KEYS: [&str; 6] = ["job", "checkpoint", "restart", "source", "operator", "sink"];
const SOURCE_TYPES: [&str; 4] = ["file", "generator", "kafka", "nexmark"];
const SINK_TYPES: [&str; 3] = ["file", "kafka", "null"];

fn defaults() -> Table {
    parse(include_str!("default.toml")).expect("the defaults are TOML")
}

pub(super) fn assemble(standing: &Standing<'_>, text: &str) -> Result<JobFile, Problem> {
    let mut root = parse(text)?;
    if let Some((key, node)) = root.iter().find(|(key, _)| !ROOT_KEYS.contains(&key.as_str())) {
        return Err(Problem::unknown_key(key, &ROOT_KEYS).at(node.key_span.clone()));
    }
    let mut defaults = defaults();
    let base = standing.base;

    let (checkpoint_node, restart_node) = (root.get("checkpoint").cloned(), root.get("restart").cloned());
    let job = read_section::<RawJob>(&mut root, &mut defaults, "job")?;
    let checkpoint = read_section::<RawCheckpoint>(&mut root, &mut defaults, "checkpoint")?;
    let alignment = checkpoint
        .alignment(job.guarantee)
        .map_err(|problem| in_section(problem, checkpoint_node.as_ref(), "checkpoint"))?;
    let restart = read_section::<RawRestart>(&mut root, &mut defaults, "restart")?;
    let mut warnings = restart.warnings(keys_of(restart_node.as_ref()));
    let restart = restart.strategy().map_err(|problem| in_section(problem, restart_node.as_ref(), "restart"))?;
    let state_dir = job.state_dir.map_or_else(|| (standing.state_dir)(&job.name), |state_dir| base.join(state_dir));
    let store = checkpoint.store.map_or_else(|| state_dir.join("checkpoints"), |store| base.join(store));
    let shared = Shared { base, parallelism: job.parallelism };
    let max_parallelism = MaxParallelism::new(job.max_parallelism).expect("its range was checked");

    let source_defaults = take_table(&mut defaults, "source");
    let operator_defaults = take_table(&mut defaults, "operator");
    let sink_defaults = take_table(&mut defaults, "sink");
    let sink_tables = root.get("sink").cloned();
    let sources = each(&mut root, "source", |node| shared.source(node, &source_defaults))?;
    let operators = each(&mut root, "operator", |node| shared.operator(node, &operator_defaults))?;
    let sinks = each(&mut root, "sink", |node| shared.sink(node, &sink_defaults))?;
    largest_record::check(&sinks, job.guarantee, sink_tables.as_ref())?;
    warnings.extend(shared_transaction::check(
        &job.name,
        &sinks,
        job.guarantee,
        checkpoint.interval,
        sink_tables.as_ref(),
    )?);
    Ok(JobFile {
        path: standing.path.to_owned(),
        job: job.name,
        guarantee: job.guarantee,
        parallelism: job.parallelism,
        max_parallelism,
        state_dir,
        checkpoint: CheckpointConfig {
            interval: checkpoint.interval,
            min_pause: checkpoint.min_pause,
            timeout: checkpoint.timeout,
            alignment,
            max_concurrent: checkpoint.max_concurrent,
            retain: checkpoint.retain,
            store,
        },
        restart,
        sources,
        operators,
        sinks,
        warnings,
    })
}

/// One of the tables that every job has, with its defaults.
fn read_section<T: for<'de> Deserialize<'de>>(root: &mut Table, defaults: &mut Table, key: &str) -> Result<T, Problem> {
    let default = defaults.remove(key).expect("every section has defaults");
    let mut node = root.remove(key).unwrap_or_else(|| Node::without_place(Value::Table(Table::new())));
    if let (Value::Table(table), Value::Table(defaults)) = (&mut node.value, &default.value) {
        fill(table, defaults);
    }
    read(&node).map_err(|problem| problem.inside(key))
}

/// A problem of values that don't go together: it stands where the key is that it is told of.
fn in_section(problem: Problem, section: Option<&Node>, key: &str) -> Problem {
    let value = match section {
        Some(Node { value: Value::Table(table), .. }) => table.get(&problem.key_path()),
        Some(_) | None => None,
    };
    problem.at(value.or(section).and_then(|node| node.span.clone())).inside(key)
}

/// The keys that a section of the document has.
fn keys_of(section: Option<&Node>) -> impl Iterator<Item = &str> {
    section.and_then(keys_in).into_iter().flat_map(|table| table.keys().map(String::as_str))
}

/// What a node holds, if it is a table.
fn keys_in(section: &Node) -> Option<&Table> {
    if let Value::Table(table) = &section.value { Some(table) } else { None }
}

fn take_table(table: &mut Table, key: &str) -> Table {
    match table.remove(key).map(|node| node.value) {
        Some(Value::Table(table)) => table,
        _ => Table::new(),
    }
}

/// Reads every `[section.NAME]`.
fn each<T>(
    root: &mut Table,
    section: &str,
    read: impl Fn(Node) -> Result<T, Problem>,
) -> Result<BTreeMap<Name, T>, Problem> {
    let Some(node) = root.remove(section) else { return Ok(BTreeMap::new()) };
    let is_no_table =
        |found: &'static str| Problem::wrong_type(found, format!("a table with a name: [{section}.NAME]"));
    let entries = match node.value {
        Value::Table(entries) => entries,
        other => return Err(is_no_table(other.kind()).at(node.span).inside(section)),
    };
    let read_one = |(key, node): (String, Node)| -> Result<(Name, T), Problem> {
        let span = node.span.clone();
        let name = Name::new(&key).map_err(|bad| Problem::invalid(bad.to_string()).at(node.key_span.clone()))?;
        match &node.value {
            Value::Table(_) => read(node).map(|value| (name, value)),
            other => Err(is_no_table(other.kind())),
        }
        .map_err(|problem| problem.at(span).inside(&key))
    };
    let read_all = entries.into_iter().map(read_one).collect::<Result<_, _>>();
    read_all.map_err(|problem| problem.inside(section))
}

/// What the tables of sources, operators and sinks need to know of the job.
struct Shared<'a> {
    base: &'a Path,
    parallelism: u32,
}

impl Shared<'_> {
    fn source(&self, node: Node, defaults: &Table) -> Result<SourceConfig, Problem> {
        let parts = Parts::of(node, &SOURCE_KEYS, defaults);
        let own = &parts.own;
        let mut options = match parts.kind.require(&SOURCE_TYPES)? {
            "file" => SourceOptions::File(read_own(own, &SOURCE_KEYS)?),
            "generator" => SourceOptions::Generator(read_own(own, &SOURCE_KEYS)?),
            "kafka" => SourceOptions::Kafka(read_own(own, &SOURCE_KEYS)?),
            "nexmark" => SourceOptions::Nexmark(read_own(own, &SOURCE_KEYS)?),
            other => return Err(parts.kind.unknown(other, &SOURCE_TYPES)),
        };
        options.validate().map_err(|bad| parts.bad_option(bad))?;
        options.resolve(self.base);
        let common = read::<RawSource>(&parts.common)?;
        let event_time = common.event_time.options().map_err(|problem| problem.inside("event_time"))?;
        let watermarks = common.watermark.options();
        source_time::check(&options, &event_time, watermarks)?;
        let parallelism = common.parallelism.unwrap_or(self.parallelism);
        if let Some(splits) = numbered_splits(&options).filter(|splits| parallelism > *splits) {
            let problem = format!("{parallelism} subtasks can't share {splits} splits");
            let help = "lower the parallelism of this source, or raise its splits before the job's first run";
            let given = keys_in(&parts.common).and_then(|table| table.get("parallelism"));
            let span = given.and_then(|node| node.span.clone());
            return Err(Problem::invalid(problem).with_help(help).at(span).inside("parallelism"));
        }
        Ok(SourceConfig { options, parallelism, event_time, watermarks })
    }

    fn sink(&self, node: Node, defaults: &Table) -> Result<SinkConfig, Problem> {
        let parts = Parts::of(node, &SINK_KEYS, defaults);
        let own = &parts.own;
        let mut options = match parts.kind.require(&SINK_TYPES)? {
            "file" => SinkOptions::File(read_own(own, &SINK_KEYS)?),
            "kafka" => SinkOptions::Kafka(read_own(own, &SINK_KEYS)?),
            "null" => SinkOptions::Null(read_own(own, &SINK_KEYS)?),
            other => return Err(parts.kind.unknown(other, &SINK_TYPES)),
        };
        options.validate().map_err(|bad| parts.bad_option(bad))?;
        options.resolve(self.base);
        let common = read::<RawSink>(&parts.common)?;
        let inputs = inputs_of_sink(common.input, common.inputs)?;
        Ok(SinkConfig { options, inputs, parallelism: common.parallelism.unwrap_or(self.parallelism) })
    }

    fn operator(&self, mut node: Node, defaults: &Table) -> Result<OperatorConfig, Problem> {
        let mut config_json = "{}".to_owned();
        if let Value::Table(table) = &mut node.value {
            if let Some(config) = table.remove("config") {
                config_json = config_as_json(&config).map_err(|problem| problem.inside("config"))?;
            }
            fill(table, defaults);
        }
        let raw = read::<RawOperator>(&node)?;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(OperatorConfig {
            wasm: match raw.wasm {
                Component::File(path) => Component::File(self.base.join(path)),
                plugin @ Component::Plugin(_) => plugin,
            },
            inputs: inputs(raw.input, raw.inputs)?,
            parallelism: raw.parallelism.unwrap_or(self.parallelism),
            exchange: raw.exchange,
            on_error: raw.on_error,
            capsules_max: raw.capsules,
            config_json,
            limits: Limits {
                memory_bytes_max: bytes(raw.limits.memory),
                call_timeout: raw.limits.call,
                output_bytes_max: bytes(raw.limits.output),
                table_elements_max: raw.limits.tables as usize,
                core_instances_max: raw.limits.instances as usize,
                stack_bytes_max: bytes(raw.limits.stack),
                log_lines_per_second_max: raw.limits.log_rate,
                state_bytes_max: raw.limits.state,
            },
            state_memory_bytes_max: bytes(raw.limits.state_memory),
        })
    }
}

/// How many splits a source has whose splits are counted in the job file.
fn numbered_splits(options: &SourceOptions) -> Option<u32> {
    if let SourceOptions::Generator(GeneratorOptions { splits, .. })
    | SourceOptions::Nexmark(NexmarkOptions { splits, .. }) = options
    {
        return Some(*splits);
    }
    None
}

fn inputs(input: Option<Inputs>, inputs: Option<Inputs>) -> Result<Vec<InputRef>, Problem> {
    match (input, inputs) {
        (Some(_), Some(_)) => {
            Err(Problem::invalid("input and inputs are two ways to say the same: take one of them".to_owned()))
        }
        (Some(Inputs { refs, form: Form::One }), None) | (None, Some(Inputs { refs, .. })) => Ok(refs),
        (Some(inputs @ Inputs { form: Form::List | Form::Table, .. }), None) => {
            let problem = Problem::invalid("it holds one name; a list or a table is what inputs holds".to_owned());
            Err(problem.with_help(&format!("write inputs = {inputs}")).inside("input"))
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// A sink has one input, which several may feed.
fn inputs_of_sink(input: Option<Inputs>, several: Option<Inputs>) -> Result<Vec<InputRef>, Problem> {
    if several.as_ref().is_some_and(|inputs| inputs.form == Form::Table) {
        let problem = Problem::invalid("the inputs of a sink have no names".to_owned());
        return Err(problem.with_help("write a list of what it reads: inputs = [\"a\", \"b\"]").inside("inputs"));
    }
    inputs(input, several)
}

fn config_as_json(config: &Node) -> Result<String, Problem> {
    let mut json = String::new();
    match &config.value {
        Value::Table(_) => write_json(config, &mut json)?,
        other => return Err(Problem::wrong_type(other.kind(), "a table").at(config.span.clone())),
    }
    Ok(json)
}
