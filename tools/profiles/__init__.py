"""One module per shipped hardware profile.

Each has ``NAME``; ``extract(data, folder)``, which takes the published numbers from a data folder; and
``build(folder)``, which writes the profile from them and returns its residuals as Markdown.
"""
