"""Writes the seeds of the fuzzer: small events as Kineto writes them, and odd ones. Two bytes go before each text."""

from __future__ import annotations

from pathlib import Path

KERNEL = (
    '\n  {\n    "ph": "X",\n    "cat": "kernel",\n    "name": "void gemm<1, 2>(int)",\n    "pid": 0,\n    "tid": 7,\n'
    '    "ts": 5143117209801.565,\n    "dur": 12.250\n    ,\n    "args": {\n      "External id": 4,"queued": 0, '
    '"stream": 7, "correlation": 1001,      "registers": 32,      "blocks per SM": 24.242424,      '
    '"grid": [3200, 1, 8],      "est. achieved occupancy %": 50, "Collective name": "allreduce"\n    }\n  }'
)
OP = (
    '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1623143566756123.001, "dur": 3, '
    '"args": {"Input Dims": [[8, 4096], [4096, 4096], []], "Input type": ["float", ""], "correlation": -1}}'
)
FLOW = (
    '\n  {\n    "ph": "s",\n    "id": 12,\n    "pid": 1,\n    "tid": 1,\n    "ts": 1.5,\n    "cat": "ac2g",\n'
    '    "name": "ac2g"\n    \n  },\n  {\n    "ph": "f",\n    "id": 12,\n    "pid": 0,\n    "tid": 7,\n    "ts": 2,\n'
    '    "cat": "ac2g",\n    "name": "ac2g"\n    ,"bp": "e"\n  }'
)
MEMORY = (
    '{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1.25, "args": '
    '{"Total Allocated": 68719476736, "Bytes": -512, "Device Id": 0, "Device Type": 1, "Addr": 139}}'
)
SLICE = (
    '{"args": {"b": [1, {"c": 0.1}], "d": "e\\"f\\u00e9\\ud83d\\ude00"}, "dur": 1e3, "ts": 12.3456789, "tid": "main", '
    '"pid": "Spans", "name": "na\u00efve", "ph": "X"}'
)
ODD = (
    '{"ph": "X", "ph": "X"},{},[],{"ph": "M"},{"ph": "X", "cat": "kernel", "ts": "1", "dur": -2},{"ph": "X", "cat": 3},'
    '{"ph": "X", "name": null, "pid": null, "ts": -0.5, "dur": 0, "args": {}},{"ph": "i", "name": 7, "s": "g"},'
    '{"ph": "X", "ts": 123456789012345678901234567890, "dur": NaN},{"ph": "X", "ts": 01, "dur": 1.}'
)
TEXTS = {
    "kernel": ",".join([KERNEL] * 3),
    "op": ",".join([OP, OP]),
    "flow": FLOW + "," + FLOW,
    "memory": MEMORY + "," + MEMORY,
    "slice": SLICE + "," + SLICE,
    "odd": ODD,
    "mixed": ",".join([KERNEL, OP, FLOW, MEMORY, SLICE, ODD, KERNEL]) + "\n]",
    "doubles": ",".join(
        f'{{"ph":"X","cat":"kernel","ts":1,"dur":1,"args":{{"blocks per SM":{number}}}}}'
        for number in (
            "0.1",
            "1.5e-05",
            "123456789012345.678",
            "0.30000000000000004",
            "-0.0",
            "1e5",
            "9007199254740993",
        )
    ),
}


def main() -> None:
    folder = Path(__file__).parent / "seeds"
    folder.mkdir(exist_ok=True)
    for name, text in TEXTS.items():
        for cut in (0, 85, 170):
            (folder / f"{name}-{cut}").write_bytes(bytes([cut, 0]) + text.encode())


if __name__ == "__main__":
    main()
