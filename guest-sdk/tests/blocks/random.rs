//! What happens to an operator, by seed.

use lockgate::testing::{Harness, TestRecord};
use lockgate::{Error, Operator, Place};

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0 .. bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number in `from .. to`.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + self.below(from.abs_diff(to)) as i64
    }
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// Input, key, time, value.
    Record(usize, &'static str, i64, i64),
    Watermark(i64),
    /// Another instance goes on from a snapshot.
    Restore,
    /// The same instance goes on behind a snapshot.
    Barrier,
    /// The cache is emptied.
    Trim,
    /// What was done since the last snapshot is undone; it comes again.
    Crash,
}

/// Records around a time that goes on, from before the epoch to after it; some far ahead or behind.
pub fn steps(random: &mut Random, count: usize, spread: i64) -> Vec<Step> {
    let mut now = -spread * 4;
    let mut watermark = i64::MIN;
    let mut steps = Vec::new();
    for _ in 0..count {
        match random.below(40) {
            number @ 0..=1 => {
                // A new watermark first, so that no timer waits for the next one: after a restore all watermarks are
                // new.
                watermark = watermark.max(now - spread).saturating_add(1);
                let barrier = if number == 0 { Step::Restore } else { Step::Barrier };
                steps.extend([Step::Watermark(watermark), barrier]);
            }
            2 => steps.push(Step::Crash),
            3 => steps.push(Step::Trim),
            4..=9 => {
                now += random.between(0, spread);
                watermark = watermark.max(now - random.between(0, spread));
                steps.push(Step::Watermark(watermark));
            }
            _ => {
                let time = match random.below(20) {
                    0 => now + random.between(0, spread * 10),
                    1 => now - random.between(0, spread * 10),
                    _ => now + random.between(-spread, spread),
                };
                let key = ["a", "b", "c"][random.below(3) as usize];
                steps.push(Step::Record(random.below(2) as usize, key, time, random.between(-50, 50)));
            }
        }
    }
    steps
}

/// Drives an operator through steps, and gives what it has sent after each watermark, sorted.
pub struct Driver<Op> {
    pub harness: Harness<Op>,
    place: Place,
    inputs: Vec<&'static str>,
    watermark: i64,
    /// The watermark when the last snapshot was taken.
    snapshot_watermark: i64,
    /// What was done since the last snapshot.
    since: Vec<Step>,
}

impl<Op: Operator> Driver<Op> {
    pub fn new(config: String, inputs: &[&'static str]) -> Driver<Op> {
        Driver::open(config, inputs, false)
    }

    /// Of a job that skips bad records.
    pub fn rejecting(config: String, inputs: &[&'static str]) -> Driver<Op> {
        Driver::open(config, inputs, true)
    }

    fn open(config: String, inputs: &[&'static str], rejections: bool) -> Driver<Op> {
        let (job, operator) = ("test".to_owned(), "operator".to_owned());
        let place = Place { job, operator, subtask: 0, parallelism: 1, config, rejections };
        Driver {
            harness: Harness::restore_at(place.clone(), &[]).expect("a configuration"),
            place,
            inputs: inputs.to_vec(),
            watermark: i64::MIN,
            snapshot_watermark: i64::MIN,
            since: Vec::new(),
        }
    }

    /// # Errors
    /// If the operator does.
    pub fn step(&mut self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Record(..) | Step::Watermark(_) => {
                self.since.push(step.clone());
                self.apply(step)
            }
            Step::Restore => {
                let snapshot = self.harness.snapshot()?;
                let output = self.harness.take_output();
                assert!(output.is_empty(), "taken before");
                self.harness = Harness::restore_at(self.place.clone(), &[&snapshot])?;
                // Its crashes come back to here.
                self.harness.snapshot()?;
                self.since.clear();
                self.snapshot_watermark = self.watermark;
                self.harness.advance_watermark(self.watermark)
            }
            Step::Barrier => {
                self.harness.snapshot()?;
                self.since.clear();
                self.snapshot_watermark = self.watermark;
                Ok(())
            }
            Step::Trim => self.harness.trim(0),
            Step::Crash => {
                let before = self.harness.take_output();
                assert!(before.is_empty(), "taken before");
                self.harness.recover()?;
                self.harness.advance_watermark(self.snapshot_watermark)?;
                let again = std::mem::take(&mut self.since);
                for step in &again {
                    self.apply(step)?;
                }
                self.since = again;
                self.harness.take_output();
                self.harness.take_output_of("late");
                Ok(())
            }
        }
    }

    fn apply(&mut self, step: &Step) -> Result<(), Error> {
        match *step {
            Step::Record(input, key, time, value) => {
                let input = self.inputs[input % self.inputs.len()];
                self.harness.process_from(input, [(key, value.to_string(), time)])
            }
            Step::Watermark(watermark) => {
                self.watermark = watermark;
                self.harness.advance_watermark(watermark)
            }
            Step::Restore | Step::Barrier | Step::Trim | Step::Crash => unreachable!("only what can come again"),
        }
    }

    /// `key value @time` of what was sent, sorted.
    pub fn take(&mut self) -> Vec<String> {
        let output = self.harness.take_output();
        let line = |record: &TestRecord| {
            format!("{} {} @{}", record.key_str(), record.value_str(), record.timestamp.unwrap_or(i64::MIN))
        };
        let mut lines = output.iter().map(line).collect::<Vec<_>>();
        lines.sort();
        lines
    }

    /// `key value` of what came too late.
    pub fn take_late(&mut self) -> Vec<String> {
        let late = self.harness.take_output_of("late");
        late.iter().map(|record| format!("{} {}", record.key_str(), record.value_str())).collect()
    }
}
