//! The word count in four languages: one behaviour, and one state that each takes over from any other.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use lockgate_tests::{Finished, JobFolder, Language, WordTotals, Words, module_operators, operator_of, part_files};

/// The languages whose tools are here.
fn languages(what: &str) -> Vec<Language> {
    Language::ALL.into_iter().filter(|language| !language.is_missing(what)).collect()
}

/// A job over the files of `input`. `operators` are lines of tables; the last of them is read by the sink.
fn write_job(folder: &JobFolder, operators: &[(&str, &Path, &str)]) {
    let mut job = "[job]\nname = \"words\"\nparallelism = 2\nstate_dir = \"state\"\n[checkpoint]\ninterval = \"50ms\"\n[restart]\n\
                   strategy = \"none\"\n[source.text]\ntype = \"file\"\npath = \"input\"\n"
        .to_owned();
    let mut input = "text";
    for (name, wasm, more) in operators {
        let _ = writeln!(job, "[operator.{name}]\nwasm = \"{}\"\ninput = \"{input}\"\n{more}", wasm.display());
        input = name;
    }
    let _ = writeln!(job, "[sink.out]\ntype = \"file\"\npath = \"output\"\ninput = \"{input}\"");
    folder.write("job.toml", job);
}

fn write_word_count(folder: &JobFolder, language: Language) {
    let (split, count) = (language.operator("split"), language.operator("count"));
    write_job(folder, &[("split", &split, ""), ("count", &count, "")]);
}

/// All lines of the committed output, sorted.
fn output(folder: &JobFolder) -> Vec<Vec<u8>> {
    let files = part_files(&folder.path("output")).expect("the output can be listed");
    let content = files.iter().flat_map(|file| fs::read(file).expect("a part file can be read")).collect::<Vec<_>>();
    let mut lines = content.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    lines.retain(|line| !line.is_empty());
    lines.sort();
    lines
}

/// What a job of these operators writes for `input`.
fn outcome(input: &[u8], operators: &[(&str, &Path, &str)]) -> Vec<Vec<u8>> {
    let folder = JobFolder::new();
    folder.write("input/a.txt", input);
    write_job(&folder, operators);
    folder.run().assert_success();
    output(&folder)
}

/// Lines that show the first difference, where two outputs are too long to be shown.
#[track_caller]
fn assert_same(language: Language, found: &[Vec<u8>], expected: &[Vec<u8>]) {
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    let shown =
        differs.map(|(found, expected)| (found.escape_ascii().to_string(), expected.escape_ascii().to_string()));
    assert_eq!(shown, None, "{language:?} (left) differs from what it must be (right)");
    assert_eq!(found.len(), expected.len(), "{language:?} has another number of lines");
}

/// Blocks of characters that are as they are for ever, letters and others.
const BLOCKS: [(u32, u32); 15] = [
    (0x20, 0x377),
    (0x400, 0x52f),
    (0x5d0, 0x5ea),
    (0x621, 0x6ff),
    (0x904, 0x94f),
    (0xe01, 0xe3a),
    (0x1e00, 0x1eff),
    (0x2010, 0x2027),
    (0x2070, 0x2079),
    (0x2150, 0x2188),
    (0x2460, 0x24ff),
    (0x3041, 0x30ff),
    (0xac00, 0xac7f),
    (0xff10, 0xff5a),
    (0x10400, 0x1044f),
];

/// Text with everything that a language may see in another way.
fn difficult_text() -> Vec<u8> {
    let mut text =
        b"To be, or not to be: that's 1 question.\n\n   \n''--\n'quoted' ''a''b''\nleft\xffright\xc3 end\n".to_vec();
    text.extend_from_slice(
        "na\u{ef}ve \u{c4}RGER l\u{2019}eau \u{39f}\u{394}\u{39f}\u{3a3} \u{130}stanbul \u{1e9e} \u{1c5}\n".as_bytes(),
    );
    text.extend_from_slice(b"\xed\xa0\x80surrogate\xf4\x90\x80\x80toolarge\xc0\xafoverlong\xe1\x80cut\xf0\x9f\x98\n");
    text.extend_from_slice("\u{feff}mark \u{fffd} replaced\u{fffd}character\n".as_bytes());
    // A word with its apostrophe inside, longer than a batch.
    text.extend(std::iter::repeat_n(b'A', 300_000));
    text.extend_from_slice(b"'a\n");
    for code in BLOCKS.iter().flat_map(|&(first, last)| first..=last) {
        let character = char::from_u32(code).expect("no surrogate");
        text.extend_from_slice(format!("{character} a{character}b {character}\u{3a3}\n").as_bytes());
    }
    let mut random = Words::new(7);
    for _ in 0..2_000 {
        for _ in 0..random.below(30) {
            let pieces: [&[u8]; 10] =
                [b"a", b"B", b"'", b"\xe2\x80\x99", b"\xc3\xa4", b"\xf0\x9d", b" ", b"\xff", b"-", b"\xe2"];
            text.extend_from_slice(pieces[random.below(10) as usize]);
        }
        text.push(b'\n');
    }
    // Counts of one, two and three bytes.
    text.extend(b"often ".repeat(17_000));
    text.push(b'\n');
    text
}

