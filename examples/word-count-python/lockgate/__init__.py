"""Write a Lockgate operator as a Python class.

    import lockgate

    class Count(lockgate.Operator):
        count = lockgate.Value("counts", lockgate.U64, default=0)

        def process(self, record):
            self.count += 1
            self.emit(record.key, b"%d" % self.count)

    Operator = lockgate.export(Count)

`componentize-py` makes a component of the module that ends so; build.sh shows how. The contract behind this is
wit/operator.wit, and what it offers beside (lists, timers) can be called through `wit_world.imports`.

Invariant: after an error of a call the instance is of no more use; a rejected record has had no effect.
"""

import json

from wit_world.imports import runtime

from .component import export
from .encoding import BYTES, F64, I64, TEXT, U64, Encoding
from .errors import BadRecord, Fatal, Transient
from .map import Map
from .record import NO_TIMESTAMP, Record
from .value import Value

class Operator:
    """What an operator inherits. It overrides `process`, and what else it needs."""

    name = None
    """For people; the name of the class unless said."""
    version = "0.1.0"
    outputs = ("out",)
    """The names of its outputs."""

    def open(self, context):
        """Called once, with the place in the job; `settings(context, ...)` reads the configuration."""

    def process(self, record):
        raise NotImplementedError

    def watermark(self, timestamp):
        """No more records with an event time at or before `timestamp` are to come."""

    def snapshot(self):
        """The state that isn't in tables, as bytes."""
        return b""

    def restore(self, states):
        """Takes up what `snapshot` gave: a list of bytes, one for each subtask that this one follows."""

    def close(self):
        """The job is done, or stops."""

    def emit(self, key, value, port=0):
        """Sends a record, with the event time and the headers of the record at hand."""
        self._outputs[port].append((key, value, self._record))

    def log(self, message, level=runtime.Level.INFO):
        runtime.log(level, message)

    def count_up(self, counter, by=1):
        """Adds to a counter of the operator's metrics."""
        runtime.counter_add(counter, by)


def settings(context, **defaults):
    """The operator's `config` table of the job file, with these defaults. A setting that isn't among them, or of another
    type, is refused."""
    given = json.loads(context.config or "{}")
    for name, value in given.items():
        if name not in defaults:
            raise Fatal(f"unknown field `{name}`, expected {' or '.join(f'`{known}`' for known in defaults)}")
        wanted = type(defaults[name])
        if type(value) is not wanted:
            raise Fatal(f"the setting `{name}` is {value!r}, and must be of type {wanted.__name__}")
    return defaults | given
