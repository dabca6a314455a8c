//! What a user may do, as brokers say it: a bit for each operation.
//!
//! Invariant: a right that a broker didn't speak of is neither given nor missing.

/// By the numbers of Kafka's `AclOperation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read = 3,
    Write = 4,
    Create = 5,
    Describe = 8,
    DescribeConfigs = 10,
}

impl Operation {
    /// As in `kafka-acls.sh --operation`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "Read",
            Operation::Write => "Write",
            Operation::Create => "Create",
            Operation::Describe => "Describe",
            Operation::DescribeConfigs => "DescribeConfigs",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operations(i32);

/// What a broker says that wasn't asked, or doesn't tell.
const NOT_TOLD: i32 = i32::MIN;

impl Operations {
    pub(in super::super) fn told(bits: i32) -> Option<Operations> {
        (bits != NOT_TOLD).then_some(Operations(bits))
    }

    pub fn of(operations: &[Operation]) -> Operations {
        Operations(operations.iter().fold(0, |bits, operation| bits | 1 << *operation as i32))
    }

    pub fn allows(self, operation: Operation) -> bool {
        self.0 & (1 << operation as i32) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_is_a_bit() {
        let some = Operations::told(0b1_0000_1000).expect("told");
        assert_eq!(some, Operations::of(&[Operation::Read, Operation::Describe]));
        assert!(some.allows(Operation::Read) && !some.allows(Operation::Write));
        assert_eq!(Operations::told(i32::MIN), None);
    }
}
