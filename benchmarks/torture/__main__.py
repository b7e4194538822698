"""Hard conditions, at length: `make torture` prints the table of docs/reliability.md.

    python benchmarks/torture [part ...] [--share 0.1]

Each part is a module of this folder with a function `main(count)`, which prints what it finds and returns numbers by
name. It runs in a process of its own, so that one that aborts is seen and does not end the others. Two parts run at the
same time.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = {  # the longest first, so that the two workers end at about the same time
    "calls": 20_000,
    "kills": 100,
    "interrupts": 200,
    "memory": 50,
    "files": 10_000,
    "threads": 400,
    "single_precision": 2_000,
}
WORKERS = 2


def run(part: str, count: int) -> dict[str, Any]:
    """Run one part in a process of its own; its numbers, its seconds, and how it failed, if it did."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        done = subprocess.run([sys.executable, HERE, "child", part, str(count), answer])
        found = json.loads(answer.read_text()) if answer.exists() else {}
    failed = f"exit code {done.returncode}" if done.returncode else None
    return {"count": count, "found": found, "seconds": time.perf_counter() - began, "failed": failed}


def child(part: str, count: str, answer: str) -> None:
    """One part, in this process."""
    found = importlib.import_module(part).main(int(count))
    Path(answer).write_text(json.dumps(found))


def row(part: str, result: dict[str, Any]) -> str:
    """A line of the table, in Markdown."""
    found = ", ".join(f"{name} {value}" for name, value in result["found"].items())
    said = "; ".join(text for text in (found, result["failed"]) if text)
    return f"| {part.replace('_', ' ')} | {result['count']:,} | {said} | {result['seconds']:.0f} |"


def main(arguments: list[str]) -> int:
    """Run the parts, and print a table of what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all without any")
    parser.add_argument("--share", type=float, default=1.0, help="of the numbers of calls, files, … (default: 1)")
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    began = time.perf_counter()

    def measured(part: str) -> dict[str, Any]:
        print(f"{part} …", flush=True)
        result = run(part, max(1, round(options.share * PARTS[part])))
        print(row(part, result), flush=True)
        return result

    parts = options.parts or list(PARTS)
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(measured, parts))
    lines = [row(part, result) for part, result in zip(parts, results, strict=True)]
    print("", "| part | number | found | seconds |", "|---|---:|---|---:|", *lines, sep="\n")
    print("", f"{time.perf_counter() - began:.0f} s in all", sep="\n")
    return int(any(result["failed"] for result in results))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
