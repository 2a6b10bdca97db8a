"""A chat in the terminal: streamed answers, a history, and Ctrl-C to stop an answer.

What the model wrote before Ctrl-C stays in the history. Run it with the simulated model, which needs no key, or with a
real one:

    python examples/chat.py
    python examples/chat.py anthropic:claude-sonnet-5
"""

import sys

import penstock

agent = penstock.Agent(sys.argv[1] if len(sys.argv) > 1 else "sim:demo", instructions="Be brief.")
history: penstock.History = []

print("Ctrl-C stops an answer, Ctrl-D ends the chat.")
while True:
    try:
        question = input("\n› ")
    except (EOFError, KeyboardInterrupt):
        break
    run = agent.stream(question, history)
    try:
        with run:  # leaving it cancels the run if it has not ended
            for event in run:
                match event:
                    case penstock.Text(text=text):
                        print(text, end="", flush=True)
                    case penstock.Done(reason=reason, why=why) if reason != "answered":
                        print(f"[{reason}] {why}", end="")
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    print()
    history = run.messages

print(f"\n{len(history)} messages, {len(penstock.check(history))} problems")
