"""Fine-tuning with 1 % and 10 % of the labels."""
