//! What becomes of a component when those within it are instantiated, worked out without doing it.
//!
//! The engine unfolds a component before it compiles it: each instance of a component within it is a copy of all of that one's parts.
//! A few hundred bytes that instantiate twice what instantiates twice, and so on, become more than any machine holds.
//!
//! Invariant: what has passed is at most [`PARTS_MAX`] parts when it is unfolded, and to find that out takes no longer than to read it.

use wasmparser::{
    BinaryReaderError, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind,
    ComponentTypeRef, Instance, Payload,
};

use super::error::Problem;

/// Items of all its instances together: definitions, imports, exports, aliases, arguments. Those that compilers make have thousands.
pub(super) const PARTS_MAX: u64 = 100_000;

/// What has been read of a component so far.
#[derive(Default)]
pub(super) struct Unfolding {
    /// Those that have begun and not ended, from the outermost on.
    open: Vec<Scope>,
    /// Of the outermost, when it has ended.
    parts: u64,
    /// Whether one of them is given a component that it doesn't name itself.
    passes_components: bool,
}

/// A component or core module.
#[derive(Default)]
struct Scope {
    parts: u64,
    /// What each of the components that it can instantiate becomes.
    components: Vec<u64>,
    is_module: bool,
}

impl Scope {
    fn add(&mut self, parts: u64) {
        self.parts = self.parts.saturating_add(parts);
    }

    /// What an index that isn't there stands for doesn't matter: the component isn't valid.
    fn component(&self, index: u32) -> u64 {
        self.components.get(index as usize).copied().unwrap_or(0)
    }
}

impl Unfolding {
    /// How many components and modules what is read now lies in, beside the outermost one.
    pub fn depth(&self) -> usize {
        self.open.len().saturating_sub(1)
    }

