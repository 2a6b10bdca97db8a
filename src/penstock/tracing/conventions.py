"""The names and units of the semantic conventions for generative AI, and our own.

A constant has the name that it has in `opentelemetry-semantic-conventions`, and a test compares the values with the
pinned version of that package. Names that the conventions do not have begin with `penstock.`.
"""

from __future__ import annotations

from msgspec import Struct

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

# Attributes of the conventions.
ERROR_TYPE = "error.type"
GEN_AI_AGENT_NAME = "gen_ai.agent.name"
GEN_AI_INPUT_MESSAGES = "gen_ai.input.messages"
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_OUTPUT_MESSAGES = "gen_ai.output.messages"
GEN_AI_PROVIDER_NAME = "gen_ai.provider.name"
GEN_AI_REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
GEN_AI_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
GEN_AI_REQUEST_SEED = "gen_ai.request.seed"
GEN_AI_REQUEST_STOP_SEQUENCES = "gen_ai.request.stop_sequences"
GEN_AI_REQUEST_STREAM = "gen_ai.request.stream"
GEN_AI_REQUEST_TEMPERATURE = "gen_ai.request.temperature"
GEN_AI_REQUEST_TOP_K = "gen_ai.request.top_k"
GEN_AI_REQUEST_TOP_P = "gen_ai.request.top_p"
GEN_AI_RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
GEN_AI_SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
GEN_AI_TOKEN_TYPE = "gen_ai.token.type"
GEN_AI_TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_ID = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_RESULT = "gen_ai.tool.call.result"
GEN_AI_TOOL_DESCRIPTION = "gen_ai.tool.description"
GEN_AI_TOOL_NAME = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE = "gen_ai.tool.type"
GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS = "gen_ai.usage.reasoning.output_tokens"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

# Our own attributes.
PENSTOCK_CHUNK_RATE = "penstock.response.chunk_rate"
PENSTOCK_CHUNKS = "penstock.response.chunks"
PENSTOCK_COST = "penstock.cost"
PENSTOCK_COST_CURRENCY = "penstock.cost.currency"
PENSTOCK_EARLY_GAIN = "penstock.early_start.gain"
PENSTOCK_RUN_ID = "penstock.run.id"
PENSTOCK_RUN_REASON = "penstock.run.reason"
PENSTOCK_STEP = "penstock.step"
PENSTOCK_TOOL_EARLY = "penstock.tool.is_early"
PENSTOCK_TOOL_ENDING = "penstock.tool.ending"
PENSTOCK_TOOL_OVERLAP = "penstock.tool.overlap"

REQUEST_OPTIONS = {
    "frequency_penalty": GEN_AI_REQUEST_FREQUENCY_PENALTY, "max_tokens": GEN_AI_REQUEST_MAX_TOKENS,
    "presence_penalty": GEN_AI_REQUEST_PRESENCE_PENALTY, "seed": GEN_AI_REQUEST_SEED,
    "temperature": GEN_AI_REQUEST_TEMPERATURE, "top_k": GEN_AI_REQUEST_TOP_K, "top_p": GEN_AI_REQUEST_TOP_P,
}  # fmt: skip
"""The attributes of the options of a request."""

PROVIDERS = {
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "google": "gcp.gemini",
    "mistral": "mistral_ai", "vertex": "gcp.vertex_ai", "xai": "x_ai",
}  # fmt: skip
"""The providers that have another name in the conventions."""


class Metric(Struct, frozen=True):
    """A histogram: its name, unit, description and recommended buckets."""

    name: str
    unit: str
    description: str
    buckets: tuple[float, ...] = ()


_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKENS = tuple(float(4**power) for power in range(14))

DURATION = Metric("gen_ai.client.operation.duration", "s", "Duration of an operation.", _SECONDS)
FIRST_CHUNK = Metric("gen_ai.client.operation.time_to_first_chunk", "s", "Time to the first chunk.", _SECONDS)
CHUNK_TIME = Metric(
    "gen_ai.client.operation.time_per_output_chunk", "s", "Time from one chunk to the next.",
    (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024),
)  # fmt: skip
TOKENS = Metric("gen_ai.client.token.usage", "{token}", "Tokens of an operation.", _TOKENS)
EARLY_GAIN = Metric("penstock.early_start.gain", "s", "Time that a step gained by early starts.", _SECONDS)
COST = Metric("penstock.cost", "{currency}", "Cost of a response, in the currency of its attribute.")

METRICS = (DURATION, FIRST_CHUNK, CHUNK_TIME, TOKENS, EARLY_GAIN, COST)

USAGE_PARTS = {
    "cached_tokens": GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
    "cache_write_tokens": GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS,
    "reasoning_tokens": GEN_AI_USAGE_REASONING_OUTPUT_TOKENS,
}
"""The attributes of the parts of token counts, by the field of `Usage`."""
