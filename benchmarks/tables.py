"""Write the results into `docs/benchmarks.md`: each table replaces what stands between its two markers.

python benchmarks/tables.py
"""

import json
import re
import statistics
import sys
from pathlib import Path

from cases import CASES, GROWTH, PEERS
from fit import QUALITY, RACE, RUNNERS, verdict

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
NAMES = {"ours": "inducing", "gpflow": "GPflow", "gpflux": "GPflux", "gpytorch": "GPyTorch", "gpjax": "GPJax"}
TITLES = {
    "collapsed-256": "collapsed bound + gradient, M=256, N=20,000",
    "collapsed-256-million": "collapsed bound + gradient, M=256, N=1,000,000",
    "collapsed-512-million": "collapsed bound + gradient, M=512, N=1,000,000",
    "predict-512-million": "mean and variance at 1,000,000 points, M=512",
    "predict-512": "mean and variance at 20,000 points, M=512",
    "predict-512-cached": "the same by what an earlier call kept",
    "lmc-128": "coregionalised step, 3 latents, 10 outputs, M=128",
    "deep-2": "deep GP step, 2 layers, M=128",
    "deep-3": "deep GP step, 3 layers, M=128",
    "latent-10": "importance-weighted latent-variable step, R=10, batch 256",
}
FIRST = 3.0  # seconds that a first step may take, compilation included
PUBLISHED = {  # sparse GP by the collapsed bound: log-likelihood (standard deviation), RMSE
    "concrete": ("−0.353 (.054)", ".357"),
    "energy": ("1.227 (.042)", ".064"),
    "power": ("0.038 (.036)", ".232"),
    "protein": ("−1.090 (.008)", ".719"),
    "yacht": ("1.943 (.141)", ".043"),
}
PUBLISHED_DEEP = {  # kin8nm in original units, split 0
    ("concrete", "2"): "−0.359",
    ("energy", "2"): "1.590",
    ("protein", "2"): "−1.035",
    ("yacht", "2"): "2.259",
    ("kin8nm", "2"): "1.2913 (original units)",
    ("kin8nm", "3"): "1.3039 (original units)",
}


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def title(case: dict) -> str:
    """What a case does, for people."""
    if case["group"] == "svgp":
        return f"SVGP step, {case['likelihood']}, M={case['M']}, {case['dtype']}"
    return TITLES.get(case["name"], case["name"])


def speed_table(results: dict) -> str:
    """Milliseconds of each library, the ratio of the best peer to us, its target, and the share of the GEMM rate."""
    rows = []
    for entry in results["cases"].values():
        if entry["case"]["group"] in GROWTH:
            continue
        cells = [title(entry["case"])]
        for library in ("ours", *PEERS):
            result = entry["libraries"].get(library)
            cells.append("" if result is None else f"{result['ms']:.3g}" if "ms" in result else "failed")
        target = next((c.target for c in CASES if c.name == entry["case"]["name"]), None)
        ratio = entry["ratio"]
        cells.append("" if ratio is None else f"**{ratio:.2f}**" if target and ratio >= target else f"{ratio:.2f}")
        cells.append("" if target is None else f"{target:.1f}")
        tuned = entry.get("ratio_tuned")
        cells.append("" if tuned is None else f"{tuned:.2f}")
        cells.append("" if entry["fraction"] is None else f"{100 * entry['fraction']:.0f} %")
        first = [entry["libraries"].get(library, {}).get("compile") for library in ("ours", entry["best"])]
        cells += ["" if seconds is None else f"{seconds:.1f}" for seconds in first]
        rows.append(cells)
    header = [
        "ms, median",
        *(NAMES[n] for n in ("ours", *PEERS)),
        "ratio",
        "aim",
        "ratio, peers tuned",
        "of GEMM rate",
        "first step, s",
        "best peer's",
    ]
    return table(header, rows)


