//! Whatever is done to it, keyed state answers like a sorted map, before and after a restore at any parallelism.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::id::Epoch;

/// Table, key, user key.
type Key = (u32, Vec<u8>, Vec<u8>);
type Model = BTreeMap<Key, Vec<u8>>;

#[derive(Clone, Debug)]
struct Write {
    table: u32,
    key: u8,
    user_key: Option<u8>,
    /// Length of the value; `None`: deleted.
    value: Option<u16>,
}

#[derive(Clone, Debug)]
enum Step {
    /// One call of the operator in each subtask, with several writes; or a call that fails.
    Call {
        writes: Vec<Write>,
        fails: bool,
        reads_staged: bool,
    },
    Check,
    Freeze {
        upload: bool,
    },
    /// Uploads all pending snapshots.
    Upload,
    Restore {
        parallelism: u32,
    },
}

fn write() -> impl Strategy<Value = Write> {
    let value = prop_oneof![4 => (0..20u16).prop_map(Some), 1 => (0..3000u16).prop_map(Some), 2 => Just(None)];
    (0..2u32, 0..40u8, proptest::option::of(0..10u8), value).prop_map(|(table, key, user_key, value)| Write {
        table,
        key,
        user_key,
        value,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let call = (proptest::collection::vec(write(), 1..40), proptest::bool::weighted(0.15), any::<bool>());
    prop_oneof![
        10 => call.prop_map(|(writes, fails, reads_staged)| Step::Call { writes, fails, reads_staged }),
        2 => Just(Step::Check),
        6 => any::<bool>().prop_map(|upload| Step::Freeze { upload }),
        1 => Just(Step::Upload),
        2 => (1..=3u32).prop_map(|parallelism| Step::Restore { parallelism }),
    ]
}

struct Taken {
    model: Model,
    pending: Vec<PendingSnapshot>,
}

struct Run<'a> {
    world: &'a World,
    states: Vec<KeyedState>,
    uploads: Vec<Upload<'a>>,
    model: Model,
    epoch: Epoch,
    attempt: u32,
    pending: Vec<Taken>,
    stored: Option<(Model, Vec<KeyedSnapshot>)>,
    calls: u64,
}

impl<'a> Run<'a> {
    fn new(world: &'a World) -> Run<'a> {
        let mut run = Run {
            world,
            states: Vec::new(),
            uploads: Vec::new(),
            model: Model::new(),
            epoch: Epoch(0),
            attempt: 0,
            pending: Vec::new(),
            stored: None,
            calls: 0,
        };
        run.restore(1);
        run
    }

    fn owner(&self, key: &[u8]) -> usize {
        let max = MaxParallelism::new(16).expect("in range");
        max.subtask(max.key_group(key), self.states.len() as u32) as usize
    }

    fn call(&mut self, writes: &[Write], fails: bool, reads_staged: bool) {
        let mut model = self.model.clone();
        for write in writes {
            self.calls += 1;
            let key = vec![write.key; usize::from(write.key % 3)];
            let user_key: Vec<_> = write.user_key.into_iter().collect();
            let owner = self.owner(&key);
            let value = write.value.map(|length| noise(self.calls, usize::from(length)));
            let deletes = [u8::from(value.is_none())];
            let values = column([value.as_deref().unwrap_or_default()]);
            self.states[owner]
                .write_many(write.table, &column([&key]), &column([&user_key]), &values, &deletes)
                .expect("good entries");
            match value {
                Some(value) => model.insert((write.table, key, user_key), value),
                None => model.remove(&(write.table, key, user_key)),
            };
        }
        if reads_staged {
            self.check(&model);
        }
        if fails {
            self.states.iter_mut().for_each(KeyedState::discard);
        } else {
            self.states.iter_mut().for_each(|state| state.accept().expect("a working disk"));
            self.model = model;
        }
    }

    fn check(&self, model: &Model) {
        for table in 0..2u32 {
            for key in (0..40u8).map(|key| vec![key; usize::from(key % 3)]) {
                let state = &self.states[self.owner(&key)];
                let expected = model.range((table, key.clone(), vec![])..=(table, key.clone(), vec![255]));
                let expected: Vec<_> =
                    expected.map(|((_, _, user_key), value)| (user_key.clone(), value.clone())).collect();
                assert_eq!(scan_all(state, table, &key), expected, "scan of {key:?}");
                let user_keys: Vec<Vec<u8>> = std::iter::once(vec![]).chain((0..10u8).map(|u| vec![u])).collect();
                let keys = column(user_keys.iter().map(|_| &key));
                let (values, found) = state.get_many(table, &keys, &column(&user_keys)).expect("good keys");
                values.check(user_keys.len()).expect("a good column");
                for (row, user_key) in user_keys.into_iter().enumerate() {
                    let value = (found[row / 8] >> (row % 8) & 1 == 1).then(|| values.get(row).to_vec());
                    assert_eq!(value.as_ref(), model.get(&(table, key.clone(), user_key)), "get of {key:?}");
                }
            }
        }
    }

    fn freeze(&mut self) {
        self.epoch = self.epoch.next();
        let epoch = self.epoch;
        let pending = self.states.iter_mut().map(|state| state.freeze(epoch).expect("a working disk")).collect();
        self.pending.push(Taken { model: self.model.clone(), pending });
    }

    fn upload(&mut self) {
        for taken in self.pending.drain(..) {
            let finished = taken.pending.into_iter().zip(&self.uploads).map(|(pending, upload)| upload.finish(pending));
            self.stored = Some((taken.model, finished.collect()));
        }
    }

    fn restore(&mut self, parallelism: u32) {
        self.pending.clear();
        self.states.clear();
        self.attempt += 1;
        let (model, snapshots) = self.stored.clone().unwrap_or_default();
        self.model = model;
        for index in 0..parallelism {
            let options = self.world.options(index, parallelism, 64 << 10);
            self.states.push(self.world.open_with(options, &snapshots).expect("good snapshots"));
        }
        let uploader = |index| self.world.uploader(&format!("{}-{index}", self.attempt));
        self.uploads = (0..parallelism).map(uploader).collect();
        self.check(&self.model);
    }
}

fn scan_all(state: &KeyedState, table: u32, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    loop {
        let after = all.last().map(|(user_key, _)| user_key.clone());
        let page = state.scan(table, key, after.as_deref(), 1000).expect("a good key");
        page.user_keys.check(page.values.rows()).expect("a good column");
        all.extend(
            (0..page.values.rows()).map(|row| (page.user_keys.get(row).to_vec(), page.values.get(row).to_vec())),
        );
        if !page.more {
            return all;
        }
        assert!(page.values.rows() > 0, "a page that has more has at least one");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn it_answers_like_a_map(steps in proptest::collection::vec(step(), 20..120)) {
        let world = World::new();
        let mut run = Run::new(&world);
        for step in steps {
            match step {
                Step::Call { writes, fails, reads_staged } => run.call(&writes, fails, reads_staged),
                Step::Check => run.check(&run.model),
                Step::Freeze { upload } => {
                    run.freeze();
                    if upload {
                        run.upload();
                    }
                }
                Step::Upload => run.upload(),
                Step::Restore { parallelism } => run.restore(parallelism),
            }
        }
        run.check(&run.model);
        run.freeze();
        run.upload();
        for parallelism in [2, 3, 1] {
            run.restore(parallelism);
            run.freeze();
            run.upload();
        }
        run.restore(1);
    }
}
