"""An operator as a component: the exports of wit/operator.wit over an operator's class.

Invariant: every exception leaves as an error that says whose fault it is; a rejected record has had no effect.
"""

import io
import sys

from componentize_py_types import Err
from wit_world.imports import runtime, types

from .errors import BadRecord, Fatal, Transient
from .record import NO_RECORD, OUTPUT_ROWS_MAX, records_of, send
from .table import CACHE_BYTES_MAX, tables_of


def export(operator):
    """Makes the class that `componentize-py` looks for by the name `Operator`."""

    class Exported(_Component):
        of = operator

    return Exported


class _Component:
    """The exports of wit/operator.wit over an operator."""

    of = None

    def describe(self):
        of = self.of
        tables = [types.Table(table.name, table.kind, table.version) for table in tables_of(of)]
        return types.Descriptor(
            name=of.name or of.__name__,
            version=of.version,
            inputs=[types.Input("in", False)],
            outputs=list(of.outputs),
            tables=tables,
            timers=False,
            redistribution=types.Redistribution.SPLIT,
        )

    def open(self, context):
        sys.stdout, sys.stderr = _Log(runtime.Level.INFO), _Log(runtime.Level.WARN)
        # Each call comes to a new object of this class.
        instance = type(self).instance = self.of()
        instance._tables = tables_of(self.of)
        for index, table in enumerate(instance._tables):
            table.open(index)
        instance._outputs = [[] for _ in self.of.outputs]
        instance._undo = [] if context.rejections else None
        _rest(instance)
        _call(instance.open, context)

    def restore(self, states):
        _call(self.instance.restore, states)

    def process(self, port, rows):
        return _call(self.process_records, rows)

    def process_records(self, rows):
        instance = self.instance
        records = instance._records = records_of(rows)
        process, outputs, undo = instance.process, instance._outputs, instance._undo
        rejections = []
        for row, record in enumerate(records):
            instance._row, instance._record = row, record
            try:
                process(record)
            except Exception as error:
                rejections.append(self.rejection(error))
            if undo:
                undo.clear()
            for port, emitted in enumerate(outputs):
                if len(emitted) >= OUTPUT_ROWS_MAX:
                    send(port, emitted)
                    emitted.clear()
        self.end()
        return rejections

    def rejection(self, error):
        """Undoes what the record at hand has done, if the call may go on."""
        instance = self.instance
        problem = _problem(error, instance._row)
        if instance._undo is None or problem.kind is not types.ErrorKind.BAD_RECORD:
            raise Err(problem) from None
        for emitted in instance._outputs:
            while emitted and emitted[-1][2] is instance._record:
                emitted.pop()
        for table, place, cell, was_changed in reversed(instance._undo):
            table.take_back(place, cell, was_changed)
        return types.Rejection(instance._row, problem.message)

    def timers(self, clock, rows):
        raise Err(types.OpError(types.ErrorKind.FATAL, None, "this operator sets no timers"))

    def watermark(self, timestamp):
        _call(self.instance.watermark, timestamp)
        _call(self.end)

    def snapshot(self, epoch):
        _call(self.write_back)
        return _call(self.instance.snapshot)

    def trim(self, target_bytes):
        _call(self.write_back)
        self.relieve(target_bytes)

    def close(self):
        _call(self.instance.close)

    def end(self):
        """What a call leaves to be done at its end."""
        instance = self.instance
        for port, emitted in enumerate(instance._outputs):
            send(port, emitted)
            emitted.clear()
        _rest(instance)
        if sum(table.cache_bytes for table in instance._tables) > CACHE_BYTES_MAX:
            self.write_back()
            self.relieve(0)

    def write_back(self):
        for table in self.instance._tables:
            table.write_back()

    def relieve(self, target_bytes):
        """Forgets all entries, where they take more than that."""
        if sum(table.cache_bytes for table in self.instance._tables) > target_bytes:
            for table in self.instance._tables:
                table.forget()


class _Log(io.TextIOBase):
    """What is printed goes to the host's log, line by line."""

    def __init__(self, level):
        self.level = level
        self.line = ""

    def write(self, text):
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            runtime.log(self.level, line)
        return len(text)


def _rest(instance):
    """There is no record at hand."""
    instance._records, instance._row, instance._record = [], 0, NO_RECORD


def _call(function, *arguments):
    try:
        return function(*arguments)
    except Err:
        raise
    except Exception as error:
        raise Err(_problem(error, None)) from None


def _problem(error, row):
    """Whose fault an exception is. Outside of `process` there is no record to be bad."""
    if isinstance(error, Transient):
        return types.OpError(types.ErrorKind.TRANSIENT, row, str(error))
    if isinstance(error, (Fatal, MemoryError)) or row is None:
        return types.OpError(types.ErrorKind.FATAL, row, _message(error))
    return types.OpError(types.ErrorKind.BAD_RECORD, row, _message(error))


def _message(error):
    if isinstance(error, (BadRecord, Fatal)):
        return str(error)
    # Nobody meant this one to be read, so say where it is from.
    where = error.__traceback__
    while where.tb_next:
        where = where.tb_next
    file = where.tb_frame.f_code.co_filename.rsplit("/", 1)[-1]
    return f"{type(error).__name__}: {error} ({file}, line {where.tb_lineno})"
