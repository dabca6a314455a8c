//! Bugs to plant: mistakes that a shell around the protocol could make, each of which the oracle must notice.
//!
//! Invariant: a mutation changes what the simulator's shells do, never the code under test.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A task goes on taking records from an input that is held.
    HoldsNoInput,
    /// A task doesn't tell its aligner that an input has ended.
    HidesEnd,
    /// A barrier leaves a task ahead of records that were sent before it.
    BarrierOvertakes,
    /// A source's snapshot has the position after the first record behind the barrier.
    SnapshotsLate,
    /// A task acknowledges before its snapshot is durable.
    AcksBeforeDurable,
    /// The missing acks are made up from older snapshots.
    PublishesBeforeAllAcks,
    /// A task says of every third epoch that nothing has changed.
    HidesChange,
    /// The sinks commit while the manifest is still being published.
    CommitsBeforePublish,
    /// The commit is answered before it is done.
    AnswersCommitEarly,
    /// After a failure a new attempt begins although a publish of the old one is still running.
    RestartsDuringPublish,
    /// Recovery doesn't commit the newest checkpoint again.
    SkipsRecommit,
    /// Recovery takes the second newest manifest.
    ResumesOlder,
    /// Recovery takes the state from the folder of the attempt that died.
    ResumesLiveState,
    /// Recovery leaves what dead attempts prepared.
    KeepsLeftovers,
    /// Recovery discards leftovers before it has committed.
    DiscardsBeforeRecommit,
    /// Epochs begin at 1 with each attempt.
    ReusesEpochs,
    /// Every attempt claims the same number.
    ReusesAttempt,
    /// Retention counts a file only for the first manifest that names it.
    DeletesSharedFiles,
    /// Retention takes the running attempt for a dead one.
    DeletesUploads,
    /// A task takes the watermark of its fastest input for its own.
    TrustsFastestInput,
    /// A channel goes on recording behind the barrier.
    RecordsPastBarrier,
    /// A channel records what comes, and not what is queued.
    ForgetsQueued,
    /// A snapshot is handed over before the barrier has come everywhere.
    EndsRecordingEarly,
    /// State is cut when all is recorded, and not when the barrier overtakes.
    SnapshotsAfterRecording,
    /// The last barrier overtakes as well.
    OvertakesLast,
    /// A task takes from its channels before all that was in flight is taken up.
    RestoresLate,
    /// A snapshot leaves out what was in flight and isn't taken up yet.
    ForgetsRestored,
    /// What was in flight is taken up only if the parallelism is the same.
    DropsInFlightOnRescale,
    /// What was in flight by key goes to another subtask than the state of its key.
    MovesInFlightByNumber,
    /// A subtask takes up the copies of all, of what goes to all.
    TakesAllCopies,
    /// Every subtask takes over the state of the first one.
    TakesStateOfFirst,
    /// The tasks of an exactly-once job never hold an input.
    AlignsAtLeastOnce,
    /// A task takes its snapshot when the first barrier comes, and not when the last does.
    SnapshotsAtFirstBarrier,
    /// An epoch is published as soon as it has all its acks.
    PublishesOutOfOrder,
    /// A task takes what comes behind the last barrier, too.
    GoesOnBehindLast,
    /// A commit without an answer is taken for done.
    AssumesSuccess,
    /// A commit without an answer is taken for not done, and its manifest is removed.
    AssumesFailure,
    /// Recovery shuts out the other processes with the first transactional id alone.
    ForgetsSecondId,
    /// Every attempt has transactional ids of its own, so that nobody is shut out.
    TakesNewIds,
    /// Recovery takes the marker that it sees before it shuts out other processes.
    AsksBeforeFencing,
    /// Recovery reads the marker without waiting for all of the topic to be stable.
    AsksUnstable,
    /// Recovery takes a marker for one whose transaction isn't committed.
    AsksUncommitted,
    /// The two-phase sink commits before the decision.
    CommitsBeforeDecision,
    /// Recovery takes the newest manifest without asking whether it was decided.
    ResumesUndecided,
    /// Recovery leaves a manifest that was never decided.
    KeepsUndecided,
    /// A job begins without a marker.
    ForgetsAdoption,
    /// A subtask sends rows of an epoch while those of the one before aren't acknowledged.
    SendsUnacknowledged,
    /// A subtask sends rows into a transaction that isn't decided yet.
    SendsUndecided,
    /// All epochs go into the same transaction.
    SharesTransaction,
    /// A snapshot of the deciding sink is handed over while rows aren't acknowledged.
    PreparesUnacknowledged,
    /// The marker is written without the transaction.
    MarksOutside,
    /// An epoch without output gets no marker.
    SkipsMarkerWithoutOutput,
    /// The offsets of the sources are committed without the transaction.
    CommitsOffsetsEarly,
    /// Retention counts a checkpoint as committed that is only published.
    RetainsBeforeDecided,
    /// The manifest of the swap names the new component.
    NamesNewAtSwap,
    /// Counters swap one barrier too late.
    SwapsLate,
    /// Only the first counter swaps.
    SwapsFirstAlone,
    /// The new component begins without the state of the old one.
    LosesStateAtSwap,
    /// After a failure the new component goes on though it was never decided.
    KeepsNewAfterFailure,
    /// After a failure the old component goes on though the new one was decided.
    RevertsThoughDecided,
}

