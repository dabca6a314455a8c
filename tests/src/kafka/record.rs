//! Records as the verifier reads and writes them, and what it says of groups and transactions.

/// A record that is in a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    /// `None`: a tombstone.
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// The value as text, `""` for a tombstone.
    ///
    /// # Panics
    /// If it isn't UTF-8.
    pub fn text(&self) -> &str {
        text_of(self.value.as_deref())
    }

    /// The key as text, `""` if there is none.
    ///
    /// # Panics
    /// If it isn't UTF-8.
    pub fn key_text(&self) -> &str {
        text_of(self.key.as_deref())
    }
}

fn text_of(bytes: Option<&[u8]>) -> &str {
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_else(|error| panic!("not UTF-8: {bytes:?}: {error}"))
}

/// A record to produce.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    /// `None`: by murmur2 of the key, as Java's client does, or any partition if there is no key.
    pub partition: Option<i32>,
    /// Milliseconds since 1970. `None`: now.
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl NewRecord {
    pub fn value(value: impl Into<Vec<u8>>) -> NewRecord {
        NewRecord { value: Some(value.into()), ..NewRecord::default() }
    }

    pub fn keyed(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> NewRecord {
        NewRecord { key: Some(key.into()), ..NewRecord::value(value) }
    }

    /// A key without a value.
    pub fn tombstone(key: impl Into<Vec<u8>>) -> NewRecord {
        NewRecord { key: Some(key.into()), ..NewRecord::default() }
    }

    #[must_use]
    pub fn to_partition(self, partition: i32) -> NewRecord {
        NewRecord { partition: Some(partition), ..self }
    }

    #[must_use]
    pub fn at(self, timestamp: i64) -> NewRecord {
        NewRecord { timestamp: Some(timestamp), ..self }
    }

    #[must_use]
    pub fn with_header(mut self, name: &str, value: Option<&[u8]>) -> NewRecord {
        self.headers.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        self
    }
}

/// What a consumer group has committed for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOffset {
    /// The next offset to read.
    pub offset: i64,
    pub metadata: String,
}

/// A transactional id that the cluster knows, as the transaction coordinator says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub id: String,
    pub producer_id: i64,
    /// `Empty`, `Ongoing`, `PrepareCommit`, `PrepareAbort`, `CompleteCommit`, `CompleteAbort`, `Dead` …
    pub state: String,
}
