"""The arithmetic: medians over rounds, and ratios taken within each round, where both sides met the same machine."""
from statistics import median

from cases import BANDWIDTH_MIB_S, KINDS, LATENCY_US, METRICS, OPERATIONS

WINS, LEVEL, LOSES = "wins", "level", "loses"
# One of rate and bandwidth is the other times the size, so their ratios are the same: one table serves both.
RATIO_METRICS = (LATENCY_US, BANDWIDTH_MIB_S)


def spread(values: list[float]) -> dict:
    return {"median": median(values), "min": min(values), "max": max(values), "rounds": len(values)}


def speedup(metric: str, ours: float, theirs: float) -> float:
    """Above 1 we are faster: less time, or more bytes."""
    return theirs / ours if metric == LATENCY_US else ours / theirs


def verdict(ratio: dict) -> str:
    """A win or a loss only if every round says so; rounds that disagree are noise."""
    if ratio["min"] > 1:
        return WINS
    return LOSES if ratio["max"] < 1 else LEVEL


class Results:
    """What a run measured, by peer and the peer's own (operation, kind, size)."""

    def __init__(self, document: dict):
        self.answers = {name: {tuple(row["for"]): tuple(row["by"]) for row in peer["answers"]}
                        for name, peer in document["peers"].items()}
        self.ours = document["ours"]
        self.others = [name for name in document["peers"] if name != self.ours]
        self.sizes = sorted({row["size"] for row in document["results"]})
        self.rounds = {(row["peer"], row["operation"], row["kind"], row["size"]): row["rounds"]
                       for row in document["results"]}

    def entries(self, peer: str, operation: str, kind: str, size: int) -> list[dict]:
        by = self.answers[peer].get((operation, kind))
        return self.rounds.get((peer, *by, size), []) if by else []

    def by_round(self, peer: str, operation: str, metric: str, size: int) -> dict[int, float]:
        kind = next(kind for kind in KINDS if metric in METRICS[kind])
        return {entry["round"]: entry[metric] for entry in self.entries(peer, operation, kind, size)
                if entry.get(metric, 0) > 0}

    def value(self, peer: str, operation: str, metric: str, size: int) -> dict | None:
        values = self.by_round(peer, operation, metric, size)
        return spread(list(values.values())) if values else None

    def ratio(self, peer: str, operation: str, metric: str, size: int) -> dict | None:
        ours = self.by_round(self.ours, operation, metric, size)
        theirs = self.by_round(peer, operation, metric, size)
        both = [speedup(metric, ours[number], theirs[number]) for number in sorted(ours.keys() & theirs.keys())]
        if not both:
            return None
        found = spread(both)
        return found | {"verdict": verdict(found)}

    def failures(self) -> dict[tuple[str, str], list[tuple[str, str, int]]]:
        """(peer, reason) -> the cases that gave not a single number for that reason."""
        found: dict = {}
        for (peer, operation, kind, size), entries in self.rounds.items():
            reasons = [entry["failed"] for entry in entries if "failed" in entry]
            if reasons and len(reasons) == len(entries):
                found.setdefault((peer, reasons[0]), []).append((operation, kind, size))
        return found


def ratio_rows(results: Results) -> list[dict]:
    """For the JSON: every ratio that could be taken."""
    rows = []
    for metric in RATIO_METRICS:
        for operation in OPERATIONS:
            for peer in results.others:
                for size in results.sizes:
                    found = results.ratio(peer, operation, metric, size)
                    if found:
                        rows.append({"operation": operation, "metric": metric, "against": peer, "size": size} | found)
    return rows
