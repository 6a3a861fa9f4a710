"""Acceptance that somebody counted, as traces: rates, engines' counters, and logs of decoding rounds.

``rates``     what was counted, checked: conditional acceptance by position, with every assumption in words
``read``      opening what the user names: text, JSON, JSON lines; which format it is
``plain``     rates in CSV, YAML or JSON, and on the command line
``vllm``      /metrics, log lines, results of ``vllm bench serve``, responses with per-request metrics
``sglang``    responses whose ``meta_info`` holds the histogram of accepted drafts
``deepspec``  metrics.json of DeepSpec's evaluation
``rounds``    logs of rounds, one line per request or per round -> a recording (Parquet)
``spec``      rates -> a specification (YAML) that :mod:`dspark_sim.parametric` draws rows from

Rates are averages, so what comes of them is a specification whose rows are drawn; a log of rounds knows each round, so
what comes of it is a recording, filled in where no round began. Either says so in its provenance.
"""
