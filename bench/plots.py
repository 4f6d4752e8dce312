"""The plots, as SVG: small, sharp, and the same bytes for the same figures."""
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402 (the backend must be chosen first)
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator  # noqa: E402

from cases import BANDWIDTH_MIB_S, KIB, LATENCY_US, MIB, OPERATIONS, RATE_MOPS, size_name  # noqa: E402
from summary import Results  # noqa: E402

FIGURES = {"latency": (LATENCY_US, "latency, µs (lower is better)"),
           "bandwidth": (BANDWIDTH_MIB_S, "bandwidth, MiB/s (higher is better)"),
           "rate": (RATE_MOPS, "million messages a second (higher is better)")}
# Colours that colour-blind readers tell apart (Okabe and Ito); markers for print.
STYLES = {"verbena": ("#D55E00", "o"), "ucx": ("#0072B2", "s"), "ucx-cma": ("#56B4E9", "^"),
          "ucx-shm": ("#009E73", "v"), "tcp": ("#CC79A7", "D"), "memcpy": ("#777777", "x")}
TICKS = (8, 64, KIB, 16 * KIB, 256 * KIB, 8 * MIB)


def draw_line(axes, results: Results, peer: str, operation: str, metric: str) -> None:
    found = [(size, results.value(peer, operation, metric, size)) for size in results.sizes]
    found = [(size, value) for size, value in found if value]
    if not found:
        return
    colour, marker = STYLES.get(peer, ("#000000", "."))
    sizes = [size for size, _ in found]
    ours = peer == results.ours
    axes.fill_between(sizes, [value["min"] for _, value in found], [value["max"] for _, value in found],
                      color=colour, alpha=0.15, linewidth=0)
    axes.plot(sizes, [value["median"] for _, value in found], color=colour, marker=marker, label=peer,
              markersize=5 if ours else 3.5, linewidth=2.4 if ours else 1.1, zorder=3 if ours else 2)


def draw(results: Results, metric: str, title: str, path: Path) -> None:
    figure, panels = pyplot.subplots(1, len(OPERATIONS), figsize=(12, 4.2), sharey=True)
    for axes, operation in zip(panels, OPERATIONS):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for peer in [*results.others, results.ours]:
            draw_line(axes, results, peer, operation, metric)
        axes.set_title(operation.upper())
        axes.xaxis.set_major_locator(FixedLocator(TICKS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_name(int(size))))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    panels[0].set_ylabel(title)
    handles = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels())}
    order = [peer for peer in [results.ours, *results.others] if peer in handles]
    figure.legend([handles[peer] for peer in order], order, loc="lower center", ncols=len(order), frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))  # leaves a strip for the legend
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def draw_all(results: Results, folder: Path) -> None:
    pyplot.rcParams["svg.hashsalt"] = "verbena"
    pyplot.rcParams["svg.fonttype"] = "none"  # text stays text
    for name, (metric, title) in FIGURES.items():
        draw(results, metric, title, folder / f"{name}.svg")
