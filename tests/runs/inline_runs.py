"""Runs without processes: chunks are worked off here, as small as they can be, and the end can come at any write."""

from dataclasses import dataclass, field

from hardmax.cells.subtrees import Budget
from hardmax.runs import folder as folders
from hardmax.runs.resources import Resources
from hardmax.runs.worker import merged, opened, work


class KilledError(BaseException):
    """The end of the process, where a test has it come."""


class InlinePool:
    """Works off a chunk when asked for what is finished; ``worked`` names those it did."""

    def __init__(self, kind, problem, budget, worked):
        self.kind, self.problem, self.budget, self.worked = kind, problem, budget, worked
        self.size = 2
        self.waiting = []

    def submit(self, chunk, budget):
        self.waiting.append((chunk, Budget(self.budget.seconds, self.budget.parts, budget.memory)))

    def finished(self, timeout):
        chunk, budget = self.waiting.pop()
        self.worked.append(chunk.name)
        return [(chunk, work(self.kind, self.problem, chunk.data, budget))]

    def merged(self, partials):
        return merged(self.kind, partials)

    def close(self):
        pass


@dataclass(frozen=True)
class Here(Resources):
    """Resources whose workers are this process; every chunk is divided after its first cut unless told otherwise."""

    budget: Budget = field(default_factory=lambda: Budget(0.0, 3))
    worked: tuple = ()

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "worked", [])

    def pool(self, kind, problem):
        """The workers: this process."""
        opened(kind, problem)
        return InlinePool(kind, problem, self.budget, self.worked)


def killed_at_write(monkeypatch, number):
    """Let the process end at the so-manieth file that a run writes, before, or after the file is there."""
    count = {"left": number}
    write = folders.write_bytes

    def until_the_end(path, data):
        count["left"] -= 1
        if count["left"] == -1:
            raise KilledError
        write(path, data)
        if count["left"] == 0 and number % 2:
            raise KilledError

    monkeypatch.setattr(folders, "write_bytes", until_the_end)
    return lambda: monkeypatch.setattr(folders, "write_bytes", write)