def behind(results: dict) -> str:
    """The cases in which we miss the aim, or are not the fastest."""
    out = []
    for entry in results["cases"].values():
        target = next((c.target for c in CASES if c.name == entry["case"]["name"]), None)
        if entry["ratio"] is not None and entry["ratio"] < max(1.0, target or 0.0):
            words = (
                f"{NAMES[entry['best']]} is faster" if entry["ratio"] < 1.0 else f"the aim of {target:.1f} is missed"
            )
            out.append(f"- {title(entry['case'])}: {words} (ratio {entry['ratio']:.2f}).")
    slow = [
        f"{title(e['case'])} {e['libraries']['ours']['compile']:.1f} s"
        for e in results["cases"].values()
        if e["case"]["peers"] and e["libraries"]["ours"].get("compile", 0.0) > FIRST
    ]
    if slow:
        out.append(f"- A first step of more than {FIRST:.0f} s: " + ", ".join(slow) + ".")
    return "\n".join(out) or "None in this run."


def growth_table(results: dict) -> str:
    """Times along each growth curve, and its slope."""
    rows = []
    for group, size in GROWTH.items():
        points = sorted(
            (e["case"][size], e["libraries"]["ours"]["ms"])
            for e in results["cases"].values()
            if e["case"]["group"] == group and "ms" in e["libraries"]["ours"]
        )
        if points:
            curve = ", ".join(f"{n:,}: {ms:.3g}" for n, ms in points)
            rows.append([size, curve, f"{results['slopes'].get(group, float('nan')):.2f}"])
    return table(["grows", "size: ms", "log–log slope"], rows)


def import_line(results: dict) -> str:
    """How long the import takes."""
    base, own = (results["imports"][name] for name in ("jax, equinox, optax", "inducing"))
    return f"`import inducing` takes {own:.2f} s, {own / base:.2f} times `import jax, equinox, optax` (aim: 1.5)."


def memory_line(results: dict) -> str:
    """What the large collapsed cases took."""
    rows = [e for e in results["cases"].values() if e["case"]["group"] == "million"]
    parts = [
        f"{title(e['case'])}: {e['libraries']['ours']['memory_mb']:,.0f} MB, {e['libraries']['ours']['ms'] / 1e3:.2f} s"
        for e in rows
        if "ms" in e["libraries"]["ours"]
    ]
    return "Peak memory of a process beyond the arrays as loaded, and time: " + ("; ".join(parts) or "not run") + "."


def setting(results: dict) -> str:
    """Machine, versions, date."""
    m = results["machine"]
    dates = sorted({e["date"] for e in results["cases"].values()})
    versions = "; ".join(
        f"{NAMES.get(k, k)}: " + ", ".join(f"{n} {v}" for n, v in row.items()) for k, row in results["versions"].items()
    )
    rates = ", ".join(f"{rate / 1e9:.0f} GFLOP/s in {dtype}" for dtype, rate in results["gemm_rates"].items())
    return (
        f"{m['cpu']}, {m['cores']} cores, {m['system']}, Python {m['python']}; a 2048³ product runs at {rates}. "
        f"Measured {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}. {versions}."
    )


def quality_table(results: dict) -> str:
    """Mean (standard deviation) over the splits, beside the published figures."""
    rows = []
    for name in QUALITY:
        runs = [r for r in results.get("quality", {}).get(name, {}).values() if "ll" in r]
        if not runs:
            continue
        ll, rmse = ([r[k] for r in runs] for k in ("ll", "rmse"))
        cover = " / ".join(f"{100 * statistics.mean(r[f'coverage{c}'] for r in runs):.0f}" for c in (50, 90, 95))
        published = PUBLISHED.get(name, ("", ""))
        if name == "kin8nm" and "0" in results["quality"][name]:
            import math

            zero = results["quality"][name]["0"]
            own = f"split 0, original units: {zero['ll'] - math.log(zero['scale']):.3f} against .976"
            published = (own, f"{zero['rmse'] * zero['scale']:.4f} against .0864")
        rows.append(
            [
                name,
                str(len(runs)),
                f"{statistics.mean(ll):.3f} ({statistics.pstdev(ll):.3f})",
                published[0],
                f"{statistics.mean(rmse):.3f} ({statistics.pstdev(rmse):.3f})",
                published[1],
                cover,
                f"{statistics.mean(r['seconds'] for r in runs):.1f}",
            ]
        )
    header = ["", "splits", "log-likelihood", "published", "RMSE", "published", "coverage 50 / 90 / 95", "seconds"]
    return table(header, rows)


