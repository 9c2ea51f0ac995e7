"""Protocols of model servers that are not the one that is asked for, by what their documents look like."""

from __future__ import annotations

from typing import Any, Final

_BY_KIND: Final = {
    "Anthropic's messages": ("message_", "content_block"),
    "OpenAI's responses": ("response.",),
    "Cohere's own protocol": ("message-", "content-", "text-generation", "stream-start"),
}
"""What the `type` of a document begins with."""
_BY_MEMBERS: Final = {
    "Ollama's own protocol": (("done", "message"), ("done", "response")),
    "Gemini's own protocol": (("candidates",),),
    "TGI's own protocol": (("generated_text",),),
    "llama.cpp's own protocol": (("content", "stop"),),
    "Bedrock's converse": (("contentBlockDelta",), ("output", "stopReason")),
}
"""Members that a document of a protocol has together."""


def foreign_protocol(document: dict[str, Any]) -> str:
    """The name of the protocol that a document without choices is of; empty for none that is known."""
    kind = str(document.get("type") or document.get("event_type") or f"{document.get('object')}.")
    for name, beginnings in _BY_KIND.items():
        if kind.startswith(beginnings):
            return name
    known = _BY_MEMBERS.items()
    return next((name for name, forms in known if any(document.keys() >= set(form) for form in forms)), "")