    /// # Errors
    /// If it can't be read.
    pub fn read(&mut self, payload: &Payload<'_>) -> Result<(), BinaryReaderError> {
        match payload {
            Payload::Version { encoding, .. } => {
                let is_module = matches!(encoding, wasmparser::Encoding::Module);
                self.open.push(Scope { is_module, ..Scope::default() });
            }
            Payload::End(_) => self.end(),
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    self.add(match instance? {
                        Instance::Instantiate { args, .. } => args.len(),
                        Instance::FromExports(exports) => exports.len(),
                    });
                }
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section.clone() {
                    match instance? {
                        ComponentInstance::Instantiate { component_index, args } => {
                            self.add(args.len());
                            if let Some(scope) = self.open.last_mut() {
                                scope.add(scope.component(component_index));
                            }
                        }
                        ComponentInstance::FromExports(exports) => self.add(exports.len()),
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    self.alias(&alias?);
                }
            }
            Payload::ComponentImportSection(section) => {
                for import in section.clone() {
                    self.add(0);
                    self.passes_components |= matches!(import?.ty, ComponentTypeRef::Component(_));
                }
            }
            Payload::ComponentExportSection(section) => {
                for export in section.clone() {
                    let export = export?;
                    self.add(0);
                    // What is exported gets another index.
                    if let (ComponentExternalKind::Component, Some(scope)) = (export.kind, self.open.last_mut()) {
                        scope.components.push(scope.component(export.index));
                    }
                }
            }
            Payload::ComponentTypeSection(section) => self.add(section.count() as usize),
            Payload::CoreTypeSection(section) => self.add(section.count() as usize),
            Payload::ComponentCanonicalSection(section) => self.add(section.count() as usize),
            // The inside of a module is there once, however often it is instantiated.
            _ => {}
        }
        Ok(())
    }

    /// # Errors
    /// If it becomes too much, or can't be known.
    pub fn check(&self) -> Result<(), Problem> {
        if self.passes_components {
            return Err(Problem::PassesComponents);
        }
        if self.parts > PARTS_MAX {
            return Err(Problem::Unfolds { parts_max: PARTS_MAX });
        }
        Ok(())
    }

    /// An item with so many parts within.
    fn add(&mut self, within: usize) {
        if let Some(scope) = self.open.last_mut() {
            scope.add(within as u64 + 1);
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        self.add(0);
        match alias {
            ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                let place = self.open.len().checked_sub(*count as usize + 1);
                let outer = place.and_then(|place| self.open.get(place));
                let parts = outer.map_or(0, |outer| outer.component(*index));
                if let Some(scope) = self.open.last_mut() {
                    scope.components.push(parts);
                }
            }
            ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => {
                self.passes_components = true;
            }
            ComponentAlias::InstanceExport { .. }
            | ComponentAlias::CoreInstanceExport { .. }
            | ComponentAlias::Outer { .. } => {}
        }
    }

    fn end(&mut self) {
        let Some(ended) = self.open.pop() else { return };
        match self.open.last_mut() {
            Some(outer) => {
                outer.add(1);
                if !ended.is_module {
                    outer.components.push(ended.parts);
                }
            }
            None => self.parts = ended.parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use wasmparser::Parser;

    use super::*;

    fn unfolded(wat: &str) -> Unfolding {
        let wasm = wat::parse_str(wat).expect("a component");
        let mut unfolding = Unfolding::default();
        for payload in Parser::new(0).parse_all(&wasm) {
            unfolding.read(&payload.expect("a good one")).expect("a good one");
        }
        unfolding
    }

    /// Each level instantiates the one below so often.
    fn tower(levels: u32, instances: usize) -> String {
        let inner = "(component $c (core module $m) (core instance (instantiate $m)))".to_owned();
        let instantiate = "(instance (instantiate $c))".repeat(instances);
        let level = |within, _| format!("(component $c {within} {instantiate})");
        let tower = (0..levels).fold(inner, level);
        format!("(component {tower} {instantiate})")
    }

    #[test]
    fn each_instance_counts_with_all_that_it_becomes() {
        // A module and an instance of it, within a component; the component and each of its instances.
        assert_eq!(unfolded(&tower(0, 0)).parts, 1);
        assert_eq!(unfolded(&tower(0, 1)).parts, 1 + 3);
        assert_eq!(unfolded(&tower(0, 2)).parts, 1 + 2 * 3);
        assert_eq!(unfolded(&tower(1, 2)).parts, 1 + 2 * (1 + 7));
    }

    #[test]
    fn what_doubles_from_level_to_level_is_refused_and_a_few_levels_are_not() {
        unfolded(&tower(8, 2)).check().expect("hundreds");
        for (levels, instances) in [(40, 2), (60, 900), (3, 100)] {
            let problem = unfolded(&tower(levels, instances)).check().expect_err("too many");
            assert!(matches!(problem, Problem::Unfolds { .. }), "{problem}");
        }
    }

    #[test]
    fn a_component_under_another_index_is_the_same() {
        let large = tower(1, 400).replacen("(component", "(component $large", 1);
        let exported =
            format!("(component {large} (export $again \"again\" (component $large)) (instance (instantiate $again)))");
        let plain = format!("(component {large} (instance (instantiate $large)))");
        assert!(unfolded(&plain).check().is_err() && unfolded(&exported).check().is_err());
        let aliased = format!(
            "(component {large} (component $user (alias outer 1 0 (component $inner)) (instance (instantiate $inner)))
             (instance (instantiate $user)))"
        );
        assert!(unfolded(&aliased).check().is_err());
    }

    #[test]
    fn components_that_are_handed_around_are_refused() {
        let imported = "(component (component (import \"c\" (component $c)) (instance (instantiate $c))))";
        let taken = "(component (component $a (component $b) (export \"b\" (component $b)))
            (instance $i (instantiate $a)) (alias export $i \"b\" (component $c)))";
        for wat in [imported, taken] {
            assert!(matches!(unfolded(wat).check(), Err(Problem::PassesComponents)), "{wat}");
        }
    }
}
