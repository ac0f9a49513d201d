"""Has the workers do everything once, `python -m chores.ask all`, or the last thing, `python -m chores.ask last`, and
prints what they returned as JSON.
"""

import json
import sys

from chores import tasks


def main() -> None:
    texts = [f"text {number}" for number in range(20)]
    if sys.argv[1] == "last":
        print(json.dumps(tasks.last.delay(1.0).get(timeout=20)))
        return
    asked = {
        "module's spec": [tasks.with_the_modules_spec.delay(text) for text in texts],
        "argument": [tasks.with_argument.delay(tasks.TOOLS, text) for text in texts],
        "module's client": [tasks.with_the_modules_client.delay(text) for text in texts],
        "too long": [tasks.too_long.delay(text) for text in texts[:2]],
        "afterwards": [tasks.with_the_modules_spec.delay(text) for text in texts],
    }
    print(json.dumps({name: [result.get(timeout=20) for result in results] for name, results in asked.items()}))


if __name__ == "__main__":
    main()
