"""Score embeddings and predictions: folds, splits, SVM, targets, statistics. Nothing here knows how they were made."""
