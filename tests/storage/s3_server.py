"""A real S3 server in a process of its own, so that it can be killed while bytes are on their way."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

_SERVE = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.server_port, flush=True)
server.serve_forever()
"""


@dataclass
class S3Server:
    process: subprocess.Popen[str]
    endpoint: str

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[S3Server]:
        with subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield cls(process, f"http://127.0.0.1:{process.stdout.readline().strip()}")
            finally:
                process.kill()

    def url(self, bucket: str, prefix: str = "", keys: str = "key:s%2Fcret") -> str:
        return f"s3://{keys}@{bucket}/{prefix}?endpoint={self.endpoint}&region=eu-central-1"

    def new_bucket(self) -> str:
        bucket = f"test-{uuid4().hex}"
        self.ask("PUT", f"/{bucket}")
        return bucket

    def unfinished_uploads(self, bucket: str) -> int:
        return self.ask("GET", f"/{bucket}?uploads").count("<Upload>")

    def ask(self, method: str, path: str) -> str:
        request = urllib.request.Request(self.endpoint + path, method=method)
        with urllib.request.urlopen(request) as answer:
            return str(answer.read().decode())
