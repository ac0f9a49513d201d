"""From samples to rows, and from rows to the table: medians, ratios and the marks they are held against.

A ratio is taken within one round, where both sides met the same load, and the median of the rounds is reported. It is
always cost over the floor's cost, so that lower is better in every row, of throughput too.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from statistics import median
from typing import Any

US = "snodo_client"
NAMES = ("floor", US, "requests", "mcp")
ONE_CPU = " on one CPU"
TITLES = {"json": "HTTP JSON", "sse": "HTTP SSE", "stdio": "stdio", "late": "HTTP SSE, late end"}

# contender -> one sample a round
Samples = dict[str, list[dict[str, Any]]]


@dataclass
class Row:
    """One line of the table: the floor as measured, the others as ratios to it unless the row says otherwise."""

    what: str
    cells: dict[str, str]
    mark: str = ""
    verdict: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    taken: dict[str, list[float]] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Give the row as JSON: `median` of what is shown, its `rounds`, and the seconds a ratio was `taken` from."""
        medians = {name: median(values) for name, values in self.rounds.items() if values}
        return {
            "what": self.what,
            "cells": self.cells,
            "mark": self.mark,
            "verdict": self.verdict,
            "median": medians,
            "rounds": self.rounds,
            "taken": self.taken,
        }


def _values(samples: Samples, key: str) -> dict[str, list[float]]:
    """Give one figure of every sample, per call where it is a total."""
    return {name: [s[key] / s.get("calls", 1) for s in taken] for name, taken in samples.items() if taken}


def _against_floor(values: dict[str, list[float]]) -> dict[str, list[float]]:
    floor = values.get("floor", [])
    return {
        name: [mine / least for mine, least in zip(taken, floor, strict=True)]
        for name, taken in values.items()
        if name != "floor" and len(taken) == len(floor)
    }


def _ratio_row(what: str, values: dict[str, list[float]], floor: str, limit: float = 0, lenient: float = 0) -> Row:
    """Make a row of ratios. Over `limit` but within `lenient` asks for the profile that explains it."""
    ratios = _against_floor(values)
    cells = {"floor": floor} | {name: f"{median(taken):.2f}x" for name, taken in ratios.items()}
    row = Row(what, cells, rounds=ratios, taken=values)
    if ours := ratios.get(US):
        row.cells[US] += f" ({min(ours):.2f}-{max(ours):.2f})"
    if limit:
        row.mark = f"<= {limit:.1f}x" + (f" ({lenient:.1f}x)" if lenient else "")
        if ours:
            row.verdict = "met" if median(ours) <= limit else "explain" if median(ours) <= lenient else "missed"
    return row


def import_rows(samples: Samples) -> list[Row]:
    """CPU milliseconds an import adds to its bare interpreter; the floor imports json, subprocess and threading."""
    values = {name: [cpu * 1e3 for cpu in taken] for name, taken in _values(samples, "cpu").items()}
    cells = {name: f"{median(taken):.0f} ms" for name, taken in values.items()}
    row = Row("import, CPU over bare Python", cells, "<= 25 ms", rounds=values)
    if ours := values.get(US):
        row.verdict = "met" if median(ours) <= 25 else "missed"
        row.cells[US] += f" ({min(ours):.0f}-{max(ours):.0f})"
    return [row]


def cold_rows(connection: str, samples: Samples) -> list[Row]:
    """CPU of a whole script: start, import, connect, one call, close, exit; over stdio with the server it starts."""
    values = _values(samples, "cpu")
    floor = f"{median(values['floor']) * 1e3:.0f} ms" if "floor" in values else "-"
    if connection == "stdio":
        return [_ratio_row("stdio: whole script, CPU", values, floor, limit=1.6)]
    requests = _values(samples, "requests")
    cells = {name: f"{median(made):.0f}" for name, made in requests.items()}
    return [
        _ratio_row(f"{TITLES[connection]}: whole script, CPU", values, floor),
        Row(f"{TITLES[connection]}: whole script, requests made", cells, rounds=requests),
    ]


