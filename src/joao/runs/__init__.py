"""Run folders: pre-train and fine-tune into a folder, load, score, log and export."""
