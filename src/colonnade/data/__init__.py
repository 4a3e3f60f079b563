"""From a file to numbers in declared ranges: readers, schema, preprocessing, labels, splits."""
