"""Approval: a payment waits until a person approves or declines it, now or later, also in another process.

Answer `later`, and the run is stored in the file $STORE (approval.json). Start the script again, and the run continues:
no request is repeated, and no tool runs twice. Run it with the simulated model, which needs no key, or with a real one:

    python examples/approval.py
    python examples/approval.py anthropic:claude-sonnet-5
"""

import os
import sys
from pathlib import Path

import penstock

STORE = Path(os.environ.get("STORE", "approval.json"))


@penstock.tool
def balance(account: str) -> str:
    """The balance of an account, before a transfer."""
    return "1,200 euros"


@penstock.tool(approval=lambda arguments: arguments["euros"] > 100)
def transfer(account: str, euros: int) -> str:
    """Transfer euros to an account."""
    return f"{euros} euros are on their way to {account}"


def ask(question: str) -> str:
    """The answer of the person; `later` if nobody is there."""
    try:
        return input(question)
    except EOFError:
        print()
        return "later"


agent = penstock.Agent(sys.argv[1] if len(sys.argv) > 1 else "sim:demo", tools=[balance, transfer])
question = "What is the balance? Transfer 500 euros to Ada."
run = agent.resume(STORE.read_bytes()) if STORE.exists() else agent.stream(question)

with run:
    for event in run:
        match event:
            case penstock.Text(text=text):
                print(text, end="", flush=True)
            case penstock.StepEnd():
                print()
            case penstock.ToolEnd(result=result):
                print(f"← {result.name}: {result.text}")
            case penstock.ApprovalRequest(call_id=call_id, name=name, arguments=arguments):
                answer = ask(f"? {name} {arguments}: yes, no or later? ")
                if answer != "later":
                    run.decide(call_id, approved=answer == "yes", reason="the owner of the account said no")

if run.finish_reason == "paused":
    STORE.touch(mode=0o600)  # the arguments of the calls are in it
    STORE.write_bytes(run.dump())
    print(f"stored in {STORE}")
else:
    STORE.unlink(missing_ok=True)
