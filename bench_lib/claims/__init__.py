"""Published sentences and what was measured of them: benchmarks/claims.toml + results -> verdicts.

`bench_lib.claims.judged.judged(results, campaigns, path)` gives a `bench_lib.claims.words.Judged` a
claim; `bench_lib.claims.pages.sections` makes the parts of a page of them.
"""