impl Mutation {
    pub const ALL: [Mutation; 60] = [
        Mutation::HoldsNoInput,
        Mutation::HidesEnd,
        Mutation::BarrierOvertakes,
        Mutation::SnapshotsLate,
        Mutation::AcksBeforeDurable,
        Mutation::PublishesBeforeAllAcks,
        Mutation::HidesChange,
        Mutation::CommitsBeforePublish,
        Mutation::AnswersCommitEarly,
        Mutation::RestartsDuringPublish,
        Mutation::SkipsRecommit,
        Mutation::ResumesOlder,
        Mutation::ResumesLiveState,
        Mutation::KeepsLeftovers,
        Mutation::DiscardsBeforeRecommit,
        Mutation::ReusesEpochs,
        Mutation::ReusesAttempt,
        Mutation::DeletesSharedFiles,
        Mutation::DeletesUploads,
        Mutation::TrustsFastestInput,
        Mutation::RecordsPastBarrier,
        Mutation::ForgetsQueued,
        Mutation::EndsRecordingEarly,
        Mutation::SnapshotsAfterRecording,
        Mutation::OvertakesLast,
        Mutation::RestoresLate,
        Mutation::ForgetsRestored,
        Mutation::DropsInFlightOnRescale,
        Mutation::MovesInFlightByNumber,
        Mutation::TakesAllCopies,
        Mutation::TakesStateOfFirst,
        Mutation::AlignsAtLeastOnce,
        Mutation::SnapshotsAtFirstBarrier,
        Mutation::PublishesOutOfOrder,
        Mutation::GoesOnBehindLast,
        Mutation::AssumesSuccess,
        Mutation::AssumesFailure,
        Mutation::ForgetsSecondId,
        Mutation::TakesNewIds,
        Mutation::AsksBeforeFencing,
        Mutation::AsksUnstable,
        Mutation::AsksUncommitted,
        Mutation::CommitsBeforeDecision,
        Mutation::ResumesUndecided,
        Mutation::KeepsUndecided,
        Mutation::ForgetsAdoption,
        Mutation::SendsUnacknowledged,
        Mutation::SendsUndecided,
        Mutation::SharesTransaction,
        Mutation::PreparesUnacknowledged,
        Mutation::MarksOutside,
        Mutation::SkipsMarkerWithoutOutput,
        Mutation::CommitsOffsetsEarly,
        Mutation::RetainsBeforeDecided,
        Mutation::NamesNewAtSwap,
        Mutation::SwapsLate,
        Mutation::SwapsFirstAlone,
        Mutation::LosesStateAtSwap,
        Mutation::KeepsNewAfterFailure,
        Mutation::RevertsThoughDecided,
    ];
}
