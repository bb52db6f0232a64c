"""Measures sqlite-vec with the vectors and the first 20 queries of the `scan` example: the nearest ten per query.

    pip install sqlite-vec apsw numpy
    python beside_sqlite_vec.py 100000 384 VECTORS

VECTORS is the same file as for `scan`: 32-bit floats, little-endian. Every n-th vector is a query, and the others are
stored. The database is in memory, like the index.
"""

import sys
import time

import apsw
import numpy
import sqlite_vec

QUERIES = 100
WANTED = 10
ROUNDS = 20

count, dimensions = int(sys.argv[1]), int(sys.argv[2])
real = numpy.fromfile(sys.argv[3], dtype="<f4").reshape(-1, dimensions)
real /= numpy.linalg.norm(real, axis=1, keepdims=True)
step = max(len(real) // QUERIES, 1)
indexes = [place for place in range(0, len(real), step)][:QUERIES]
queries = real[indexes]
stored = numpy.delete(real, indexes, axis=0)[:count]
assert len(stored) == count, f"{len(stored)} vectors are left"

database = apsw.Connection(":memory:")
database.enable_load_extension(True)
database.load_extension(sqlite_vec.loadable_path())
database.execute(f"CREATE VIRTUAL TABLE chunks USING vec0(vector float[{dimensions}])")
with database:
    database.executemany(
        "INSERT INTO chunks(rowid, vector) VALUES (?, ?)", ((place + 1, vector.tobytes()) for place, vector in enumerate(stored))
    )

some = [place for place in range(1, count + 1) if place % 100 == 0]
find = "SELECT rowid FROM chunks WHERE vector MATCH ? AND k = ?"
for name, sql in (("all", find), ("1 % of the entries", f"{find} AND rowid IN ({','.join(map(str, some))})")):
    times = []
    found_exact = 0
    allowed = numpy.array(some) - 1 if sql != find else numpy.arange(count)
    for query in queries[:ROUNDS]:
        started = time.perf_counter()
        found = [row for (row,) in database.execute(sql, (query.tobytes(), WANTED))]
        times.append((time.perf_counter() - started) * 1e3)
        exact = allowed[numpy.argsort(((stored[allowed] - query) ** 2).sum(axis=1))[:WANTED]] + 1
        found_exact += len(set(found) & set(exact.tolist()))
    times.sort()
    recall = found_exact / (WANTED * len(times))
    print(f"{name:>18}: sqlite-vec {sqlite_vec.__version__:<19} p50 {times[len(times) // 2]:8.3f} ms  p99 {times[-1]:8.3f} ms  recall {recall:.4f}")
