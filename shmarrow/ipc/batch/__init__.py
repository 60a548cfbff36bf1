"""Record batches and dictionaries ("RecordBatch message", "Dictionary Messages"): bodies to arrays and back."""
