//! How much work the functions of a component make for the compiler, worked out before it gets them.
//!
//! The engine compiles each function as a whole: what that takes grows with the square of how deep blocks lie within each other, and
//! faster than the function's size. A few hundred kilobytes can take all memory of a machine.
//!
//! Invariant: no function that has passed is larger or nested deeper than these limits.

use wasmparser::{BinaryReaderError, FunctionBody, Operator};

use super::error::Problem;

/// Of one function. The largest that is known to be of use, in the interpreter of Python, has 430 kB.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// Blocks within each other: as many as a `switch` has cases, and one for each.
pub(super) const NESTED_MAX: usize = 5_000;

/// Checks one function.
///
/// # Errors
/// What can't be read, and inside `Ok` what is too much.
pub(super) fn check(body: &FunctionBody<'_>) -> Result<Result<(), Problem>, BinaryReaderError> {
    let size_bytes = body.as_bytes().len();
    if size_bytes > BODY_BYTES_MAX {
        return Ok(Err(Problem::LargeFunction { size_bytes, limit_bytes: BODY_BYTES_MAX }));
    }
    let mut nested = 0usize;
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        match operators.read()? {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::TryTable { .. }
            | Operator::Try { .. } => nested += 1,
            Operator::End => nested = nested.saturating_sub(1),
            _ => {}
        }
        if nested > NESTED_MAX {
            return Ok(Err(Problem::DeepFunction { limit: NESTED_MAX }));
        }
    }
    Ok(Ok(()))
}
