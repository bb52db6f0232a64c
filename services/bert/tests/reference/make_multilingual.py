"""Writes multilingual/: a small network with random weights, a tokenizer like XLM-R's, and the expected results.

Needs numpy, safetensors and sentencepiece. The tokens come from sentencepiece. The network is written here in numpy,
from the published description of BERT, so that it shares no code with the crate.
"""
import base64, json, math, os, tempfile
import numpy as np, sentencepiece
from safetensors.numpy import save_file
from sentencepiece import sentencepiece_model_pb2 as proto

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'multilingual')
HIDDEN, LAYERS, HEADS, WIDE, POSITIONS = 48, 3, 4, 96, 40
TEXTS = [
    'query: When does the nightly build run?', 'passage: The nightly build runs at half past two.',
    'query: 数据库什么时候迁移', 'passage: 周六凌晨迁移数据库，大约需要三个小时。',
    'query: データベースの移行はいつですか', 'passage: データベースは土曜の夜に移行します。',
    'query: Wann läuft der nächtliche Lauf?', 'passage: Der Lauf beginnt um halb drei in der Nacht.',
    'query: 데이터베이스는 언제 옮기나요', 'query: ฐานข้อมูลจะย้ายเมื่อไร', 'query: Когда запускается сборка?',
    'query: ＦＵＬＬ　ｗｉｄｔｈ １２３', 'two  spaces and\ta tab', ' leading and trailing ', '', 'emoji 🙂 and 𠮷',
    'the nightly build ' * 30, '数据库迁移' * 30,
]

# A tokenizer trained by sentencepiece on a few lines. Its rules fold full-width forms.
folder = tempfile.mkdtemp()
rules = [(0x3000, ' '), (0x9, ' '), (0xA, ' ')] + [(c, chr(c - 0xFEE0)) for c in range(0xFF01, 0xFF5F)]
with open(folder + '/rules.tsv', 'w') as file:
    for source, target in rules:
        file.write(f"{source:X}\t{' '.join(f'{ord(c):X}' for c in target)}\n")
with open(folder + '/lines.txt', 'w') as file:
    for text in TEXTS[:15] * 20:
        file.write(text.replace('\t', ' ').replace('𠮷', '') + '\n')
sentencepiece.SentencePieceTrainer.train(
    input=folder + '/lines.txt', model_prefix=folder + '/small', model_type='unigram', vocab_size=140,
    character_coverage=0.99, normalization_rule_tsv=folder + '/rules.tsv', num_threads=1, minloglevel=2)
pieces = sentencepiece.SentencePieceProcessor(model_file=folder + '/small.model')
model = proto.ModelProto()
model.ParseFromString(open(folder + '/small.model', 'rb').read())

# XLM-R puts four special tokens first; sentencepiece has three (unknown, start, end). All other ids grow by one.
vocabulary = [['<s>', 0.0], ['<pad>', 0.0], ['</s>', 0.0], ['<unk>', 0.0]]
vocabulary += [[piece.piece, piece.score] for piece in model.pieces[3:]]
special = lambda id, content: {'id': id, 'content': content, 'single_word': False, 'lstrip': False, 'rstrip': False,
                               'normalized': False, 'special': True}
tokenizer = {
    'version': '1.0', 'truncation': None, 'padding': None,
    'added_tokens': [special(id, vocabulary[id][0]) for id in range(4)],
    'normalizer': {'type': 'Precompiled',
                   'precompiled_charsmap': base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()},
    'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [
        {'type': 'WhitespaceSplit'},
        {'type': 'Metaspace', 'replacement': '▁', 'str_rep': '▁', 'add_prefix_space': True}]},
    'post_processor': {
        'type': 'TemplateProcessing',
        'single': [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}},
                   {'SpecialToken': {'id': '</s>', 'type_id': 0}}],
        'pair': [{'SpecialToken': {'id': '<s>', 'type_id': 0}}, {'Sequence': {'id': 'A', 'type_id': 0}},
                 {'SpecialToken': {'id': '</s>', 'type_id': 0}}, {'SpecialToken': {'id': '</s>', 'type_id': 0}},
                 {'Sequence': {'id': 'B', 'type_id': 0}}, {'SpecialToken': {'id': '</s>', 'type_id': 0}}],
        'special_tokens': {token: {'id': token, 'ids': [id], 'tokens': [token]} for id, token in ((0, '<s>'), (2, '</s>'))}},
    'decoder': {'type': 'Metaspace', 'replacement': '▁', 'str_rep': '▁', 'add_prefix_space': True},
    'model': {'type': 'Unigram', 'unk_id': 3, 'vocab': vocabulary},
}


