//! Guests written by hand in WebAssembly text, so that they can be as bad as a test wants.
//!
//! The layouts are those of the canonical ABI for `wit/operator.wit`: a result is a discriminant byte at 0 and its payload
//! at 4.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::guest::WORLD;

const WIT: &str = include_str!("../../../../wit/operator.wit");

/// A guest whose functions do nothing and succeed, but for what a test puts into it.
pub struct Guest {
    pub name: &'static str,
    /// Name, and whether it is a broadcast one.
    pub inputs: Vec<(&'static str, bool)>,
    pub outputs: Vec<&'static str>,
    /// Name, kind (0 value, 1 map, 2 list), version.
    pub tables: Vec<(&'static str, u8, u32)>,
    pub timers: bool,
    /// 0 split, 1 union, 2 broadcast.
    pub redistribution: u8,
    /// Memory in pages of 64 KiB: at the start, and the limit that it sets itself.
    pub pages: u32,
    /// Instructions that run before the answer of each function. `process` has a local `$i`.
    pub describe: String,
    pub open: String,
    pub restore: String,
    pub process: String,
    pub on_timers: String,
    pub watermark: String,
    pub snapshot: String,
    pub close: String,
    /// More functions, globals, tables and data.
    pub extra: String,
    /// One more import of the module, and what declares it in the world.
    pub import: (&'static str, &'static str),
    /// The version of the world to be built for.
    pub world_version: &'static str,
}

impl Default for Guest {
    fn default() -> Guest {
        let nothing = String::new;
        Guest {
            name: "test",
            inputs: vec![("in", false)],
            outputs: vec!["out"],
            tables: Vec::new(),
            timers: false,
            redistribution: 0,
            pages: 2,
            describe: nothing(),
            open: nothing(),
            restore: nothing(),
            process: nothing(),
            on_timers: nothing(),
            watermark: nothing(),
            snapshot: nothing(),
            close: nothing(),
            extra: nothing(),
            import: ("", ""),
            world_version: WORLD.version,
        }
    }
}

/// Where the zeroed answer of functions lies: `ok`, or what a test stores there.
pub const RESULT: u32 = 16;
const DESCRIPTOR: u32 = 64;
/// Names and lists of the descriptor, then free for a test.
const STATIC: usize = 128;
/// Texts of tests are put here.
pub const TEXT: u32 = 8192;
/// A batch's parts are put here by tests.
pub const DATA: u32 = 16384;
const HEAP: u32 = 32768;

/// Emits the batch that the function was given.
pub const EMIT_INPUT: &str =
    "(call $emit (i32.const 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
    (local.get 6) (local.get 7) (local.get 8) (local.get 9) (local.get 10) (local.get 11) (local.get 12) (local.get 13)
    (local.get 14) (local.get 15))";

/// Emits `rows` records to `port` with all columns of zeros at [`DATA`], of the right lengths.
pub fn emit_zeros(port: u32, rows: u32) -> String {
    emit(port, rows, (rows + 1) * 4, rows * 8)
}

/// Emits columns of zeros with the given lengths of offsets and timestamps.
pub fn emit(port: u32, rows: u32, offsets: u32, timestamps: u32) -> String {
    let list = |bytes| format!("(i32.const {DATA}) (i32.const {bytes})");
    let (none, offsets, timestamps) = (list(0), list(offsets), list(timestamps));
    format!(
        "(call $emit (i32.const {port}) (i32.const {rows}) {none} {offsets} {none} {offsets} {timestamps} {none} {none})"
    )
}

/// Logs a text at a level (3 is error).
pub fn log(level: u32, text: &str) -> String {
    assert!(text.len() < 4096, "room for the text");
    let bytes = text.bytes().enumerate();
    let stores = bytes.map(|(at, byte)| format!("(i32.store8 (i32.const {}) (i32.const {byte}))", TEXT as usize + at));
    let stores = stores.collect::<Vec<_>>().join("\n");
    format!("{stores} (call $log (i32.const {level}) (i32.const {TEXT}) (i32.const {}))", text.len())
}

impl Guest {
    /// The component.
    pub fn component(&self) -> Vec<u8> {
        let mut module = self.module();
        let wit = WIT.replace(&format!("@{};", WORLD.version), &format!("@{};", self.world_version));
        let wit = wit.replace("  import runtime;", &format!("  import runtime; {}", self.import.1));
        embed(&mut module, &wit);
        encode(&module)
    }

    /// The core module, which isn't an operator yet.
    pub fn module(&self) -> Vec<u8> {
        wat::parse_str(self.text()).expect("a module")
    }

