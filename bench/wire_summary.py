"""The arithmetic of the wire's figures: ratios within rounds, against what the issue aims at."""
from summary import spread
from wire_cases import (KERNEL, LATENCY_OPERATIONS, LEAST_BANDWIDTH, LEAST_RATE, METRICS, MOST_LATENCY, OURS, STOCK_BUFFER, TCP,
                        UDP)

MET, MISSED, OPEN = "met", "missed", "open"
BEYOND = "beyond the sockets"  # missed, and so it would be if the engine took no time: the kernel's part misses it


class WireResults:
    def __init__(self, document: dict):
        self.rows = document["results"]
        self.links = list(document["links"])

    def by_round(self, **wanted) -> dict[int, float]:
        for row in self.rows:
            if all(row[key] == value for key, value in wanted.items()):
                metric = METRICS[row["measure"]]
                return {entry["round"]: entry[metric] for entry in row["rounds"] if entry.get(metric, 0) > 0}
        return {}

    def value(self, **wanted) -> dict | None:
        values = self.by_round(**wanted)
        return spread(list(values.values())) if values else None

    def ratio(self, ours: dict, theirs: dict) -> dict | None:
        """Ours divided by theirs, round by round."""
        one, other = self.by_round(**ours), self.by_round(**theirs)
        both = [one[turn] / other[turn] for turn in sorted(one.keys() & other.keys())]
        return spread(both) if both else None

    def failures(self) -> dict[str, list[dict]]:
        """Reason -> rows that gave not a single number."""
        found: dict[str, list[dict]] = {}
        for row in self.rows:
            reasons = [entry["failed"] for entry in row["rounds"] if "failed" in entry]
            if reasons and len(reasons) == len(row["rounds"]):
                found.setdefault(reasons[0], []).append(row)
        return found


def verdict(ratio: dict, aim: float, at_most: bool) -> str:
    """By the median; open where rounds disagree about it."""
    inside = [value <= aim if at_most else value >= aim for value in (ratio["min"], ratio["max"])]
    if all(inside):
        return MET
    return OPEN if any(inside) else MISSED


def ratio_rows(results: WireResults) -> list[dict]:
    """Every ratio that could be taken, with its aim."""
    rows = []

    def add(ours: dict, theirs: dict, aim: float, at_most: bool, kernel: dict | None = None) -> None:
        found = results.ratio(ours, theirs)
        if not found:
            return
        judged = verdict(found, aim, at_most)
        least = results.ratio(kernel, theirs) if kernel else None
        if judged == MISSED and least and verdict(least, aim, at_most) == MISSED:
            judged = BEYOND
        rows.append(ours | {"against": theirs, "aim": aim} | found | {"verdict": judged})

    for link in results.links:
        sizes = sorted({row["size"] for row in results.rows if row["measure"] == "bandwidth"})
        for size in sizes:
            for buffer in (0, STOCK_BUFFER):
                for operation in ("write", "read"):
                    common = {"link": link, "measure": "bandwidth", "size": size}
                    add(common | {"who": OURS, "operation": operation, "buffer": buffer}, common | {"who": TCP},
                        LEAST_BANDWIDTH, False, common | {"who": KERNEL})
        for operation in LATENCY_OPERATIONS:
            common = {"link": link, "measure": "latency"}
            add(common | {"who": OURS, "operation": operation}, common | {"who": UDP}, MOST_LATENCY, True,
                common | {"who": KERNEL})
        for operation in ("send", "write"):
            common = {"link": link, "measure": "rate", "who": OURS, "operation": operation}
            counts = sorted({row["queue_pairs"] for row in results.rows if row["measure"] == "rate"} - {1})
            for count in counts:
                add(common | {"queue_pairs": count}, common | {"queue_pairs": 1}, LEAST_RATE, False)
    return rows
