"""Policies that claim to be lossless and are not, each in its own way; two that only look so."""