#[test]
fn every_language_splits_and_counts_alike() {
    let text = difficult_text();
    for settings in ["", "config.lowercase = false"] {
        let counted = |language: Language| {
            let (split, count) = (language.operator("split"), language.operator("count"));
            outcome(&text, &[("split", &split, settings), ("count", &count, "")])
        };
        let expected = counted(Language::Rust);
        assert!(expected.contains(&b"often\t17000".to_vec()));
        assert!(expected.contains(&"\u{e4}rger\t1".as_bytes().to_vec()) == settings.is_empty());
        for language in languages("counting in other languages") {
            assert_same(language, &counted(language), &expected);
        }
    }
}

#[test]
fn every_language_leaves_event_times_headers_and_missing_values_alike() {
    let [parse, dress, facts] = ["parse", "dress", "facts"].map(|feature| operator_of("tests/blocks", feature));
    let lines = b"tea,7,two words\noil,-5,header\ntea,0,missing\n,9,missing header\ntea,8,header\n".repeat(700);
    for tested in ["split", "count"] {
        let told = |language: Language| {
            let wasm = language.operator(tested);
            let operators: [(&str, &Path, &str); 4] =
                [("parse", &parse, ""), ("dress", &dress, ""), ("tested", &wasm, ""), ("facts", &facts, "")];
            outcome(&lines, &operators)
        };
        let expected = told(Language::Rust);
        let headers = r#"time Some(-5) headers [trace="\\x00\\xff" trace=none]"#;
        let first = if tested == "split" { r#"key "header" value none "# } else { r#"key "oil" value "oil\\t1" "# };
        assert!(
            expected.contains(&format!("{first}{headers}").into_bytes()),
            "{}",
            String::from_utf8_lossy(&expected[0])
        );
        for language in languages("passing records in other languages") {
            assert_same(language, &told(language), &expected);
        }
    }
}

#[test]
fn every_language_refuses_a_misspelt_setting() {
    for language in languages("refusing settings in other languages") {
        let folder = JobFolder::new();
        folder.write("input/a.txt", "text\n");
        let split = language.operator("split");
        write_job(&folder, &[("split", &split, "config.lower_case = true")]);
        folder.run().assert_refused(1, &["split", "unknown field", "`lowercase`"]);
    }
}

/// A job whose state every language goes on with.
struct TakenOver {
    folder: JobFolder,
    files: u64,
}

impl TakenOver {
    fn add_text(&mut self, bytes: u64) {
        self.files += 1;
        let fresh = self.folder.path("fresh.txt");
        lockgate_tests::write_text(&fresh, self.files, bytes).expect("the job's folder is writable");
        self.folder.create_dir("input");
        let name = format!("input/{:03}.txt", self.files);
        fs::rename(fresh, self.folder.path(name)).expect("the job's folder is writable");
    }

    fn run(&self, language: Language) -> Finished {
        write_word_count(&self.folder, language);
        self.folder.run()
    }

    #[track_caller]
    fn assert_exact(&self, after: &str) {
        let totals = WordTotals::of_folder(&self.folder.path("input")).expect("the input can be read");
        if let Err(mismatch) = totals.check(&self.folder.path("output")) {
            panic!("after {after} the output isn't exact: {mismatch:?}");
        }
    }
}

#[test]
fn languages_take_over_each_others_state_and_a_killed_one_is_no_exception() {
    let mut job = TakenOver { folder: JobFolder::new(), files: 0 };
    let languages = languages("taking over state of other languages");
    // Round, so that each takes over from another; then through it the other way, each killed in the middle of its work.
    for &language in languages.iter().chain(&[Language::Rust]) {
        job.add_text(60_000);
        job.run(language).assert_success();
        job.assert_exact(&format!("{language:?}"));
    }
    for &language in languages.iter().rev() {
        job.add_text(6_000_000);
        write_word_count(&job.folder, language);
        let parts = || part_files(&job.folder.path("output")).expect("the output can be listed").len();
        let before = parts();
        let mut running = job.folder.start();
        // Two may be those that the run before had published and not committed.
        running.wait_until("output of this run", || parts() > before + 2);
        running.kill();
        assert!(running.wait().was_killed(), "{language:?} was done before it was killed, so this tests nothing");
    }
    job.run(Language::Rust).assert_success();
    job.assert_exact("all of them were killed");
}

#[test]
fn counts_of_every_size_are_read_and_written_by_every_language() {
    let [parse, set] = ["parse", "set-count"].map(|feature| operator_of("tests/blocks", feature));
    let languages = languages("large counts in other languages");
    let sevens = (0..=63).step_by(7).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits]);
    let others = [(1 << 31) - 1, 1 << 31, u64::from(u32::MAX), 1 << 53, (1 << 53) + 1, 1 << 63, u64::MAX - 10];
    let counts = sevens.chain(others).collect::<Vec<_>>();
    let key = |index: usize| format!("k{index}");
    let folder = JobFolder::new();
    let lines = counts.iter().enumerate().map(|(index, count)| format!("{},0,{count}\n", key(index)));
    folder.write("input/0.txt", lines.collect::<String>());
    write_job(&folder, &[("split", &parse, ""), ("count", &set, "")]);
    folder.run().assert_success();
    let mut expected = Vec::new();
    for (turn, &language) in languages.iter().chain(&[Language::Rust]).enumerate() {
        let words = (0..counts.len()).map(|index| format!("{}\n", key(index)));
        folder.write(format!("input/{}.txt", turn + 1), words.collect::<String>());
        write_word_count(&folder, language);
        folder.run().assert_success();
        let added = turn as u64 + 1;
        expected
            .extend((0..counts.len()).map(|index| format!("{}\t{}", key(index), counts[index] + added).into_bytes()));
        expected.sort();
        assert_same(language, &output(&folder), &expected);
    }
}