    fn text(&self) -> String {
        let interface = |name: &str| format!("lockgate:operator/{name}@{}", self.world_version);
        let (output, state) = (interface("output"), interface("state"));
        let (timers, runtime) = (interface("timers"), interface("runtime"));
        let operator = interface("operator");
        let i32s = |count: usize| "i32 ".repeat(count);
        let answer = format!("(i32.const {RESULT})");
        let Guest { describe, open, restore, process, on_timers, watermark, snapshot, close, extra, pages, .. } = self;
        format!(
            r#"(module
            (import "{output}" "emit" (func $emit (param {p16})))
            (import "{state}" "get-many" (func $get_many (param {p10})))
            (import "{state}" "write-many" (func $write_many (param {p15})))
            (import "{state}" "scan" (func $scan (param {p8})))
            (import "{timers}" "write-many" (func $write_timers (param {p13})))
            (import "{runtime}" "now-ms" (func $now (result i64)))
            (import "{runtime}" "watermark-ms" (func $watermark (result i64)))
            (import "{runtime}" "log" (func $log (param i32 i32 i32)))
            (import "{runtime}" "counter-add" (func $counter_add (param i32 i32 i64)))
            {import}
            (memory (export "memory") {pages})
            (global $heap (mut i32) (i32.const {HEAP}))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                (global.set $heap (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (if (i32.gt_u (i32.add (global.get $heap) (local.get 3)) (i32.mul (memory.size) (i32.const 65536)))
                    (then (drop (memory.grow (i32.add (i32.shr_u (local.get 3) (i32.const 16)) (i32.const 1))))))
                (global.get $heap)
                (global.set $heap (i32.add (global.get $heap) (local.get 3))))
            {extra}
            {data}
            (func (export "{operator}#describe") (result i32) {describe} (i32.const {DESCRIPTOR}))
            (func (export "{operator}#open") (param {p9}) (result i32) {open} {answer})
            (func (export "{operator}#restore") (param i32 i32) (result i32) {restore} {answer})
            (func (export "{operator}#process") (param {p16}) (result i32) (local $i i32)
                (global.set $heap (i32.const {HEAP})) {process} {answer})
            (func (export "{operator}#timers") (param {p16}) (result i32) (local $i i32)
                (global.set $heap (i32.const {HEAP})) {on_timers} {answer})
            (func (export "{operator}#watermark") (param i64) (result i32) {watermark} {answer})
            (func (export "{operator}#snapshot") (param i64) (result i32) {snapshot} {answer})
            (func (export "{operator}#trim") (param i64) (result i32) {answer})
            (func (export "{operator}#close") (result i32) {close} {answer}))"#,
            p16 = i32s(16),
            p15 = i32s(15),
            p13 = i32s(13),
            p10 = i32s(10),
            p9 = i32s(9),
            p8 = i32s(8),
            data = self.data(),
            import = self.import.0,
        )
    }

    /// The descriptor and what it points to.
    fn data(&self) -> String {
        let mut bytes: Vec<u8> = Vec::new();
        let mut text = |text: &str| {
            let at = (STATIC + bytes.len()) as u32;
            bytes.extend_from_slice(text.as_bytes());
            [at, text.len() as u32]
        };
        let mut words = Vec::new();
        words.extend(text(self.name));
        words.extend(text("1.2.3"));
        let input = |(name, broadcast): &(&str, bool)| [text(name).as_slice(), &[u32::from(*broadcast)]].concat();
        let inputs = self.inputs.iter().flat_map(input).collect::<Vec<_>>();
        let outputs = self.outputs.iter().flat_map(|name| text(name)).collect::<Vec<_>>();
        let table =
            |(name, kind, version): &(&str, u8, u32)| [text(name).as_slice(), &[u32::from(*kind), *version]].concat();
        let tables = self.tables.iter().flat_map(table).collect::<Vec<_>>();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let lists = [(inputs, self.inputs.len()), (outputs, self.outputs.len()), (tables, self.tables.len())];
        for (list, count) in lists {
            words.extend([(STATIC + bytes.len()) as u32, count as u32]);
            bytes.extend(list.iter().flat_map(|word| word.to_le_bytes()));
        }
        words.push(u32::from(self.timers) | u32::from(self.redistribution) << 8);
        assert!(STATIC + bytes.len() < TEXT as usize, "room for the descriptor");
        let escaped = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\{byte:02x}")).collect::<String>();
        let descriptor = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect::<Vec<_>>();
        format!(
            "(data (i32.const {DESCRIPTOR}) \"{}\") (data (i32.const {STATIC}) \"{}\")",
            escaped(&descriptor),
            escaped(&bytes)
        )
    }
}

/// Describes a world in a module, as `lockgate::export!` does.
pub fn embed(module: &mut Vec<u8>, wit: &str) {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("operator.wit", wit).expect("the WIT");
    let world = resolve.select_world(&[package], None).expect("one world");
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).expect("embedded");
}

pub fn encode(module: &[u8]) -> Vec<u8> {
    let encoder = ComponentEncoder::default().validate(true).module(module);
    encoder.expect("a described module").encode().expect("a component")
}
