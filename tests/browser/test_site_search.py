"""The search of the site is a worker, which pages opened from disk may not start: a hidden frame stands in for it."""

from pathlib import Path

SHIM = Path(__file__).parents[2] / "docs/assets/iframe-worker.js"


def test_a_worker_of_a_page_from_disk_answers_and_loads_scripts(page, tmp_path):
    (tmp_path / "shim.js").write_text(SHIM.read_text())
    (tmp_path / "words.js").write_text("self.word = 'found ';")
    (tmp_path / "worker.js").write_text(
        "self.addEventListener('message', async ({ data }) => {"
        " await importScripts('words.js'); postMessage(self.word + data); });"
    )
    (tmp_path / "page.html").write_text(
        "<body><script src='shim.js'></script><script>"
        "const worker = new Worker('worker.js');"
        "worker.onmessage = (event) => { document.title = event.data; };"
        "worker.postMessage('a dead key');</script></body>"
    )
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_function("document.title")
    assert page.title() == "found a dead key"
    page.evaluate("worker.terminate()")
    assert page.locator("iframe").count() == 0
