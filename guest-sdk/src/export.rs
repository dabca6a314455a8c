//! The macro that makes a component of an operator.

/// Makes the crate's operator the one that its component holds. Its name and version are those of the crate.
///
/// Once in a crate of type `cdylib`. Where the target isn't WebAssembly it only checks that the type is an
/// [`Operator`](crate::Operator).
///
/// ```
/// use lockgate::prelude::*;
///
/// struct Copy;
///
/// impl Operator for Copy {
///     fn new(_: &mut Declaration) -> Copy {
///         Copy
///     }
///
///     fn process(&mut self, record: Record<'_>, ctx: &mut Context<'_>) -> Result<(), Error> {
///         ctx.emit(record.key(), record.value());
///         Ok(())
///     }
/// }
///
/// lockgate::export!(Copy);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($operator:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::component::bindings::exports::lockgate::operator::migration;
            use $crate::component::bindings::lockgate::operator::types;

            struct Component;

            ::std::thread_local! {
                static CELL: $crate::component::Cell<$operator> = const { $crate::component::Cell::new() };
            }

            impl $crate::component::Guest for Component {
                fn describe() -> types::Descriptor {
                    $crate::component::Cell::<$operator>::describe(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
                }

                fn open(context: types::Context) -> Result<(), types::OpError> {
                    CELL.with(|cell| cell.open(context))
                }

                fn restore(states: Vec<Vec<u8>>) -> Result<(), types::OpError> {
                    CELL.with(|cell| cell.restore(states))
                }

                fn process(port: u32, rows: types::BatchResult) -> Result<Vec<types::Rejection>, types::OpError> {
                    CELL.with(|cell| cell.process(port, rows))
                }

                fn timers(
                    clock: types::Clock,
                    rows: types::BatchResult,
                ) -> Result<Vec<types::Rejection>, types::OpError> {
                    CELL.with(|cell| cell.timers(clock, rows))
                }

                fn watermark(timestamp: i64) -> Result<(), types::OpError> {
                    CELL.with(|cell| cell.watermark(timestamp))
                }

                fn snapshot(_: u64) -> Result<Vec<u8>, types::OpError> {
                    CELL.with(|cell| cell.snapshot())
                }

                fn trim(target_bytes: u64) -> Result<(), types::OpError> {
                    CELL.with(|cell| cell.trim(target_bytes))
                }

                fn close() -> Result<(), types::OpError> {
                    CELL.with(|cell| cell.close())
                }
            }

            impl $crate::component::MigrationGuest for Component {
                fn prepare(table: u32, from_version: u32) -> Result<migration::Keys, types::OpError> {
                    CELL.with(|cell| cell.prepare(table, from_version))
                }

                fn migrate(
                    table: u32,
                    from_version: u32,
                    entries: migration::Entries,
                ) -> Result<migration::Entries, types::OpError> {
                    CELL.with(|cell| cell.migrate(table, from_version, entries))
                }

                fn merge(
                    table: u32,
                    from_version: u32,
                    entries: migration::Entries,
                    others: types::ColumnResult,
                ) -> Result<types::ColumnResult, types::OpError> {
                    CELL.with(|cell| cell.merge(table, from_version, entries, others))
                }
            }

    $crate::component::bindings::export_operator!(Component with_types_in $crate::component::bindings);
        };

        #[cfg(not(target_arch = "wasm32"))]
        const _: () = {
            const fn is_an_operator<Op: $crate::Operator>() {}
            is_an_operator::<$operator>();
        };
    };
}
