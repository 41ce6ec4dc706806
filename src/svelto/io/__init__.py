"""Readers and writers: a source model in, a KernelMachine out."""
