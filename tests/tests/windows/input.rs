//! Lines of the input, by seed.

use lockgate_tests::Words;

#[derive(Clone)]
pub struct Line {
    pub key: String,
    pub time: i64,
    pub value: i64,
}

/// Records of ten keys, from before the epoch on, about every 20 ms and out of order by less than 400 ms.
pub fn lines(seed: u64, count: usize) -> Vec<Line> {
    let mut random = Words::new(seed);
    let mut now = -20_000;
    let mut line = || {
        now += random.below(40) as i64;
        let time = now - random.below(400) as i64;
        Line { key: format!("k{}", random.below(10)), time, value: random.below(2_000) as i64 - 1_000 }
    };
    (0..count).map(|_| line()).collect()
}
