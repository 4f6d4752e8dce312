"""The plot of the wire's ratios: bars with the spread of the rounds, and the aims as lines."""
from pathlib import Path

import plots  # noqa: F401 (chooses matplotlib's backend)
from matplotlib import pyplot
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from cases import size_name
from wire_cases import LEAST_BANDWIDTH, LEAST_RATE, MOST_LATENCY, STOCK_BUFFER
from wire_summary import WireResults

COLOURS = {"lo": "#D55E00", "veth-1500": "#0072B2", "veth-9000": "#009E73"}  # Okabe and Ito, as in plots.py
LINES = {"send": "-", "write": "--"}


def bars(axes, links: list[str], ratios: list[dict], labels: list[str], chosen: list[dict], aim: float) -> None:
    """A group for each label, a bar for each link."""
    width = 0.8 / max(len(links), 1)
    for place, link in enumerate(links):
        for group, wanted in enumerate(chosen):
            row = next((row for row in ratios if row["link"] == link
                        and all(row.get(key) == value for key, value in wanted.items())), None)
            if row is None:
                continue
            spread = [[row["median"] - row["min"]], [row["max"] - row["median"]]]
            axes.bar(group + (place - (len(links) - 1) / 2) * width, row["median"], width * 0.9, yerr=spread,
                     color=COLOURS.get(link, "#777777"), ecolor="#444444", label=link if group == 0 else None)
    axes.axhline(aim, color="#000000", linewidth=1, linestyle=":")
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.grid(True, axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def draw_bandwidth(axes, document: dict, results: WireResults) -> None:
    chosen, labels = [], []
    for buffer in (0, STOCK_BUFFER):
        for size in sorted({row["size"] for row in results.rows if row["measure"] == "bandwidth"}):
            for operation in ("write", "read"):
                chosen.append({"measure": "bandwidth", "operation": operation, "size": size, "buffer": buffer})
                labels.append(f"{operation.upper()}\n{size_name(size)}" + ("\ncapped" if buffer else ""))
    bars(axes, results.links, document["ratios"], labels, chosen, LEAST_BANDWIDTH)
    axes.set_title(f"bandwidth, of TCP's (aim ≥ {LEAST_BANDWIDTH})")


def draw_latency(axes, document: dict, results: WireResults) -> None:
    # Not the target that doesn't poll: it would hide the others.
    chosen = [{"measure": "latency", "operation": operation} for operation in ("send", "polled-write")]
    bars(axes, results.links, document["ratios"], ["SEND\n8 B", "WRITE\n8 B"], chosen, MOST_LATENCY)
    axes.set_title(f"latency, times UDP's (aim ≤ {MOST_LATENCY})")


def draw_rate(axes, results: WireResults) -> None:
    counts = sorted({row["queue_pairs"] for row in results.rows if row["measure"] == "rate"})
    for link in results.links:
        for operation, line in LINES.items():
            found = [(count, results.ratio({"link": link, "measure": "rate", "operation": operation,
                                            "queue_pairs": count},
                                           {"link": link, "measure": "rate", "operation": operation,
                                            "queue_pairs": 1})) for count in counts]
            found = [(count, ratio["median"]) for count, ratio in found if ratio]
            axes.plot([count for count, _ in found], [value for _, value in found], line, marker="o", markersize=3,
                      color=COLOURS.get(link, "#777777"), label=f"{operation.upper()} {link}")
    axes.axhline(LEAST_RATE, color="#000000", linewidth=1, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{int(count):,}"))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("queue pairs")
    axes.legend(fontsize=7, frameon=False)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_title(f"message rate, of one QP's (aim ≥ {LEAST_RATE})")


def draw(document: dict, folder: Path) -> None:
    results = WireResults(document)
    pyplot.rcParams["svg.hashsalt"] = "verbena"
    pyplot.rcParams["svg.fonttype"] = "none"
    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4.2), width_ratios=(3, 1.3, 1.7))
    draw_bandwidth(panels[0], document, results)
    draw_latency(panels[1], document, results)
    draw_rate(panels[2], results)
    panels[0].legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(folder / "wire.svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
