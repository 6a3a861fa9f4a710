"""Hardware profiles out of what other tools measured: one module per source, each with the assumptions that it makes.

``operators`` asks NVIDIA's aiconfigurator for kernel times and ``derive`` turns them into a profile; ``vllm`` and
``sglang`` read benchmark results, ``sps`` the table of SGLang's own scheduler, and ``points`` makes a profile of them.
"""
