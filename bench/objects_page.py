"""The part of docs/PERFORMANCE.md about many objects in one process, and its arithmetic."""
from page import filled, table, with_spread
from summary import spread

MOST_BYTES = 8192  # in the shared segments, per idle queue pair
MOST_RATIO = 1.10  # of a post and poll beside all of them to one without
KEYS = ("qp_arena_bytes", "qp_private_bytes", "qp_create_us", "mr_create_us", "cq_create_us", "destroy_all_s", "few_ns",
        "many_ns")
NAMES = {"qp_arena_bytes": "bytes of the shared segments per idle RC queue pair, 16-deep queues",
         "qp_private_bytes": "bytes of the process's own memory per queue pair",
         "qp_create_us": "creating a queue pair, µs", "mr_create_us": "registering memory, µs",
         "cq_create_us": "creating a completion queue, µs", "destroy_all_s": "destroying all of them, s",
         "few_ns": "an 8-byte WRITE posted and polled, alone, ns of CPU", "many_ns": "the same beside all of them, ns of CPU"}


def values(document: dict, key: str) -> dict | None:
    found = [entry[key] for entry in document["rounds"] if key in entry]
    return spread(found) if found else None


def ratio_row(document: dict) -> dict | None:
    """Of many_ns to few_ns, round by round."""
    both = [entry["many_ns"] / entry["few_ns"] for entry in document["rounds"] if "failed" not in entry]
    if not both:
        return None
    verdict = "met" if max(both) <= MOST_RATIO else "missed" if min(both) > MOST_RATIO else "open"
    return spread(both) | {"aim": MOST_RATIO, "verdict": verdict}


def small_enough(document: dict) -> bool:
    found = values(document, "qp_arena_bytes")
    return found is not None and found["median"] <= MOST_BYTES


def in_short(document: dict) -> str:
    ratio = document["ratio"]
    if not ratio:
        return "objects: not a single round gave figures: " + document["rounds"][0]["failed"]
    return f"an idle queue pair has {values(document, 'qp_arena_bytes')['median']:.0f} bytes in the arena (aim at most " \
           f"{MOST_BYTES}: {'met' if small_enough(document) else 'missed'}); post and poll beside " \
           f"{document['settings']['objects']}: {with_spread(ratio)} times (aim at most {MOST_RATIO}: {ratio['verdict']})"


def text(document: dict) -> str:
    settings, ratio = document["settings"], document["ratio"]
    note = filled(f"""Measured by `bench/objects.py` on {document['machine']['date']}, from commit
        {document['machine']['verbena']}: {settings['rounds_complete']} rounds, each with {settings['objects']} in one
        process. Post and poll beside them, to alone: **{with_spread(ratio)}**; at most {MOST_RATIO} is aimed at:
        {ratio['verdict'] if ratio else 'not measured'}. A queue pair's part of the arena: at most {MOST_BYTES} bytes
        are aimed at: {'met' if small_enough(document) else 'missed'}.""")
    failed = {entry["failed"] for entry in document["rounds"] if "failed" in entry}
    bad = "".join(f"\n\nA round failed: {reason}" for reason in sorted(failed))
    return "## Many objects\n" + note + bad + "\n\n" + \
        table(["", "median"], [[NAMES[key], with_spread(values(document, key))] for key in KEYS])
