"""Prints how many HTTP clients `attach` finds in the objects of each SDK: `python -m tests.heal.found_clients`."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import agents
import anthropic
import litellm
import mistralai.client
import ollama
import openai
from google import genai
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import penstock.heal
from penstock.heal.sdk_clients import DEPTH, _clients


def main() -> None:
    url = "http://127.0.0.1:1/v1"
    options: Any = {"base_url": url, "api_key": "-", "model": "m"}
    found: dict[str, Any] = {
        "openai": openai.OpenAI(base_url=url, api_key="-"),
        "async-openai": openai.AsyncOpenAI(base_url=url, api_key="-"),
        "anthropic": anthropic.Anthropic(base_url=url, api_key="-"),
        "ollama": ollama.Client(url),
        "google-genai": genai.Client(api_key="-"),
        "mistralai": mistralai.client.Mistral(api_key="-"),
        "langchain": ChatOpenAI(**options),
        "langchain-anthropic": ChatAnthropic(**options),
        "pydantic-ai": OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="-")),
        "openai-agents": agents.OpenAIChatCompletionsModel("m", openai.AsyncOpenAI(base_url=url, api_key="-")),
    }
    for name, value in found.items():
        sys.stdout.write(f"{name} {len([*_clients(value, set(), DEPTH)])}\n")
        assert penstock.heal.attach(value) is value
    penstock.heal.attach(litellm)
    sys.stdout.write(f"litellm {sum(one is not None for one in (litellm.client_session, litellm.aclient_session))}\n")


if __name__ == "__main__":
    main()