def ids(text):
    found = [3 if id == 0 else id + 1 for id in pieces.encode(text)]
    return [0] + found[:POSITIONS - 2] + [2]


# The network.
random = np.random.default_rng(11)
weights = {}


def weight(name, *shape, scale=0.25):
    weights[name] = random.normal(0, scale, shape).astype(np.float32)
    return weights[name].astype(np.float64)


def norm_of(name):
    weights[name + '.weight'] = (1 + random.normal(0, 0.1, HIDDEN)).astype(np.float32)
    weights[name + '.bias'] = random.normal(0, 0.1, HIDDEN).astype(np.float32)
    gain, bias = (weights[name + end].astype(np.float64) for end in ('.weight', '.bias'))

    def norm(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-12) * gain + bias
    return norm


def linear_of(name, inner, outer):
    matrix, bias = weight(name + '.weight', outer, inner), weight(name + '.bias', outer)
    return lambda x: x @ matrix.T + bias


words = weight('embeddings.word_embeddings.weight', len(vocabulary), HIDDEN, scale=1)
places = weight('embeddings.position_embeddings.weight', POSITIONS, HIDDEN, scale=0.5)
types = weight('embeddings.token_type_embeddings.weight', 2, HIDDEN)
weights['embeddings.position_ids'] = np.arange(POSITIONS, dtype=np.int64)[None]
first_norm = norm_of('embeddings.LayerNorm')
layers = []
for number in range(LAYERS):
    at = f'encoder.layer.{number}.'
    layers.append(dict(
        query=linear_of(at + 'attention.self.query', HIDDEN, HIDDEN),
        key=linear_of(at + 'attention.self.key', HIDDEN, HIDDEN),
        value=linear_of(at + 'attention.self.value', HIDDEN, HIDDEN),
        out=linear_of(at + 'attention.output.dense', HIDDEN, HIDDEN), norm=norm_of(at + 'attention.output.LayerNorm'),
        wide=linear_of(at + 'intermediate.dense', HIDDEN, WIDE), narrow=linear_of(at + 'output.dense', WIDE, HIDDEN),
        last=norm_of(at + 'output.LayerNorm')))
gelu = np.vectorize(lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))))


def states(tokens):
    # The positions of BERT start at 0. RoBERTa's start after the padding index.
    x = first_norm(words[tokens] + places[:len(tokens)] + types[0])
    for layer in layers:
        split = lambda y: y.reshape(len(tokens), HEADS, -1).transpose(1, 0, 2)
        query, key, value = (split(layer[part](x)) for part in ('query', 'key', 'value'))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(HIDDEN // HEADS)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ value
        x = layer['norm'](x + layer['out'](mixed.transpose(1, 0, 2).reshape(len(tokens), HIDDEN)))
        x = layer['last'](x + layer['narrow'](gelu(layer['wide'](x))))
    return x


def shown(vector):
    return [round(float(value), 6) for value in vector / np.linalg.norm(vector)]


expected = []
for text in TEXTS:
    tokens = ids(text)
    found = states(tokens)
    expected.append({'text': text, 'ids': tokens, 'mean': shown(found.mean(0)), 'first': shown(found[0])})

os.makedirs(OUT, exist_ok=True)
save_file(weights, OUT + '/model.safetensors')
dump = lambda name, value: json.dump(value, open(f'{OUT}/{name}', 'w'), ensure_ascii=False, separators=(',', ':'))
dump('tokenizer.json', tokenizer)
dump('config.json', dict(
    model_type='bert', hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=WIDE,
    hidden_act='gelu', max_position_embeddings=POSITIONS, type_vocab_size=2, vocab_size=len(vocabulary),
    layer_norm_eps=1e-12, pad_token_id=0))
dump('config_sentence_transformers.json', {'prompts': {'query': 'query: ', 'document': 'passage: '}})
dump('expected.json', expected)
print(len(vocabulary), [len(item['ids']) for item in expected])
