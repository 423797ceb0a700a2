"""Run folders: pre-training and fine-tuning into a folder, loading, scoring, logs and model cards."""
