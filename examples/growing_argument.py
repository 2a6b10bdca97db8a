"""Show a file while the model writes it: `PartialJSON` parses the arguments of a call while they stream.

Each piece costs the same, however long the file already is. Run it with a scripted model, which needs no key, or with a
real one:

    python examples/growing_argument.py
    python examples/growing_argument.py anthropic:claude-sonnet-5
"""

import sys

import penstock
from penstock.testing import Reply, Scripted, call

files: dict[str, str] = {}


@penstock.tool
def write_file(path: str, content: str) -> str:
    """Write a file."""
    files[path] = content  # a real one would write to the disk
    return f"{len(content)} characters written"


POEM = "Roses are “red”,\n\tviolets are blue;\nthis line was a \\n,\nand an escape, too.\n"
script = Scripted(
    [Reply("Here it comes.", call("write_file", {"path": "poem.txt", "content": POEM})), "Done."], pace=0.02
)
scripted = penstock.Model("openai:gpt-5.5", via=script)

agent = penstock.Agent(sys.argv[1] if len(sys.argv) > 1 else scripted, tools=[write_file])
growing: dict[int, penstock.PartialJSON] = {}  # by block: calls may be interleaved

with agent.stream("Write a short poem about escapes into poem.txt.") as run:
    for event in run:
        match event:
            case penstock.Text(text=text):
                print(text, end="", flush=True)
            case penstock.ToolCallStart(block=block, name=name):
                print(f"\n── {name} ──")
                growing[block] = penstock.PartialJSON()
            case penstock.ToolCallDelta(block=block, piece=piece):
                for new in growing[block].feed(piece):
                    if new.path == ("content",):
                        print(new.piece, end="", flush=True)
            case penstock.ToolEnd(result=result):
                print(f"── {result.text} ──")
print()
