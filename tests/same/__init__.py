"""Compares this tree with another commit, for a refactoring that must not change behaviour: `make same BASE=commit`.

| kind | what is compared |
|---|---|
| `events` | the events of every vector, text and recording: whole, byte by byte, and in random pieces |
| `responses` | the bytes of every response encoder for the events of every vector and recording, streamed and whole |
| `requests` | the body on every wire of every recorded history, and of the turn of every vector |
| `runs` | requests and events of an agent that gets a vector as the response of its model, sync and async |
| `machine` | the events of the random runs of `tests/fuzz`, and their logs |
| `tests` | requests and events of the agents in the tests of this package's list, one item per test |
| `stored` | the events with which stored runs and logs of earlier versions continue |

`inputs.py` writes the inputs, from the data of this tree. `dump.py` runs in each tree and prints a digest per item;
`record.py` does the same for tests. An explained difference is a line in a file (`--explained FILE`): the kind, a
pattern for the item, and the reason.
"""
