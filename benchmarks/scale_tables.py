"""The tables that `benchmarks/scale.py` writes into `docs/scale.md`."""

from typing import Any

from scale import BATCH, ETHERNET, GPU, NCCL, PAGE, D, M, cost
from tables import replace, table

AIMS = {"step": 1.7, "gradient": 1.6, "overhead": 0.1}
CLUSTERS = (1, 8, 64, 1024)
ROWS = 10**9


def setting(results: dict[str, Any]) -> str:
    """Machine and date."""
    m = results["machine"]
    return (
        f"{m['cpu']}, {m['cores']} cores, {results['date']}; float64, D = {D} inputs, M = {M} inducing points, one "
        "core for each process."
    )


def _reading(results: dict[str, Any]) -> str:
    found = results["read"]
    small, large = found["minibatches"].items()
    shares = ", ".join(f"{100 * share:.0f} % for {parts} processes" for parts, share in found["shares"].items())
    return (
        f"One core reads {found['in order'] / 1e6:.1f} million rows a second in the order of the files, "
        f"{large[1] / 1e6:.1f} million shuffled into minibatches of {int(large[0]):,} rows, and "
        f"{small[1] / 1e6:.1f} million into minibatches of {int(small[0]):,}. The share of {found['rows']:,} rows "
        f"that each process reads in an epoch is {shares}. It is {100 * found['unaligned']:.0f} % for 2 processes if "
        "lanes end inside row groups."
    )


