//! Whether a component can take the place of another one while the job runs.
//!
//! Invariant: what fits finds in the stream, in the state and in the plan all that it asks for, and leaves nothing of the old one's
//! behind that nobody knows any more.

use crate::guest::{Descriptor, Redistribution};
use crate::protocol::OnError;

/// Where in the job it is to be.
#[derive(Clone, Copy)]
pub struct Place {
    pub parallelism: u32,
    pub on_error: OnError,
}

/// All reasons for which `new` can't take the place of `old`; none if it can.
pub fn misfits(place: Place, old: &Descriptor, new: &Descriptor) -> Vec<String> {
    let mut misfits = Vec::new();
    if new.inputs != old.inputs {
        misfits.push(format!("its inputs are {} and not {}", inputs(new), inputs(old)));
    }
    if !new.outputs.starts_with(&old.outputs) {
        misfits.push(format!("its outputs are {} and don't begin with {}", list(&new.outputs), list(&old.outputs)));
    }
    // The plan has the dead letters behind the outputs that there were.
    let moves_dead_letters = match place.on_error {
        OnError::DeadLetter => new.outputs.len() > old.outputs.len(),
        OnError::Fail | OnError::Skip => false,
    };
    if moves_dead_letters {
        let what =
            "it has more outputs, which moves 'dead-letters'; with on_error = \"dead-letter\" that takes a restart";
        misfits.push(what.to_owned());
    }
    if new.redistribution != old.redistribution {
        let (new, old) = (new.redistribution, old.redistribution);
        misfits.push(format!("its state is dealt by {new:?} and not by {old:?}").to_lowercase());
    } else if old.redistribution == Redistribution::Union && place.parallelism > 1 {
        misfits.push("its state is dealt by union: each subtask needs that of all, which takes a restart".to_owned());
    }
    match (old.is_keyed(), new.is_keyed()) {
        (true, false) => misfits.push("it keeps no state by key, and the old one does".to_owned()),
        (false, true) => misfits.push("it keeps state by key, and its records aren't partitioned by it".to_owned()),
        (true, true) | (false, false) => {}
    }
    if old.timers && !new.timers {
        misfits.push("it has no timers, and those of the old one would never fire".to_owned());
    }
    misfits.extend(table_misfits(old, new));
    misfits
}

fn table_misfits(old: &Descriptor, new: &Descriptor) -> Vec<String> {
    let misfit = |table: &crate::guest::Table| {
        let name = &table.name;
        let Some(now) = new.tables.iter().find(|now| now.name == *name) else {
            return Some(format!("it has no table '{name}'"));
        };
        if now.kind != table.kind {
            let (now, was) = (now.kind.as_str(), table.kind.as_str());
            return Some(format!("its table '{name}' is a {now} and not a {was}"));
        }
        let (now, was) = (now.version, table.version);
        (now < was).then(|| format!("its table '{name}' has version {now}, which is older than {was}"))
    };
    old.tables.iter().filter_map(misfit).collect()
}

/// The tables of which `new` has a later version: reasons against one that can't migrate them.
pub fn newer_tables(old: &Descriptor, new: &Descriptor) -> Vec<String> {
    let newer = |table: &crate::guest::Table| {
        let now = new.tables.iter().find(|now| now.name == table.name && now.version > table.version)?;
        let (name, now, was) = (&table.name, now.version, table.version);
        Some(format!("its table '{name}' has version {now}, the state is in version {was}, and it can't migrate"))
    };
    old.tables.iter().filter_map(newer).collect()
}

fn inputs(descriptor: &Descriptor) -> String {
    let input = |input: &crate::guest::Input| {
        let broadcast = if input.broadcast { " (broadcast)" } else { "" };
        format!("'{}'{broadcast}", input.name)
    };
    descriptor.inputs.iter().map(input).collect::<Vec<_>>().join(", ")
}

fn list(names: &[impl std::fmt::Display]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{Declared, TableKind};

    const PLACE: Place = Place { parallelism: 2, on_error: OnError::Fail };
    const OLD: Declared<'static> = Declared {
        tables: &[("counts", TableKind::Value, 2), ("seen", TableKind::Map, 1)],
        timers: true,
        ..Declared::PLAIN
    };

    fn misfits_of(place: Place, old: Declared<'_>, new: Declared<'_>) -> Vec<String> {
        let descriptor = |declared| Descriptor::new(declared).expect("sensible");
        misfits(place, &descriptor(old), &descriptor(new))
    }

    #[test]
    fn what_only_has_more_or_newer_fits() {
        let tables = [("new", TableKind::List, 1), ("seen", TableKind::Map, 1), ("counts", TableKind::Value, 3)];
        let new = Declared { name: "other", version: "2", outputs: &["out", "more"], tables: &tables, ..OLD };
        assert_eq!(misfits_of(PLACE, OLD, new), [""; 0]);
        let no_timers = Declared { timers: false, ..OLD };
        assert_eq!(misfits_of(PLACE, no_timers, OLD), [""; 0], "timers may be added");
        let letters = Place { on_error: OnError::DeadLetter, ..PLACE };
        assert_eq!(misfits_of(letters, OLD, new).len(), 1);
        assert_eq!(misfits_of(Place { on_error: OnError::Skip, ..PLACE }, OLD, new), [""; 0]);
    }

    #[test]
    fn every_reason_is_named() {
        let tables = [("counts", TableKind::Map, 2)];
        let inputs = [("in", false), ("rules", true)];
        let new = Declared {
            inputs: &inputs,
            outputs: &["late", "out"],
            tables: &tables,
            timers: false,
            redistribution: Redistribution::Broadcast,
            ..OLD
        };
        let misfits = misfits_of(PLACE, OLD, new).join("\n");
        for word in ["'rules' (broadcast)", "'late', 'out'", "broadcast and not by split", "timers", "'seen'", "a map"]
        {
            assert!(misfits.contains(word), "'{word}' isn't in:\n{misfits}");
        }
        assert_eq!(misfits.lines().count(), 6, "{misfits}");
    }

    #[test]
    fn state_by_key_neither_comes_nor_goes_nor_gets_older() {
        let plain = Declared::PLAIN;
        assert_eq!(misfits_of(PLACE, plain, OLD).len(), 1);
        assert_eq!(misfits_of(PLACE, OLD, plain).len(), 4, "the state, its two tables, and the timers");
        let older = [("counts", TableKind::Value, 1), ("seen", TableKind::Map, 1)];
        let misfits = misfits_of(PLACE, OLD, Declared { tables: &older, ..OLD });
        assert_eq!(misfits, ["its table 'counts' has version 1, which is older than 2"]);
    }

    #[test]
    fn a_later_version_of_a_table_is_named_for_who_can_t_migrate() {
        let descriptor = |tables| Descriptor::new(Declared { tables, ..OLD }).expect("sensible");
        let newer = [("seen", TableKind::Map, 1), ("counts", TableKind::Value, 5), ("more", TableKind::Value, 1)];
        let reasons = newer_tables(&descriptor(OLD.tables), &descriptor(&newer));
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert!(reasons[0].contains("'counts' has version 5, the state is in version 2"), "{reasons:?}");
        assert_eq!(newer_tables(&descriptor(OLD.tables), &descriptor(OLD.tables)), [""; 0]);
    }

    #[test]
    fn state_that_each_subtask_needs_of_all_takes_a_restart() {
        let union = Declared { redistribution: Redistribution::Union, ..Declared::PLAIN };
        assert_eq!(misfits_of(PLACE, union, union).len(), 1);
        assert_eq!(misfits_of(Place { parallelism: 1, ..PLACE }, union, union), [""; 0]);
    }
}
