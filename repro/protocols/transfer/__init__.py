"""Pre-training on unlabelled molecules, fine-tuning on eight MoleculeNet sets."""