def classics_list(results: dict) -> str:
    """What `benchmarks/classics.py` found."""
    lines = []
    for name, entry in results.get("classics", {}).items():
        lines.append(f"- {name}: " + ", ".join(f"{k} {v:.4g}" for k, v in entry.items() if k != "date"))
    return "\n".join(lines)


def deep_table(results: dict) -> str:
    """Deep GPs on split 0 beside the shallow one and the published figures."""
    import math

    rows = []
    for name, by_layers in results.get("deep", {}).items():
        shallow = results.get("quality", {}).get(name, {}).get("0", {}).get("ll")
        for layers, run in by_layers.items():
            if "ll" in run:
                shift = math.log(run["scale"]) if name == "kin8nm" else 0.0
                rows.append(
                    [
                        name,
                        layers,
                        f"{run['ll'] - shift:.3f}",
                        "" if shallow is None else f"{shallow - shift:.3f}",
                        PUBLISHED_DEEP.get((name, layers), ""),
                        f"{run['seconds']:.0f}",
                    ]
                )
    return table(["split 0", "layers", "log-likelihood", "one layer", "published", "seconds"], rows)


def race_table(results: dict) -> str:
    """Seconds until the best peer's final held-out log-likelihood."""
    rows = []
    for name in RACE:
        runs = results.get("race", {}).get(name, {})
        result = verdict(runs)
        if not result:
            continue
        cells = [name, f"{result['target']:.4f} ({result['best']})"]
        for runner in RUNNERS:
            if runner not in result["seconds"]:
                cells.append("")
                continue
            t, last = result["seconds"][runner], runs[runner]["trace"][-1]
            cells.append(f"{t:.1f}" if t is not None else f"not reached ({last[1]:.4f} after {last[0]:.0f})")
        rows.append([*cells, f"{result['ratio']:.1f}" if result["ratio"] else ""])
    return table(["seconds", "to log-likelihood", *RUNNERS, "ratio"], rows)


def fourier_table(rows: list[dict]) -> str:
    """Seconds of a bound with its gradient against N, by Fourier features and by points; and of a whole fit."""
    columns = ("sums once", "evaluation, Fourier", "evaluation, inducing points", "whole fit and prediction, Fourier")
    return table(
        ["seconds, N", "M", *columns], [[f"{r['N']:,}", str(r["M"]), *(f"{r[c]:.3g}" for c in columns)] for r in rows]
    )


def replace(page: str, name: str, text: str) -> str:
    """Put text between the markers of a table."""
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
    if not pattern.search(page):
        sys.exit(f"{PAGE.name} has no markers for {name}.")
    return pattern.sub(lambda m: m[1] + text + "\n" + m[2], page)


def main() -> None:
    """Rewrite the tables whose results exist."""
    page = PAGE.read_text()
    speed, fit = (HERE / "results" / f"{name}.json" for name in ("speed", "fit"))
    if speed.exists():
        results = json.loads(speed.read_text())
        for name, make in (
            ("setting", setting),
            ("speed", speed_table),
            ("behind", behind),
            ("growth", growth_table),
            ("memory", memory_line),
            ("imports", import_line),
        ):
            page = replace(page, name, make(results))
    fourier = HERE / "results" / "fourier.json"
    if fourier.exists():
        page = replace(page, "fourier", fourier_table(json.loads(fourier.read_text())))
    defaults = HERE / "results" / "defaults.json"
    if defaults.exists():
        import defaults_tables  # which imports this module

        for name, text in defaults_tables.made(json.loads(defaults.read_text())["sets"]).items():
            page = replace(page, name, text)
    if fit.exists():
        results = json.loads(fit.read_text())
        tables = {"quality": quality_table, "classics": classics_list, "deep": deep_table, "race": race_table}
        for name, make in tables.items():
            page = replace(page, name, make(results))
    PAGE.write_text(page)
    print(f"wrote {PAGE.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
