"""
pages.py FOLDER N [threads]: a Flask application whose page reads its settings from a file for each request. A
server with one thread, or with one for each request, answers N requests, which the main thread makes in two
seconds or more.
"""
import json
import os
import sys
import threading
import time
import urllib.request

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

folder, count = sys.argv[1], int(sys.argv[2])
with open(os.path.join(folder, "settings.json"), "w") as f:
    json.dump({"title": "hello"}, f)
app = Flask(__name__)


def settings():
    with open(os.path.join(folder, "settings.json")) as f:
        return json.load(f)


@app.route("/")
def page():
    return settings()["title"]


class Quiet(WSGIRequestHandler):
    def log(self, *args):
        pass


server = make_server("127.0.0.1", 0, app, threaded=len(sys.argv) > 3, request_handler=Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
for _ in range(count):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/") as r:
        assert r.read() == b"hello"
    time.sleep(2 / count)
server.shutdown()
