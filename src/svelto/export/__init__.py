"""Predictors written out for other places: a C header (`c`)."""
