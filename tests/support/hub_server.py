"""As much of the model hub's HTTP interface as adapters need, on 127.0.0.1: repositories, files, uploads, refusals."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_of_the_owner"


@dataclass
class Repository:
    """One repository; every commit replaces the last, ``main`` is the only branch."""

    private: bool = False
    gated: bool = False
    commit: str = "0" * 40
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Hub:
    """What the server holds; requests are kept as "METHOD path"."""

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def hub_server() -> Iterator[Hub]:
    """A server that lives as long as the block."""
    hub = Hub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._file(with_body=False)

    def do_GET(self) -> None:
        self._file(with_body=True)

    def do_PUT(self) -> None:
        self._note()
        self.hub.objects[self.path.rsplit("/", 1)[-1]] = self._body()
        self._answer(200, b"")

    def do_POST(self) -> None:
        self._note()
        body = self._body()
        if not self._is_owner:
            self._answer(401, b"{}", **{"X-Error-Message": "Invalid username or password."})
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif self.path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self._json(
                {
                    "files": [
                        {
                            "path": file["path"],
                            "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                            "shouldIgnore": False,
                        }
                        for file in files
                    ]
                }
            )
        elif self.path.endswith("/info/lfs/objects/batch"):
            self._json(
                {
                    "transfer": "basic",
                    "objects": [
                        {**wanted, "actions": {"upload": {"href": f"{self.hub.url}/objects/{wanted['oid']}"}}}
                        for wanted in json.loads(body)["objects"]
                    ],
                }
            )
        else:
            self._commit(self.path.split("/")[3] + "/" + self.path.split("/")[4], body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    @property
    def _is_owner(self) -> bool:
        return self.headers.get("authorization") == f"Bearer {TOKEN}"

    def _note(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, content: bytes, *, with_body: bool = True, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _json(self, content: Any) -> None:
        self._answer(200, json.dumps(content).encode(), **{"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, b"", **{"X-Error-Code": code, "X-Error-Message": code})

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization') or 'owner'}/{wanted['name']}"
        if name in self.hub.repositories:
            self._answer(409, json.dumps({"url": f"{self.hub.url}/{name}"}).encode())
            return
        self.hub.repositories[name] = Repository(private=wanted.get("visibility") == "private")
        self._json({"url": f"{self.hub.url}/{name}"})

    def _commit(self, name: str, body: bytes) -> None:
        repository = self.hub.repositories[name]
        for line in body.decode().splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                repository.files[value["path"]] = self.hub.objects[value["oid"]]
        repository.commit = hashlib.sha1(body + repository.commit.encode()).hexdigest()
        self._json(
            {"commitUrl": f"{self.hub.url}/{name}/commit/{repository.commit}", "commitOid": repository.commit}
        )

    def _file(self, *, with_body: bool) -> None:
        self._note()
        if "/resolve/" not in self.path:
            # The client's other questions; it lives without an answer.
            self._answer(404, b"", with_body=with_body)
            return
        _, user, name, _, revision, *rest = self.path.split("/")
        repository = self.hub.repositories.get(f"{user}/{name}")
        if repository is None or (repository.private and not self._is_owner):
            self._refuse(404, "RepoNotFound")
        elif repository.gated and not self._is_owner:
            self._refuse(403, "GatedRepo")
        elif revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound")
        elif "/".join(rest) not in repository.files:
            self._refuse(404, "EntryNotFound")
        else:
            content = repository.files["/".join(rest)]
            headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": repository.commit}
            self._answer(200, content, with_body=with_body, **headers)
