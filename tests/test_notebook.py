"""docs/quickstart.ipynb: it runs, and shows the outputs of a whole run. `python -m tests.test_notebook` writes them."""

import os
import re
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "quickstart.ipynb"
MOST_BYTES = 300_000
TRAINING = 'preset="quickstart"'
SHORT = f"{TRAINING}, max_steps=13, validation_sentences=3, max_length=17, vocabulary_size=600"
SHORT += ", d_model=32, num_heads=2, d_ff=64, num_layers=1, beam_size=1"
ABSOLUTE_PATH = re.compile(r"(?:^|[\s\"'(=])(?:/\w|[A-Za-z]:\\)", re.MULTILINE)
BAR = re.compile(r"[^\r\n]*%\|[^\r\n]*[\r\n]*")  # of progress, in one of its states
NOISE = re.compile(r"warning|deprecat|absl|cuda|onednn|traceback|/site-packages/", re.IGNORECASE)


def read():
    return nbformat.read(NOTEBOOK, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def run(notebook, directory):
    """Runs all cells in a directory; the outputs are then in the notebook. A cell that fails raises an error.

    Bars of progress are left out: a page would show each of their states.
    """
    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(directory)}},
        # What TensorFlow's C++ prints at its start goes to the terminal.
        extra_arguments=["--IPKernelApp.capture_fd_output=False"],
    )
    client.execute(env=os.environ | {"PYTHONPATH": str(ROOT)})
    for cell in code_cells(notebook):
        cell.outputs = joined(cell.outputs)


def joined(outputs):
    """The outputs of a cell without bars; texts of the same stream that follow one another are one output."""
    found = []
    for output in outputs:
        if output.output_type == "stream":
            output.text = BAR.sub("", output.text) if output.name == "stderr" else output.text
            if not output.text.strip():
                continue
            if found and found[-1].get("name") == output.name:
                found[-1].text += output.text
                continue
        found.append(output)
    return found


def texts_of(cell):
    """All that the outputs of a cell say, in one str."""
    return "\n".join(o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in cell.outputs)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    notebook = read()
    (training,) = (cell for cell in code_cells(notebook) if TRAINING in cell.source)
    training.source = training.source.replace(TRAINING, SHORT)
    shown = [[output.output_type for output in cell.outputs] for cell in code_cells(notebook)]
    run(notebook, tmp_path)
    assert [[output.output_type for output in cell.outputs] for cell in code_cells(notebook)] == shown
    assert (tmp_path / "exports" / "quickstart" / "1" / "saved_model.pb").exists()


def test_the_notebook_is_small_and_shows_the_outputs_of_one_run_without_lines_of_libraries_and_paths_of_a_machine():
    assert NOTEBOOK.stat().st_size < MOST_BYTES
    cells = code_cells(read())
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs) == 2
    said = "\n".join(map(texts_of, cells))
    assert "epoch 6/6" in said and "3. März 2026" in said
    assert float(re.search(r"^BLEU (\d+\.\d) \(nrefs:1\|", said, re.MULTILINE)[1]) > 90
    assert not [output for cell in cells for output in cell.outputs if output.get("name") == "stderr"]
    assert not ABSOLUTE_PATH.search(said) and not NOISE.search(said), said


SHOWN = re.compile(r'^echo "(.+)" \| python translate\.py.*\n(?:# |```\n\n~~~text\n)(.+)$', re.MULTILINE)


def test_the_first_pages_show_a_translation_of_the_notebook():
    said = "\n".join(map(texts_of, code_cells(read())))
    for page in ("README.md", "docs/index.md"):
        text, translation = SHOWN.search((ROOT / page).read_text(encoding="utf-8")).groups()
        assert re.search(rf"^{re.escape(text)} +{re.escape(translation)}$", said, re.MULTILINE), page


def main():
    """Runs the notebook as it is, which takes minutes, and keeps its outputs."""
    notebook = read()
    with tempfile.TemporaryDirectory() as directory:
        run(notebook, directory)
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