def _ms(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def _speed(results: dict[str, Any]) -> str:
    found, lines = results["processes"], []
    kinds = {("steps", "natgrad"): "step, natural gradients", ("steps", "adam"): "step, Adam"}
    kinds |= {("passes", "value"): "collapsed bound", ("passes", "gradient"): "collapsed bound and gradient"}
    for (group, kind), title in kinds.items():
        those = [one for one in found[group] if kind in (one.get("method"), one.get("kind"))]
        for size in sorted({one["size"] for one in those}):
            ms = {one["processes"]: 1e3 * one["seconds"] for one in those if one["size"] == size}
            cells = [f"{title}, {size:,} rows", *(_ms(ms[count]) for count in (1, 2)), f"{ms[1] / ms[2]:.2f}"]
            aim = {("steps", BATCH): AIMS["step"]}.get((group, size), AIMS["gradient"] if group == "passes" else None)
            lines.append([*cells, "" if aim is None else f"{aim}", _ms(ms[4])])
    return table(["ms", "1 process", "2 processes", "ratio", "aim", "4 processes on the 2 cores"], lines)


def _communication(results: dict[str, Any]) -> str:
    found = results["processes"]
    times = {count: {int(n): s for n, s in of.items()} for count, of in found["all-reduce"].items()}
    said = [
        ", ".join(f"{1e3 * s:.2g} ms for {8 * n / 1000:,.0f} kB" for n, s in of.items()) + f" ({count} processes)"
        for count, of in times.items()
    ]
    numbers = found["numbers"]
    nearest = min(times["2"], key=lambda n: abs(n - numbers))
    those = [one for one in found["steps"] if (one["method"], one["size"]) == ("natgrad", BATCH)]
    alone, of_step = (next(one["seconds"] for one in those if one["processes"] == count) for count in (1, 2))
    return (
        f"An all-reduce alone takes {'; '.join(said)}. A step reduces {numbers:,} numbers. On two processes, this is "
        f"{100 * times['2'][nearest] / of_step:.1f} % of a step of {BATCH:,} rows. Compared with half the time of one "
        f"process, a step loses {100 * (1 - alone / 2 / of_step):.0f} % in all: to communication, waiting, and work "
        "that both processes do."
    )


def _growth(results: dict[str, Any]) -> str:
    lines = []
    for one in results["rows"]:
        count, passes = one["count"], one.get("passes")
        cells = [f"{one['rows']:,}", f"{one['bytes'] / 1e9:.3g}", f"{count['count'] + count['sample']:.2f}"]
        cells += [f"{1e3 * one['step']:.3g}", "" if passes is None else f"{passes['gradient']:.3g}"]
        cells += [f"{one['peak']:,.0f}", f"{one['epoch']['rate'] / 1e6:.1f}", f"{one['epoch']['memory']:,.0f}"]
        lines.append(cells)
    header = [
        "rows",
        "GB of files",
        "count and sample, s",
        f"step of {BATCH:,} rows, ms",
        "collapsed bound and gradient, s",
    ]
    return table([*header, "peak memory, MB", "an epoch read, million rows/s", "peak memory after it, MB"], lines)


def _against_memory(results: dict[str, Any]) -> str:
    lines = []
    for cores, of in results["overhead"].items():
        ms = 1e3 * of["in memory"], 1e3 * of["streamed"]
        title = f"step of {BATCH:,} rows, {cores} core{'s' * (cores != '1')}"
        lines.append([title, f"{ms[0]:.3g} ms", f"{ms[1]:.3g} ms", f"{100 * (ms[1] / ms[0] - 1):+.1f} %"])
    inside, streamed = (results["flights"][name] for name in ("in memory", "streamed"))
    densities = [f"{one['density']:.4f}" for one in (inside, streamed)]
    difference = f"{streamed['density'] - inside['density']:+.4f}"
    lines.append([f"nyc_flights, {inside['rows']:,} rows: held-out log density", *densities, difference])
    return table(["", "in memory", "streamed", "difference"], lines)


def _constants(results: dict[str, Any]) -> str:
    lines = []
    for name, title in (("step", "step"), ("gradient", "value and gradient of the collapsed bound")):
        r, s, a = results["model"][name]["constants"]
        flops = 12 * M**2 / r / 1e9
        lines.append([title, f"{1e6 * r:.2f}", f"{1e3 * s:.2f}", f"{1e6 * a:.0f}", f"{flops:.0f}"])
    return table(["", "r, µs", "s, ms", "a, µs", "GFLOP/s of 12 M² for each row"], lines)


def _checks(results: dict[str, Any]) -> str:
    lines = []
    for name, title in (("step", "step"), ("gradient", "collapsed bound and gradient")):
        for one in results["model"][name]["checks"]:
            where = f"{one['processes']} process{'es' * (one['processes'] > 1)}{' on 2 cores' * (one['processes'] > 2)}"
            ms = 1e3 * one["seconds"], 1e3 * one["predicted"]
            error = f"{100 * (ms[1] / ms[0] - 1):+.0f} %"
            lines.append([f"{title}, {one['size']:,} rows, {where}", _ms(ms[0]), _ms(ms[1]), error])
    return table(["ms", "measured", "predicted", "difference"], lines)


def _extrapolated(results: dict[str, Any]) -> str:
    """Times for clusters: the fitted constants of a core, and assumed ones of a message and of a GPU."""
    (r, s, _), (r_pass, s_pass, _) = (results["model"][name]["constants"] for name in ("step", "gradient"))
    lines = []
    for P in CLUSTERS:
        rows, own, messages = cost(P, BATCH, cores=P)
        reduce = ETHERNET * messages
        step = r * rows + s * own + reduce
        even = P * reduce / r
        gradient = r_pass * ROWS / P + s_pass + 2 * reduce
        cells = [
            f"{P:,} core{'s' * (P > 1)}",
            f"{1e3 * r * rows:.3g}",
            f"{1e3 * reduce:.3g}",
            _span(step * ROWS / BATCH),
        ]
        cells += [f"{even:,.0f}", _span(gradient)]
        lines.append(cells)
    for P in CLUSTERS:
        reduce = NCCL * 2 * (P - 1).bit_length()
        step = r / GPU * BATCH / P + s / GPU + reduce
        cells = [f"{P:,} GPU{'s' * (P > 1)}, assumed", f"{1e3 * r / GPU * BATCH / P:.3g}", f"{1e3 * reduce:.3g}"]
        cells += [_span(step * ROWS / BATCH), f"{P * reduce * GPU / r:,.0f}"]
        lines.append([*cells, _span(r_pass / GPU * ROWS / P + s_pass / GPU + 2 * reduce)])
    header = ["", f"rows of a step, B = {BATCH:,}, ms", "its all-reduce, ms", "an epoch of 10⁹ rows, B = 8,192"]
    return table([*header, "B at which both take equally long", "one gradient of the collapsed bound, 10⁹ rows"], lines)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


WRITTEN = {
    "scale-setting": ((), setting),
    "scale-reading": (("read",), _reading),
    "scale-speed": (("processes",), _speed),
    "scale-communication": (("processes",), _communication),
    "scale-growth": (("rows",), _growth),
    "scale-memory": (("overhead", "flights"), _against_memory),
    "scale-constants": (("model",), _constants),
    "scale-checks": (("model",), _checks),
    "scale-extrapolated": (("model",), _extrapolated),
}


def texts(results: dict[str, Any]) -> dict[str, str]:
    """The tables and sentences whose measurements exist."""
    return {name: make(results) for name, (needed, make) in WRITTEN.items() if all(part in results for part in needed)}


def write_tables(results: dict[str, Any]) -> None:
    """Put them into the page."""
    page = PAGE.read_text()
    for name, text in texts(results).items():
        page = replace(page, name, text)
    PAGE.write_text(page)
