//! Guests written by hand in WebAssembly text, so that they can be as bad as a test wants.
//!
//! The layouts are those of the canonical ABI for `wit/operator.wit`: a result is a discriminant byte at 0 and its payload
//! at 4.

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

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
    pub trim: String,
    pub close: String,
    /// Instructions that run before memory is given to the host. They may `return` a pointer of their own.
    pub realloc: String,
    /// What it exports of `migration`, if anything.
    pub migrating: Option<Migrating>,
    /// More functions, globals, tables and data.
    pub extra: String,
    /// One more import of the module, and what declares it in the world.
    pub import: (&'static str, &'static str),
    pub wasi: WasiImports,
    /// The version of the world to be built for.
    pub world_version: &'static str,
    /// Words of the contract, and what it is built for instead of them.
    pub contract: (&'static str, &'static str),
}

/// Instructions that run before the answers of the functions of `migration`. That of `migrate` lies at [`Migrating::ANSWER`], those of
/// the others at [`RESULT`].
#[derive(Default)]
pub struct Migrating {
    pub prepare: String,
    pub migrate: String,
    pub merge: String,
}

impl Migrating {
    /// Six pairs of pointer and length follow the discriminant: too much for [`RESULT`].
    pub const ANSWER: u32 = DATA;

    fn text(&self, world_version: &str) -> String {
        let interface = format!("lockgate:operator/migration@{world_version}");
        let (Migrating { prepare, migrate, merge }, answer) = (self, Migrating::ANSWER);
        let parameters = "i32 ".repeat(14);
        format!(
            r#"(func (export "{interface}#prepare") (param i32 i32) (result i32) {prepare} (i32.const {RESULT}))
            (func (export "{interface}#migrate") (param {parameters}) (result i32)
                (global.set $heap (i32.const {HEAP})) {migrate} (i32.const {answer}))
            (func (export "{interface}#merge") (param i32) (result i32)
                (global.set $heap (i32.const {HEAP})) {merge} (i32.const {RESULT}))"#
        )
    }
}

/// What a guest imports of WASI.
#[derive(Clone, Default)]
pub struct WasiImports {
    /// In the module.
    pub core: String,
    /// In the world.
    pub world: String,
    /// What it is, in WIT.
    pub packages: String,
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
            trim: nothing(),
            close: nothing(),
            realloc: nothing(),
            migrating: None,
            extra: nothing(),
            import: ("", ""),
            wasi: WasiImports::default(),
            world_version: version(),
            contract: ("", ""),
        }
    }
}

/// The version of the world that the host has.
fn version() -> &'static str {
    let (_, rest) = WIT.split_once("package lockgate:operator@").expect("the package");
    rest.split_once(';').expect("its end").0
}

/// Where the zeroed answer of functions lies: `ok`, or what a test stores there.
pub const RESULT: u32 = 16;
/// Pointers and lengths of name, version, inputs, outputs and tables; then a byte for timers and one for the redistribution.
pub const DESCRIPTOR: u32 = 64;
/// Names and lists of the descriptor, one after the other; then free for a test.
pub const STATIC: usize = 128;
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
    let of = |bytes| list(DATA, bytes);
    let (none, offsets, timestamps) = (of(0), of(offsets), of(timestamps));
    format!(
        "(call $emit (i32.const {port}) (i32.const {rows}) {none} {offsets} {none} {offsets} {timestamps} {none} {none})"
    )
}

/// Stores bytes from an address on.
pub fn store(at: u32, bytes: impl AsRef<[u8]>) -> String {
    let store = |(at, byte)| format!("(i32.store8 (i32.const {at}) (i32.const {byte}))");
    (at..).zip(bytes.as_ref()).map(store).collect::<Vec<_>>().join(" ")
}

/// Stores little-endian numbers from an address on.
pub fn store_words(at: u32, words: &[u32]) -> String {
    store(at, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
}

/// A list, as a call takes it.
pub fn list(at: u32, length: u32) -> String {
    format!("(i32.const {at}) (i32.const {length})")
}

/// Logs a text at a level (3 is error).
pub fn log(level: u32, text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    assert!(text.len() < 4096, "room for the text");
    format!("{} (call $log (i32.const {level}) {})", store(TEXT, text), list(TEXT, text.len() as u32))
}

impl Guest {
    /// The component.
    pub fn component(&self) -> Vec<u8> {
        let mut module = self.module();
        let wit = WIT.replace(&format!("@{};", version()), &format!("@{};", self.world_version));
        let wit = wit.replace(self.contract.0, self.contract.1);
        let wit = wit.replace("  import runtime;", &format!("  import runtime; {} {}", self.import.1, self.wasi.world));
        let wit = format!("{wit}\n{}", self.wasi.packages);
        let world = if self.migrating.is_some() { "migrating-operator" } else { "stream-operator" };
        embed_world(&mut module, &wit, Some(world));
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
        let Guest { describe, open, restore, process, on_timers, watermark, snapshot, trim, close, .. } = self;
        let Guest { realloc, extra, pages, .. } = self;
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
            {import} {wasi}
            (memory (export "memory") {pages})
            (global $heap (mut i32) (i32.const {HEAP}))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                {realloc}
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
            (func (export "{operator}#trim") (param i64) (result i32) {trim} {answer})
            (func (export "{operator}#close") (result i32) {close} {answer})
            {migrating})"#,
            migrating = self.migrating.as_ref().map(|migrating| migrating.text(self.world_version)).unwrap_or_default(),
            p16 = i32s(16),
            p15 = i32s(15),
            p13 = i32s(13),
            p10 = i32s(10),
            p9 = i32s(9),
            p8 = i32s(8),
            data = self.data(),
            import = self.import.0,
            wasi = self.wasi.core,
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

/// Describes the only world of a WIT, or of the contract that of operators, in a module, as `lockgate::export!` does.
pub fn embed(module: &mut Vec<u8>, wit: &str) {
    let world = wit.contains("world stream-operator {").then_some("stream-operator");
    embed_world(module, wit, world);
}

/// Describes a world in a module.
fn embed_world(module: &mut Vec<u8>, wit: &str, world: Option<&str>) {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("operator.wit", wit).expect("the WIT");
    let world = resolve.select_world(&[package], world).expect("a world of the WIT");
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).expect("embedded");
}

pub fn encode(module: &[u8]) -> Vec<u8> {
    let encoder = ComponentEncoder::default().validate(true).module(module);
    encoder.expect("a described module").encode().expect("a component")
}
