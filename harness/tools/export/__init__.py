"""Runs in the files of other tools: tables, TensorBoard, MLflow, Weights & Biases."""
