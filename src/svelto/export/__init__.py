"""Predictors written out for other places: a C header (`c`), an ONNX graph (`onnx`)."""
