"""Worker processes of every kind: `python -m pools.run fork` or `... spawn`. Prints what they told as JSON."""

import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from threading import Event, Thread
from typing import Any

from pools import jobs

JOBS = {
    "argument": partial(jobs.with_argument, jobs.TOOLS),
    "module's spec": jobs.with_the_modules_spec,
    "module's client": jobs.with_the_modules_client,
}
TEXTS = [f"text {number}" for number in range(24)]


def in_a_pool(context: Any) -> dict[str, Any]:
    found = {}
    with context.Pool(2) as pool:
        for name, job in JOBS.items():
            found[name] = pool.map(job, TEXTS, chunksize=1)
        found["shared"] = pool.starmap(jobs.both, [(jobs.TOOLS, text) for text in TEXTS])
        pool.close()
        pool.join()
    return found


def in_an_executor(context: Any) -> dict[str, Any]:
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        return {name: list(executor.map(job, TEXTS)) for name, job in JOBS.items()}


def in_a_process(context: Any, job: Any, text: str) -> Any:
    queue = context.SimpleQueue()
    process = context.Process(target=_put, args=(queue, job, text))
    process.start()
    told = queue.get()
    process.join(20)
    return told, process.exitcode


def _put(queue: Any, job: Any, text: str) -> None:
    queue.put(job(text))


def while_a_call_runs(context: Any) -> dict[str, Any]:
    """In another thread, through the clients that the child has copies of."""
    clients = jobs.CLIENT, jobs.TOOLS.client()
    stop, outcomes = Event(), []

    def go_on(client: Any) -> None:
        while not stop.is_set():
            outcomes.append(jobs.told(client.call_tool("echo", {"text": "parent"}), "parent"))

    threads = [Thread(target=go_on, args=(client,)) for client in clients for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        found = {name: [in_a_process(context, job, text) for text in TEXTS[:3]] for name, job in JOBS.items()}
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    wrong = [told for told in outcomes if told["text"] != "parent" or told["reason"]]
    return {**found, "wrong": wrong, "calls": len(outcomes)}


def in_a_progress_callback(context: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def progress(step: Any) -> None:
        if not found:
            found.update({name: [in_a_process(context, job, "child")] for name, job in JOBS.items()})

    outcome = jobs.CLIENT.call_tool("count", {"steps": 3}, progress=progress)
    return {**found, "counted": outcome.unwrap()["structuredContent"]}


def main() -> None:
    context = multiprocessing.get_context(sys.argv[1])
    places = (in_a_pool, in_an_executor, while_a_call_runs, in_a_progress_callback)
    print(json.dumps({place.__name__: place(context) for place in places}))


if __name__ == "__main__":
    main()
