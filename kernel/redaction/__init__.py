"""What must not be shown: one set of rules for every place where people or other systems see what passed through.

Logs, errors, dead letters, results, job logs, the lake, traces, the command line and `config show` use these and no
rules of their own. Secrets are kept only where the work needs them: in the task and its dead letter, in the document
that was submitted, and in the payloads, inputs and results that their owner asks for, which come back byte for byte
(ADR 0023).
"""

from kernel.redaction.names import is_secret_encoded, is_secret_name, is_secret_parameter
from kernel.redaction.shapes import HIDDEN, SHAPE_MARK
from kernel.redaction.texts import CREDENTIAL_MARK, credentials, field, fields, is_marked, text
from kernel.redaction.urls import bare_url, path, query, url
from kernel.redaction.values import json_bytes, json_text, json_value

__all__ = [
    "CREDENTIAL_MARK",
    "HIDDEN",
    "SHAPE_MARK",
    "bare_url",
    "credentials",
    "field",
    "fields",
    "is_marked",
    "is_secret_encoded",
    "is_secret_name",
    "is_secret_parameter",
    "json_bytes",
    "json_text",
    "json_value",
    "path",
    "query",
    "text",
    "url",
]
