"""The lab (extra ``lab``: torch): targets, drafters, training, exact acceptance traces.

What the simulator takes as measured is made here, on real models. Nothing outside this package imports it except the
command line, lazily. Every public function takes and returns plain tensors or the package's own dataclasses.
"""
