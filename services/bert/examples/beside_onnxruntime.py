"""Compares the CPU time of embedding with that of onnxruntime, with the same weights and in the same run.

    pip install numpy onnx onnxruntime safetensors tokenizers
    cargo build --release --workspace --example turns
    python beside_onnxruntime.py MODEL_DIRECTORY TEXTS target/release/examples/turns

Both programs run alternately. onnxruntime runs on one thread, with all texts in one batch, padded to the longest, and
with the fused operators of its own optimiser (Attention, SkipLayerNormalization, BiasGelu). The texts of a round are
the next 32 lines of TEXTS.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

BATCH = 32
ROUNDS = 9
MICROSOFT = "com.microsoft"

directory, lines, turns = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
config = json.loads((directory / "config.json").read_text())
weights = {name.removeprefix("bert."): value for name, value in load_file(directory / "model.safetensors").items()}
epsilon = config["layer_norm_eps"]


class Graph:
    """Collects the nodes and weights of a graph."""

    def __init__(self):
        self.nodes, self.initializers = [], []

    def weight(self, name, value):
        self.initializers.append(numpy_helper.from_array(numpy.ascontiguousarray(value, dtype=numpy.float32), name))
        return name

    def add(self, kind, inputs, domain=MICROSOFT, outputs=1, **attributes):
        name = f"{kind}_{len(self.nodes)}"
        names = [name] + [f"{name}_{n}" for n in range(1, outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, name=name, **attributes))
        return name


def graph():
    g = Graph()
    embeddings = "embeddings."
    words = g.weight("words", weights[embeddings + "word_embeddings.weight"])
    places = g.weight("places", weights[embeddings + "position_embeddings.weight"])
    segments = g.weight("segments", weights[embeddings + "token_type_embeddings.weight"])
    gamma = g.weight("gamma", weights[embeddings + "LayerNorm.weight"])
    beta = g.weight("beta", weights[embeddings + "LayerNorm.bias"])
    hidden = g.add(
        "EmbedLayerNormalization",
        ["ids", "segment_ids", words, places, segments, gamma, beta, "mask"],
        outputs=2,
        epsilon=epsilon,
    )
    mask_index = f"{hidden}_1"
    for layer in range(config["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}."

        def named(name, prefix=prefix):
            return weights[prefix + name]

        def linear(short, name, layer=layer):
            return g.weight(f"{short}_w{layer}", named(name + ".weight").T), g.weight(f"{short}_b{layer}", named(name + ".bias"))

        parts = [f"attention.self.{part}." for part in ("query", "key", "value")]
        qkv = g.weight(f"qkv_w{layer}", numpy.concatenate([named(part + "weight").T for part in parts], axis=1))
        qkv_bias = g.weight(f"qkv_b{layer}", numpy.concatenate([named(part + "bias") for part in parts]))
        attended = g.add("Attention", [hidden, qkv, qkv_bias, mask_index], num_heads=config["num_attention_heads"])
        for short, name, before in (("out", "attention.output", attended), ("down", "output", None)):
            if before is None:
                weight, bias = linear("up", "intermediate.dense")
                before = g.add("BiasGelu", [g.add("MatMul", [hidden, weight], domain=""), bias])
            weight, bias = linear(short, name + ".dense")
            projected = g.add("MatMul", [before, weight], domain="")
            norm = [g.weight(f"{short}_{end}{layer}", named(f"{name}.LayerNorm.{end}")) for end in ("weight", "bias")]
            hidden = g.add("SkipLayerNormalization", [projected, hidden, *norm, bias], epsilon=epsilon)
    integers = [helper.make_tensor_value_info(name, TensorProto.INT32, ["b", "s"]) for name in ("ids", "segment_ids", "mask")]
    output = helper.make_tensor_value_info(hidden, TensorProto.FLOAT, ["b", "s", config["hidden_size"]])
    made = helper.make_graph(g.nodes, "bert", integers, [output], g.initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9)


options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(graph().SerializeToString(), options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
tokenizer.enable_truncation(256)
tokenizer.enable_padding()


def embed_with_onnxruntime(texts):
    """Returns the vectors and the CPU time in seconds."""
    started = time.process_time()
    encoded = tokenizer.encode_batch(texts)
    ids = numpy.array([text.ids for text in encoded], dtype=numpy.int32)
    mask = numpy.array([text.attention_mask for text in encoded], dtype=numpy.int32)
    (hidden,) = session.run(None, {"ids": ids, "segment_ids": numpy.zeros_like(ids), "mask": mask})
    vectors = (hidden * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors, time.process_time() - started


ours = subprocess.Popen([turns, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def embed_with_turns(texts):
    """Like `embed_with_onnxruntime`, computed by the `turns` program."""
    ours.stdin.write(json.dumps(texts) + "\n")
    ours.stdin.flush()
    response = json.loads(ours.stdout.readline())
    return numpy.array(response["vectors"], dtype=numpy.float32), response["cpu_seconds"]


texts = [line for line in lines.read_text().splitlines() if line.strip()]
for name, size in ((f"{BATCH} texts", BATCH), ("one short query", 1)):
    ratios, least_cosine, theirs_ms, ours_ms = [], 1.0, [], []
    for turn in range(ROUNDS + 1):
        batch = texts[turn * BATCH : turn * BATCH + size] if size > 1 else [texts[turn * BATCH][:60]]
        if turn % 2:
            theirs_vectors, theirs_cpu = embed_with_onnxruntime(batch)
            ours_vectors, ours_cpu = embed_with_turns(batch)
        else:
            ours_vectors, ours_cpu = embed_with_turns(batch)
            theirs_vectors, theirs_cpu = embed_with_onnxruntime(batch)
        least_cosine = min(least_cosine, float((ours_vectors * theirs_vectors).sum(axis=1).min()))
        if turn == 0:
            continue  # the first turn warms up
        ours_ms.append(ours_cpu * 1e3)
        theirs_ms.append(theirs_cpu * 1e3)
        ratios.append(ours_cpu / theirs_cpu)
    print(
        f"{name}: {statistics.median(ours_ms):.1f} ms of CPU, onnxruntime {onnxruntime.__version__} "
        f"{statistics.median(theirs_ms):.1f} ms, ratio {statistics.median(ratios):.2f}, least cosine {least_cosine:.7f}"
    )
ours.stdin.close()
ours.wait()
