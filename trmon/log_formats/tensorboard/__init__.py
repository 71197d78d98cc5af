"""Event files of TensorBoard: records with checksums, each an event with the values of a step."""
