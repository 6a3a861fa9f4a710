"""One module per shipped hardware profile; each has ``extract(data, folder)`` and ``build(folder)``."""
