//! Random numbers that follow from the job, so that nothing of the machine gets to a guest.
//!
//! Each call of an operator begins a sequence of its own, which follows from job, operator, subtask, the call's time and how many
//! calls the instance has had before. So numbers differ from call to call and from subtask to subtask, a call that is repeated with
//! the same facts gets the same ones, and it doesn't matter how many an earlier call has taken.
//!
//! Invariant: the operating system is never asked. (They aren't secret: who knows the job can work them out.)

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::component::LinkerInstance;

use super::HostState;
use crate::guest::error::Misuse;
use crate::id::{Name, SubtaskId};

/// What one request may ask for.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// Where a call begins among the random numbers of its instance, so that another instance can make it with the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draws {
    /// Which call of its instance it is, from 1 on.
    pub call: u64,
    /// How many numbers of that call are behind it already.
    pub taken: u64,
}

impl Draws {
    /// To pass over more takes too long.
    pub const TAKEN_MAX: u64 = 1 << 30;
}

/// The random numbers of one instance.
pub(in crate::guest) struct Randomness {
    seed: [u8; 32],
    /// Of the running call, if it has asked for one.
    sequence: Option<Sequence>,
    /// How many numbers of the running call's sequence were taken before it.
    passed_over: u64,
    /// How many the running call has taken itself.
    taken: u64,
}

impl Randomness {
    /// Without a job: of a component that is asked what it is.
    pub fn new(job: Option<&Name>, subtask: &SubtaskId) -> Randomness {
        let mut seed = Sha256::new();
        for part in ["lockgate random", job.map_or("", Name::as_str), subtask.operator.as_str()] {
            seed.update((part.len() as u64).to_le_bytes());
            seed.update(part);
        }
        seed.update(subtask.index.to_le_bytes());
        Randomness { seed: seed.finalize().into(), sequence: None, passed_over: 0, taken: 0 }
    }

    /// Another call begins, behind so many numbers of its sequence.
    pub fn begin(&mut self, passed_over: u64) {
        (self.sequence, self.passed_over, self.taken) = (None, passed_over, 0);
    }

    /// How many numbers the running call has taken, or the last one.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The next number of a call: the `call`th of its instance, at `now_ms`.
    fn next(&mut self, call: u64, now_ms: i64) -> u64 {
        let begin = || {
            let mut seed = Sha256::new();
            seed.update(self.seed);
            seed.update(call.to_le_bytes());
            seed.update(now_ms.to_le_bytes());
            let mut sequence = Sequence::new(&seed.finalize().into());
            (0..self.passed_over).for_each(|_| {
                sequence.next();
            });
            sequence
        };
        self.taken += 1;
        self.sequence.get_or_insert_with(begin).next()
    }

    fn words(&self) -> (u64, u64) {
        let word = |at: usize| u64::from_le_bytes(self.seed[at..at + 8].try_into().expect("eight bytes"));
        (word(0), word(8))
    }
}

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021).
struct Sequence([u64; 4]);

impl Sequence {
    fn new(seed: &[u8; 32]) -> Sequence {
        let (words, _) = seed.as_chunks::<8>();
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        Sequence(state)
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let number = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        number
    }
}

fn number(host: &mut HostState) -> u64 {
    let (call, now_ms) = (host.calls, host.now_ms);
    host.wasi.randomness.next(call, now_ms)
}

fn bytes(host: &mut HostState, wanted: u64) -> wasmtime::Result<Vec<u8>> {
    host.deadline.check()?;
    let wanted_bytes = usize::try_from(wanted).unwrap_or(usize::MAX);
    if wanted_bytes > BYTES_MAX {
        return Err(Misuse::RandomBytes { wanted, most: BYTES_MAX }.into());
    }
    let mut bytes = Vec::with_capacity(wanted_bytes + 8);
    while bytes.len() < wanted_bytes {
        bytes.extend_from_slice(&number(host).to_le_bytes());
    }
    bytes.truncate(wanted_bytes);
    Ok(bytes)
}

/// Links an interface that gives bytes and numbers.
pub(super) fn link(
    instance: &mut LinkerInstance<'_, HostState>,
    get_bytes: &str,
    get_number: &str,
) -> wasmtime::Result<()> {
    instance.func_wrap(get_bytes, |mut store, (wanted,): (u64,)| Ok((bytes(store.data_mut(), wanted)?,)))?;
    instance.func_wrap(get_number, |mut store, ()| Ok((number(store.data_mut()),)))
}

/// Links the seed of hash tables, which is always the same.
pub(super) fn link_seed(instance: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    instance.func_wrap("insecure-seed", |store, ()| Ok((store.data().wasi.randomness.words(),)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn randomness(job: &str, operator: &str, index: u32) -> Randomness {
        let name = |text| Name::new(text).expect("a usable name");
        Randomness::new(Some(&name(job)), &SubtaskId { operator: name(operator), index })
    }

    #[test]
    fn job_operator_subtask_call_and_time_each_make_another_sequence() {
        let first = |mut of: Randomness, call, now_ms| of.next(call, now_ms);
        let mut numbers = vec![
            first(randomness("job", "op", 0), 1, 5),
            first(randomness("jobo", "p", 0), 1, 5),
            first(randomness("job", "op", 1), 1, 5),
            first(randomness("job", "op", 0), 2, 5),
            first(randomness("job", "op", 0), 1, 6),
        ];
        assert_eq!(numbers[0], first(randomness("job", "op", 0), 1, 5), "the same again");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 5);
        assert_ne!(randomness("job", "op", 0).words(), randomness("job", "op", 1).words());
    }

    #[test]
    fn what_an_earlier_call_has_taken_changes_nothing() {
        let (mut greedy, mut modest) = (randomness("job", "op", 0), randomness("job", "op", 0));
        for _ in 0..100 {
            greedy.next(1, 0);
        }
        modest.next(1, 0);
        greedy.begin(0);
        modest.begin(0);
        assert_eq!(greedy.next(2, 0), modest.next(2, 0));
    }

    #[test]
    fn a_call_can_go_on_where_another_one_has_left_off() {
        let (mut whole, mut rest) = (randomness("job", "op", 0), randomness("job", "op", 0));
        let numbers = [(); 5].map(|()| whole.next(7, 3));
        assert_eq!(whole.taken(), 5);
        rest.begin(3);
        assert_eq!([rest.next(7, 3), rest.next(7, 3)], numbers[3..]);
        assert_eq!(rest.taken(), 2);
        rest.begin(0);
        assert_eq!((rest.taken(), rest.next(7, 3)), (0, numbers[0]));
    }

    #[test]
    fn the_generator_is_the_published_one() {
        // The first numbers of the reference implementation for the state 1, 2, 3, 4.
        let mut sequence = Sequence([1, 2, 3, 4]);
        let numbers = [(); 4].map(|()| sequence.next());
        assert_eq!(numbers, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }
}