def call_rows(connection: str, samples: Samples, where: str) -> list[Row]:
    """Sequential calls: client CPU, wall, and over HTTP the new connections."""
    limit, lenient = {"stdio": (2.0, 0.0), "json": (2.6, 3.0), "sse": (2.8, 0.0)}[connection]
    title = TITLES[connection] + where
    cpu, wall = _values(samples, "cpu"), _values(samples, "wall")
    rows = [
        _ratio_row(f"{title}: a call, client CPU", cpu, _micro(cpu), limit, lenient),
        _ratio_row(f"{title}: a call, wall", wall, _micro(wall)),
    ]
    if connection != "stdio" and not where:
        rows.append(_connection_row(title, samples, "none" if connection == "sse" else ""))
    return rows


def late_rows(samples: Samples) -> list[Row]:
    """What becomes of the connection when the stream ends 1 ms after the answer, as it does on a real network."""
    wall = _values(samples, "wall")
    return [
        _ratio_row(f"{TITLES['late']}: a call, wall", wall, _micro(wall)),
        _connection_row(TITLES["late"], samples, ""),
    ]


def _connection_row(title: str, samples: Samples, mark: str) -> Row:
    values = _values(samples, "connections")
    cells = {name: f"{median(taken):.2f}" for name, taken in values.items()}
    verdict = ("missed" if any(values[US]) else "met") if mark and US in values else ""
    return Row(f"{title}: new connections a call", cells, mark, verdict, values)


def _micro(values: dict[str, list[float]]) -> str:
    return f"{median(values['floor']) * 1e6:.0f} us" if "floor" in values else "-"


def thread_rows(connection: str, threads: tuple[int, ...], samples: list[Samples], where: str) -> list[Row]:
    """One client called from many threads: throughput against the floor at the same number, and the latencies.

    The mark is on our ratio at n threads over our ratio at one thread, round by round: threads must not make it worse.
    It is judged on one CPU only, where repeats agree. Elsewhere threads and servers overlap as the scheduler likes, and
    even a client measured against itself shows anything from 0.5 to 2.
    """
    rows: list[Row] = []
    latencies: list[Row] = []
    alone: list[float] = []
    for count, taken in zip(threads, samples, strict=True):
        walls = _values(taken, "wall")
        rate = f"{1 / median(walls['floor']):.0f}/s" if "floor" in walls else "-"
        what = f"{TITLES[connection]}{where}: {count} thread{'s' * (count > 1)}"
        row = _ratio_row(f"{what}, throughput", walls, rate)
        ours = row.rounds.get(US, [])
        alone = alone or ours
        if count > 1:
            growth = median(many / one for many, one in zip(ours, alone, strict=True)) if ours else None
            row.mark = "<= 1.15 of 1 thread" if where == ONE_CPU else ""
            if growth is not None:
                verdict = "met " if growth <= 1.15 else "missed "
                row.verdict = f"{verdict if row.mark else ''}({growth:.2f})"
        rows.append(row)
        pairs = {
            name: [median(s["latencies"][end] * 1e3 for s in of_name) for end in (0, 1)]
            for name, of_name in taken.items()
            if of_name
        }
        cells = {name: f"{middle:.1f} / {late:.1f} ms" for name, (middle, late) in pairs.items()}
        latencies.append(Row(f"{what}, p50 / p99", cells, rounds=pairs))
    return rows if where == ONE_CPU else rows + latencies


def missing(rows: list[Row]) -> list[str]:
    """Give what a smoke run holds against us: no figure, or a connection opened for a call where none should be."""
    absent = [f"{row.what}: nothing measured" for row in rows if not {"floor", US} <= row.cells.keys()]
    opened = [f"{row.what}: {row.cells[US]}" for row in rows if row.mark == "none" and row.verdict == "missed"]
    return absent + opened


def load() -> list[float]:
    """Give the load averages over 1, 5 and 15 minutes."""
    return [round(average, 2) for average in os.getloadavg()]


def machine() -> dict[str, Any]:
    """Give where this runs, with the load before it."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "cpus": os.cpu_count(),
        "load_before": load(),
    }


def table(rows: list[Row], machine: dict[str, Any]) -> str:
    """Lay the rows out for a terminal."""
    lines = [["", *NAMES, "mark", ""]]
    lines += [[row.what, *(row.cells.get(name, "-") for name in NAMES), row.mark, row.verdict] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    laid = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    laid.insert(1, "-" * len(laid[0]))
    where = "Python {python} on {system}, {cpus} CPUs; load average {load_before} before, {load_after} after"
    return "\n".join([*laid, "", where.format(**machine), "x = cost over the floor's, median of the rounds"])
