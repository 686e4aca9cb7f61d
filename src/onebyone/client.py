"""A client of ``onebyone serve``, with nothing but the standard library.

>>> client = Client("http://127.0.0.1:8000")
>>> client.learn([[0.1, 0.2], [0.9, 0.8]], ["low", "high"])  # doctest: +SKIP
>>> client.predict([[0.2, 0.1]])[0]["label"]  # doctest: +SKIP
'low'
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import ProxyHandler, Request, build_opener

from onebyone.errors import UsageError


class ServerError(UsageError):
    """The server refused a request, or does not answer.

    ``status`` is the HTTP status of the response, or 0 if there was no response.
    """

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Client:
    """A client of ``onebyone serve``, which needs only the standard library.

    Samples are image files (paths), encoded images (bytes), or vectors (lists of numbers or arrays). Predictions take
    into account everything that this client has changed before. Every method raises a :class:`ServerError` if the
    server refuses the request or does not answer.

    Parameters
    ----------
    address
        The address of the server, such as ``http://127.0.0.1:8000``.
    token
        The token of the server, if it needs one.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(self, address: str, token: str | None = None, timeout: float = 60.0) -> None:
        self.address, self.token, self.timeout = address.rstrip("/"), token, timeout
        self._opener = build_opener(ProxyHandler({}))  # the address is meant as it is
        self._after = 0  # last operation of this client, which its predictions take into account

    def learn(self, samples: Iterable[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Learn samples. When this returns, they are safe even if the server is killed.

        Parameters
        ----------
        samples
            Image files, encoded images or vectors.
        labels
            Their labels, one per sample.

        Returns
        -------
        dict
            The response of the server, with ``sequence``, the number of this change.
        """
        return self._changed("learn", *encoded(samples, labels))

    def predict(self, samples: Iterable[Any]) -> list[dict[str, Any]]:
        """Predict the class of each sample.

        Parameters
        ----------
        samples
            Image files, encoded images or vectors.

        Returns
        -------
        list of dict
            For each sample: ``label`` (None if the sample is unlike anything learnt), ``unknown`` and
            ``probabilities``.
        """
        answer = json.loads(self._call(f"predict?after={self._after}", *encoded(samples)))
        found: list[dict[str, Any]] = answer["predictions"]
        return found

    def forget(self, samples: Iterable[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Forget samples that were learnt.

        The server does not store samples, so it cannot check that these were learnt. A call that is repeated forgets
        them twice: if a response was lost, compare the counts of :meth:`classes` first.

        Parameters
        ----------
        samples
            Image files, encoded images or vectors.
        labels
            Their labels, one per sample.

        Returns
        -------
        dict
            The response of the server, with ``sequence``, the number of this change.
        """
        return self._changed("forget", *encoded(samples, labels))

    def undo(self) -> dict[str, Any]:
        """Forget the samples of the last call of ``learn``, by any client.

        Returns
        -------
        dict
            The response of the server, with ``sequence``, the number of this change.
        """
        return self._changed("undo")

    def forget_class(self, label: str) -> dict[str, Any]:
        """Remove a class.

        Parameters
        ----------
        label
            The class.

        Returns
        -------
        dict
            The response of the server, with ``sequence``, the number of this change.
        """
        return self._changed("forget-class", *as_json({"label": label}))

    def rename(self, label: str, new_label: str) -> dict[str, Any]:
        """Rename a class. If there is a class with the new label, the two become one class.

        Parameters
        ----------
        label
            The class.
        new_label
            Its new label.

        Returns
        -------
        dict
            The response of the server, with ``sequence``, the number of this change.
        """
        return self._changed("rename", *as_json({"label": label, "new_label": new_label}))

    def classes(self) -> dict[str, int]:
        """Count the samples of each class.

        Returns
        -------
        dict of str to int
            The number of samples by label.
        """
        return {each["label"]: each["samples"] for each in self._json("classes")["classes"]}

    def report(self) -> dict[str, Any]:
        """Estimate the accuracy without a test set, as ``OnlineClassifier.report`` does.

        Returns
        -------
        dict
            The attributes of the report by their names.
        """
        return self._json("report")

    def download(self, path: str | Path) -> None:
        """Write the classifier to a file, for ``OnlineClassifier.load``.

        Parameters
        ----------
        path
            The file to write.
        """
        Path(path).write_bytes(self._call("model"))

    def merge(self, path: str | Path) -> dict[str, Any]:
        """Merge a saved classifier into that of the server. Both need the same parameters, and keep statistics.

        Parameters
        ----------
        path
            A file written by ``OnlineClassifier.save``, ``download`` or ``onebyone learn``.

        Returns
        -------
        dict
            The response of the server, with ``sequence``, the number of this change.
        """
        return self._changed("merge", Path(path).read_bytes(), "application/octet-stream")

    def health(self) -> dict[str, Any]:
        """Ask whether the server is running. This needs no token.

        Returns
        -------
        dict
            The response of the server.
        """
        return self._json("health")

    def _changed(self, name: str, body: bytes = b"", kind: str = "application/json") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._call(name, body, kind))
        self._after = found["sequence"]
        return found

    def _json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._call(name))
        return found

    def _call(self, name: str, body: bytes | None = None, kind: str = "") -> bytes:
        headers = {"Content-Type": kind} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = Request(f"{self.address}/v1/{quote(name, safe='?=&')}", body, headers)
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                content: bytes = answer.read()
                return content
        except HTTPError as error:
            with error:
                try:
                    sentence = json.loads(error.read())["error"]
                except (
                    ValueError,
                    KeyError,
                    TypeError,
                    OSError,
                    HTTPException,
                ):  # another server, or it was killed meanwhile
                    sentence = str(error)
            raise ServerError(error.code, sentence) from None
        except (URLError, OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, (BrokenPipeError, ConnectionResetError)):
                sentence = (
                    "the server closed the connection, perhaps because the request is too large; send fewer samples"
                )
                raise ServerError(0, sentence) from None
            raise ServerError(0, f"{self.address} does not answer ({reason}); start it with: onebyone serve") from None


def as_json(content: dict[str, Any]) -> tuple[bytes, str]:
    return json.dumps(content).encode(), "application/json"


def encoded(samples: Iterable[Any], labels: Sequence[str] | None = None) -> tuple[bytes, str]:
    """Samples as the API takes them, and the type of that: images as a form, or vectors as JSON."""
    samples = [Path(sample).read_bytes() if isinstance(sample, (str, Path)) else sample for sample in samples]
    if not samples or not all(isinstance(sample, bytes) for sample in samples):
        vectors = [[float(value) for value in sample] for sample in samples]
        return as_json({"vectors": vectors} | ({} if labels is None else {"labels": list(labels)}))
    if labels is not None and len(labels) != len(samples):
        raise UsageError(f"there are {len(samples)} samples and {len(labels)} labels; give one label per sample")
    boundary = secrets.token_hex(16)
    parts = [("image", sample) for sample in samples] + [("label", label.encode()) for label in labels or ()]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'
    body = b"".join((head % name).encode() + content + b"\r\n" for name, content in parts)
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
