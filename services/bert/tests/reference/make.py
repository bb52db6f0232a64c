"""Writes the reference files. Needs torch, sentence-transformers, transformers, safetensors."""
import json, os, random, sys
import numpy as np, torch
torch.set_num_threads(1)
MODEL = sys.argv[1]
from sentence_transformers import SentenceTransformer
m = SentenceTransformer(MODEL, device='cpu')
m.max_seq_length = 256
random.seed(7)
words = "the database stores every context entry with tags and metadata while agents search threads for meaning; why did we choose SQLite over PostgreSQL for the embedded service? Größe naïve café Übergröße 数据库 検索 поиск текст 한국어 🙂 🚀 don't can't e-mail user@example.org https://example.org/path?q=1 3.14159 1,000,000 snake_case camelCase HTTPServer #tag @name (paren) [bracket] {brace} \"quote\" 'single'".split()
texts = ["", " ", "a", "Hello, world!", "x"*600, "tab\tseparated\tvalues", "line\nbreaks\r\nhere", "中文句子没有空格也能工作", "ÀÉÎÕÜ accents", "\u200bzero\u200bwidth", "ﬁ ligature", "emoji 👩‍👩‍👧‍👦 family", "long " * 400, "... --- ...", "\u0000".replace("\u0000","nul"), "İstanbul ıŞ", "ＦＵＬＬＷＩＤＴＨ", "e\u0301 combining", "CamelCase and snake_case_words", "SELECT * FROM t WHERE a = 'b';"]
while len(texts) < 200:
    n = random.choice([3,5,8,12,20,35,60,120])
    texts.append(" ".join(random.choice(words) for _ in range(n)))
v = m.encode(texts, batch_size=8, convert_to_numpy=True, normalize_embeddings=True)
assert v.shape == (200,384)
out=os.path.dirname(os.path.abspath(__file__))
os.makedirs(out, exist_ok=True)
json.dump(texts, open(out+'/minilm_texts.json','w'), ensure_ascii=False, indent=0)
open(out+'/minilm_vectors.f16','wb').write(v.astype('<f2').tobytes())
# random cross-encoder
from transformers import BertConfig, BertForSequenceClassification, AutoTokenizer
from safetensors.torch import save_file
torch.manual_seed(3)
tok = json.load(open(MODEL + '/tokenizer.json'))
base = AutoTokenizer.from_pretrained(MODEL)
pairs=[]
for i in range(24):
    pairs.append((" ".join(random.choice(words[:20]) for _ in range(6)), " ".join(random.choice(words[:28]) for _ in range(random.choice([4,20,60])))))
# a small vocabulary: the tokens that the pairs need
need=[]
for a,b in pairs:
    for t in base.tokenize(a)+base.tokenize(b):
        if t not in need: need.append(t)
vocab=['[PAD]','[UNK]','[CLS]','[SEP]','[MASK]']+need
tok['model']['vocab']={t:i for i,t in enumerate(vocab)}
for a in tok['added_tokens']: a['id']=vocab.index(a['content'])
pp=tok['post_processor']
for s in ('[CLS]','[SEP]'): pp['special_tokens'][s]['ids']=[vocab.index(s)]
tok['truncation']=None; tok['padding']=None
d=out+'/cross-encoder'; os.makedirs(d, exist_ok=True)
json.dump(tok, open(d+'/tokenizer.json','w'), ensure_ascii=False, separators=(',',':'))
cfg=BertConfig(vocab_size=len(vocab), hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, max_position_embeddings=96, num_labels=1, initializer_range=0.5)
model=BertForSequenceClassification(cfg).eval()
with torch.no_grad():
    for n,p in model.named_parameters():
        if 'bias' in n: p.normal_(0,0.2)
save_file({k:t.contiguous() for k,t in model.state_dict().items() if 'position_ids' not in k}, d+'/model.safetensors')
json.dump(cfg.to_dict(), open(d+'/config.json','w'), indent=1, default=str)
from tokenizers import Tokenizer
t=Tokenizer.from_file(d+'/tokenizer.json'); t.enable_truncation(96)
logits=[]; 
for a,b in pairs:
    e=t.encode(a,b)
    with torch.no_grad():
        logits.append(model(input_ids=torch.tensor([e.ids]), token_type_ids=torch.tensor([e.type_ids]), attention_mask=torch.ones(1,len(e.ids),dtype=torch.long)).logits.item())
json.dump([{"query":a,"passage":b,"logit":l} for (a,b),l in zip(pairs,logits)], open(d+'/pairs.json','w'), ensure_ascii=False, indent=0)
print(min(logits), max(logits), len(vocab))
