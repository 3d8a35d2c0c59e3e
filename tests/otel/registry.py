"""Names of OpenTelemetry's GenAI registry, as of version 1.44 of the semantic conventions (package 0.66b2)."""

ATTRIBUTES = frozenset(
    (
        "gen_ai.agent.description",
        "gen_ai.agent.id",
        "gen_ai.agent.name",
        "gen_ai.agent.version",
        "gen_ai.completion",
        "gen_ai.conversation.id",
        "gen_ai.data_source.id",
        "gen_ai.embeddings.dimension.count",
        "gen_ai.evaluation.explanation",
        "gen_ai.evaluation.name",
        "gen_ai.evaluation.score.label",
        "gen_ai.evaluation.score.value",
        "gen_ai.input.messages",
        "gen_ai.openai.request.response_format",
        "gen_ai.openai.request.seed",
        "gen_ai.openai.request.service_tier",
        "gen_ai.openai.response.service_tier",
        "gen_ai.openai.response.system_fingerprint",
        "gen_ai.operation.name",
        "gen_ai.output.messages",
        "gen_ai.output.type",
        "gen_ai.prompt",
        "gen_ai.prompt.name",
        "gen_ai.provider.name",
        "gen_ai.request.choice.count",
        "gen_ai.request.encoding_formats",
        "gen_ai.request.frequency_penalty",
        "gen_ai.request.max_tokens",
        "gen_ai.request.model",
        "gen_ai.request.presence_penalty",
        "gen_ai.request.seed",
        "gen_ai.request.stop_sequences",
        "gen_ai.request.stream",
        "gen_ai.request.temperature",
        "gen_ai.request.top_k",
        "gen_ai.request.top_p",
        "gen_ai.response.finish_reasons",
        "gen_ai.response.id",
        "gen_ai.response.model",
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.retrieval.documents",
        "gen_ai.retrieval.query.text",
        "gen_ai.system",
        "gen_ai.system_instructions",
        "gen_ai.token.type",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.id",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
        "gen_ai.tool.description",
        "gen_ai.tool.name",
        "gen_ai.tool.type",
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.completion_tokens",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.prompt_tokens",
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.workflow.name",
    )
)
"""Every attribute that begins with `gen_ai.`; some are deprecated."""

DEPRECATED = frozenset(
    (
        "gen_ai.completion",
        "gen_ai.prompt",
        "gen_ai.system",
        "gen_ai.usage.completion_tokens",
        "gen_ai.usage.prompt_tokens",
    )
)
"""Attributes that were replaced by others."""

METRICS = frozenset(
    (
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_per_output_chunk",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
        "gen_ai.server.request.duration",
        "gen_ai.server.time_per_output_token",
        "gen_ai.server.time_to_first_token",
    )
)
"""Every metric that begins with `gen_ai.`."""
