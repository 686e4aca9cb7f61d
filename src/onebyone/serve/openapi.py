"""The description of the API, as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from onebyone import __version__
from onebyone.serve.bodies import Limits

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
LABEL = {"type": "string", "minLength": 1, "description": "Name of a class, any Unicode text."}
ERRORS = {
    400: "The connection was closed before the end of the body.",
    401: "A token is needed, or the one sent is wrong.",
    403: "The request comes from a page of another site.",
    408: "The body arrived too slowly.",
    409: "Not possible in the present state; nothing was changed.",
    413: "The body, an image, or the number of samples is too large.",
    415: "The body has a type that is not accepted, or is compressed.",
    421: "The Host header names another server.",
    422: "The request cannot be understood; nothing was changed.",
    503: "Too many requests are waiting; try again after the seconds in Retry-After.",
    507: "The disk is full; nothing was changed. Predictions go on.",
}

FORGET = (
    "Samples are not stored, so whether these were learnt is not checked, except by their number and by sums that no "
    "samples can have. A request that is repeated forgets them twice: if a response was lost, compare the counts of "
    "GET /v1/classes first."
)


def openapi(limits: Limits) -> dict[str, Any]:
    """The description, with the limits of this server."""
    samples: dict[str, Any] = {
        "images": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
        "vectors": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    }
    labels: dict[str, Any] = {
        "labels": {"type": "array", "items": LABEL, "description": "One per sample."},
        "label": {**LABEL, "description": "One for all samples."},
    }
    file = {"type": "array", "items": {"type": "string", "format": "binary"}}
    unlabelled = body(json=schema(samples), form=schema({"image": file}), image={"type": "string", "format": "binary"})
    labelled = body(json=schema(samples | labels), form=schema({"image": file, "label": labels["labels"]}))
    one = body(json=schema({"label": LABEL}, ["label"]))
    two = body(json=schema({"label": LABEL, "new_label": LABEL}, ["label", "new_label"]))
    model = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    top = query("top", "How many of the most probable classes to list.")
    after = query("after", "Wait until answers take this operation into account.")
    pictures = query("pictures", "1: with the last samples of each class as pictures.")
    reading = [400, 408, 409, 413, 415, 422, 503]
    change = [*reading, 507]
    paths = {
        "learn": post("Learn samples. New labels become new classes.", CHANGED, labelled, change),
        "predict": post("Predict classes from the last solution.", PREDICTED, unlabelled, reading)
        | {"parameters": [top, after]},
        "forget": post("Forget samples, exactly for statistics.", CHANGED, labelled, change) | {"description": FORGET},
        "undo": post("Forget exactly the samples of the last call of learn.", CHANGED, None, [409, 503, 507]),
        "forget-class": post("Forget a class.", CHANGED, one, change),
        "rename": post("Rename a class. With the name of another class, both become one.", CHANGED, two, change),
        "merge": post("Add what another saved classifier has learnt.", CHANGED, model, change),
        "classes": get("The classes and their numbers of samples.", CLASSES, [422, 503]) | {"parameters": [pictures]},
        "report": get("Estimated accuracy, per class, and what is confused.", {"type": "object"}, [409, 503]),
        "samples": get("Built-in samples to try.", {"type": "object"}, [503]),
        "model": get("The saved file, for OnlineClassifier.load.", None, [409, 503, 507]),
        "health": get("Whether the server answers. It needs no token.", schema({"status": TEXT, "version": TEXT})),
        "metrics": get("Counters and durations, for Prometheus.", None),
    }
    verbs = {name: "post" if "requestBody" in found or name == "undo" else "get" for name, found in paths.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "onebyone",
            "version": __version__,
            "description": (
                "A classifier that learns one sample at a time. "
                f"Limits per request: {limits.body:,} bytes ({limits.json:,} of JSON), {limits.samples} samples, "
                f"{limits.pixels:,} pixels per image, {limits.label} characters per label."
            ),
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
        "paths": {f"/v1/{name}": {verbs[name]: found} for name, found in paths.items()},
    }


def schema(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": properties} | ({"required": required} if required else {})


CHANGED = schema(
    {
        "sequence": {**NUMBER, "description": "Number of this operation, for predict?after=."},
        "samples": {**NUMBER, "description": "Samples of all classes."},
        "counts": {"type": "object", "additionalProperties": NUMBER},
        "predicted": {"type": "array", "description": "learn: what each sample was taken for before."},
    }
)
PREDICTED = schema(
    {
        "predictions": {
            "type": "array",
            "items": schema(
                {
                    "label": {"type": ["string", "null"], "description": "null for a sample like nothing learnt."},
                    "unknown": {"type": "boolean"},
                    "nearest": {**TEXT, "description": "The most probable class, also if unknown."},
                    "probabilities": {"type": "object", "additionalProperties": {"type": "number"}},
                }
            ),
        },
        "sequence": {**NUMBER, "description": "Last operation that the answer takes into account."},
    }
)
CLASSES = schema(
    {"classes": {"type": "array", "items": schema({"label": LABEL, "samples": NUMBER})}, "sequence": NUMBER}
)


def body(*, json: Any = None, form: Any = None, image: Any = None) -> dict[str, Any]:
    kinds = {"application/json": json, "multipart/form-data": form, "image/*": image}
    return {"required": True, "content": {kind: {"schema": found} for kind, found in kinds.items() if found}}


def query(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": {"type": "integer", "minimum": 0}}


def get(summary: str, result: dict[str, Any] | None, errors: list[int] | None = None) -> dict[str, Any]:
    content = {"content": {"application/json": {"schema": result}}} if result else {}
    answers: dict[str, Any] = {"200": {"description": "Done."} | content}
    for status in sorted([401, 403, 421, *(errors or [])]):
        answers[str(status)] = {"description": ERRORS[status]}
    return {"summary": summary, "responses": answers}


def post(summary: str, result: dict[str, Any], request: dict[str, Any] | None, errors: list[int]) -> dict[str, Any]:
    return get(summary, result, errors) | ({"requestBody": request} if request else {})
