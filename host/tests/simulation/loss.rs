//! What somebody may lose or put back to an older state while the job doesn't run.
//!
//! Invariant: whatever was lost can be told from what is left. A job that goes on after that must still put out everything once.

use lockgate_host::id::JobUid;

use crate::rng::Rng;
use crate::world::World;

#[derive(Clone, Copy, Debug)]
pub enum Loss {
    /// The topic of the markers is made anew.
    MarkerTopic,
    /// The newest markers are gone, more than the one that could also never have been.
    Markers(usize),
    /// The newest manifests are gone.
    Manifests(usize),
    /// The cluster is put back by so many commits.
    Cluster(usize),
    /// Cluster and manifests are put back, perhaps to the same moment.
    Both { commits: usize, manifests: usize },
    /// The store is gone, and a new one is begun.
    Store,
}

impl Loss {
    pub fn new(rng: &mut Rng) -> Loss {
        let mut up_to = |first, last| rng.between(first, last) as usize;
        let (few, several, manifests) = (up_to(1, 3), up_to(2, 4), up_to(1, 3));
        *rng.pick(&[
            Loss::MarkerTopic,
            Loss::Markers(several),
            Loss::Manifests(few),
            Loss::Cluster(few),
            Loss::Both { commits: few, manifests },
            Loss::Store,
        ])
    }

    /// Tells whether there was enough to lose.
    pub fn strike(self, world: &mut World) -> bool {
        let comes = match self {
            Loss::MarkerTopic => {
                let comes = world.decided().is_some();
                if comes {
                    world.broker.lose_markers(usize::MAX);
                }
                comes
            }
            Loss::Markers(count) => lose_markers(count, world),
            Loss::Manifests(count) => lose_manifests(count, world),
            Loss::Cluster(commits) => put_back(commits, world),
            Loss::Both { commits, manifests } => {
                let enough = world.manifests.len() >= manifests;
                enough && put_back(commits, world) && lose_manifests(manifests, world)
            }
            Loss::Store => lose_store(world),
        };
        world.has_lost |= comes;
        comes
    }
}

/// What is left must name a checkpoint: a job whose first checkpoint was never decided looks the same otherwise.
fn lose_markers(count: usize, world: &mut World) -> bool {
    let marked = world.broker.marked();
    let left = marked.len().checked_sub(count + 1).map(|place| marked[place]);
    let comes = left.is_some_and(|left| left.is_some());
    if comes {
        world.broker.lose_markers(count);
    }
    comes
}

fn lose_manifests(count: usize, world: &mut World) -> bool {
    let comes = world.manifests.len() >= count;
    if comes {
        (0..count).for_each(|_| drop(world.manifests.pop_last()));
    }
    comes
}

fn lose_store(world: &mut World) -> bool {
    let comes = !world.broker.marked().is_empty();
    if comes {
        world.manifests.clear();
        world.files.clear();
        world.attempts.clear();
        world.uid = JobUid("uid-2".to_owned());
    }
    comes
}

fn put_back(commits: usize, world: &mut World) -> bool {
    if world.oracle.files.is_some() && world.files_committed != world.decided() {
        // The folder says what was committed when all of it is; of a part of it nobody can tell.
        return false;
    }
    let history = world.history.as_mut().expect("kept for this");
    let Some(place) = history.len().checked_sub(commits) else { return false };
    world.broker = history.swap_remove(place);
    history.truncate(place);
    world.broker.read_again();
    world.oracle.log = world.oracle.log.take().map(|output| output.emptied());
    // Nobody is there any more whose requests the older cluster could take for its own.
    world.zombies.clear();
    true
}