/// Pages of visitors, as the operators `visits` take them; many of them in two pages of what is read of state at once.
fn visits(turn: u64) -> Vec<(String, String)> {
    let mut chance = Words::new(turn + 1);
    let page = |chance: &mut Words| {
        let number = chance.below(60);
        // Lengths of one and of two bytes, and letters that aren't ASCII, which some languages order otherwise.
        format!("/{}{number}", ["", "\u{e4}", "\u{1f600}", &"x".repeat(140)][number as usize % 4])
    };
    let visit = |number: u64| {
        let visitor = format!("visitor{}", chance.below(7));
        let what = match chance.below(40) {
            0 => "bye".to_owned(),
            1..=3 => format!("forget {}", page(&mut chance)),
            4..=5 => format!("bad{}", page(&mut chance)),
            _ if number % 500 == 499 => format!("/long/{}", "y".repeat(60_000)),
            _ => page(&mut chance),
        };
        (visitor, what)
    };
    (0..3_000).map(visit).collect()
}

/// What any of them must tell, in other words: the entries of a visitor in the order of their user keys as they are encoded.
fn told(known: &mut BTreeMap<String, BTreeMap<Vec<u8>, (String, u64)>>, visits: &[(String, String)]) -> Vec<Vec<u8>> {
    let encoded = |page: &str| {
        let length = page.len();
        let mut bytes = if length < 128 { vec![length as u8] } else { vec![length as u8 | 0x80, (length >> 7) as u8] };
        if length >= 1 << 14 {
            bytes = vec![length as u8 | 0x80, (length >> 7) as u8 | 0x80, (length >> 14) as u8];
        }
        bytes.extend_from_slice(page.as_bytes());
        bytes
    };
    let mut told = Vec::new();
    for (visitor, what) in visits {
        let pages = known.entry(visitor.clone()).or_default();
        if what == "bye" {
            let lines = std::mem::take(pages).into_values().enumerate();
            told.extend(lines.map(|(place, (page, count))| format!("{visitor} {place} {page} {count}").into_bytes()));
        } else if let Some(forgotten) = what.strip_prefix("forget ") {
            pages.remove(&encoded(forgotten));
        } else if !what.starts_with("bad") {
            pages.entry(encoded(what)).or_insert_with(|| (what.clone(), 0)).1 += 1;
        }
    }
    told
}

#[test]
fn maps_of_one_language_are_those_of_the_others() {
    let needed = [Language::Python, Language::JavaScript];
    if needed.iter().any(|language| language.is_missing("maps in other languages")) {
        return;
    }
    let (parse, rust) = (operator_of("tests/blocks", "parse"), operator_of("tests/blocks", "visits"));
    let [python, javascript] = ["python", "javascript"].map(|of| module_operators().join(format!("visits-{of}.wasm")));
    let (folder, mut known, mut expected) = (JobFolder::new(), BTreeMap::new(), Vec::new());
    let turns = [
        (Language::Rust, &rust),
        (Language::Python, &python),
        (Language::JavaScript, &javascript),
        (Language::Python, &python),
        (Language::Rust, &rust),
        (Language::JavaScript, &javascript),
        (Language::Rust, &rust),
    ];
    for (turn, (language, wasm)) in (0..).zip(turns) {
        let visits = visits(turn);
        let lines = visits.iter().map(|(visitor, what)| format!("{visitor},0,{what}\n"));
        folder.write(format!("input/{turn}.txt"), lines.collect::<String>());
        write_job(&folder, &[("parse", &parse, ""), ("visits", wasm, "on_error = \"skip\"")]);
        folder.run().assert_success();
        expected.extend(told(&mut known, &visits));
        expected.sort();
        assert_same(language, &output(&folder), &expected);
    }
    assert!(expected.len() > 1_000, "{}", expected.len());
}
