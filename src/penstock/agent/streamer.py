"""An agent whose model writes calls into its text, and which can process a response that you read yourself."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, Unpack

from penstock.agent.agent import Agent
from penstock.agent.config import NoModel
from penstock.agent.options import AgentOptions
from penstock.agent.step import Instructions
from penstock.history.read import as_messages
from penstock.messages import History
from penstock.model.model import Model

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from penstock.agent.token_stream import Executor, Tokens

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")  # which has no default before Python 3.13


class AgentStreamer(Agent[Deps, str]):
    """An agent whose model writes calls into its text, as XML, and whose tools start as soon as a call closes.

    A value that contains the end tags of its call ends there, therefore; `confirm="end"` waits for what follows the
    call. Without a model, it can only `process_stream`.
    """

    def __init__(
        self,
        model: Model | str | None = None,
        tools: Iterable[Any] = (),
        instructions: Instructions = "",
        **options: Unpack[AgentOptions],
    ) -> None:
        defaults: AgentOptions = {"calls": "xml", "start": "call", "confirm": "close"}
        super().__init__(NoModel() if model is None else model, tools, instructions, **(defaults | options))

    async def process_stream(
        self, tokens: Tokens, executor: Executor | None = None, *, messages: Any = None, deps: Deps | None = None
    ) -> History:
        """Process a response that you read yourself: any sync or async iterator of its text.

        Text goes to `on_text` at once. Each call runs before the next token is read, by `executor(name, arguments)`,
        which may be async, or else by the tools of the agent. A call that needs approval or is deferred does not run;
        its result says so.

        Returns the history to continue with: `messages`, the response, and the results of its calls. If there are
        results and the agent has a model, it continues with them until the model makes no more calls.
        """
        from penstock.agent.calls.step_tools import StepTools
        from penstock.agent.token_stream import TokenStream, with_executor

        if executor is None:
            self.config.check_deps(deps)
        history = [] if messages is None else as_messages(messages)
        config = await StepTools(self.config).alisted()
        history += await TokenStream(config, history, executor, deps).read(tokens)
        if isinstance(self.config.model, NoModel) or not history or not history[-1].results:
            return history
        other = copy(self)
        other.config = self.config if executor is None else with_executor(self.config, executor)
        known: Any = deps  # None is that of an agent without `deps`
        result = await other.arun(messages=history, deps=known)
        if result.error is not None:
            raise result.error
        return result.messages
